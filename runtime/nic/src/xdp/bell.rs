//! What wakes an owner that sleeps on its NIC: a timer, so that it can set it for itself, too.

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// A bell that doesn't ring.
pub(super) fn new() -> io::Result<OwnedFd> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    Ok(timerfd_create(TimerfdClockId::Monotonic, flags)?)
}

/// Rings after this time, and is silent until then; zero: for good.
pub(super) fn set(bell: impl AsFd, after: Duration) {
    let timespec = |duration: Duration| Timespec {
        tv_sec: duration.as_secs() as i64,
        tv_nsec: i64::from(duration.subsec_nanos()),
    };
    let times = Itimerspec {
        it_interval: timespec(Duration::ZERO),
        it_value: timespec(after),
    };
    // It can't fail: the descriptor is a timer and the time is valid.
    let _ = timerfd_settime(bell, TimerfdTimerFlags::empty(), &times);
}

/// Rings at once.
pub(super) fn ring(bell: impl AsFd) {
    set(bell, Duration::from_nanos(1));
}
