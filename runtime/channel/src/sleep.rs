//! Who sleeps: the part of a consumer's sleep that is in shared memory.
//!
//! # Layout
//!
//! A memfd that the consumer writes and its producers map for reading only:
//!
//! | offset | |
//! | --- | --- |
//! | 0 | magic and version |
//! | 128 | `epoch`: odd while the consumer sleeps or is about to |
//! | 192 | `beats`: how often it has gone through its loop |
//! | 200 | `note`: what it tells whoever watches it; 0 at its start |
//!
//! # No wake-up is lost
//!
//! Each side stores, fences and then loads what the other one stored (Dekker's pattern):
//!
//! | consumer | producer |
//! | --- | --- |
//! | `epoch` := odd | `tail` := more |
//! | sequentially consistent fence | sequentially consistent fence |
//! | looks at all its queues once more | looks at `epoch` |
//! | sleeps if there is nothing | rings if it is odd |
//!
//! Whichever fence comes first, the side whose fence is second sees what the other one stored. Every
//! sleep has a number of its own, so that a producer rings once per sleep, though only the consumer
//! may write here. A consumer that lies costs each of its producers one system call per batch.

use crate::memory::{Memory, Ordering, fence, load_acquire, word};

/// Word index of `epoch`.
pub(crate) const EPOCH: usize = 16;
/// Word index of `beats`.
const BEATS: usize = 24;
/// Word index of `note`.
#[cfg(not(loom))]
const NOTE: usize = BEATS + 1;
pub(crate) const PAGE_BYTES: usize = 256;

const _: () = assert!(EPOCH * 8 == 128 && (BEATS + 1) * 8 + 8 <= PAGE_BYTES);

/// The consumer's side of the page: says that it sleeps.
pub struct Announcer {
    page: Memory,
    epoch: u64,
}

impl Announcer {
    /// Awake, also if a predecessor died in its sleep; and without a predecessor's note.
    pub(crate) fn new(page: Memory) -> Announcer {
        #[cfg(not(loom))]
        word(&page, NOTE).store(0, Ordering::Relaxed);
        let epoch = load_acquire(word(&page, EPOCH));
        let mut announcer = Announcer { page, epoch };
        announcer.retract();
        announcer
    }

    /// Says that the consumer is about to sleep. It must then look at all its queues once more, and
    /// sleep only if there is nothing in any.
    pub fn announce(&mut self) {
        self.set(self.epoch | 1);
        fence(Ordering::SeqCst);
    }

    /// Says that it is awake. From now on nobody rings; what arrived meanwhile is in the queues.
    pub fn retract(&mut self) {
        self.set(self.epoch.wrapping_add(self.epoch & 1));
    }

    /// Shows whoever watches that the consumer goes on.
    #[cfg(not(loom))]
    pub(crate) fn beat(&mut self) {
        let beats = word(&self.page, BEATS);
        // Nobody else writes it.
        let next = beats.load(Ordering::Relaxed).wrapping_add(1);
        beats.store(next, Ordering::Relaxed);
    }

    /// Shows whoever watches this.
    #[cfg(not(loom))]
    pub(crate) fn note(&mut self, note: u64) {
        word(&self.page, NOTE).store(note, Ordering::Relaxed);
    }

    fn set(&mut self, epoch: u64) {
        self.epoch = epoch;
        word(&self.page, EPOCH).store(epoch, Ordering::Relaxed);
    }
}

/// What a [`Pulse`](crate::Pulse) shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Beat {
    /// It sleeps, or is about to.
    pub asleep: bool,
    /// Changes as long as the consumer goes through its loop.
    pub count: u64,
}

/// A watcher's side of the page.
#[cfg(not(loom))]
pub(crate) fn look(page: &Memory) -> Beat {
    let epoch = load_acquire(word(page, EPOCH));
    let beats = load_acquire(word(page, BEATS));
    Beat {
        asleep: epoch & 1 == 1,
        count: epoch.wrapping_add(beats),
    }
}

/// What the consumer shows by [`Announcer::note`].
#[cfg(not(loom))]
pub(crate) fn note(page: &Memory) -> u64 {
    load_acquire(word(page, NOTE))
}

/// A producer's side of the page: knows whether it has to ring.
#[cfg_attr(loom, derive(Clone))]
pub struct Caller {
    page: Memory,
    rung: u64,
}

impl Caller {
    pub(crate) fn new(page: Memory) -> Caller {
        Caller { page, rung: 0 }
    }

    /// Whether the consumer must be woken for what was published before. Answers `true` once for
    /// each sleep: who asks has to ring then.
    #[inline]
    pub fn must_ring(&mut self) -> bool {
        self.must_ring_after(&Fenced::now())
    }

    /// As [`Caller::must_ring`], for what was published before that fence.
    #[inline]
    pub fn must_ring_after(&mut self, _: &Fenced) -> bool {
        let epoch = word(&self.page, EPOCH).load(Ordering::Relaxed);
        let ring = epoch & 1 == 1 && epoch != self.rung;
        if ring {
            self.rung = epoch;
        }
        ring
    }
}

/// A fence between what was published or released before, and looks at what the neighbour stored: the dearest part of ending a
/// batch, so there is one for all looks.
pub struct Fenced(());

impl Fenced {
    /// Fences.
    #[inline]
    pub fn now() -> Fenced {
        fence(Ordering::SeqCst);
        Fenced(())
    }
}

/// Both sides of a sleeper's page, in memory that loom watches.
#[cfg(loom)]
pub fn in_memory() -> (Announcer, Caller) {
    let page = Memory::new(BEATS + 1);
    (Announcer::new(page.clone()), Caller::new(page))
}
