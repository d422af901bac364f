//! Entry points that wait for several descriptors.
use super::{entry, finish};
use crate::epoll::{EXCLUSIVE, filter};
use crate::errno::{Answer, Stop, fail};
use crate::estate;
use crate::fd_table::{self, Entry, is_known};
use crate::lock::lock;
use crate::{epoll_inner, epoll_wait as wait, next, poll as polling};
use core::ffi::{c_int, c_void};
use libc::{epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};
use std::time::Duration;

/// A time span from the program; negative ones are none at all.
pub fn duration(seconds: i64, nanoseconds: i64) -> Duration {
    let nanoseconds = nanoseconds.clamp(0, 999_999_999) as u32;
    Duration::new(u64::try_from(seconds).unwrap_or(0), nanoseconds)
}

fn milliseconds(timeout: c_int) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}

/// # Safety
/// `time` must be null or readable.
pub unsafe fn from_timespec(time: *const timespec) -> Answer<Option<Duration>> {
    // SAFETY: the caller's promise.
    match unsafe { time.as_ref() } {
        Some(time) if time.tv_sec < 0 || !(0..1_000_000_000).contains(&time.tv_nsec) => {
            fail(libc::EINVAL)
        }
        Some(time) => Ok(Some(duration(time.tv_sec, time.tv_nsec))),
        None => Ok(None),
    }
}

/// # Safety
/// `count` entries at `list` must be readable and writable.
unsafe fn entries<'a>(list: *mut pollfd, count: nfds_t) -> &'a mut [pollfd] {
    if list.is_null() || count == 0 || !crate::is_on() {
        return &mut [];
    }
    // SAFETY: the caller's promise.
    unsafe { core::slice::from_raw_parts_mut(list, count as usize) }
}

/// # Safety
/// As for `ppoll`.
unsafe fn poll_list(
    list: *mut pollfd,
    count: nfds_t,
    timeout: Option<Duration>,
    mask: *const sigset_t,
) -> Answer {
    // SAFETY: the caller's promise.
    let list = unsafe { entries(list, count) };
    polling::poll(list, timeout, mask.cast())
}

/// # Safety
/// As for `poll`.
unsafe fn concerns(list: *mut pollfd, count: nfds_t) -> bool {
    // SAFETY: the caller's promise.
    polling::concerns_us(unsafe { entries(list, count) })
}

/// # Safety
/// As for `select`.
unsafe fn selects(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
) -> bool {
    // SAFETY: the caller's promise.
    crate::is_on() && unsafe { polling::selects_us(count, [read, write, except]) }
}

fn is_epoll(epfd: c_int) -> bool {
    matches!(fd_table::get(epfd), Entry::Epoll(_))
}

/// Whether a thread that is about to wait on a set waits for Skink's sockets. If it doesn't by itself, sets in it may.
fn waits_for_ours(epfd: c_int) -> bool {
    if let Entry::Plain(_) = fd_table::get(epfd)
        && epoll_inner::is_any()
        && let Ok(mut state) = lock()
    {
        state.before_outer_wait();
    }
    is_epoll(epfd)
}

/// An ordinary descriptor may be about to be added to a set by `EPOLLEXCLUSIVE`. `false`: that is the kernel's business.
///
/// # Safety
/// As for `epoll_ctl`.
unsafe fn notes_exclusive(epfd: c_int, operation: c_int, event: *mut epoll_event) -> bool {
    if let Entry::Epoll(index) | Entry::Plain(index) = fd_table::get(epfd)
        && operation == libc::EPOLL_CTL_ADD
        && !event.is_null()
        // SAFETY: the caller's promise; `epoll_event` may lie anywhere.
        && unsafe { event.read_unaligned() }.events & EXCLUSIVE != 0
        && let Ok(mut state) = lock()
    {
        state.wakes_one(index);
    }
    false
}

entry! {
    // SAFETY: the program's own arguments, here and below.
    if unsafe { concerns(list, count) } => poll(list: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
        // SAFETY: as above.
        unsafe { poll_list(list, count, milliseconds(timeout), core::ptr::null()) }
    }
    // SAFETY: as above.
    if unsafe { concerns(list, count) } => ppoll(list: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int {
        // SAFETY: as above.
        unsafe { from_timespec(timeout).and_then(|timeout| poll_list(list, count, timeout, mask)) }
    }
    // SAFETY: as above.
    if unsafe { selects(count, read, write, except) } => select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int {
        // SAFETY: as above.
        unsafe { select_timeval(count, [read, write, except], timeout) }
    }
    // SAFETY: as above.
    if unsafe { selects(count, read, write, except) } => pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int {
        // SAFETY: as above.
        unsafe {
            from_timespec(timeout).and_then(|timeout| {
                polling::select(count, [read, write, except], timeout, mask.cast())
            })
        }
    }
    // SAFETY: as above.
    if is_known(fd) || unsafe { notes_exclusive(epfd, operation, event) } => epoll_ctl(epfd: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
        // SAFETY: as above.
        unsafe { epoll_control(epfd, operation, fd, event) }
    }
    if waits_for_ours(epfd) => epoll_wait(epfd: c_int, events: *mut epoll_event, room: c_int, timeout: c_int) -> c_int {
        // SAFETY: as above.
        unsafe { wait::wait(epfd, events, room, milliseconds(timeout), core::ptr::null()) }
    // SAFETY: the kernel has just written so many.
    } then |count| unsafe { without_ours(epfd, events, count) };
    if waits_for_ours(epfd) => epoll_pwait(epfd: c_int, events: *mut epoll_event, room: c_int, timeout: c_int, mask: *const sigset_t) -> c_int {
        // SAFETY: as above.
        unsafe { wait::wait(epfd, events, room, milliseconds(timeout), mask.cast()) }
    // SAFETY: the kernel has just written so many.
    } then |count| unsafe { without_ours(epfd, events, count) };
    if waits_for_ours(epfd) => epoll_pwait2(epfd: c_int, events: *mut epoll_event, room: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int {
        // SAFETY: as above.
        unsafe {
            from_timespec(timeout).and_then(|timeout| wait::wait(epfd, events, room, timeout, mask.cast()))
        }
    // SAFETY: the kernel has just written so many.
    } then |count| unsafe { without_ours(epfd, events, count) };
}

/// Notes the set that the program has made, if it has.
fn noted(fd: c_int) -> c_int {
    if fd >= 0 && crate::is_on() {
        epoll_inner::made(fd);
    }
    fd
}

/// `epoll_create`
///
/// # Safety
/// As the function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_create(size: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    noted(unsafe { next::epoll_create(size) })
}

/// `epoll_create1`
///
/// # Safety
/// As the function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    noted(unsafe { next::epoll_create1(flags) })
}

/// What the kernel answered to a wait for a set of its own, which may have become Skink's meanwhile: a thread that sleeps
/// on it then wakes up for what is the library's. `None` if it was woken for nothing else, and waits on as for a set of
/// Skink's, with the whole of its timeout, once.
///
/// # Safety
/// There are `count` events, if that is above 0.
#[inline]
unsafe fn without_ours(epfd: c_int, events: *mut epoll_event, count: c_int) -> Option<c_int> {
    /// # Safety
    /// There are `count` events.
    #[cold]
    unsafe fn left(events: *mut epoll_event, count: c_int) -> Option<c_int> {
        // SAFETY: the caller's promise.
        let events = unsafe { core::slice::from_raw_parts_mut(events, count as usize) };
        let (kept, _) = filter(events);
        (kept > 0).then_some(kept as c_int)
    }
    if count <= 0 || !is_epoll(epfd) {
        return Some(count);
    }
    // SAFETY: the caller's promise.
    unsafe { left(events, count) }
}

/// # Safety
/// As for `epoll_ctl`.
unsafe fn epoll_control(
    epfd: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> Answer {
    if let Entry::Epoll(_) | Entry::Plain(_) = fd_table::get(fd) {
        if operation == libc::EPOLL_CTL_ADD
            && let Ok(mut state) = lock()
        {
            state.put_inside(fd);
        }
        return Err(Stop::Kernel);
    }
    if operation == libc::EPOLL_CTL_ADD {
        estate::summon(fd);
    }
    let mut state = lock()?;
    // SAFETY: the caller's promise; `epoll_event` may lie anywhere.
    let event = (!event.is_null()).then(|| unsafe { event.read_unaligned() });
    state.control(epfd, operation, fd, event)
}

/// # Safety
/// As for `select`, which leaves the time that is left in `timeout`.
unsafe fn select_timeval(count: c_int, sets: [*mut fd_set; 3], timeout: *mut timeval) -> Answer {
    // SAFETY: the caller's promise.
    let time = unsafe { timeout.as_mut() };
    let begin = crate::raw::now();
    let limit = match &time {
        Some(time) if time.tv_sec < 0 || time.tv_usec < 0 => return fail(libc::EINVAL),
        Some(time) => {
            let more = time.tv_usec / 1_000_000;
            Some(duration(
                time.tv_sec.saturating_add(more),
                time.tv_usec % 1_000_000 * 1000,
            ))
        }
        None => None,
    };
    let none: *const c_void = core::ptr::null();
    // SAFETY: the caller's promise.
    let answer = unsafe { polling::select(count, sets, limit, none) };
    if let (Some(time), Some(limit)) = (time, limit) {
        let left = limit.saturating_sub(crate::raw::now().since(begin));
        time.tv_sec = left.as_secs() as i64;
        time.tv_usec = i64::from(left.subsec_micros());
    }
    answer
}

/// `__poll_chk`
///
/// # Safety
/// As the function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __poll_chk(
    list: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    room: size_t,
) -> c_int {
    let fits = room / size_of::<pollfd>() >= count as usize;
    // SAFETY: the program's own arguments, here and below.
    if fits && unsafe { concerns(list, count) } {
        // SAFETY: as above.
        let call = || unsafe { poll_list(list, count, milliseconds(timeout), core::ptr::null()) };
        if let Some(answer) = finish(call()) {
            return answer as c_int;
        }
    }
    // SAFETY: as above.
    unsafe { next::poll_chk(list, count, timeout, room) }
}

/// `__ppoll_chk`
///
/// # Safety
/// As the function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __ppoll_chk(
    list: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    room: size_t,
) -> c_int {
    let fits = room / size_of::<pollfd>() >= count as usize;
    // SAFETY: the program's own arguments, here and below.
    if fits && unsafe { concerns(list, count) } {
        let call = || {
            // SAFETY: as above.
            unsafe {
                from_timespec(timeout).and_then(|timeout| poll_list(list, count, timeout, mask))
            }
        };
        if let Some(answer) = finish(call()) {
            return answer as c_int;
        }
    }
    // SAFETY: as above.
    unsafe { next::ppoll_chk(list, count, timeout, mask, room) }
}
