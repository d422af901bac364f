//! What a process of several threads uses of its processors.
//!
//! When one of them sleeps says little there: one that accepts sleeps nearly always, and one that waits for all connections may hand
//! them to others that never wait for a frame.
use skink_time::{Duration, Instant};

/// Processor time is compared with what it was so long ago at least: that of threads on other processors is as old as
/// the last tick of the kernel's clock, up to 10 ms.
const WHILE: Duration = Duration::from_millis(20);
/// Of four parts of what there is to do on a busy process's processors it does three itself. The rest is the kernel's: NAPI's thread,
/// interrupts.
const OWN: (u128, u128) = (4, 3);

/// What all threads of a process have worked so far.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Their processor time, without what went into looking for frames for want of anything else to do.
    pub time: Duration,
    /// On how many processors they may run.
    pub processors: u32,
}

/// How much of its processors a process has used of late.
pub(super) struct Usage {
    before: Option<(Instant, Duration)>,
    /// Thousandths.
    used: u32,
}

impl Usage {
    /// Not known.
    pub(super) const fn new() -> Usage {
        Usage {
            before: None,
            used: 0,
        }
    }

    /// It has worked so much by `now`. Answers how much of `length` it had left: all, as long as nothing is known.
    pub(super) fn left(&mut self, now: Instant, length: Duration, work: Work) -> Duration {
        let (begun, before) = *self.before.get_or_insert((now, work.time));
        let passed = now.since(begun);
        if passed >= WHILE {
            let (all, own) = OWN;
            let worked = work.time.saturating_sub(before).as_nanos() * all / own;
            let used = worked * 1000 / (passed.as_nanos() * u128::from(work.processors.max(1)));
            self.used = used.min(1000) as u32;
            self.before = Some((now, work.time));
        }
        length * (1000 - self.used) / 1000
    }
}
