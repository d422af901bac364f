//! Queues of messages of one size, from one producer to one consumer.
//!
//! # Layout
//!
//! Two memfds; each side maps the one for writing that it must write, and the other for reading only.
//! Offsets in bytes, words of 64 bits in the machine's order:
//!
//! | producer's half | | consumer's half | |
//! | --- | --- | --- | --- |
//! | 0 | magic and version | 0 | magic and version |
//! | 8 | slot size in bytes | | |
//! | 16 | capacity in slots | | |
//! | 128 | `tail`: slots published | 128 | `head`: slots released |
//! | 256 | the slots | | |
//!
//! The indices count from 0 when the queue is made and never wrap in practice. The slot of index *i* is
//! the one at *i* modulo the capacity, a power of two. Each index is on a pair of cache lines of its own
//! (x86 prefetches lines in pairs), and each side keeps the last value that it saw of the other's: so
//! as long as there is room, or there are messages, a side touches nothing that the other one writes
//! but the slots themselves.
//!
//! # Order
//!
//! The producer writes slots, then stores `tail` (release); the consumer loads `tail` (acquire), copies
//! slots out, then stores `head` (release), which the producer loads (acquire) before it writes there
//! again. Slots are copied by relaxed 64-bit atomics, which are plain moves: a neighbour that breaks the
//! order can spoil what is copied, and nothing else.

use crate::memory::{Memory, load_acquire};
use std::fmt;
use zerocopy::{FromBytes, Immutable, IntoBytes};

mod consumer;
#[cfg(not(loom))]
mod descriptors;
mod producer;
mod slots;

pub use consumer::{Consumer, Watch};
#[cfg(not(loom))]
pub use descriptors::{AttachError, ConsumerDescriptors, ProducerDescriptors, QueueDescriptors};
#[cfg(not(loom))]
pub(crate) use descriptors::{duplicate, read_only};
pub use producer::Producer;

/// "SKINKQUE" and a version that changes with the layout.
#[cfg(not(loom))]
const MAGIC: u64 = 0x534b_494e_4b51_0001;
/// Word indices, see the module's table.
#[cfg(not(loom))]
const SLOT_BYTES: usize = 1;
#[cfg(not(loom))]
const CAPACITY: usize = 2;
const TAIL: usize = 16;
const HEAD: usize = 16;
const SLOTS: usize = 32;
#[cfg(not(loom))]
const CONSUMER_HALF_BYTES: usize = 256;

const _: () = assert!(TAIL * 8 == 128 && SLOTS * 8 - TAIL * 8 == 128);
#[cfg(not(loom))]
const _: () = assert!(size_of::<crate::memory::AtomicU64>() == 8);

/// What can be sent: plain data of a fixed size, of which every bit pattern is a value.
///
/// A receiver still has to check what it means. Fields that are codes are integers, not `enum`s.
pub trait Message: FromBytes + IntoBytes + Immutable + Copy {}

impl<T: FromBytes + IntoBytes + Immutable + Copy> Message for T {}

/// Size of a queue, agreed on when it is made. It travels beside the descriptors: what the memory says
/// of itself is written by a neighbour and must agree with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueGeometry {
    slot_bytes: u32,
    capacity: u32,
}

impl QueueGeometry {
    /// Most slots of a queue.
    pub const MAXIMUM_CAPACITY: u32 = 1 << 20;
    /// Largest slot in bytes. What is larger goes through a pool.
    pub const MAXIMUM_SLOT_BYTES: u32 = 4096;

    /// Slots of `slot_bytes` bytes (a multiple of 8; whole cache lines of 64 serve best), `capacity` of
    /// them (a power of two). `None` if it is anything else, or exceeds the maximum.
    pub fn new(slot_bytes: u32, capacity: u32) -> Option<QueueGeometry> {
        let good = slot_bytes > 0
            && slot_bytes.is_multiple_of(8)
            && slot_bytes <= Self::MAXIMUM_SLOT_BYTES
            && capacity.is_power_of_two()
            && capacity <= Self::MAXIMUM_CAPACITY;
        good.then_some(QueueGeometry {
            slot_bytes,
            capacity,
        })
    }

    /// Size of a slot in bytes: messages may be smaller.
    pub fn slot_bytes(self) -> u32 {
        self.slot_bytes
    }

    /// How many messages fit.
    pub fn capacity(self) -> u32 {
        self.capacity
    }

    fn slot_words(self) -> usize {
        self.slot_bytes as usize / 8
    }

    fn producer_half_bytes(self) -> usize {
        SLOTS * 8 + self.slot_bytes as usize * self.capacity as usize
    }
}

/// Why a message can't be sent or received now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueError {
    /// Producer: no slot is free. What then is the component's choice: it drops a frame or keeps a
    /// request, but it doesn't wait.
    Full,
    /// The neighbour's index is one that no correct neighbour stores. The queue is of no more use, for
    /// good: have the neighbour restarted, and make another.
    Corrupt,
}

impl fmt::Display for QueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QueueError::Full => "the queue is full",
            QueueError::Corrupt => {
                "the neighbour spoilt its side of the queue: restart it and make a new queue"
            }
        })
    }
}

impl std::error::Error for QueueError {}

/// Makes queues.
pub struct Queue;

#[cfg(loom)]
impl Queue {
    /// Both ends of a queue in memory that loom watches.
    ///
    /// # Panics
    /// If the sizes aren't those of a queue.
    pub fn in_memory<T: Message>(slot_bytes: u32, capacity: u32) -> (Producer<T>, Consumer<T>) {
        let geometry = QueueGeometry::new(slot_bytes, capacity).expect("a queue's sizes");
        let producers = Memory::new(geometry.producer_half_bytes() / 8);
        let consumers = Memory::new(HEAD + 1);
        let producer = Producer::new(producers.clone(), consumers.clone(), geometry);
        let consumer = Consumer::new(consumers, producers, geometry);
        (
            producer.expect("an empty queue"),
            consumer.expect("an empty queue"),
        )
    }
}

/// The indices of a queue as its two halves have them, unless they contradict each other.
fn positions(
    producers: &Memory,
    consumers: &Memory,
    geometry: QueueGeometry,
) -> Option<(u64, u64)> {
    let head = load_acquire(crate::memory::word(consumers, HEAD));
    let tail = load_acquire(crate::memory::word(producers, TAIL));
    (tail.wrapping_sub(head) <= u64::from(geometry.capacity)).then_some((head, tail))
}

#[cfg(all(test, not(loom)))]
mod tests;
