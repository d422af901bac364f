//! When the program's threads sleep and when they are awake, for the judge of how the NIC is used.
//!
//! Of all threads, whatever they sleep on that the network ends: the NIC's descriptors, a flow ring, another thread that drives
//! the stack. A server's thread that accepts sleeps nearly always, and says nothing about the others. And one that waits for all
//! connections may hand them to threads that never do.
use crate::raw;
use crate::state::State;
use crate::threads;
use core::cell::Cell;
use core::sync::atomic::{AtomicU32, Ordering};
use skink_nic::{Thread, Work};
use skink_time::Instant;

thread_local! {
    /// What the judge knows of the calling thread.
    static THREAD: Cell<Thread> = const { Cell::new(Thread::new()) };
}

impl State {
    /// The calling thread goes to sleep, or looks on since it has nothing else to do.
    pub fn stops_working(&mut self, now: Instant) {
        let mut thread = THREAD.get();
        self.judge.falls_asleep(&mut thread, now);
        THREAD.set(thread);
    }

    /// It goes on.
    pub fn works_again(&mut self) {
        let mut thread = THREAD.get();
        self.judge.wakes(&mut thread, raw::processor(), raw::now());
        THREAD.set(thread);
    }
}

/// On how many processors the process's first thread may run, as it was when the helper began: later a program may have confined itself.
static PROCESSORS: AtomicU32 = AtomicU32::new(1);

/// The helper begins.
pub fn begin() {
    PROCESSORS.store(raw::processors(), Ordering::Relaxed);
}

/// What all threads have worked so far, if the program has several.
pub fn so_far() -> Option<Work> {
    let work = || Work {
        time: raw::processor_time(),
        processors: PROCESSORS.load(Ordering::Relaxed),
    };
    (!threads::is_one()).then(work)
}
