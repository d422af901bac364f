//! Whether a process has so much to do that the NIC needn't interrupt it for what comes.
//!
//! A frame that finds the kernel's thread asleep wakes it, and that takes the processor from the process, for
//! each frame: longer than the frame itself takes. A process that never sleeps finds the next frames anyway, by
//! and by. So the interface puts its interrupts off meanwhile ([`Interrupts`](crate::Interrupts), docs/decisions/0017).
//!
//! It is told by how long the process sleeps where a frame would wake it.
use super::votes::{PERIOD, Votes};
use skink_time::Instant;
use std::time::Duration;

/// So many periods more with much to do than without make a process busy,
const BECOMES: u32 = 8;
/// and so many the other way end it: a frame may wait for the timer then.
const CEASES: u32 = 10;
/// Frames in a second below which there is nothing to gain.
const FEWEST: u128 = 20_000;
/// Frames in a second above which the queue of a virtual link (256) could overflow before the timer.
const MOST: u128 = 600_000;

/// Who has so many frames to look at for each time that it falls asleep has more to do than it can.
const BACKLOG: u128 = 16;
/// Frames in a second of which 12 come until the timer is over. From then on a process is busy though it sleeps for most of the
/// time: NAPI, which has the same processor, is at work meanwhile. And who receives fewer, and sleeps for over half of the time,
/// has clients that wait for the timer.
const MANY: u128 = 60_000;
/// If it ended so within this many periods, nothing was gained: the next time it takes twice as many to begin,
const SOON: u32 = 200;
/// up to this many.
const PATIENCE: u32 = 2_048;

/// How the last periods were.
pub(super) struct Busy {
    /// Since when nobody is awake.
    asleep: Option<Instant>,
    /// How often that began.
    sleeps: u64,
    /// The time asleep in this period.
    slept: Duration,
    begun: Instant,
    /// Frames received at its beginning, and sleeps.
    before: (u64, u64),
    votes: Votes,
    /// How many periods make it busy, and how many it has been so by now.
    becomes: u32,
    lasted: u32,
}

impl Busy {
    /// Of a process that has done nothing yet.
    pub(super) const fn new() -> Busy {
        Busy {
            asleep: None,
            sleeps: 0,
            slept: Duration::ZERO,
            begun: Instant::ZERO,
            before: (0, 0),
            votes: Votes::new(),
            becomes: BECOMES,
            lasted: 0,
        }
    }

    /// A thread goes to sleep where a frame wakes it.
    pub(super) fn falls_asleep(&mut self, now: Instant) {
        if self.asleep.is_none() {
            self.asleep = Some(now);
            self.sleeps = self.sleeps.wrapping_add(1);
        }
    }

    /// No thread sleeps there any more.
    pub(super) fn wakes(&mut self, now: Instant) {
        if let Some(since) = self.asleep.take() {
            self.slept += now.since(since.max(self.begun));
        }
    }

    /// How often everybody fell asleep.
    pub(super) fn sleeps(&self) -> u64 {
        self.sleeps
    }

    /// Whether it is so.
    pub(super) fn is_busy(&self) -> bool {
        self.votes.is()
    }

    /// Looks, when `frames` were received in all: answers whether that has changed.
    pub(super) fn look(&mut self, now: Instant, frames: u64) -> bool {
        let period = now.since(self.begun);
        if period < PERIOD {
            return false;
        }
        let ongoing = self.asleep.map(|since| now.since(since.max(self.begun)));
        let slept = (self.slept + ongoing.unwrap_or_default()).as_nanos();
        let new = u128::from(frames.wrapping_sub(self.before.0));
        let sleeps = u128::from(self.sleeps.wrapping_sub(self.before.1));
        // Where NAPI has the same processor, who sleeps may have been out of work for a moment only.
        let keeps_up = sleeps * BACKLOG > new;
        (self.slept, self.begun) = (Duration::ZERO, now);
        self.before = (frames, self.sleeps);
        let period = period.as_nanos();
        let rate = new * 1_000_000_000 / period;
        let worth = (FEWEST..=MOST).contains(&rate);
        if !self.is_busy() {
            self.lasted = 0;
            let works = slept * 3 < period || rate >= MANY && slept * 4 < period * 3;
            let changes = worth && (works || !keeps_up);
            return self.votes.cast(changes, self.becomes);
        }
        self.lasted = self.lasted.saturating_add(1);
        // With interrupts put off it has less to do, and sleeps until the timer.
        let waits = match rate >= MANY {
            true => slept * 8 > period * 7,
            false => slept * 2 > period,
        };
        let ended = self.votes.cast(!worth || waits, CEASES);
        if ended {
            self.becomes = match worth && self.lasted < SOON {
                true => (self.becomes * 2).min(PATIENCE),
                false => BECOMES,
            };
        }
        ended
    }

    /// Nobody will look for a while: answers whether that has changed.
    pub(super) fn rest(&mut self) -> bool {
        self.votes.end()
    }
}

#[cfg(test)]
mod tests;
