//! `tcp` and `udp` in one process, with `ip` in another: what serves programs in topology `split`.
use crate::neighbours::{Neighbours, map_pool};
use skink_channel::Pool;
use skink_control::{FlowPhase, FlowSummary, Part, PoolSizes};
use skink_filter::FlowPhase as Phase;
use skink_library::{EventQueues, Protocol, flow};
use skink_memory::{Region, SocketId, SocketTable, TableError};
use skink_messages::{
    BindOptions, Component, Progress, SocketError, SocketEvent, TcpInput, TcpRequest, UdpInput,
    UdpRequest,
};
use skink_split::{Host, TcpHost, UdpHost};
use skink_time::Instant;
use skink_wire::Endpoint;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// Both transports, each with its end towards `ip`.
pub(crate) struct Transports {
    tcp: TcpHost,
    udp: UdpHost,
    events: EventQueues,
    /// Programs that are gone, one of whose two regions is finished.
    halves: Vec<u32>,
    finished: VecDeque<u32>,
    neighbours: Neighbours,
    /// Until the neighbours know of this process.
    held: bool,
    received: usize,
    /// While this is open the other parts are needed.
    _life: OwnedFd,
}

impl Transports {
    pub fn new(tcp: TcpHost, udp: UdpHost, neighbours: Neighbours, life: OwnedFd) -> Transports {
        let strides = (tcp.tcp().table().stride(), udp.udp().table().stride());
        Transports {
            events: EventQueues::new(strides.0, strides.1),
            tcp,
            udp,
            halves: Vec::new(),
            finished: VecDeque::new(),
            neighbours,
            held: true,
            received: 0,
            _life: life,
        }
    }

    /// The neighbours know of this process.
    pub fn go(&mut self) {
        self.held = false;
    }

    /// What datagrams are sent from.
    pub fn pool(&self) -> Option<&Pool> {
        self.udp.pool()
    }

    /// A neighbour runs, or a successor of it.
    pub fn meet(
        &mut self,
        part: Part,
        incarnation: u32,
        pool: Option<(PoolSizes, OwnedFd)>,
    ) -> Result<(), String> {
        let sizes = pool.as_ref().map(|(sizes, _)| *sizes);
        if let Some((sizes, memory)) = pool {
            let again = memory.try_clone().map_err(|error| error.to_string())?;
            self.tcp.add_pool(map_pool(sizes, memory)?);
            self.udp.add_pool(map_pool(sizes, again)?);
        }
        let id = sizes.map(|sizes| sizes.id);
        let met = self.neighbours.meet(part, incarnation, id);
        if met.restarted && part == Part::Ip {
            self.tcp.ip_restarted(incarnation);
            self.udp.ip_restarted(incarnation);
        }
        if let Some(old) = met.old_pool {
            self.tcp.remove_pool(old);
            self.udp.remove_pool(old);
        }
        Ok(())
    }

    /// The connections there are.
    pub fn flows(&self) -> impl Iterator<Item = FlowSummary> {
        self.tcp.tcp().flows().filter_map(flow).map(|flow| {
            let end = |end: Endpoint| SocketAddr::new(end.addr, end.port);
            let (phase, iss) = match flow.phase {
                Phase::Asked => (FlowPhase::Asked, 0),
                Phase::Answered { iss } => (FlowPhase::Answered, iss),
                Phase::LocalClosed => (FlowPhase::LocalClosed, 0),
                Phase::RemoteClosed => (FlowPhase::RemoteClosed, 0),
                Phase::BothClosed => (FlowPhase::BothClosed, 0),
                Phase::Established | Phase::Datagrams => (FlowPhase::Established, 0),
            };
            FlowSummary {
                local: end(flow.tuple.local),
                remote: end(flow.tuple.remote),
                phase,
                iss,
            }
        })
    }

    pub fn poll(&mut self, now: Instant) -> Progress {
        if self.held {
            return Progress::Idle;
        }
        self.received = usize::from(self.is_ready());
        let progress = [self.tcp.poll(now), self.udp.poll(now)];
        self.take_events();
        match progress == [Progress::Idle; 2] {
            true => Progress::Idle,
            false => Progress::More,
        }
    }

    fn take_events(&mut self) {
        while let Some(event) = self.tcp.take_event() {
            self.events.push(Protocol::Tcp, event);
        }
        while let Some(event) = self.udp.take_event() {
            self.events.push(Protocol::Udp, event);
        }
    }

    pub fn received(&self) -> usize {
        self.received
    }

    pub fn is_ready(&self) -> bool {
        !self.held && (self.tcp.is_ready() || self.udp.is_ready())
    }

    pub fn is_broken(&self) -> bool {
        self.tcp.broken().is_some() || self.udp.broken().is_some()
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        let both = [self.tcp.next_deadline(), self.udp.next_deadline()];
        both.into_iter().flatten().min().filter(|_| !self.held)
    }

    pub fn add_program(
        &mut self,
        program: u32,
        tcp: Region,
        udp: Region,
    ) -> Result<(), TableError> {
        self.tcp.add_region(program, tcp)?;
        if let Err(error) = self.udp.add_region(program, udp) {
            self.abandon_tcp(Instant::ZERO, program);
            self.collect_finished();
            self.halves.retain(|other| *other != program);
            return Err(error);
        }
        self.events.add(program);
        Ok(())
    }

    fn abandon_tcp(&mut self, now: Instant, program: u32) {
        self.tcp
            .call(|tcp, below| tcp.abandon_region(now, program, below));
    }

    pub fn abandon(&mut self, now: Instant, program: u32) {
        self.abandon_tcp(now, program);
        self.udp
            .call(|udp, below| udp.abandon_region(now, program, below));
        self.events.remove(program);
    }

    fn collect_finished(&mut self) {
        while let Some(program) = self.tcp.take_finished_region() {
            self.half(program);
        }
        while let Some(program) = self.udp.take_finished_region() {
            self.half(program);
        }
    }

    fn half(&mut self, program: u32) {
        match self.halves.iter().position(|other| *other == program) {
            Some(at) => {
                self.halves.swap_remove(at);
                self.finished.push_back(program);
            }
            None => self.halves.push(program),
        }
    }

    pub fn take_finished(&mut self) -> Option<u32> {
        self.collect_finished();
        self.finished.pop_front()
    }

    pub fn take_eventful(&mut self) -> Option<u32> {
        self.take_events();
        self.events.take_eventful()
    }

    pub fn take_event_of(&mut self, program: u32) -> Option<(Protocol, SocketEvent)> {
        self.events.pop(program)
    }

    pub fn tcp_table(&self) -> &SocketTable {
        self.tcp.tcp().table()
    }

    pub fn udp_table(&self) -> &SocketTable {
        self.udp.udp().table()
    }

    pub fn tcp_open_in(&mut self, program: u32) -> Result<SocketId, SocketError> {
        self.tcp.call(|tcp, _| tcp.open_in(program))
    }

    pub fn udp_open_in(&mut self, program: u32) -> Result<SocketId, SocketError> {
        self.udp.call(|udp, _| udp.open_in(program))
    }

    pub fn tcp_bind(
        &mut self,
        socket: SocketId,
        local: Endpoint,
        options: BindOptions,
    ) -> Result<Endpoint, SocketError> {
        self.tcp
            .call(|tcp, below| tcp.bind(socket, local, options, below))
    }

    pub fn udp_bind(
        &mut self,
        socket: SocketId,
        local: Endpoint,
        options: BindOptions,
    ) -> Result<Endpoint, SocketError> {
        self.udp
            .call(|udp, below| udp.bind(socket, local, options, below))
    }

    pub fn tcp_listen(
        &mut self,
        _: Instant,
        socket: SocketId,
        backlog: u32,
    ) -> Result<Endpoint, SocketError> {
        self.tcp
            .call(|tcp, below| tcp.listen(socket, backlog, below))
    }

    pub fn tcp_rest(&mut self, socket: SocketId, resting: bool) -> Result<(), SocketError> {
        self.tcp.call(|tcp, _| tcp.rest(socket, resting))
    }

    pub fn tcp_connect(
        &mut self,
        now: Instant,
        socket: SocketId,
        remote: Endpoint,
    ) -> Result<(), SocketError> {
        self.tcp
            .call(|tcp, below| tcp.connect(now, socket, remote, below))
    }

    pub fn udp_connect(
        &mut self,
        socket: SocketId,
        remote: Option<Endpoint>,
    ) -> Result<Endpoint, SocketError> {
        self.udp
            .call(|udp, below| udp.connect(socket, remote, below))
    }

    pub fn tcp_accept(&mut self, listener: SocketId) -> Option<SocketId> {
        self.tcp.call(|tcp, _| tcp.accept(listener))
    }

    pub fn tcp_acceptable(&self, listener: SocketId) -> usize {
        self.tcp.tcp().acceptable(listener)
    }

    pub fn tcp_request(&mut self, now: Instant, request: TcpRequest) {
        // A request is never refused: `tcp` remembers what it couldn't send.
        self.tcp.call(|tcp, below| {
            let _ = tcp.handle(now, TcpInput::Request(request), below);
        });
    }

    pub fn udp_request(&mut self, now: Instant, request: UdpRequest) {
        self.udp.call(|udp, below| {
            let _ = udp.handle(now, UdpInput::Request(request), below);
        });
    }

    pub fn tcp_unfinished(&self) -> usize {
        self.tcp.tcp().unfinished()
    }
}
