//! Waiting: how a thread sleeps until a socket is ready, and who drives the stack meanwhile.
//!
//! A thread that must wait drives the stack itself. Of several, one takes the *driver* role and
//! sleeps on the NIC's descriptors; the others sleep on a futex (or an eventfd, if ordinary
//! descriptors are to wake them too) until the driver, or whoever else drives the stack, wakes them. A
//! driver that has what it waited for hands the role over on its way out. Where that often wakes two threads for a
//! frame, the others sleep on flow rings (`flow_rings`), and each is woken by the frames of its own connection. A stack in
//! another process wakes those directly that wait for one connection each ([`Berth`]).
use crate::cancel;
use crate::engine::Engine;
use crate::errno::{Answer, Stop, WOULD_BLOCK, fail};
use crate::flow_rings::BELL;
use crate::lock::{Guard, lock};
use crate::parking::{Sleep, is_interrupted, unless_over};
use crate::raw::{self, Scope};
use crate::signals::Mark;
use crate::socket::Role;
use crate::spin::{self, Look};
use crate::state::State;
use core::ffi::{c_int, c_void};
use skink_library::{Doorbell, Room};
use skink_messages::Counter;
use skink_sockets::Berth;
use skink_time::Instant;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// How a sleep ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Something may have happened.
    Woken,
    /// The caller's deadline has passed.
    TimedOut,
    /// A signal handler ran.
    Interrupted,
}

/// Ordinary descriptors that may end a sleep, and the signals to block during it.
pub struct Others<'a> {
    /// Filled in by the kernel. The last [`RESERVED`] entries are for the library.
    pub list: &'a mut [libc::pollfd],
    /// The program's signal set (8 bytes) or null.
    pub mask: *const c_void,
}

/// Entries that [`Others::list`] has at its end for the library: a bell and the NIC's descriptors.
pub const RESERVED: usize = 8;

/// See [`State::has_just_looked`].
const JUST: Duration = Duration::from_micros(20);

/// How long a thread sleeps at most that can't be woken.
const UNRUNG: Duration = Duration::from_millis(10);

const UNUSED: libc::pollfd = raw::to_poll(-1, 0);

impl State {
    /// Wakes the threads that wait for socket `index`.
    pub fn wake_waiters(&mut self, index: u32) {
        for id in &self.sockets[index].waiters {
            self.parking.wake(*id);
        }
    }

    /// The calling thread goes to sleep where a frame, or a stack in another process, wakes it, until `deadline` at the
    /// latest.
    pub fn sleeps(&mut self, now: Instant, deadline: Option<Instant>) {
        self.parking.sleeps_on_nic(deadline);
        self.judge.falls_asleep(now);
    }

    /// The calling thread has slept where a frame, or a stack in another process, wakes it.
    pub fn woke(&mut self) {
        if self.parking.woke_on_nic()
            && let Some(nic) = self.flow_rings()
        {
            // What is left to others may be what wakes this one again and again, and keeps them from their processor.
            nic.take_all();
        }
        if self.parking.on_nic == 0 {
            self.judge.wakes(raw::now());
        }
        let engine = self.engine.as_deref_mut();
        if let Some(remote) = engine.and_then(|engine| engine.stack.remote()) {
            remote.woke();
        }
    }

    /// Whether the stack in this process was driven so lately that a call that mayn't wait needn't do it
    /// again: a program that reads until there is nothing more would get a batch for each read.
    fn has_just_looked(&self) -> bool {
        let engine = self.engine.as_deref();
        engine.is_some_and(|engine| {
            !engine.stack.is_served() && raw::now().since(engine.last_poll) < JUST
        })
    }

    /// The ring on which a thread may sleep that waits for just these sockets, and lets another one drive the stack. It
    /// is the thread's until [`State::left_ring`]. Answers too whether something has come there already.
    fn take_ring(&mut self, sockets: &[u32], now: Instant) -> Option<(u8, bool)> {
        let &[index] = sockets else { return None };
        let Role::Stream(id) = self.sockets[index].role else {
            return None;
        };
        if self.parking.flow_rings.is_time() {
            self.begin_flow_rings();
        }
        let rings = &mut self.parking.flow_rings;
        let engine = self.engine.as_deref_mut()?;
        if !rings.are_used() {
            return None;
        }
        let flow = engine.stack.tcp_table().find(id)?.four_tuple();
        let ring = rings.take(engine.stack.flow_rings()?, now, &flow)?;
        engine.count(Counter::AppFlowSleeps);
        Some(ring)
    }

    /// Begins to use the NIC's flow rings, if it has some.
    pub fn begin_flow_rings(&mut self) {
        if let Some(engine) = self.engine.as_deref_mut()
            && let Some(nic) = engine.stack.flow_rings().filter(|nic| nic.count() > 0)
            && let Ok(made) = self.parking.flow_rings.begin(nic)
        {
            engine.descriptors.extend(made);
            engine.stack.set_deferring(true);
            crate::helper::renew();
        }
    }

    /// Where a thread may sleep that waits for just these sockets, while another one sleeps on the bell of a stack in another
    /// process.
    fn take_berth(&mut self, sockets: &[u32]) -> Option<Berth> {
        let &[index] = sockets else { return None };
        let Role::Stream(id) = self.sockets[index].role else {
            return None;
        };
        let engine = self.engine.as_deref_mut()?;
        let berth = engine.stack.remote()?.lie_down(id)?;
        engine.count(Counter::AppFlowSleeps);
        Some(berth)
    }

    /// Undoes what was done when the calling thread went to sleep, but for the sockets' lists of waiters; `called` says whether what
    /// wakes it alone has: a frame on its flow ring, or its side bell.
    pub fn wakes_up(&mut self, sleep: Sleep, called: bool) {
        match sleep {
            Sleep::Parked { id, drives, ring } => {
                if let Some(ring) = ring {
                    self.left_ring(ring, called);
                }
                if drives {
                    self.parking.driver = None;
                    self.woke();
                }
                self.parking.leave(id);
                // Who wakes it counts on that it looks, for others too; but its time may be up, or a handler have interrupted it.
                self.catch_news();
            }
            Sleep::OnSet {
                index,
                number,
                rests,
                on_nic,
                alone,
            } => {
                let is_there = self.epolls.end_sleep(index, number);
                self.show_waiting_on(index);
                if let Some(alone) = alone {
                    self.slept_alone(alone, is_there.then_some(index), called);
                }
                if rests {
                    self.epolls.resting -= 1;
                    if is_there {
                        self.add_nic(index);
                    }
                }
                if on_nic {
                    self.woke();
                }
            }
        }
    }

    /// The calling thread is about to sleep. If it does already, a signal handler has interrupted that: either it calls now, or it
    /// has left the call for good (`siglongjmp`). The one that was interrupted looks again if it ever goes on; until then
    /// nobody may count on it, above all not to drive the stack.
    pub fn end_interrupted(&mut self) {
        while let Some(sleep) = self.parking.take_interrupted() {
            if let Sleep::Parked { id, .. } = sleep {
                let sockets = self.sockets.iter();
                let its = sockets.filter(|(_, socket)| socket.waiters.contains(&id));
                for index in its.map(|(index, _)| index).collect::<Vec<u32>>() {
                    self.has_waited(index, id);
                }
            }
            self.wakes_up(sleep, false);
        }
    }

    /// A thread has slept on `ring`; whether it was woken by a frame there.
    fn left_ring(&mut self, ring: u8, by_frame: bool) {
        let engine = self.engine.as_deref_mut();
        let nic = engine.and_then(|engine| engine.stack.flow_rings());
        self.parking.flow_rings.woke(nic, ring, by_frame);
    }

    /// The NIC's flow rings, if it has some and they are in use.
    fn flow_rings(&mut self) -> Option<&mut dyn skink_library::FlowRings> {
        if !self.parking.flow_rings.are_used() {
            return None;
        }
        self.engine.as_deref_mut()?.stack.flow_rings()
    }

    /// Whether the NIC's doorbell is left to who lets the lock go.
    fn set_deferring(&mut self, deferring: bool) {
        if let Some(engine) = self.engine.as_deref_mut() {
            engine.stack.set_deferring(deferring);
        }
    }

    /// The calling thread drives the stack for all, and keeps the lock: those that sleep for a frame don't get to it.
    pub fn stop_flow_rings(&mut self) {
        self.set_deferring(false);
        let engine = self.engine.as_deref_mut();
        if let Some(nic) = engine.and_then(|engine| engine.stack.flow_rings()) {
            self.parking.flow_rings.stop(nic);
        }
    }

    /// The NIC's doorbell, if it is to be rung once the lock is let go: that takes longer than all that is done with the
    /// lock, and others may go on meanwhile.
    #[inline]
    pub fn take_doorbell(&mut self) -> Option<Doorbell> {
        if !self.parking.flow_rings.are_used() {
            return None;
        }
        self.engine.as_deref_mut()?.stack.take_doorbell()
    }

    /// Frames have not all left when the doorbell was rung.
    #[cold]
    pub fn ring_again(&mut self) {
        self.set_deferring(false);
        self.pump();
        self.set_deferring(true);
    }

    /// Whether a thread may go to sleep without driving the stack before: all that is to leave has left, and what has come
    /// since the stack was last driven wakes a thread.
    fn is_settled(&self) -> bool {
        let engine = self.engine.as_deref();
        self.parking.flow_rings.are_used()
            && !self.pace.has_held()
            && engine.is_some_and(|engine| !engine.unfinished && engine.stack.is_settled())
            && self.has_just_looked()
    }

    /// A call gave the stack something to do: the helper must know if it sleeps for good.
    pub fn note_work(&mut self) {
        self.parking.work = self.parking.work.wrapping_add(1);
        crate::helper::rouse();
    }
}

/// Puts the calling thread to sleep until one of `sockets` has an event, an ordinary descriptor is
/// ready, or `deadline`. Whoever calls has just driven the stack and found nothing.
pub fn park(
    mut state: Guard,
    sockets: &[u32],
    deadline: Option<Instant>,
    others: Option<Others<'_>>,
) -> (Answer<Guard>, Outcome) {
    let now = raw::now();
    if deadline.is_some_and(|deadline| deadline <= now) {
        return (Ok(state), Outcome::TimedOut);
    }
    let is_due = |engine: &Engine| engine.deadline().is_some_and(|at| at <= now);
    let mut wake_at = deadline;
    if state.parking.driver.is_some() && state.engine.as_deref().is_some_and(is_due) {
        // The driver sleeps until a frame comes, and doesn't know that there is more to do (a connection to the own address
        // takes several turns): the caller goes on, once others have had the lock and descriptors were looked at.
        if others.is_none() {
            drop(state);
            return (lock(), Outcome::Woken);
        }
        wake_at = Some(now);
    }
    if is_interrupted() {
        // That takes in what was told, maybe of these sockets.
        state.end_interrupted();
        return (Ok(state), Outcome::Woken);
    }
    let id = state.parking.enter();
    for index in sockets {
        state.begins_to_wait(*index, id);
    }
    let drives = state.parking.driver.is_none() && state.engine.is_some();
    if drives {
        let stack = state.engine.as_ref().and_then(|engine| engine.deadline());
        wake_at = [deadline, stack].into_iter().flatten().min();
        state.parking.driver = Some(id);
        state.sleeps(now, wake_at);
    }
    if let Some(engine) = &state.engine {
        engine.count(Counter::AppBlocked);
    }
    let timeout = wake_at.map(|at| at.since(now));
    let ring = None;
    let nap = state
        .parking
        .falls_asleep(Sleep::Parked { id, drives, ring });
    let mut by_frame = false;
    let (guard, answer) = if drives || others.is_some() {
        sleep_on_descriptors(state, id, drives, timeout, others)
    } else if let Some((ring, came)) = state.take_ring(sockets, now) {
        state.parking.sleeps_beside(nap, ring);
        by_frame = came;
        match came {
            true => (Ok(state), Ok(0)),
            false => sleep_on_ring(state, id, ring, timeout, &mut by_frame),
        }
    } else if let Some(berth) = state.take_berth(sockets) {
        sleep_on_berth(state, id, berth, timeout)
    } else {
        sleep_on_futex(state, id, timeout)
    };
    let mut state = match guard {
        Ok(state) => state,
        Err(stop) => return (Err(stop), Outcome::Interrupted),
    };
    if let Some(sleep) = state.parking.rises(nap) {
        for index in sockets {
            state.has_waited(*index, id);
        }
        state.wakes_up(sleep, by_frame);
    }
    if drives {
        state.spin.slept(now, raw::now());
    }
    let outcome = match answer {
        Err(Stop::Errno(libc::EINTR)) if !cancel::is_put_off(&state) => Outcome::Interrupted,
        _ if deadline.is_some_and(|deadline| deadline <= raw::now()) => Outcome::TimedOut,
        _ => Outcome::Woken,
    };
    (Ok(state), outcome)
}

fn sleep_on_futex(mut state: Guard, id: u32, timeout: Option<Duration>) -> (Answer<Guard>, Answer) {
    let word = state.parking.sleeps_on_futex(id);
    let unless = unless_over();
    drop(state);
    let answer = raw::futex_wait_unless(Scope::Process, word.as_ptr(), 0, timeout, unless);
    (lock(), answer)
}

fn sleep_on_berth(
    mut state: Guard,
    id: u32,
    berth: Berth,
    timeout: Option<Duration>,
) -> (Answer<Guard>, Answer) {
    let (word, asleep) = berth.futex();
    let word = word.as_ptr();
    state.parking.sleeps_on_berth(id, berth);
    let unless = unless_over();
    drop(state);
    let answer = raw::futex_wait_unless(Scope::Shared, word, asleep, timeout, unless);
    (lock(), answer)
}

fn sleep_on_ring(
    mut state: Guard,
    id: u32,
    ring: u8,
    timeout: Option<Duration>,
    by_frame: &mut bool,
) -> (Answer<Guard>, Answer) {
    let Some((set, bell)) = state.parking.flow_rings.descriptors(ring) else {
        return (Ok(state), fail(libc::EINVAL));
    };
    state.parking.sleeps_on_ring(id, bell);
    let unless = unless_over();
    drop(state);
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 4];
    let answer = raw::epoll_wait(set, &mut events, timeout, core::ptr::null(), unless);
    let came = &events[..answer.unwrap_or(0)];
    if came.iter().any(|event| event.u64 == BELL) {
        raw::hush(bell);
    }
    *by_frame = came.iter().any(|event| event.u64 != BELL);
    (lock(), answer)
}

fn sleep_on_descriptors(
    mut state: Guard,
    id: u32,
    drives: bool,
    timeout: Option<Duration>,
    others: Option<Others<'_>>,
) -> (Answer<Guard>, Answer) {
    let (bell, timeout) = match state.parking.sleeps_on_descriptors(id) {
        Ok(bell) => (bell, timeout),
        // The process has no descriptor left: nobody can ring.
        Err(_) => (-1, Some(timeout.map_or(UNRUNG, |time| time.min(UNRUNG)))),
    };
    let mut own = [UNUSED; RESERVED];
    let (list, mask) = match others {
        Some(others) => (others.list, others.mask),
        None => (&mut own[..], core::ptr::null()),
    };
    let reserved = list.len() - RESERVED;
    let [first, rest @ ..] = &mut list[reserved..] else {
        return (Ok(state), fail(libc::EINVAL));
    };
    *first = raw::to_poll(bell, libc::POLLIN);
    rest.fill(UNUSED);
    if drives && let Some(engine) = &state.engine {
        for (entry, fd) in rest.iter_mut().zip(&engine.receive_fds) {
            *entry = raw::to_poll(*fd, libc::POLLIN);
        }
        if engine.expects_word(engine.last_poll)
            && let Some(entry) = rest.iter_mut().find(|entry| entry.fd < 0)
        {
            *entry = raw::to_poll(engine.notices_fd(), libc::POLLIN);
        }
        let room = engine.stack.send_blocked_on().and_then(Room::descriptor);
        if let (Some(entry), Some(fd)) = (rest.last_mut(), room) {
            *entry = raw::to_poll(fd.as_raw_fd(), libc::POLLOUT);
        }
    }
    let unless = unless_over();
    drop(state);
    let answer = raw::ppoll_unless(list, timeout, mask, unless);
    (lock(), answer)
}

/// How long a call may wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// Not at all.
    None,
    /// Until then.
    Until(Instant),
    /// For ever.
    Endless,
}

impl Patience {
    /// For a socket call: none on a non-blocking socket, else as `SO_RCVTIMEO` or `SO_SNDTIMEO` say.
    pub fn of(nonblocking: bool, timeout: Option<Duration>) -> Patience {
        match timeout {
            _ if nonblocking => Patience::None,
            Some(timeout) => Patience::Until(raw::now() + timeout),
            None => Patience::Endless,
        }
    }
}

/// Tries `attempt` until it answers anything but `EAGAIN`, driving the stack and sleeping between.
pub fn until<T>(
    state: Guard,
    index: u32,
    patience: Patience,
    mut attempt: impl FnMut(&mut State, u32) -> Answer<T>,
) -> Answer<T> {
    until_either(state, index, None, patience, |state, index, _| {
        attempt(state, index)
    })
}

/// As [`until`]; a sleep also ends when the ordinary descriptor `other` is readable. An attempt is told whether
/// that may be so: who waits for ever asks the kernel only after a sleep that found it so, since each question is a
/// system call.
pub fn until_either<T>(
    mut state: Guard,
    index: u32,
    other: Option<c_int>,
    patience: Patience,
    mut attempt: impl FnMut(&mut State, u32, bool) -> Answer<T>,
) -> Answer<T> {
    let cookie = state.sockets[index].cookie;
    let mut pumped = false;
    let mut readable = patience != Patience::Endless;
    let mut begun = None;
    loop {
        let answer = match cancel::is_due(&state) {
            true => fail(libc::EINTR),
            false => attempt(&mut state, index, readable),
        };
        match answer {
            Err(WOULD_BLOCK)
                if !pumped && patience == Patience::None && state.has_just_looked() =>
            {
                return answer;
            }
            Err(WOULD_BLOCK) if !pumped && (patience == Patience::None || !state.is_settled()) => {}
            Err(WOULD_BLOCK) if patience != Patience::None => {
                let deadline = match patience {
                    Patience::Until(deadline) => Some(deadline),
                    Patience::None | Patience::Endless => None,
                };
                // The lock was held until now: no handler has run.
                let mark = begun.get_or_insert_with(Mark::now);
                // (A call with `SO_RCVTIMEO` or `SO_SNDTIMEO` fails whatever `SA_RESTART` says.)
                let mut interrupts = || deadline.is_some() || mark.interrupts();
                let one = state.pace.sleeps();
                let (guard, look) = spin::look_on(state, one, deadline, |state| {
                    if state.sockets[index].cookie != cookie {
                        return Some(fail(libc::EBADF));
                    }
                    match attempt(state, index, false) {
                        Err(WOULD_BLOCK) => None,
                        other => Some(other),
                    }
                })?;
                state = guard;
                match look {
                    Look::Found(answer) => {
                        state.parking.hand_over();
                        return answer;
                    }
                    Look::Interrupted if interrupts() => return Err(spin::INTERRUPTED),
                    Look::Interrupted | Look::Nothing => {}
                }
                let mut list = [UNUSED; 1 + RESERVED];
                let others = other.map(|fd| {
                    list[0] = raw::to_poll(fd, libc::POLLIN);
                    Others {
                        list: &mut list,
                        mask: core::ptr::null(),
                    }
                });
                let (guard, outcome) = park(state, &[index], deadline, others);
                state = guard?;
                readable = list[0].revents != 0;
                let stop = match outcome {
                    Outcome::Woken => None,
                    Outcome::TimedOut => Some(WOULD_BLOCK),
                    Outcome::Interrupted => interrupts().then_some(Stop::Errno(libc::EINTR)),
                };
                let gone = state.sockets[index].cookie != cookie;
                if let Some(stop) = if gone {
                    Some(Stop::Errno(libc::EBADF))
                } else {
                    stop
                } {
                    state.parking.hand_over();
                    return Err(stop);
                }
            }
            other => {
                if patience != Patience::None {
                    state.parking.hand_over();
                }
                return other;
            }
        }
        state.pump();
        pumped = true;
    }
}
