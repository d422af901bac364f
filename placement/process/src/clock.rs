use skink_time::Instant;

#[cfg(test)]
thread_local! {
    /// What a test's time is ahead.
    pub(crate) static AHEAD: std::cell::Cell<skink_time::Duration> = const {
        std::cell::Cell::new(skink_time::Duration::ZERO)
    };
}

/// The time of `CLOCK_MONOTONIC`.
pub(crate) fn now() -> Instant {
    let now = monotonic();
    #[cfg(test)]
    let now = now + AHEAD.get();
    now
}

fn monotonic() -> Instant {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
    Instant::from_nanos(
        seconds
            .saturating_mul(1_000_000_000)
            .saturating_add(nanoseconds),
    )
}
