//! Signal handlers, and the lock that a thread may hold when one interrupts it.
//!
//! A handler may make calls on sockets, and may leave the call that it interrupts for good (`siglongjmp`): signal-safety(7). So
//! none runs while its thread is busy with what the lock is around. One function of the library's stands in the kernel's table in
//! place of each handler. If the thread is busy, it notes the signal and returns, with all others blocked; who lets the lock
//! go runs the program's handler then, as if the signal had come right after, or before the call that is about to wait.
//!
//! Handlers of faults, which can't wait, aren't stood in for, nor are those that a program gives to the kernel without libc.
use crate::descriptor::is_guest;
use crate::errno;
use crate::lock::{self, this_thread};
use crate::next;
use crate::parking;
use crate::{raw, trap};
use core::cell::{Cell, UnsafeCell};
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};
use libc::{siginfo_t, ucontext_t};

/// Signals are numbers below this one.
const END: usize = 65;

/// What a thread causes itself, and can't go on from without its handler.
const FAULTS: [c_int; 7] = [
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGSEGV,
    libc::SIGSYS,
];

/// The signal by which libc cancels a thread, and the one by which it has all of them change their user.
const LIBCS: [c_int; 2] = [32, 33];

/// The bit of a signal in a mask, as the kernel has it.
const fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// Those that can wait.
const fn all_that_wait() -> u64 {
    let mut mask = bit(LIBCS[0]) | bit(LIBCS[1]);
    let mut at = 0;
    while at < FAULTS.len() {
        mask |= bit(FAULTS[at]);
        at += 1;
    }
    !mask
}

/// The handler that the program has given for a signal, if the kernel has the library's.
struct Action {
    handler: AtomicUsize,
    flags: AtomicI32,
    mask: AtomicU64,
}

static ACTIONS: [Action; END] = [const {
    Action {
        handler: AtomicUsize::new(0),
        flags: AtomicI32::new(0),
        mask: AtomicU64::new(0),
    }
}; END];

/// Signals whose handlers interrupt calls even if they are set by `signal`: `siginterrupt`.
static INTERRUPTING: AtomicU64 = AtomicU64::new(0);

type Handler = unsafe extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void);

/// A signal that waits for its thread.
struct Waiting {
    signal: c_int,
    info: siginfo_t,
    /// Where it came. What the thread had blocked is in there.
    context: ucontext_t,
}

/// Room for one. Few threads are busy at a time, and each has one signal that waits, or those that came at once.
struct Place {
    /// Whose it is, 0 for nobody's. See [`this_thread`].
    owner: AtomicUsize,
    waiting: UnsafeCell<MaybeUninit<Waiting>>,
}

// SAFETY: what is in it is touched by its owner alone.
unsafe impl Sync for Place {}

static PLACES: [Place; 32] = [const {
    Place {
        owner: AtomicUsize::new(0),
        waiting: UnsafeCell::new(MaybeUninit::uninit()),
    }
}; 32];

/// How many handlers have run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Counts {
    all: u32,
    /// Those without `SA_RESTART`.
    interrupting: u32,
}

thread_local! {
    /// In the calling thread.
    static HANDLED: Cell<Counts> = const { Cell::new(Counts { all: 0, interrupting: 0 }) };
}

/// A moment, to tell later whether the calling thread has handled signals since.
pub struct Mark(Counts);

impl Mark {
    /// Now.
    pub fn now() -> Mark {
        Mark(HANDLED.get())
    }

    /// Whether a handler has run since.
    pub fn is_past(&self) -> bool {
        self.0 != HANDLED.get()
    }

    /// Whether a handler that has run since makes a waiting call fail which `SA_RESTART` makes go on. A sleep was interrupted: if
    /// none has run, the process was stopped for a while, unless the program gave the kernel handlers without libc: any of
    /// those may have run. What is asked next is about what comes from now on.
    pub fn interrupts(&mut self) -> bool {
        let before = core::mem::replace(self, Mark::now());
        if self.0.all == before.0.all {
            let mut signals = (1..END as c_int).filter(|signal| !FAULTS.contains(signal));
            return signals.any(|signal| {
                raw::handler(signal).is_some_and(|(at, restarts)| at != stand_in_at() && !restarts)
            });
        }
        self.0.interrupting != before.0.interrupting
    }
}

fn stand_in_at() -> usize {
    stand_in as *const () as usize
}

/// What the kernel calls in place of the program's handlers.
unsafe extern "C-unwind" fn stand_in(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    if let Some(busy) = lock::busy_word()
        && !busy.is_direct()
        // SAFETY: the kernel's own arguments.
        && unsafe { note(signal, info, context.cast()) }
    {
        busy.signal();
        return;
    }
    // SAFETY: as above.
    unsafe { raw::skip_wait(context.cast()) };
    // SAFETY: as above.
    unsafe { run(signal, info, context) }
}

/// A handler may run for long, and the thread never come back to its sleep: nobody may count on it meanwhile, above all not to drive
/// the stack.
#[cold]
fn leave_sleep() {
    let before = errno::get();
    if let Ok(mut state) = lock::lock() {
        state.end_interrupted();
        state.parking.hand_over();
    }
    errno::set(before);
}

/// Runs the program's handler.
///
/// # Safety
/// As for a handler.
unsafe fn run(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let Some(action) = ACTIONS.get(signal as usize) else {
        return;
    };
    if parking::is_interrupted() {
        leave_sleep();
    }
    let interrupting = action.flags.load(Ordering::Relaxed) & libc::SA_RESTART == 0;
    let before = HANDLED.get();
    HANDLED.set(Counts {
        all: before.all.wrapping_add(1),
        interrupting: before.interrupting.wrapping_add(interrupting.into()),
    });
    let handler = action.handler.load(Ordering::Relaxed);
    // SAFETY: the program gave it for this. (One that takes the signal alone doesn't look at the rest.)
    unsafe { core::mem::transmute::<usize, Handler>(handler)(signal, info, context) }
}

/// Keeps a signal for its thread, which blocks all that can wait from now on. Answers whether there is room.
///
/// # Safety
/// The arguments of a handler, while it runs.
unsafe fn note(signal: c_int, info: *const siginfo_t, context: *mut ucontext_t) -> bool {
    let me = this_thread();
    let free = PLACES.iter().find(|place| {
        let taken = place
            .owner
            .compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok()
    });
    let Some(place) = free else { return false };
    // SAFETY: the place is ours; the kernel has written what is read, and reads the mask anew when the handler returns.
    unsafe {
        let waiting = Waiting {
            signal,
            info: *info,
            context: copy(context),
        };
        (*place.waiting.get()).write(waiting);
        *mask_of(context) |= all_that_wait();
    }
    true
}

/// The mask in a context: the kernel's has 8 bytes, libc's is longer.
fn mask_of(context: *mut ucontext_t) -> *mut u64 {
    // SAFETY: no memory is touched.
    unsafe { (&raw mut (*context).uc_sigmask).cast() }
}

/// A context that outlives the kernel's, without what is behind it there.
///
/// # Safety
/// It must be the kernel's.
unsafe fn copy(context: *mut ucontext_t) -> ucontext_t {
    // SAFETY: the fields are plain numbers; the caller's promise.
    unsafe {
        let mut copy: ucontext_t = core::mem::zeroed();
        copy.uc_flags = (*context).uc_flags;
        copy.uc_stack = (*context).uc_stack;
        copy.uc_mcontext = (*context).uc_mcontext;
        #[cfg(target_arch = "x86_64")]
        {
            copy.uc_mcontext.fpregs = core::ptr::null_mut();
        }
        *mask_of(&raw mut copy) = *mask_of(context);
        copy
    }
}

/// The calling thread isn't busy any more: runs the handlers of signals that have come meanwhile.
#[cold]
#[inline(never)]
pub fn deliver() {
    match lock::busy_word() {
        // It is with what is around this: later.
        Some(busy) => busy.signal(),
        None => deliver_now(),
    }
}

/// As [`deliver`], busy or not. The places are free before the first handler runs: one that leaves for good leaves out those that it
/// has interrupted, as if it had.
#[cold]
#[inline(never)]
pub fn deliver_now() {
    let Some(first) = take() else { return };
    let mut others: Vec<Waiting> = core::iter::from_fn(take).collect();
    // Several came at once: each found blocked what those block that it would have interrupted.
    if !others.is_empty() {
        others.push(first);
        others.sort_by_key(|waiting| core::cmp::Reverse(waiting.blocked().count_ones()));
        others.into_iter().for_each(Waiting::deliver);
    } else {
        first.deliver();
    }
}

/// A signal that waits for the calling thread.
fn take() -> Option<Waiting> {
    let me = this_thread();
    let mut all = PLACES.iter();
    let place = all.find(|place| place.owner.load(Ordering::Relaxed) == me)?;
    // SAFETY: the place is ours, and was filled; plain data.
    let waiting = unsafe { (*place.waiting.get()).assume_init_read() };
    place.owner.store(0, Ordering::Release);
    Some(waiting)
}

impl Waiting {
    /// What the thread had blocked when it came.
    fn blocked(&self) -> u64 {
        // SAFETY: the context is ours, and only read.
        unsafe { *mask_of((&raw const self.context).cast_mut()) }
    }

    /// Runs its handler.
    fn deliver(mut self) {
        let Some(action) = ACTIONS.get(self.signal as usize) else {
            return;
        };
        let itself = match action.flags.load(Ordering::Relaxed) & libc::SA_NODEFER {
            0 => bit(self.signal),
            _ => 0,
        };
        raw::set_signals(self.blocked() | action.mask.load(Ordering::Relaxed) | itself);
        let context = (&raw mut self.context).cast();
        // SAFETY: the arguments of a handler.
        unsafe { run(self.signal, &raw mut self.info, context) };
        // The handler may have changed that.
        raw::set_signals(self.blocked());
    }
}

/// After `fork`, in the child: what waits is its parent's.
pub fn forget() {
    for place in &PLACES {
        place.owner.store(0, Ordering::Relaxed);
    }
}

/// `sigaction`
///
/// # Safety
/// As the function's.
pub unsafe fn set(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    let ours = stand_in_at();
    let action = match usize::try_from(signal).ok().and_then(|at| ACTIONS.get(at)) {
        Some(action) if !FAULTS.contains(&signal) => action,
        // It has one that the program needs.
        _ if signal == libc::SIGSYS && trap::is_on() => {
            // SAFETY: the caller's promise; all zeros is the default action.
            unsafe {
                if let Some(old) = old.as_mut() {
                    *old = core::mem::zeroed();
                }
            }
            return 0;
        }
        // SAFETY: the caller's promise, here and below.
        _ => return unsafe { next::sigaction(signal, new, old) },
    };
    let before = (
        action.handler.load(Ordering::Relaxed),
        action.flags.load(Ordering::Relaxed),
    );
    // SAFETY: as above.
    let mut wanted = unsafe { new.as_ref() }.copied();
    if let Some(wanted) = &mut wanted
        && trap::is_on()
    {
        trap::leave_open(&mut wanted.sa_mask);
    }
    if let Some(wanted) = &mut wanted
        && !matches!(wanted.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN)
        && wanted.sa_sigaction != ours
        // A guest's handlers are its own, but this memory isn't.
        && !is_guest()
    {
        action.handler.store(wanted.sa_sigaction, Ordering::Relaxed);
        action.flags.store(wanted.sa_flags, Ordering::Relaxed);
        // SAFETY: a mask is at least as long as the kernel's.
        let mask = unsafe { (&raw const wanted.sa_mask).cast::<u64>().read() };
        action.mask.store(mask, Ordering::Relaxed);
        wanted.sa_sigaction = ours;
        wanted.sa_flags |= libc::SA_SIGINFO;
    }
    let wanted = wanted
        .as_ref()
        .map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: as above.
    let answer = unsafe { next::sigaction(signal, wanted, old) };
    // SAFETY: as above.
    if let Some(old) = unsafe { old.as_mut() }
        && answer == 0
        && old.sa_sigaction == ours
    {
        old.sa_sigaction = before.0;
        old.sa_flags = old.sa_flags & !libc::SA_SIGINFO | before.1 & libc::SA_SIGINFO;
    }
    answer
}

/// `signal`, and with `once` that of System V. Answers the handler before, or `SIG_ERR`.
///
/// # Safety
/// As the function's.
pub unsafe fn set_simply(signal: c_int, handler: usize, once: bool) -> usize {
    if handler == libc::SIG_ERR {
        errno::set(libc::EINVAL);
        return libc::SIG_ERR;
    }
    // SAFETY: zeros are a value of it, and no signals.
    let mut new: libc::sigaction = unsafe { core::mem::zeroed() };
    let mut old = new;
    new.sa_sigaction = handler;
    if once {
        new.sa_flags = libc::SA_RESETHAND | libc::SA_NODEFER;
    } else {
        let is_known = (1..END as c_int).contains(&signal);
        if !(is_known && INTERRUPTING.load(Ordering::Relaxed) & bit(signal) != 0) {
            new.sa_flags = libc::SA_RESTART;
        }
        // SAFETY: the set is ours. (A number that is none is refused below, too.)
        unsafe { libc::sigaddset(&raw mut new.sa_mask, signal) };
    }
    // SAFETY: the caller's promise.
    match unsafe { set(signal, &raw const new, &raw mut old) } {
        0 => old.sa_sigaction,
        _ => libc::SIG_ERR,
    }
}

/// `sigset`
///
/// # Safety
/// As the function's.
pub unsafe fn set_or_hold(signal: c_int, handler: usize) -> usize {
    /// What stands for a signal that is blocked (`SIG_HOLD`).
    const HOLD: usize = 2;
    // SAFETY: zeros are a value of both, and no signals; the sets are ours; the rest is the caller's promise.
    unsafe {
        let mut new: libc::sigaction = core::mem::zeroed();
        let mut old = new;
        let (mut itself, mut before) = (new.sa_mask, new.sa_mask);
        new.sa_sigaction = handler;
        let given = match handler {
            HOLD => core::ptr::null(),
            _ => &raw const new,
        };
        if libc::sigaddset(&raw mut itself, signal) != 0 || set(signal, given, &raw mut old) != 0 {
            return libc::SIG_ERR;
        }
        let how = match handler {
            HOLD => libc::SIG_BLOCK,
            _ => libc::SIG_UNBLOCK,
        };
        libc::pthread_sigmask(how, &raw const itself, &raw mut before);
        match libc::sigismember(&raw const before, signal) {
            1 => HOLD,
            _ => old.sa_sigaction,
        }
    }
}

/// `siginterrupt` has been answered by libc.
pub fn interrupt(signal: c_int, interrupts: bool) {
    let Some(action) = ACTIONS.get(signal as usize) else {
        return;
    };
    if interrupts {
        INTERRUPTING.fetch_or(bit(signal), Ordering::Relaxed);
        action.flags.fetch_and(!libc::SA_RESTART, Ordering::Relaxed);
    } else {
        INTERRUPTING.fetch_and(!bit(signal), Ordering::Relaxed);
        action.flags.fetch_or(libc::SA_RESTART, Ordering::Relaxed);
    }
}
