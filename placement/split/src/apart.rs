//! `tcp`, `udp` or both in a process that hasn't the whole stack.
use crate::serving::{CallDone, Transports, done_by_tcp, done_by_udp};
use crate::{Host, TcpHost, UdpHost};
use skink_channel::PoolReader;
use skink_filter::Flow;
use skink_lanes::EndCounters;
use skink_library::{EventQueues, flow};
use skink_memory::{Adopted, Region, SocketId, SocketTable, TableError};
use skink_messages::{
    BindOptions, Component, Progress, Protocol, SocketError, SocketEvent, TcpInput, TcpRequest,
    TransportCall, UdpInput, UdpRequest,
};
use skink_time::Instant;
use skink_wire::Endpoint;
use std::collections::VecDeque;

/// The transports that are here, each with its end towards `ip`.
pub struct Apart {
    tcp: Option<TcpHost>,
    udp: Option<UdpHost>,
    events: EventQueues,
    /// Programs that are gone, whose region of one of two transports is finished.
    halves: Vec<u32>,
    finished: VecDeque<u32>,
    /// By [`Protocol::index`]: until the neighbours know of it.
    held: [bool; 2],
    received: usize,
}

impl Apart {
    /// `strides` are those of both protocols' tables.
    pub fn new(strides: [u32; 2]) -> Apart {
        let [tcp, udp] = strides;
        Apart {
            tcp: None,
            udp: None,
            events: EventQueues::new(tcp, udp),
            halves: Vec::new(),
            finished: VecDeque::new(),
            held: [true; 2],
            received: 0,
        }
    }

    /// Puts `tcp` in.
    pub fn set_tcp(&mut self, tcp: TcpHost) {
        self.tcp = Some(tcp);
    }

    /// Puts `udp` in.
    pub fn set_udp(&mut self, udp: UdpHost) {
        self.udp = Some(udp);
    }

    /// The neighbours know of it.
    pub fn go(&mut self, protocol: Protocol) {
        if let Some(held) = self.held.get_mut(protocol.index()) {
            *held = false;
        }
    }

    /// Whether it still waits for that.
    pub fn is_held(&self, protocol: Protocol) -> bool {
        self.held.get(protocol.index()) == Some(&true)
    }

    /// Received packets that aren't needed any more, of which `ip` doesn't know that yet.
    pub fn held_back(&self) -> usize {
        let tcp = self.tcp.as_ref().map_or(0, |it| it.held_back());
        tcp + self.udp.as_ref().map_or(0, |it| it.held_back())
    }

    /// Maps a neighbour's pool for reading.
    ///
    /// # Errors
    /// What `map` says.
    pub fn add_pool<E>(&mut self, map: impl Fn() -> Result<PoolReader, E>) -> Result<(), E> {
        if let Some(tcp) = &mut self.tcp {
            tcp.add_pool(map()?);
        }
        if let Some(udp) = &mut self.udp {
            udp.add_pool(map()?);
        }
        Ok(())
    }

    /// The pool of one that was replaced.
    pub fn remove_pool(&mut self, id: u32) {
        self.tcp
            .as_mut()
            .into_iter()
            .for_each(|it| it.remove_pool(id));
        self.udp
            .as_mut()
            .into_iter()
            .for_each(|it| it.remove_pool(id));
    }

    /// `ip` was replaced.
    pub fn ip_restarted(&mut self, incarnation: u32) {
        let (tcp, udp) = (&mut self.tcp, &mut self.udp);
        tcp.iter_mut().for_each(|it| it.ip_restarted(incarnation));
        udp.iter_mut().for_each(|it| it.ip_restarted(incarnation));
    }

    /// `ip` or `link` was replaced, and may have lost what was on its way.
    pub fn network_restarted(&mut self, now: Instant) {
        if let Some(tcp) = &mut self.tcp {
            tcp.network_restarted(now);
        }
    }

    /// The connections there are.
    pub fn flows(&self) -> impl Iterator<Item = Flow> {
        let flows = self.tcp.iter().flat_map(|tcp| tcp.tcp().flows());
        flows.filter_map(flow)
    }

    /// As [`skink_tcp::Tcp::flows_from`].
    pub fn flows_from(&self, first: u32) -> impl Iterator<Item = (u32, Option<Flow>)> {
        let tcp = self.tcp.iter();
        let slots = tcp.flat_map(move |tcp| tcp.tcp().flows_from(first));
        slots.map(|(slot, found)| (slot, found.and_then(flow)))
    }

    /// Whether a neighbour has sent something.
    pub fn is_ready(&self) -> bool {
        let ready = |protocol, host: Option<&dyn Host>| {
            host.is_some_and(|host| !self.is_held(protocol) && host.is_ready())
        };
        ready(Protocol::Tcp, self.tcp.as_ref().map(|it| it as &dyn Host))
            || ready(Protocol::Udp, self.udp.as_ref().map(|it| it as &dyn Host))
    }

    /// Whether a neighbour has spoilt its queue.
    pub fn is_broken(&self) -> bool {
        self.tcp.as_ref().is_some_and(|it| it.broken().is_some())
            || self.udp.as_ref().is_some_and(|it| it.broken().is_some())
    }

    /// What was dropped at their ends.
    pub fn dropped(&self) -> EndCounters {
        let tcp = self.tcp.iter().map(|it| it.end_counters());
        let udp = self.udp.iter().map(|it| it.end_counters());
        let all = tcp.chain(udp);
        all.fold(EndCounters::default(), EndCounters::plus)
    }

    fn take_events(&mut self) {
        if let Some(tcp) = &mut self.tcp {
            while let Some(event) = tcp.take_event() {
                self.events.push(Protocol::Tcp, event);
            }
        }
        if let Some(udp) = &mut self.udp {
            while let Some(event) = udp.take_event() {
                self.events.push(Protocol::Udp, event);
            }
        }
    }

    fn collect_finished(&mut self) {
        let mut over = Vec::new();
        while let Some(program) = self.tcp.as_mut().and_then(TcpHost::take_finished_region) {
            over.push(program);
        }
        while let Some(program) = self.udp.as_mut().and_then(UdpHost::take_finished_region) {
            over.push(program);
        }
        let both = self.tcp.is_some() && self.udp.is_some();
        for program in over {
            let first = self.halves.iter().position(|other| *other == program);
            match first {
                None if both => self.halves.push(program),
                first => {
                    first.map(|at| self.halves.swap_remove(at));
                    self.finished.push_back(program);
                }
            }
        }
    }

    /// `tcp`, if it is here.
    pub fn tcp_host(&mut self) -> Option<&mut TcpHost> {
        self.tcp.as_mut()
    }

    /// `udp`, if it is here.
    pub fn udp_host(&mut self) -> Option<&mut UdpHost> {
        self.udp.as_mut()
    }

    fn tcp(&mut self) -> Result<&mut TcpHost, SocketError> {
        self.tcp.as_mut().ok_or(SocketError::Invalid)
    }

    fn udp(&mut self) -> Result<&mut UdpHost, SocketError> {
        self.udp.as_mut().ok_or(SocketError::Invalid)
    }
}

impl Transports for Apart {
    fn has(&self, protocol: Protocol) -> bool {
        match protocol {
            Protocol::Tcp => self.tcp.is_some(),
            Protocol::Udp => self.udp.is_some(),
        }
    }

    fn poll(&mut self, now: Instant) -> Progress {
        self.received = usize::from(self.is_ready());
        let [tcp_held, udp_held] = self.held;
        let mut more = false;
        if let Some(tcp) = self.tcp.as_mut().filter(|_| !tcp_held) {
            more |= tcp.poll(now) == Progress::More;
        }
        if let Some(udp) = self.udp.as_mut().filter(|_| !udp_held) {
            more |= udp.poll(now) == Progress::More;
        }
        self.take_events();
        match more {
            true => Progress::More,
            false => Progress::Idle,
        }
    }

    fn received(&self) -> usize {
        self.received
    }

    fn next_deadline(&self) -> Option<Instant> {
        let [tcp_held, udp_held] = self.held;
        let tcp = self.tcp.as_ref().filter(|_| !tcp_held);
        let udp = self.udp.as_ref().filter(|_| !udp_held);
        let both = [
            tcp.and_then(|it| it.next_deadline()),
            udp.and_then(|it| it.next_deadline()),
        ];
        both.into_iter().flatten().min()
    }

    fn table(&self, protocol: Protocol) -> Option<&SocketTable> {
        match protocol {
            Protocol::Tcp => self.tcp.as_ref().map(|it| it.tcp().table()),
            Protocol::Udp => self.udp.as_ref().map(|it| it.udp().table()),
        }
    }

    fn adopt_program(
        &mut self,
        now: Instant,
        program: u32,
        tcp: Option<Region>,
        udp: Option<Region>,
    ) -> Result<Adopted, TableError> {
        // Looked at first, since nothing is undone.
        for (protocol, region) in [(Protocol::Tcp, &tcp), (Protocol::Udp, &udp)] {
            if let (Some(table), Some(region)) = (self.table(protocol), region) {
                table.can_insert(program, region)?;
            }
        }
        self.events.add(program);
        let mut adopted = Adopted::default();
        if let (Some(host), Some(region)) = (&mut self.tcp, tcp) {
            adopted = adopted + host.adopt_region(now, program, region)?;
        }
        if let (Some(host), Some(region)) = (&mut self.udp, udp) {
            adopted = adopted + host.adopt_region(now, program, region)?;
        }
        Ok(adopted)
    }

    fn abandon(&mut self, now: Instant, protocol: Protocol, program: u32) {
        match protocol {
            Protocol::Tcp => {
                if let Some(tcp) = &mut self.tcp {
                    tcp.call(|tcp, below| tcp.abandon_region(now, program, below));
                }
            }
            Protocol::Udp => {
                if let Some(udp) = &mut self.udp {
                    udp.call(|udp, below| udp.abandon_region(now, program, below));
                }
            }
        }
    }

    fn take_finished(&mut self) -> Option<u32> {
        self.collect_finished();
        let program = self.finished.pop_front()?;
        self.events.remove(program);
        Some(program)
    }

    fn take_eventful(&mut self) -> Option<u32> {
        self.take_events();
        self.events.take_eventful()
    }

    fn take_event_of(&mut self, program: u32) -> Option<(Protocol, SocketEvent)> {
        self.events.pop(program)
    }

    fn open_for(
        &mut self,
        protocol: Protocol,
        program: u32,
        serial: u32,
    ) -> Result<SocketId, SocketError> {
        match protocol {
            Protocol::Tcp => self.tcp()?.call(|tcp, _| tcp.open_for(program, serial)),
            Protocol::Udp => self.udp()?.call(|udp, _| udp.open_for(program, serial)),
        }
    }

    fn note_call(&mut self, protocol: Protocol, socket: SocketId, serial: u32) {
        match (protocol, &mut self.tcp, &mut self.udp) {
            (Protocol::Tcp, Some(tcp), _) => tcp.call(|tcp, _| tcp.note_call(socket, serial)),
            (Protocol::Udp, _, Some(udp)) => udp.call(|udp, _| udp.note_call(socket, serial)),
            (Protocol::Tcp | Protocol::Udp, ..) => {}
        }
    }

    fn carried_out(&self, protocol: Protocol, call: &TransportCall) -> Option<CallDone> {
        match protocol {
            Protocol::Tcp => done_by_tcp(self.tcp.as_ref()?.tcp(), call),
            Protocol::Udp => done_by_udp(self.udp.as_ref()?.udp(), call),
        }
    }

    fn bind(
        &mut self,
        protocol: Protocol,
        socket: SocketId,
        local: Endpoint,
        options: BindOptions,
    ) -> Result<Endpoint, SocketError> {
        match protocol {
            Protocol::Tcp => self
                .tcp()?
                .call(|tcp, below| tcp.bind(socket, local, options, below)),
            Protocol::Udp => self
                .udp()?
                .call(|udp, below| udp.bind(socket, local, options, below)),
        }
    }

    fn connect(
        &mut self,
        now: Instant,
        protocol: Protocol,
        socket: SocketId,
        remote: Option<Endpoint>,
    ) -> Result<Option<Endpoint>, SocketError> {
        match protocol {
            Protocol::Tcp => {
                let remote = remote.ok_or(SocketError::Invalid)?;
                let tcp = self.tcp()?;
                tcp.call(|tcp, below| tcp.connect(now, socket, remote, below))?;
                let record = tcp.tcp().table().find(socket);
                Ok(record.map(|record| record.four_tuple().local))
            }
            Protocol::Udp => self
                .udp()?
                .call(|udp, below| udp.connect(socket, remote, below))
                .map(Some),
        }
    }

    fn listen(
        &mut self,
        _: Instant,
        socket: SocketId,
        backlog: u32,
    ) -> Result<Endpoint, SocketError> {
        self.tcp()?
            .call(|tcp, below| tcp.listen(socket, backlog, below))
    }

    fn rest(&mut self, socket: SocketId) -> Result<(), SocketError> {
        self.tcp()?.call(|tcp, _| tcp.rest(socket, true))
    }

    fn offer(&mut self, listener: SocketId) -> Option<SocketId> {
        self.tcp.as_mut()?.call(|tcp, _| tcp.offer(listener))
    }

    fn offered(&self, listener: SocketId) -> usize {
        let tcp = self.tcp.as_ref();
        tcp.map_or(0, |it| it.tcp().offered(listener))
    }

    fn accepted(&mut self, connection: SocketId) {
        if let Some(tcp) = &mut self.tcp {
            tcp.call(|tcp, _| tcp.accepted(connection));
        }
    }

    fn acceptable(&self, listener: SocketId) -> usize {
        let tcp = self.tcp.as_ref();
        tcp.map_or(0, |it| it.tcp().acceptable(listener))
    }

    fn tcp_request(&mut self, now: Instant, request: TcpRequest) {
        if let Some(tcp) = &mut self.tcp {
            // A request is never refused: `tcp` remembers what it couldn't send.
            tcp.call(|tcp, below| {
                let _ = tcp.handle(now, TcpInput::Request(request), below);
            });
        }
    }

    fn udp_request(&mut self, now: Instant, request: UdpRequest) {
        if let Some(udp) = &mut self.udp {
            udp.call(|udp, below| {
                let _ = udp.handle(now, UdpInput::Request(request), below);
            });
        }
    }

    fn unfinished(&self) -> usize {
        self.tcp.as_ref().map_or(0, |it| it.tcp().unfinished())
    }

    fn half_closed(&self) -> usize {
        self.tcp.as_ref().map_or(0, |it| it.tcp().half_closed())
    }

    fn reset_unfinished(&mut self, now: Instant) -> Progress {
        self.tcp.as_mut().map_or(Progress::Idle, |it| {
            it.call(|tcp, below| tcp.reset_unfinished(now, below))
        })
    }
}
