//! The packet of a ticket.
//!
//! A ticket is one end of a pair of Unix sockets whose other end is closed. In its queue lies one packet:
//! JSON, and descriptors: the kernel's socket behind the program's; if a stack in another process has the socket, its holder's
//! connection to the broker; and of a socket that listens what of the holder's channels is needed to let go of it. The packet is looked at, never taken out, so that a message that was peeked at can be received
//! again. It all goes when the last descriptor of the ticket is closed.
use super::{Id, RoleEntry, SocketEntry, id};
use core::ffi::c_int;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, sockopt,
};
use serde::{Deserialize, Serialize};
use skink_memory::SocketId;
use skink_messages::Protocol;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

/// How the packet begins.
const MAGIC: &[u8] = b"{\"version\":\"skink-ticket-";
/// Versions that can't read each other's pass each other nothing.
pub const VERSION: &str = concat!("skink-ticket-5-", env!("CARGO_PKG_VERSION"));
/// No packet is larger.
const MAXIMUM_BYTES: usize = 8192;
/// Descriptors beside it, at most: the socket, the holder's connection to the broker, its channel for calls.
const DESCRIPTORS: usize = 10;

/// What is in the packet.
#[derive(Serialize, Deserialize)]
pub struct Message {
    /// [`VERSION`]
    pub version: String,
    /// The socket, without descriptors.
    pub socket: SocketEntry,
    /// Where it is.
    pub place: Place,
}

/// The stack that has a passed socket.
#[derive(Serialize, Deserialize)]
pub enum Place {
    /// One in another process, which shares it. Both are numbers of programs, and their secrets.
    Shared {
        /// In whose region it is.
        region: (u32, u64),
        /// Who holds it ([`super::Keeper`]).
        holder: (u32, u64),
    },
    /// One in another process: the socket is bound or listens, of which each program has its own.
    Bound {
        /// TCP sockets that the holder has bound.
        bound: Vec<Id>,
    },
    /// The sender's own, which the connection leaves for the receiver's ([`super::passed`]).
    Passed {
        /// The name of the sender's broker, which is to be the receiver's.
        broker: String,
        /// The sender's number there, and that of the message.
        from: u16,
        serial: u32,
        /// Only who knows the broker's token can make it, of the parcel and these numbers.
        seal: u64,
    },
    /// None that the receiver can go on with: the socket listens or is bound, and the receiver is to put it on its own.
    Own {
        /// The name of the sender's broker, which is to be the receiver's.
        broker: String,
    },
}

/// What a ticket says, and what came with it.
pub struct Ticket {
    /// The packet.
    pub message: Message,
    /// The kernel's socket behind the program's.
    pub socket: OwnedFd,
    /// Of who holds it on a stack in another process until the receiver does: the connection to the broker.
    pub broker: Option<OwnedFd>,
    /// A connection that leaves its stack, in a file.
    pub parcel: Option<OwnedFd>,
    /// Of who has bound a socket for the receiver: the channel to who serves its calls ([`skink_sockets::for_calls`]).
    pub channel: Option<[OwnedFd; 8]>,
}

impl SocketEntry {
    /// What it has on the stack, if that can be shared.
    pub fn ids(&self) -> impl Iterator<Item = (Protocol, SocketId)> + use<> {
        let (protocol, ids): (Protocol, [Option<Id>; 2]) = match self.role {
            RoleEntry::Stream(id) => (Protocol::Tcp, [Some(id), None]),
            RoleEntry::Datagram(halves) => (Protocol::Udp, halves),
            _ => (Protocol::Tcp, [None; 2]),
        };
        let ids = ids.into_iter().flatten();
        ids.map(move |plain| (protocol, id(plain)))
    }

    /// Finds fault with what no ticket of ours says.
    pub fn check(&self, place: &Place) -> Result<(), String> {
        let is_shared = matches!(place, Place::Shared { .. } | Place::Bound { .. });
        let moves = matches!(place, Place::Passed { .. });
        let role = match self.role {
            RoleEntry::Stream(_) => (is_shared || moves) && !self.datagram,
            _ if moves => false,
            RoleEntry::Dormant => !self.datagram,
            RoleEntry::Datagram(ids) => is_shared && self.datagram && ids != [None; 2],
            RoleEntry::Undecided => !is_shared && self.bound.is_some(),
            RoleEntry::Listening | RoleEntry::Listener(_) | RoleEntry::Lost => false,
        };
        let domain = [libc::AF_INET, libc::AF_INET6].contains(&self.domain);
        if role && domain && self.resting == [None; 2] {
            return Ok(());
        }
        Err("it says what can't be".to_owned())
    }
}

impl Message {
    /// Makes a ticket: the descriptor to be passed, and the other end of its pair.
    pub fn pack(&self, descriptors: &[BorrowedFd<'_>]) -> std::io::Result<(OwnedFd, OwnedFd)> {
        let text = serde_json::to_vec(self)?;
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (ticket, end) = rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(rustix::io::Errno::NOBUFS.into());
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        rustix::net::sendmsg(&end, &[IoSlice::new(&text)], &mut ancillary, flags)?;
        Ok((ticket, end))
    }
}

/// Looks into a descriptor that was received. `None` if it is no ticket.
pub fn look_at(fd: c_int) -> Option<Result<Ticket, String>> {
    // SAFETY: it is open: it was just received.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let family = sockopt::socket_domain(fd).ok()?;
    if family != AddressFamily::UNIX || sockopt::socket_type(fd).ok()? != SocketType::SEQPACKET {
        return None;
    }
    let look = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let mut start = [0u8; MAGIC.len()];
    let (_, count) = rustix::net::recv(fd, &mut start, look).ok()?;
    if start != MAGIC || count < MAGIC.len() {
        return None;
    }
    Some(unpack(fd, look | RecvFlags::CMSG_CLOEXEC))
}

fn unpack(fd: BorrowedFd<'_>, flags: RecvFlags) -> Result<Ticket, String> {
    let mut text = vec![0; MAXIMUM_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut pieces = [IoSliceMut::new(&mut text)];
    let received = rustix::net::recvmsg(fd, &mut pieces, &mut ancillary, flags);
    let count = received.map_err(|error| error.to_string())?.bytes;
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    let text = text.get(..count).unwrap_or_default();
    let message: Message = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    if message.version != VERSION {
        return Err(format!("it is of {}, not of {VERSION}", message.version));
    }
    let few = || "there are no free descriptors".to_owned();
    let mut descriptors = descriptors.into_iter();
    let socket = descriptors.next().ok_or_else(few)?;
    let parcel = match message.place {
        Place::Passed { .. } => Some(descriptors.next().ok_or_else(few)?),
        _ => None,
    };
    let broker = match message.place {
        Place::Own { .. } | Place::Passed { .. } => None,
        Place::Shared { .. } | Place::Bound { .. } => Some(descriptors.next().ok_or_else(few)?),
    };
    let channel = match message.place {
        Place::Own { .. } | Place::Shared { .. } | Place::Passed { .. } => None,
        Place::Bound { .. } => {
            let rest: Vec<OwnedFd> = descriptors.collect();
            Some(rest.try_into().map_err(|_| few())?)
        }
    };
    Ok(Ticket {
        message,
        socket,
        broker,
        parcel,
        channel,
    })
}

#[cfg(test)]
mod tests;
