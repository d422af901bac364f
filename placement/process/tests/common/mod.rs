//! A stack that serves programs, in a thread; the programs and a peer on the other end of its link are
//! the test's own.
#![allow(dead_code, reason = "not every test needs all of it")]

pub mod split;

use rustix::event::{PollFd, PollFlags, Timespec};
use skink_channel::SleeperDescriptors;
use skink_control::{
    ComponentLink, LinkError, Order, Report, StackStart, SupervisorLink, TableSize, link,
};
use skink_library::{Stack, StackConfig};
use skink_memory::{Region, SocketId, SocketTable, TableConfig};
use skink_messages::{Counter, Counters, Progress, SoleOwner, TcpRequest};
use skink_nic::MemoryConfig;
use skink_process::{Ended, Host, Parts, serve};
use skink_sockets::{
    Answer, Attachment, BindOptions, ChannelParts, Client, ClientError, Protocol, RequestBody,
};
use skink_time::Instant;
use skink_wire::Endpoint;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant as Clock};

pub const OURS: &str = "10.9.0.1";
pub const PEERS: &str = "10.9.0.2";
const PATIENCE: Duration = Duration::from_secs(60);
const SECRET: u64 = 0x5ec7_e700;

pub const TABLE: TableSize = TableSize {
    sockets: 64,
    send_bytes: 16 * 1024,
    receive_bytes: 16 * 1024,
};

pub fn end(address: &str, port: u16) -> Endpoint {
    Endpoint::new(address.parse::<IpAddr>().expect("an address"), port)
}

/// The stack under test, its supervisor's link, and a peer.
pub struct World {
    pub link: SupervisorLink,
    pub peer: Peer,
    pub counters: Counters,
    pub reports: VecDeque<Report>,
    sleeper: Arc<SleeperDescriptors>,
    thread: Option<JoinHandle<Ended>>,
    /// The TCP regions of programs that were attached, if others need them.
    pub mapped: Option<Vec<(u32, Region)>>,
}

pub fn start(rules: &str) -> StackStart {
    StackStart {
        process: "stack".into(),
        user: None,
        addresses: vec![format!("{OURS}/24").parse().expect("an address")],
        gateways: Vec::new(),
        seed: 7,
        nic: String::new(),
        nic_descriptors: 0,
        owner: None,
        tcp_table: TABLE,
        udp_table: TABLE,
        interface: "eth0".into(),
        rules: rules.into(),
    }
}

impl World {
    pub fn new() -> World {
        World::with_rules("")
    }

    pub fn with_rules(rules: &str) -> World {
        let (ours, theirs) = skink_nic::pair(MemoryConfig::default()).expect("a link in memory");
        let counters = Counters::create().expect("memory");
        let sleeper = SleeperDescriptors::create("stack").expect("memory");
        let parts = Parts {
            start: start(rules),
            nic: ours,
            ports: Box::new(SoleOwner),
            counters: counters.clone(),
            capture: None,
            sleeper: sleeper.sleeper().expect("descriptors"),
            first_unprivileged_port: 1024,
        };
        let (supervisor, component) = link().expect("sockets");
        let host = Host::new(parts).expect("a host");
        let thread = std::thread::spawn(move || serve(host, ComponentLink::new(component)));
        World {
            link: supervisor,
            peer: Peer::new(theirs),
            counters,
            reports: VecDeque::new(),
            sleeper: Arc::new(sleeper),
            thread: Some(thread),
            mapped: None,
        }
    }

    pub fn order(&self, order: &Order, descriptors: &[BorrowedFd<'_>]) {
        self.link.send(order, descriptors).expect("sent");
    }

    /// Waits for the next report.
    pub fn report(&mut self) -> Report {
        if let Some(report) = self.reports.pop_front() {
            return report;
        }
        loop {
            match self.link.receive() {
                Ok(Some((report, _))) => return report,
                Ok(None) => {
                    let mut fds = [PollFd::from_borrowed_fd(self.link.as_fd(), PollFlags::IN)];
                    let limit = limit(PATIENCE);
                    let ready = rustix::event::poll(&mut fds, Some(&limit)).expect("poll");
                    assert!(ready > 0, "no report came");
                }
                Err(LinkError::Closed) => panic!("the stack is gone"),
                Err(LinkError::Failed(what)) => panic!("{what}"),
            }
        }
    }

    /// Attaches a program.
    pub fn attach(&mut self, program: u32, uid: u32) -> Program {
        let (reported, attached) = self.try_attach(program, uid);
        assert_eq!(
            reported,
            Report::Attached {
                program,
                refused: None
            }
        );
        attached
    }

    pub fn try_attach(&mut self, program: u32, uid: u32) -> (Report, Program) {
        let config = TableConfig::from(TABLE);
        let tcp = Region::create("tcp", config).expect("memory");
        let udp = Region::create("udp", config).expect("memory");
        let channel = ChannelParts::create().expect("memory");
        let attachment = Attachment {
            program,
            tcp_stride: config.sockets,
            udp_stride: config.sockets,
            secret: SECRET + u64::from(program),
        };
        let order = Order::Attach {
            attachment,
            pid: std::process::id(),
            uid,
        };
        let stack = channel.for_stack().expect("descriptors");
        let memory = [
            tcp.records_fd(),
            tcp.rings_fd(),
            udp.records_fd(),
            udp.rings_fd(),
        ];
        let descriptors: Vec<_> = memory
            .into_iter()
            .chain(stack.iter().map(AsFd::as_fd))
            .collect();
        self.order(&order, &descriptors);
        let theirs = channel.for_program(&self.sleeper).expect("descriptors");
        let writable = [&theirs[0], &theirs[2], &theirs[4], &theirs[5]];
        let writable = writable.map(|fd| fd.try_clone().expect("a descriptor"));
        let own = |region: &Region| {
            let [records, rings] = region.program_descriptors().expect("descriptors");
            let own = Region::open_for_program(records, rings).expect("a region");
            let mut table = SocketTable::new(config.sockets);
            table.insert(program, own).expect("room");
            table
        };
        let program = Program {
            number: program,
            secret: attachment.secret,
            client: Client::attach(theirs).expect("a channel"),
            tcp: own(&tcp),
            udp: own(&udp),
            writable,
        };
        if let Some(mapped) = &mut self.mapped {
            mapped.push((program.number, tcp));
        }
        (self.report(), program)
    }

    pub fn detach(&mut self, program: u32) {
        self.order(&Order::Detach { program }, &[]);
    }

    /// Drives the peer until `done` says so.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Peer) -> bool) {
        let start = Clock::now();
        loop {
            self.peer.drive();
            if done(&mut self.peer) {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
            self.peer.rest();
        }
    }

    pub fn count(&self, counter: Counter) -> u64 {
        self.counters.get(counter)
    }

    /// Stops the stack and answers how it ended.
    pub fn stop(self) -> Ended {
        self.order(&Order::Stop {}, &[]);
        self.join()
    }

    /// Answers how it ended by itself.
    pub fn join(mut self) -> Ended {
        self.thread.take().expect("once").join().expect("no panic")
    }
}

fn limit(time: Duration) -> Timespec {
    time.try_into().expect("a short time")
}

/// A program, as the preload library would serve it.
pub struct Program {
    pub number: u32,
    pub secret: u64,
    pub client: Client,
    pub tcp: SocketTable,
    pub udp: SocketTable,
    /// The channel's memory that it may write, and its bell.
    pub writable: [OwnedFd; 4],
}

impl Program {
    pub fn ask(&mut self, body: RequestBody) -> Result<Answer, ClientError> {
        self.client.ask(body)
    }

    pub fn open(&mut self, protocol: Protocol) -> SocketId {
        let answer = self.ask(RequestBody::Open(protocol)).expect("a socket");
        answer.socket.expect("a socket")
    }

    pub fn bind(
        &mut self,
        protocol: Protocol,
        local: Endpoint,
        options: BindOptions,
    ) -> Result<(SocketId, u64), ClientError> {
        let socket = self.open(protocol);
        let answer = self.ask(RequestBody::Bind(protocol, socket, local, options))?;
        Ok((socket, answer.value))
    }

    pub fn listen(&mut self, port: u16) -> SocketId {
        let local = end("0.0.0.0", port);
        let bound = self.bind(Protocol::Tcp, local, BindOptions::default());
        let (socket, _) = bound.expect("a free port");
        self.ask(RequestBody::Listen(socket, 16)).expect("listens");
        socket
    }

    pub fn tell(&mut self, body: RequestBody) {
        self.client.tell(body).expect("room");
        self.client.flush();
    }

    pub fn close(&mut self, socket: SocketId) {
        self.tell(RequestBody::Tcp(TcpRequest::Close(socket)));
    }

    /// Takes a connection, if one was offered.
    pub fn accept(&mut self, listener: SocketId) -> Option<SocketId> {
        self.client.poll().expect("a good channel");
        let accepted = self.client.accept(listener).expect("room");
        self.client.flush();
        accepted
    }

    /// Sends back what has come; answers how much.
    pub fn echo(&mut self, socket: SocketId) -> usize {
        let mut bytes = [0; 4096];
        let room = self.tcp.send_ring(socket.slot).free().min(bytes.len());
        let got = self.tcp.receive_ring(socket.slot).read(&mut bytes[..room]);
        if got > 0 {
            self.tell(RequestBody::Tcp(TcpRequest::Received(socket)));
            assert_eq!(self.write(socket, &bytes[..got]), got);
        }
        got
    }

    pub fn write(&mut self, socket: SocketId, bytes: &[u8]) -> usize {
        let wrote = self.tcp.send_ring(socket.slot).write(bytes);
        self.tell(RequestBody::Tcp(TcpRequest::Sent(socket)));
        wrote
    }
}

/// The other end of the link: a stack of its own, driven by the test.
pub struct Peer {
    pub stack: Stack,
    busy: bool,
}

fn now() -> Instant {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Instant::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

impl Peer {
    fn new(nic: skink_nic::Nic) -> Peer {
        let config = StackConfig {
            addresses: vec![format!("{PEERS}/24").parse().expect("an address")],
            gateways: Vec::new(),
            seed: 11,
            answers: true,
            tcp_table: TABLE.into(),
            udp_table: TABLE.into(),
            counters: Counters::create().expect("memory"),
        };
        let stack = Stack::new(config, nic, Box::new(SoleOwner)).expect("memory");
        Peer { stack, busy: false }
    }

    fn drive(&mut self) {
        self.stack.flush();
        self.busy = self.stack.poll(now()) == Progress::More;
        while self.stack.take_event().is_some() {}
    }

    /// Waits for a frame, for a moment: the condition may depend on something else.
    fn rest(&self) {
        if self.busy {
            return;
        }
        let mut fds = Vec::new();
        let stack = &self.stack;
        let mut raw = Vec::new();
        stack.receive_descriptors(&mut |fd| raw.push(fd.try_clone_to_owned().expect("one")));
        fds.extend(raw.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
        let _ = rustix::event::poll(&mut fds, Some(&limit(Duration::from_millis(1))));
    }

    pub fn connect(&mut self, port: u16) -> SocketId {
        let socket = self.stack.tcp_open().expect("a socket");
        self.stack
            .tcp_connect(now(), socket, end(OURS, port))
            .expect("a route");
        socket
    }

    pub fn state(&self, socket: SocketId) -> u8 {
        let record = self.stack.tcp_table().find(socket);
        record.map_or(0, |record| {
            record.state.load(std::sync::atomic::Ordering::Relaxed)
        })
    }

    /// Whether a connection stands.
    pub fn is_established(&self, socket: SocketId) -> bool {
        self.state(socket) == skink_library::State::Established as u8
    }

    /// Whether it is over, from the program's side.
    pub fn is_closed(&self, socket: SocketId) -> bool {
        let closed = [
            skink_library::State::CloseWait,
            skink_library::State::Closed,
        ];
        closed
            .iter()
            .any(|state| *state as u8 == self.state(socket))
    }

    pub fn write(&mut self, socket: SocketId, bytes: &[u8]) -> usize {
        let wrote = self.stack.tcp_table().send_ring(socket.slot).write(bytes);
        self.stack.tcp_request(now(), TcpRequest::Sent(socket));
        wrote
    }

    pub fn read(&mut self, socket: SocketId) -> Vec<u8> {
        let mut bytes = vec![0; 16 * 1024];
        let got = self
            .stack
            .tcp_table()
            .receive_ring(socket.slot)
            .read(&mut bytes);
        if got > 0 {
            self.stack.tcp_request(now(), TcpRequest::Received(socket));
        }
        bytes.truncate(got);
        bytes
    }

    pub fn close(&mut self, socket: SocketId) {
        self.stack.tcp_request(now(), TcpRequest::Close(socket));
    }
}

/// Connects the peer to a listening program, which accepts.
pub fn connect(
    world: &mut World,
    program: &mut Program,
    listener: SocketId,
    port: u16,
) -> (SocketId, SocketId) {
    let theirs = world.peer.connect(port);
    let mut accepted = None;
    world.until("a connection", |peer| {
        accepted = accepted.or_else(|| program.accept(listener));
        accepted.is_some() && peer.is_established(theirs)
    });
    (theirs, accepted.expect("accepted"))
}

/// Sends so many bytes to and fro, and checks them.
pub fn exchange(
    world: &mut World,
    program: &mut Program,
    theirs: SocketId,
    ours: SocketId,
    bytes: usize,
) {
    let byte = |at: usize| (at * 31 % 251) as u8;
    let (mut sent, mut got) = (0, 0);
    world.until("the echo", |peer| {
        let next: Vec<u8> = (sent..bytes.min(sent + 4096)).map(byte).collect();
        if !next.is_empty() {
            sent += peer.write(theirs, &next);
        }
        program.client.poll().expect("a good channel");
        program.echo(ours);
        for received in peer.read(theirs) {
            assert_eq!(received, byte(got), "byte {got}");
            got += 1;
        }
        got == bytes
    });
}
