//! Whether the program has one thread.
//!
//! While a process has one, libc makes a system call and nothing else. With a second one it puts each call at which a thread may
//! be cancelled between two locked instructions: 3% of a write to /dev/null. The second one may be the library's
//! own helper, which cancels nobody. So the library makes the call for a program of one thread as libc would without the
//! helper.
//!
//! Threads that libc makes for itself (`timer_create` with a function to call) aren't seen. If such a one cancels the
//! program's only thread, that goes on until its call returns.
use crate::next;
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// The library isn't loaded yet; other libraries are.
const UNKNOWN: u8 = 0;
const ONE: u8 = 1;
/// Or another preloaded library stands before libc.
const SEVERAL: u8 = 2;

static THREADS: AtomicU8 = AtomicU8::new(UNKNOWN);
/// The one that is being made is the library's.
static OURS: AtomicBool = AtomicBool::new(false);

/// When the library is loaded.
pub fn start() {
    let known = if next::are_libcs() { ONE } else { SEVERAL };
    let _ = THREADS.compare_exchange(UNKNOWN, known, Ordering::Relaxed, Ordering::Relaxed);
}

/// Whether the program has never made a thread, nor cancelled one, and calls may go to the kernel without libc.
#[inline]
pub fn is_one() -> bool {
    THREADS.load(Ordering::Relaxed) == ONE
}

/// A thread is about to be made, or cancelled.
pub fn note() {
    // Who makes one besides is a second thread, which was noted.
    if !OURS.load(Ordering::Relaxed) {
        THREADS.store(SEVERAL, Ordering::Relaxed);
    }
}

/// Makes a thread that isn't the program's.
pub fn make_ours<T>(make: impl FnOnce() -> T) -> T {
    OURS.store(true, Ordering::Relaxed);
    let made = make();
    OURS.store(false, Ordering::Relaxed);
    made
}
