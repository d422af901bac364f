use super::slots::{Slots, stamp_after};
use super::{HEAD, Message, QueueError, QueueGeometry};
use crate::QueueCounters;
use crate::memory::{AtomicU64, Memory, Ordering, load_acquire, word};
use crate::sleep::Fenced;
use std::marker::PhantomData;

/// The receiving end of a queue.
///
/// Messages are copied out one by one, and their slots given back together: [`Consumer::peek`] as often
/// as there is something and the component's bound on work allows, then [`Consumer::release`] once.
pub struct Consumer<T> {
    own: Memory,
    theirs: Memory,
    slots: Slots,
    capacity: u64,
    /// The next message to be copied out. Kept here and never read back.
    next: u64,
    /// Where its slot begins.
    at: usize,
    /// What the shared head is.
    released: u64,
    /// The first message that can't be copied out, whatever its stamp: there, all slots are taken. The next one, once the
    /// queue is corrupt.
    limit: u64,
    /// What `released` was in the beginning.
    first: u64,
    /// What `released` was when [`Consumer::made_room`] was last asked.
    room_from: u64,
    broken: bool,
    counters: QueueCounters,
    message: PhantomData<fn() -> T>,
}

/// A word that changes when a message arrives, for [`Sleeper::wait`](crate::Sleeper::wait).
#[derive(Clone, Copy)]
#[cfg_attr(loom, allow(dead_code, reason = "what spins isn't there"))]
pub struct Watch<'a> {
    pub(crate) word: &'a AtomicU64,
    pub(crate) seen: u64,
}

impl<T: Message> Consumer<T> {
    /// `None` if the head is beyond what was published: a predecessor stored it there, and all up to it would
    /// be taken for read.
    pub(super) fn new(own: Memory, theirs: Memory, geometry: QueueGeometry) -> Option<Consumer<T>> {
        let head = load_acquire(word(&own, HEAD));
        let slots = Slots::new(geometry);
        slots.were_published(&theirs, head).then(|| Consumer {
            own,
            theirs,
            slots,
            capacity: slots.capacity(),
            next: head,
            at: slots.start(head),
            released: head,
            limit: head.wrapping_add(slots.capacity()),
            first: head,
            room_from: head,
            broken: false,
            counters: QueueCounters::default(),
            message: PhantomData,
        })
    }

    /// Copies the next message out; its slot stays taken. `None` if there is none, or if all slots are
    /// taken: they must be released then.
    ///
    /// # Errors
    /// [`QueueError::Corrupt`].
    #[inline(always)]
    pub fn peek(&mut self) -> Result<Option<T>, QueueError> {
        let message = self.front()?;
        if message.is_some() {
            self.step();
        }
        Ok(message)
    }

    #[inline]
    fn step(&mut self) {
        self.next = self.next.wrapping_add(1);
        self.at = self.slots.after(self.at);
    }

    /// As [`Consumer::peek`], but the message stays the next one until [`Consumer::advance`]: for one
    /// that a successor must see again if this consumer dies over it, whatever was released meanwhile. A
    /// neighbour may write something else there before it is looked at once more: use the copy.
    ///
    /// # Errors
    /// [`QueueError::Corrupt`].
    // Else the message is copied from call to call: words that were stored one by one and are loaded two at a
    // time, for which a processor waits until the stores are through.
    #[inline(always)]
    pub fn front(&mut self) -> Result<Option<T>, QueueError> {
        if self.next == self.limit {
            return match self.broken {
                true => Err(QueueError::Corrupt),
                false => Ok(None),
            };
        }
        let slot = self.slots.slot(&self.theirs, self.at);
        let stamp = load_acquire(slot.stamp);
        if stamp == stamp_after(self.next) {
            return Ok(Some(slot.read()));
        }
        match stamp == self.slots.stamp_before(self.next) {
            true => Ok(None),
            false => Err(self.corrupt()),
        }
    }

    /// Takes the message that [`Consumer::front`] has copied out; its slot stays taken until
    /// [`Consumer::release`]. Does nothing if there is none.
    #[inline]
    pub fn advance(&mut self) {
        let there = || load_acquire(word(&self.theirs, self.at)) == stamp_after(self.next);
        if self.next != self.limit && there() {
            self.step();
        }
    }

    #[cold]
    fn corrupt(&mut self) -> QueueError {
        self.broken = true;
        self.limit = self.next;
        self.counters.corrupt = self.counters.corrupt.wrapping_add(1);
        QueueError::Corrupt
    }

    /// Gives back the slots of all messages that were copied out: one store. Answers how many.
    #[inline]
    pub fn release(&mut self) -> u64 {
        let count = self.next.wrapping_sub(self.released);
        if count > 0 {
            word(&self.own, HEAD).store(self.next, Ordering::Release);
            self.released = self.next;
            if !self.broken {
                self.limit = self.next.wrapping_add(self.capacity);
            }
        }
        count
    }

    /// Whether what was released since the last time made room in a full queue: then the producer may
    /// sleep with messages that it could send now, so ring *its* doorbell. For queues whose producer
    /// keeps what it can't send; it then sleeps by [`Producer::has_room`](super::Producer::has_room).
    #[inline]
    pub fn made_room(&mut self) -> bool {
        self.made_room_after(&Fenced::now())
    }

    /// As [`Consumer::made_room`], of what was released before that fence.
    #[inline]
    pub fn made_room_after(&mut self, _: &Fenced) -> bool {
        // As for doorbells (see `sleep.rs`): either the full queue is seen here, or the room there.
        // Unless it was full, this is the slot that was released last, at which the producer hasn't been since. One that
        // stores another stamp misses a wake-up, or is woken for nothing.
        let full = self.room_from.wrapping_add(self.capacity);
        let was_full = self.slots.were_published(&self.theirs, full);
        let released = self.released != self.room_from;
        self.room_from = self.released;
        was_full && released
    }

    /// Copies one message out and gives its slot back.
    ///
    /// # Errors
    /// As [`Consumer::peek`].
    #[inline(always)]
    pub fn pop(&mut self) -> Result<Option<T>, QueueError> {
        let message = self.peek()?;
        if message.is_some() {
            self.release();
        }
        Ok(message)
    }

    /// Whether [`Consumer::peek`] has something to tell: a message, or that the queue is newly corrupt.
    /// (Once that has been told, there is nothing any more: a corrupt queue keeps nobody awake.)
    #[inline]
    pub fn is_ready(&self) -> bool {
        let Watch { word, seen } = self.watch();
        self.next != self.limit && word.load(Ordering::Relaxed) != seen
    }

    /// What to watch for the next message.
    #[inline]
    pub fn watch(&self) -> Watch<'_> {
        Watch {
            word: word(&self.theirs, self.at),
            seen: self.slots.stamp_before(self.next),
        }
    }

    /// How many messages fit into the queue.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// What was counted at this end.
    pub fn counters(&self) -> QueueCounters {
        QueueCounters {
            messages: self.released.wrapping_sub(self.first),
            ..self.counters
        }
    }
}
