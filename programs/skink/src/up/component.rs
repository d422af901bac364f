//! One component's process: its life, and what is said to it.
mod upgrade;

use super::heart::{self, Heart};
use super::plant::Prepared;
use crate::failure::Failure;
use skink_channel::SleeperDescriptors;
use skink_control::{
    ComponentInfo, ComponentProcess, Executable, FIRST_COMPONENT, LinkError, Order, QueueInfo,
    Report, SignalDescriptor,
};
use skink_memory::CaptureRing;
use skink_messages::Counters;
use skink_topology::Process;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use upgrade::Upgrade;
pub use upgrade::Upgraded;

/// How long a process may take until it serves.
const START: Duration = Duration::from_secs(20);
/// Bounds of the pause before it is started again if it ended soon: it doubles with each such end.
/// Programs wait for ten seconds.
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A process that served this long ended by chance: connections wait for its successor, which is started
/// at once.
const LONG_LIFE: Duration = Duration::from_secs(1);
/// So many ends in a row, each soon after a start, are no chance: it can't stay up.
const MOST_QUICK_ENDS: u32 = 5;
/// One that couldn't stay up and has served this long does again.
const STEADY: Duration = Duration::from_secs(10);
/// Orders that wait. Each program causes at most a few, so more are a process that has stopped.
const MOST_ORDERS: usize = 16 * 1024;
const CAPTURE_BYTES: usize = 1 << 20;

enum State {
    /// To be started then.
    Waiting(Instant),
    /// Was started then.
    Starting(Instant),
    /// Serves since then.
    Serving(Instant),
    /// Was killed, and will be started again.
    Dying,
    /// Won't be started again.
    Stopped,
}

/// What a person should know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum News {
    /// It ends again and again.
    Failing,
    /// It doesn't any more.
    Steady,
}

/// What came of looking after the process.
pub enum Event {
    /// It serves.
    Started,
    /// It said something else.
    Said(Report, Vec<OwnedFd>),
    /// It has ended; why, in words.
    Ended(String),
}

/// One process of the stack, from start to start.
pub struct Component {
    name: String,
    hosts: Vec<String>,
    cores: Vec<u16>,
    executable: Executable,
    /// Of the build that ran last.
    release: String,
    /// Another build that may take over.
    upgrade: Option<Upgrade>,
    /// For tools.
    owner: u16,
    counters: Counters,
    capture: CaptureRing,
    /// How programs and neighbours wake it, whichever process it is.
    pub sleeper: SleeperDescriptors,
    state: State,
    process: Option<ComponentProcess>,
    /// It gets no order yet: nobody else knows of it.
    is_held: bool,
    orders: VecDeque<(Order, Vec<OwnedFd>)>,
    pause: Duration,
    /// In a row.
    quick_ends: u32,
    is_failing: bool,
    news: Option<News>,
    heart: Heart,
    /// Why it was killed.
    verdict: Option<String>,
    started: SystemTime,
    restarts: u64,
    last_end: Option<String>,
    sandbox: String,
}

impl Component {
    /// One that isn't running yet.
    pub fn new(
        place: &Process,
        number: u16,
        executable: &Executable,
    ) -> Result<Component, Failure> {
        let memory = |error: io::Error| {
            Failure::own(format!(
                "no shared memory can be made: {error}; is /proc mounted?"
            ))
        };
        let sleeper = SleeperDescriptors::create("skink-stack").map_err(memory)?;
        Ok(Component {
            heart: Heart::new(sleeper.pulse().map_err(memory)?),
            verdict: None,
            name: place.name.clone(),
            hosts: place.components.iter().map(ToString::to_string).collect(),
            cores: place.cores.clone(),
            executable: executable.clone(),
            release: String::new(),
            upgrade: None,
            owner: FIRST_COMPONENT.saturating_add(number),
            counters: Counters::create().map_err(memory)?,
            capture: CaptureRing::create(CAPTURE_BYTES).map_err(memory)?,
            sleeper,
            state: State::Waiting(Instant::now()),
            process: None,
            is_held: false,
            orders: VecDeque::new(),
            pause: SHORTEST_PAUSE,
            quick_ends: 0,
            is_failing: false,
            news: None,
            started: SystemTime::now(),
            restarts: 0,
            last_end: None,
            sandbox: String::new(),
        })
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Release of the build that runs, or ran last.
    pub fn release(&self) -> &str {
        &self.release
    }

    /// What it does, in a word.
    pub fn state(&self) -> &'static str {
        match self.state {
            State::Waiting(_) | State::Starting(_) if self.is_failing => "failing",
            State::Waiting(_) => "waiting",
            State::Starting(_) => "starting",
            State::Serving(_) => "running",
            State::Dying | State::Stopped => "stopping",
        }
    }

    /// Process id, if it runs.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(|process| process.child.id())
    }

    /// Whether it serves.
    pub fn serves(&self) -> bool {
        matches!(self.state, State::Serving(_))
    }

    /// What is to be polled: its link, whether also for room, and its end. The same of another build's
    /// process, while there is one beside it.
    pub fn descriptors(&self) -> impl Iterator<Item = (BorrowedFd<'_>, bool, BorrowedFd<'_>)> {
        let waits = !self.orders.is_empty();
        let own = self.process.as_ref().map(|process| (process, waits));
        let others = self.candidate().map(|process| (process, false));
        let all = own.into_iter().chain(others);
        all.map(|(process, waits)| (process.link.as_fd(), waits, process.ended.as_fd()))
    }

    /// Its counters and capture ring, for tools.
    pub fn memory(&self) -> (BorrowedFd<'_>, BorrowedFd<'_>) {
        (self.counters.fd(), self.capture.fd())
    }

    /// Descriptors of what each process is handed: counters, capture ring, sleeper.
    pub fn shared(&self) -> io::Result<Vec<OwnedFd>> {
        let (page, bell) = self.sleeper.sleeper()?;
        Ok(vec![
            self.counters.fd().try_clone_to_owned()?,
            self.capture.fd().try_clone_to_owned()?,
            page,
            bell,
        ])
    }

    /// Whether it is time to start the process.
    pub fn is_due(&self, now: Instant) -> bool {
        matches!(self.state, State::Waiting(until) if until <= now)
    }

    /// Starts the process if it is time to, with its first order. Answers when to call again at the
    /// latest; an error says why it can't be started.
    pub fn drive(
        &mut self,
        now: Instant,
        signals: &SignalDescriptor,
        prepared: Option<Prepared>,
    ) -> Result<Option<Instant>, String> {
        match self.state {
            State::Waiting(until) if until <= now => {
                // Without an order another process must say something first.
                let Some(prepared) = prepared else {
                    return Ok(None);
                };
                match prepared.and_then(|order| self.launch(now, signals, order)) {
                    Ok(()) => Ok(Some(now + START)),
                    Err(why) => {
                        self.last_end = Some(why.clone());
                        self.pause_from(now);
                        Err(why)
                    }
                }
            }
            State::Waiting(until) => Ok(Some(until)),
            State::Starting(since) => {
                let limit = match self.is_on_trial() {
                    true => upgrade::START,
                    false => START,
                };
                if now < since + limit {
                    return Ok(Some(since + limit));
                }
                // Its end is noticed by whoever polls.
                self.kill();
                self.state = State::Dying;
                let why = format!(
                    "it wasn't ready after {} s, and was killed",
                    limit.as_secs()
                );
                self.verdict = Some(why.clone());
                Err(why)
            }
            State::Serving(since) if self.is_failing => {
                let steady = since + STEADY;
                if steady <= now {
                    (self.is_failing, self.quick_ends) = (false, 0);
                    self.news = Some(News::Steady);
                }
                Ok(self.is_failing.then_some(steady))
            }
            State::Serving(_) | State::Dying | State::Stopped => Ok(None),
        }
    }

    fn launch(
        &mut self,
        now: Instant,
        signals: &SignalDescriptor,
        order: (Order, Vec<OwnedFd>),
    ) -> Result<(), String> {
        self.orders.clear();
        let process = match self.take_candidate() {
            Some(process) => process,
            None => self.spawn(&self.executable, signals)?,
        };
        self.process = Some(process);
        self.heart.start();
        self.state = State::Starting(now);
        self.started = SystemTime::now();
        self.orders.push_back(order);
        self.is_held = true;
        Ok(())
    }

    /// Whether it has been launched, and waits for [`Component::go_ahead`].
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// The supervisor's standby knows of the process, which gets its first order now. One without an order ends
    /// when the supervisor does.
    pub fn go_ahead(&mut self) {
        self.is_held = false;
        self.flush();
    }

    /// Ends a process of which it isn't known how far it is.
    pub fn give_up(&mut self, why: &str) {
        if self.process.is_some() && !matches!(self.state, State::Stopped) {
            self.is_held = false;
            self.verdict = Some(why.to_owned());
            self.kill();
        }
    }

    /// Gives an order, now or as soon as the process takes it. Without a process it is lost.
    pub fn order(&mut self, order: Order, descriptors: Vec<OwnedFd>) {
        if self.process.is_some() {
            self.orders.push_back((order, descriptors));
            self.flush();
        }
    }

    fn flush(&mut self) {
        let Some(process) = self.process.as_ref().filter(|_| !self.is_held) else {
            return;
        };
        while let Some((order, descriptors)) = self.orders.front() {
            let all: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
            match process.link.send(order, &all) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // Its end tells more.
                Err(error) => tracing::debug!("an order is lost: {error}"),
            }
            self.orders.pop_front();
        }
        if self.orders.len() > MOST_ORDERS {
            tracing::error!("{} takes no orders: it is killed", self.name);
            self.kill();
        }
    }

    /// Hears what the process says, sends it what waits, and notices its end.
    pub fn look(&mut self, now: Instant) -> Vec<Event> {
        let mut events = Vec::new();
        self.flush();
        // Bounded: the rest comes with the next look.
        for _ in 0..64 {
            let Some(process) = &self.process else {
                break;
            };
            match process.link.receive() {
                Ok(Some((Report::Born(build), _))) => self.release = build.release,
                Ok(Some((Report::Started { sandbox }, _))) => {
                    self.sandbox = sandbox;
                    self.state = State::Serving(now);
                    events.push(Event::Started);
                }
                Ok(Some((report, with))) => events.push(Event::Said(report, with)),
                Ok(None) | Err(LinkError::Closed) => break,
                Err(LinkError::Failed(what)) => {
                    tracing::error!("{} can't be understood ({what}): it is killed", self.name);
                    self.kill();
                    break;
                }
            }
        }
        let ended = self.process.as_mut().map(|process| process.try_wait());
        match ended {
            Some(Ok(Some(status))) => events.push(Event::Ended(self.bury(now, status))),
            Some(Ok(None)) | None => {}
            Some(Err(error)) => tracing::error!("can't wait for {}: {error}", self.name),
        }
        events
    }

    /// Takes leave of a process that has ended. Answers why it did.
    fn bury(&mut self, now: Instant, status: Option<ExitStatus>) -> String {
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

    fn pause_from(&mut self, now: Instant) {
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

    /// Kills a process that hangs. Its end is noticed by whoever polls.
    pub fn check_heart(&mut self, now: Instant) {
        if let (State::Serving(_), Some(pid), None) = (&self.state, self.pid(), &self.verdict)
            && let Some(why) = self.heart.check(now, || heart::condition(pid))
        {
            self.verdict = Some(format!("{why}, and was killed"));
            self.kill();
        }
    }

    /// Whether its process goes through its loop, or sleeps well.
    pub fn goes_on(&self) -> bool {
        self.serves() && self.heart.goes_on()
    }

    /// How long until it is started again.
    pub fn pause(&self, now: Instant) -> Option<Duration> {
        match self.state {
            State::Waiting(until) => Some(until.saturating_duration_since(now)),
            State::Starting(_) | State::Serving(_) | State::Dying | State::Stopped => None,
        }
    }

    /// Tells the process to end; it won't be started again.
    pub fn stop(&mut self) {
        self.state = State::Stopped;
        self.order(Order::Stop {}, Vec::new());
    }

    /// Ends the process without asking it.
    pub fn kill(&mut self) {
        if let Some(process) = &self.process {
            process.kill();
        }
    }

    /// For tools. `queues` is what waits for it.
    pub fn info(&self, queues: Vec<QueueInfo>) -> ComponentInfo {
        let started = self.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        ComponentInfo {
            owner: self.owner,
            name: self.name.clone(),
            components: self.hosts.clone(),
            cores: self.cores.clone(),
            release: self.release.clone(),
            executable: self.executable.name().display().to_string(),
            pid: self.pid(),
            state: self.state().to_owned(),
            started_ms: millis(started),
            restarts: self.restarts,
            last_end: self.last_end.clone(),
            starts_in_ms: self.pause(Instant::now()).map(millis),
            sandbox: self.sandbox.clone(),
            orders: self.orders.len(),
            queues,
        }
    }
}

impl Drop for Component {
    /// A supervisor that gives up leaves nothing running.
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            process.kill();
            let _ = process.child.wait();
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// How a process ended.
fn describe(status: Option<ExitStatus>) -> String {
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
