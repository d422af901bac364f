use super::slots::{Slots, stamp_after};
use super::{
    CAPACITY, CONSUMER_HALF_BYTES, Consumer, HEAD, MAGIC, Message, Producer, Queue, QueueGeometry,
    SLOT_BYTES, SLOTS, STAMP_BYTES,
};
use crate::memory::{Memory, Ordering, load_acquire, word};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// What the producer of a queue is handed.
#[derive(Debug)]
pub struct ProducerDescriptors {
    /// The producer's half, to be written.
    pub own: OwnedFd,
    /// The consumer's half, for reading.
    pub theirs: OwnedFd,
}

/// What the consumer of a queue is handed.
#[derive(Debug)]
pub struct ConsumerDescriptors {
    /// The consumer's half, to be written.
    pub own: OwnedFd,
    /// The producer's half, for reading.
    pub theirs: OwnedFd,
}

/// A queue that was made, to be handed to its two ends. Keep it, and a side that died can have a
/// successor.
#[derive(Debug, Serialize, Deserialize)]
pub struct QueueDescriptors {
    /// The sizes, which both sides must be told.
    pub geometry: QueueGeometry,
    /// The producer's half as it was made: readable and writable.
    #[serde(with = "skink_inherit::descriptors")]
    producers: OwnedFd,
    #[serde(with = "skink_inherit::descriptors")]
    producers_read_only: OwnedFd,
    #[serde(with = "skink_inherit::descriptors")]
    consumers: OwnedFd,
    #[serde(with = "skink_inherit::descriptors")]
    consumers_read_only: OwnedFd,
}

/// Why a component can't attach to a queue, pool or sleeper.
#[derive(Debug)]
pub enum AttachError {
    /// The system refused.
    Memory(io::Error),
    /// The memory isn't what it was said to be, or has another layout version or other sizes.
    OtherLayout,
    /// A message of this many bytes doesn't fit into a slot.
    MessageTooLarge(usize),
    /// The indices contradict each other: a former holder spoilt them.
    Corrupt,
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttachError::Memory(error) => write!(f, "can't map the channel's memory: {error}"),
            AttachError::OtherLayout => f.write_str(
                "the channel's memory has another layout than agreed on: are both components from one release?",
            ),
            AttachError::MessageTooLarge(bytes) => {
                write!(f, "messages of {bytes} bytes don't fit into the queue's slots: make it with larger ones")
            }
            AttachError::Corrupt => {
                f.write_str("the queue's indices contradict each other: make a new queue")
            }
        }
    }
}

impl std::error::Error for AttachError {}

impl From<io::Error> for AttachError {
    fn from(error: io::Error) -> AttachError {
        AttachError::Memory(error)
    }
}

/// Another descriptor of the same memory that can't be mapped for writing.
///
/// A holder with the same user id could still open `/proc/self/fd/N` once more, for writing. So the
/// file's mode is narrowed to its owner first: whoever runs as another user than the maker can't.
pub(crate) fn read_only(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    rustix::fs::fchmod(fd, Mode::RUSR | Mode::WUSR)?;
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    Ok(rustix::fs::open(
        path,
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}

pub(crate) fn duplicate(fd: &OwnedFd) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, 3)?)
}

impl Queue {
    /// Makes a queue. Its memory is called `name` in `/proc/PID/maps`. Needs `/proc`.
    ///
    /// # Errors
    /// `InvalidInput` if `slot_bytes` and `capacity` aren't those of a [`QueueGeometry`]; else what the
    /// system says.
    pub fn create(name: &str, slot_bytes: u32, capacity: u32) -> io::Result<QueueDescriptors> {
        let geometry = QueueGeometry::new(slot_bytes, capacity).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "a queue of {capacity} slots of {slot_bytes} bytes can't be: slots are a multiple \
                     of 8 bytes and at most {}, their number is a power of two and at most {}",
                    QueueGeometry::MAXIMUM_SLOT_BYTES,
                    QueueGeometry::MAXIMUM_CAPACITY
                ),
            )
        })?;
        let producers = Memory::create(name, geometry.producer_half_bytes())?;
        let consumers = Memory::create(name, CONSUMER_HALF_BYTES)?;
        word(&producers, SLOT_BYTES).store(u64::from(slot_bytes), Ordering::Relaxed);
        word(&producers, CAPACITY).store(u64::from(capacity), Ordering::Relaxed);
        word(&producers, 0).store(MAGIC, Ordering::Release);
        word(&consumers, 0).store(MAGIC, Ordering::Release);
        Ok(QueueDescriptors {
            geometry,
            producers_read_only: read_only(producers.fd())?,
            consumers_read_only: read_only(consumers.fd())?,
            producers: producers.fd().try_clone_to_owned()?,
            consumers: consumers.fd().try_clone_to_owned()?,
        })
    }
}

impl QueueDescriptors {
    /// For the producer, or its successor once it is dead.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn producer(&self) -> io::Result<ProducerDescriptors> {
        Ok(ProducerDescriptors {
            own: duplicate(&self.producers)?,
            theirs: duplicate(&self.consumers_read_only)?,
        })
    }

    /// For the consumer, or its successor once it is dead.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn consumer(&self) -> io::Result<ConsumerDescriptors> {
        Ok(ConsumerDescriptors {
            own: duplicate(&self.consumers)?,
            theirs: duplicate(&self.producers_read_only)?,
        })
    }

    /// Messages that wait at this moment, at most the capacity; for tools: both ends say what they like.
    ///
    /// # Errors
    /// If the memory can't be read.
    pub fn depth(&self) -> io::Result<u32> {
        // In this order, so that what moves meanwhile is counted rather than missed.
        let head = index(&self.consumers, HEAD)?;
        let slots = Slots::new(self.geometry);
        let waits = |ahead: u32| {
            let position = head.wrapping_add(u64::from(ahead));
            let stamp = index(&self.producers, slots.start(position))?;
            Ok::<_, io::Error>(stamp != slots.stamp_before(position))
        };
        // All of the first `least` wait, and none from `most` on. Mostly there is none.
        let (mut least, mut most) = (0, self.geometry.capacity());
        let mut middle = 0;
        while least < most {
            match waits(middle)? {
                true => least = middle + 1,
                false => most = middle,
            }
            middle = least.midpoint(most);
        }
        Ok(least)
    }

    /// How many messages the consumer says to have dealt with since the queue was made: whether it takes any.
    ///
    /// # Errors
    /// If the memory can't be read.
    pub fn released(&self) -> io::Result<u64> {
        index(&self.consumers, HEAD)
    }
}

impl QueueDescriptors {
    /// Whether the producer can have come by what it has written without breaking any rule, whatever the consumer
    /// says. It may be writing meanwhile.
    ///
    /// # Errors
    /// If the memory can't be read.
    pub fn is_produced_well(&self) -> io::Result<bool> {
        // The later look at a slot may find it stamped anew, and never as it was before.
        let published = self.stamps()?.published();
        let then = self.stamps()?;
        let slots = Slots::new(self.geometry);
        let stamped = (0..slots.capacity()).all(|ahead| {
            // The slot of the message so far ahead has the stamp of the one before it there, or already its own.
            let position = published.wrapping_add(ahead);
            let stamp = then.of(position);
            stamp == slots.stamp_before(position) || stamp == stamp_after(position)
        });
        Ok(then.is_named && stamped)
    }

    /// As [`QueueDescriptors::is_produced_well`], of the consumer: it has released no more than was published.
    ///
    /// # Errors
    /// If the memory can't be read.
    pub fn is_consumed_well(&self) -> io::Result<bool> {
        let named = index(&self.consumers, 0)? == MAGIC;
        let head = index(&self.consumers, HEAD)?;
        Ok(named && head <= self.stamps()?.published())
    }

    fn stamps(&self) -> io::Result<Stamps> {
        let mut half = vec![0; self.geometry.producer_half_bytes()];
        let length = rustix::io::pread(&self.producers, &mut *half, 0)?;
        let (words, _) = half.as_chunks::<STAMP_BYTES>();
        let word = |at: usize| words.get(at).map(|word| u64::from_ne_bytes(*word));
        let slots = words.get(SLOTS..).unwrap_or_default();
        let slots = slots.iter().step_by(self.geometry.slot_words());
        Ok(Stamps {
            is_named: length == half.len()
                && word(0) == Some(MAGIC)
                && word(SLOT_BYTES) == Some(u64::from(self.geometry.slot_bytes))
                && word(CAPACITY) == Some(u64::from(self.geometry.capacity)),
            all: slots.map(|stamp| u64::from_ne_bytes(*stamp)).collect(),
        })
    }
}

/// What a producer's half said at a time.
struct Stamps {
    /// It names itself, and the sizes agreed on.
    is_named: bool,
    /// One for each slot.
    all: Vec<u64>,
}

impl Stamps {
    /// How many messages were published, if the producer is sound.
    fn published(&self) -> u64 {
        self.all.iter().copied().max().unwrap_or(0)
    }

    /// Of the slot of the message of index `position`.
    fn of(&self, position: u64) -> u64 {
        // A power of two.
        let slot = position as usize & (self.all.len() - 1);
        self.all.get(slot).copied().unwrap_or(u64::MAX)
    }
}

/// One of the indices, as its owner has stored it.
fn index(half: &OwnedFd, word: usize) -> io::Result<u64> {
    let mut bytes = [0; size_of::<u64>()];
    match rustix::io::pread(half, &mut bytes, word as u64 * 8)? {
        8 => Ok(u64::from_ne_bytes(bytes)),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Whether the two halves are of a queue of these sizes.
fn check<T: Message>(
    producers: &Memory,
    consumers: &Memory,
    geometry: QueueGeometry,
) -> Result<(), AttachError> {
    if size_of::<T>() > geometry.message_bytes() {
        return Err(AttachError::MessageTooLarge(size_of::<T>()));
    }
    let good = producers.len() == geometry.producer_half_bytes()
        && consumers.len() == CONSUMER_HALF_BYTES
        && load_acquire(word(producers, 0)) == MAGIC
        && load_acquire(word(consumers, 0)) == MAGIC
        && load_acquire(word(producers, SLOT_BYTES)) == u64::from(geometry.slot_bytes)
        && load_acquire(word(producers, CAPACITY)) == u64::from(geometry.capacity);
    match good {
        true => Ok(()),
        false => Err(AttachError::OtherLayout),
    }
}

impl<T: Message> Producer<T> {
    /// Becomes the producer of a queue, or goes on for one that died: what that one published stays,
    /// what it had only written is lost. There must be one producer at a time.
    ///
    /// # Errors
    /// If the memory isn't a queue of these sizes, or its indices contradict each other.
    pub fn attach(
        descriptors: ProducerDescriptors,
        geometry: QueueGeometry,
    ) -> Result<Producer<T>, AttachError> {
        let own = Memory::from_fd(descriptors.own)?;
        let theirs = Memory::from_fd_read_only(descriptors.theirs)?;
        check::<T>(&own, &theirs, geometry)?;
        Producer::new(own, theirs, geometry).ok_or(AttachError::Corrupt)
    }
}

impl<T: Message> Consumer<T> {
    /// Becomes the consumer of a queue, or goes on for one that died: what that one hadn't released
    /// comes once more. There must be one consumer at a time.
    ///
    /// # Errors
    /// If the memory isn't a queue of these sizes, or its indices contradict each other.
    pub fn attach(
        descriptors: ConsumerDescriptors,
        geometry: QueueGeometry,
    ) -> Result<Consumer<T>, AttachError> {
        let own = Memory::from_fd(descriptors.own)?;
        let theirs = Memory::from_fd_read_only(descriptors.theirs)?;
        check::<T>(&theirs, &own, geometry)?;
        Consumer::new(own, theirs, geometry).ok_or(AttachError::Corrupt)
    }
}
