//! `epoll_wait` and its relatives.
use crate::cancel;
use crate::epoll::filter;
use crate::epoll_alone::Reason;
use crate::errno::{Answer, Stop, fail};
use crate::fd_table::{self, Entry};
use crate::lock::{Guard, lock};
use crate::parking::{Sleep, unless_over};
use crate::raw::{self, NEVER, Unless};
use crate::spin::{self, Look};
use crate::state::State;
use core::ffi::{c_int, c_void};
use libc::epoll_event;
use skink_time::Instant;
use std::time::Duration;

/// How often the kernel's set is asked while Skink's sockets alone keep the program busy.
const KERNEL_SHARE: Duration = Duration::from_micros(250);

/// Descriptors of the library's own in a set, at most: those of the NIC, a doorbell and a side bell.
const MOST_OWN: usize = 8;

/// Sleeps in a row that ended for what was another set's, after which a set leaves the NIC to that one.
const MISSES: u32 = 8;

/// `epoll_pwait2` without Skink.
pub fn kernel_wait(
    epfd: c_int,
    events: &mut [epoll_event],
    timeout: Option<Duration>,
    mask: *const c_void,
    unless: Unless,
) -> Answer {
    if timeout.is_some_and(|timeout| timeout.is_zero()) {
        return raw::epoll_wait(epfd, events, timeout, mask, unless);
    }
    let (at, room) = (events.as_mut_ptr() as usize, events.len());
    let spec = timeout.map(raw::timespec);
    let spec = spec.as_ref().map_or(0, |spec| &raw const *spec as usize);
    let arguments = [epfd as usize, at, room, spec, mask as usize, 8];
    // SAFETY: the events are borrowed; the program vouches for its signal set.
    let answer = unsafe { raw::waiting_call(libc::SYS_epoll_pwait2, arguments, unless) };
    if answer != fail(libc::ENOSYS) {
        return answer;
    }
    // Before Linux 5.11.
    raw::epoll_wait(epfd, events, timeout, mask, unless)
}

/// # Safety
/// As for `epoll_pwait2`: `room` events at `events` writable, `mask` null or a signal set.
pub unsafe fn wait(
    epfd: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: Option<Duration>,
    mask: *const c_void,
) -> Answer {
    let mut state = lock()?;
    let Entry::Epoll(index) = fd_table::get(epfd) else {
        return Err(Stop::Kernel);
    };
    let Ok(room @ 1..) = usize::try_from(room) else {
        return fail(libc::EINVAL);
    };
    if events.is_null() {
        return fail(libc::EFAULT);
    }
    // SAFETY: the caller's promise; an event is plain numbers.
    let events = unsafe { core::slice::from_raw_parts_mut(events, room.min(4096)) };
    let deadline = timeout.map(|timeout| raw::now() + timeout);
    let number = state.epolls[index].number;
    state.begin_wait(index);
    loop {
        if cancel::is_due(&state) {
            return fail(libc::EINTR);
        }
        state.glance();
        let mut count = take(&mut state, epfd, index, events);
        if count == 0 && state.pace.has_held() {
            state.flush();
            count = take(&mut state, epfd, index, events);
        }
        if count > 0 {
            return state.serves(index, count);
        }
        let one = state.pace.sleeps();
        let waits = deadline.is_none_or(|deadline| deadline > raw::now());
        let (guard, look) = match mask.is_null() && waits {
            true => spin::look_on(state, one, deadline, |state| {
                if fd_table::get(epfd) != Entry::Epoll(index) {
                    return Some(fail(libc::EBADF));
                }
                let count = take(state, epfd, index, events);
                (count > 0).then(|| state.serves(index, count))
            })?,
            false => (state, Look::Nothing),
        };
        state = guard;
        match look {
            Look::Found(answer) => return answer,
            Look::Interrupted => return Err(spin::INTERRUPTED),
            Look::Nothing => {}
        }
        let now = raw::now();
        let (guard, answer) = sleep_on(state, epfd, index, events, now, deadline, mask);
        state = guard?;
        if fd_table::get(epfd) != Entry::Epoll(index) || state.epolls[index].number != number {
            return fail(libc::EBADF);
        }
        let answer = match answer {
            Err(Stop::Errno(libc::EINTR)) if cancel::is_put_off(&state) => Ok(0),
            answer => answer,
        };
        let kept = sift_all(&mut state, epfd, index, events, answer?);
        state.epolls[index].kernel_asked = raw::now();
        if waits {
            state.spin.slept(now, raw::now());
        }
        if kept > 0 {
            let mut count = kept;
            if kept < events.len() {
                state.pump();
                count += state.collect(index, &mut events[kept..]);
            }
            return state.serves(index, count);
        }
        if deadline.is_some_and(|deadline| deadline <= raw::now()) {
            state.pump();
            return Ok(state.collect(index, events));
        }
    }
}

/// What is ready now: Skink's members and, now and then, the kernel's.
fn take(state: &mut Guard, epfd: c_int, index: u32, events: &mut [epoll_event]) -> usize {
    // The time of the look that this follows is near enough.
    let engine = state.engine.as_deref();
    let now = engine.map_or_else(raw::now, |engine| engine.last_poll);
    let set = &state.epolls[index];
    let due = set.ordinary > 0 && now.since(set.kernel_asked) > KERNEL_SHARE;
    if !due || !state.has_ready(index) {
        return state.collect(index, events);
    }
    // Both have something, perhaps: neither may starve the other.
    state.epolls[index].kernel_asked = now;
    state.settle_bells();
    let share = events.len().div_ceil(2);
    let asked = kernel_wait(
        epfd,
        &mut events[..share],
        Some(Duration::ZERO),
        core::ptr::null(),
        NEVER,
    );
    let kept = match asked {
        Ok(count) => sift_all(state, epfd, index, &mut events[..share], count),
        Err(_) => 0,
    };
    kept + state.collect(index, &mut events[kept..])
}

/// Drops the library's own events from what the kernel answered, and hushes the doorbell if it was among them. Answers
/// how many are left.
fn sift(state: &mut State, index: u32, events: &mut [epoll_event]) -> usize {
    let (kept, rung) = filter(events);
    if rung {
        raw::hush(state.epolls[index].doorbell);
        state.epolls[index].rung = false;
    }
    kept
}

/// Likewise of all that the set holds, of which the kernel has answered `count`, if there was no room but for the library's own.
/// (The kernel goes on behind what it has answered: once that comes again, it has answered all.)
fn sift_all(
    state: &mut State,
    epfd: c_int,
    index: u32,
    events: &mut [epoll_event],
    mut count: usize,
) -> usize {
    let first = events.first().map(|event| event.u64);
    for asked_again in 0..MOST_OWN {
        let comes_again = asked_again > 0 && events.first().map(|event| event.u64) == first;
        let kept = sift(state, index, &mut events[..count]);
        if kept > 0 || count < events.len() || comes_again {
            return kept;
        }
        let null = core::ptr::null();
        let asked = raw::epoll_wait(epfd, events, Some(Duration::ZERO), null, NEVER);
        count = asked.unwrap_or(0);
    }
    sift(state, index, &mut events[..count])
}

impl State {
    /// A wait on set `index` has found something.
    fn serves(&mut self, index: u32, count: usize) -> Answer {
        self.parking.found();
        let set = &mut self.epolls.list[index as usize];
        set.misses = 0;
        if let Some(engine) = &self.engine {
            set.served = engine.last_poll;
        }
        Ok(count)
    }

    /// A thread is about to sleep on set `index`, and has found nothing since the last time: whether it leaves the NIC to
    /// others. Where the stack is in another process nobody would drive it while these are busy.
    fn rests(&mut self, index: u32, now: Instant) -> bool {
        let mut rests = false;
        if self.epolls.list.len() > 1 {
            let missed = self.epolls.others_are_served(index);
            let set = &mut self.epolls.list[index as usize];
            set.misses = if missed {
                set.misses.saturating_add(1)
            } else {
                0
            };
            let is_alone = set.nic && set.sleepers == 0;
            let here = self
                .engine
                .as_deref()
                .is_some_and(|engine| !engine.stack.is_served());
            rests = set.misses > MISSES && is_alone && here;
        }
        self.epolls[index].slept = now;
        rests
    }
}

fn sleep_on(
    mut state: Guard,
    epfd: c_int,
    index: u32,
    events: &mut [epoll_event],
    now: Instant,
    deadline: Option<Instant>,
    mask: *const c_void,
) -> (Answer<Guard>, Answer) {
    state.end_interrupted();
    let bed = state.sleeps_alone(index, now);
    let rests = bed.is_none() && state.rests(index, now);
    let mut wake_at = deadline;
    if rests {
        state.leave_nic(index);
        state.epolls.resting += 1;
    }
    // Another thread that sleeps on the set may have left the NIC to others, too.
    let on_nic = state.epolls[index].nic;
    if let Some(engine) = state.engine.as_ref().filter(|_| on_nic) {
        wake_at = [deadline, engine.deadline()].into_iter().flatten().min();
    }
    if cancel::is_used() {
        wake_at = [wake_at, Some(now + cancel::LOOK)]
            .into_iter()
            .flatten()
            .min();
    }
    let number = state.epolls.begin_sleep(index);
    state.show_waiting_on(index);
    if on_nic {
        state.sleeps(now, wake_at);
    }
    let nap = state.parking.falls_asleep(Sleep::OnSet {
        index,
        number,
        rests,
        on_nic,
        alone: bed.as_ref().map(|bed| bed.alone),
    });
    let sleep = wake_at.map(|at| at.since(now));
    let unless = unless_over();
    drop(state);
    let (mut answer, reason) = match bed {
        Some(bed) => bed.wait(epfd, events, sleep, mask, unless),
        None => {
            let answer = kernel_wait(epfd, events, sleep, mask, unless);
            (answer, Reason::default())
        }
    };
    let guard = lock().map(|mut state| {
        if let Some(sleep) = state.parking.rises(nap) {
            state.wakes_up(sleep, reason.called);
        }
        if state.parking.on_nic == 0 {
            crate::helper::take_over();
        }
        // (Another set may have its place and its descriptor by now.)
        let set = &state.epolls[index];
        if reason.is_ready
            && set.number == number
            && let Some(fd) = set.fds.first()
        {
            let null = core::ptr::null();
            answer = raw::epoll_wait(*fd, events, Some(Duration::ZERO), null, NEVER);
        }
        state
    });
    (guard, answer)
}
