//! Copying messages into slots and out of them, and the stamps that say what is in a slot.
use super::{Message, QueueGeometry, SLOTS};
use crate::memory::{AtomicU64, Memory, Ordering, load_acquire, word};

/// Where the slots of a queue are.
#[derive(Clone, Copy)]
pub(super) struct Slots {
    capacity: u64,
    slot_words: usize,
}

impl Slots {
    pub(super) fn new(geometry: QueueGeometry) -> Slots {
        Slots {
            capacity: u64::from(geometry.capacity),
            slot_words: geometry.slot_words(),
        }
    }

    pub(super) fn capacity(self) -> u64 {
        self.capacity
    }

    /// The index of the word where the slot of index `position` begins.
    #[inline]
    pub(super) fn start(self, position: u64) -> usize {
        SLOTS + (position & (self.capacity - 1)) as usize * self.slot_words
    }

    /// The stamp of the slot of index `position`.
    #[inline]
    pub(super) fn stamp(self, memory: &Memory, position: u64) -> &AtomicU64 {
        word(memory, self.start(position))
    }

    /// What the stamp is before the message of index `position` is published.
    #[inline]
    pub(super) fn stamp_before(self, position: u64) -> u64 {
        match position < self.capacity {
            true => 0,
            false => stamp_after(position).wrapping_sub(self.capacity),
        }
    }

    /// Whether all messages before `position` were published at some time, as far as the last of them tells.
    pub(super) fn were_published(self, memory: &Memory, position: u64) -> bool {
        let Some(last) = position.checked_sub(1) else {
            return true;
        };
        // Its slot may have been used once more since.
        let stamp = load_acquire(self.stamp(memory, last));
        [position, position.wrapping_add(self.capacity)].contains(&stamp)
    }

    /// The words of a message of type `T` of index `position`: of just its size, so that copying is
    /// unrolled.
    #[inline]
    fn message<T>(self, memory: &Memory, position: u64) -> (&[AtomicU64], &[AtomicU64]) {
        let start = self.start(position) + 1;
        let (whole, rest) = (size_of::<T>() / 8, !size_of::<T>().is_multiple_of(8));
        let words = &memory.words()[start..start + whole + usize::from(rest)];
        words.split_at(whole)
    }

    /// From its end to its beginning, where the stamp is: a processor gathers stores that follow one another in half a
    /// cache line, and hands over each half by itself (docs/decisions/0005).
    #[inline]
    pub(super) fn write<T: Message>(self, memory: &Memory, position: u64, message: &T) {
        let (whole, last) = self.message::<T>(memory, position);
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

    #[inline]
    pub(super) fn read<T: Message>(self, memory: &Memory, position: u64) -> T {
        let (whole, last) = self.message::<T>(memory, position);
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
