//! Copying messages into slots and out of them, and the stamps that say what is in a slot.
use super::{Message, QueueGeometry, SLOTS};
use crate::memory::{AtomicU64, Memory, Ordering, fetch_for_writing, load_acquire, word};
use std::marker::PhantomData;

/// Where the slots of a queue are.
#[derive(Clone, Copy)]
pub(super) struct Slots {
    /// The capacity, less one.
    mask: u64,
    slot_words: usize,
    /// The index of the word after the last slot.
    end: usize,
}

impl Slots {
    pub(super) fn new(geometry: QueueGeometry) -> Slots {
        Slots {
            mask: u64::from(geometry.capacity) - 1,
            slot_words: geometry.slot_words(),
            end: geometry.producer_half_bytes() / 8,
        }
    }

    pub(super) fn capacity(self) -> u64 {
        self.mask + 1
    }

    /// The index of the word where the slot of index `position` begins.
    #[inline]
    pub(super) fn start(self, position: u64) -> usize {
        SLOTS + (position & self.mask) as usize * self.slot_words
    }

    /// Where the slot after the one that begins at `start` begins.
    #[inline]
    pub(super) fn after(self, start: usize) -> usize {
        match start + self.slot_words {
            next if next == self.end => SLOTS,
            next => next,
        }
    }

    /// The stamp of the slot of index `position`.
    #[inline]
    pub(super) fn stamp(self, memory: &Memory, position: u64) -> &AtomicU64 {
        word(memory, self.start(position))
    }

    /// Asks the processor to take the lines of a message [`AHEAD`] of the slot that begins at `start` for writing, if the
    /// consumer's has a copy. Stores leave in order, so each of them would wait for its line by itself otherwise.
    #[inline(always)]
    pub(super) fn fetch_ahead<T: Message>(self, memory: &Memory, start: usize) {
        let later = start + AHEAD * self.slot_words;
        let later = match later < self.end {
            true => later,
            false => later - (self.end - SLOTS),
        };
        // (With fewer slots than that it is none of them.)
        if let Some(words) = memory.words().get(later..later + Slot::<T>::WORDS) {
            words.iter().step_by(LINE_WORDS).for_each(fetch_for_writing);
        }
    }

    /// What the stamp is before the message of index `position` is published.
    #[inline]
    pub(super) fn stamp_before(self, position: u64) -> u64 {
        match position < self.capacity() {
            true => 0,
            // The stamp of the message one lap before.
            false => position - self.mask,
        }
    }

    /// Whether all messages before `position` were published at some time, as far as the last of them tells.
    pub(super) fn were_published(self, memory: &Memory, position: u64) -> bool {
        let Some(last) = position.checked_sub(1) else {
            return true;
        };
        // Its slot may have been used once more since.
        let stamp = load_acquire(self.stamp(memory, last));
        [position, position.wrapping_add(self.capacity())].contains(&stamp)
    }

    /// The slot that begins at the word `start`, for a message of type `T`.
    #[inline(always)]
    pub(super) fn slot<T: Message>(self, memory: &Memory, start: usize) -> Slot<'_, T> {
        let words = &memory.words()[start..start + Slot::<T>::WORDS];
        let (stamp, words) = words.split_at(1);
        Slot {
            stamp: &stamp[0],
            words,
            message: PhantomData,
        }
    }
}

/// How many slots ahead of the message that is written the processor is asked to take back from the consumer's: in the time
/// that so many messages take a cache line crosses over.
const AHEAD: usize = 6;
/// Words of 8 bytes in a cache line.
const LINE_WORDS: usize = 8;

/// One slot. It is found before it is known whether there is something in it, so that a message that was waited for needs
/// no more than to be copied.
pub(super) struct Slot<'a, T> {
    pub(super) stamp: &'a AtomicU64,
    /// Of just the size of a message, so that copying is unrolled.
    words: &'a [AtomicU64],
    message: PhantomData<T>,
}

impl<T: Message> Slot<'_, T> {
    /// With the stamp.
    const WORDS: usize = 1 + size_of::<T>().div_ceil(8);

    /// From its end to its beginning, where the stamp is: a processor gathers stores that follow one another in half a
    /// cache line, and hands over each half by itself (docs/decisions/0005).
    #[inline(always)]
    pub(super) fn write(&self, message: &T) {
        let (whole, last) = self.words.split_at(size_of::<T>() / 8);
        let (words, rest) = message.as_bytes().as_chunks::<8>();
        for word in last {
            let mut value = [0; 8];
            value[..rest.len()].copy_from_slice(rest);
            word.store(u64::from_ne_bytes(value), Ordering::Relaxed);
        }
        for (word, value) in whole.iter().zip(words).rev() {
            word.store(u64::from_ne_bytes(*value), Ordering::Relaxed);
        }
    }

    #[inline(always)]
    pub(super) fn read(&self) -> T {
        let (whole, last) = self.words.split_at(size_of::<T>() / 8);
        let mut message = T::new_zeroed();
        let (words, rest) = message.as_mut_bytes().as_chunks_mut::<8>();
        for (word, value) in whole.iter().zip(words) {
            *value = word.load(Ordering::Relaxed).to_ne_bytes();
        }
        for word in last {
            let value = word.load(Ordering::Relaxed).to_ne_bytes();
            rest.copy_from_slice(&value[..rest.len()]);
        }
        message
    }
}

/// What the stamp is once the message of index `position` is published.
#[inline]
pub(super) fn stamp_after(position: u64) -> u64 {
    position.wrapping_add(1)
}
