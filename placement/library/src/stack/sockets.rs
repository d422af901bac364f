//! What the socket library asks of a stack.
use super::Stack;
use crate::below::{Below, Tap};
use crate::farewell::Left;
use crate::guard::{Guard, Guarded};
use skink_link::LinkOutput;
use skink_memory::{SocketId, SocketTable};
use skink_messages::{
    BindOptions, Component, Progress, SocketError, TcpInput, TcpRequest, UdpInput, UdpRequest,
    Waits,
};
use skink_tcp::Tcp;
use skink_time::Instant;
use skink_udp::Udp;
use skink_wire::Endpoint;

impl Stack {
    /// TCP sockets: records and rings (`Arc` inside; clone it for another thread).
    pub fn tcp_table(&self) -> &SocketTable {
        self.tcp.table()
    }

    /// Opens a TCP socket.
    ///
    /// # Errors
    /// [`SocketError::NoBuffers`] if the table is full.
    pub fn tcp_open(&mut self) -> Result<SocketId, SocketError> {
        self.tcp.open()
    }

    /// Opens a TCP socket of this program.
    ///
    /// # Errors
    /// [`SocketError::NoBuffers`] if its region is full.
    pub fn tcp_open_in(&mut self, program: u32) -> Result<SocketId, SocketError> {
        self.tcp.open_in(program)
    }

    /// As [`Stack::tcp_open_in`], for the program's call with this number ([`skink_tcp::Tcp::open_for`]).
    ///
    /// # Errors
    /// [`SocketError::NoBuffers`] if its region is full.
    pub fn tcp_open_for(&mut self, program: u32, serial: u32) -> Result<SocketId, SocketError> {
        self.tcp.open_for(program, serial)
    }

    /// `tcp` itself, for what it can be asked about its sockets.
    pub fn tcp(&self) -> &Tcp {
        &self.tcp
    }

    /// Notes a call before it is carried out ([`skink_tcp::Tcp::note_call`]).
    pub fn tcp_note_call(&mut self, socket: SocketId, serial: u32) {
        self.tcp.note_call(socket, serial);
    }

    /// Binds; port 0 takes a free one. The unspecified address stands for all of ours.
    ///
    /// # Errors
    /// As [`skink_tcp::Tcp::bind`].
    pub fn tcp_bind(
        &mut self,
        socket: SocketId,
        local: Endpoint,
        options: BindOptions,
    ) -> Result<Endpoint, SocketError> {
        let now = self.now;
        split!(self, now, |tcp, udp, below| tcp
            .bind(socket, local, options, below))
    }

    /// Lets up to `backlog` connections wait to be accepted; answers what the socket is bound to.
    ///
    /// # Errors
    /// As [`skink_tcp::Tcp::listen`].
    pub fn tcp_listen(
        &mut self,
        now: Instant,
        socket: SocketId,
        backlog: u32,
    ) -> Result<Endpoint, SocketError> {
        self.asked(now);
        split!(self, now, |tcp, udp, below| tcp
            .listen(socket, backlog, below))
    }

    /// A bound socket rests, or doesn't any more.
    ///
    /// # Errors
    /// As [`skink_tcp::Tcp::rest`].
    pub fn tcp_rest(&mut self, socket: SocketId, resting: bool) -> Result<(), SocketError> {
        self.tcp.rest(socket, resting)
    }

    /// A bound socket rests where somebody has listened until now.
    ///
    /// # Errors
    /// As [`skink_tcp::Tcp::rest`].
    pub fn tcp_rest_where_heard(&mut self, socket: SocketId) -> Result<(), SocketError> {
        self.tcp.rest_where_heard(socket)
    }

    /// Begins a handshake; an event tells how it ended.
    ///
    /// # Errors
    /// As [`skink_tcp::Tcp::connect`].
    pub fn tcp_connect(
        &mut self,
        now: Instant,
        socket: SocketId,
        remote: Endpoint,
    ) -> Result<(), SocketError> {
        self.asked(now);
        split!(self, now, |tcp, udp, below| tcp
            .connect(now, socket, remote, below))
    }

    /// How the program waits until one of these listeners has a connection ([`skink_tcp::Tcp::show_waiting`]).
    pub fn tcp_show_waiting(&mut self, listeners: impl Iterator<Item = SocketId>, waits: Waits) {
        let ports = self.ports.as_mut();
        self.tcp.show_waiting(listeners, waits, ports);
    }

    /// Takes the connection that has waited longest.
    pub fn tcp_accept(&mut self, listener: SocketId) -> Option<SocketId> {
        self.tcp.accept(listener)
    }

    /// Takes the connection that has waited longest, to offer it to the program
    /// ([`skink_tcp::Tcp::offer`]).
    pub fn tcp_offer(&mut self, listener: SocketId) -> Option<SocketId> {
        self.tcp.offer(listener)
    }

    /// The program has taken the connection that it was offered ([`skink_tcp::Tcp::accepted`]).
    pub fn tcp_accepted(&mut self, connection: SocketId) {
        self.tcp.accepted(connection);
    }

    /// Connections that were offered and that the program isn't known to have ([`skink_tcp::Tcp::offered`]).
    pub fn tcp_offered(&self, listener: SocketId) -> usize {
        self.tcp.offered(listener)
    }

    /// Connections waiting to be accepted.
    pub fn tcp_acceptable(&self, listener: SocketId) -> usize {
        self.tcp.acceptable(listener)
    }

    /// Asks something of `tcp`; see [`Stack`] on when it takes effect.
    #[inline(never)]
    pub fn tcp_request(&mut self, now: Instant, request: TcpRequest) {
        self.asked(now);
        // A request is never refused: `tcp` remembers what it couldn't send.
        let _ = split!(self, now, |tcp, udp, below| {
            tcp.handle(now, TcpInput::Request(request), below)
        });
    }

    /// How many bytes the program may have in each send ring, as far as that is a matter of memory.
    #[inline]
    pub fn tcp_send_limit(&self) -> usize {
        self.tcp.send_limit()
    }

    /// As [`TcpRequest::Sent`], of so many bytes.
    #[inline]
    pub fn tcp_sent(&mut self, now: Instant, socket: SocketId, count: usize) {
        self.asked(now);
        self.tcp.sent(now, socket, count);
    }

    /// As [`TcpRequest::Received`], without a look at the clock: nothing but the window depends on it, and
    /// there is seldom anything to send.
    #[inline]
    pub fn tcp_received(&mut self, socket: SocketId) {
        self.requested |= self.tcp.received(self.now, socket);
    }

    /// Connections and handshakes that `tcp` still works on, TIME-WAIT not counted.
    pub fn tcp_unfinished(&self) -> usize {
        self.tcp.unfinished()
    }

    /// What peers still have to acknowledge.
    pub fn tcp_left(&self) -> Left {
        Left {
            connections: self.tcp.unfinished(),
            bytes: self.tcp.undelivered(),
            half_closed: self.tcp.half_closed(),
        }
    }

    /// As [`skink_tcp::Tcp::reset_unfinished`].
    pub fn tcp_reset_unfinished(&mut self, now: Instant) -> Progress {
        self.asked(now);
        split!(self, now, |tcp, udp, below| tcp
            .reset_unfinished(now, below))
    }

    /// UDP sockets: records and datagram rings.
    pub fn udp_table(&self) -> &SocketTable {
        self.udp.table()
    }

    /// Opens a UDP socket.
    ///
    /// # Errors
    /// [`SocketError::NoBuffers`] if the table is full.
    pub fn udp_open(&mut self) -> Result<SocketId, SocketError> {
        self.udp.open()
    }

    /// Opens a UDP socket of this program.
    ///
    /// # Errors
    /// [`SocketError::NoBuffers`] if its region is full.
    pub fn udp_open_in(&mut self, program: u32) -> Result<SocketId, SocketError> {
        self.udp.open_in(program)
    }

    /// As [`Stack::udp_open_in`], for the program's call with this number ([`skink_udp::Udp::open_for`]).
    ///
    /// # Errors
    /// [`SocketError::NoBuffers`] if its region is full.
    pub fn udp_open_for(&mut self, program: u32, serial: u32) -> Result<SocketId, SocketError> {
        self.udp.open_for(program, serial)
    }

    /// `udp` itself, for what it can be asked about its sockets.
    pub fn udp(&self) -> &Udp {
        &self.udp
    }

    /// Notes a call before it is carried out ([`skink_udp::Udp::note_call`]).
    pub fn udp_note_call(&mut self, socket: SocketId, serial: u32) {
        self.udp.note_call(socket, serial);
    }

    /// Binds; port 0 takes a free one. The unspecified address stands for all of ours.
    ///
    /// # Errors
    /// As [`skink_udp::Udp::bind`].
    pub fn udp_bind(
        &mut self,
        socket: SocketId,
        local: Endpoint,
        options: BindOptions,
    ) -> Result<Endpoint, SocketError> {
        let now = self.now;
        split!(self, now, |tcp, udp, below| udp
            .bind(socket, local, options, below))
    }

    /// Connects to `remote`, or dissolves the connection; answers our end.
    ///
    /// # Errors
    /// As [`skink_udp::Udp::connect`].
    pub fn udp_connect(
        &mut self,
        socket: SocketId,
        remote: Option<Endpoint>,
    ) -> Result<Endpoint, SocketError> {
        let now = self.now;
        split!(self, now, |tcp, udp, below| udp
            .connect(socket, remote, below))
    }

    /// Asks something of `udp`; see [`Stack`] on when it takes effect.
    #[inline(never)]
    pub fn udp_request(&mut self, now: Instant, request: UdpRequest) {
        self.asked(now);
        // A request is never refused: `udp` remembers what it couldn't send.
        let _ = split!(self, now, |tcp, udp, below| {
            udp.handle(now, UdpInput::Request(request), below)
        });
    }
}
