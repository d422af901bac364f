use crate::Nic;
use crate::adaptation::Adaptation;
use crate::error::OpenError;
use crate::interface::{self, Interface};
use crate::packet::{PacketDescription, PacketOpener};
use crate::places::duplicates;
use crate::spec::NicSpec;
use crate::tap::{self, TapDescription, TapOpener};
use crate::xdp::{XdpDescription, XdpOpener};
use serde::{Deserialize, Serialize};
use skink_steering::{Ingress, Owner, Steering, SteeringError};
use skink_wire::{FourTuple, IpCidr};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

/// How many stacks may use the NIC at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Sharing {
    /// One: everything reaches it.
    Sole,
    /// Several: each flow reaches one, and what all must see reaches all.
    Several,
}

/// What befell sockets and rings before they were handed over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Past {
    /// Nobody has used them.
    Unused,
    /// Another owner had them: what waits in them is for that one, and is left out.
    Others,
    /// A process of the same owner had them, and died at any instruction: what waits goes on.
    Own,
}

/// What the using process must know of an open NIC, as plain data.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Description {
    /// AF_PACKET.
    Packet(PacketDescription),
    /// TAP.
    Tap(TapDescription),
    /// AF_XDP, with AF_PACKET beside it.
    Xdp(XdpDescription),
}

impl Description {
    /// The descriptors go from a process that died to its successor.
    fn pass_on(&mut self) {
        match self {
            Description::Packet(description) => description.pass_on(),
            Description::Tap(description) => description.pass_on(),
            Description::Xdp(description) => description.pass_on(),
        }
    }
}

/// An open NIC in the form that crosses a Unix socket.
#[derive(Debug)]
pub struct NicParts {
    /// Plain data.
    pub description: Description,
    /// In the order that the description goes by.
    pub descriptors: Vec<OwnedFd>,
}

impl NicParts {
    /// Makes a NIC of the parts: maps rings, and needs no privileges. Fails if the descriptors
    /// aren't those that belong to the description.
    pub fn attach(self) -> io::Result<Nic> {
        match self.description {
            Description::Packet(description) => description.attach(self.descriptors),
            Description::Tap(description) => description.attach(self.descriptors),
            Description::Xdp(description) => description.attach(self.descriptors),
        }
    }
}

/// Exactly `N` descriptors.
pub(crate) fn take_descriptors<const N: usize>(
    descriptors: Vec<OwnedFd>,
) -> io::Result<[OwnedFd; N]> {
    descriptors.try_into().map_err(|given: Vec<OwnedFd>| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "the NIC handed over has {} descriptors instead of {N}; are both sides of the \
                 same version?",
                given.len()
            ),
        )
    })
}

#[derive(Serialize, Deserialize)]
enum BackEnd {
    Packet(PacketOpener),
    Tap(TapOpener),
    Xdp(XdpOpener),
}

/// What is kept of an open NIC for the successor of the process that has it.
#[derive(Serialize, Deserialize)]
struct Kept {
    description: Description,
    #[serde(with = "skink_inherit::descriptors")]
    descriptors: Vec<OwnedFd>,
    /// The interface's number, address and MTU when the NIC was opened.
    facts: Facts,
}

/// What an interface can't change without being another one.
type Facts = (u32, Option<[u8; 6]>, u32);

fn facts(interface: &Interface) -> Facts {
    let mac = interface.mac.map(|mac| mac.0);
    (interface.index, mac, interface.mtu)
}

/// What has become of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Became {
    /// It is as it was, or has another name.
    Same,
    /// It has other properties, or another one has its name.
    Another,
    /// It isn't there.
    Gone,
}

impl Kept {
    /// What has become of the interface that had this name.
    fn interface_became(&self, name: &str) -> Became {
        let all = interface::list().unwrap_or_default();
        let itself = all.iter().find(|it| it.index == self.facts.0);
        match itself.or_else(|| all.iter().find(|it| it.name == name)) {
            // Under another name it couldn't be opened anew.
            Some(now) if facts(now) == self.facts || now.name != name => Became::Same,
            Some(_) => Became::Another,
            None => Became::Gone,
        }
    }
}

/// The privileged side of one NIC: lives as long as the NIC may be used, and opens it for owner
/// after owner. Dropping it leaves the owners' NICs as they are. It can go to another program that this
/// process becomes (`skink_inherit`), what steers and all.
#[derive(Serialize, Deserialize)]
pub struct Opener {
    name: String,
    /// For successors, by owner. Before the back end: what that closes last, it closes fast.
    kept: BTreeMap<Owner, Kept>,
    back_end: BackEnd,
    /// Where several owners share the NIC and the kernel can steer.
    steering: Option<Steering>,
    /// Keeps what is ours from the kernel's own stack, once the addresses are known and if it can.
    ingress: Option<Ingress>,
    /// AF_XDP couldn't step aside or come back, and isn't asked again.
    #[serde(skip)]
    stays: bool,
}

impl Opener {
    /// Checks that the NIC can be had, and makes what its owners share: a TAP's interface, the
    /// steering program. A shared NIC receives nothing but control frames before
    /// [`Opener::set_addresses`].
    pub fn new(spec: &NicSpec, sharing: Sharing) -> Result<Opener, OpenError> {
        spec.check()?;
        let (back_end, steering) = match spec {
            NicSpec::Packet(name) => {
                let opener = PacketOpener::new(name)?;
                let steering = match sharing {
                    Sharing::Sole => None,
                    Sharing::Several => unless_refused(Steering::load())?,
                };
                (BackEnd::Packet(opener), steering)
            }
            NicSpec::Tap(name) => {
                let opener = TapOpener::new(name, sharing)?;
                let steering = match sharing {
                    Sharing::Sole => None,
                    // In a user namespace nobody may load programs; the TAP's own way has to do.
                    Sharing::Several => Steering::load().ok(),
                };
                (BackEnd::Tap(opener), steering)
            }
            NicSpec::Xdp(name) => {
                // The program is what brings frames to AF_XDP sockets: a sole owner needs it too.
                let mut steering = Steering::load()?;
                let opener = XdpOpener::new(name, sharing, &mut steering)?;
                (BackEnd::Xdp(opener), Some(steering))
            }
        };
        Ok(Opener {
            name: spec.interface().to_owned(),
            back_end,
            kept: BTreeMap::new(),
            steering,
            ingress: None,
            stays: false,
        })
    }

    /// Sets which addresses are ours: what goes to others is left to the kernel, and what goes to these kept from it.
    pub fn set_addresses(&mut self, addresses: &[IpCidr]) -> Result<(), SteeringError> {
        if let Some(steering) = &mut self.steering {
            steering.set_addresses(addresses)?;
        }
        self.ingress = match &self.back_end {
            BackEnd::Packet(_) | BackEnd::Xdp(_) => keep_from_kernel(&self.name, addresses),
            BackEnd::Tap(_) => None,
        };
        Ok(())
    }

    /// The kernel's steering of this NIC, if it steers: to hand the port table to owners. Owners are added and removed
    /// by [`Opener::open`] and [`Opener::close`].
    pub fn steering(&mut self) -> Option<&mut Steering> {
        self.steering.as_mut()
    }

    /// Has AF_XDP step aside: frames come to all owners by their packet sockets, in large pieces, until it isn't `wanted` any more.
    /// What is sent goes on as before. Only on a veth, whose other end cuts what it sends to frames while there is an XDP
    /// program (docs/decisions/0021); otherwise nothing happens.
    pub fn step_aside(&mut self, wanted: bool) {
        let (BackEnd::Xdp(opener), Some(steering)) = (&self.back_end, &mut self.steering) else {
            return;
        };
        if self.stays {
            return;
        }
        if let Err(error) = opener.step_aside(wanted, steering) {
            tracing::warn!(
                interface = self.name,
                %error,
                "AF_XDP can't step aside or come back: if `ip link show` has no XDP program there, frames take the \
                 slower way, by packet sockets, until the program is started anew"
            );
            self.stays = true;
        }
    }

    /// As [`Opener::step_aside`] if it isn't wanted, whatever another process did with a copy of this, which has died.
    pub fn come_back(&mut self) {
        self.stays = false;
        // If that one had stepped aside, the kernel takes nothing off; if not, this is a short moment.
        self.step_aside(true);
        self.step_aside(false);
    }

    /// Opens the NIC for one owner (below [`Owner::MAXIMUM`]). An owner that has it already (its
    /// process died) gets it anew.
    pub fn open(&mut self, owner: u16) -> Result<NicParts, OpenError> {
        let parts = self.open_new(owner)?;
        self.complete(parts)
    }

    /// Adds what every process has for itself.
    fn complete(&self, mut parts: NicParts) -> Result<NicParts, OpenError> {
        if let Description::Tap(_) = parts.description {
            parts.descriptors.push(tap::watched(&self.name)?);
        }
        Ok(parts)
    }

    fn open_new(&mut self, owner: u16) -> Result<NicParts, OpenError> {
        let owner = owner_number(owner)?;
        self.take_out(owner);
        let steering = self.steering.as_mut();
        let parts = match &mut self.back_end {
            BackEnd::Packet(opener) => opener.open(owner, steering)?,
            BackEnd::Tap(opener) => opener.open(owner, steering)?,
            BackEnd::Xdp(opener) => opener.open(owner, steering)?,
        };
        if let Some(steering) = &mut self.steering {
            steering.add_owner(owner);
        }
        Ok(parts)
    }

    /// As [`Opener::open`], for an owner whose processes succeed one another. What was opened is kept
    /// until [`Opener::close`], and handed out again by the next call, sockets, rings and all: frames that
    /// wait in them go on, and the successor needn't wait for the kernel to make new ones. By then the
    /// process before must have ended. Answers too whether it is the same NIC again.
    ///
    /// An interface that was made anew meanwhile, or has another address or MTU, is opened anew.
    pub fn open_again(&mut self, owner: u16) -> Result<(NicParts, bool), OpenError> {
        let number = owner_number(owner)?;
        let duplicated = OpenError::doing("keeping the sockets of", &self.name);
        if let Some(kept) = self
            .kept
            .get(&number)
            .filter(|kept| kept.interface_became(&self.name) == Became::Same)
        {
            let mut description = kept.description.clone();
            description.pass_on();
            let descriptors = duplicates(&kept.descriptors).map_err(duplicated)?;
            if let Some(steering) = &mut self.steering {
                steering.succeed_owner(number);
            }
            let parts = NicParts {
                description,
                descriptors,
            };
            return Ok((self.complete(parts)?, true));
        }
        let parts = self.open_new(owner)?;
        // Without it, it can't be told whether it is still the same.
        if let Ok(Some(interface)) = interface::find(&self.name) {
            let kept = Kept {
                description: parts.description.clone(),
                descriptors: duplicates(&parts.descriptors).map_err(duplicated)?,
                facts: facts(&interface),
            };
            self.kept.insert(number, kept);
        }
        Ok((self.complete(parts)?, false))
    }

    /// What of the NIC can be adapted to how it is used; nothing of a TAP: who reads from it finds what was written.
    /// What a process that was killed left behind is undone.
    pub fn adaptation(&self) -> Adaptation {
        match &self.back_end {
            BackEnd::Packet(_) | BackEnd::Xdp(_) => Adaptation::of(&self.name),
            BackEnd::Tap(_) => Adaptation::default(),
        }
    }

    /// Whether the owner's process can have a successor with the same NIC ([`Opener::open_again`]).
    pub fn can_go_on(&self, owner: u16) -> bool {
        self.interface_became(owner) == Some(Became::Same)
    }

    /// Whether the interface has another MTU or address than when the owner's process got it, or is another one of that
    /// name: then this process goes on with what isn't so any more, and a successor wouldn't.
    pub fn has_changed(&self, owner: u16) -> bool {
        self.interface_became(owner) == Some(Became::Another)
    }

    fn interface_became(&self, owner: u16) -> Option<Became> {
        let kept = self.kept.get(&owner_number(owner).ok()?)?;
        Some(kept.interface_became(&self.name))
    }

    /// The owner's process has ended: nobody takes it for one that listens. [`Opener::succeed`] follows, or [`Opener::retire`].
    pub fn orphan(&mut self, owner: u16) {
        if let (Some(steering), Ok(owner)) = (&mut self.steering, owner_number(owner)) {
            steering.orphan_owner(owner);
        }
    }

    /// Another process is to end the connections of the owner's: answers what that needs. Frames of these go on coming, those that wait
    /// too, until [`Opener::retire`]; and requests for connections to these TCP ports, where it listens in reserve; no others do.
    pub fn succeed(&mut self, owner: u16, listens: &[u16]) -> Result<NicParts, OpenError> {
        let owner = owner_number(owner)?;
        let mut steering = self.steering.as_mut();
        if let Some(steering) = &mut steering {
            steering.listen_in_reserve(owner, listens);
        }
        let parts = match &mut self.back_end {
            BackEnd::Packet(opener) => opener.succeed(owner)?,
            BackEnd::Tap(opener) => opener.succeed(owner)?,
            BackEnd::Xdp(opener) => opener.succeed(owner, steering)?,
        };
        self.complete(parts)
    }

    /// The interface's MTU at this moment, if it is there.
    pub fn mtu(&self) -> Option<u32> {
        let interface = interface::find(&self.name).ok().flatten();
        interface.map(|interface| interface.mtu)
    }

    /// The segments of a TCP connection go to the owner from now on.
    pub fn bind_flow(&self, flow: &FourTuple, owner: u16) -> Result<(), OpenError> {
        let owner = owner_number(owner)?;
        let bound = self.steering.as_ref().map(|it| it.bind_flow(flow, owner));
        Ok(bound.transpose().map(drop)?)
    }

    /// An owner other than these that listens on a port of TCP's ([`Steering::other_listener`]).
    pub fn other_listener(
        &self,
        than: &[u16],
        port: u16,
        only_waiting: bool,
        choice: usize,
    ) -> Option<u16> {
        let than = than.iter().filter_map(|owner| owner_number(*owner).ok());
        let steering = self.steering.as_ref()?;
        let other = steering.other_listener(than, port, only_waiting, choice)?;
        Some(u16::from(other.number()))
    }

    /// Whether other owners than this one listen on a TCP port, and aren't in reserve.
    pub fn others_listen(&self, than: u16, port: u16) -> bool {
        let than = owner_number(than).ok();
        let asked = self.steering.as_ref().zip(than);
        asked.is_some_and(|(steering, than)| steering.others_listen(than, port))
    }

    /// No frame goes to the owner any more, though its process may not have ended yet.
    pub fn retire(&mut self, owner: u16) {
        if let (Some(steering), Ok(owner)) = (&mut self.steering, owner_number(owner)) {
            steering.remove_owner(owner);
        }
    }

    /// Takes an owner out, once its process has closed the NIC's descriptors: what it had may go to
    /// the next.
    pub fn close(&mut self, owner: u16) {
        if let Ok(owner) = owner_number(owner) {
            self.take_out(owner);
        }
    }

    fn take_out(&mut self, owner: Owner) {
        // The kernel takes its time to unmake rings: first it must not steer to them.
        let kept = self.kept.remove(&owner);
        if let Some(steering) = &mut self.steering {
            steering.remove_owner(owner);
        }
        match &mut self.back_end {
            BackEnd::Packet(opener) => opener.close(owner),
            BackEnd::Tap(opener) => opener.close(owner),
            BackEnd::Xdp(opener) => opener.close(owner),
        }
        drop(kept);
    }
}

/// Without privileges the NIC can have one owner at a time, to whom everything comes.
fn unless_refused(loaded: Result<Steering, SteeringError>) -> Result<Option<Steering>, OpenError> {
    match loaded {
        Ok(steering) => Ok(Some(steering)),
        Err(SteeringError::Privileges { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Without it the kernel's own stack drops what is ours by itself, as long as it doesn't forward.
fn keep_from_kernel(interface: &str, addresses: &[IpCidr]) -> Option<Ingress> {
    let error = match Ingress::attach(interface, addresses) {
        Ok(ingress) => return Some(ingress),
        Err(error) => error,
    };
    if interface::forwards(interface) {
        tracing::warn!(
            %error,
            "and the kernel forwards: it may pass packets to these addresses on, or refuse them. `sysctl \
             net.ipv4.conf.{interface}.forwarding=0` (net.ipv6 too) stops that"
        );
    } else {
        tracing::debug!(%error);
    }
    None
}

fn owner_number(owner: u16) -> Result<Owner, OpenError> {
    u8::try_from(owner)
        .ok()
        .and_then(Owner::new)
        .ok_or(OpenError::NoPlace {
            owners: Owner::MAXIMUM,
        })
}

/// Opens a NIC for a sole owner.
pub fn open_sole(spec: &NicSpec) -> Result<NicParts, OpenError> {
    Opener::new(spec, Sharing::Sole)?.open(0)
}

#[cfg(test)]
mod tests;
