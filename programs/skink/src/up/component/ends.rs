//! How processes end, what is made of it, and when they are started again.
use super::{Component, State};
use crate::up::heart;
use skink_nic::Load;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// Bounds of the pause before it is started again if it ended soon: it doubles with each such end.
/// Programs wait for ten seconds.
pub(super) const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A process that served this long ended by chance: connections wait for its successor, which is started
/// at once.
const LONG_LIFE: Duration = Duration::from_secs(1);
/// So many ends in a row, each soon after a start, are no chance: it can't stay up.
const MOST_QUICK_ENDS: u32 = 5;
/// One that couldn't stay up and has served this long does again.
pub(super) const STEADY: Duration = Duration::from_secs(10);

/// What a person should know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum News {
    /// It ends again and again.
    Failing,
    /// It doesn't any more.
    Steady,
}

impl Component {
    /// Takes leave of a process that has ended. Answers why it did.
    pub(super) fn bury(&mut self, now: Instant, status: Option<ExitStatus>) -> String {
        self.process = None;
        self.is_held = false;
        self.orders.clear();
        let why = self.verdict.take().unwrap_or_else(|| describe(status));
        self.last_end = Some(why.clone());
        if matches!(self.state, State::Stopped) {
            return why;
        }
        let failed_trial = self.is_on_trial();
        self.judge(&why);
        if failed_trial || self.is_replaced() {
            self.state = State::Waiting(now);
            return why;
        }
        self.restarts += 1;
        let served = match self.state {
            State::Serving(since) => now.saturating_duration_since(since),
            _ => Duration::ZERO,
        };
        if served >= LONG_LIFE {
            self.pause = SHORTEST_PAUSE;
            self.quick_ends = 0;
            self.state = State::Waiting(now);
        } else {
            self.pause_from(now);
        }
        why
    }

    pub(super) fn pause_from(&mut self, now: Instant) {
        self.state = State::Waiting(now + self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        self.quick_ends = self.quick_ends.saturating_add(1);
        if self.quick_ends >= MOST_QUICK_ENDS && !self.is_failing {
            self.is_failing = true;
            self.news = Some(News::Failing);
        }
    }

    /// What a person hasn't been told yet.
    pub fn take_news(&mut self) -> Option<News> {
        self.news.take()
    }

    /// Why it ended last.
    pub fn last_end(&self) -> Option<&str> {
        self.last_end.as_deref()
    }

    /// Kills a process that hangs; `adopts` if it may be taking over programs. Its end is noticed by whoever polls.
    pub fn check_heart(&mut self, now: Instant, adopts: bool) {
        if let (State::Serving(_), Some(pid), None) = (&self.state, self.pid(), &self.verdict)
            && let Some(why) = self.heart.check(now, adopts, || heart::condition(pid))
        {
            self.condemn(&why);
        }
    }

    /// Kills the process, since it isn't in its right mind; why, in words.
    pub fn condemn(&mut self, why: &str) {
        self.verdict = Some(format!("{why}, and was killed"));
        self.kill();
    }

    /// Whether it was killed, and lives a moment longer.
    pub fn is_condemned(&self) -> bool {
        self.verdict.is_some()
    }

    /// Whether its process goes through its loop, or sleeps well.
    pub fn goes_on(&self) -> bool {
        self.serves() && self.heart.goes_on()
    }

    /// Whether its process has slept on since it was looked at before.
    pub fn is_quiet(&self) -> bool {
        self.serves() && self.heart.is_quiet()
    }

    /// How it uses the NIC, if it has it.
    pub fn load(&self) -> Load {
        match self.serves() && !self.is_condemned() {
            true => Load::from_bits(self.heart.note()),
            false => Load::default(),
        }
    }

    /// How long until it is started again.
    pub fn pause(&self, now: Instant) -> Option<Duration> {
        match self.state {
            State::Waiting(until) => Some(until.saturating_duration_since(now)),
            State::Starting(_) | State::Serving(_) | State::Dying | State::Stopped => None,
        }
    }
}

/// How a process ended.
pub(super) fn describe(status: Option<ExitStatus>) -> String {
    let Some(status) = status else {
        return "it ended while another supervisor was its parent".to_owned();
    };
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("it ended with exit code {code}"),
        (None, Some(libc::SIGSYS)) => {
            "its sandbox killed it for a system call that it doesn't allow (SIGSYS)".to_owned()
        }
        (None, Some(signal)) => format!("signal {signal} killed it"),
        (None, None) => "it ended".to_owned(),
    }
}
