use crate::socket;
use crate::virtio;
use crate::{Room, Sender};
use skink_messages::{Full, NicOutput, TxPacket};
use skink_time::Duration;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

/// Frames above this many bytes go to the kernel at once, out of the socket's ring; a copy to make
/// a batch costs more than the call that it saves.
const BATCHED_BYTES: usize = 4096;
/// Frames in a batch.
const BATCH: usize = 64;
/// When to try again where the interface's queueing discipline takes no more: it may have sent a hundred frames by then
/// (`fq` holds so many of a socket), and trying 1,000 times a second costs next to nothing.
const QUEUE_AGAIN: Duration = Duration::from_millis(1);
/// Messages handed over in one call.
const CALL: usize = 32;

/// What became of an attempt to send.
enum Outcome {
    /// So many frames.
    Sent(usize),
    NoRoom,
    Refused,
}

/// The sending half: one system call for a batch of small frames, or for one large one.
pub(crate) struct PacketSender {
    socket: Arc<OwnedFd>,
    /// A system call for each small frame, too: see [`Sender::name_no_address`].
    one_by_one: bool,
    /// Virtio headers and frames, one after another; what follows them is left from earlier batches.
    batch: Box<[u8]>,
    /// Where each frame of the batch ends (and the next one's virtio header begins).
    ends: Vec<usize>,
    /// Frames of the batch that have left already.
    sent: usize,
    blocked: bool,
    /// Something was refused since the last flush.
    refused: bool,
    /// By the interface's queueing discipline, which isn't what the socket polls writable for.
    queue_full: bool,
    dropped: u64,
    said_gone: bool,
}

impl PacketSender {
    /// Sends through a packet socket that is bound to its interface, has `PACKET_VNET_HDR` set, and doesn't block.
    pub(crate) fn new(socket: Arc<OwnedFd>) -> PacketSender {
        PacketSender {
            socket,
            one_by_one: false,
            batch: vec![0; BATCH * (BATCHED_BYTES + virtio::BYTES)].into(),
            ends: Vec::with_capacity(BATCH),
            sent: 0,
            blocked: false,
            refused: false,
            queue_full: false,
            dropped: 0,
            said_gone: false,
        }
    }

    /// Takes a copy of a small frame along.
    fn enqueue(&mut self, packet: &TxPacket<'_>) {
        let start = self.ends.last().copied().unwrap_or(0);
        let room = self.batch.get_mut(start..).unwrap_or_default();
        // Never short of room: there are at most `BATCH` of them, of `BATCHED_BYTES` at most.
        let Some((header, room)) = room.split_first_chunk_mut() else {
            return;
        };
        *header = virtio::header_for(packet);
        if let Some(bytes) = packet.copy_to(room) {
            self.ends.push(start + virtio::BYTES + bytes);
        }
    }

    /// Hands a large frame to the kernel straight from where it lies.
    fn send_now(&mut self, packet: &TxPacket<'_>) -> Result<(), Full> {
        let header = virtio::header_for(packet);
        let parts = virtio::gather(&header, packet);
        // SAFETY: the spans live across the call, and are only read.
        let result = unsafe {
            libc::writev(
                self.socket.as_raw_fd(),
                parts.as_ptr(),
                parts.len() as libc::c_int,
            )
        };
        match self.outcome(result.min(1)) {
            Outcome::Sent(_) => Ok(()),
            Outcome::NoRoom => Err(Full),
            Outcome::Refused => {
                self.dropped += 1;
                Ok(())
            }
        }
    }

    fn outcome(&mut self, result: isize) -> Outcome {
        if result >= 0 {
            return Outcome::Sent(result as usize);
        }
        match io::Error::last_os_error().raw_os_error() {
            // The socket's send buffer or the interface's queue is full.
            Some(error @ (libc::EAGAIN | libc::ENOBUFS)) => {
                self.blocked = true;
                self.refused = true;
                self.queue_full = error == libc::ENOBUFS;
                Outcome::NoRoom
            }
            Some(libc::EINTR) => Outcome::Sent(0),
            Some(libc::ENXIO) => {
                socket::say_gone(&mut self.said_gone);
                Outcome::Refused
            }
            _ => Outcome::Refused,
        }
    }

    /// There may be room where there was none.
    fn look_again(&mut self) {
        if self.blocked {
            self.blocked = !socket::is_writable(self.socket.as_fd());
        }
    }

    /// Where the first frame begins that waits.
    fn start(&self) -> usize {
        let last = self.sent.checked_sub(1);
        last.and_then(|last| self.ends.get(last))
            .copied()
            .unwrap_or(0)
    }

    /// The first of the waiting frames.
    fn send_one(&mut self) -> Outcome {
        let end = self.ends.get(self.sent).copied().unwrap_or(0);
        let frame = self.batch.get(self.start()..end).unwrap_or_default();
        let socket = self.socket.as_raw_fd();
        // SAFETY: the frame lives across the call, and is only read.
        let result = unsafe { libc::write(socket, frame.as_ptr().cast(), frame.len()) };
        self.outcome(result.min(1))
    }

    /// One call for as many of the waiting frames as it takes.
    fn send_some(&mut self) -> Outcome {
        let mut start = self.start();
        let mut spans = [const { MaybeUninit::<libc::iovec>::uninit() }; CALL];
        let mut messages = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; CALL];
        let waiting = self.ends.get(self.sent..).unwrap_or_default();
        let count = waiting.len().min(CALL);
        for ((span, message), &end) in spans.iter_mut().zip(&mut messages).zip(waiting) {
            let frame = self.batch.get(start..end).unwrap_or_default();
            start = end;
            let span = span.write(libc::iovec {
                iov_base: frame.as_ptr().cast_mut().cast(),
                iov_len: frame.len(),
            });
            // SAFETY: all zeros is a valid mmsghdr.
            let mut filled: libc::mmsghdr = unsafe { std::mem::zeroed() };
            filled.msg_hdr.msg_iov = span;
            filled.msg_hdr.msg_iovlen = 1;
            message.write(filled);
        }
        // SAFETY: the first `count` messages and their spans were just filled in; they and the
        // batch live across the call.
        let result = unsafe {
            libc::sendmmsg(
                self.socket.as_raw_fd(),
                messages.as_mut_ptr().cast(),
                count as u32,
                libc::MSG_DONTWAIT,
            )
        };
        self.outcome(result as isize)
    }
}

impl NicOutput for PacketSender {
    fn room(&mut self) -> usize {
        self.look_again();
        if self.ends.len() >= BATCH {
            self.flush();
        }
        if self.blocked {
            0
        } else {
            BATCH - self.ends.len()
        }
    }

    fn send(&mut self, packet: &TxPacket<'_>) -> Result<(), Full> {
        if (self.blocked || self.ends.len() >= BATCH) && self.room() == 0 {
            return Err(Full);
        }
        if packet.len() <= BATCHED_BYTES {
            self.enqueue(packet);
            return Ok(());
        }
        // Frames keep their order.
        self.flush();
        if self.blocked {
            return Err(Full);
        }
        self.send_now(packet)
    }
}

impl Sender for PacketSender {
    fn flush(&mut self) {
        while self.sent < self.ends.len() {
            let outcome = match self.one_by_one {
                true => self.send_one(),
                false => self.send_some(),
            };
            match outcome {
                Outcome::Sent(count) => self.sent += count,
                Outcome::NoRoom => {
                    self.refused = false;
                    return;
                }
                // The first one in line is at fault: those after it get their own chance.
                Outcome::Refused => {
                    self.sent += 1;
                    self.dropped += 1;
                }
            }
        }
        self.ends.clear();
        self.sent = 0;
        // A socket polls writable though the interface's queue has just refused a frame.
        if !std::mem::take(&mut self.refused) {
            self.look_again();
        }
    }

    fn blocked_on(&self) -> Option<Room<'_>> {
        self.blocked.then(|| match self.queue_full {
            true => Room::Untold(QUEUE_AGAIN),
            false => Room::At(self.socket.as_fd()),
        })
    }

    fn name_no_address(&mut self) {
        self.one_by_one = true;
    }

    fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }
}
