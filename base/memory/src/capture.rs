#![allow(unsafe_code, reason = "raw pointers into shared memory")]
use crate::Bytes;
use crate::mapping::{Atomics, Mapping};
use crate::ring::{Position, Ring};
use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const MAGIC: u32 = 0x534b_4350;
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 4096;
/// What precedes each frame in the ring.
const FRAME_HEADER_BYTES: usize = 24;
/// No frame is longer: an Ethernet header and the largest IP packet.
const MAXIMUM_FRAME: usize = 65_535 + 64;

/// Which way a captured frame went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum CaptureDirection {
    /// Received.
    Inbound = 1,
    /// Sent.
    Outbound = 2,
}

/// A frame as a reader got it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CapturedFrame {
    /// When it was seen, in nanoseconds of `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// Which way it went.
    pub direction: CaptureDirection,
    /// Its length in bytes before it was cut to the snap length.
    pub original_bytes: u32,
    /// The bytes kept, from the Ethernet header on.
    pub bytes: Vec<u8>,
}

/// Why frames can't be read from a process.
#[derive(Debug)]
pub enum CaptureError {
    /// Another reader is at it: there can be one at a time.
    Busy,
    /// The memory isn't a capture ring of this version.
    NotACapture,
    /// The system refused.
    Memory(io::Error),
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CaptureError::Busy => write!(
                f,
                "another capture of this process is running: end it first, there can be one at a time"
            ),
            CaptureError::NotACapture => write!(
                f,
                "the memory is not a capture ring of version {VERSION}: are the tool and the library from one release?"
            ),
            CaptureError::Memory(error) => write!(f, "no memory for a capture ring: {error}"),
        }
    }
}

impl std::error::Error for CaptureError {}

#[repr(C, align(64))]
struct Header {
    magic: AtomicU32,
    version: AtomicU32,
    /// Stored by the reader: 1 while it wants frames.
    wanted: AtomicU32,
    /// Stored by the reader: longest part of a frame to keep, in bytes.
    snap_bytes: AtomicU32,
    /// Stored by the producer: frames that found no room.
    dropped: AtomicU64,
    _reserved: [AtomicU64; 5],
    /// Stored by the reader: where the ring begins.
    head: Position,
    /// Stored by the producer: where it ends.
    tail: Position,
}

// SAFETY: only atomics and padding.
unsafe impl Atomics for Header {}

/// Copies of frames on their way to a tool: a ring that one process fills while one tool wants it.
///
/// Nobody waits for anybody: if the ring is full (or the tool died), frames are counted and
/// dropped. While nobody wants frames, a frame costs one load.
#[derive(Clone)]
pub struct CaptureRing {
    mapping: Arc<Mapping>,
    capacity: usize,
}

impl CaptureRing {
    /// A ring of `capacity` bytes, a power of two of at least 4096 (any other number is rounded up).
    pub fn create(capacity: usize) -> io::Result<CaptureRing> {
        let capacity = capacity.clamp(4096, 1 << 30).next_power_of_two();
        let mapping = Mapping::create("skink-capture", HEADER_BYTES + capacity)?;
        let ring = CaptureRing {
            mapping: Arc::new(mapping),
            capacity,
        };
        ring.header().version.store(VERSION, Ordering::Relaxed);
        ring.header().magic.store(MAGIC, Ordering::Release);
        Ok(ring)
    }

    /// Opens a ring that another process made: to fill it, or as the reader's.
    ///
    /// # Errors
    /// If the memory isn't a capture ring.
    pub fn open(fd: OwnedFd) -> Result<CaptureRing, CaptureError> {
        let mapping = Mapping::from_fd(fd).map_err(CaptureError::Memory)?;
        let capacity = mapping.len().saturating_sub(HEADER_BYTES);
        if capacity < 4096 || !capacity.is_power_of_two() {
            return Err(CaptureError::NotACapture);
        }
        let ring = CaptureRing {
            mapping: Arc::new(mapping),
            capacity,
        };
        let header = ring.header();
        let good = header.magic.load(Ordering::Acquire) == MAGIC
            && header.version.load(Ordering::Relaxed) == VERSION;
        if good {
            Ok(ring)
        } else {
            Err(CaptureError::NotACapture)
        }
    }

    fn header(&self) -> &Header {
        self.mapping.atomics::<Header>(0)
    }

    fn ring(&self) -> Ring<'_> {
        let header = self.header();
        let at = self.mapping.span(HEADER_BYTES, self.capacity);
        // SAFETY: the span was checked, nothing else is in it, and it lives as long as `self`; the
        // capacity is a power of two.
        unsafe { Ring::new(&header.head, &header.tail, at, self.capacity) }
    }

    /// The memfd, to be handed to a reader.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.mapping.fd()
    }

    /// Producer: whether a tool wants frames now.
    #[inline]
    pub fn wants(&self) -> bool {
        self.header().wanted.load(Ordering::Relaxed) != 0
    }

    /// Producer: hands in a frame that consists of `pieces`. `original_bytes` is its length, should
    /// the pieces not be all of it; `now_ns` is nanoseconds of `CLOCK_MONOTONIC`.
    pub fn push(
        &self,
        now_ns: u64,
        direction: CaptureDirection,
        pieces: &[Bytes<'_>],
        original_bytes: usize,
    ) {
        let header = self.header();
        let snap = header.snap_bytes.load(Ordering::Relaxed) as usize;
        let there: usize = pieces.iter().map(Bytes::len).sum();
        let kept = there.min(snap).min(MAXIMUM_FRAME);
        let ring = self.ring();
        let entry = FRAME_HEADER_BYTES + kept.next_multiple_of(8);
        if ring.free() < entry {
            let dropped = header.dropped.load(Ordering::Relaxed);
            header
                .dropped
                .store(dropped.wrapping_add(1), Ordering::Relaxed);
            return;
        }
        let original = u32::try_from(original_bytes).unwrap_or(u32::MAX);
        let mut front = [0; FRAME_HEADER_BYTES];
        front[0..4].copy_from_slice(&(kept as u32).to_le_bytes());
        front[4..8].copy_from_slice(&original.to_le_bytes());
        front[8..16].copy_from_slice(&now_ns.to_le_bytes());
        front[16] = direction as u8;
        ring.write_ahead(0, &front);
        let mut at = 0;
        for piece in pieces {
            let (piece, _) = piece.split_at(kept - at);
            ring.write_bytes_ahead(FRAME_HEADER_BYTES + at, piece);
            at += piece.len();
        }
        ring.advance_tail(entry);
    }
}

/// The reading end of a [`CaptureRing`]. Frames are wanted for as long as it lives.
pub struct CaptureReader {
    ring: CaptureRing,
}

impl CaptureReader {
    /// Begins to want frames, at most `snap_bytes` of each. `fd` must have been opened for this
    /// reader alone, since it carries the lock that keeps others out.
    pub fn start(fd: OwnedFd, snap_bytes: u32) -> Result<CaptureReader, CaptureError> {
        match rustix::fs::flock(&fd, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(CaptureError::Busy),
            Err(error) => return Err(CaptureError::Memory(error.into())),
        }
        let reader = CaptureReader {
            ring: CaptureRing::open(fd)?,
        };
        // What an earlier reader left isn't of now.
        reader.skip_all();
        let header = reader.ring.header();
        header.snap_bytes.store(snap_bytes, Ordering::Relaxed);
        header.wanted.store(1, Ordering::Release);
        Ok(reader)
    }

    /// How many frames found no room since the ring was made.
    pub fn dropped(&self) -> u64 {
        self.ring.header().dropped.load(Ordering::Relaxed)
    }

    /// Takes the oldest frame. What makes no sense (the producer's doing) is skipped.
    pub fn take(&mut self) -> Option<CapturedFrame> {
        let ring = self.ring.ring();
        let mut front = [0; FRAME_HEADER_BYTES];
        if ring.peek(0, &mut front) < FRAME_HEADER_BYTES {
            return None;
        }
        let word = |at: usize| {
            u32::from_le_bytes([front[at], front[at + 1], front[at + 2], front[at + 3]])
        };
        let kept = word(0) as usize;
        let direction = match front[16] {
            1 => CaptureDirection::Inbound,
            2 => CaptureDirection::Outbound,
            _ => return self.skip_all(),
        };
        let entry = FRAME_HEADER_BYTES + kept.next_multiple_of(8);
        if kept > MAXIMUM_FRAME || entry > ring.len() {
            return self.skip_all();
        }
        let mut bytes = vec![0; kept];
        ring.peek(FRAME_HEADER_BYTES, &mut bytes);
        ring.advance_head(entry);
        Some(CapturedFrame {
            time_ns: u64::from(word(8)) | u64::from(word(12)) << 32,
            direction,
            original_bytes: word(4),
            bytes,
        })
    }

    fn skip_all(&self) -> Option<CapturedFrame> {
        let ring = self.ring.ring();
        // Not by length: the positions may be nonsense too.
        let there = ring.tail().wrapping_sub(ring.head());
        self.ring.header().head.advance(there);
        None
    }
}

impl Drop for CaptureReader {
    fn drop(&mut self) {
        self.ring.header().wanted.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
