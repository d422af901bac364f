//! The event loop: hosts, wires and programs on virtual time.

use crate::connection::{Connection, Outcome, Side, Wake};
use crate::context::{Board, Context};
use crate::datagram::{DatagramClient, DatagramServer};
use crate::doom::Doom;
use crate::frame::Frame;
use crate::listener::Listener;
use crate::machine::Who;
use crate::narrows;
use crate::nic::NicHandle;
use crate::noise;
use crate::pinger::Pinger;
use crate::place::Place;
use crate::random::{Random, mix};
use crate::report::{self, Report};
use crate::scenario::{ConnectionPlan, Scenario, mac};
use crate::wire::Wire;
use skink_library::Protocol;
use skink_memory::{Region, SocketId};
use skink_messages::{Counters, Events, SocketEvent};
use skink_time::{Duration, Instant};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use opening::Opening;

mod crash;
mod death;
mod ending;
mod host;
mod opening;
mod parts;

/// Programs that aren't done by then hang.
const TIME_LIMIT: Instant = Instant::from_millis(2 * 3_600_000);
/// How long the stacks may take to forget everything after that (orphans retransmit for a while).
const DRAIN_LIMIT: Duration = Duration::from_secs(3600);
/// A run with more steps than this makes no headway.
const STEP_LIMIT: u64 = 5_000_000;
/// Events that a host may bring forth without time going on.
const EVENT_LIMIT: u32 = 20_000;
/// Clients look whether all servers are there after so long.
const PATIENCE: Duration = Duration::from_millis(1);
/// The pinger's place on the switch.
const PINGER: usize = usize::MAX;

enum Action {
    Arrive(usize, Frame),
    Poll(usize),
    Wake(usize, Wake),
    Start(usize),
    StartDatagrams(usize),
    Ping(u16),
    Noise,
    Kill,
    Crash(usize),
    Turn(usize, Who),
    Strike(usize),
    Succeed(usize, bool),
}

struct Entry {
    at: Instant,
    order: u64,
    action: Action,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

struct Host {
    stack: Place,
    /// The turns of components on their own.
    parts: parts::Turns,
    /// What its successors begin with.
    life: host::Life,
    doom: Doom,
    /// The crash that is under way, as an index into the scenario's.
    crash: Option<usize>,
    /// The programs that the stack hasn't forgotten, with their regions of TCP and UDP sockets.
    regions: Vec<(u32, Region, Region)>,
    /// Slots of sockets whose record was spoilt.
    spoilt: Vec<u32>,
    counters: Counters,
    nic: NicHandle,
    wire: Wire,
    lag_us: u64,
    next_poll: Option<Instant>,
    sockets: BTreeMap<(bool, SocketId), usize>,
    /// The program that was killed, and whether the stack has forgotten it since.
    dead: Option<u32>,
    finished: bool,
}

enum Program {
    Connection(Connection),
    Listener(Listener),
    DatagramClient(DatagramClient),
    DatagramServer(DatagramServer),
}

struct Resident {
    host: usize,
    /// Taken out while it runs.
    program: Option<Program>,
    /// It waits for its socket.
    opening: Option<Opening>,
}

/// A world in the middle of a run.
pub struct World {
    board: Board,
    now: Instant,
    order: u64,
    queue: BinaryHeap<Reverse<Entry>>,
    hosts: Vec<Host>,
    programs: Vec<Resident>,
    starts_left: usize,
    random: Random,
    pinger: Pinger,
    report: Report,
    verbose: bool,
    /// What noise is made of, and how often it was.
    last_frame: Vec<u8>,
    noises: u32,
}

impl World {
    /// A world at its beginning.
    pub fn new(scenario: Scenario, verbose: bool) -> World {
        let mut random = Random::new(mix(scenario.seed ^ 0x776f_726c_6400));
        let hosts = scenario.hosts.iter().enumerate();
        let hosts = hosts
            .map(|(index, plan)| Host::new(index, plan, &scenario, &mut random))
            .collect();
        let mut world = World {
            now: Instant::from_millis(1),
            order: 0,
            queue: BinaryHeap::new(),
            hosts,
            programs: Vec::new(),
            starts_left: scenario.connections.len(),
            random,
            pinger: Pinger::new(scenario.hosts.len()),
            report: Report::new(scenario.seed),
            verbose,
            last_frame: Vec::new(),
            noises: 0,
            board: Board {
                outcomes: vec![[None; 2]; scenario.connections.len()],
                given_up: vec![[None; 2]; scenario.connections.len()],
                failures: Vec::new(),
                wakes: Vec::new(),
                accepted: Vec::new(),
                datagrams_done: 0,
                killed: false,
                concluded: Instant::ZERO,
                spoilt: Vec::new(),
                scenario,
            },
        };
        world.populate();
        world
    }

    /// Starts the servers, and plans what the clients do.
    fn populate(&mut self) {
        for index in 0..self.hosts.len() {
            self.poll_by(index, self.now);
            self.plan_first_turns(index);
        }
        for index in 0..self.board.scenario.listeners.len() {
            let host = self.board.scenario.listeners[index].host;
            self.open(host, Opening::Listener(index));
        }
        for index in 0..self.board.scenario.datagrams.len() {
            let plan = self.board.scenario.datagrams[index].clone();
            self.open(plan.server, Opening::DatagramServer(index));
            match self.servers_are_open() {
                true => self.open(plan.client, Opening::DatagramClient(index)),
                false => self.schedule(self.now, Action::StartDatagrams(index)),
            }
        }
        for index in 0..self.board.scenario.connections.len() {
            let start = self.board.scenario.connections[index].start;
            self.schedule(start.max(self.now), Action::Start(index));
        }
        if self.board.scenario.noise_us > 0 {
            self.schedule(self.now, Action::Noise);
        }
        if let Some(death) = self.board.scenario.death {
            self.schedule(death.at.max(self.now), Action::Kill);
        }
        for index in 0..self.board.scenario.crashes.len() {
            let crash = self.board.scenario.crashes[index];
            if crash.step == 0 {
                self.schedule(crash.at.max(self.now), Action::Crash(index));
            }
        }
        self.plan_strikes();
        for number in 0..self.board.scenario.pings {
            let at = self.now + Duration::from_millis(u64::from(number) * 100);
            self.schedule(at, Action::Ping(number));
        }
    }

    /// Runs to the end.
    pub fn run(mut self) -> Report {
        let done = self.run_until(TIME_LIMIT, |world| world.programs_are_done());
        if !done {
            self.complain_about_hang();
        }
        self.report.done = self.board.concluded;
        self.close_servers();
        let limit = self.now + DRAIN_LIMIT;
        if done && !self.run_until(limit, |world| world.stacks_are_empty()) {
            self.complain_about_leaks();
        }
        report::judge(&mut self.board);
        if let Some(what) = self.pinger.verdict(&self.board.scenario) {
            self.board.failures.push(what);
        }
        self.report.ended = self.now;
        self.report.acts = self.hosts.iter().map(|host| host.doom.acts()).collect();
        self.report_turns();
        for host in &self.hosts {
            self.report.add_counters(&host.counters);
        }
        self.report.conclude(&self.board);
        self.report.look_at_records(&self.board);
        self.report
    }

    fn run_until(&mut self, limit: Instant, done: impl Fn(&mut World) -> bool) -> bool {
        let first = self.report.steps;
        while self.report.steps - first < STEP_LIMIT && self.board.failures.len() < 10 {
            if self.report.steps.is_multiple_of(64) && done(self) {
                return true;
            }
            // What lies beyond the limit stays: a host whose next poll was lost would never be polled again.
            let is_due = |Reverse(entry): &Reverse<Entry>| entry.at <= limit;
            if !self.queue.peek().is_some_and(is_due) {
                return done(self);
            }
            let Some(Reverse(entry)) = self.queue.pop() else {
                return done(self);
            };
            self.now = self.now.max(entry.at);
            self.report.steps += 1;
            for index in 0..self.board.scenario.crashes.len() {
                if self.board.scenario.crashes[index].step == self.report.steps {
                    self.crash(index);
                }
            }
            self.step(entry.action);
        }
        false
    }

    fn schedule(&mut self, at: Instant, action: Action) {
        self.order += 1;
        let order = self.order;
        self.queue.push(Reverse(Entry { at, order, action }));
    }

    fn step(&mut self, action: Action) {
        match action {
            Action::Arrive(PINGER, frame) => {
                if let Some(answer) = self.pinger.on_frame(&frame.bytes) {
                    self.switch(self.now, answer);
                }
            }
            Action::Arrive(host, frame) => {
                self.report.trace(self.now, host as u64, &frame.bytes);
                let there = &mut self.hosts[host];
                there.nic.deliver(self.now, frame);
                let lag = Duration::from_micros(self.random.range(0, there.lag_us));
                self.poll_by(host, self.now + lag);
            }
            Action::Poll(host) => {
                if self.hosts[host].next_poll != Some(self.now) {
                    // Another time was set since.
                    return;
                }
                self.hosts[host].next_poll = None;
                let up_from = self.hosts[host].nic.up_from();
                if self.now < up_from {
                    return self.poll_by(host, up_from);
                }
                let there = &mut self.hosts[host];
                if let Some(stack) = there.stack.whole() {
                    there.doom.set_works(true);
                    let _ = stack.poll(self.now);
                    let _ = self.revive_if_dead(host);
                    self.settle(host);
                }
            }
            Action::Turn(host, who) => self.turn(host, who),
            Action::Strike(plan) => self.strike(plan),
            Action::Succeed(plan, falls_back) => self.succeed(plan, falls_back),
            Action::Wake(number, wake) => {
                let host = self.programs[number].host;
                self.with_program(number, &mut |program, context| match program {
                    Program::Connection(connection) => connection.on_wake(context, wake),
                    Program::Listener(listener) => listener.on_wake(context),
                    Program::DatagramClient(client) => client.on_wake(context),
                    Program::DatagramServer(_) => {}
                });
                self.settle(host);
            }
            Action::Start(plan) => {
                let ConnectionPlan {
                    client: host,
                    program,
                    ..
                } = self.board.scenario.connections[plan];
                if !self.servers_are_open() {
                    return self.schedule(self.now + PATIENCE, Action::Start(plan));
                }
                self.starts_left -= 1;
                if self.hosts[host].dead == Some(program) {
                    let context = &mut self.context(host);
                    return context.conclude(plan, Side::Client, Outcome::Left);
                }
                self.open(host, Opening::Connection(plan));
                self.settle(host);
            }
            Action::StartDatagrams(plan) => {
                if !self.servers_are_open() {
                    return self.schedule(self.now + PATIENCE, Action::StartDatagrams(plan));
                }
                let host = self.board.scenario.datagrams[plan].client;
                self.open(host, Opening::DatagramClient(plan));
                self.settle(host);
            }
            Action::Noise => self.make_noise(),
            Action::Kill => self.kill(),
            Action::Crash(plan) => self.crash(plan),
            Action::Ping(number) => {
                for frame in self.pinger.pings(number) {
                    self.switch(self.now, frame);
                }
            }
        }
    }

    /// A hostile station: sends a mangled copy of the last frame, with right checksums or wrong ones.
    fn make_noise(&mut self) {
        let mangled = noise::mangle(&self.last_frame, &mut self.random);
        let host = self.random.range(0, self.hosts.len() as u64 - 1) as usize;
        self.schedule(self.now, Action::Arrive(host, mangled));
        self.noises += 1;
        if self.noises < 2000 {
            let longest = self.board.scenario.noise_us;
            let pause = Duration::from_micros(self.random.range(1, longest));
            self.schedule(self.now + pause, Action::Noise);
        }
    }

    fn poll_by(&mut self, host: usize, at: Instant) {
        let there = &mut self.hosts[host];
        if there.stack.apart().is_some() {
            return self.turn_by(host, Who::Link, at);
        }
        if there.next_poll.is_none_or(|planned| at < planned) {
            there.next_poll = Some(at);
            self.schedule(at, Action::Poll(host));
        }
    }

    /// After calls to a host's stack: programs get their events, frames leave, and the next poll
    /// is planned, all as a caller of [`Stack`] must do it.
    fn settle(&mut self, host: usize) {
        let mut events = 0;
        loop {
            if let Some((number, made, early)) = self.hosts[host].stack.take_opened() {
                self.opened(number, made, early);
                continue;
            }
            let Some(program) = self.hosts[host].stack.take_eventful() else {
                break;
            };
            while let Some((protocol, event)) = self.hosts[host].stack.take_event_of(program) {
                self.deliver_event(host, protocol, event);
                events += 1;
            }
            if events > EVENT_LIMIT {
                self.board.failures.push("events without end".to_owned());
                break;
            }
        }
        self.flush(host);
        self.take_finished(host);
        if self.hosts[host].nic.unflushed() > 0 {
            let what = format!("host {host}: frames are left after a flush");
            self.board.failures.push(what);
        }
        self.transmit(host);
        self.plan_poll(host);
        for (at, program, wake) in std::mem::take(&mut self.board.wakes) {
            self.schedule(at, Action::Wake(program, wake));
        }
    }

    /// What was asked of a whole stack leaves.
    fn flush(&mut self, host: usize) {
        let there = &mut self.hosts[host];
        if let Some(apart) = there.stack.apart() {
            apart.flush(self.now);
        }
        let Some(stack) = there.stack.whole() else {
            return;
        };
        there.doom.set_works(true);
        stack.flush();
        if self.revive_if_dead(host)
            && let Some(stack) = self.hosts[host].stack.whole()
        {
            // What is said of connections that are given up.
            stack.flush();
        }
    }

    fn plan_poll(&mut self, host: usize) {
        let there = &mut self.hosts[host];
        let more = there.nic.has_inbound();
        let Some(stack) = there.stack.whole() else {
            return self.plan_turns(host);
        };
        if let Some(deadline) = stack.next_deadline() {
            let lag = self.random.range(1, 50);
            let soonest = self.now + Duration::from_micros(lag);
            self.poll_by(host, deadline.max(soonest));
        }
        if more {
            let lag = Duration::from_micros(self.random.range(1, 50));
            self.poll_by(host, self.now + lag);
        }
    }

    fn transmit(&mut self, host: usize) {
        let there = &mut self.hosts[host];
        if let Some(what) = there.nic.complaint() {
            let what = format!("host {host} sent {what}");
            self.board.failures.push(what);
        }
        let mut leaving = Vec::new();
        for frame in there.nic.take_outbound() {
            if self.verbose {
                println!("{:?} sent: {}", self.now, crate::describe::frame(&frame));
            }
            let each = &mut |at, frame| leaving.push((at, frame));
            there.wire.send(self.now, frame, each);
        }
        for (at, frame) in leaving {
            self.switch(at, frame);
        }
    }

    /// The switch: to the host with the address, or to all but the sender.
    fn switch(&mut self, at: Instant, frame: Frame) {
        if frame.bytes.len() < 14 {
            self.board.failures.push("a frame without a header".into());
            return;
        }
        let (at, frame) = match self.board.scenario.path_mtu {
            Some(mtu) => match narrows::refuse(&frame, mtu) {
                Some(error) => (at + Duration::from_micros(50), error),
                None => (at, frame),
            },
            None => (at, frame),
        };
        let (to, from) = (&frame.bytes[0..6], &frame.bytes[6..12]);
        let group = to[0] & 1 != 0;
        let hosts = 0..self.hosts.len();
        let mut places: Vec<usize> = hosts
            .filter(|host| mac(*host).0 == to || (group && mac(*host).0 != from))
            .collect();
        if Pinger::MAC.0 == to || (group && Pinger::MAC.0 != from) {
            places.push(PINGER);
        }
        self.report.frames += 1;
        self.last_frame.clone_from(&frame.bytes);
        if self.verbose {
            println!("{at:?} arrives: {}", crate::describe::frame(&frame));
        }
        for place in places {
            self.schedule(at, Action::Arrive(place, frame.clone()));
        }
    }

    fn deliver_event(&mut self, host: usize, protocol: Protocol, event: SocketEvent) {
        let key = (protocol == Protocol::Udp, event.socket);
        if self.hosts[host].dead == Some(self.hosts[host].program_of(key)) {
            let what = format!("host {host}: {event:?} of {protocol:?} for a program that is dead");
            self.board.failures.push(what);
        }
        let Some(number) = self.hosts[host].sockets.get(&key).copied() else {
            // A socket that isn't accepted yet, or was closed since.
            return;
        };
        self.with_program(number, &mut |program, context| match program {
            Program::Connection(connection) => connection.on_event(context, event.events),
            Program::Listener(listener) => listener.on_event(context, event.events),
            Program::DatagramClient(client) => client.on_event(context, event.events),
            Program::DatagramServer(server) => server.on_event(context, event.events),
        });
    }

    fn with_program(&mut self, number: usize, act: &mut dyn FnMut(&mut Program, &mut Context<'_>)) {
        let host = self.programs[number].host;
        let Some(mut program) = self.programs[number].program.take() else {
            return;
        };
        act(&mut program, &mut self.context(host));
        let over = match &program {
            Program::Connection(connection) => connection.is_over(),
            Program::Listener(_) | Program::DatagramClient(_) | Program::DatagramServer(_) => false,
        };
        if over {
            let socket = program.socket();
            self.hosts[host].sockets.remove(&(false, socket));
        } else {
            self.programs[number].program = Some(program);
        }
        for socket in std::mem::take(&mut self.board.accepted) {
            self.launch(host, |context, number| {
                let connection = Connection::accepted(context, number, socket);
                Some(Program::Connection(connection))
            });
            let number = self.programs.len() - 1;
            self.with_program(number, &mut |program, context| {
                if let Program::Connection(connection) = program {
                    connection.on_event(context, Events::empty());
                }
            });
        }
    }

    fn context(&mut self, host: usize) -> Context<'_> {
        Context {
            now: self.now,
            random: &mut self.random,
            board: &mut self.board,
            stack: &mut self.hosts[host].stack,
        }
    }

    fn launch(
        &mut self,
        host: usize,
        make: impl FnOnce(&mut Context<'_>, usize) -> Option<Program>,
    ) {
        let number = self.programs.len();
        self.programs.push(Resident {
            host,
            program: None,
            opening: None,
        });
        let program = make(&mut self.context(host), number);
        self.settle_in(number, program);
    }

    fn settle_in(&mut self, number: usize, program: Option<Program>) {
        let resident = &mut self.programs[number];
        if let Some(program) = &program {
            let key = (program.is_udp(), program.socket());
            self.hosts[resident.host].sockets.insert(key, number);
        }
        resident.program = program;
    }

    fn close_servers(&mut self) {
        for number in 0..self.programs.len() {
            let host = self.programs[number].host;
            self.with_program(number, &mut |program, context| match program {
                Program::Listener(listener) => listener.close(context),
                Program::DatagramClient(client) => client.close(context),
                Program::DatagramServer(server) => server.close(context),
                Program::Connection(_) => {}
            });
            self.settle(host);
        }
    }
}

impl Program {
    fn socket(&self) -> SocketId {
        match self {
            Program::Connection(program) => program.socket(),
            Program::Listener(program) => program.socket(),
            Program::DatagramClient(program) => program.socket(),
            Program::DatagramServer(program) => program.socket(),
        }
    }

    fn is_udp(&self) -> bool {
        match self {
            Program::Connection(_) | Program::Listener(_) => false,
            Program::DatagramClient(_) | Program::DatagramServer(_) => true,
        }
    }
}
