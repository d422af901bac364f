//! When the program's threads sleep and when they are awake, for the judge of how the NIC is used.
//!
//! Of all threads, whatever they sleep on that the network ends: the NIC's descriptors, a flow ring, another thread that drives
//! the stack. A server's thread that accepts sleeps nearly always, and says nothing about the others.
use crate::raw;
use crate::state::State;
use core::cell::Cell;
use skink_nic::Thread;
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
