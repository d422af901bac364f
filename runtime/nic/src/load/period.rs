//! What happened between two looks.
use super::Traffic;
use skink_time::{Duration, Instant};

/// Frames in a second below which nobody is busy: two come until the timer is over.
pub(super) const FEWEST: u64 = 10_000;

/// The shortest period from which something is concluded.
const SHORTEST: Duration = Duration::from_micros(500);

/// What happened between two looks.
pub(super) struct Period {
    pub(super) length: Duration,
    /// Of it, how long nobody was awake: of several threads, in the mean of as many of them as could be awake at once.
    pub(super) slept: Duration,
    /// How often a thread fell asleep,
    pub(super) sleeps: u64,
    /// and how often while no other one slept: always, if there is one.
    pub(super) alone: u64,
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

/// What all threads of a process have worked so far.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Their processor time.
    pub time: Duration,
    /// On how many processors they may run.
    pub processors: u32,
}

/// What is known of a thread that waits for the network, between its sleeps. Each has one of its own, and one judge only.
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    /// The last period in which it woke or fell asleep.
    period: u64,
    /// When it woke. `None`: it sleeps, or never has.
    woke: Option<Instant>,
}

impl Thread {
    /// One that hasn't slept yet.
    pub const fn new() -> Thread {
        Thread {
            period: 0,
            woke: None,
        }
    }
}

impl Default for Thread {
    fn default() -> Thread {
        Thread::new()
    }
}

/// Cuts time into periods.
///
/// A thread counts in a period in which it woke or fell asleep: one that did neither may as well have left for other work, or wait for
/// something else. If none did, those that there are had no time to sleep.
///
/// Threads that never wait for the network may do what comes there (a pool of workers, and one that waits for all connections). So a
/// process has slept no longer than its processor time leaves.
pub(super) struct Periods {
    /// From 1: no thread has been seen in period 0.
    number: u64,
    begun: Instant,
    /// What had passed by then.
    before: Traffic,
    /// How long threads were awake, from the beginning until they fell asleep,
    worked: Duration,
    /// how many woke and haven't fallen asleep since, and how long after the beginning, added up.
    awake: u32,
    awake_after: Duration,
    /// Which threads count, and on which processors they woke, by their numbers modulo 64.
    threads: u32,
    processors: u64,
    sleeps: u64,
    alone: u64,
    /// How many sleep.
    asleep: u32,
    /// The processor time at the beginning, if it was asked for.
    work: Option<Duration>,
}

impl Periods {
    /// Of a process that has done nothing yet.
    pub(super) const fn new() -> Periods {
        Periods {
            number: 1,
            begun: Instant::ZERO,
            before: Traffic::NONE,
            worked: Duration::ZERO,
            awake: 0,
            awake_after: Duration::ZERO,
            threads: 0,
            processors: 0,
            sleeps: 0,
            alone: 0,
            asleep: 0,
            work: None,
        }
    }

    /// The thread goes to sleep where a frame wakes it.
    pub(super) fn falls_asleep(&mut self, thread: &mut Thread, now: Instant) {
        let woke = thread.woke.take().unwrap_or(self.begun).max(self.begun);
        self.worked += now.since(woke);
        if self.counts_already(thread) {
            self.awake = self.awake.saturating_sub(1);
            self.awake_after = self.awake_after.saturating_sub(woke.since(self.begun));
        }
        self.sleeps += 1;
        self.alone += u64::from(self.asleep == 0);
        self.asleep += 1;
    }

    /// It is awake, on this processor.
    pub(super) fn wakes(&mut self, thread: &mut Thread, processor: u32, now: Instant) {
        if thread.woke.is_some() {
            return;
        }
        self.counts_already(thread);
        thread.woke = Some(now);
        self.asleep = self.asleep.saturating_sub(1);
        self.awake += 1;
        self.awake_after += now.since(self.begun);
        self.processors |= 1_u64 << (processor % 64);
    }

    /// The thread counts in this period. Answers whether it did before.
    fn counts_already(&mut self, thread: &mut Thread) -> bool {
        let before = core::mem::replace(&mut thread.period, self.number) == self.number;
        self.threads += u32::from(!before);
        before
    }

    /// Ends a period, when `traffic` has passed in all. `None` if it is too short yet: it goes on. What the process has worked is asked
    /// only if that can matter.
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
        let ended = core::mem::replace(self, Periods::new());
        let mut period = Period {
            length,
            slept: ended.slept(length),
            sleeps: ended.sleeps,
            alone: ended.alone,
            traffic: traffic.since(ended.before),
        };
        (self.number, self.asleep) = (ended.number + 1, ended.asleep);
        (self.begun, self.before) = (now, traffic);
        let much = period.rate(period.traffic.frames_in) >= FEWEST;
        if let Some(work) = much.then(work).flatten() {
            if let Some(before) = ended.work {
                let processors = work.processors.max(ended.processors.count_ones()).max(1);
                let worked = work.time.saturating_sub(before) / processors;
                period.slept = period.slept.min(length.saturating_sub(worked));
            }
            self.work = Some(work.time);
        }
        Some(period)
    }

    /// How long nobody was awake, by what threads have told.
    fn slept(&self, length: Duration) -> Duration {
        if self.threads == 0 {
            return Duration::ZERO;
        }
        let at_once = self.threads.min(self.processors.count_ones()).max(1);
        let ongoing = (length * self.awake).saturating_sub(self.awake_after);
        length.saturating_sub((self.worked + ongoing) / at_once)
    }
}

#[cfg(test)]
mod tests;
