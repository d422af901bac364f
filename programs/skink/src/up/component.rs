//! One component's process: its life, and what is said to it.
mod ends;
mod shown;
pub mod upgrade;

use super::heart::Heart;
use super::plant::Prepared;
use crate::failure::Failure;
pub use ends::News;
use ends::{SHORTEST_PAUSE, STEADY};
use serde::{Deserialize, Serialize};
use skink_channel::SleeperDescriptors;
use skink_control::{
    ComponentProcess, Executable, FIRST_COMPONENT, LinkError, Order, Report, SignalDescriptor,
};
use skink_messages::Counters;
use skink_topology::Process;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant, SystemTime};
use upgrade::Upgrade;
pub use upgrade::Upgraded;

/// How long a process may take until it serves.
const START: Duration = Duration::from_secs(20);
/// Orders that wait. Each program causes at most a few, so more are a process that has stopped.
const MOST_ORDERS: usize = 16 * 1024;

#[derive(Serialize, Deserialize)]
enum State {
    /// To be started then.
    Waiting(#[serde(with = "skink_inherit::moments")] Instant),
    /// Was started then.
    Starting(#[serde(with = "skink_inherit::moments")] Instant),
    /// Serves since then.
    Serving(#[serde(with = "skink_inherit::moments")] Instant),
    /// Was killed, and will be started again.
    Dying,
    /// Won't be started again.
    Stopped,
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
#[derive(Serialize, Deserialize)]
pub struct Component {
    name: String,
    hosts: Vec<String>,
    cores: Vec<u16>,
    executable: Executable,
    /// Of the build that ran last.
    release: String,
    /// Another build that may take over.
    #[serde(skip)]
    upgrade: Option<Upgrade>,
    /// For tools.
    owner: u16,
    #[serde(with = "super::memory")]
    counters: Counters,
    /// How programs and neighbours wake it, whichever process it is.
    pub sleeper: SleeperDescriptors,
    state: State,
    process: Option<ComponentProcess>,
    /// It gets no order yet: nobody else knows of it.
    is_held: bool,
    #[serde(skip)]
    orders: VecDeque<(Order, Vec<OwnedFd>)>,
    pause: Duration,
    /// In a row.
    quick_ends: u32,
    is_failing: bool,
    #[serde(skip)]
    news: Option<News>,
    heart: Heart,
    /// Why it was killed.
    verdict: Option<String>,
    started: SystemTime,
    restarts: u64,
    last_end: Option<String>,
    sandbox: String,
    /// It isn't this program's yet.
    #[serde(skip, default = "lent")]
    is_lent: bool,
}

fn lent() -> bool {
    true
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
        let sleeper =
            SleeperDescriptors::create(&format!("skink-sleep-{}", place.name)).map_err(memory)?;
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
            is_lent: false,
        })
    }

    /// Whether nothing about it is under way.
    pub fn is_at_rest(&self) -> bool {
        let waits = self.is_held || !self.orders.is_empty() || self.verdict.is_some();
        self.serves() && self.upgrade.is_none() && self.news.is_none() && !waits
    }

    /// This program has inherited it, and can go on with it: only then dropping it ends its process.
    pub fn inherit(&mut self) {
        self.is_lent = false;
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

    /// Its counters, for tools.
    pub fn counters(&self) -> BorrowedFd<'_> {
        self.counters.fd()
    }

    /// How many processors it shares with all that it waits for: one, if it is pinned to one that another of `processes` is pinned to as
    /// well.
    pub fn processors(&self, processes: &[Component]) -> usize {
        let others = processes.iter().filter(|other| other.name != self.name);
        let shares = |other: &Component| other.cores == self.cores;
        match self.cores.len() == 1 && others.into_iter().any(shares) {
            true => 1,
            false => std::thread::available_parallelism().map_or(1, usize::from),
        }
    }

    /// Descriptors of what each process is handed: counters, sleeper.
    pub fn shared(&self) -> io::Result<Vec<OwnedFd>> {
        let (page, bell) = self.sleeper.sleeper()?;
        Ok(vec![self.counters.fd().try_clone_to_owned()?, page, bell])
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
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => break,
                    // Its end tells more.
                    io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {}
                    // For want of memory, or of room for descriptors that are under way. Without the order it would lack
                    // something for good; its successor is told all that there is.
                    _ => {
                        tracing::error!("{} can't be given an order: {error}", self.name);
                        self.orders.clear();
                        return self.condemn(&format!("it couldn't be given an order ({error})"));
                    }
                },
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
}

impl Drop for Component {
    /// A supervisor that gives up leaves nothing running.
    fn drop(&mut self) {
        if let Some(process) = &mut self.process
            && !self.is_lent
        {
            process.kill();
            process.wait();
        }
    }
}
