//! Whether a process has so much to do that the NIC needn't interrupt it for what comes.
//!
//! A frame that finds the kernel's thread asleep wakes it, and that takes the processor from the process, for
//! each frame: longer than the frame itself takes. A process that never sleeps finds the next frames anyway, by
//! and by. So the interface puts its interrupts off meanwhile ([`Interrupts`](crate::Interrupts), docs/decisions/0017).
//!
//! It is told by how long the process sleeps where a frame would wake it.
use super::period::{FEWEST, Period};
use super::votes::Votes;

/// So many periods more with much to do than without make a process busy,
const BECOMES: u32 = 8;
/// and so many the other way end it: a frame may wait for the timer then.
const CEASES: u32 = 10;
/// Frames in a second below which there is nothing to gain. But for who hardly sleeps there is from [`FEWEST`] on: who sleeps for less
/// than this part of the time before it is busy, and than that since, as it has less to do then.
const FEW: u64 = 20_000;
const HARDLY: [u32; 2] = [8, 4];
/// Frames in a second above which the queue of a virtual link (256) could overflow before the timer.
const MOST: u64 = 600_000;

/// Who has so many frames to look at for each time that it falls asleep has more to do than it can.
const BACKLOG: u64 = 16;
/// Frames in a second of which 12 come until the timer is over. From then on a process is busy though it sleeps for most of the
/// time: NAPI, which has the same processor, is at work meanwhile. And who receives fewer, and sleeps for over half of the time,
/// has clients that wait for the timer.
const MANY: u64 = 60_000;
/// If fewer than three quarters of the frames come with interrupts put off, clients wait for the timer that would ask for more, unless
/// the process hardly sleeps.
const QUARTERS: u64 = 3;
/// Frames in a second with which a load isn't over: two clients that wait for the timer have 8,000.
const REMAINING: u64 = 6_000;
/// If it ended so within this many periods, nothing was gained: the next time it takes so many times as many to begin,
const SOON: u32 = 200;
const LATER: u32 = 4;
/// up to this many.
const PATIENCE: u32 = 4_096;
/// After so many periods it is looked anew how many frames come without: who waits for the timer may have come since.
const ANEW: u32 = 4_000;
/// For so many: a supervisor looks each 50 ms what there is to adapt.
const GAP: u32 = 64;

/// How the last periods were.
pub(super) struct Busy {
    votes: Votes,
    /// How many periods make it busy, and how many it has been so by now.
    becomes: u32,
    lasted: u32,
    /// Frames in a second when it last wasn't so, in the mean of a few periods.
    without: u64,
}

impl Busy {
    /// Of a process that has done nothing yet.
    pub(super) const fn new() -> Busy {
        Busy {
            votes: Votes::new(),
            becomes: BECOMES,
            lasted: 0,
            without: 0,
        }
    }

    /// Whether it is so.
    pub(super) fn is_busy(&self) -> bool {
        self.votes.is()
    }

    /// Takes a period in: answers whether that has changed.
    pub(super) fn take(&mut self, period: &Period) -> bool {
        let frames = period.traffic.frames_in;
        // Where NAPI has the same processor, who sleeps may have been out of work for a moment only.
        let keeps_up = period.throughout || period.sleeps.saturating_mul(BACKLOG) > frames;
        let rate = period.rate(frames).min(2 * MOST);
        let (length, slept) = (period.length, period.slept);
        let hardly_sleeps = slept * HARDLY[usize::from(self.is_busy())] < length;
        let fewest = if hardly_sleeps { FEWEST } else { FEW };
        let worth = (fewest..=MOST).contains(&rate);
        if !self.is_busy() {
            self.lasted = 0;
            self.without = (3 * self.without + rate) / 4;
            let works = slept * 3 < length || rate >= MANY && slept * 4 < length * 3;
            let changes = worth && (works || !keeps_up);
            return self.votes.cast(changes, self.becomes);
        }
        self.lasted = self.lasted.saturating_add(1);
        if self.lasted >= ANEW {
            self.becomes = GAP;
            return self.votes.end();
        }
        // With interrupts put off it has less to do, and sleeps until the timer.
        let waits = match rate >= MANY {
            true => slept * 8 > length * 7,
            false => slept * 2 > length,
        };
        let fewer = rate * 4 < self.without * QUARTERS && slept * 4 > length;
        let ended = self.votes.cast(!worth || waits || fewer, CEASES);
        if ended {
            self.becomes = match self.lasted < SOON && rate >= REMAINING {
                true => (self.becomes * LATER).min(PATIENCE),
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
