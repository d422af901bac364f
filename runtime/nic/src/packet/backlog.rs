//! Since when frames wait, while more come than are taken in.
//!
//! Frames that nobody has looked for are all said to arrive when somebody does: that a program computed meanwhile says nothing
//! about how fast its stack is. But where batches follow each other, and each leaves something, a frame has arrived when the
//! kernel says, and who sends too much can be told (`crowding` in `tcp`).

use skink_time::Instant;
use std::time::Duration;

/// Batches that are further apart don't follow each other.
const LULL: Duration = Duration::from_millis(1);

/// What is known of the batches so far.
#[derive(Default)]
pub(super) struct Backlog {
    /// When the first of the batches began that follow each other and have left something.
    since: Option<Instant>,
    last: Instant,
    /// In the last batch, if it had a predecessor: the time of day when it began.
    day: Duration,
}

impl Backlog {
    /// A batch begins.
    pub(super) fn begin(&mut self, now: Instant) {
        if now.since(self.last) > LULL {
            self.since = None;
        }
        if self.since.is_some() {
            let time = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
            let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
            self.day = Duration::new(seconds, time.tv_nsec as u32);
        }
        self.last = now;
    }

    /// The batch ends.
    pub(super) fn end(&mut self, now: Instant, has_left_something: bool) {
        self.since = has_left_something.then(|| self.since.unwrap_or(now));
    }

    /// When a frame of the batch that began `now` arrived, if the kernel's clock says that it was at this time of day.
    pub(super) fn arrival(&self, now: Instant, day: impl FnOnce() -> Duration) -> Instant {
        match self.since {
            // That clock may be set.
            Some(since) => (now - self.day.saturating_sub(day())).max(since),
            None => now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(microseconds: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(microseconds)
    }

    /// A batch, and when a frame arrived that the kernel had for so many microseconds when it began.
    fn batch(backlog: &mut Backlog, now: u64, had: u64, leaves_something: bool) -> Instant {
        backlog.begin(at(now));
        let day = backlog.day.saturating_sub(Duration::from_micros(had));
        let arrived = backlog.arrival(at(now), || day);
        backlog.end(at(now), leaves_something);
        arrived
    }

    #[test]
    fn what_nobody_looked_for_has_not_waited() {
        let mut backlog = Backlog::default();
        assert_eq!(batch(&mut backlog, 10_000, 5_000, true), at(10_000));
        // Nor has what came before the first batch of those that follow each other.
        assert_eq!(batch(&mut backlog, 10_500, 5_000, true), at(10_000));
        assert_eq!(batch(&mut backlog, 11_000, 300, true), at(10_700));
        assert_eq!(batch(&mut backlog, 11_900, 1_800, true), at(10_100));
        assert_eq!(batch(&mut backlog, 12_901, 5_000, true), at(12_901));
    }

    #[test]
    fn a_batch_that_leaves_nothing_ends_it() {
        let mut backlog = Backlog::default();
        batch(&mut backlog, 1_000, 0, true);
        assert_eq!(batch(&mut backlog, 1_500, 700, false), at(1_000));
        assert_eq!(batch(&mut backlog, 2_000, 700, true), at(2_000));
    }

    #[test]
    fn a_clock_that_is_set_makes_no_frame_wait_for_longer_than_others_do() {
        let mut backlog = Backlog::default();
        batch(&mut backlog, 1_000, 0, true);
        assert_eq!(batch(&mut backlog, 1_500, 3_600_000_000, true), at(1_000));
        backlog.begin(at(2_000));
        let tomorrow = backlog.day + Duration::from_secs(86_400);
        assert_eq!(backlog.arrival(at(2_000), || tomorrow), at(2_000));
    }
}
