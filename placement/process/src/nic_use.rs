//! How this process uses its NIC, for the supervisor to adapt that (docs/decisions/0017 and 0020).
//!
//! The event loop looks while it goes round, so nothing wakes for this in an idle process. What is found is in the
//! sleeper's page, where the supervisor looks anyway whether the process goes on.
use crate::host::Host;
use skink_nic::{Judge, Traffic};
use skink_split::Serving;
use skink_time::Instant;
use std::time::Duration;

/// How often to look.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Who has nothing to do for so long is idle.
const IDLE: Duration = Duration::from_millis(10);

/// What the judge is told of the event loop.
///
/// Waiting is sleep to the judge if a frame ends it. If a program or another process of the stack ends it by a call, they
/// were at work meanwhile, for which a frame had better not interrupt them: where all are in one process, it is that one's
/// work.
pub(crate) struct NicUse {
    judge: Judge,
    looked: Instant,
    /// At the last round.
    passed: Traffic,
    /// Since when there is nothing to do.
    waits: Option<Instant>,
}

impl NicUse {
    /// Not used yet.
    pub fn new() -> NicUse {
        NicUse {
            judge: Judge::new(),
            looked: Instant::ZERO,
            passed: Traffic::NONE,
            waits: None,
        }
    }

    /// The process goes to sleep.
    pub fn falls_asleep(&mut self, now: Instant) {
        self.waits.get_or_insert(now);
    }

    /// It was woken by a program, or by another process of the stack, at `now`: it has slept, but for no time.
    pub fn is_called(&mut self, now: Instant) {
        self.waits = None;
        self.judge.falls_asleep(now);
        self.judge.wakes(now);
    }

    /// A round has begun at `now` and done nothing else than move frames, if it was `idle`; `traffic` is what has passed
    /// the NIC by its end. Answers whether the load has changed.
    fn after_round(&mut self, now: Instant, idle: bool, traffic: Traffic) -> bool {
        let before = std::mem::replace(&mut self.passed, traffic);
        // Frames that were less than a batch make no round busy.
        if idle && traffic == before {
            let since = *self.waits.get_or_insert(now);
            return now.since(since) >= IDLE && self.judge.rest();
        }
        if let Some(since) = self.waits.take()
            && traffic.frames_in != before.frames_in
        {
            self.judge.falls_asleep(since);
            self.judge.wakes(now);
        }
        if now.since(self.looked) < LOOK_EVERY {
            return false;
        }
        self.looked = now;
        self.judge.look(now, traffic, || None)
    }

    /// While there is a load its end must be noticed.
    pub fn longest_sleep(&self) -> Option<Duration> {
        let load = self.judge.load();
        (load.busy || load.small).then_some(IDLE)
    }
}

impl Host {
    /// Looks at how the NIC is used, if it is here, and shows the supervisor.
    pub(crate) fn note_round(&mut self, now: Instant, idle: bool) {
        let is_here = matches!(self.front.stack, Serving::Whole(_)) || self.inner.link.is_some();
        if !is_here {
            return;
        }
        let before = self.nic_use.judge.load();
        if self
            .nic_use
            .after_round(now, idle, Traffic::of(&self.counters))
        {
            let load = self.nic_use.judge.load();
            self.sleeper.note(load.to_bits());
            load.begun_since(before).count(&self.counters);
        }
    }
}

#[cfg(test)]
mod tests;
