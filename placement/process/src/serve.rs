//! The event loop.
use crate::clock;
use crate::host::{Host, Life, about};
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec};
use skink_control::{ComponentLink, LinkError, Part, Report};
use skink_messages::{Counter, Progress};
use skink_nic::Room;
use skink_split::Host as _;
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
/// For how long a process that is to stop goes on delivering what its programs had written.
const FAREWELL: Duration = Duration::from_millis(500);
/// While the supervisor is gone: how often to look whether the stack is needed.
const LOOK: Duration = Duration::from_secs(1);

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

/// Runs a stack, or components of one, until the supervisor says to stop.
///
/// Each round does, in bounded portions: orders, requests of programs in turn, calls of `syscall`, frames from
/// the NIC or messages of neighbours, whatever is due in the components, notices. Without work it spins for a while if that has paid lately, and
/// then sleeps until a program rings, a frame or an order comes, or a timer is due.
///
/// If the supervisor dies, programs that are attached are served on until they end. Components that no program
/// has a channel to go on until all that serve programs have ended.
pub fn serve(host: Host, link: ComponentLink) -> Ended {
    let server = EventLoop {
        host,
        link: Some(link),
        orders_wait: true,
        is_called: false,
        stops_by: None,
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
    /// A program or another process of the stack has rung since the process went to sleep.
    is_called: bool,
    /// Until when the stack, which is to stop, delivers what programs had written.
    stops_by: Option<Instant>,
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
            self.host.sleeper.beat();
            let round = self.round(now);
            self.host.note_round(now, matches!(round, Round::Idle));
            match round {
                Round::Over(ended) => return ended,
                Round::Busy => {
                    if idle_since.take().is_some() {
                        self.host.spin.on_paid();
                    }
                    rounds = rounds.wrapping_add(1);
                    if rounds.is_multiple_of(LOOK_EVERY) {
                        self.host.count_dropped();
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
            busy |= self.take_orders(now);
        }
        let host = &mut self.host;
        if self.link.is_none() && is_over(host) {
            return Round::Over(Ended::Deserted);
        }
        if host.is_held {
            self.tell_supervisor();
            if self.stops_by.is_some() {
                return Round::Over(Ended::Stopped);
            }
            return match busy {
                true => Round::Busy,
                false => Round::Idle,
            };
        }
        busy |= host.inner.is_ready();
        let turn = host.front.turn(now);
        busy |= turn.busy;
        let more = turn.more | (host.inner.poll(now) == Progress::More);
        busy |= more && host.nic_wants().1.is_none();
        host.clear_programs();
        while let Some((address, mac)) = host.front.stack.whole().and_then(|it| it.take_conflict())
        {
            tracing::warn!(
                "{mac} on the link has {address} too: give one of the two another address"
            );
        }
        if host.is_broken() {
            tracing::error!("a neighbour has spoilt its queue to this process, which ends");
            host.reports.push_back(Report::Broken {});
            self.send_reports();
            return Round::Over(Ended::Broken);
        }
        host.report_finished();
        if self.link.is_some() {
            host.report_lasting_flows(now);
        }
        self.tell_supervisor();
        if let Some(by) = self.stops_by
            && self.has_taken_leave(now, by, busy)
        {
            return Round::Over(Ended::Stopped);
        }
        match busy {
            true => Round::Busy,
            false => Round::Idle,
        }
    }

    /// Whether a process that is to stop has delivered everything, or told the peers of what it had no time for.
    fn has_taken_leave(&mut self, now: Instant, by: Instant, busy: bool) -> bool {
        let host = &mut self.host;
        let stack = &host.front.stack;
        let delivered = match now < by {
            true => !busy && stack.unfinished() == 0 && stack.half_closed() == 0,
            false => host.front.reset_unfinished(now) == Progress::Idle,
        };
        let all_left = !host.inner.has_waiting() && host.nic_wants().1.is_none();
        (delivered && all_left) || now >= by + FAREWELL
    }

    fn take_orders(&mut self, now: Instant) -> bool {
        let mut nonsense = 0;
        for taken in 0..ORDERS {
            let Some(link) = &self.link else {
                return false;
            };
            match link.receive() {
                Ok(Some((order, descriptors))) => {
                    if !self.host.order(now, order, descriptors) && self.stops_by.is_none() {
                        self.host.front.end(now);
                        self.host.clear_programs();
                        self.stops_by = Some(now + FAREWELL);
                    }
                }
                Ok(None) => return taken > 0,
                Err(LinkError::Failed(what)) if nonsense < NONSENSE => {
                    nonsense += 1;
                    tracing::warn!("an order that makes no sense is ignored: {what}");
                }
                Err(LinkError::Failed(_) | LinkError::Closed) => {
                    self.desert();
                    return true;
                }
            }
        }
        self.orders_wait = true;
        true
    }

    /// The supervisor is gone.
    fn desert(&mut self) {
        if let Some(link) = self.link.take() {
            let _ = epoll::delete(&self.host.set, link.as_fd());
        }
        self.host.reports.clear();
        self.host.front.is_supervised = false;
        self.host.watch_programs();
        // Nobody else would say so.
        for part in Part::ALL {
            self.host.go(part);
        }
        let left = self.host.front.programs.numbers.len();
        tracing::warn!("the supervisor is gone; {left} programs are served on");
    }

    fn tell_supervisor(&mut self) {
        match self.link {
            Some(_) => self.send_reports(),
            None => self.host.reports.clear(),
        }
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

    /// How long to sleep at most; `None` if only others can wake the process.
    fn timeout(&self, now: Instant) -> Option<Duration> {
        let host = &self.host;
        let due = [
            host.front.next_deadline(),
            host.inner.next_deadline(),
            host.lasting.due.filter(|_| self.link.is_some()),
        ];
        let due = due.into_iter().flatten().min();
        let due = due.filter(|_| !host.is_held);
        let mut timeout = due.map(|due| due.since(now));
        let retry = match host.nic_wants().1 {
            Some(Room::Untold(again)) => Some(again),
            Some(Room::At(_)) => Some(RETRY),
            None => (!host.reports.is_empty()).then_some(RETRY),
        };
        if let Some(retry) = retry {
            let rest = timeout.filter(|due| !due.is_zero()).unwrap_or(retry);
            timeout = Some(rest.min(retry));
        }
        let looks = [
            self.link.is_none().then_some(LOOK),
            self.stops_by.map(|by| by.since(now).max(RETRY)),
            host.nic_use.longest_sleep(),
        ];
        for look in looks.into_iter().flatten() {
            timeout = Some(timeout.map_or(look, |timeout| timeout.min(look)));
        }
        timeout
    }

    /// Sleeps until there may be something to do.
    fn sleep(&mut self, now: Instant) {
        let timeout = self.timeout(now);
        let host = &mut self.host;
        let (reads, blocked) = host.nic_wants();
        let blocked = blocked.is_some();
        if timeout.is_some_and(|timeout| timeout.is_zero()) {
            return;
        }
        host.sleeper.announce();
        // What was published before the announcement rang nobody.
        if host.has_work() {
            host.sleeper.awake();
            return;
        }
        host.watch_nic(reads);
        if blocked {
            watch_blocked(host, true);
        }
        host.count_dropped();
        host.counters.count(Counter::SocketsSleeps);
        self.is_called = false;
        let asleep = clock::now();
        host.nic_use.falls_asleep(asleep);
        let rung = self.wait(timeout);
        let woken = clock::now();
        let host = &mut self.host;
        if self.is_called {
            host.nic_use.is_called(woken);
        }
        match rung {
            true => host.sleeper.retract(),
            false => host.sleeper.awake(),
        }
        if blocked {
            watch_blocked(host, false);
        }
        let slept = woken.since(asleep).as_nanos();
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
                    self.is_called = true;
                    self.host.counters.count(Counter::SocketsRings);
                    self.host.front.hush(program as u32);
                }
                gone @ about::GONE..about::END => ended.push((gone - about::GONE) as u32),
                about::BELL if { event.flags }.contains(EventFlags::IN) => {
                    (rung, self.is_called) = (true, true);
                }
                // Nobody is left who could ring.
                about::BELL => {
                    let _ = epoll::delete(&self.host.set, self.host.sleeper.bell());
                }
                // The next round looks there anyway.
                about::NIC | about::BLOCKED => {}
                _ => {}
            }
        }
        for program in ended {
            self.host.front.program_ended(clock::now(), program);
            self.host.clear_programs();
        }
        rung
    }
}

impl Host {
    /// Whether somebody has sent something, or made room for what there was none for.
    fn has_work(&self) -> bool {
        if self.is_held {
            return false;
        }
        self.front.is_ready() || self.inner.is_ready()
    }

    /// Whether a neighbour has spoilt its queue.
    fn is_broken(&self) -> bool {
        self.front.broken().is_some() || self.inner.is_broken()
    }

    /// Whether to be woken by what the NIC receives.
    fn watch_nic(&mut self, wanted: bool) {
        if self.watches_arrivals == wanted {
            return;
        }
        self.watches_arrivals = wanted;
        let flags = match wanted {
            true => EventFlags::IN,
            false => EventFlags::empty(),
        };
        let data = EventData::new_u64(about::NIC);
        if let Err(error) = epoll::modify(&self.set, &self.arrival_set, data, flags) {
            tracing::error!("the NIC can't be waited for: {error}");
        }
    }
}

/// Whether a process without a supervisor is needed no more: by no program, and by no other process that
/// programs need.
fn is_over(host: &mut Host) -> bool {
    let front = &host.front;
    if !front.programs.numbers.is_empty() || front.stack.unfinished() > 0 || front.is_called() {
        return false;
    }
    let Some(Life { reading, writing }) = &mut host.life else {
        return true;
    };
    *writing = None;
    let mut all = [PollFd::from_borrowed_fd(
        reading.as_fd(),
        PollFlags::empty(),
    )];
    let none = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let polled = rustix::event::poll(&mut all, Some(&none));
    let alone = polled.is_ok() && all.iter().any(|fd| fd.revents().contains(PollFlags::HUP));
    // What `syscall` has asked for since its last program ended was asked before it let go of the pipe.
    alone && !host.front.is_called()
}

/// Whether to be woken when the NIC has room again.
fn watch_blocked(host: &Host, on: bool) {
    let Some(fd) = host.nic_wants().1.and_then(Room::descriptor) else {
        return;
    };
    let data = EventData::new_u64(about::BLOCKED);
    // If it fails the process looks by itself, after `RETRY`.
    let _ = match on {
        true => epoll::add(&host.blocked_set, fd, data, EventFlags::OUT),
        false => epoll::delete(&host.blocked_set, fd),
    };
}

#[cfg(test)]
mod tests;
