//! Frames that are too large for their slots.
//!
//! The kernel puts such a frame into the socket's queue too, without copying it (`PACKET_COPY_THRESH`, and
//! `TP_STATUS_COPY` in the slot). It is copied once, by a call that takes it out, to a buffer that is the same
//! for all of them and so stays in the processor's cache: a ring that holds large frames whole is too large
//! for that.

use crate::{socket, virtio};
use skink_messages::RxFrame;
use skink_time::Instant;
use std::io;
use std::os::fd::BorrowedFd;

/// The largest frame with its virtio-net header, and then some.
const BUFFER: usize = 69_888;
/// What two frames must have in common to be taken for the same, besides their length: all headers up to
/// TCP's sequence number.
pub(super) const BEGINNING: usize = 64;
/// Calls after which a queue that is to be emptied is left as it is.
const LONGEST: usize = 1 << 14;

/// What a slot holds of its frame.
pub(super) struct Beginning<'a> {
    /// Bytes of the frame.
    pub(super) frame_bytes: usize,
    /// The first of them, [`BEGINNING`] at most.
    pub(super) bytes: &'a [u8],
}

/// The receiving end of a socket's queue.
pub(super) struct Queue {
    buffer: Box<[u8]>,
    /// Bytes of the frame that was taken out last, with its virtio-net header; 0 once its slot has been reached. It is
    /// longer than the buffer if that was too small.
    held: usize,
}

impl Queue {
    pub(super) fn new() -> Queue {
        Queue {
            buffer: vec![0; BUFFER].into(),
            held: 0,
        }
    }

    /// Takes the next frame out, unless one is held; answers whether one is.
    pub(super) fn fetch(&mut self, socket: BorrowedFd<'_>) -> bool {
        if self.held == 0 {
            self.held = next(socket, &mut self.buffer);
        }
        self.held > 0
    }

    /// Whether the frame that is held may be the one of which a slot has the beginning.
    pub(super) fn begins_with(&self, beginning: &Beginning<'_>) -> bool {
        let frame = self.buffer.get(virtio::BYTES..).unwrap_or_default();
        self.held == virtio::BYTES + beginning.frame_bytes && frame.starts_with(beginning.bytes)
    }

    /// Hands out the frame that is held, whose slot is reached; `None` if it is larger than any that can be used.
    pub(super) fn take(&mut self, now: Instant) -> Option<RxFrame<'_>> {
        let held = self.buffer.get(..std::mem::take(&mut self.held))?;
        let (header, bytes) = held.split_first_chunk()?;
        let (checksum, segment_bytes) = virtio::parse(header);
        Some(RxFrame {
            arrived: now,
            bytes,
            checksum,
            segment_bytes,
        })
    }

    /// The frame that is held is nobody's. Answers how many that were.
    pub(super) fn discard(&mut self) -> u64 {
        u64::from(std::mem::take(&mut self.held) > 0)
    }

    /// Throws away all that is in the queue.
    pub(super) fn empty(&mut self, socket: BorrowedFd<'_>) {
        self.held = 0;
        for _ in 0..LONGEST {
            // The kernel wants room for its header.
            if next(socket, &mut self.buffer[..virtio::BYTES]) == 0 {
                break;
            }
        }
    }
}

/// Takes a frame out of the queue: its bytes, or 0 if there is none.
fn next(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> usize {
    // An error of the interface, such as that it went down, is told once, and before any frame.
    for _ in 0..3 {
        match socket::receive(socket, buffer) {
            Ok(bytes) => return bytes,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return 0,
            Err(_) => {}
        }
    }
    0
}

#[cfg(test)]
mod tests;
