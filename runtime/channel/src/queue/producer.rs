use super::slots::{Slots, stamp_after};
use super::{HEAD, Message, QueueError, QueueGeometry};
use crate::QueueCounters;
use crate::memory::{Memory, Ordering, load_acquire, word};
use std::marker::PhantomData;

/// The sending end of a queue.
///
/// Messages are written to slots and become visible together: [`Producer::write`] as often as there is
/// something, then [`Producer::publish`] once, then the consumer's [`Doorbell`](crate::Doorbell) once.
pub struct Producer<T> {
    own: Memory,
    theirs: Memory,
    slots: Slots,
    capacity: u64,
    progress: Progress,
    /// What `published` was in the beginning.
    first: u64,
    /// The consumer's head as it was last seen.
    head: u64,
    broken: bool,
    counters: QueueCounters,
    message: PhantomData<fn(T)>,
}

/// How far a producer is: what it stores for each message, in one half of a cache line, which leaves the processor as a
/// whole (docs/decisions/0005).
#[repr(align(32))]
struct Progress {
    /// Up to where slots are stamped. Kept here and never read back.
    published: u64,
    /// How many messages were written after that.
    written: u64,
    /// Where the slot of the next message begins.
    at: usize,
}

impl<T: Message> Producer<T> {
    /// `None` if the consumer's head contradicts what was published.
    ///
    /// Published is what the consumer finds by its stamps, without a gap. A predecessor may have died of whatever it did:
    /// a slot beyond that must have the stamp that the consumer awaits there, or it would wait for a message
    /// that no successor writes.
    pub(super) fn new(own: Memory, theirs: Memory, geometry: QueueGeometry) -> Option<Producer<T>> {
        let slots = Slots::new(geometry);
        let head = load_acquire(word(&theirs, HEAD));
        if !slots.were_published(&own, head) {
            return None;
        }
        let end = head.wrapping_add(slots.capacity());
        let mut tail = head;
        while tail != end && load_acquire(slots.stamp(&own, tail)) == stamp_after(tail) {
            tail = tail.wrapping_add(1);
        }
        let mut free = tail;
        while free != end {
            let stamp = slots.stamp(&own, free);
            stamp.store(slots.stamp_before(free), Ordering::Relaxed);
            free = free.wrapping_add(1);
        }
        Some(Producer {
            own,
            theirs,
            slots,
            capacity: slots.capacity(),
            progress: Progress {
                published: tail,
                written: 0,
                at: slots.start(tail),
            },
            first: tail,
            head,
            broken: false,
            counters: QueueCounters::default(),
            message: PhantomData,
        })
    }

    /// Writes `message` to the next slot, where the consumer doesn't see it yet.
    ///
    /// # Errors
    /// [`QueueError::Full`] if no slot is free; what was written before stays written.
    #[inline]
    pub fn write(&mut self, message: &T) -> Result<(), QueueError> {
        self.find_slot()?;
        self.slots.fetch_ahead::<T>(&self.own, self.progress.at);
        self.slots.slot(&self.own, self.progress.at).write(message);
        self.progress.at = self.slots.after(self.progress.at);
        self.progress.written += 1;
        Ok(())
    }

    /// Makes sure that the next slot is free.
    #[inline]
    fn find_slot(&mut self) -> Result<(), QueueError> {
        match self.position().wrapping_sub(self.head) == self.capacity {
            true => self.look(),
            false => Ok(()),
        }
    }

    /// Shows the consumer everything written since the last time, in order. Answers how many messages
    /// that were.
    #[inline]
    pub fn publish(&mut self) -> u64 {
        let count = self.progress.written;
        for ahead in 0..count {
            self.stamp(self.progress.published.wrapping_add(ahead));
        }
        self.progress.published = self.position();
        self.progress.written = 0;
        count
    }

    #[inline]
    fn stamp(&self, position: u64) {
        let stamp = self.slots.stamp(&self.own, position);
        stamp.store(stamp_after(position), Ordering::Release);
    }

    /// Writes and publishes one message, after what was written before. Cheaper than [`Producer::write`] and
    /// [`Producer::publish`]: nothing is stored between the message and its stamp.
    ///
    /// # Errors
    /// As [`Producer::write`].
    // For the same reason as `Consumer::front`.
    #[inline(always)]
    pub fn push(&mut self, message: &T) -> Result<(), QueueError> {
        if self.progress.written != 0 {
            self.publish_earlier();
        }
        self.find_slot()?;
        self.slots.fetch_ahead::<T>(&self.own, self.progress.at);
        let slot = self.slots.slot(&self.own, self.progress.at);
        let published = stamp_after(self.progress.published);
        slot.write(message);
        slot.stamp.store(published, Ordering::Release);
        self.progress.published = published;
        self.progress.at = self.slots.after(self.progress.at);
        Ok(())
    }

    #[cold]
    fn publish_earlier(&mut self) {
        self.publish();
    }

    /// Makes sure that `count` messages can be written now, all of them.
    ///
    /// # Errors
    /// [`QueueError::Full`] if they can't.
    pub fn reserve(&mut self, count: u32) -> Result<(), QueueError> {
        let fits = |producer: &Self| u64::from(count) <= producer.free();
        if !fits(self) {
            self.look()?;
        }
        match fits(self) {
            true => Ok(()),
            false => Err(self.full()),
        }
    }

    /// Whether a message could be written now, or the queue is newly corrupt: what a producer looks at
    /// once more before it sleeps, if it keeps what it couldn't send and has published the rest.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.has_room_for(1)
    }

    /// As [`Producer::has_room`] for so many messages; or some room is newly there, and it takes a look to tell how much.
    #[inline]
    pub fn has_room_for(&self, count: u32) -> bool {
        self.free() >= u64::from(count) || self.has_moved()
    }

    /// Slots that are free as far as is known without looking.
    fn free(&self) -> u64 {
        self.capacity
            .saturating_sub(self.position().wrapping_sub(self.head))
    }

    /// The number of the message that is written next. Messages are counted from 0 on for as long as the
    /// queue lives: a successor goes on counting, over what its predecessor published.
    #[inline]
    pub fn position(&self) -> u64 {
        self.progress.published.wrapping_add(self.progress.written)
    }

    /// How many published messages the consumer hasn't released: what to hand in again if it dies
    /// (the oldest of them it may have handled).
    ///
    /// # Errors
    /// [`QueueError::Corrupt`].
    pub fn unreleased(&mut self) -> Result<u64, QueueError> {
        match self.look() {
            Ok(()) | Err(QueueError::Full) => Ok(self.progress.published.wrapping_sub(self.head)),
            Err(error) => Err(error),
        }
    }

    /// The number of the first message that the consumer hasn't released, looked up now.
    ///
    /// # Errors
    /// [`QueueError::Corrupt`].
    pub fn first_unreleased(&mut self) -> Result<u64, QueueError> {
        self.unreleased().map(|_| self.head)
    }

    /// Whether the consumer has released something since that was last looked up, or the queue is newly corrupt.
    #[inline]
    pub fn has_moved(&self) -> bool {
        !self.broken && word(&self.theirs, HEAD).load(Ordering::Relaxed) != self.head
    }

    /// Looks how far the consumer is. Full if that made no room.
    #[cold]
    fn look(&mut self) -> Result<(), QueueError> {
        if self.broken {
            return Err(QueueError::Corrupt);
        }
        let head = load_acquire(word(&self.theirs, HEAD));
        // It may have moved on by no more than there is, and never back.
        if head.wrapping_sub(self.head) > self.progress.published.wrapping_sub(self.head) {
            self.broken = true;
            self.counters.corrupt = self.counters.corrupt.wrapping_add(1);
            return Err(QueueError::Corrupt);
        }
        self.head = head;
        match self.free() {
            0 => Err(self.full()),
            _ => Ok(()),
        }
    }

    fn full(&mut self) -> QueueError {
        self.counters.full = self.counters.full.wrapping_add(1);
        QueueError::Full
    }

    /// How many messages fit into the queue.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// What was counted at this end.
    pub fn counters(&self) -> QueueCounters {
        QueueCounters {
            messages: self.progress.published.wrapping_sub(self.first),
            ..self.counters
        }
    }
}
