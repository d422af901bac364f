//! One JSON message and some descriptors in one packet.
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use serde::{Serialize, de::DeserializeOwned};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Largest request in bytes, but for a connection that is handed over, with at most 64 KiB that it has received; a longer one is malformed.
pub(crate) const MAXIMUM_REQUEST: usize = 4096;
/// Largest reply in bytes: a description of 256 processes fits, or a file of rules. The kernel takes no
/// packet larger than a socket's send buffer, which is 208 KiB.
pub(crate) const MAXIMUM_REPLY: usize = 192 * 1024;
/// Most descriptors beside one message (unix(7)). All lanes of a process with six parts and a NIC are half of that.
pub(crate) const MAXIMUM_DESCRIPTORS: usize = 253;

/// Why no message came out of a socket.
#[derive(Debug)]
pub(crate) enum ReceiveError {
    /// The other end is gone.
    Closed,
    /// Nothing there now.
    Nothing,
    /// The socket failed.
    Failed(io::Error),
    /// Something came that isn't a message.
    Malformed(String),
}

pub(crate) fn send<T: Serialize>(
    socket: BorrowedFd<'_>,
    message: &T,
    descriptors: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    let flags = flags | SendFlags::NOSIGNAL;
    if descriptors.is_empty() {
        // Without `sendmsg`, which a component's sandbox refuses.
        rustix::io::retry_on_intr(|| rustix::net::send(socket, &bytes, flags))?;
        return Ok(());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAXIMUM_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("too many descriptors for one message"));
    }
    let send = || rustix::net::sendmsg(socket, &[IoSlice::new(&bytes)], &mut ancillary, flags);
    rustix::io::retry_on_intr(send)?;
    Ok(())
}

/// What it means that the socket gives nothing.
fn refusal(error: rustix::io::Errno) -> ReceiveError {
    match error {
        rustix::io::Errno::AGAIN => ReceiveError::Nothing,
        rustix::io::Errno::CONNRESET => ReceiveError::Closed,
        error => ReceiveError::Failed(error.into()),
    }
}

/// Takes one message of at most `maximum` bytes.
pub(crate) fn receive<T: DeserializeOwned>(
    socket: BorrowedFd<'_>,
    maximum: usize,
    flags: RecvFlags,
) -> Result<(T, Vec<OwnedFd>), ReceiveError> {
    let mut descriptors = Vec::new();
    let message = receive_beside(socket, maximum, flags, &mut descriptors)?;
    Ok((message, descriptors))
}

/// As [`receive`]; what came beside the message is put in `descriptors`, also if that isn't one.
pub(crate) fn receive_beside<T: DeserializeOwned>(
    socket: BorrowedFd<'_>,
    maximum: usize,
    flags: RecvFlags,
    descriptors: &mut Vec<OwnedFd>,
) -> Result<T, ReceiveError> {
    // Mostly there is nothing, and whoever asks asks often: no room for the largest is made each time.
    let peek = RecvFlags::PEEK | RecvFlags::TRUNC | flags;
    let length = rustix::io::retry_on_intr(|| rustix::net::recv(socket, &mut [0; 0], peek));
    let mut bytes = match length {
        Ok((_, length)) => vec![0; length.min(maximum)],
        Err(error) => return Err(refusal(error)),
    };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAXIMUM_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let answer = rustix::io::retry_on_intr(|| {
        let mut pieces = [IoSliceMut::new(&mut bytes)];
        rustix::net::recvmsg(socket, &mut pieces, &mut ancillary, flags)
    });
    let received = match answer {
        Ok(received) => received,
        Err(error) => return Err(refusal(error)),
    };
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    // An empty packet can't be told from the end; nobody sends one in earnest.
    if received.bytes == 0 {
        return Err(ReceiveError::Closed);
    }
    let is_short = received.flags.contains(ReturnFlags::CTRUNC);
    if is_short && descriptors.len() < MAXIMUM_DESCRIPTORS {
        return Err(ReceiveError::Failed(io::Error::other(
            "there is no room for the descriptors that came: this process may have no more open files (ulimit -n)",
        )));
    }
    if is_short || received.flags.contains(ReturnFlags::TRUNC) {
        return Err(ReceiveError::Malformed(format!(
            "more than {maximum} bytes or too many descriptors"
        )));
    }
    let text = bytes.get(..received.bytes).unwrap_or_default();
    match serde_json::from_slice(text) {
        Ok(message) => Ok(message),
        Err(error) => Err(ReceiveError::Malformed(error.to_string())),
    }
}
