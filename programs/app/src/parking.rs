//! The threads that wait, and how each is woken.
use crate::epoll_set::Alone;
use crate::errno::{Answer, Stop};
use crate::flow_rings::FlowRings;
use crate::raw::{self, Scope, Unless};
use crate::state::internal;
use core::cell::Cell;
use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};
use skink_sockets::Berth;
use skink_time::Instant;
use std::sync::Arc;

/// How a waiting thread is woken.
enum Bell {
    /// It isn't asleep.
    None,
    /// By its futex.
    Futex,
    /// By this eventfd.
    Event(c_int),
    /// By this one, of a flow ring.
    Ring(c_int),
    /// By its futex in memory that a stack in another process sees, and by that stack.
    Berth(Berth),
}

/// How a thread is woken that sleeps.
pub enum Call {
    /// By this futex.
    Futex(Arc<AtomicU32>),
    /// By this bell of a flow ring. It may come late, and wake the next one there.
    Ring(c_int),
    /// By this futex. Likewise.
    Berth(Berth),
}

impl Call {
    /// Wakes it.
    pub fn make(self) {
        match self {
            Call::Futex(word) => raw::futex_wake(word.as_ptr(), 1),
            Call::Ring(fd) => raw::ring(fd),
            Call::Berth(berth) => raw::futex_wake_in(Scope::Shared, berth.futex().0.as_ptr(), 1),
        }
    }
}

struct Waiter {
    word: Arc<AtomicU32>,
    bell: Bell,
}

/// What is to be undone when a thread wakes up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sleep {
    /// It waits for sockets.
    Parked {
        /// Its number.
        id: u32,
        /// It sleeps on the NIC's descriptors, or on the bell of a stack in another process.
        drives: bool,
        /// The flow ring that it sleeps on.
        ring: Option<u8>,
    },
    /// It waits on an epoll set.
    OnSet {
        /// The set.
        index: u32,
        /// Which of those that have this index one after the other.
        number: u64,
        /// It has left the NIC to others.
        rests: bool,
        /// A frame, or a stack in another process, wakes it.
        on_nic: bool,
        /// What wakes it alone.
        alone: Option<Alone>,
    },
}

/// One sleep of one thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nap {
    place: u32,
    /// No other one has, or had, it.
    number: u64,
}

thread_local! {
    /// The calling thread's sleep. It isn't asleep: so a signal handler has interrupted that, and either calls now or has left
    /// the call for good (`siglongjmp`).
    static INTERRUPTED: Cell<Option<Nap>> = const { Cell::new(None) };
    /// The number of that, or 0.
    static ASLEEP: Cell<u64> = const { Cell::new(0) };
}

/// The calling thread, which has just [fallen asleep](Parking::falls_asleep), is to sleep unless that is over.
pub fn unless_over() -> Unless {
    ASLEEP.with(Unless::changed)
}

/// Whether a signal handler has interrupted the calling thread's sleep.
pub fn is_interrupted() -> bool {
    INTERRUPTED.get().is_some()
}

/// The threads that wait.
pub struct Parking {
    waiters: Vec<Waiter>,
    free: Vec<u32>,
    /// By their places: their numbers, 0 for none, and what is to be undone.
    asleep: Vec<(u64, Sleep)>,
    /// Which threads these are, by the same places.
    sleepers: Vec<libc::pthread_t>,
    free_places: Vec<u32>,
    /// How many there ever were.
    slept: u64,
    /// Eventfds not in use.
    events: Vec<c_int>,
    /// Threads to be woken when the lock is let go: who is woken before may take the processor from the one that holds
    /// it, and go to sleep again for want of it.
    woken: Vec<Call>,
    /// Who sleeps on the NIC's descriptors.
    pub driver: Option<u32>,
    /// Who was woken to drive, and isn't awake yet.
    heir: Option<u32>,
    /// Sleeps on the NIC since a thread last found what it waited for.
    naps: u32,
    /// How many threads (the helper not counted) sleep where a frame wakes them.
    pub on_nic: u32,
    /// When the first of them wakes up by itself.
    pub planned: Instant,
    /// Counts calls that gave the stack something to do.
    pub work: u32,
    /// Where threads sleep that each wait for a connection.
    pub flow_rings: FlowRings,
}

impl Parking {
    /// Nobody waits.
    pub const fn new() -> Parking {
        Parking {
            waiters: Vec::new(),
            free: Vec::new(),
            asleep: Vec::new(),
            sleepers: Vec::new(),
            free_places: Vec::new(),
            slept: 0,
            events: Vec::new(),
            woken: Vec::new(),
            driver: None,
            heir: None,
            naps: 0,
            on_nic: 0,
            planned: Instant::FAR_FUTURE,
            work: 0,
            flow_rings: FlowRings::new(),
        }
    }

    /// After `fork`, in the child: none of the parent's threads exists here.
    pub fn forget_threads(&mut self) {
        let mut events = core::mem::take(&mut self.events);
        events.extend(self.waiters.iter().filter_map(|waiter| match waiter.bell {
            Bell::Event(fd) => Some(fd),
            Bell::None | Bell::Futex | Bell::Ring(_) | Bell::Berth(_) => None,
        }));
        for fd in events {
            crate::fd_table::set(fd, crate::fd_table::Entry::Ordinary);
            raw::close(fd);
        }
        let slept = self.slept;
        *self = Parking {
            slept,
            ..Parking::new()
        };
    }

    /// A thread is about to sleep: its number.
    pub fn enter(&mut self) -> u32 {
        let id = self.free.pop().unwrap_or_else(|| {
            let word = Arc::new(AtomicU32::new(0));
            self.waiters.push(Waiter {
                word,
                bell: Bell::None,
            });
            self.waiters.len() as u32 - 1
        });
        self.waiters[id as usize].word.store(0, Ordering::Relaxed);
        id
    }

    /// The calling thread goes to sleep. What this answers is for [`Parking::rises`].
    pub fn falls_asleep(&mut self, sleep: Sleep) -> Nap {
        self.slept += 1;
        let number = self.slept;
        let place = match self.free_places.pop() {
            Some(place) => {
                self.asleep[place as usize] = (number, sleep);
                place
            }
            None => {
                self.asleep.push((number, sleep));
                self.asleep.len() as u32 - 1
            }
        };
        self.sleepers.resize(self.asleep.len(), 0);
        // SAFETY: no conditions.
        self.sleepers[place as usize] = unsafe { libc::pthread_self() };
        let nap = Nap { place, number };
        INTERRUPTED.set(Some(nap));
        ASLEEP.set(number);
        nap
    }

    /// It sleeps on this flow ring.
    pub fn sleeps_beside(&mut self, nap: Nap, on: u8) {
        if let Some((number, Sleep::Parked { ring, .. })) = self.asleep.get_mut(nap.place as usize)
            && *number == nap.number
        {
            *ring = Some(on);
        }
    }

    /// It is awake: what is to be undone. `None` if that was done already, by a signal handler which slept, too.
    pub fn rises(&mut self, nap: Nap) -> Option<Sleep> {
        let (number, sleep) = self.asleep.get_mut(nap.place as usize)?;
        if *number != nap.number {
            return None;
        }
        let sleep = *sleep;
        *number = 0;
        self.free_places.push(nap.place);
        INTERRUPTED.set(None);
        ASLEEP.set(0);
        Some(sleep)
    }

    /// The sleep of the calling thread, if a signal handler has interrupted that.
    pub fn take_interrupted(&mut self) -> Option<Sleep> {
        let sleep = self.rises(INTERRUPTED.take()?)?;
        if let Sleep::Parked { id, .. } = sleep {
            // The kernel may begin the wait on its futex anew once the handler returns.
            let word = &mut self.waiters[id as usize].word;
            word.store(1, Ordering::Relaxed);
            *word = Arc::new(AtomicU32::new(0));
        }
        Some(sleep)
    }

    /// It is awake.
    pub fn leave(&mut self, id: u32) {
        let waiter = &mut self.waiters[id as usize];
        match core::mem::replace(&mut waiter.bell, Bell::None) {
            Bell::Event(fd) => {
                if waiter.word.load(Ordering::Relaxed) != 0 {
                    raw::hush(fd);
                }
                self.events.push(fd);
            }
            Bell::Berth(berth) => berth.rise(),
            Bell::None | Bell::Futex | Bell::Ring(_) => {}
        }
        self.free.push(id);
        self.heir = self.heir.filter(|heir| *heir != id);
    }

    /// Wakes it, if it sleeps: but by an eventfd when the lock is let go.
    pub fn wake(&mut self, id: u32) {
        let Some(waiter) = self.waiters.get(id as usize) else {
            return;
        };
        if matches!(waiter.bell, Bell::None) || waiter.word.swap(1, Ordering::Release) != 0 {
            return;
        }
        match &waiter.bell {
            Bell::None => {}
            Bell::Futex => self.woken.push(Call::Futex(waiter.word.clone())),
            // Nobody else has it as long as the lock is held.
            Bell::Event(fd) => raw::ring(*fd),
            Bell::Ring(fd) => self.woken.push(Call::Ring(*fd)),
            Bell::Berth(berth) => {
                berth.rouse();
                self.woken.push(Call::Berth(berth.clone()));
            }
        }
    }

    /// Whether a thread sleeps on an epoll set.
    pub fn sleeps_on_set(&self, thread: libc::pthread_t) -> bool {
        let mut all = self.asleep.iter().zip(&self.sleepers);
        all.any(|((number, sleep), sleeper)| {
            *sleeper == thread && *number != 0 && matches!(sleep, Sleep::OnSet { .. })
        })
    }

    /// Wakes all that sleep, but for those on epoll sets.
    pub fn wake_all(&mut self) {
        for id in 0..self.waiters.len() {
            self.wake(id as u32);
        }
    }

    /// Whether threads are to be woken by who lets the lock go.
    #[inline]
    pub fn has_woken(&self) -> bool {
        !self.woken.is_empty()
    }

    /// The threads that are to be woken by who lets the lock go.
    #[inline]
    pub fn take_woken(&mut self) -> Vec<Call> {
        core::mem::take(&mut self.woken)
    }

    /// Makes what a thread needs to sleep: the process may be about to forbid itself to make any, as
    /// sshd's does that talks to strangers.
    pub fn prepare(&mut self) {
        if self.events.is_empty() {
            let _ = self.make_bells();
        }
    }

    /// More eventfds, as many as there are: the helper must be told of each lot.
    fn make_bells(&mut self) -> Answer<()> {
        let count = self.bells().count().max(1);
        for made in 0..count {
            match raw::eventfd() {
                Ok(fd) => self.events.push(internal(fd)),
                Err(_) if made > 0 => break,
                Err(stop) => return Err(stop),
            }
        }
        crate::helper::renew();
        Ok(())
    }

    /// All eventfds.
    pub fn bells(&self) -> impl Iterator<Item = c_int> {
        let used = self.waiters.iter().filter_map(|waiter| match waiter.bell {
            Bell::Event(fd) => Some(fd),
            Bell::None | Bell::Futex | Bell::Ring(_) | Bell::Berth(_) => None,
        });
        self.events.iter().copied().chain(used)
    }

    /// An eventfd that is quiet.
    pub fn take_event_fd(&mut self) -> Answer<c_int> {
        if self.events.is_empty() {
            self.make_bells()?;
        }
        self.events.pop().ok_or(Stop::Errno(libc::EMFILE))
    }

    /// Nobody rings it any more.
    pub fn give_event_fd(&mut self, fd: c_int) {
        raw::hush(fd);
        self.events.push(fd);
    }

    /// The thread sleeps on the futex that is answered.
    pub fn sleeps_on_futex(&mut self, id: u32) -> Arc<AtomicU32> {
        let waiter = &mut self.waiters[id as usize];
        waiter.bell = Bell::Futex;
        waiter.word.clone()
    }

    /// The thread sleeps on the eventfd that is answered, among other descriptors.
    pub fn sleeps_on_descriptors(&mut self, id: u32) -> Answer<c_int> {
        let bell = self.take_event_fd()?;
        self.waiters[id as usize].bell = Bell::Event(bell);
        Ok(bell)
    }

    /// The thread sleeps on a flow ring, whose bell is `bell`.
    pub fn sleeps_on_ring(&mut self, id: u32, bell: c_int) {
        self.waiters[id as usize].bell = Bell::Ring(bell);
    }

    /// The thread sleeps on this berth.
    pub fn sleeps_on_berth(&mut self, id: u32, berth: Berth) {
        self.waiters[id as usize].bell = Bell::Berth(berth);
    }

    /// A thread goes to sleep where a frame wakes it, until `deadline` at the latest.
    pub fn sleeps_on_nic(&mut self, deadline: Option<Instant>) {
        self.on_nic += 1;
        // A stack in another process must know before the lock is released.
        crate::remote::unsettle();
        self.planned = self.planned.min(deadline.unwrap_or(Instant::FAR_FUTURE));
    }

    /// It woke up. What is planned by the others isn't known then: the helper takes care. Answers whether the last one to
    /// wake up there hasn't found anything either.
    pub fn woke_on_nic(&mut self) -> bool {
        self.on_nic -= 1;
        self.planned = Instant::FAR_FUTURE;
        self.naps = self.naps.saturating_add(1);
        self.naps > 1
    }

    /// A thread has found what it waited for.
    #[inline]
    pub fn found(&mut self) {
        self.naps = 0;
    }

    /// A thread has found what it waited for. If nobody drives, makes one of the sleepers do it, also one on a berth: as long as there
    /// is such a one somebody must sleep on the bell, or be about to look. But none on a flow ring: its own frames wake it, and
    /// the next thread that goes to sleep will drive. Until then the helper takes care: who has found something may compute for long.
    pub fn hand_over(&mut self) {
        self.found();
        if self.driver.is_some() || self.heir.is_some() {
            return;
        }
        let mut asleep = (0..).zip(&self.waiters).filter(|(_, waiter)| {
            !matches!(waiter.bell, Bell::None) && waiter.word.load(Ordering::Relaxed) == 0
        });
        let next = asleep.find(|(_, waiter)| !matches!(waiter.bell, Bell::Ring(_)));
        if let Some((id, _)) = next {
            self.heir = Some(id);
            self.wake(id);
        } else if self.on_nic == 0 {
            crate::helper::take_over();
        }
    }
}

#[cfg(test)]
mod tests;
