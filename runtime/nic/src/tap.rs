//! TAP with virtio-net headers: the other end of the link is an interface of this machine's kernel.
//! Works without root in a user namespace.
//!
//! Each owner has a queue of its own. Where the kernel can't run the steering program, it sends a
//! flow to the queue that last sent on it, and a flow that it hasn't seen anywhere.
//!
//! Memory: 68 KiB for each owner's receive buffer, and [`Geometry::CONTROL`] where the TAP is shared.
//! What waits to be read is bounded by the interface's `txqueuelen` (frames).

mod queue;

use crate::error::{Denial, OpenError};
use crate::interface::{self, Interface};
use crate::opener::{Description, NicParts, Past, Sharing};
use crate::packet::{self, Geometry, Ring};
use crate::places::Places;
use crate::{Capabilities, Nic, socket, virtio};
use queue::{TapReceiver, TapSender};
use rustix::event::epoll;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use skink_steering::{Owner, Steering};
use skink_wire::MacAddr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The kernel may leave checksums to us and hand us joined TCP segments. Not joined datagrams: only
/// TCP's segments come joined from a NIC.
const OFFLOADS: libc::c_uint =
    libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;

/// What the using process must know of an open TAP.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TapDescription {
    mac: [u8; 6],
    mtu: u32,
    shared: bool,
    steered: bool,
    past: Past,
}

/// The privileged side: makes the interface, and a queue for each owner.
#[derive(Serialize, Deserialize)]
pub(crate) struct TapOpener {
    name: String,
    sharing: Sharing,
    /// A queue that takes no part: keeps the interface in being while no owner has one. There is
    /// none for a single-queue TAP that somebody else made.
    #[serde(with = "skink_inherit::descriptors")]
    holder: Option<OwnedFd>,
    /// The queues, where the kernel steers.
    places: Places,
}

impl TapOpener {
    pub(crate) fn new(name: &str, sharing: Sharing) -> Result<TapOpener, OpenError> {
        let holder = match open_queue(name, Queues::Many) {
            Ok(queue) => {
                set_queue(queue.as_fd(), libc::IFF_DETACH_QUEUE)
                    .map_err(OpenError::doing("setting up", name))?;
                Some(queue)
            }
            Err(OpenError::TapTaken { .. }) if sharing == Sharing::Sole => {
                // Made as a single queue: it will do for one, if it is free.
                open_queue(name, Queues::One)?;
                None
            }
            Err(error) => return Err(error),
        };
        bring_up(name)?;
        Ok(TapOpener {
            name: name.to_owned(),
            sharing,
            holder,
            places: Places::default(),
        })
    }

    pub(crate) fn open(
        &mut self,
        owner: Owner,
        steering: Option<&mut Steering>,
    ) -> Result<NicParts, OpenError> {
        let steered = steering.is_some();
        let (descriptors, past) = match steering {
            Some(steering) => self.steered(owner, steering)?,
            None => (self.unsteered()?, Past::Unused),
        };
        self.parts(descriptors, steered, past)
    }

    /// What the owner has, for who goes on in place of its process; opened anew if the kernel doesn't steer.
    pub(crate) fn succeed(&mut self, owner: Owner) -> Result<NicParts, OpenError> {
        let again = self.places.again(owner);
        let again = again.map_err(OpenError::doing("keeping the queue of", &self.name))?;
        match again {
            Some(descriptors) => self.parts(descriptors, true, Past::Own),
            None => self.parts(self.unsteered()?, false, Past::Unused),
        }
    }

    /// A queue of one owner, and what else it has.
    fn parts(
        &self,
        descriptors: Vec<OwnedFd>,
        steered: bool,
        past: Past,
    ) -> Result<NicParts, OpenError> {
        let interface = self.interface()?;
        Ok(NicParts {
            description: Description::Tap(TapDescription {
                mac: our_mac(&interface).0,
                mtu: interface.mtu,
                shared: self.sharing == Sharing::Several,
                steered,
                past,
            }),
            descriptors,
        })
    }

    /// The owner's process is gone.
    pub(crate) fn close(&mut self, owner: Owner) {
        self.places.leave(owner);
    }

    /// A new queue and, where the TAP is shared, a socket for what every owner must see. Without that
    /// an owner sees its own flows only, and asks again for what it missed.
    fn unsteered(&self) -> Result<Vec<OwnedFd>, OpenError> {
        let queues = match self.holder {
            Some(_) => Queues::Many,
            None => Queues::One,
        };
        let mut descriptors = vec![open_queue(&self.name, queues)?];
        bring_up(&self.name)?;
        if self.sharing == Sharing::Several {
            let index = self.interface()?.index;
            descriptors.extend(packet::outgoing_control_socket(index).ok());
        }
        Ok(descriptors)
    }

    /// A former owner's, or a new one that takes part in the steering.
    fn steered(
        &mut self,
        owner: Owner,
        steering: &Steering,
    ) -> Result<(Vec<OwnedFd>, Past), OpenError> {
        let fails = OpenError::doing("steering the queues of", &self.name);
        if let Some((descriptors, index)) = self.places.take(owner).map_err(&fails)? {
            // Frames for the former owner; no more come, since it isn't steered to.
            let mut frame = [0; 64];
            let queue = descriptors.first();
            while queue.is_some_and(|queue| rustix::io::read(queue, &mut frame).is_ok()) {}
            steering.set_fanout_index(owner, index);
            return Ok((descriptors, Past::Others));
        }
        let descriptors = self.unsteered()?;
        let program = steering.fanout_program().as_raw_fd();
        for queue in descriptors.iter().take(1) {
            let queue = queue.as_fd();
            socket::integer_ioctl(queue, libc::TUNSETSTEERINGEBPF, program).map_err(&fails)?;
        }
        let index = self.places.append(owner, &descriptors).map_err(&fails)?;
        steering.set_fanout_index(owner, index);
        Ok((descriptors, Past::Unused))
    }

    fn interface(&self) -> Result<Interface, OpenError> {
        let all = interface::list().map_err(OpenError::doing("looking for", &self.name))?;
        let found = all.iter().find(|interface| interface.name == self.name);
        found
            .cloned()
            .ok_or_else(|| OpenError::no_interface(&self.name, &all))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Queues {
    One,
    Many,
}

/// Opens a queue of the TAP, which is made if there is none.
fn open_queue(name: &str, queues: Queues) -> Result<OwnedFd, OpenError> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let queue =
        rustix::fs::open("/dev/net/tun", flags, Mode::empty()).map_err(|error| {
            match error.kind() {
                io::ErrorKind::PermissionDenied => OpenError::Denied(Denial::TunDevice),
                _ if error == rustix::io::Errno::NOENT || error == rustix::io::Errno::NODEV => {
                    OpenError::NoTunDevice
                }
                _ => OpenError::doing("opening /dev/net/tun for", name)(error.into()),
            }
        })?;
    let mut flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    if queues == Queues::Many {
        flags |= libc::IFF_MULTI_QUEUE;
    }
    let mut request = socket::interface_request(name);
    request.ifr_ifru.ifru_flags = flags as i16;
    let attach = socket::interface_ioctl(queue.as_fd(), libc::TUNSETIFF, &mut request);
    attach.map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM) => OpenError::Denied(Denial::TapInterface),
        Some(libc::EBUSY | libc::EINVAL | libc::EBADFD | libc::E2BIG) => {
            OpenError::TapTaken { name: name.into() }
        }
        _ => OpenError::doing("making the TAP", name)(error),
    })?;
    let set_up = || -> io::Result<()> {
        let header = virtio::BYTES as i32;
        socket::integer_ioctl(queue.as_fd(), libc::TUNSETVNETHDRSZ, header)?;
        socket::value_ioctl(queue.as_fd(), libc::TUNSETOFFLOAD, OFFLOADS.into())
    };
    set_up().map_err(OpenError::doing("setting up the TAP", name))?;
    Ok(queue)
}

/// The last descriptor of a TAP that is handed over: what its queue is to be watched by. Each process needs one of its
/// own, since what is in it can be taken out by who put it there only.
pub(crate) fn watched(name: &str) -> Result<OwnedFd, OpenError> {
    let watched = epoll::create(epoll::CreateFlags::CLOEXEC);
    watched.map_err(|error| OpenError::doing("watching", name)(error.into()))
}

fn set_queue(queue: BorrowedFd<'_>, what: libc::c_int) -> io::Result<()> {
    let mut request = socket::interface_request("");
    request.ifr_ifru.ifru_flags = what as i16;
    socket::interface_ioctl(queue, libc::TUNSETQUEUE, &mut request)
}

fn bring_up(name: &str) -> Result<(), OpenError> {
    interface::set_up(name).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => OpenError::Down { name: name.into() },
        _ => OpenError::doing("bringing up", name)(error),
    })
}

/// Our address on the link, whose other end has the interface's: locally administered (IEEE 802
/// section 8.4), and the same for all owners.
fn our_mac(interface: &Interface) -> MacAddr {
    // FNV-1a, as spread over 48 bits is all that is asked of it.
    let seed = interface.mac.unwrap_or(MacAddr::UNSPECIFIED).0;
    let bytes = interface.name.bytes().chain(seed);
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let [_, _, a, b, c, d, e, f] = (hash ^ hash >> 16).to_be_bytes();
    let mac = MacAddr([a & 0xfc | 0x02, b, c, d, e, f]);
    if Some(mac) == interface.mac {
        return MacAddr([mac.0[0], b, c, d, e, f ^ 1]);
    }
    mac
}

impl TapDescription {
    /// See [`Past::Own`]. Frames wait in the kernel's own queue, so only the control ring has to know.
    pub(crate) fn pass_on(&mut self) {
        self.past = Past::Own;
    }

    /// The unprivileged side.
    pub(crate) fn attach(&self, mut descriptors: Vec<OwnedFd>) -> io::Result<Nic> {
        let watched = descriptors.pop();
        let mut descriptors = descriptors.into_iter();
        let (Some(watched), Some(queue), control, None) = (
            watched,
            descriptors.next(),
            descriptors.next(),
            descriptors.next(),
        ) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the TAP handed over has not two or three descriptors; are both sides of the same \
                 version?",
            ));
        };
        let control = control.map(|socket| Ring::map(socket, Geometry::CONTROL, self.past));
        let control = control.transpose()?;
        // As with a packet socket: one descriptor for both halves.
        let queue = Arc::new(queue);
        Ok(Nic {
            capabilities: self.capabilities(),
            receiver: Box::new(TapReceiver::new(queue.clone(), watched, control)?),
            sender: Box::new(TapSender::new(queue)),
        })
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            kind: "tap",
            mac: MacAddr(self.mac),
            mtu: self.mtu,
            tx_checksum: true,
            rx_checksum: true,
            cut_bytes: packet::CUT_BYTES,
            joins: true,
            queues: if self.shared {
                Owner::MAXIMUM.into()
            } else {
                1
            },
            steering: match (self.shared, self.steered) {
                (false, _) => crate::Steering::Sole,
                (true, true) => crate::Steering::Tables,
                (true, false) => crate::Steering::Follows,
            },
            zero_copy: false,
        }
    }
}

#[cfg(test)]
mod tests;
