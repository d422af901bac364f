//! `poll` and `select`.
use crate::cancel;
use crate::errno::{Answer, Stop, WOULD_BLOCK, fail};
use crate::estate::{self, SOON};
use crate::fd_table::{self, Entry};
use crate::kernel_half::events_for_half;
use crate::lock::lock;
use crate::raw;
use crate::socket::Role;
use crate::spin::{self, Look};
use crate::state::State;
use crate::wait::{self, Others, Outcome, RESERVED};
use core::ffi::{c_int, c_void};
use libc::{fd_set, pollfd};
use skink_time::Instant;
use std::time::Duration;

const ALWAYS: i16 = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;

/// What an entry of the list is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Subject {
    /// The kernel answers.
    Kernel,
    /// So it does for a UDP socket that nobody has bound or sent on, until another thread makes that Skink's.
    Undecided(u32),
    /// A socket of Skink's.
    Socket(u32),
    /// A socket with a half in the kernel that is listened to.
    Both(u32),
    /// A set with Skink's sockets in it: the kernel answers as well.
    Epoll(u32),
}

/// Whether the list names anything of Skink's.
pub fn concerns_us(list: &[pollfd]) -> bool {
    list.iter()
        .any(|entry| entry.fd >= 0 && fd_table::is_ours(entry.fd))
}

impl State {
    fn subject(&mut self, entry: &pollfd) -> Answer<Subject> {
        if entry.fd < 0 {
            return Ok(Subject::Kernel);
        }
        let index = match fd_table::get(entry.fd) {
            Entry::Ordinary | Entry::Plain(_) | Entry::Internal => return Ok(Subject::Kernel),
            Entry::Epoll(index) => return Ok(Subject::Epoll(index)),
            Entry::Socket(index) => index,
        };
        match self.sockets[index].role {
            Role::Undecided
                if self.sockets[index].datagram && self.sockets[index].bound.is_some() =>
            {
                match self.make_datagram(index) {
                    Ok(()) => Ok(self.datagram_subject(index)),
                    Err(Stop::Kernel) => Ok(Subject::Kernel),
                    Err(stop) => Err(stop),
                }
            }
            Role::Datagram(_) => Ok(self.datagram_subject(index)),
            Role::Undecided if self.sockets[index].datagram => Ok(Subject::Undecided(index)),
            Role::Undecided => Ok(Subject::Kernel),
            Role::Dormant | Role::Listener(_) => match self.activate(index) {
                Ok(()) if self.sockets[index].kernel_listens => Ok(Subject::Both(index)),
                Ok(()) => Ok(Subject::Socket(index)),
                Err(Stop::Kernel) => Ok(Subject::Kernel),
                Err(stop) => Err(stop),
            },
            _ => Ok(Subject::Socket(index)),
        }
    }

    fn datagram_subject(&self, index: u32) -> Subject {
        if self.sockets[index].hears_in_kernel() {
            Subject::Both(index)
        } else {
            Subject::Socket(index)
        }
    }

    /// Whether one of the sockets that weren't Skink's or the kernel's yet is the one or the other's now, or closed; or a connection has
    /// left for another process.
    fn has_decided(&self, list: &[pollfd], subjects: &[Subject]) -> bool {
        list.iter().zip(subjects).any(|(entry, subject)| {
            let index = match *subject {
                Subject::Undecided(index) => index,
                Subject::Socket(index) => return self.sockets[index].is_elsewhere(),
                Subject::Kernel | Subject::Both(_) | Subject::Epoll(_) => return false,
            };
            fd_table::get(entry.fd) != Entry::Socket(index) || self.sockets[index].is_decided()
        })
    }

    /// Fills in what Skink's entries say; answers how many say something.
    fn look(&self, list: &mut [pollfd], subjects: &[Subject]) -> usize {
        let mut count = 0;
        for (entry, subject) in list.iter_mut().zip(subjects) {
            let bits = match subject {
                Subject::Kernel | Subject::Undecided(_) => continue,
                Subject::Socket(index) | Subject::Both(index) => self.readiness(*index) as i16,
                Subject::Epoll(index) if self.has_ready(*index) => libc::POLLIN | libc::POLLRDNORM,
                Subject::Epoll(_) => 0,
            };
            entry.revents = bits & (entry.events | ALWAYS);
            count += usize::from(entry.revents != 0);
        }
        count
    }
}

/// What the kernel is asked: the list without Skink's sockets, then room for the library's own.
fn for_kernel(list: &[pollfd], subjects: &[Subject]) -> Vec<pollfd> {
    let unused = raw::to_poll(-1, 0);
    let mut kernel: Vec<pollfd> = Vec::with_capacity(list.len() + RESERVED);
    kernel.extend(
        list.iter()
            .zip(subjects)
            .map(|(entry, subject)| match subject {
                Subject::Socket(_) => unused,
                Subject::Both(_) => {
                    raw::to_poll(entry.fd, events_for_half(entry.events as u32) as i16)
                }
                Subject::Kernel | Subject::Undecided(_) | Subject::Epoll(_) => pollfd {
                    revents: 0,
                    ..*entry
                },
            }),
    );
    kernel.resize(list.len() + RESERVED, unused);
    kernel
}

/// Takes over what the kernel said of its entries; answers how many more say something. That an
/// epoll set is readable may be the library's own doing, see [`State::settle_epolls`].
fn merge(list: &mut [pollfd], subjects: &[Subject], kernel: &[pollfd]) -> usize {
    let mut count = 0;
    for ((entry, subject), kernel) in list.iter_mut().zip(subjects).zip(kernel) {
        match subject {
            Subject::Kernel | Subject::Undecided(_) => {
                entry.revents = kernel.revents;
                count += usize::from(kernel.revents != 0);
            }
            Subject::Both(_) => {
                count += usize::from(entry.revents == 0 && kernel.revents != 0);
                entry.revents |= kernel.revents;
            }
            Subject::Socket(_) | Subject::Epoll(_) => {}
        }
    }
    count
}

impl State {
    /// An epoll set's kernel half is readable: is it for an ordinary member?
    fn settle_epolls(
        &mut self,
        list: &mut [pollfd],
        subjects: &[Subject],
        kernel: &[pollfd],
    ) -> usize {
        let mut count = 0;
        for ((entry, subject), kernel) in list.iter_mut().zip(subjects).zip(kernel) {
            let Subject::Epoll(index) = *subject else {
                continue;
            };
            if kernel.revents == 0 || entry.revents != 0 {
                continue;
            }
            let set = &mut self.epolls[index];
            if set.rung {
                raw::hush(set.doorbell);
                set.rung = false;
            }
            self.hush_side_bell(index);
            // The NIC has been emptied and the bell is quiet: what is left is an ordinary member's.
            let mut again = [pollfd {
                revents: 0,
                ..*entry
            }];
            let _ = raw::ppoll(&mut again, Some(Duration::ZERO), core::ptr::null());
            entry.revents = again[0].revents;
            count += usize::from(entry.revents != 0);
        }
        count
    }
}

/// `ppoll`, for a list that names something of Skink's.
pub fn poll(list: &mut [pollfd], timeout: Option<Duration>, mask: *const c_void) -> Answer {
    let deadline = timeout.map(|timeout| raw::now() + timeout);
    let waits = timeout != Some(Duration::ZERO);
    loop {
        // What doesn't come soon isn't ready: others may be.
        let mut until = raw::now() + SOON;
        for entry in list.iter() {
            match estate::summon_until(entry.fd, until) {
                Ok(()) => {}
                Err(WOULD_BLOCK) => until = raw::now(),
                Err(stop) => return Err(stop),
            }
        }
        if let Some(answer) = poll_as_it_is(list, (deadline, waits), mask).transpose() {
            return answer;
        }
        if deadline.is_some_and(|deadline| raw::now() >= deadline) {
            return Ok(0);
        }
    }
}

/// Answers `None` if somebody has decided meanwhile whose a socket is, and nothing is ready.
fn poll_as_it_is(
    list: &mut [pollfd],
    (deadline, waits): (Option<Instant>, bool),
    mask: *const c_void,
) -> Answer<Option<usize>> {
    let mut state = lock()?;
    let mut subjects = Vec::with_capacity(list.len());
    for entry in list.iter() {
        subjects.push(state.subject(entry)?);
    }
    let sockets: Vec<u32> = subjects
        .iter()
        .filter_map(|subject| match subject {
            Subject::Socket(index) | Subject::Both(index) | Subject::Undecided(index) => {
                Some(*index)
            }
            Subject::Kernel | Subject::Epoll(_) => None,
        })
        .collect();
    let has_ordinary = subjects
        .iter()
        .any(|subject| !matches!(subject, Subject::Socket(_)));
    let mut kernel = for_kernel(list, &subjects);
    loop {
        if cancel::is_due(&state) {
            state.parking.hand_over();
            return fail(libc::EINTR);
        }
        state.pump();
        let mut count = state.look(list, &subjects);
        if count > 0 || !waits {
            // A signal that only the mask lets through comes now, or never; but not if something is ready.
            let mask = if count > 0 { core::ptr::null() } else { mask };
            state.parking.hand_over();
            if has_ordinary || !mask.is_null() {
                state.settle_bells();
                let part = &mut kernel[..list.len()];
                match raw::ppoll(part, Some(Duration::ZERO), mask) {
                    Ok(_) => {}
                    Err(stop) if count == 0 => return Err(stop),
                    // What is ready counts.
                    Err(_) => return Ok(Some(count)),
                }
                count += merge(list, &subjects, part);
                count += state.settle_epolls(list, &subjects, part);
            }
            return Ok(Some(count));
        }
        let one = state.pace.sleeps();
        let (guard, look) = match mask.is_null() {
            true => spin::look_on(state, one, deadline, |state| {
                (state.look(list, &subjects) > 0).then_some(())
            })?,
            false => (state, Look::Nothing),
        };
        state = guard;
        match look {
            Look::Found(()) => continue,
            Look::Interrupted => {
                state.parking.hand_over();
                return Err(spin::INTERRUPTED);
            }
            Look::Nothing => {}
        }
        if state.has_decided(list, &subjects) {
            // The next pass may end at once.
            state.parking.hand_over();
            return Ok(None);
        }
        let sets = begin_sleeps(&mut state, &subjects);
        let others = (has_ordinary || !mask.is_null()).then_some(Others {
            list: &mut kernel,
            mask,
        });
        let (guard, outcome) = wait::park(state, &sockets, deadline, others);
        state = guard?;
        for (index, number) in sets {
            state.epolls.end_sleep(index, number);
        }
        state.pump();
        let mut count = state.look(list, &subjects);
        count += merge(list, &subjects, &kernel);
        count += state.settle_epolls(list, &subjects, &kernel);
        if count > 0 || outcome != Outcome::Woken {
            state.parking.hand_over();
            // `poll` is never begun again after a signal, whatever `SA_RESTART` says.
            return if count == 0 && outcome == Outcome::Interrupted {
                fail(libc::EINTR)
            } else {
                Ok(Some(count))
            };
        }
    }
}

/// A thread begins to sleep on the epoll sets in the list: their indices and numbers.
fn begin_sleeps(state: &mut State, subjects: &[Subject]) -> Vec<(u32, u64)> {
    let sets = subjects.iter().filter_map(|subject| match subject {
        Subject::Epoll(index) => Some(*index),
        _ => None,
    });
    sets.map(|index| (index, state.epolls.begin_sleep(index)))
        .collect()
}

fn has(set: *const fd_set, fd: c_int) -> bool {
    // SAFETY: callers pass null or a set with room for `fd`.
    !set.is_null() && unsafe { *set.cast::<u64>().add(fd as usize / 64) } >> (fd % 64) & 1 != 0
}

fn put(set: *mut fd_set, fd: c_int, on: bool) {
    if set.is_null() {
        return;
    }
    // SAFETY: as above.
    unsafe {
        let word = set.cast::<u64>().add(fd as usize / 64);
        *word = *word & !(1 << (fd % 64)) | u64::from(on) << (fd % 64);
    }
}

/// Whether the sets name anything of Skink's.
///
/// # Safety
/// The sets must be null or have room for `count` descriptors.
pub unsafe fn selects_us(count: c_int, sets: [*mut fd_set; 3]) -> bool {
    (0..count).any(|fd| fd_table::is_ours(fd) && sets.iter().any(|set| has(*set, fd)))
}

/// `pselect`, for sets that name something of Skink's.
///
/// # Safety
/// The sets must be null or have room for `count` descriptors; `mask` is null or a signal set.
pub unsafe fn select(
    count: c_int,
    sets: [*mut fd_set; 3],
    timeout: Option<Duration>,
    mask: *const c_void,
) -> Answer {
    let [read, write, except] = sets;
    let wanted = |fd: c_int| {
        let mut events = 0;
        for (set, bits) in [
            (read, libc::POLLIN),
            (write, libc::POLLOUT),
            (except, libc::POLLPRI),
        ] {
            if has(set, fd) {
                events |= bits;
            }
        }
        events
    };
    let mut list: Vec<pollfd> = (0..count)
        .map(|fd| raw::to_poll(fd, wanted(fd)))
        .filter(|entry| entry.events != 0)
        .collect();
    poll(&mut list, timeout, mask)?;
    if list.iter().any(|entry| entry.revents & libc::POLLNVAL != 0) {
        return fail(libc::EBADF);
    }
    let readable = libc::POLLIN | libc::POLLRDNORM | libc::POLLHUP | libc::POLLERR;
    let writable = libc::POLLOUT | libc::POLLWRNORM | libc::POLLERR;
    let mut total = 0;
    for entry in &list {
        for (set, asked, answers) in [
            (read, libc::POLLIN, readable),
            (write, libc::POLLOUT, writable),
            (except, libc::POLLPRI, libc::POLLPRI),
        ] {
            if entry.events & asked != 0 {
                let on = entry.revents & answers != 0;
                put(set, entry.fd, on);
                total += usize::from(on);
            }
        }
    }
    Ok(total)
}
