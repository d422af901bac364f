//! What happened between two looks.
use super::Traffic;
use super::work::{Usage, Work};
use skink_time::{Duration, Instant};

/// Frames in a second below which nobody is busy: two come until the timer is over.
pub(super) const FEWEST: u64 = 10_000;

/// The shortest period from which something is concluded.
const SHORTEST: Duration = Duration::from_micros(500);

/// What happened between two looks.
pub(super) struct Period {
    pub(super) length: Duration,
    /// Of it, how long nobody was awake.
    pub(super) slept: Duration,
    /// How often everybody fell asleep.
    pub(super) sleeps: u64,
    /// Somebody slept all the time, and nobody fell asleep: so there are others, of whose sleeps nothing is known.
    pub(super) throughout: bool,
    /// What passed the NIC.
    pub(super) traffic: Traffic,
}

impl Period {
    /// So many a second, if there were so many in this period.
    pub(super) fn rate(&self, count: u64) -> u64 {
        let rate = u128::from(count) * 1_000_000_000 / self.length.as_nanos().max(1);
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}

/// Cuts time into periods.
pub(super) struct Periods {
    begun: Instant,
    /// What had passed by then.
    before: Traffic,
    /// Since when nobody is awake.
    asleep: Option<Instant>,
    slept: Duration,
    sleeps: u64,
    usage: Usage,
}

impl Periods {
    /// Of a process that has done nothing yet.
    pub(super) const fn new() -> Periods {
        Periods {
            begun: Instant::ZERO,
            before: Traffic::NONE,
            asleep: None,
            slept: Duration::ZERO,
            sleeps: 0,
            usage: Usage::new(),
        }
    }

    /// A thread goes to sleep where a frame wakes it.
    pub(super) fn falls_asleep(&mut self, now: Instant) {
        if self.asleep.is_none() {
            self.asleep = Some(now);
            self.sleeps += 1;
        }
    }

    /// No thread sleeps there any more.
    pub(super) fn wakes(&mut self, now: Instant) {
        if let Some(since) = self.asleep.take() {
            self.slept += now.since(since.max(self.begun));
        }
    }

    /// Ends a period, when `traffic` has passed in all. `None` if it is too short yet: it goes on. What a process of several threads has
    /// worked is asked only if so many frames have come that it matters.
    pub(super) fn end(
        &mut self,
        now: Instant,
        traffic: Traffic,
        work: impl FnOnce() -> Option<Work>,
    ) -> Option<Period> {
        let length = now.since(self.begun);
        if length < SHORTEST {
            return None;
        }
        let ongoing = self.asleep.map(|since| now.since(since.max(self.begun)));
        let slept = self.slept + ongoing.unwrap_or_default();
        let mut period = Period {
            length,
            slept,
            sleeps: self.sleeps,
            throughout: slept >= length,
            traffic: traffic.since(self.before),
        };
        (self.begun, self.before) = (now, traffic);
        (self.slept, self.sleeps) = (Duration::ZERO, 0);
        let much = period.rate(period.traffic.frames_in) >= FEWEST;
        match much.then(work).flatten() {
            // One of them may be the only one that has to do with the network: its sleeps tell more then.
            Some(work) => period.slept = slept.min(self.usage.left(now, length, work)),
            None => self.usage = Usage::new(),
        }
        Some(period)
    }
}

#[cfg(test)]
mod tests;
