use super::slots::Slots;
use super::{HEAD, Message, QueueError, QueueGeometry, TAIL, positions};
use crate::QueueCounters;
use crate::memory::{AtomicU64, Memory, Ordering, load_acquire, word};
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
    /// What the shared head is.
    released: u64,
    /// The producer's tail as it was last seen.
    tail: u64,
    broken: bool,
    counters: QueueCounters,
    message: PhantomData<fn() -> T>,
}

/// A word that changes when a message arrives, for [`Sleeper::wait`](crate::Sleeper::wait).
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    pub(crate) word: &'a AtomicU64,
    pub(crate) seen: u64,
}

impl<T: Message> Consumer<T> {
    /// `None` if the indices contradict each other.
    pub(super) fn new(own: Memory, theirs: Memory, geometry: QueueGeometry) -> Option<Consumer<T>> {
        let (head, tail) = positions(&theirs, &own, geometry)?;
        Some(Consumer {
            own,
            theirs,
            slots: Slots::new(geometry),
            capacity: u64::from(geometry.capacity),
            next: head,
            released: head,
            tail,
            broken: false,
            counters: QueueCounters::default(),
            message: PhantomData,
        })
    }

    /// Copies the next message out; its slot stays taken. `None` if there is none.
    ///
    /// # Errors
    /// [`QueueError::Corrupt`].
    #[inline]
    pub fn peek(&mut self) -> Result<Option<T>, QueueError> {
        if self.next == self.tail && !self.look()? {
            return Ok(None);
        }
        let message = self.slots.read(&self.theirs, self.next);
        self.next = self.next.wrapping_add(1);
        Ok(Some(message))
    }

    /// Gives back the slots of all messages that were copied out: one store. Answers how many.
    #[inline]
    pub fn release(&mut self) -> u64 {
        let count = self.next.wrapping_sub(self.released);
        if count > 0 {
            word(&self.own, HEAD).store(self.next, Ordering::Release);
            self.released = self.next;
            self.counters.messages = self.counters.messages.wrapping_add(count);
            self.counters.batches = self.counters.batches.wrapping_add(1);
        }
        count
    }

    /// Copies one message out and gives its slot back.
    ///
    /// # Errors
    /// As [`Consumer::peek`].
    #[inline]
    pub fn pop(&mut self) -> Result<Option<T>, QueueError> {
        let message = self.peek()?;
        self.release();
        Ok(message)
    }

    /// Looks how far the producer is; answers whether there is anything.
    #[inline]
    fn look(&mut self) -> Result<bool, QueueError> {
        if self.broken {
            return Err(QueueError::Corrupt);
        }
        let tail = load_acquire(word(&self.theirs, TAIL));
        if tail == self.tail {
            return Ok(false);
        }
        // It may have moved on by no more than there was room, and never back.
        let room = self.capacity - self.tail.wrapping_sub(self.released);
        if tail.wrapping_sub(self.tail) > room {
            self.broken = true;
            self.counters.corrupt = self.counters.corrupt.wrapping_add(1);
            return Err(QueueError::Corrupt);
        }
        self.tail = tail;
        Ok(true)
    }

    /// Whether [`Consumer::peek`] has something to tell: a message, or that the queue is newly corrupt.
    /// (Once that has been told, there is nothing any more: a corrupt queue keeps nobody awake.)
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.next != self.tail || (!self.broken && self.watch_word() != self.tail)
    }

    #[inline]
    fn watch_word(&self) -> u64 {
        word(&self.theirs, TAIL).load(Ordering::Relaxed)
    }

    /// What to watch for the next message.
    pub fn watch(&self) -> Watch<'_> {
        Watch {
            word: word(&self.theirs, TAIL),
            seen: self.tail,
        }
    }

    /// How many messages fit into the queue.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// What was counted at this end.
    pub fn counters(&self) -> QueueCounters {
        self.counters
    }
}
