//! Connections that several processes have, where each has a stack of its own: how one of them comes by it.
//!
//! A *tether* is a pair of Unix sockets. The program's descriptors of the connection are the one end, in every process that has them;
//! the other one is with the stack that has the connection, and with the broker, which hands it on if that stack's process dies. Who
//! uses the connection elsewhere [asks](ask), and finds in its end's queue what the stack [gives](give): a file with the parcel, the
//! other end, and the [numbers](Given) by which to tell the broker of it.
use crate::client::{ends, four_tuple};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use serde::{Deserialize, Serialize};
use skink_wire::FourTuple;
use std::hash::{Hash, Hasher};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// So many of a process at most: each takes two descriptors beside the message by which they go to who takes its place.
pub const MOST_TETHERS: usize = 100;

/// Versions that can't read each other's give each other nothing.
const VERSION: &str = concat!("skink-tether-1-", env!("CARGO_PKG_VERSION"));

/// What is said by who asks.
const WANT: &[u8; 10] = b"skink-want";

/// So much is heard at a time.
const MOST_WORDS: usize = 16;

/// Of [`Heard::other`].
pub const UNKNOWN_WRITER: &str = "a program that Skink doesn't serve (it isn't linked dynamically, perhaps) has written to a connection that it inherited: that is lost";

/// No packet is larger.
const MAXIMUM_BYTES: usize = 1024;

/// What goes with a parcel.
#[derive(Serialize, Deserialize)]
struct Packet {
    version: String,
    from: u16,
    serial: u32,
    local: (IpAddr, u16),
    remote: (IpAddr, u16),
    seal: u64,
}

/// Which process has given a connection, and how manieth that was.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Numbers {
    /// The owner slot.
    pub from: u16,
    /// Above 0, and another one each time.
    pub serial: u32,
}

/// A connection that was found in the queue.
pub struct Given {
    /// By whom.
    pub numbers: Numbers,
    /// Which connection it is. The broker is to be [told](crate::Broker::tell_taken_in) whether it was taken in.
    pub flow: FourTuple,
    /// The parcel, and the stack's end; or there was no room for them.
    beside: Option<[OwnedFd; 2]>,
    seal: u64,
}

/// What is found in the queue.
pub enum Found {
    /// Nothing, for now.
    Nothing,
    /// Nobody has the other end any more.
    Ended,
    /// A connection.
    Given(Given),
}

/// A new one: the program's end, and the stack's.
///
/// # Errors
/// The system's.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    Ok(rustix::net::socketpair(
        AddressFamily::UNIX,
        kind,
        flags,
        None,
    )?)
}

/// Whether a descriptor may be an end of one.
pub(crate) fn is_one(end: BorrowedFd<'_>) -> bool {
    rustix::net::sockopt::socket_domain(end) == Ok(AddressFamily::UNIX)
        && rustix::net::sockopt::socket_type(end) == Ok(SocketType::SEQPACKET)
}

/// Asks for the connection, by the program's end. Answers whether there is somebody who may hear it.
pub fn ask(end: BorrowedFd<'_>) -> bool {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    // The queue may be full of such questions.
    matches!(
        rustix::net::send(end, WANT, flags),
        Ok(_) | Err(Errno::AGAIN)
    )
}

/// What was said by the program's end.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Heard {
    /// Somebody wants the connection.
    pub asked: bool,
    /// A program that doesn't know of tethers has written to its descriptor.
    pub other: bool,
}

/// Hears what was said, by the stack's end; not all at once, if that is much.
pub fn hear(end: BorrowedFd<'_>) -> Heard {
    let (mut said, mut heard) = ([0; WANT.len() + 1], Heard::default());
    for _ in 0..MOST_WORDS {
        // Once it hangs up nothing counts, and to receive would forget what [`is_lost`] looks at.
        if !condition(end).contains(PollFlags::IN) || is_let_go(end) {
            break;
        }
        match rustix::net::recv(end, &mut said, RecvFlags::DONTWAIT) {
            Ok((_, 0)) | Err(_) => break,
            Ok((_, count)) if said.get(..count) == Some(WANT) => heard.asked = true,
            Ok(_) => heard.other = true,
        }
    }
    heard
}

/// Forgets what was asked before the connection came, by the stack's end: it is answered by that, mostly, and who still wants it asks
/// again. Who gave it for a question that is no longer one would send nothing until somebody comes for it. Answers [`Heard::other`].
pub fn forget_questions(end: BorrowedFd<'_>) -> bool {
    let mut other = false;
    for _ in 0..MOST_WORDS {
        let heard = hear(end);
        other |= heard.other;
        if heard == Heard::default() {
            break;
        }
    }
    other
}

/// Whether nobody has a descriptor of the connection any more, by the stack's end.
pub fn is_let_go(end: BorrowedFd<'_>) -> bool {
    condition(end).contains(PollFlags::HUP)
}

/// Whether nobody has a descriptor of the connection any more, and what was given has gone with the last one; if that is so, and it hasn't,
/// somebody has taken it before.
pub fn is_lost(end: BorrowedFd<'_>) -> bool {
    // The kernel keeps in mind that something wasn't read (ECONNRESET).
    condition(end).contains(PollFlags::HUP | PollFlags::ERR)
}

fn condition(end: BorrowedFd<'_>) -> PollFlags {
    let mut list = [PollFd::new(&end, PollFlags::IN)];
    let polled = poll(&mut list, Some(&Timespec::default()));
    polled.map_or(PollFlags::empty(), |_| list[0].revents())
}

/// Gives the connection whose parcel is in the file, by the stack's end, which goes with it.
///
/// # Errors
/// The system's.
pub fn give(
    end: BorrowedFd<'_>,
    flow: &FourTuple,
    parcel: BorrowedFd<'_>,
    seal: u64,
    numbers: Numbers,
) -> io::Result<()> {
    let (local, remote) = ends(flow);
    let packet = Packet {
        version: VERSION.to_owned(),
        from: numbers.from,
        serial: numbers.serial,
        local,
        remote,
        seal,
    };
    let text = serde_json::to_vec(&packet)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [parcel, end];
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::net::sendmsg(end, &[IoSlice::new(&text)], &mut ancillary, flags)?;
    Ok(())
}

/// Looks what waits at the program's end.
///
/// # Errors
/// A sentence: what waited there isn't a connection of this version's.
pub fn look(end: BorrowedFd<'_>) -> Result<Found, String> {
    let (text, beside) = match receive(end) {
        // What was said before the other end was closed.
        Err(Errno::CONNRESET) => receive(end),
        received => received,
    }
    .or_else(|error| match error {
        Errno::AGAIN | Errno::INTR => Ok((None, Vec::new())),
        error => Err(error.to_string()),
    })?;
    let Some(text) = text else {
        return Ok(Found::Nothing);
    };
    if text.is_empty() {
        return Ok(Found::Ended);
    }
    let packet: Packet = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    if packet.version != VERSION {
        return Err(format!("it is from another version: {}", packet.version));
    }
    Ok(Found::Given(Given {
        numbers: Numbers {
            from: packet.from,
            serial: packet.serial,
        },
        flow: four_tuple(packet.local, packet.remote),
        beside: beside.try_into().ok(),
        seal: packet.seal,
    }))
}

type Received = (Option<Vec<u8>>, Vec<OwnedFd>);

fn receive(fd: BorrowedFd<'_>) -> Result<Received, Errno> {
    let mut text = vec![0; MAXIMUM_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut pieces = [IoSliceMut::new(&mut text)];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let count = rustix::net::recvmsg(fd, &mut pieces, &mut ancillary, flags)?.bytes;
    let mut beside = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            beside.extend(rights);
        }
    }
    text.truncate(count);
    Ok((Some(text), beside))
}

impl Given {
    /// The parcel, of at most so many bytes. `token` is the broker's.
    ///
    /// # Errors
    /// A sentence: it is too large, or somebody has made it who doesn't know the token, or this process may have no more descriptors.
    pub fn parcel(&self, token: &str, most: usize) -> Result<Vec<u8>, String> {
        let [parcel, _] = self
            .beside
            .as_ref()
            .ok_or("there are no free descriptors (ulimit -n)")?;
        let bytes = read_parcel(parcel.as_fd(), most)?;
        match seal(token, self.numbers, &bytes) == self.seal {
            true => Ok(bytes),
            false => Err("it is of another `skink run` than this process".to_owned()),
        }
    }

    /// The stack's end, which goes with the connection.
    pub fn into_end(self) -> Option<OwnedFd> {
        self.beside.map(|[_, end]| end)
    }
}

/// By what a parcel is known to be made by who knows the token: nobody else's is taken in by accident. (Processes that have the token
/// could harm each other in many ways.)
#[must_use]
pub fn seal(token: &str, numbers: Numbers, parcel: &[u8]) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    (token, numbers, parcel, token).hash(&mut hasher);
    hasher.finish()
}

/// A file with a parcel in it.
///
/// # Errors
/// The system's.
pub fn write_parcel(rest: &[u8]) -> io::Result<OwnedFd> {
    let file = new_file()?;
    fill(file.as_fd(), rest)?;
    Ok(file)
}

/// An empty file for a parcel.
pub(crate) fn new_file() -> io::Result<OwnedFd> {
    Ok(rustix::fs::memfd_create(
        "skink-connection",
        MemfdFlags::CLOEXEC,
    )?)
}

/// Writes a parcel to an empty file.
///
/// # Errors
/// The system's.
pub fn fill(file: BorrowedFd<'_>, mut rest: &[u8]) -> io::Result<()> {
    while !rest.is_empty() {
        let count = rustix::io::write(file, rest)?;
        rest = &rest[count..];
    }
    Ok(())
}

/// What is in such a file, which has no more than `most` bytes.
///
/// # Errors
/// A sentence.
pub fn read_parcel(file: BorrowedFd<'_>, most: usize) -> Result<Vec<u8>, String> {
    let size = rustix::fs::fstat(file)
        .map_err(|error| error.to_string())?
        .st_size;
    let size = usize::try_from(size).ok().filter(|size| *size <= most);
    let mut bytes = vec![0; size.ok_or("it is too large")?];
    let count = rustix::io::pread(file, &mut bytes, 0).map_err(|error| error.to_string())?;
    bytes.truncate(count);
    Ok(bytes)
}
