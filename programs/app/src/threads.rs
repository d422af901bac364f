//! Which threads the program has.
//!
//! A process ends, as by `exit(0)`, with its last thread, and its first one may have ended long before (`pthread_exit`). libc sees to
//! that; but it counts the library's helper. So the program's threads are counted here.
//!
//! And whether there is but one.
//!
//! While a process has one, libc makes a system call and nothing else. With a second one it puts each call at which a thread may
//! be cancelled between two locked instructions: 3% of a write to /dev/null. The second one may be the library's
//! own helper, which cancels nobody. So the library makes the call for a program of one thread as libc would without the
//! helper.
//!
//! Threads that libc makes for itself (`timer_create` with a function to call) aren't seen. If such a one cancels the
//! program's only thread, that goes on until its call returns.
use crate::lock::this_thread;
use crate::{estate, helper, next, raw, trap};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering};

/// The library isn't loaded yet; other libraries are.
const UNKNOWN: u8 = 0;
const ONE: u8 = 1;
/// Or another preloaded library stands before libc.
const SEVERAL: u8 = 2;

static THREADS: AtomicU8 = AtomicU8::new(UNKNOWN);
/// Which thread is about to make one that is the library's, see [`this_thread`].
static MAKES_OURS: AtomicUsize = AtomicUsize::new(0);

/// How many threads the program has, those it is about to make among them.
static COUNT: AtomicUsize = AtomicUsize::new(1);

/// One more than the key under which each thread keeps something that is destroyed when it ends; 0 if there is none.
static KEY: AtomicU32 = AtomicU32::new(0);

/// What libc lets a thread destroy that was kept anew meanwhile (`PTHREAD_DESTRUCTOR_ITERATIONS`).
const ROUNDS: usize = 4;

fn keep(key: u32, round: usize) {
    // SAFETY: the key is ours, and what is kept is a number.
    unsafe { libc::pthread_setspecific(key, round as *const c_void) };
}

/// A thread ends. What others keep in it is to be destroyed before, as far as may be: so this waits for the last round.
unsafe extern "C" fn ends(round: *mut c_void) {
    let round = round as usize;
    if let (Some(key), 1..ROUNDS) = (KEY.load(Ordering::Relaxed).checked_sub(1), round) {
        keep(key, round + 1);
    } else if COUNT.fetch_sub(1, Ordering::AcqRel) == 1 && !has_uncounted() {
        std::process::exit(0);
    }
}

/// Whether there are other threads than the calling one, the library's helper, and the first one, which has ended: libc's own, or such as
/// were made before the library was loaded.
fn has_uncounted() -> bool {
    let mut bytes = [0; 512];
    let read = raw::read_file(c"/proc/self/stat", &mut bytes).unwrap_or(0);
    // Behind the name, which may have anything in it: how many there are is the eighteenth number (proc(5)).
    let text = String::from_utf8_lossy(&bytes[..read]);
    let mut fields = text.rsplit(')').next().unwrap_or("").split_whitespace();
    let count = fields.nth(17).and_then(|field| field.parse().ok());
    let is_first = raw::thread_id() as u32 == raw::process_id();
    let known =
        1 + u32::from(!is_first) + u32::from(helper::is_there()) + u32::from(estate::has_usher());
    count != Some(known)
}

/// The calling thread begins.
fn begins() {
    trap::arm();
    if let Some(key) = KEY.load(Ordering::Relaxed).checked_sub(1) {
        keep(key, 1);
    }
}

/// After `fork`, in the child.
pub fn is_alone() {
    COUNT.store(1, Ordering::Relaxed);
    begins();
}

/// What a thread runs.
struct Start {
    run: *mut c_void,
    argument: *mut c_void,
}

unsafe extern "C-unwind" fn run(start: *mut c_void) -> *mut c_void {
    // SAFETY: it was made for this.
    let Start { run, argument } = *unsafe { Box::from_raw(start.cast::<Start>()) };
    begins();
    // SAFETY: the program's own function and argument. (One that answers an `int` leaves it where this one's caller looks.)
    unsafe {
        let run: unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void =
            core::mem::transmute(run);
        run(argument)
    }
}

/// Has the program make a thread by `make`, a function of libc's that is told what to run and its argument, and answers 0 if there is one.
pub fn make(
    wanted: *mut c_void,
    argument: *mut c_void,
    make: impl FnOnce(*mut c_void, *mut c_void) -> c_int,
) -> c_int {
    if MAKES_OURS.load(Ordering::Relaxed) == this_thread() {
        return make(wanted, argument);
    }
    note();
    if KEY.load(Ordering::Relaxed) == 0 {
        return make(wanted, argument);
    }
    COUNT.fetch_add(1, Ordering::Relaxed);
    let start = Box::into_raw(Box::new(Start {
        run: wanted,
        argument,
    }));
    let answer = make(run as *mut c_void, start.cast());
    if answer != 0 {
        COUNT.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: nobody else has it.
        drop(unsafe { Box::from_raw(start) });
    }
    answer
}

/// When the library is loaded, by the first thread.
pub fn start() {
    let mut key = 0;
    // SAFETY: the place is ours, and the function there for as long as the library is.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(ends)) } == 0 {
        KEY.store(key + 1, Ordering::Relaxed);
        begins();
    }
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
    THREADS.store(SEVERAL, Ordering::Relaxed);
}

/// Makes a thread that isn't the program's. The lock is held.
pub fn make_ours<T>(make: impl FnOnce() -> T) -> T {
    MAKES_OURS.store(this_thread(), Ordering::Relaxed);
    let made = make();
    MAKES_OURS.store(0, Ordering::Relaxed);
    made
}

/// Makes one that isn't the program's, and hears none of its signals. The lock is held.
pub fn spawn_ours(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    // Signals are the program's threads' business. libc's function leaves its own two alone,
    // without which `setuid` would never come back.
    // SAFETY: a signal set is plain numbers.
    let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { core::mem::zeroed() };
    // SAFETY: the sets are ours.
    unsafe {
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
    }
    let thread = std::thread::Builder::new()
        .name(name.into())
        .stack_size(256 * 1024);
    let spawned = make_ours(|| thread.spawn(run));
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, core::ptr::null_mut()) };
    spawned.map(|_| ())
}
