//! The other end of the link: a stack of its own, driven by the test.

use super::{OURS, PEERS, TABLE, end, limit};
use rustix::event::{PollFd, PollFlags};
use skink_library::{Stack, StackConfig, State};
use skink_memory::SocketId;
use skink_messages::{Counters, Progress, SoleOwner, TcpRequest};
use skink_time::Instant;
use std::time::Duration;

pub struct Peer {
    pub stack: Stack,
    busy: bool,
}

pub fn now() -> Instant {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Instant::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

impl Peer {
    pub fn new(nic: skink_nic::Nic) -> Peer {
        let config = StackConfig {
            addresses: vec![format!("{PEERS}/24").parse().expect("an address")],
            gateways: Vec::new(),
            seed: 11,
            answers: true,
            tcp_table: TABLE.into(),
            udp_table: TABLE.into(),
            socket_memory: u64::MAX,
            counters: Counters::create().expect("memory"),
        };
        let stack = Stack::new(config, nic, Box::new(SoleOwner)).expect("memory");
        Peer { stack, busy: false }
    }

    pub fn drive(&mut self) {
        self.stack.flush();
        self.busy = self.stack.poll(now()) == Progress::More;
        while self.stack.take_event().is_some() {}
    }

    /// Waits for a frame, for a moment: the condition may depend on something else.
    pub fn rest(&self) {
        if self.busy {
            return;
        }
        let mut raw = Vec::new();
        self.stack
            .receive_descriptors(&mut |fd| raw.push(fd.try_clone_to_owned().expect("one")));
        let fds = raw.iter().map(|fd| PollFd::new(fd, PollFlags::IN));
        let mut fds: Vec<_> = fds.collect();
        let _ = rustix::event::poll(&mut fds, Some(&limit(Duration::from_millis(1))));
    }

    pub fn connect(&mut self, port: u16) -> SocketId {
        let socket = self.stack.tcp_open().expect("a socket");
        self.stack
            .tcp_connect(now(), socket, end(OURS, port))
            .expect("a route");
        socket
    }

    pub fn listen(&mut self, port: u16) -> SocketId {
        let listener = self.stack.tcp_open().expect("a socket");
        let bound = self
            .stack
            .tcp_bind(listener, end("0.0.0.0", port), Default::default());
        bound.expect("free");
        self.stack.tcp_listen(now(), listener, 16).expect("listens");
        listener
    }

    pub fn state(&self, socket: SocketId) -> u8 {
        let record = self.stack.tcp_table().find(socket);
        record.map_or(0, |record| {
            record.state.load(std::sync::atomic::Ordering::Relaxed)
        })
    }

    /// Whether a connection stands.
    pub fn is_established(&self, socket: SocketId) -> bool {
        self.state(socket) == State::Established as u8
    }

    /// Whether it is over, from the program's side.
    pub fn is_closed(&self, socket: SocketId) -> bool {
        let closed = [State::CloseWait, State::Closed];
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
        let ring = self.stack.tcp_table().receive_ring(socket.slot);
        let got = ring.read(&mut bytes);
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
