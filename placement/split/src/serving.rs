//! What works on sockets: a whole stack, or the transports of one that is divided among processes.
use crate::apart::Apart;
use skink_library::Stack;
use skink_memory::{Adopted, Region, SocketId, SocketTable, TableError};
use skink_messages::{
    BindOptions, CallBody, Progress, Protocol, SocketError, SocketEvent, TcpRequest, TransportCall,
    UdpRequest,
};
use skink_tcp::Tcp;
use skink_time::Instant;
use skink_udp::Udp;
use skink_wire::Endpoint;

/// `tcp` and `udp`, or one of them, with what is below them.
pub(crate) trait Transports {
    /// Whether sockets of this protocol are here.
    fn has(&self, protocol: Protocol) -> bool;

    fn poll(&mut self, now: Instant) -> Progress;

    /// Frames or packets that the last poll received, if only that there were some.
    fn received(&self) -> usize;

    fn next_deadline(&self) -> Option<Instant>;

    /// The sockets, if this protocol's are here.
    fn table(&self, protocol: Protocol) -> Option<&SocketTable>;

    /// Serves one more program, with a region for each protocol that is here: empty, or a predecessor's,
    /// whose sockets go on.
    fn adopt_program(
        &mut self,
        now: Instant,
        program: u32,
        tcp: Option<Region>,
        udp: Option<Region>,
    ) -> Result<Adopted, TableError>;

    /// The program has ended: its sockets of this protocol end.
    fn abandon(&mut self, now: Instant, protocol: Protocol, program: u32);

    /// A program all of whose sockets here have ended.
    fn take_finished(&mut self) -> Option<u32>;

    fn take_eventful(&mut self) -> Option<u32>;

    fn take_event_of(&mut self, program: u32) -> Option<(Protocol, SocketEvent)>;

    /// The serial number is that of the call.
    fn open_for(
        &mut self,
        protocol: Protocol,
        program: u32,
        serial: u32,
    ) -> Result<SocketId, SocketError>;

    /// Notes a call on a socket before it is carried out.
    fn note_call(&mut self, protocol: Protocol, socket: SocketId, serial: u32);

    /// What the call came to, if a predecessor had carried it out.
    fn carried_out(&self, protocol: Protocol, call: &TransportCall) -> Option<CallDone>;

    fn bind(
        &mut self,
        protocol: Protocol,
        socket: SocketId,
        local: Endpoint,
        options: BindOptions,
    ) -> Result<Endpoint, SocketError>;

    fn connect(
        &mut self,
        now: Instant,
        protocol: Protocol,
        socket: SocketId,
        remote: Option<Endpoint>,
    ) -> Result<Option<Endpoint>, SocketError>;

    fn listen(
        &mut self,
        now: Instant,
        socket: SocketId,
        backlog: u32,
    ) -> Result<Endpoint, SocketError>;

    fn rest(&mut self, socket: SocketId) -> Result<(), SocketError>;

    /// Takes the connection that has waited longest, to offer it to its program.
    fn offer(&mut self, listener: SocketId) -> Option<SocketId>;

    /// How many the program was offered and isn't known to have.
    fn offered(&self, listener: SocketId) -> usize;

    /// The program has it.
    fn accepted(&mut self, connection: SocketId);

    fn acceptable(&self, listener: SocketId) -> usize;

    fn tcp_request(&mut self, now: Instant, request: TcpRequest);

    fn udp_request(&mut self, now: Instant, request: UdpRequest);

    /// TCP connections that have something to deliver.
    fn unfinished(&self) -> usize;

    /// As [`skink_tcp::Tcp::half_closed`].
    fn half_closed(&self) -> usize;

    /// Resets all of these. `More` if there was no room for all of the packets.
    fn reset_unfinished(&mut self, now: Instant) -> Progress;
}

impl Transports for Stack {
    fn has(&self, _: Protocol) -> bool {
        true
    }

    fn poll(&mut self, now: Instant) -> Progress {
        Stack::poll(self, now)
    }

    fn received(&self) -> usize {
        Stack::received(self)
    }

    fn next_deadline(&self) -> Option<Instant> {
        Stack::next_deadline(self)
    }

    fn table(&self, protocol: Protocol) -> Option<&SocketTable> {
        Some(match protocol {
            Protocol::Tcp => self.tcp_table(),
            Protocol::Udp => self.udp_table(),
        })
    }

    fn adopt_program(
        &mut self,
        now: Instant,
        program: u32,
        tcp: Option<Region>,
        udp: Option<Region>,
    ) -> Result<Adopted, TableError> {
        match (tcp, udp) {
            (Some(tcp), Some(udp)) => Stack::adopt_program(self, now, program, tcp, udp),
            (None, _) | (_, None) => Ok(Adopted::default()),
        }
    }

    fn abandon(&mut self, now: Instant, protocol: Protocol, program: u32) {
        Stack::abandon(self, now, protocol, program);
    }

    fn take_finished(&mut self) -> Option<u32> {
        Stack::take_finished(self)
    }

    fn take_eventful(&mut self) -> Option<u32> {
        Stack::take_eventful(self)
    }

    fn take_event_of(&mut self, program: u32) -> Option<(Protocol, SocketEvent)> {
        Stack::take_event_of(self, program)
    }

    fn open_for(
        &mut self,
        protocol: Protocol,
        program: u32,
        serial: u32,
    ) -> Result<SocketId, SocketError> {
        match protocol {
            Protocol::Tcp => self.tcp_open_for(program, serial),
            Protocol::Udp => self.udp_open_for(program, serial),
        }
    }

    fn note_call(&mut self, protocol: Protocol, socket: SocketId, serial: u32) {
        match protocol {
            Protocol::Tcp => self.tcp_note_call(socket, serial),
            Protocol::Udp => self.udp_note_call(socket, serial),
        }
    }

    fn carried_out(&self, protocol: Protocol, call: &TransportCall) -> Option<CallDone> {
        match protocol {
            Protocol::Tcp => done_by_tcp(self.tcp(), call),
            Protocol::Udp => done_by_udp(self.udp(), call),
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
            Protocol::Tcp => self.tcp_bind(socket, local, options),
            Protocol::Udp => self.udp_bind(socket, local, options),
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
                self.tcp_connect(now, socket, remote.ok_or(SocketError::Invalid)?)?;
                let record = self.tcp_table().find(socket);
                Ok(record.map(|record| record.four_tuple().local))
            }
            Protocol::Udp => self.udp_connect(socket, remote).map(Some),
        }
    }

    fn listen(
        &mut self,
        now: Instant,
        socket: SocketId,
        backlog: u32,
    ) -> Result<Endpoint, SocketError> {
        self.tcp_listen(now, socket, backlog)
    }

    fn rest(&mut self, socket: SocketId) -> Result<(), SocketError> {
        self.tcp_rest(socket, true)
    }

    fn offer(&mut self, listener: SocketId) -> Option<SocketId> {
        self.tcp_offer(listener)
    }

    fn offered(&self, listener: SocketId) -> usize {
        self.tcp_offered(listener)
    }

    fn accepted(&mut self, connection: SocketId) {
        self.tcp_accepted(connection);
    }

    fn acceptable(&self, listener: SocketId) -> usize {
        self.tcp_acceptable(listener)
    }

    fn tcp_request(&mut self, now: Instant, request: TcpRequest) {
        Stack::tcp_request(self, now, request);
    }

    fn udp_request(&mut self, now: Instant, request: UdpRequest) {
        Stack::udp_request(self, now, request);
    }

    fn unfinished(&self) -> usize {
        self.tcp_unfinished()
    }

    fn half_closed(&self) -> usize {
        self.tcp_left().half_closed
    }

    fn reset_unfinished(&mut self, now: Instant) -> Progress {
        self.tcp_reset_unfinished(now)
    }
}

/// What a call came to: the socket, and its own end where that is known.
pub(crate) type CallDone = (SocketId, Option<Endpoint>);

/// What the call came to, if a predecessor had carried it out.
pub(crate) fn done_by_tcp(tcp: &Tcp, call: &TransportCall) -> Option<CallDone> {
    let noted = |id| tcp.was_called(id, call.serial);
    match call.body {
        CallBody::Open => Some((tcp.opened(call.program, call.serial)?, None)),
        CallBody::Bind(id, wanted, _) if noted(id) => bound(id, wanted, tcp.bound_to(id)?),
        CallBody::Connect(id, _) if noted(id) => Some((id, Some(tcp.connected_to(id)?.0))),
        _ => None,
    }
}

/// As [`done_by_tcp`].
pub(crate) fn done_by_udp(udp: &Udp, call: &TransportCall) -> Option<CallDone> {
    let noted = |id| udp.was_called(id, call.serial);
    match call.body {
        CallBody::Open => Some((udp.opened(call.program, call.serial)?, None)),
        CallBody::Bind(id, wanted, _) if noted(id) => bound(id, wanted, udp.bound_to(id)?),
        CallBody::Connect(id, Some(wanted)) if noted(id) => {
            // It may have been connected to another one before.
            let (local, remote) = udp.connected_to(id)?;
            (remote == wanted).then_some((id, Some(local)))
        }
        _ => None,
    }
}

/// A socket that is bound to `to`, which it may have been before the call.
fn bound(id: SocketId, wanted: Endpoint, to: Endpoint) -> Option<CallDone> {
    let same = wanted.addr == to.addr && (wanted.port == 0 || wanted.port == to.port);
    same.then_some((id, Some(to)))
}

/// What works on sockets in this process.
pub enum Serving {
    /// All of the stack is here.
    Whole(Box<Stack>),
    /// What of `tcp` and `udp` is here, if only nothing.
    Apart(Box<Apart>),
}

impl Serving {
    pub(crate) fn transports(&mut self) -> &mut dyn Transports {
        match self {
            Serving::Whole(stack) => stack.as_mut(),
            Serving::Apart(apart) => apart.as_mut(),
        }
    }

    fn look(&self) -> &dyn Transports {
        match self {
            Serving::Whole(stack) => stack.as_ref(),
            Serving::Apart(apart) => apart.as_ref(),
        }
    }

    /// The whole stack, if it is here.
    pub fn whole(&mut self) -> Option<&mut Stack> {
        match self {
            Serving::Whole(stack) => Some(stack),
            Serving::Apart(_) => None,
        }
    }

    /// What of the transports is here, if the stack is divided.
    pub fn apart(&mut self) -> Option<&mut Apart> {
        match self {
            Serving::Whole(_) => None,
            Serving::Apart(apart) => Some(apart),
        }
    }

    /// Whether sockets of this protocol are here.
    pub fn has(&self, protocol: Protocol) -> bool {
        self.look().has(protocol)
    }

    /// Whether a transport waits until its neighbours know of it.
    pub fn is_held(&self, protocol: Protocol) -> bool {
        match self {
            Serving::Whole(_) => false,
            Serving::Apart(apart) => apart.is_held(protocol),
        }
    }

    /// Whether a neighbour in another process has sent something.
    pub fn is_ready(&self) -> bool {
        match self {
            Serving::Whole(_) => false,
            Serving::Apart(apart) => apart.is_ready(),
        }
    }

    /// Whether a neighbour in another process has spoilt its queue.
    pub fn is_broken(&self) -> bool {
        match self {
            Serving::Whole(_) => false,
            Serving::Apart(apart) => apart.is_broken(),
        }
    }

    /// When to poll at the latest.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.look().next_deadline()
    }

    /// The sockets, if this protocol's are here.
    pub fn table(&self, protocol: Protocol) -> Option<&SocketTable> {
        self.look().table(protocol)
    }

    /// TCP connections that have something to deliver.
    pub fn unfinished(&self) -> usize {
        self.look().unfinished()
    }

    /// As [`skink_tcp::Tcp::half_closed`].
    pub fn half_closed(&self) -> usize {
        self.look().half_closed()
    }
}
