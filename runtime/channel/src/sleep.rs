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
//! | 136 | which berths are taken, a bit for each |
//! | 192 | `beats`: how often it has gone through its loop |
//! | 200 | `note`: what it tells whoever watches it; 0 at its start |
//! | 256 | 64 *berths* of 8 bytes: the number of a sleep, odd while it lasts (a futex), and what it waits for, plus one |
//! | 768 | for each of 4 *side bells* 8 bytes: odd while somebody sleeps on it, or is about to |
//! | 832 | 1024 bytes, by subjects: the number of a side bell, plus one |
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
//! may write here. A consumer that lies costs each of its producers two system calls per batch.
//!
//! # Berths
//!
//! A consumer may be many threads, each of which waits for one *subject* (a socket). If one of them slept for all, what is for
//! another one would wake two. So a thread can sleep on a berth, which one is told by its subject's number, and a
//! producer that has published one thing, about that subject, wakes this thread. A producer can't store here, so its wake-up is
//! lost if the thread has announced itself and isn't asleep yet. The kernel tells how many a wake-up has found: if none, the
//! producer rings. So as long as a berth is taken, another thread must sleep on the bell, or be about to look at the queues: it
//! takes in what was published, and rouses those that it is for.
//!
//! # Side bells
//!
//! A thread that waits for many subjects, and for descriptors besides, can have a pipe of its own beside the bell, and tell which
//! subjects are its. A producer that has published one thing, about one of those, rings there alone. Pipes remember, and who
//! sleeps on a side bell is to sleep on the bell as well: so nothing depends on others, and what these bytes say decides
//! who wakes up first, not whether.

use crate::memory::{AtomicU64, Memory, Ordering, fence, load_acquire, word};
use std::sync::Arc;
#[cfg(not(loom))]
use std::sync::atomic::AtomicU32;

/// Word index of `epoch`.
pub(crate) const EPOCH: usize = 16;
/// Word index of `beats`.
const BEATS: usize = 24;
/// Word index of `note`.
#[cfg(not(loom))]
const NOTE: usize = BEATS + 1;
/// Word index of which berths are taken: in the line of `epoch`, since both are looked at.
const TAKEN: usize = EPOCH + 1;
/// Word index of the first berth.
const FIRST_BERTH: usize = 32;
/// How many berths there are.
pub(crate) const BERTHS: usize = 64;
/// Word index of the first side bell's epoch.
const FIRST_SIDE: usize = FIRST_BERTH + BERTHS;
/// Side bells that a consumer can have.
pub const SIDE_BELLS: usize = 4;
/// Word index of the first subjects' side bells, eight in a word: a line of their own, which changes seldom.
const FIRST_OWNED: usize = FIRST_SIDE + 8;
/// How many subjects are told apart there.
const OWNED: usize = 1024;
const WORDS: usize = FIRST_OWNED + OWNED / 8;
const _: () = assert!(BERTHS as u32 == u64::BITS && SIDE_BELLS <= 8);
#[cfg(not(loom))]
pub(crate) const PAGE_BYTES: usize = WORDS * 8;

const _: () = assert!(EPOCH * 8 == 128 && (BEATS + 1) * 8 + 8 <= FIRST_BERTH * 8);

/// The consumer's side of the page: says that it sleeps.
pub struct Announcer {
    page: Arc<Memory>,
    epoch: u64,
}

/// Where one of a consumer's threads sleeps until it is told something about one subject. The consumer's threads use it
/// one at a time.
#[derive(Clone)]
pub struct Berth {
    page: Arc<Memory>,
    number: usize,
    nap: u32,
}

impl Berth {
    /// The futex, and what it says while the thread is to sleep. It lies in memory that others map too.
    #[cfg(not(loom))]
    pub fn futex(&self) -> (&AtomicU32, u32) {
        (futex(self.word()), self.nap)
    }

    /// Whether the thread is to sleep.
    pub fn is_occupied(&self) -> bool {
        self.word().load(Ordering::Relaxed) as u32 == self.nap
    }

    /// The thread isn't to sleep any more: if it does already, wake it by the futex.
    pub fn rouse(&self) {
        if self.is_occupied() {
            let word = self.word();
            word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    /// The thread is awake, and the berth free.
    pub fn rise(self) {
        let free = u64::from(self.nap.wrapping_add(1));
        self.word().store(free, Ordering::Relaxed);
        let taken = word(&self.page, TAKEN);
        let others = taken.load(Ordering::Relaxed) & !bit(self.number);
        taken.store(others, Ordering::Relaxed);
    }

    fn word(&self) -> &AtomicU64 {
        berth(&self.page, self.number)
    }
}

impl Announcer {
    /// Awake, also if a predecessor died in its sleep; and without a predecessor's note.
    pub(crate) fn new(page: Memory) -> Announcer {
        let page = Arc::new(page);
        #[cfg(not(loom))]
        word(&page, NOTE).store(0, Ordering::Relaxed);
        for number in 0..BERTHS {
            let berth = berth(&page, number);
            let nap = berth.load(Ordering::Relaxed) as u32;
            let free = u64::from(nap.wrapping_add(nap & 1));
            berth.store(free, Ordering::Relaxed);
        }
        word(&page, TAKEN).store(0, Ordering::Relaxed);
        for number in 0..SIDE_BELLS {
            let epoch = side(&page, number);
            let last = epoch.load(Ordering::Relaxed);
            epoch.store(last.wrapping_add(last & 1), Ordering::Relaxed);
        }
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

    /// A thread is about to sleep until it is told something about `subject`. It must then look at all queues once more, and
    /// sleep only if there is nothing in any; and see [above](self#berths). `None` if another one has the berth.
    pub fn lie_down(&mut self, subject: u32) -> Option<Berth> {
        let number = number_of(subject);
        let taken = word(&self.page, TAKEN);
        let others = taken.load(Ordering::Relaxed);
        if others & bit(number) != 0 {
            return None;
        }
        let berth = berth(&self.page, number);
        let nap = (berth.load(Ordering::Relaxed) as u32).wrapping_add(1);
        berth.store(named(subject) | u64::from(nap), Ordering::Relaxed);
        taken.store(others | bit(number), Ordering::Relaxed);
        fence(Ordering::SeqCst);
        Some(Berth {
            page: self.page.clone(),
            number,
            nap,
        })
    }

    /// A thread is about to sleep on this side bell, and on the bell, for which the announcement of that counts: a producer that
    /// doesn't see this one yet rings the bell.
    pub fn announce_beside(&mut self, number: usize) {
        if number < SIDE_BELLS {
            let epoch = side(&self.page, number);
            epoch.store(epoch.load(Ordering::Relaxed) | 1, Ordering::Relaxed);
        }
    }

    /// A thread that slept on this side bell is awake.
    pub fn retract_beside(&mut self, number: usize) {
        if number < SIDE_BELLS {
            let epoch = side(&self.page, number);
            let last = epoch.load(Ordering::Relaxed);
            epoch.store(last.wrapping_add(last & 1), Ordering::Relaxed);
        }
    }

    /// What is published about `subject` is for who sleeps on this side bell. Another subject with which it shares a place is
    /// anybody's then.
    pub fn lead(&mut self, subject: u32, number: usize) {
        let (word, shift) = owned(&self.page, subject);
        let others = word.load(Ordering::Relaxed) & !(0xff << shift);
        let number = u64::try_from(number + 1).unwrap_or(0) & 0xff;
        word.store(others | number << shift, Ordering::Relaxed);
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

/// The lower half of a berth's word, for the kernel.
#[cfg(not(loom))]
pub(crate) fn futex(word: &AtomicU64) -> &AtomicU32 {
    const { assert!(cfg!(target_endian = "little")) };
    // SAFETY: half of a word that is borrowed for as long, and aligned as all of it. Nobody but the kernel accesses it in halves.
    unsafe { &*word.as_ptr().cast() }
}

/// The berth of a subject.
pub(crate) fn number_of(subject: u32) -> usize {
    subject as usize % BERTHS
}

fn bit(number: usize) -> u64 {
    1 << number
}

fn berth(page: &Memory, number: usize) -> &AtomicU64 {
    word(page, FIRST_BERTH + number)
}

fn side(page: &Memory, number: usize) -> &AtomicU64 {
    word(page, FIRST_SIDE + number)
}

/// The word that says whose a subject is, and where in it.
fn owned(page: &Memory, subject: u32) -> (&AtomicU64, usize) {
    let place = subject as usize % OWNED;
    (word(page, FIRST_OWNED + place / 8), place % 8 * 8)
}

/// A subject, as berths name it.
fn named(subject: u32) -> u64 {
    u64::from(subject.wrapping_add(1)) << 32
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
    /// Likewise of each side bell.
    rung_beside: [u64; SIDE_BELLS],
}

/// The side bell of who waits for a subject.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SideBell {
    /// Less than [`SIDE_BELLS`].
    pub number: usize,
    /// It must be rung: it wasn't yet since that one sleeps.
    pub must_ring: bool,
}

impl Caller {
    pub(crate) fn new(page: Memory) -> Caller {
        Caller {
            page,
            rung: 0,
            rung_beside: [0; SIDE_BELLS],
        }
    }

    /// The side bell on which somebody sleeps, or is about to, who waits for `subject` among others, as far as that was
    /// published before that fence. Who asks rings it if it must be.
    #[inline]
    pub fn side_bell_of(&mut self, subject: u32, _: &Fenced) -> Option<SideBell> {
        let (word, shift) = owned(&self.page, subject);
        let number = usize::from((word.load(Ordering::Relaxed) >> shift) as u8).checked_sub(1)?;
        let rung = self.rung_beside.get_mut(number)?;
        let epoch = side(&self.page, number).load(Ordering::Relaxed);
        let sleeps = epoch & 1 == 1;
        let must_ring = *rung != epoch;
        if sleeps {
            *rung = epoch;
        }
        sleeps.then_some(SideBell { number, must_ring })
    }

    /// The futex on which a thread sleeps, or is about to, until it is told something about `subject`, as far as that was
    /// published before that fence; and the number of its sleep. The consumer may lie.
    #[inline]
    pub fn berth_of(&self, subject: u32, _: &Fenced) -> Option<(&AtomicU64, u32)> {
        let number = number_of(subject);
        if word(&self.page, TAKEN).load(Ordering::Relaxed) & bit(number) == 0 {
            return None;
        }
        let berth = berth(&self.page, number);
        let seen = berth.load(Ordering::Relaxed);
        let nap = seen as u32;
        let sleeps = !nap.is_multiple_of(2) && seen - u64::from(nap) == named(subject);
        sleeps.then_some((berth, nap))
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
    let page = Memory::new(WORDS);
    (Announcer::new(page.clone()), Caller::new(page))
}
