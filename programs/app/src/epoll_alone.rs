//! Epoll sets that are woken for their own connections, and no other one is.
//!
//! All sets have the NIC's descriptors in them, or the bell of a stack in another process. So a thread that sleeps on one may be
//! woken for what is another set's, and ring that one's doorbell. A set for which that was done often is to be woken *alone*, as
//! long as another thread sleeps on the NIC or the bell:
//!
//! - Where the stack is in the program, it gets a flow ring ([`crate::flow_rings`]), to which the frames of its connections are
//!   steered, and leaves the NIC to others. Who waits on the set then sleeps on the epoll set of the ring, in which the
//!   program's set is, too. It mustn't be the other way round: the kernel goes on looking for somebody to wake unless a thread
//!   sleeps in `epoll_wait` on the very set that the ring is in.
//! - Where the stack is in another process, it gets a side bell ([`skink_sockets::SIDE_BELLS`]), which becomes a member of the set
//!   beside the bell.
//!
//! Which connections are a set's is learned: one for which another thread has rung the doorbell is led there. So nothing is to be
//! done for connections that are new, or move from one set to another, and those that share a place in a table cost what they
//! did before.
use crate::epoll::{SIDE_BELL, kernel_ctl, tag};
use crate::epoll_set::Alone;
use crate::epoll_wait::kernel_wait;
use crate::errno::Answer;
use crate::flow_rings::{BELL, PROGRAM_SET};
use crate::raw::{self, Unless};
use crate::socket::Role;
use crate::state::State;
use core::ffi::{c_int, c_void};
use libc::epoll_event;
use skink_messages::Counter;
use skink_time::Instant;
use std::time::Duration;

/// After so many sleeps in a row that another thread has ended, frames don't come to the ring.
const MISSES: u32 = 64;

/// What a thread sleeps on that waits on a set which is woken alone.
pub struct Bed {
    pub alone: Alone,
    /// The epoll set of the ring.
    set: c_int,
    /// The ring's bell, or the side bell.
    bell: c_int,
    /// Something has come to the ring already.
    came: bool,
}

impl Bed {
    /// As `epoll_pwait2` on the program's set `epfd`; of one with a ring the events aren't asked for yet.
    pub fn wait(
        &self,
        epfd: c_int,
        events: &mut [epoll_event],
        timeout: Option<Duration>,
        mask: *const c_void,
        unless: Unless,
    ) -> (Answer, Reason) {
        let mut reason = Reason {
            called: self.came,
            is_ready: false,
        };
        if let Alone::Bell(_) = self.alone {
            let answer = kernel_wait(epfd, events, timeout, mask, unless);
            let mut came = events[..answer.unwrap_or(0)].iter();
            reason.called = came.any(|event| event.u64 == tag() + SIDE_BELL);
            return (answer, reason);
        }
        let timeout = match self.came {
            true => Some(Duration::ZERO),
            false => timeout,
        };
        let mut told = [epoll_event { events: 0, u64: 0 }; 4];
        let answer = kernel_wait(self.set, &mut told, timeout, mask, unless);
        for event in &told[..answer.unwrap_or(0)] {
            match event.u64 {
                BELL => raw::hush(self.bell),
                PROGRAM_SET => reason.is_ready = true,
                _ => reason.called = true,
            }
        }
        (answer.map(|_| 0), reason)
    }
}

/// Why a sleep of a set that is woken alone ended.
#[derive(Clone, Copy, Default)]
pub struct Reason {
    /// Something came by the ring or the side bell.
    pub called: bool,
    /// The kernel's half of the set has events.
    pub is_ready: bool,
}

impl State {
    /// A thread is about to sleep on set `index`. What it sleeps on if the set is woken alone, until [`State::slept_alone`].
    pub fn sleeps_alone(&mut self, index: u32, now: Instant) -> Option<Bed> {
        let set = &self.epolls[index];
        if set.sleepers > 0 && matches!(set.alone, Some(Alone::Ring(_))) {
            // Several threads sleep on it: the kernel wakes one of them, and not one that sleeps on a ring.
            self.wake_with_others(index);
            self.epolls[index].enough_calls = 0;
        }
        let alone = self.epolls[index].alone;
        match alone.or_else(|| self.begin_alone(index, now))? {
            Alone::Ring(number) => {
                let (set, bell) = self.parking.flow_rings.descriptors(number)?;
                let engine = self.engine.as_deref_mut()?;
                engine.count(Counter::AppFlowSleeps);
                let nic = engine.stack.flow_rings()?;
                Some(Bed {
                    alone: Alone::Ring(number),
                    set,
                    bell,
                    came: self.parking.flow_rings.sleeps_on(nic, number),
                })
            }
            Alone::Bell(number) => {
                let engine = self.engine.as_deref_mut()?;
                engine.count(Counter::AppFlowSleeps);
                let remote = engine.stack.remote()?;
                remote.announce_beside(number);
                Some(Bed {
                    alone: Alone::Bell(number),
                    set: -1,
                    bell: remote.side_bell(number)?,
                    came: false,
                })
            }
        }
    }

    /// If it is worth it, and another thread sleeps on the NIC or the bell, the set is woken alone from now on.
    fn begin_alone(&mut self, index: u32, now: Instant) -> Option<Alone> {
        let others = self.parking.on_nic > 0;
        let set = &mut self.epolls[index];
        let enough = set.enough_calls != 0 && set.calls >= set.enough_calls;
        if !enough || !others || !set.nic || set.inner || set.sleepers > 0 {
            return None;
        }
        set.calls = 0;
        set.misses = 0;
        let epfd = *set.fds.first()?;
        if let Some(remote) = self.engine.as_deref_mut()?.stack.remote() {
            let (number, bell) = remote.take_side_bell()?;
            let (events, data) = (libc::EPOLLIN as u32, tag() + SIDE_BELL);
            if kernel_ctl(epfd, libc::EPOLL_CTL_ADD, bell, events, data).is_err() {
                remote.give_side_bell(number);
                return None;
            }
            self.epolls[index].alone = Some(Alone::Bell(number));
        } else if self.epolls[index].exclusive {
            return None;
        } else {
            if !self.parking.flow_rings.are_used() {
                self.begin_flow_rings();
            }
            let nic = self.engine.as_deref_mut()?.stack.flow_rings()?;
            let ring = self.parking.flow_rings.give(nic, now, epfd)?;
            self.leave_nic(index);
            self.epolls[index].alone = Some(Alone::Ring(ring));
        }
        let set = &mut self.epolls[index];
        set.arranged_by = epfd;
        set.alone
    }

    /// An ordinary descriptor is added to the set by `EPOLLEXCLUSIVE`: the kernel is to wake one of those who sleep on such sets, and
    /// would go on to the next one if nobody slept on this very set.
    #[cold]
    pub fn wakes_one(&mut self, index: u32) {
        let set = &mut self.epolls[index];
        set.exclusive = true;
        if let Some(Alone::Ring(_)) = set.alone {
            self.wake_with_others(index);
        }
    }

    /// A thread has slept on set `index`, unless that is gone, when it was woken alone; whether it was `called` so.
    pub fn slept_alone(&mut self, alone: Alone, index: Option<u32>, called: bool) {
        let engine = self.engine.as_deref_mut();
        let index = index.filter(|index| self.epolls[*index].alone == Some(alone));
        match alone {
            Alone::Ring(ring) => {
                let nic = engine.and_then(|engine| engine.stack.flow_rings());
                self.parking.flow_rings.rises(nic, ring);
            }
            Alone::Bell(number) => {
                let remote = engine.and_then(|engine| engine.stack.remote());
                if let Some(remote) = remote.filter(|_| index.is_some()) {
                    remote.retract_beside(number);
                    if let Some(bell) = remote.side_bell(number).filter(|_| called) {
                        raw::hush_bell(bell);
                    }
                }
                return;
            }
        }
        let Some(index) = index else { return };
        let set = &mut self.epolls[index];
        if called {
            set.misses = 0;
        } else if set.rung {
            set.misses += 1;
            if set.misses >= MISSES {
                set.enough_calls = set.enough_calls.saturating_mul(2);
                self.wake_with_others(index);
            }
        }
    }

    /// The side bell of a set is quiet from now on. What it was rung for is taken in, also for who sleeps there.
    pub fn hush_side_bell(&mut self, index: u32) {
        let Some(Alone::Bell(number)) = self.epolls[index].alone else {
            return;
        };
        let engine = self.engine.as_deref_mut();
        let remote = engine.and_then(|engine| engine.stack.remote());
        if let Some(bell) = remote.and_then(|remote| remote.side_bell(number)) {
            raw::hush_bell(bell);
            self.catch_news();
        }
    }

    /// The set isn't woken alone any more. Who sleeps on a ring wakes up.
    pub fn wake_with_others(&mut self, index: u32) {
        let set = &mut self.epolls[index];
        let Some(alone) = set.alone.take() else {
            return;
        };
        set.calls = 0;
        let epfd = set.arranged_by;
        let engine = self.engine.as_deref_mut();
        match alone {
            Alone::Ring(ring) => {
                let nic = engine.and_then(|engine| engine.stack.flow_rings());
                self.parking.flow_rings.take_back(nic, ring, epfd);
            }
            Alone::Bell(number) => {
                if let Some(remote) = engine.and_then(|engine| engine.stack.remote())
                    && let Some(bell) = remote.side_bell(number)
                {
                    remote.retract_beside(number);
                    // Where it can't be taken out (a child has the set too, and here it is closed) the next set would share it.
                    if kernel_ctl(epfd, libc::EPOLL_CTL_DEL, bell, 0, 0).is_ok() {
                        remote.give_side_bell(number);
                    }
                }
            }
        }
        self.add_nic(index);
    }

    /// Another thread has taken in what has come for a member. From now on it comes to who sleeps on the set, if that is woken
    /// alone.
    pub fn lead(&mut self, index: u32, place: u32) {
        let set = &self.epolls[index];
        let Some(alone) = set.alone else { return };
        let socket = set.items[place as usize].socket;
        let Role::Stream(id) = self.sockets[socket].role else {
            return;
        };
        let Some(engine) = self.engine.as_deref_mut() else {
            return;
        };
        match alone {
            Alone::Ring(ring) => {
                let record = engine.stack.tcp_table().find(id);
                let flow = record.map(|record| record.four_tuple());
                if let (Some(flow), Some(nic)) = (flow, engine.stack.flow_rings()) {
                    self.parking.flow_rings.lead(nic, ring, &flow);
                }
            }
            Alone::Bell(number) => {
                if let Some(remote) = engine.stack.remote() {
                    remote.lead(id, number);
                }
            }
        }
    }
}
