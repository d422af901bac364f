//! Threads that each wait for a connection, and are woken by its frames alone.
//!
//! Where one thread sleeps on the NIC for all, a frame for another wakes two: the one that takes it in and goes back to
//! sleep, and the one that it is for. So once that has happened often, a thread that waits for a connection has the
//! connection's frames steered to a ring of its own ([`skink_nic::FlowRings`]), and sleeps on that. There are fewer rings
//! than threads may be: a thread takes one whose last user is awake; who finds none sleeps as before. An epoll set that has
//! a ring ([`crate::epoll_alone`]) keeps it, with the frames of all its connections.
use crate::epoll::kernel_ctl;
use crate::errno::{Answer, Stop};
use crate::fd_table::{self, Entry};
use crate::raw;
use crate::state::internal;
use core::ffi::c_int;
use skink_nic::BUCKETS;
use skink_time::Instant;
use skink_wire::FourTuple;
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Duration;

/// So many sleeps must have been ended by another thread, which took the frame in.
const ENOUGH: u32 = 256;
/// After so many sleeps in a row that no frame of the ring ended, frames come another way.
const MISSES: u32 = 64;
/// For so long, perhaps.
const PAUSE: Duration = Duration::from_secs(1);
/// What epoll tells of a ring's bell.
pub const BELL: u64 = 0;
/// What it tells of the program's epoll set that has the ring.
pub const PROGRAM_SET: u64 = 1;

struct Ring {
    /// The epoll set to sleep on.
    set: c_int,
    /// An eventfd in it.
    bell: c_int,
    /// Whose frames come to it, if threads use it.
    bucket: Option<u16>,
    /// An epoll set of the program's has it.
    given: bool,
    /// A thread sleeps on it.
    asleep: bool,
    /// The count of sleeps when the last one began.
    used: u64,
}

/// The rings, once they are in use.
pub struct FlowRings {
    /// Sleeps that were ended by another thread, as far as is counted.
    sleeps: u32,
    rings: Vec<Ring>,
    /// The ring of each bucket, from 1; 0 where it has none.
    ring_of: Vec<u8>,
    /// Sleeps on rings.
    count: u64,
    misses: u32,
    /// Not to be used before.
    resumes: Instant,
}

impl FlowRings {
    /// Not in use.
    pub const fn new() -> FlowRings {
        FlowRings {
            sleeps: 0,
            rings: Vec::new(),
            ring_of: Vec::new(),
            count: 0,
            misses: 0,
            resumes: Instant::ZERO,
        }
    }

    /// Whether they are in use.
    #[inline]
    pub fn are_used(&self) -> bool {
        !self.rings.is_empty()
    }

    /// A thread is about to sleep until another one wakes it; whether it is time to begin.
    pub fn is_time(&mut self) -> bool {
        self.sleeps = self.sleeps.saturating_add(1);
        self.sleeps == ENOUGH
    }

    /// Begins to use the NIC's rings, of which there must be some; answers the descriptors made for that. A failure leaves
    /// things as they are.
    pub fn begin(&mut self, nic: &mut dyn skink_nic::FlowRings) -> Answer<Vec<c_int>> {
        let mut rings = Vec::new();
        for _ in 0..nic.count() {
            let made = Ring::new();
            match made {
                Ok(ring) => rings.push(ring),
                // Some are better than none.
                Err(_) if !rings.is_empty() => break,
                Err(stop) => return Err(stop),
            }
        }
        let own = |ring: &Ring| {
            // SAFETY: made above, and nobody else closes it.
            unsafe { OwnedFd::from_raw_fd(ring.set) }
        };
        let sets = rings.iter().map(own).collect();
        if let Err(error) = nic.begin(sets) {
            for ring in rings {
                fd_table::set(ring.set, Entry::Ordinary);
                discard(ring.bell);
            }
            return Err(Stop::Errno(error.raw_os_error().unwrap_or(libc::EIO)));
        }
        self.ring_of = vec![0; usize::from(BUCKETS)];
        let made = rings.iter().flat_map(|ring| [ring.set, ring.bell]);
        let made = made.collect();
        self.rings = rings;
        Ok(made)
    }

    /// A thread is about to sleep until something comes for `flow`: its ring, if it can have one, and whether something
    /// has come there already.
    pub fn take(
        &mut self,
        nic: &mut dyn skink_nic::FlowRings,
        now: Instant,
        flow: &FourTuple,
    ) -> Option<(u8, bool)> {
        if now < self.resumes {
            return None;
        }
        let bucket = nic.bucket(flow);
        let ring = match *self.ring_of.get(usize::from(bucket))? {
            0 => self.longest_unused()?,
            ring => ring,
        };
        self.count += 1;
        let used = self.count;
        let at = self
            .rings
            .get_mut(usize::from(ring) - 1)
            .filter(|ring| !ring.asleep && !ring.given)?;
        at.asleep = true;
        at.used = used;
        if let Some(before) = at.bucket.replace(bucket).filter(|before| *before != bucket) {
            nic.steer(before, 0);
            self.ring_of[usize::from(before)] = 0;
        }
        if self.ring_of[usize::from(bucket)] != ring {
            self.ring_of[usize::from(bucket)] = ring;
            nic.steer(bucket, ring);
        }
        Some((ring, nic.reserve(ring)))
    }

    /// The ring nobody sleeps on that has been without use for longest.
    fn longest_unused(&self) -> Option<u8> {
        let free = (1..)
            .zip(&self.rings)
            .filter(|(_, ring)| !ring.asleep && !ring.given);
        free.min_by_key(|(_, ring)| ring.used)
            .map(|(number, _)| number)
    }

    /// Gives the program's epoll set `epfd` a ring, which is answered, if there is one: who sleeps on the ring is woken for the
    /// set too.
    pub fn give(
        &mut self,
        nic: &mut dyn skink_nic::FlowRings,
        now: Instant,
        epfd: c_int,
    ) -> Option<u8> {
        if now < self.resumes {
            return None;
        }
        let number = self.longest_unused()?;
        let ring = self.rings.get_mut(usize::from(number) - 1)?;
        let events = libc::EPOLLIN as u32;
        kernel_ctl(ring.set, libc::EPOLL_CTL_ADD, epfd, events, PROGRAM_SET).ok()?;
        ring.given = true;
        if let Some(bucket) = ring.bucket.take() {
            nic.steer(bucket, 0);
            self.ring_of[usize::from(bucket)] = 0;
        }
        Some(number)
    }

    /// The program's epoll set `epfd` has no ring any more. If a thread sleeps there, wakes it.
    pub fn take_back(
        &mut self,
        nic: Option<&mut dyn skink_nic::FlowRings>,
        number: u8,
        epfd: c_int,
    ) {
        let Some(ring) = self.rings.get_mut(usize::from(number).wrapping_sub(1)) else {
            return;
        };
        // Where it can't be taken out (a child has it too, and here it is closed) it would wake the next ones.
        ring.given = kernel_ctl(ring.set, libc::EPOLL_CTL_DEL, epfd, 0, 0).is_err();
        if ring.asleep {
            raw::ring(ring.bell);
        }
        let Some(nic) = nic else { return };
        for (bucket, ring) in (0..).zip(&mut self.ring_of) {
            if *ring == number {
                *ring = 0;
                nic.steer(bucket, 0);
            }
        }
    }

    /// Frames of `flow` come to a set's ring from now on, unless a thread sleeps that waits for them.
    pub fn lead(&mut self, nic: &mut dyn skink_nic::FlowRings, number: u8, flow: &FourTuple) {
        let bucket = nic.bucket(flow);
        let Some(at) = self.ring_of.get_mut(usize::from(bucket)) else {
            return;
        };
        if let Some(before) = self.rings.get_mut(usize::from(*at).wrapping_sub(1))
            && !before.given
        {
            if before.asleep {
                return;
            }
            before.bucket = None;
        }
        if *at != number {
            *at = number;
            nic.steer(bucket, number);
        }
    }

    /// A thread is about to sleep on a set's ring; answers whether something has come there already.
    pub fn sleeps_on(&mut self, nic: &mut dyn skink_nic::FlowRings, number: u8) -> bool {
        if let Some(ring) = self.rings.get_mut(usize::from(number).wrapping_sub(1)) {
            ring.asleep = true;
        }
        nic.reserve(number)
    }

    /// It doesn't sleep there any more.
    pub fn rises(&mut self, nic: Option<&mut dyn skink_nic::FlowRings>, number: u8) {
        if let Some(ring) = self.rings.get_mut(usize::from(number).wrapping_sub(1)) {
            ring.asleep = false;
        }
        if let Some(nic) = nic {
            nic.release(number);
        }
    }

    /// The epoll set and the bell of a ring.
    pub fn descriptors(&self, ring: u8) -> Option<(c_int, c_int)> {
        let ring = self.rings.get(usize::from(ring).checked_sub(1)?)?;
        Some((ring.set, ring.bell))
    }

    /// A thread has slept on `ring`, which is no set's; whether a frame woke it.
    pub fn woke(&mut self, nic: Option<&mut dyn skink_nic::FlowRings>, ring: u8, by_frame: bool) {
        self.rises(nic, ring);
        self.misses = if by_frame { 0 } else { self.misses + 1 };
        if self.misses >= MISSES {
            self.misses = 0;
            self.resumes = raw::now() + PAUSE;
        }
    }

    /// All frames come to who drives the stack, even those that threads sleep for: they may not get to it any more.
    pub fn stop(&mut self, nic: &mut dyn skink_nic::FlowRings) {
        for (number, ring) in (1..).zip(&mut self.rings) {
            nic.release(number);
            ring.bucket = None;
        }
        for (bucket, ring) in (0..).zip(&mut self.ring_of) {
            if core::mem::take(ring) != 0 {
                nic.steer(bucket, 0);
            }
        }
    }
}

impl Ring {
    fn new() -> Answer<Ring> {
        let set = raw::epoll_create()?;
        let bell = match raw::eventfd() {
            Ok(bell) => bell,
            Err(stop) => {
                raw::close(set);
                return Err(stop);
            }
        };
        let [set, bell] = [set, bell].map(internal);
        let added = kernel_ctl(set, libc::EPOLL_CTL_ADD, bell, libc::EPOLLIN as u32, BELL);
        if let Err(stop) = added {
            discard(set);
            discard(bell);
            return Err(stop);
        }
        Ok(Ring {
            set,
            bell,
            bucket: None,
            given: false,
            asleep: false,
            used: 0,
        })
    }
}

/// Closes a descriptor that was the library's own.
fn discard(fd: c_int) {
    fd_table::set(fd, Entry::Ordinary);
    raw::close(fd);
}

#[cfg(test)]
mod tests;
