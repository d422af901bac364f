//! AF_PACKET with virtio-net headers: GSO and checksum offload on virtual links and real cards, on
//! any interface, beside the kernel.
//!
//! Memory: [`Geometry::FLOWS`], 1 MiB of the kernel's for each owner (where an interface is shared, for
//! as many as there ever were at a time), at most 16 MiB of frames that are too large for that ring and wait in
//! the kernel, 68 KiB to take them, and 64 KiB, once it comes to that, to tell flows apart that wait; where an interface is shared [`Geometry::CONTROL`], 128 KiB, and from the
//! second owner on sockets for up to four to come; up to 256 KiB
//! for the outbound batch; and at most 2 MiB of frames that wait in the kernel to be sent. An opener without
//! `CAP_NET_ADMIN` may not have frames wait: then the ring is [`Geometry::WHOLE`], 16 MiB, and holds them.
//!
//! Frames leave through the interface's queueing discipline. Going round it (`PACKET_QDISC_BYPASS`)
//! loses frames without a word when a card's queue is full.

mod backlog;
mod fanout;
mod geometry;
mod position;
mod queue;
mod ring;
mod sender;
mod spares;

pub(crate) use geometry::Geometry;
pub(crate) use ring::Ring;
pub(crate) use sender::PacketSender;

use crate::control;
use crate::error::{Denial, OpenError};
use crate::interface::Interface;
use crate::opener::{Description, NicParts, Past, take_descriptors};
use crate::socket::close_together;
use crate::{Budget, Capabilities, Nic, Receiver, interface, socket};
use fanout::Group;
use geometry::Direction;
use serde::{Deserialize, Serialize};
use skink_messages::RxFrame;
use skink_steering::{Owner, Steering};
use skink_time::Instant;
use skink_wire::MacAddr;
use spares::{Pair, Spares};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Largest IP packet that the kernel cuts.
pub(crate) const CUT_BYTES: u32 = 65_535;
/// Bytes of frames that may wait in the kernel for the card. The kernel doubles it, for its own
/// bookkeeping. Less than a queueing discipline holds, so that a full card blocks rather than drops.
const SEND_BUFFER: i32 = 1 << 20;

/// What the using process must know of an open NIC.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PacketDescription {
    mac: [u8; 6],
    mtu: u32,
    ring: Geometry,
    past: Past,
    /// The ring of the second descriptor, where the interface is shared.
    control: Option<Geometry>,
}

/// The privileged side: opens sockets on one interface.
#[derive(Serialize, Deserialize)]
pub(crate) struct PacketOpener {
    name: String,
    /// Of all owners' rings.
    ring: Geometry,
    group: Group,
    #[serde(skip)]
    spares: Spares,
}

impl Drop for PacketOpener {
    fn drop(&mut self) {
        let mut sockets = self.spares.drain();
        sockets.extend(self.group.drain());
        close_together(sockets);
    }
}

impl PacketOpener {
    pub(crate) fn new(name: &str) -> Result<PacketOpener, OpenError> {
        // Better now than when the first program comes.
        usable_interface(name)?;
        let socket = packet_socket(name)?;
        let ring = match geometry::lengthen_queue(socket.as_fd(), Geometry::FLOWS) {
            Ok(()) => Geometry::FLOWS,
            Err(_) => Geometry::WHOLE,
        };
        Ok(PacketOpener {
            name: name.to_owned(),
            ring,
            group: Group::default(),
            spares: Spares::default(),
        })
    }

    /// Opens the interface for one owner; without `steering`, for the only one.
    pub(crate) fn open(
        &mut self,
        owner: Owner,
        steering: Option<&mut Steering>,
    ) -> Result<NicParts, OpenError> {
        let (interface, _) = usable_interface(&self.name)?;
        let fails = OpenError::doing("setting up a packet socket on", &self.name);
        let mut past = Past::Unused;
        let descriptors = match steering {
            None => {
                let flows = spares::flows_socket(self.ring).map_err(&fails)?;
                socket::join_all_multicast(flows.as_fd(), interface.index).map_err(&fails)?;
                socket::bind_to_interface(flows.as_fd(), interface.index).map_err(&fails)?;
                vec![flows]
            }
            Some(steering) => match self.group.reuse(owner, steering).map_err(&fails)? {
                Some(sockets) => {
                    past = Past::Others;
                    sockets
                }
                None => self.join(owner, &interface, steering)?.into(),
            },
        };
        self.parts(descriptors, past)
    }

    /// Sockets of one owner, with their rings.
    fn parts(&self, descriptors: Vec<OwnedFd>, past: Past) -> Result<NicParts, OpenError> {
        let (interface, mac) = usable_interface(&self.name)?;
        Ok(NicParts {
            description: Description::Packet(PacketDescription {
                mac: mac.0,
                mtu: interface.mtu,
                ring: self.ring,
                past,
                control: (descriptors.len() > 1).then_some(Geometry::CONTROL),
            }),
            descriptors,
        })
    }

    /// What the owner has, for who goes on in place of its process; opened anew if it was the only one.
    pub(crate) fn succeed(&mut self, owner: Owner) -> Result<NicParts, OpenError> {
        let again = self.group.again(owner);
        let again = again.map_err(OpenError::doing("keeping the sockets of", &self.name))?;
        match again {
            Some(sockets) => self.parts(sockets, Past::Own),
            None => self.open(owner, None),
        }
    }

    /// The owner's process is gone.
    pub(crate) fn close(&mut self, owner: Owner) {
        self.group.leave(owner);
    }

    /// A new member of the fan-out group, and a socket for what every owner must see.
    fn join(
        &mut self,
        owner: Owner,
        interface: &Interface,
        steering: &Steering,
    ) -> Result<[OwnedFd; 2], OpenError> {
        let fails = OpenError::doing("joining the fan-out group of", &self.name);
        let Pair { flows, control } = self.spares.take(self.ring).map_err(&fails)?;
        let sockets = [flows, control];
        let [flows, control] = sockets.each_ref().map(AsFd::as_fd);
        socket::attach_program(control, steering.control_filter()).map_err(&fails)?;
        socket::bind_to_interface(control, interface.index).map_err(&fails)?;
        socket::join_all_multicast(flows, interface.index).map_err(&fails)?;
        // Only a bound socket can join, and until it has it would receive everything.
        socket::attach_filter(flows, &control::reject_all()).map_err(&fails)?;
        socket::bind_to_interface(flows, interface.index).map_err(&fails)?;
        self.group.join(owner, &sockets, steering).map_err(&fails)?;
        socket::attach_program(flows, steering.steered_filter()).map_err(&fails)?;
        // Most programs have one process. One that has two may have more.
        if self.group.owners() > 1 {
            self.spares.expect_more(flows, self.ring);
        }
        Ok(sockets)
    }
}

/// An interface that is there, is an Ethernet and is up; and its address.
pub(crate) fn usable_interface(name: &str) -> Result<(Interface, MacAddr), OpenError> {
    let all = interface::list().map_err(OpenError::doing("looking for", name))?;
    let Some(interface) = all.iter().find(|i| i.name == name) else {
        return Err(OpenError::no_interface(name, &all));
    };
    let Some(mac) = interface.mac else {
        return Err(OpenError::NotEthernet { name: name.into() });
    };
    if !interface.up {
        return Err(OpenError::Down { name: name.into() });
    }
    Ok((interface.clone(), mac))
}

fn packet_socket(name: &str) -> Result<OwnedFd, OpenError> {
    socket::packet_socket().map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => OpenError::Denied(Denial::PacketSocket),
        _ => OpenError::doing("opening a packet socket", name)(error),
    })
}

fn configure_sending(socket: BorrowedFd<'_>) -> io::Result<()> {
    let set = |name| socket::set_option(socket, libc::SOL_SOCKET, name, SEND_BUFFER);
    // Forcing needs CAP_NET_ADMIN; without it the system's limit is what we get.
    set(libc::SO_SNDBUFFORCE).or_else(|_| set(libc::SO_SNDBUF))
}

/// A socket with a small ring for frames that the kernel sends out of the interface, to whoever is behind it.
pub(crate) fn outgoing_control_socket(interface: u32) -> io::Result<OwnedFd> {
    let socket = socket::packet_socket()?;
    geometry::configure(socket.as_fd(), Geometry::CONTROL, Direction::Outbound)?;
    socket::attach_filter(socket.as_fd(), &control::outgoing_control())?;
    socket::bind_to_interface(socket.as_fd(), interface)?;
    Ok(socket)
}

impl PacketDescription {
    /// See [`Past::Own`].
    pub(crate) fn pass_on(&mut self) {
        self.past = Past::Own;
    }

    /// The unprivileged side: maps the rings.
    pub(crate) fn attach(&self, descriptors: Vec<OwnedFd>) -> io::Result<Nic> {
        let map = |socket: Arc<OwnedFd>, geometry| Ring::map(socket, geometry, self.past);
        let (flows, control) = match self.control {
            None => {
                let [flows] = take_descriptors(descriptors)?;
                (flows, None)
            }
            Some(geometry) => {
                let [flows, control] = take_descriptors(descriptors)?;
                (flows, Some(map(control.into(), geometry)?))
            }
        };
        // One descriptor for both halves: whoever handed it over keeps track of it, and of no other.
        let flows = Arc::new(flows);
        Ok(Nic {
            capabilities: self.capabilities(),
            receiver: Box::new(PacketReceiver {
                flows: map(flows.clone(), self.ring)?,
                control,
            }),
            sender: Box::new(PacketSender::new(flows)),
        })
    }

    fn capabilities(&self) -> Capabilities {
        let shared = self.control.is_some();
        Capabilities {
            kind: "packet",
            mac: MacAddr(self.mac),
            mtu: self.mtu,
            tx_checksum: true,
            rx_checksum: true,
            cut_bytes: CUT_BYTES,
            joins: true,
            queues: if shared { Owner::MAXIMUM.into() } else { 1 },
            steering: match shared {
                false => crate::Steering::Sole,
                true => crate::Steering::Tables,
            },
            zero_copy: false,
        }
    }
}

/// The receiving half: the ring of the owner's flows, and the one of what all owners see.
struct PacketReceiver {
    flows: Ring,
    control: Option<Ring>,
}

impl Receiver for PacketReceiver {
    fn receive(
        &mut self,
        now: Instant,
        budget: &mut Budget,
        each: &mut dyn FnMut(RxFrame<'_>),
    ) -> usize {
        // Control frames are few, and a neighbour's answer may be what the flows wait for.
        let control = match &mut self.control {
            Some(ring) => ring.receive(now, budget, each),
            None => 0,
        };
        control + self.flows.receive(now, budget, each)
    }

    fn descriptors(&self, each: &mut dyn FnMut(BorrowedFd<'_>)) {
        each(self.flows.descriptor());
        if let Some(control) = &self.control {
            each(control.descriptor());
        }
    }

    fn take_dropped(&mut self) -> u64 {
        let control = self.control.as_mut().map_or(0, Ring::take_dropped);
        control + self.flows.take_dropped()
    }

    fn take_overtaken(&mut self) -> u64 {
        self.flows.take_overtaken()
    }
}

#[cfg(test)]
mod tests;
