//! The helper thread: drives the stack while no thread of the program does.
//!
//! Threads of the program drive the stack whenever they make a socket call or wait for one. While
//! they compute, or wait for something else, segments must be acknowledged and timers must run all the
//! same. The helper looks every few milliseconds while there is activity; if nobody has driven the
//! stack for that long, it sleeps on the NIC's descriptors itself. Once all is quiet and a thread of
//! the program sleeps on the NIC, the helper sleeps for good, until the next call rouses it.
use crate::fd_table::{self, Entry};
use crate::lock::{Guard, lock};
use crate::log::log;
use crate::raw;
use crate::state::internal;
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use skink_messages::Counter;
use skink_time::Instant;
use std::time::Duration;

/// How long the stack may go without being driven while the program is active.
const TICK: Duration = Duration::from_millis(10);
/// Ticks without any call, after which the helper sleeps for good.
const QUIET_TICKS: u32 = 10;

const ABSENT: u32 = 0;
const LOOKING: u32 = 1;
/// Asleep until roused.
const ASLEEP: u32 = 2;
/// Asleep on the NIC's descriptors and the bell.
const DRIVING: u32 = 3;

static PHASE: AtomicU32 = AtomicU32::new(ABSENT);
/// An eventfd that ends [`DRIVING`], or -1.
static BELL: AtomicI32 = AtomicI32::new(-1);

/// Makes sure that the helper looks around.
#[inline]
pub fn rouse() {
    if PHASE.load(Ordering::Relaxed) < ASLEEP {
        return;
    }
    match PHASE.swap(LOOKING, Ordering::AcqRel) {
        ASLEEP => raw::futex_wake(&PHASE, 1),
        DRIVING => raw::ring(BELL.load(Ordering::Relaxed)),
        _ => {}
    }
}

/// Starts the helper, unless it runs. The lock is held.
pub fn start() {
    if PHASE.swap(LOOKING, Ordering::Relaxed) != ABSENT {
        return;
    }
    if BELL.load(Ordering::Relaxed) < 0
        && let Ok(bell) = raw::eventfd()
    {
        BELL.store(internal(bell), Ordering::Relaxed);
    }
    // Signals are the program's threads' business. libc's function leaves its own two alone,
    // without which `setuid` would never come back.
    let (mut all, mut before) = (empty_set(), empty_set());
    // SAFETY: the sets are ours.
    unsafe {
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
    }
    let thread = std::thread::Builder::new()
        .name("skink".into())
        .stack_size(256 * 1024)
        .spawn(run);
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, core::ptr::null_mut()) };
    if let Err(error) = thread {
        PHASE.store(ABSENT, Ordering::Relaxed);
        log!(
            Error,
            "no helper thread ({error}): connections rest while the program computes"
        );
    }
}

/// After `fork`, in the child: there is no helper here.
pub fn forget() {
    PHASE.store(ABSENT, Ordering::Relaxed);
    let bell = BELL.swap(-1, Ordering::Relaxed);
    if bell >= 0 {
        fd_table::set(bell, Entry::Ordinary);
        raw::close(bell);
    }
}

fn empty_set() -> libc::sigset_t {
    // SAFETY: a signal set is plain numbers.
    unsafe { core::mem::zeroed() }
}

enum Next {
    /// Look again after this time.
    Nap(Duration),
    /// Sleep on the NIC, until this time at the latest.
    Drive(Option<Duration>),
    /// Sleep until roused.
    Sleep,
}

fn run() {
    let guarded = std::panic::catch_unwind(|| {
        let mut looker = Looker {
            work: 0,
            quiet: 0,
            due: Instant::ZERO,
        };
        while let Ok(state) = lock() {
            looker.step(state);
        }
    });
    if guarded.is_err() {
        crate::log::write(format_args!(
            "the helper thread panicked; this is a bug in Skink"
        ));
        std::process::abort();
    }
}

struct Looker {
    /// The count of work at the last look.
    work: u32,
    /// Looks since it changed.
    quiet: u32,
    /// When to look at more than what is held.
    due: Instant,
}

impl Looker {
    fn step(&mut self, mut state: Guard) {
        let now = raw::now();
        if state.pace.look(now) {
            if let Some(engine) = &state.engine {
                engine.count(Counter::AppHeldTooLong);
            }
            state.flush();
        }
        let next = match now < self.due && state.pace.is_watched() {
            true => Next::Nap(self.due.since(now)),
            false => self.look(&mut state),
        };
        match next {
            Next::Nap(time) => {
                self.due = now + time;
                let time = state.pace.nap(time);
                drop(state);
                let _ = raw::futex_wait(&PHASE, LOOKING, Some(time));
            }
            Next::Drive(timeout) => {
                let mut list = [libc::pollfd {
                    fd: -1,
                    events: libc::POLLIN,
                    revents: 0,
                }; 8];
                let bell = BELL.load(Ordering::Relaxed);
                if let Some(engine) = &state.engine {
                    let own = [engine.broker_fd(), bell];
                    let fds = own.iter().chain(&engine.receive_fds);
                    for (entry, fd) in list.iter_mut().zip(fds) {
                        entry.fd = *fd;
                    }
                }
                PHASE.store(DRIVING, Ordering::Release);
                state.pace.unwatched();
                drop(state);
                self.due = Instant::ZERO;
                let _ = raw::ppoll(&mut list, timeout, core::ptr::null());
                if PHASE.swap(LOOKING, Ordering::AcqRel) == LOOKING {
                    raw::hush(bell);
                }
            }
            Next::Sleep => {
                PHASE.store(ASLEEP, Ordering::Release);
                state.pace.unwatched();
                drop(state);
                while PHASE.load(Ordering::Acquire) == ASLEEP {
                    let _ = raw::futex_wait(&PHASE, ASLEEP, None);
                }
                self.quiet = 0;
                self.due = Instant::ZERO;
            }
        }
    }

    fn look(&mut self, state: &mut Guard) -> Next {
        let work = state.parking.work;
        self.quiet = if work == self.work {
            self.quiet.saturating_add(1)
        } else {
            0
        };
        self.work = work;
        let Some(engine) = state.engine.as_deref_mut() else {
            return Next::Sleep;
        };
        engine.take_notices();
        let now = raw::now();
        let idle = now.since(engine.last_poll);
        let due = engine.deadline();
        if state.parking.on_nic == 0 {
            if idle < TICK {
                return Next::Nap(TICK - idle);
            }
            return self.drive(state);
        }
        // Somebody sleeps on the NIC; but deadlines may have come up since that are earlier than
        // the time at which it wakes up by itself.
        match due {
            Some(due) if due < state.parking.planned => {
                if due <= now && idle >= TICK {
                    return self.drive(state);
                }
                Next::Nap(due.since(now).max(TICK))
            }
            _ if self.quiet >= QUIET_TICKS => Next::Sleep,
            _ => Next::Nap(TICK),
        }
    }

    fn drive(&mut self, state: &mut Guard) -> Next {
        state.pump();
        let deadline = state.engine.as_ref().and_then(|engine| {
            engine.count(Counter::AppHelperRuns);
            engine.deadline()
        });
        let timeout = deadline.map(|at: Instant| at.since(raw::now()));
        if state.parking.on_nic > 0 {
            Next::Nap(timeout.unwrap_or(TICK).max(TICK))
        } else {
            Next::Drive(timeout)
        }
    }
}
