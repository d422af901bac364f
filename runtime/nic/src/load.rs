//! How a process uses its NIC, as far as that can be adapted: the judge, which does no I/O.
//!
//! Who has the NIC tells a [`Judge`] when it sleeps, and has it look at what has passed, each millisecond while something does.
//! What the judge finds ([`Load`]) goes to whoever has the privilege to adapt the NIC ([`Adaptation`](crate::Adaptation)).

mod busy;
mod inflow;
mod period;
mod sizes;
mod votes;
mod work;

use busy::Busy;
use inflow::Inflow;
use period::Periods;
use serde::{Deserialize, Serialize};
use sizes::Sizes;
use skink_messages::{Counter, Counters};
use skink_time::Instant;
pub use work::Work;

/// How a process uses its part of the NIC, as far as that can be adapted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// It has so much to do that the NIC needn't interrupt it.
    pub busy: bool,
    /// It sends many packets, most of which nobody has to segment.
    pub small: bool,
    /// It receives much, in bulk, and doesn't send many times as much.
    pub bulk: bool,
}

const BUSY: u64 = 1;
const SMALL: u64 = 2;
const BULK: u64 = 4;

impl Load {
    /// As bits of a word, for shared memory. No load is 0.
    pub fn to_bits(self) -> u64 {
        let bit = |is, bit| if is { bit } else { 0 };
        bit(self.busy, BUSY) | bit(self.small, SMALL) | bit(self.bulk, BULK)
    }

    /// From a word that another process wrote; bits that mean nothing are ignored.
    pub fn from_bits(bits: u64) -> Load {
        Load {
            busy: bits & BUSY != 0,
            small: bits & SMALL != 0,
            bulk: bits & BULK != 0,
        }
    }

    /// What has begun since `before`.
    pub fn begun_since(self, before: Load) -> Load {
        Load {
            busy: self.busy && !before.busy,
            small: self.small && !before.small,
            bulk: self.bulk && !before.bulk,
        }
    }

    /// Counts what has begun.
    pub fn count(self, counters: &Counters) {
        if self.busy {
            counters.count(Counter::AppBusy);
        }
        if self.small {
            counters.count(Counter::AppSmall);
        }
        if self.bulk {
            counters.count(Counter::AppBulk);
        }
    }
}

/// What has passed the NIC so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Traffic {
    /// Frames received.
    pub frames_in: u64,
    /// And their bytes.
    pub bytes_in: u64,
    /// Frames sent, before they are cut.
    pub frames_out: u64,
    /// And their bytes.
    pub bytes_out: u64,
}

impl Traffic {
    /// Nothing.
    pub const NONE: Traffic = Traffic {
        frames_in: 0,
        bytes_in: 0,
        frames_out: 0,
        bytes_out: 0,
    };

    /// What has passed since it was `before`.
    fn since(self, before: Traffic) -> Traffic {
        Traffic {
            frames_in: self.frames_in.wrapping_sub(before.frames_in),
            bytes_in: self.bytes_in.wrapping_sub(before.bytes_in),
            frames_out: self.frames_out.wrapping_sub(before.frames_out),
            bytes_out: self.bytes_out.wrapping_sub(before.bytes_out),
        }
    }

    /// What `link` has counted.
    pub fn of(counters: &Counters) -> Traffic {
        Traffic {
            frames_in: counters.get(Counter::LinkFramesIn),
            bytes_in: counters.get(Counter::LinkBytesIn),
            frames_out: counters.get(Counter::LinkFramesOut),
            bytes_out: counters.get(Counter::LinkBytesOut),
        }
    }
}

/// Tells how a process uses its NIC.
pub struct Judge {
    periods: Periods,
    busy: Busy,
    sizes: Sizes,
    inflow: Inflow,
}

impl Default for Judge {
    fn default() -> Judge {
        Judge::new()
    }
}

impl Judge {
    /// Of a process that has done nothing yet.
    pub const fn new() -> Judge {
        Judge {
            periods: Periods::new(),
            busy: Busy::new(),
            sizes: Sizes::new(),
            inflow: Inflow::new(),
        }
    }

    /// A thread goes to sleep where a frame wakes it, or looks for frames since it has nothing else to do. It counts
    /// once until [`Judge::wakes`].
    pub fn falls_asleep(&mut self, now: Instant) {
        self.periods.falls_asleep(now);
    }

    /// No thread sleeps there any more.
    pub fn wakes(&mut self, now: Instant) {
        self.periods.wakes(now);
    }

    /// Looks, unless it did so just before. Answers whether the load has changed. If much has come, `work` is asked what a process of
    /// several threads has worked so far.
    pub fn look(
        &mut self,
        now: Instant,
        traffic: Traffic,
        work: impl FnOnce() -> Option<Work>,
    ) -> bool {
        let period = self.periods.end(now, traffic, work);
        period.is_some_and(|period| {
            self.busy.take(&period) | self.sizes.take(&period) | self.inflow.take(&period)
        })
    }

    /// Nobody will look for a while: it isn't busy, nor are its packets small. Answers whether that has changed. Whether it
    /// receives in bulk stays as it was: the next look finds a long time without, if so it was.
    pub fn rest(&mut self) -> bool {
        self.busy.rest() | self.sizes.rest()
    }

    /// What it has found.
    pub fn load(&self) -> Load {
        Load {
            busy: self.busy.is_busy(),
            small: self.sizes.are_small(),
            bulk: self.inflow.is_bulk(),
        }
    }
}

#[cfg(test)]
mod tests;
