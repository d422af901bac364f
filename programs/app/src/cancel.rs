//! `pthread_cancel`. libc looks for it in its own calls that may wait. Who waits here is woken, and asks libc to end the thread where
//! no lock is held and nothing of the library's is on the stack that would have to be undone.
//!
//! What the library calls with the lock held may be such a call of libc's, and must not end the thread. So from the first
//! `pthread_cancel` on, the lock forbids that as long as it is held; before, it costs one look at a word.
use crate::lock::lock;
use crate::next;
use crate::raw;
use crate::state::State;
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use libc::pthread_t;
use std::time::Duration;

/// The signal that libc wakes a thread with whose call may be cancelled at any instruction. Its handler does nothing
/// to a thread that isn't in such a call, but the signal ends its sleep.
const WAKING: c_int = 32;
/// `PTHREAD_CANCEL_ENABLE`, `PTHREAD_CANCEL_DISABLE`.
const ALLOWED: c_int = 0;
const FORBIDDEN: c_int = 1;
/// Nothing was forbidden.
const NONE: c_int = -1;

/// How long who sleeps on an epoll set does so at most, once threads are cancelled: no bell there is for it alone.
pub const LOOK: Duration = Duration::from_millis(100);
/// Signals, and how far apart, until the thread has been woken: it may not be asleep yet.
const ATTEMPTS: u32 = 10;
const APART: Duration = Duration::from_micros(200);

static USED: AtomicBool = AtomicBool::new(false);
/// What the thread that holds the lock had allowed before.
static BEFORE: AtomicI32 = AtomicI32::new(NONE);

unsafe extern "C-unwind" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    fn pthread_testcancel();
    fn pthread_getcpuclockid(thread: pthread_t, clock: *mut libc::clockid_t) -> c_int;
}

/// Whether the program has ever cancelled a thread.
#[inline]
pub fn is_used() -> bool {
    USED.load(Ordering::Relaxed)
}

/// Makes a call in which the thread isn't cancelled.
#[cfg(target_arch = "x86_64")]
pub fn not_during<T>(call: impl FnOnce() -> T) -> T {
    if !is_used() {
        return call();
    }
    let mut before = NONE;
    // SAFETY: the variable is ours.
    unsafe { pthread_setcancelstate(FORBIDDEN, &raw mut before) };
    let answer = call();
    allow(before);
    answer
}

/// The lock was taken.
#[inline]
pub fn forbid() {
    if is_used() {
        set(FORBIDDEN);
    }
}

#[cold]
fn set(state: c_int) {
    let mut before = NONE;
    // SAFETY: the variable is ours.
    unsafe { pthread_setcancelstate(state, &raw mut before) };
    BEFORE.store(before, Ordering::Relaxed);
}

/// The lock is about to be let go: what [`allow`] is to be told after that.
#[inline]
pub fn take_before() -> c_int {
    match is_used() {
        true => BEFORE.swap(NONE, Ordering::Relaxed),
        false => NONE,
    }
}

/// The lock was let go.
#[inline]
pub fn allow(before: c_int) {
    if before == ALLOWED {
        // SAFETY: who asks for no answer gets none.
        unsafe { pthread_setcancelstate(ALLOWED, core::ptr::null_mut()) };
    }
}

/// A thread that was cancelled: as libc calls it, and the kernel, which gives the number to no other one soon.
pub struct Cancelled {
    thread: pthread_t,
    number: c_int,
}

impl Cancelled {
    fn is_me(&self) -> bool {
        // SAFETY: no conditions.
        self.thread == unsafe { libc::pthread_self() } && self.number == raw::thread_id()
    }
}

/// Whether the calling thread, which holds the lock, was cancelled, and allows that. Whoever finds that answers `EINTR`.
#[inline]
pub fn is_due(state: &State) -> bool {
    is_used() && BEFORE.load(Ordering::Relaxed) == ALLOWED && is_listed(state)
}

/// Whether the calling thread, which holds the lock, was woken to hear that it was cancelled, and forbids that: it goes on.
#[inline]
pub fn is_put_off(state: &State) -> bool {
    is_used() && BEFORE.load(Ordering::Relaxed) == FORBIDDEN && is_listed(state)
}

#[cold]
fn is_listed(state: &State) -> bool {
    state.cancelled.iter().any(Cancelled::is_me)
}

/// A call of the calling thread was interrupted, and nothing of it goes on: ends the thread, if that is why.
#[inline]
pub fn end() {
    if is_used() && take_from_list() {
        // SAFETY: libc unwinds the stack from here on: this function, those that answer the program, and the program's.
        unsafe { pthread_testcancel() };
    }
}

#[cold]
#[inline(never)]
fn take_from_list() -> bool {
    let Ok(mut state) = lock() else { return false };
    let due = is_due(&state);
    if due {
        state.cancelled.retain(|it| !it.is_me());
    }
    due
}

/// `pthread_cancel`
///
/// # Safety
/// As the function's.
pub unsafe fn cancel(thread: pthread_t) -> c_int {
    if !USED.swap(true, Ordering::Relaxed) {
        // Who holds the lock has forbidden nothing.
        drop(lock());
    }
    let mut clock = 0;
    // SAFETY: the thread is there, says the caller, now but perhaps not later; the variable is ours.
    let failed = unsafe { pthread_getcpuclockid(thread, &raw mut clock) } != 0;
    // SAFETY: the caller's promise.
    let answer = unsafe { next::pthread_cancel(thread) };
    if answer == 0 && !failed {
        // How the kernel names the clock of one thread.
        let number = !(clock >> 3);
        wake(Cancelled { thread, number });
    }
    answer
}

fn wake(cancelled: Cancelled) {
    let Cancelled { thread, number } = cancelled;
    {
        let Ok(mut state) = lock() else { return };
        let lives = |it: &Cancelled| it.number != number && raw::signal_thread(it.number, 0);
        state.cancelled.retain(lives);
        state.cancelled.push(cancelled);
        state.parking.wake_all();
        // Who isn't asleep looks before it sleeps, and who has a bell of its own has heard it.
        if !state.parking.sleeps_on_set(thread) {
            return;
        }
    }
    for _ in 0..ATTEMPTS {
        raw::signal_thread(number, WAKING);
        raw::pause(APART);
        if !lock().is_ok_and(|state| state.parking.sleeps_on_set(thread)) {
            break;
        }
    }
}
