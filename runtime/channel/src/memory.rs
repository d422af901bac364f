//! Shared memory as words. Under `cfg(loom)` it is ordinary memory that loom watches, so that the very
//! same queue can be run through all orders in which two threads could see each other's stores.

#[cfg(not(loom))]
pub(crate) use shared::*;
#[cfg(not(loom))]
mod shared {
    pub(crate) use skink_memory::Mapping as Memory;
    pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};
}

#[cfg(loom)]
pub(crate) use watched::*;
#[cfg(loom)]
mod watched {
    use loom::sync::Arc;
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};

    /// Stands in for a mapping.
    #[derive(Clone)]
    pub(crate) struct Memory(Arc<Vec<AtomicU64>>);

    impl Memory {
        pub(crate) fn new(words: usize) -> Memory {
            Memory(Arc::new((0..words).map(|_| AtomicU64::new(0)).collect()))
        }

        pub(crate) fn words(&self) -> &[AtomicU64] {
            &self.0
        }
    }
}

/// The word at `index`.
///
/// # Panics
/// If there is none: the caller computed it from its own constants.
#[inline]
pub(crate) fn word(memory: &Memory, index: usize) -> &AtomicU64 {
    &memory.words()[index]
}

/// A load that sees everything which was written before the value was stored. The memory may be mapped
/// for reading only, where no load but `Relaxed` is defined (`std::sync::atomic`, "Atomic accesses to
/// read-only memory"); the fence does the rest, and costs nothing on x86.
#[inline]
pub(crate) fn load_acquire(word: &AtomicU64) -> u64 {
    let value = word.load(Ordering::Relaxed);
    fence(Ordering::Acquire);
    value
}

/// Asks the processor to take the line that the word is in for writing, before it is stored to. A hint: what the word is, and
/// what others see of it, doesn't change.
#[inline]
pub(crate) fn fetch_for_writing(word: &AtomicU64) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    // SAFETY: PREFETCHW faults nowhere and stores nothing. A processor without it takes it for a NOP.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) word.as_ptr(), options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    let _ = word;
}
