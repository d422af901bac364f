//! The helper thread: drives the stack while no thread of the program does.
//!
//! Threads of the program drive the stack whenever they make a socket call or wait for one. While
//! they compute, or wait for something else, segments must be acknowledged and timers must run all the
//! same. The helper looks every few milliseconds while there is activity; if nobody has driven the
//! stack for that long, it sleeps on the NIC's descriptors itself. Once all is quiet and a thread of
//! the program sleeps on the NIC, the helper sleeps for good, until the next call rouses it, or that thread's
//! waking: it may compute for long. While a program has much to do, it looks each millisecond whether what is held must
//! leave (`pace`), and whether the broker is to adapt the NIC (`skink_nic::Judge`).
//!
//! The helper has a descriptor table of its own, with nothing in it but what it needs. Where threads share
//! one, the kernel counts references at every call that names a descriptor, with two locked instructions: that
//! took a quarter off the speed at which a program of one thread writes to /dev/null. What is made later isn't
//! in the helper's table: then another helper takes its place ([`renew`]).
use crate::fd_table::{self, Entry};
use crate::filter::{self, Errand};
use crate::lock::{Guard, lock};
use crate::log::log;
use crate::pace::HOLD;
use crate::raw;
use crate::state::{State, internal};
use crate::threads;
use crate::work;
use core::ffi::c_int;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use skink_messages::Counter;
use skink_nic::Traffic;
use skink_time::Instant;
use std::time::Duration;

/// How long the stack may go without being driven while the program is active.
const TICK: Duration = Duration::from_millis(10);
/// The same while threads may sleep that have left the NIC to others, which may compute; and when nobody but the helper has driven
/// it the last time.
const SHORT_TICK: Duration = Duration::from_millis(1);
/// How long it naps at most, whatever it waits for: a load may begin meanwhile.
const LONGEST_NAP: Duration = Duration::from_millis(100);
/// Ticks without any call, after which the helper sleeps for good.
const QUIET_TICKS: u32 = 10;

/// About, and back within [`TICK`].
const LOOKING: u32 = 0;
/// Gone for longer, since somebody sleeps on the NIC.
const NAPPING: u32 = 1;
/// Asleep on the bell, until roused or the broker has something to say.
const ASLEEP: u32 = 2;
/// Asleep on the NIC's descriptors as well.
const DRIVING: u32 = 3;

/// Where one helper sleeps. It is never freed: there are few, and another thread may be about to rouse.
struct Station {
    phase: AtomicU32,
    /// An eventfd that ends [`ASLEEP`] and [`DRIVING`].
    bell: c_int,
}

impl Station {
    /// Has the helper look around, if it is in one of these phases.
    fn rouse(&self, phases: &[u32]) {
        if !phases.contains(&self.phase.load(Ordering::Relaxed)) {
            return;
        }
        match self.phase.swap(LOOKING, Ordering::AcqRel) {
            NAPPING => raw::futex_wake(self.phase.as_ptr(), 1),
            ASLEEP | DRIVING => raw::ring(self.bell),
            _ => {}
        }
    }
}

/// The helper that there is, if there is one.
static CURRENT: AtomicPtr<Station> = AtomicPtr::new(core::ptr::null_mut());

#[inline]
fn current() -> Option<&'static Station> {
    // SAFETY: null, or a station, which is never freed.
    unsafe { CURRENT.load(Ordering::Acquire).as_ref() }
}

/// There is something new to do: makes sure that the helper knows of it, unless it comes by soon anyway or somebody sleeps
/// on the NIC, whose plans it looks after.
#[inline]
pub fn rouse() {
    if let Some(station) = current() {
        station.rouse(&[ASLEEP, DRIVING]);
    }
}

/// Nobody sleeps on the NIC any more: makes sure that the helper takes care of it.
#[inline]
pub fn take_over() {
    if let Some(station) = current() {
        station.rouse(&[NAPPING, ASLEEP]);
    }
}

/// Whether the calling thread is one, with descriptors of its own.
pub fn is_here() -> bool {
    IS_HELPER.get()
}

thread_local! {
    static IS_HELPER: core::cell::Cell<bool> = const { core::cell::Cell::new(false) };
}

/// Whether there is one.
pub fn is_there() -> bool {
    current().is_some()
}

/// Starts the helper, unless it runs. The lock is held.
pub fn start() {
    if current().is_none() {
        launch();
    }
}

/// A descriptor was made that the helper may have to ring. The lock is held.
pub fn renew() {
    if let Some(old) = current() {
        launch();
        // It sees that it is replaced.
        old.rouse(&[NAPPING, ASLEEP, DRIVING]);
    }
}

fn launch() {
    let bell = match raw::eventfd() {
        Ok(bell) => internal(bell),
        Err(stop) => return warn(&format_args!("{stop:?}")),
    };
    let station: &'static Station = Box::leak(Box::new(Station {
        phase: AtomicU32::new(LOOKING),
        bell,
    }));
    let replaced = CURRENT.swap(core::ptr::from_ref(station).cast_mut(), Ordering::AcqRel);
    let thread = threads::spawn_ours("skink", move || run(station));
    if let Err(error) = thread {
        // The one before, if there is one, goes on, without the descriptors that are new.
        CURRENT.store(replaced, Ordering::Release);
        warn(&error);
    }
}

fn warn(why: &dyn core::fmt::Display) {
    log!(
        Error,
        "no new helper thread ({why}): connections may rest while the program computes"
    );
}

/// After `fork`, in the child: there is no helper here.
pub fn forget() {
    let bell = current().map_or(-1, |station| station.bell);
    CURRENT.store(core::ptr::null_mut(), Ordering::Release);
    if bell >= 0 {
        fd_table::set(bell, Entry::Ordinary);
        raw::close(bell);
    }
}

enum Next {
    /// Look again after this time.
    Nap(Duration),
    /// Sleep on the NIC, until this time at the latest.
    Drive(Option<Duration>),
    /// Sleep until roused.
    Sleep,
    /// Do this without the lock, and look again.
    Run(Errand),
}

fn run(station: &'static Station) {
    IS_HELPER.set(true);
    let mut looker = Looker {
        station,
        work: 0,
        quiet: 0,
        due: Instant::ZERO,
        drove: Instant::ZERO,
    };
    let mut settled = false;
    while let Ok(state) = lock() {
        if !current().is_some_and(|current| core::ptr::eq(current, station)) {
            return;
        }
        if !core::mem::replace(&mut settled, true) {
            keep(&state, station.bell);
            work::begin();
        }
        looker.step(state);
    }
}

/// From now on the calling thread has only those descriptors that the helper needs. Nothing new comes while
/// the lock is held. Before Linux 5.9 it goes on sharing the process's.
fn keep(state: &State, bell: c_int) {
    let Some(engine) = state.engine.as_deref() else {
        return;
    };
    let mut kept = vec![bell];
    kept.extend(&engine.descriptors);
    kept.extend(&engine.receive_fds);
    kept.extend(state.parking.bells());
    kept.extend(state.epolls.list.iter().map(|epoll| epoll.doorbell));
    kept.retain(|fd| *fd >= 0);
    kept.sort_unstable();
    kept.dedup();
    let mut first = 0;
    // The first call copies the table.
    let mut flags = libc::CLOSE_RANGE_UNSHARE as usize;
    for fd in kept.into_iter().map(|fd| fd as usize) {
        if fd > first {
            let arguments = [first, fd - 1, flags, 0, 0, 0];
            // SAFETY: what is closed is this thread's alone from the first call on, which says if it isn't.
            if unsafe { raw::syscall(libc::SYS_close_range, arguments) } < 0 {
                return;
            }
            flags = 0;
        }
        first = fd + 1;
    }
    if flags == 0 {
        let arguments = [first, u32::MAX as usize, flags, 0, 0, 0];
        // SAFETY: as above.
        let _ = unsafe { raw::syscall(libc::SYS_close_range, arguments) };
    }
}

impl State {
    /// Tells the broker if the program uses the NIC in another way than before.
    fn look_at_load(&mut self, now: Instant) {
        let Some(engine) = self.engine.as_deref_mut() else {
            return;
        };
        let before = self.judge.load();
        let (traffic, looked) = (Traffic::of(&engine.counters), self.spin.looked);
        if self.judge.look(now, traffic, || work::so_far(looked)) {
            let load = self.judge.load();
            engine.tell_load(load);
            load.begun_since(before).count(&engine.counters);
        }
    }

    /// The helper sleeps where it can't look.
    fn go_unwatched(&mut self) {
        self.pace.unwatched();
        if let (true, Some(engine)) = (self.judge.rest(), self.engine.as_deref_mut()) {
            engine.tell_load(self.judge.load());
        }
    }
}

struct Looker {
    station: &'static Station,
    /// The count of work at the last look.
    work: u32,
    /// Looks since it changed.
    quiet: u32,
    /// When to look at more than what is held, and how the NIC is used.
    due: Instant,
    /// When the helper drove the stack the last time.
    drove: Instant,
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
        state.look_at_load(now);
        let often = state.pace.is_watched() || state.judge.load().busy;
        let next = match now < self.due && often {
            true => Next::Nap(self.due.since(now)),
            false => self.look(&mut state),
        };
        match next {
            Next::Nap(time) => {
                let time = time.min(LONGEST_NAP);
                self.due = now + time;
                let time = if often { time.min(HOLD) } else { time };
                let phase = if time > TICK { NAPPING } else { LOOKING };
                self.station.phase.store(phase, Ordering::Release);
                drop(state);
                let _ = raw::futex_wait(self.station.phase.as_ptr(), phase, Some(time));
                if self.station.phase.swap(LOOKING, Ordering::AcqRel) != phase {
                    self.due = Instant::ZERO;
                }
            }
            Next::Drive(timeout) => self.sleep_on_descriptors(state, DRIVING, timeout),
            Next::Sleep => self.sleep_on_descriptors(state, ASLEEP, None),
            Next::Run(errand) => {
                drop(state);
                filter::run(errand);
                self.due = Instant::ZERO;
            }
        }
    }

    fn sleep_on_descriptors(&mut self, mut state: Guard, phase: u32, timeout: Option<Duration>) {
        let mut list = [raw::to_poll(-1, libc::POLLIN); 8];
        let bell = self.station.bell;
        list[0].fd = bell;
        if let Some(engine) = &state.engine {
            list[1].fd = engine.notices_fd();
            if phase == DRIVING {
                for (entry, fd) in list[2..].iter_mut().zip(&engine.receive_fds) {
                    entry.fd = *fd;
                }
            }
        }
        self.station.phase.store(phase, Ordering::Release);
        state.go_unwatched();
        drop(state);
        self.due = Instant::ZERO;
        let _ = raw::ppoll(&mut list, timeout, core::ptr::null());
        let roused = self.station.phase.swap(LOOKING, Ordering::AcqRel) == LOOKING;
        // Who roused it the last time may have rung after it had been woken by something else.
        if roused || list[0].revents != 0 {
            raw::hush(bell);
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
        if let Some(errand) = engine.take_notices() {
            return Next::Run(errand);
        }
        let now = raw::now();
        let idle = now.since(engine.last_poll);
        let alone = engine.last_poll == self.drove;
        let due = engine.deadline();
        if state.parking.on_nic == 0 {
            let rests = state.epolls.resting > 0 || state.parking.flow_rings.are_used();
            let tick = if rests || alone { SHORT_TICK } else { TICK };
            if idle < tick {
                return Next::Nap(tick - idle);
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
            self.drove = engine.last_poll;
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
