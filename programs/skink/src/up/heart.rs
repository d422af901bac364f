//! Whether a process still goes through its loop, or hangs (NewtOS, section 2.4.4; heartbeats).
//!
//! Each process counts the rounds of its loop in its sleeper's page, and says there when it sleeps. One
//! that is awake and doesn't count, or sleeps on though it was rung, hangs, unless it just gets no processor.
use serde::{Deserialize, Serialize};
use skink_channel::{Beat, Pulse};
use std::io::Read as _;
use std::time::{Duration, Instant};

/// How often processes are looked at.
pub const INTERVAL: Duration = Duration::from_millis(50);
/// How often, if all have slept on since they were looked at last: most of what an idle stack costs is to look.
pub const QUIET_INTERVAL: Duration = Duration::from_millis(100);
/// Of a process that sleeps well the kernel is asked only each so many times: it may be stopped, but nobody
/// misses it.
const SELDOM: u32 = 10;

/// How long a process may go without a sign of life.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct Patience {
    /// One that is stopped.
    stopped: Duration,
    /// One that waits for something.
    waiting: Duration,
    /// One that waits for a disk or the like, which can't be interrupted.
    uninterruptible: Duration,
    /// One that runs, in processor time: it may have to wait for a processor.
    busy: Duration,
}

impl Patience {
    /// With a process of the stack: programs wait for it.
    const COMPONENT: Patience = Patience {
        stopped: Duration::from_millis(100),
        waiting: Duration::from_millis(100),
        uninterruptible: Duration::from_secs(2),
        busy: Duration::from_millis(80),
    };
    /// With one that takes over programs, in processor time: it does so within a round of its loop, in which it shows no sign of
    /// life, and the more connections there are the longer it takes.
    const ADOPTING: Duration = Duration::from_secs(3);
    /// With a supervisor: traffic doesn't need it, and a driver may take a while to open a NIC.
    const SUPERVISOR: Patience = Patience {
        stopped: Duration::from_secs(1),
        waiting: Duration::from_secs(5),
        uninterruptible: Duration::from_secs(30),
        busy: Duration::from_secs(3),
    };
}

/// Watches over one process.
#[derive(Serialize, Deserialize)]
pub struct Heart {
    #[serde(with = "skink_inherit::descriptors")]
    pulse: Pulse,
    patience: Patience,
    #[serde(skip)]
    last: Option<Sign>,
    /// How often it was found asleep.
    #[serde(skip)]
    naps: u32,
    /// What it showed last.
    #[serde(skip)]
    shown: Option<Beat>,
    #[serde(skip)]
    goes_on: bool,
    #[serde(skip)]
    is_quiet: bool,
}

/// When it was first seen awake without having gone on since.
#[derive(Clone, Copy)]
struct Sign {
    beat: Beat,
    at: Instant,
    /// What it had used of processors.
    used: Duration,
}

/// What the kernel says of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Condition {
    /// As in /proc/PID/stat.
    pub state: char,
    /// Processor time.
    pub used: Duration,
}

impl Heart {
    /// Of a process of the stack.
    pub fn new(pulse: Pulse) -> Heart {
        Heart::with(pulse, Patience::COMPONENT)
    }

    /// Of a supervisor, which never says that it sleeps: it wakes every [`QUIET_INTERVAL`] at least.
    pub fn of_supervisor(pulse: Pulse) -> Heart {
        Heart::with(pulse, Patience::SUPERVISOR)
    }

    fn with(pulse: Pulse, patience: Patience) -> Heart {
        Heart {
            pulse,
            patience,
            last: None,
            naps: 0,
            shown: None,
            goes_on: false,
            is_quiet: false,
        }
    }

    /// Another process has the page from now on.
    pub fn start(&mut self) {
        self.last = None;
        self.shown = None;
        self.goes_on = false;
        self.is_quiet = false;
    }

    /// Whether it had gone on when it was looked at last, or slept and nobody had rung.
    pub fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// Whether it had slept on since the time before, and nobody had rung, when it was looked at last.
    pub fn is_quiet(&self) -> bool {
        self.is_quiet
    }

    /// What the process tells whoever watches it.
    pub fn note(&self) -> u64 {
        self.pulse.note()
    }

    /// Looks at it; `adopts` if it may be taking over programs. Answers what is wrong, if something is.
    pub fn check(
        &mut self,
        now: Instant,
        adopts: bool,
        condition: impl FnOnce() -> Option<Condition>,
    ) -> Option<String> {
        let beat = self.pulse.look();
        let sleeps = beat.asleep && !self.pulse.is_rung();
        let shown = self.shown.replace(beat);
        self.goes_on = sleeps || shown.is_some_and(|shown| shown.count != beat.count);
        let is_still = shown.is_some_and(|shown| shown.count == beat.count);
        self.is_quiet = sleeps && is_still && self.last.is_none();
        self.naps = self.naps.wrapping_add(1);
        if sleeps && self.last.is_none() && !self.naps.is_multiple_of(SELDOM) {
            return None;
        }
        let busy = if adopts {
            self.patience.busy.max(Patience::ADOPTING)
        } else {
            self.patience.busy
        };
        self.judge(now, beat, (sleeps, busy), condition)
    }

    fn judge(
        &mut self,
        now: Instant,
        beat: Beat,
        (sleeps, busy): (bool, Duration),
        condition: impl FnOnce() -> Option<Condition>,
    ) -> Option<String> {
        let condition = condition()?;
        // Who sleeps well may be stopped all the same.
        if sleeps && condition.state != 'T' {
            self.last = None;
            return None;
        }
        let Some(last) = self.last.filter(|last| last.beat == beat) else {
            let used = condition.used;
            self.last = Some(Sign {
                beat,
                at: now,
                used,
            });
            return None;
        };
        let silent = now.saturating_duration_since(last.at);
        let hangs = match condition.state {
            'T' => silent >= self.patience.stopped,
            'S' => silent >= self.patience.waiting,
            'D' => silent >= self.patience.uninterruptible,
            'R' => condition.used.saturating_sub(last.used) >= busy,
            // It is being looked at with a debugger, or ends.
            _ => false,
        };
        let what = match condition.state {
            'T' => "is stopped",
            'S' | 'D' => "waits for something that doesn't come",
            _ => "runs in circles",
        };
        let millis = silent.as_millis();
        hangs.then(|| format!("it hung: it {what}, without a sign of life for {millis} ms"))
    }
}

/// What the kernel says of a process; None if it has ended.
pub fn condition(pid: u32) -> Option<Condition> {
    // It is one line. To ask for its length first, and for its end, takes as long as the rest.
    let mut line = [0; 1024];
    let mut file = std::fs::File::open(format!("/proc/{pid}/stat")).ok()?;
    let length = file.read(&mut line).ok()?;
    parse(core::str::from_utf8(line.get(..length)?).ok()?)
}

/// See proc_pid_stat(5).
fn parse(stat: &str) -> Option<Condition> {
    // The name before may have spaces and parentheses in it.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    // Fields 3, 14 and 15; the times are in hundredths of a second.
    let number = |at: usize| fields.get(at - 3)?.parse::<u64>().ok();
    let ticks = number(14)?.saturating_add(number(15)?);
    Some(Condition {
        state: fields.first()?.chars().next()?,
        used: Duration::from_millis(ticks.saturating_mul(10)),
    })
}

#[cfg(test)]
mod tests;
