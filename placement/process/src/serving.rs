//! What serves programs: a whole stack, or the transports of one that is divided among processes.
use crate::transports::Transports;
use skink_filter::{Filter, RuleSet};
use skink_library::{Protocol, Stack};
use skink_memory::{Region, SocketId, SocketTable, TableError};
use skink_messages::{BindOptions, Progress, SocketError, SocketEvent, TcpRequest, UdpRequest};
use skink_time::Instant;
use skink_wire::{Endpoint, MacAddr};
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

/// One of the two. Methods are those of [`Stack`].
pub(crate) enum Serving {
    Whole(Box<Stack>),
    Transports(Box<Transports>),
}

macro_rules! either {
    ($it:ident, $stack:ident => $call:expr) => {
        match $it {
            Serving::Whole($stack) => $call,
            Serving::Transports($stack) => $call,
        }
    };
}

impl Serving {
    pub fn transports(&mut self) -> Option<&mut Transports> {
        match self {
            Serving::Whole(_) => None,
            Serving::Transports(transports) => Some(transports),
        }
    }

    pub fn poll(&mut self, now: Instant) -> Progress {
        either!(self, it => it.poll(now))
    }

    /// Frames or packets that the last poll received, if only that there were some.
    pub fn received(&self) -> usize {
        either!(self, it => it.received())
    }

    /// Whether a neighbour in another process has sent something.
    pub fn is_ready(&self) -> bool {
        match self {
            Serving::Whole(_) => false,
            Serving::Transports(transports) => transports.is_ready(),
        }
    }

    /// Whether a neighbour in another process has spoilt its queue.
    pub fn is_broken(&self) -> bool {
        match self {
            Serving::Whole(_) => false,
            Serving::Transports(transports) => transports.is_broken(),
        }
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        either!(self, it => it.next_deadline())
    }

    pub fn receive_descriptors(&self, each: &mut dyn FnMut(BorrowedFd<'_>)) {
        match self {
            Serving::Whole(stack) => stack.receive_descriptors(each),
            Serving::Transports(_) => {}
        }
    }

    pub fn send_blocked_on(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Serving::Whole(stack) => stack.send_blocked_on(),
            Serving::Transports(_) => None,
        }
    }

    pub fn take_conflict(&mut self) -> Option<(IpAddr, MacAddr)> {
        match self {
            Serving::Whole(stack) => stack.take_conflict(),
            Serving::Transports(_) => None,
        }
    }

    /// Of a whole stack; transports have none.
    pub fn set_rules(&mut self, now: Instant, interface: &str, rules: RuleSet) {
        match self {
            Serving::Whole(stack) => stack.set_rules(now, interface, rules),
            Serving::Transports(_) => {}
        }
    }

    pub fn filter(&self) -> Option<&Filter> {
        match self {
            Serving::Whole(stack) => stack.filter(),
            Serving::Transports(_) => None,
        }
    }

    pub fn add_program(
        &mut self,
        program: u32,
        tcp: Region,
        udp: Region,
    ) -> Result<(), TableError> {
        either!(self, it => it.add_program(program, tcp, udp))
    }

    pub fn abandon(&mut self, now: Instant, program: u32) {
        either!(self, it => it.abandon(now, program))
    }

    pub fn take_finished(&mut self) -> Option<u32> {
        either!(self, it => it.take_finished())
    }

    pub fn take_eventful(&mut self) -> Option<u32> {
        either!(self, it => it.take_eventful())
    }

    pub fn take_event_of(&mut self, program: u32) -> Option<(Protocol, SocketEvent)> {
        either!(self, it => it.take_event_of(program))
    }

    pub fn tcp_table(&self) -> &SocketTable {
        either!(self, it => it.tcp_table())
    }

    pub fn udp_table(&self) -> &SocketTable {
        either!(self, it => it.udp_table())
    }

    pub fn tcp_open_in(&mut self, program: u32) -> Result<SocketId, SocketError> {
        either!(self, it => it.tcp_open_in(program))
    }

    pub fn udp_open_in(&mut self, program: u32) -> Result<SocketId, SocketError> {
        either!(self, it => it.udp_open_in(program))
    }

    pub fn tcp_bind(
        &mut self,
        socket: SocketId,
        local: Endpoint,
        options: BindOptions,
    ) -> Result<Endpoint, SocketError> {
        either!(self, it => it.tcp_bind(socket, local, options))
    }

    pub fn udp_bind(
        &mut self,
        socket: SocketId,
        local: Endpoint,
        options: BindOptions,
    ) -> Result<Endpoint, SocketError> {
        either!(self, it => it.udp_bind(socket, local, options))
    }

    pub fn tcp_listen(
        &mut self,
        now: Instant,
        socket: SocketId,
        backlog: u32,
    ) -> Result<Endpoint, SocketError> {
        either!(self, it => it.tcp_listen(now, socket, backlog))
    }

    pub fn tcp_rest(&mut self, socket: SocketId, resting: bool) -> Result<(), SocketError> {
        either!(self, it => it.tcp_rest(socket, resting))
    }

    pub fn tcp_connect(
        &mut self,
        now: Instant,
        socket: SocketId,
        remote: Endpoint,
    ) -> Result<(), SocketError> {
        either!(self, it => it.tcp_connect(now, socket, remote))
    }

    pub fn udp_connect(
        &mut self,
        socket: SocketId,
        remote: Option<Endpoint>,
    ) -> Result<Endpoint, SocketError> {
        either!(self, it => it.udp_connect(socket, remote))
    }

    pub fn tcp_accept(&mut self, listener: SocketId) -> Option<SocketId> {
        either!(self, it => it.tcp_accept(listener))
    }

    pub fn tcp_acceptable(&self, listener: SocketId) -> usize {
        either!(self, it => it.tcp_acceptable(listener))
    }

    pub fn tcp_request(&mut self, now: Instant, request: TcpRequest) {
        either!(self, it => it.tcp_request(now, request))
    }

    pub fn udp_request(&mut self, now: Instant, request: UdpRequest) {
        either!(self, it => it.udp_request(now, request))
    }

    pub fn tcp_unfinished(&self) -> usize {
        either!(self, it => it.tcp_unfinished())
    }
}
