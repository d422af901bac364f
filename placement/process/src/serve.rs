//! The event loop.
use crate::clock;
use crate::host::{Host, about};
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use skink_control::{ComponentLink, LinkError, Report};
use skink_messages::{Counter, Progress};
use skink_time::Instant;
use std::os::fd::AsFd;
use std::time::Duration;

/// Orders taken at one time.
const ORDERS: usize = 16;
/// Messages that make no sense, in a row: who sends nothing else is no supervisor.
const NONSENSE: usize = 16;
/// A loop that is never idle looks at the supervisor's link and at bells this often, in rounds.
const LOOK_EVERY: u32 = 32;
/// How long the process sleeps at most while output is stuck, or reports are.
const RETRY: Duration = Duration::from_millis(10);

/// Why the loop ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The supervisor said so.
    Stopped,
    /// The supervisor is gone, no program is left, and what they had written is sent.
    Deserted,
    /// A neighbour in another process has spoilt its queue to this one.
    Broken,
}

/// How a round of the loop went.
enum Round {
    Busy,
    Idle,
    Over(Ended),
}

/// Runs the stack for its programs until the supervisor says to stop.
///
/// Each round does, in bounded portions: orders, requests of programs in turn, frames from the NIC, whatever
/// is due in the components, notices. Without work it spins for a while if that has paid lately, and
/// then sleeps until a program rings, a frame or an order comes, or a timer is due.
///
/// If the supervisor dies, programs that are attached are served on until they end.
pub fn serve(host: Host, link: ComponentLink) -> Ended {
    let server = EventLoop {
        host,
        link: Some(link),
        orders_wait: true,
        events: Vec::with_capacity(64),
    };
    server.watch_link();
    server.run()
}

struct EventLoop {
    host: Host,
    /// `None` once the supervisor is gone.
    link: Option<ComponentLink>,
    /// The link may have something.
    orders_wait: bool,
    events: Vec<Event>,
}

impl EventLoop {
    fn watch_link(&self) {
        if let Some(link) = &self.link {
            let data = EventData::new_u64(about::LINK);
            if let Err(error) = epoll::add(&self.host.set, link.as_fd(), data, EventFlags::IN) {
                tracing::error!("orders of the supervisor can't be waited for: {error}");
            }
        }
    }

    fn run(mut self) -> Ended {
        let mut idle_since: Option<Instant> = None;
        let mut rounds = 0u32;
        loop {
            let now = clock::now();
            match self.round(now) {
                Round::Over(ended) => return ended,
                Round::Busy => {
                    if idle_since.take().is_some() {
                        self.host.spin.on_paid();
                    }
                    rounds = rounds.wrapping_add(1);
                    if rounds.is_multiple_of(LOOK_EVERY) {
                        self.wait(Some(Duration::ZERO));
                    }
                }
                Round::Idle => {
                    let since = *idle_since.get_or_insert(now);
                    let budget = Duration::from_nanos(self.host.spin.budget_ns());
                    if now.since(since) < budget {
                        std::hint::spin_loop();
                        continue;
                    }
                    idle_since = None;
                    self.sleep(now);
                }
            }
        }
    }

    fn round(&mut self, now: Instant) -> Round {
        let mut busy = false;
        if std::mem::take(&mut self.orders_wait) {
            match self.take_orders(now) {
                Ok(any) => busy |= any,
                Err(ended) => return Round::Over(ended),
            }
        }
        let host = &mut self.host;
        let alone = self.link.is_none() && host.programs.numbers.is_empty();
        if alone && host.stack.tcp_unfinished() == 0 {
            return Round::Over(Ended::Deserted);
        }
        busy |= host.serve_requests(now);
        let more = host.stack.poll(now) == Progress::More;
        busy |= host.stack.received() > 0;
        busy |= more && host.stack.send_blocked_on().is_none();
        while let Some((address, mac)) = host.stack.take_conflict() {
            tracing::warn!(
                "{mac} on the link has {address} too: give one of the two another address"
            );
        }
        if host.stack.is_broken() {
            tracing::error!("ip has spoilt its queue to this process, which ends");
            host.reports.push_back(Report::Broken {});
            self.send_reports();
            return Round::Over(Ended::Broken);
        }
        busy |= host.tell_programs(now);
        host.report_finished();
        match self.link {
            Some(_) => self.send_reports(),
            None => self.host.reports.clear(),
        }
        match busy {
            true => Round::Busy,
            false => Round::Idle,
        }
    }

    fn take_orders(&mut self, now: Instant) -> Result<bool, Ended> {
        let mut nonsense = 0;
        for taken in 0..ORDERS {
            let Some(link) = &self.link else {
                return Ok(false);
            };
            match link.receive() {
                Ok(Some((order, descriptors))) => {
                    if !self.host.order(now, order, descriptors) {
                        self.host.end(now);
                        return Err(Ended::Stopped);
                    }
                }
                Ok(None) => return Ok(taken > 0),
                Err(LinkError::Failed(what)) if nonsense < NONSENSE => {
                    nonsense += 1;
                    tracing::warn!("an order that makes no sense is ignored: {what}");
                }
                Err(LinkError::Failed(_) | LinkError::Closed) => {
                    self.desert();
                    return Ok(true);
                }
            }
        }
        self.orders_wait = true;
        Ok(true)
    }

    /// The supervisor is gone.
    fn desert(&mut self) {
        if let Some(link) = self.link.take() {
            let _ = epoll::delete(&self.host.set, link.as_fd());
        }
        self.host.reports.clear();
        self.host.watch_programs();
        let left = self.host.programs.numbers.len();
        tracing::warn!("the supervisor is gone; {left} programs are served on");
    }

    fn send_reports(&mut self) {
        while let (Some(link), Some(report)) = (&self.link, self.host.reports.front()) {
            match link.send(report, &[]) {
                Ok(()) => {
                    self.host.reports.pop_front();
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    tracing::warn!("a report to the supervisor is lost: {error}");
                    self.host.reports.pop_front();
                }
            }
        }
    }

    /// Sleeps until there may be something to do.
    fn sleep(&mut self, now: Instant) {
        let host = &mut self.host;
        let mut timeout = host.stack.next_deadline().map(|due| due.since(now));
        let blocked = host.stack.send_blocked_on().is_some();
        if blocked || !host.reports.is_empty() {
            let rest = timeout.filter(|due| !due.is_zero()).unwrap_or(RETRY);
            timeout = Some(rest.min(RETRY));
        }
        if timeout.is_some_and(|timeout| timeout.is_zero()) {
            return;
        }
        host.sleeper.announce();
        // What was published before the announcement rang nobody.
        let ready = host
            .programs
            .iter()
            .any(|it| !it.is_stuck() && it.server.is_ready());
        if ready || host.can_go_on() || host.stack.is_ready() {
            host.sleeper.awake();
            return;
        }
        if blocked {
            watch_blocked(host, true);
        }
        host.counters.count(Counter::SocketsSleeps);
        let asleep = clock::now();
        let rung = self.wait(timeout);
        let host = &mut self.host;
        match rung {
            true => host.sleeper.retract(),
            false => host.sleeper.awake(),
        }
        if blocked {
            watch_blocked(host, false);
        }
        let slept = clock::now().since(asleep).as_nanos();
        host.spin.on_slept(u64::try_from(slept).unwrap_or(u64::MAX));
    }

    /// Waits for descriptors, and notes what they are about. Answers whether the sleeper's bell was rung.
    fn wait(&mut self, timeout: Option<Duration>) -> bool {
        let mut rung = false;
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        self.events.clear();
        let room = rustix::buffer::spare_capacity(&mut self.events);
        match epoll::wait(&self.host.set, room, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => tracing::error!("waiting for descriptors failed: {error}"),
        }
        let mut ended = Vec::new();
        for event in self.events.drain(..) {
            match event.data.u64() {
                about::LINK => self.orders_wait = true,
                program @ 0..about::PROGRAMS => {
                    self.host.counters.count(Counter::SocketsRings);
                    let program = self.host.programs.get_mut(program as u32);
                    if let Some(program) = program {
                        program.server.hush();
                    }
                }
                gone @ about::GONE..about::END => ended.push((gone - about::GONE) as u32),
                about::BELL => rung = true,
                // The next round looks there anyway.
                about::NIC | about::BLOCKED => {}
                _ => {}
            }
        }
        for program in ended {
            self.host.detach(clock::now(), program);
        }
        rung
    }
}

/// Whether to be woken when the NIC has room again.
fn watch_blocked(host: &Host, on: bool) {
    let Some(fd) = host.stack.send_blocked_on() else {
        return;
    };
    let data = EventData::new_u64(about::BLOCKED);
    // If it fails the process looks by itself, after `RETRY`.
    let _ = match on {
        true => epoll::add(&host.blocked_set, fd, data, EventFlags::OUT),
        false => epoll::delete(&host.blocked_set, fd),
    };
}
