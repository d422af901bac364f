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
//! | 128 | the slots | 128 | `head`: messages released |
//!
//! A slot begins with a *stamp* of 8 bytes; the message follows. Messages are numbered from 0, and the
//! numbers never wrap in practice. Message *i* goes to the slot *i* modulo the capacity (a power of two),
//! and when it is published the stamp becomes *i* + 1. There is no tail index: how far the producer is, the
//! stamps tell, each of a piece of it that lies where the consumer looks anyway. So a message of up to 56 bytes crosses from
//! processor to processor in one cache line, and costs the producer no store elsewhere (docs/decisions/0005).
//!
//! `head` is on a pair of cache lines of its own (x86 prefetches lines in pairs). The
//! producer keeps the last head that it saw, and looks again only when that leaves no room.
//!
//! # Order
//!
//! The producer writes a message, then its stamp (release); the consumer loads the stamp (acquire), copies the message
//! out, then stores `head` (release), which the producer loads (acquire) before it writes there again. Messages are copied
//! by relaxed 64-bit atomics, which are plain moves: a neighbour that breaks the order can spoil what is copied, and
//! nothing else.

#[cfg(loom)]
use crate::memory::Memory;
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
const MAGIC: u64 = 0x534b_494e_4b51_0002;
/// Word indices, see the module's table.
#[cfg(not(loom))]
const SLOT_BYTES: usize = 1;
#[cfg(not(loom))]
const CAPACITY: usize = 2;
const HEAD: usize = 16;
const SLOTS: usize = 16;
#[cfg(not(loom))]
const CONSUMER_HALF_BYTES: usize = 256;

const STAMP_BYTES: usize = 8;

const _: () = assert!(SLOTS * 8 == 128 && HEAD * 8 == 128);
#[cfg(not(loom))]
const _: () = assert!(size_of::<crate::memory::AtomicU64>() == 8);

/// What can be sent: plain data of a fixed size, of which every bit pattern is a value.
///
/// A receiver still has to check what it means. Fields that are codes are integers, not `enum`s.
pub trait Message: FromBytes + IntoBytes + Immutable + Copy {}

impl<T: FromBytes + IntoBytes + Immutable + Copy> Message for T {}

/// Size of a queue, agreed on when it is made. It travels beside the descriptors: what the memory says
/// of itself is written by a neighbour and must agree with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct QueueGeometry {
    slot_bytes: u32,
    capacity: u32,
}

impl QueueGeometry {
    /// Most slots of a queue.
    pub const MAXIMUM_CAPACITY: u32 = 1 << 20;
    /// Largest slot in bytes. What is larger goes through a pool.
    pub const MAXIMUM_SLOT_BYTES: u32 = 4096;

    /// The smallest slot of whole cache lines for messages of type `T`, in bytes.
    pub const fn slot_bytes_for<T: Message>() -> u32 {
        (size_of::<T>() + STAMP_BYTES).next_multiple_of(64) as u32
    }

    /// Slots of `slot_bytes` bytes (a multiple of 8, and 8 more than a message; whole cache lines of 64
    /// serve best), `capacity` of them (a power of two). `None` if it is anything else, or exceeds the
    /// maximum.
    pub fn new(slot_bytes: u32, capacity: u32) -> Option<QueueGeometry> {
        let good = slot_bytes as usize > STAMP_BYTES
            && slot_bytes.is_multiple_of(8)
            && slot_bytes <= Self::MAXIMUM_SLOT_BYTES
            && capacity.is_power_of_two()
            && capacity <= Self::MAXIMUM_CAPACITY;
        good.then_some(QueueGeometry {
            slot_bytes,
            capacity,
        })
    }

    /// Size of a slot in bytes, of which 8 are the stamp.
    pub fn slot_bytes(self) -> u32 {
        self.slot_bytes
    }

    /// How many messages fit.
    pub fn capacity(self) -> u32 {
        self.capacity
    }

    /// Size of the largest message in bytes.
    pub fn message_bytes(self) -> usize {
        (self.slot_bytes as usize).saturating_sub(STAMP_BYTES)
    }

    fn slot_words(self) -> usize {
        self.slot_bytes as usize / 8
    }

    fn producer_half_bytes(self) -> usize {
        SLOTS * 8 + self.slot_bytes as usize * self.capacity as usize
    }
}

/// Why a message can't be sent or received now.
///
/// As large as a word, so that in a `Result` it lies where a message's first word does, and not in a part of
/// it: the compiler would move that word in pieces, which a processor can't load whole until they have all
/// left the store buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum QueueError {
    /// Producer: no slot is free. What then is the component's choice: it drops a frame or keeps a
    /// request, but it doesn't wait.
    Full,
    /// The neighbour's index or stamp is one that no correct neighbour stores. The queue is of no more use, for
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

#[cfg(all(test, not(loom)))]
mod tests;
