//! Whether messages wait in a queue and nobody takes them, though all processes work.
//!
//! A component that was out of its mind before it died may have left something in a queue, or with a
//! neighbour, that no restart of one process mends. Nobody finds an index or a stamp that can't be then: all
//! just wait. Whoever doesn't take what waits for it, for want of room, has filled a queue itself, from which
//! nobody takes either; so the one at the end of such a chain is to blame. `link` may have to wait for its NIC,
//! for as long as that has no carrier, and is never.
use super::lanes::Lanes;
use skink_control::Part;
use std::time::{Duration, Instant};

/// How often to look.
const INTERVAL: Duration = Duration::from_secs(1);
/// Whoever looks after so long was stopped, and perhaps the others were too.
const LATE: Duration = Duration::from_secs(3);
/// How long a queue that its consumer can't be waiting to fill has stood still.
const PATIENCE: Duration = Duration::from_secs(5);

/// Watches over the queues.
#[derive(Default)]
pub struct Standstill {
    looked: Option<Instant>,
    /// By queue, where something waits.
    waits: Vec<Option<Wait>>,
}

#[derive(Clone, Copy)]
struct Wait {
    /// What its consumer has released so far.
    released: u64,
    since: Instant,
}

/// Messages that nobody takes.
#[derive(PartialEq, Eq, Debug)]
pub struct Stuck {
    pub from: Part,
    pub to: Part,
    pub waiting: u32,
}

impl Standstill {
    /// Somebody doesn't work now: whoever waits, waits for that one.
    pub fn forget(&mut self) {
        self.waits.clear();
    }

    /// Whether it is time to look.
    pub fn is_due(&self, now: Instant) -> bool {
        let past = |looked| now.saturating_duration_since(looked) >= INTERVAL;
        self.looked.is_none_or(past)
    }

    /// Looks, while all work. `goes_on` says whether the process of a part is awake, or sleeps well. Answers
    /// which queue has stood still for too long.
    pub fn look(
        &mut self,
        now: Instant,
        lanes: &Lanes,
        goes_on: impl Fn(Part) -> bool,
    ) -> Option<Stuck> {
        let before = self.looked.replace(now);
        if before.is_none_or(|before| now.saturating_duration_since(before) >= LATE) {
            self.forget();
        }
        self.waits.resize(lanes.queues().count(), None);
        for (wait, (_, _, queue)) in self.waits.iter_mut().zip(lanes.queues()) {
            let waiting = queue.depth().unwrap_or_default();
            let released = queue.released().unwrap_or_default();
            *wait = match *wait {
                _ if waiting == 0 => None,
                Some(before) if before.released == released => Some(before),
                _ => Some(Wait {
                    released,
                    since: now,
                }),
            };
        }
        let for_at_least = |wait: &Option<Wait>, time| {
            wait.is_some_and(|it| now.saturating_duration_since(it.since) >= time)
        };
        let all = || self.waits.iter().zip(lanes.queues());
        let is_blocked =
            |part| all().any(|(wait, (from, _, _))| from == part && for_at_least(wait, INTERVAL));
        let mut stuck = all().filter(|(wait, (_, to, _))| {
            for_at_least(wait, PATIENCE) && *to != Part::Link && goes_on(*to) && !is_blocked(*to)
        });
        let (_, (from, to, queue)) = stuck.next()?;
        Some(Stuck {
            from,
            to,
            waiting: queue.depth().unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests;
