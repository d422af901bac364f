//! How a reader of a pool knows that a chunk is still what it was lent, without a word to its creator: each chunk has a
//! generation, which the creator alone stores, and changes when the chunk is free.
//!
//! It is a sequence lock in which only the beginning of each write is told (Boehm, *Can Seqlocks Get Along With
//! Programming Language Memory Models?*, 2012): that the writing is over the reader knows from the message by which it was
//! lent the chunk.
use crate::memory::{AtomicU64, Ordering, fence, load_acquire};

/// A chunk's generation, in shared memory.
#[derive(Clone, Copy)]
pub struct Generation<'a>(pub(crate) &'a AtomicU64);

impl Generation<'_> {
    /// The creator: what was lent until now is void, from before anything new is written there.
    #[inline]
    pub fn become_free(self, next: u32) {
        self.0.store(next.into(), Ordering::Release);
    }

    /// The creator, before it writes to chunks: whoever sees any of what it writes from now on sees too that the chunk had become
    /// free.
    #[inline]
    pub fn begin_writing() {
        fence(Ordering::Release);
    }

    /// A reader: whether the chunk is what it was lent.
    #[inline]
    pub fn is(self, lent: u32) -> bool {
        load_acquire(self.0) == u64::from(lent)
    }

    /// A reader that has copied from the chunk: whether all that it copied is what it was lent.
    #[inline]
    pub fn was(self, lent: u32) -> bool {
        // What was copied was there before this looks.
        fence(Ordering::Acquire);
        self.0.load(Ordering::Relaxed) == u64::from(lent)
    }
}

/// A chunk of two words and its generation, in memory that loom watches.
#[cfg(loom)]
#[derive(Clone)]
pub struct ChunkInMemory(crate::memory::Memory);

#[cfg(loom)]
impl ChunkInMemory {
    /// One of generation 1 with these words.
    pub fn new(words: [u64; 2]) -> ChunkInMemory {
        let memory = crate::memory::Memory::new(3);
        let chunk = ChunkInMemory(memory);
        chunk.generation().become_free(1);
        chunk.write(words);
        chunk
    }

    /// Its generation.
    pub fn generation(&self) -> Generation<'_> {
        Generation(crate::memory::word(&self.0, 0))
    }

    /// As a pool writes.
    pub fn write(&self, words: [u64; 2]) {
        Generation::begin_writing();
        for (at, value) in (1..).zip(words) {
            crate::memory::word(&self.0, at).store(value, Ordering::Relaxed);
        }
    }

    /// As a reader copies; `None` if it was freed.
    pub fn copy_out(&self, lent: u32) -> Option<[u64; 2]> {
        if !self.generation().is(lent) {
            return None;
        }
        let copy = [1, 2].map(|at| crate::memory::word(&self.0, at).load(Ordering::Relaxed));
        self.generation().was(lent).then_some(copy)
    }
}
