//! Copying messages into slots and out of them.
use super::{Message, QueueGeometry, SLOTS};
use crate::memory::{AtomicU64, Memory, Ordering};

/// Where the slots of a queue are.
#[derive(Clone, Copy)]
pub(super) struct Slots {
    mask: u64,
    slot_words: usize,
}

impl Slots {
    pub(super) fn new(geometry: QueueGeometry) -> Slots {
        Slots {
            mask: u64::from(geometry.capacity) - 1,
            slot_words: geometry.slot_words(),
        }
    }

    /// The words of the slot of index `position`.
    #[inline]
    fn slot(self, memory: &Memory, position: u64) -> &[AtomicU64] {
        let start = SLOTS + (position & self.mask) as usize * self.slot_words;
        &memory.words()[start..start + self.slot_words]
    }

    #[inline]
    pub(super) fn write<T: Message>(self, memory: &Memory, position: u64, message: &T) {
        let slot = self.slot(memory, position);
        let (words, rest) = message.as_bytes().as_chunks::<8>();
        for (word, value) in slot.iter().zip(words) {
            word.store(u64::from_ne_bytes(*value), Ordering::Relaxed);
        }
        if let (false, Some(word)) = (rest.is_empty(), slot.get(words.len())) {
            let mut value = [0; 8];
            value[..rest.len()].copy_from_slice(rest);
            word.store(u64::from_ne_bytes(value), Ordering::Relaxed);
        }
    }

    #[inline]
    pub(super) fn read<T: Message>(self, memory: &Memory, position: u64) -> T {
        let slot = self.slot(memory, position);
        let mut message = T::new_zeroed();
        let (words, rest) = message.as_mut_bytes().as_chunks_mut::<8>();
        let whole = words.len();
        for (word, value) in slot.iter().zip(words) {
            *value = word.load(Ordering::Relaxed).to_ne_bytes();
        }
        if let (false, Some(word)) = (rest.is_empty(), slot.get(whole)) {
            let value = word.load(Ordering::Relaxed).to_ne_bytes();
            rest.copy_from_slice(&value[..rest.len()]);
        }
        message
    }
}
