//! The calls of programs: open, bind, listen, connect, accept, and the requests that follow.

use crate::connection::{Connection, Context, Program};
use crate::instance::{Socket, Tcp};
use crate::listener::Listener;
use crate::saved::FIN_OURS;
use crate::stalled::Stall;
use crate::state::State;
use core::sync::atomic::Ordering::{Relaxed, Release};
use skink_memory::{Holder, SocketId, SocketKind};
use skink_messages::{
    ConnectionOption, Counter, Events, Network, Ports, Shutdown, SocketError, SocketEvents,
    TcpRequest, Waits,
};
use skink_time::Instant;
use skink_wire::{Endpoint, FourTuple, protocol};
use std::collections::VecDeque;

impl Tcp {
    /// `socket`: a socket that is neither bound nor connected, in the first region.
    ///
    /// # Errors
    /// As [`Tcp::open_in`].
    pub fn open(&mut self) -> Result<SocketId, SocketError> {
        self.open_in(0)
    }

    /// As [`Tcp::open`], in this region.
    ///
    /// # Errors
    /// [`SocketError::NoBuffers`] if the region has no slot left, or was abandoned.
    pub fn open_in(&mut self, region: u32) -> Result<SocketId, SocketError> {
        self.open_for(region, 0)
    }

    /// As [`Tcp::open_in`], for the program's call with this serial number: a successor finds the socket
    /// by it ([`Tcp::opened`]). 0 stands for no number.
    ///
    /// # Errors
    /// As [`Tcp::open_in`].
    pub fn open_for(&mut self, region: u32, serial: u32) -> Result<SocketId, SocketError> {
        let slot = self.slots.take(region).ok_or(SocketError::NoBuffers)?;
        let id = self.table.open_slot(slot, SocketKind::Tcp);
        let record = self.table.record(slot);
        record.serial.store(serial, Relaxed);
        record.set_holder(Holder::Attached);
        self.put(slot, Socket::Fresh(Box::default()));
        Ok(id)
    }

    /// `listen`: lets up to `backlog` connections wait to be accepted. On a listener it changes the
    /// backlog.
    pub fn listen<O: Network + Ports>(
        &mut self,
        id: SocketId,
        backlog: u32,
        out: &mut O,
    ) -> Result<Endpoint, SocketError> {
        if let Some(Socket::Listener(listener)) = self.socket_mut(id)
            && !listener.left
        {
            listener.backlog = backlog as usize;
            let (local, room) = (listener.local, listener.room());
            self.table.record(id.slot).backlog.store(backlog, Relaxed);
            self.ask_again(id.slot, room);
            return Ok(local);
        }
        let Some(Socket::Fresh(fresh)) = self.socket(id) else {
            return Err(SocketError::Invalid);
        };
        let (settings, sharing) = (fresh.settings, fresh.sharing);
        let local = match fresh.local {
            Some(local) => local,
            None => {
                let any = Endpoint::new(core::net::Ipv4Addr::UNSPECIFIED.into(), 0);
                self.bind(id, any, sharing, out)?
            }
        };
        if self.is_listened_on(local, id.slot, sharing.shared) {
            return Err(SocketError::AddressInUse);
        }
        self.rest(id, false)?;
        self.demux.add_listener(local, id.slot, settings.reserve);
        out.listen(protocol::TCP, local.port);
        let record = self.table.record(id.slot);
        record.backlog.store(backlog, Relaxed);
        record.seal.store(record.seal(), Relaxed);
        record.state.store(State::Listen as u8, Relaxed);
        // Last: until then it is a bound socket.
        record.set_kind(SocketKind::TcpListener);
        let listener = Listener {
            id,
            local,
            settings,
            shared: sharing.shared,
            backlog: backlog as usize,
            ready: VecDeque::new(),
            offered: VecDeque::new(),
            next_order: 1,
            half_open: 0,
            flooded_until: None,
            handshakes: VecDeque::new(),
            turned_away: VecDeque::new(),
            notify: false,
            lent: false,
            waits: Waits::UNKNOWN,
            stall: Stall::default(),
            left: false,
            orphaned: false,
        };
        self.put(id.slot, Socket::Listener(Box::new(listener)));
        if settings.reserve && self.hands_over() {
            self.show_port(local.port, out);
        }
        self.look_again(local, id.slot);
        Ok(local)
    }

    /// `connect`: begins a handshake. WRITABLE says that it succeeded, ERROR that it failed.
    pub fn connect<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        id: SocketId,
        remote: Endpoint,
        out: &mut O,
    ) -> Result<(), SocketError> {
        let fresh = match self.socket(id) {
            Some(Socket::Fresh(fresh)) => fresh.clone(),
            Some(Socket::Connection(connection)) if connection.state() == State::SynSent => {
                return Err(SocketError::Invalid);
            }
            Some(Socket::Connection(_)) => return Err(SocketError::IsConnected),
            _ => return Err(SocketError::Invalid),
        };
        if remote.port == 0 || remote.addr.is_unspecified() || remote.addr.is_multicast() {
            return Err(SocketError::AddressNotAvailable);
        }
        let bound = fresh.local.map(|local| local.addr);
        let source = bound.filter(|addr| !addr.is_unspecified());
        let path = out
            .path(source, remote.addr)
            .ok_or(SocketError::NetworkUnreachable)?;
        let mut local = Endpoint::new(path.source, 0);
        local.port = match fresh.local {
            Some(bound) => bound.port,
            None => self
                .ephemeral_port(local, Some(remote), out)
                .map_err(|_| SocketError::AddressNotAvailable)?,
        };
        let tuple = FourTuple::new(local, remote);
        if self.demux.flow(&tuple).is_some() {
            if fresh.local.is_none() {
                out.release_port(protocol::TCP, local.port);
            }
            // As Linux: the end can be had, but not towards that peer.
            return Err(SocketError::AddressNotAvailable);
        }
        if let Some(bound) = fresh.local.filter(|_| fresh.resting) {
            self.demux.rest(bound, false);
        }
        let context = Context {
            table: &self.table,
            memory: &self.memory,
            counters: &self.counters,
            now,
        };
        let mut connection = Connection::new(id, fresh.settings, Program::Attached, now);
        connection.holds_port = true;
        connection.set_path(tuple, &path, &context, out);
        connection.begin(self.sequence_secret, State::SynSent, &context);
        self.counters.count(Counter::TcpActiveOpens);
        self.enter_flow(&tuple, id.slot, out);
        self.put(id.slot, Socket::Connection(Box::new(connection)));
        self.enqueue(id.slot);
        Ok(())
    }

    /// `accept`: takes the oldest connection that waits, for a program that is sure to have it.
    pub fn accept(&mut self, listener: SocketId) -> Option<SocketId> {
        let id = self.offer(listener)?;
        self.accepted(id);
        Some(id)
    }

    /// Takes the oldest connection that waits, to offer it to the program. Until it is known to have it
    /// ([`Tcp::accepted`]), it goes on to wait as far as others can tell: a successor offers it again, so that no
    /// connection gets lost because the offer did, and if the listener is closed it goes where those go that wait.
    pub fn offer(&mut self, listener: SocketId) -> Option<SocketId> {
        loop {
            let Some(Socket::Listener(waiting)) = self.socket_mut(listener) else {
                return None;
            };
            if waiting.left {
                return None;
            }
            let slot = waiting.ready.pop_front()?;
            if let Some(Socket::Connection(connection)) = self.sockets.get_mut(slot as usize) {
                connection.offer();
                let id = connection.id;
                self.table.offer(id);
                if let Some(Socket::Listener(listener)) = self.socket_mut(listener) {
                    listener.offered.push_back(id);
                }
                self.ask_again(listener.slot, 1);
                return Some(id);
            }
        }
    }

    /// The program has taken the connection that it was offered, by this instance or by a predecessor.
    pub fn accepted(&mut self, id: SocketId) {
        let Some(Socket::Connection(connection)) = self.socket_mut(id) else {
            return;
        };
        let before = connection.program();
        let established = connection.state() != State::SynReceived;
        if let Program::Awaited(parent) = before
            && established
        {
            connection.offer();
            if let Some(Socket::Listener(listener)) = self.sockets.get_mut(parent as usize) {
                listener.ready.retain(|slot| *slot != id.slot);
            }
            self.ask_again(parent, 1);
        }
        if before != Program::Gone && established {
            let parent = self.take_off_offered(id);
            self.note_taken(parent);
            self.table.record(id.slot).set_holder(Holder::Attached);
        }
    }

    /// Answers the slot of the listener that it waited at.
    pub(crate) fn take_off_offered(&mut self, id: SocketId) -> u32 {
        let parent = self.table.record(id.slot).listener.load(Relaxed);
        let parent = self.table.slot_of(self.table.region_of(id.slot), parent);
        if let Some(Socket::Listener(listener)) = self.sockets.get_mut(parent as usize) {
            // Nearly always the first.
            let at = listener.offered.iter().position(|offered| *offered == id);
            at.map(|at| listener.offered.remove(at));
        }
        parent
    }

    /// How many connections a program was offered and isn't known to have taken.
    pub fn offered(&self, listener: SocketId) -> usize {
        match self.socket(listener) {
            Some(Socket::Listener(listener)) => listener.offered.len(),
            _ => 0,
        }
    }

    /// How many connections wait to be accepted.
    pub fn acceptable(&self, listener: SocketId) -> usize {
        match self.socket(listener) {
            // What waits at one that was left isn't its program's any more ([`Tcp::offer`]).
            Some(Socket::Listener(listener)) if !listener.left => listener.ready.len(),
            _ => 0,
        }
    }

    /// Connections that still have something to finish: data or a FIN to deliver, or a handshake.
    pub fn unfinished(&self) -> usize {
        let sockets = self.sockets.iter();
        let own = sockets.filter(|socket| self.is_unfinished(socket)).count();
        // What still waits at a listener that was left may be another stack's soon.
        let left = self.left.iter().filter_map(|id| match self.socket(*id) {
            Some(Socket::Listener(listener)) => Some(listener.ready.len() + listener.half_open),
            _ => None,
        });
        own + left.sum::<usize>()
    }

    /// Connections that nobody has any more here, whose peers have everything and haven't closed: what they send is answered by a
    /// reset, for as long as somebody is there to do it.
    pub fn half_closed(&self) -> usize {
        let sockets = self.sockets.iter();
        sockets.filter(|socket| is_half_closed(socket)).count()
    }

    /// Takes a flow that nobody knows here and that may be another owner's of the NIC: who has it is to get its segments.
    pub fn take_misled(&mut self) -> Option<FourTuple> {
        self.misled.take()
    }

    /// Bytes that they still have to deliver.
    pub fn undelivered(&self) -> usize {
        let connections = self.sockets.iter().filter_map(|socket| match socket {
            Socket::Connection(connection) if self.is_unfinished(socket) => Some(connection),
            _ => None,
        });
        connections
            .map(|connection| self.table.send_ring(connection.id.slot).len())
            .sum()
    }

    pub(crate) fn is_unfinished(&self, socket: &Socket) -> bool {
        match socket {
            Socket::Free | Socket::Fresh(_) | Socket::Listener(_) => false,
            Socket::Connection(connection) if connection.away => true,
            Socket::Connection(connection) => match connection.state() {
                State::Closed | State::Listen | State::TimeWait | State::FinWait2 => false,
                State::SynSent | State::SynReceived => false,
                State::Established | State::CloseWait => {
                    !self.table.send_ring(connection.id.slot).is_empty()
                }
                State::FinWait1 | State::Closing | State::LastAck => true,
            },
        }
    }

    #[inline(always)]
    pub(crate) fn request<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        request: TcpRequest,
        out: &mut O,
    ) {
        match request {
            TcpRequest::Sent(id) => self.sent(now, id, 0),
            TcpRequest::Received(id) => {
                self.received(now, id);
            }
            TcpRequest::Shutdown(id, how) => {
                self.with_connection(now, id, |connection, context| {
                    if connection.program() == Program::Gone {
                        // Closed by now, perhaps to be reset.
                        return false;
                    }
                    if how != Shutdown::Write {
                        connection.reading_over = true;
                        // Other programs that have the socket may wait to receive.
                        connection.tell(Events::READABLE | Events::READ_CLOSED);
                    }
                    if how != Shutdown::Read {
                        connection.finish_sending(context);
                    }
                    true
                });
            }
            TcpRequest::Close(id) => self.close(now, id, out),
            TcpRequest::SetOption(id, option) => self.set_option(now, id, option, out),
        }
    }

    fn set_option<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        id: SocketId,
        option: ConnectionOption,
        out: &mut O,
    ) {
        match self.socket_mut(id) {
            Some(Socket::Fresh(fresh)) => {
                fresh.settings.set(option);
                let settings = fresh.settings;
                settings.save(self.table.record(id.slot));
            }
            Some(Socket::Listener(listener)) => {
                let before = listener.settings;
                listener.settings.set(option);
                let settings = listener.settings;
                settings.save(self.table.record(id.slot));
                if settings.reserve != before.reserve {
                    self.note_reserve(now, id.slot, out);
                } else if option == ConnectionOption::Reserve(false) {
                    self.note_waiting(now, id.slot, out);
                }
            }
            Some(Socket::Connection(_)) => {
                self.with_connection(now, id, |connection, context| {
                    connection.settings.set(option);
                    connection.settings.save(connection.record(context));
                    match option {
                        ConnectionOption::Cork(_) => {
                            connection.deadlines.cork = None;
                            connection.cork_over = false;
                        }
                        // What a cork holds leaves, as on Linux (tcp(7)); what comes after that is held again.
                        ConnectionOption::NoDelay(true) if connection.has_unsent(context) => {
                            connection.deadlines.cork = None;
                            connection.cork_over = true;
                        }
                        _ => {}
                    }
                    connection.arm_keep_alive(now);
                    true
                });
            }
            Some(Socket::Free) | None => {}
        }
    }

    /// `close`: the program lets go of the socket.
    pub(crate) fn close<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        id: SocketId,
        out: &mut O,
    ) {
        match self.socket_mut(id) {
            Some(Socket::Fresh(_)) => self.free(id.slot, out),
            Some(Socket::Listener(_)) => self.close_listener(now, id, out),
            Some(Socket::Connection(_)) => {
                self.with_connection(now, id, |connection, context| {
                    connection.set_program(Program::Gone, context);
                    false
                });
                self.close_connection(now, id, out);
            }
            Some(Socket::Free) | None => {}
        }
    }

    pub(crate) fn close_connection<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        id: SocketId,
        out: &mut O,
    ) {
        let Some(connection) = self.connection_mut(id) else {
            return;
        };
        let (state, resets) = (connection.state(), connection.settings.reset_on_close);
        match state {
            State::Closed | State::Listen | State::TimeWait => self.free(id.slot, out),
            State::SynSent => self.end(now, id.slot, out),
            // RFC 2525 2.17: unread data is lost, and the peer must not believe otherwise.
            _ if resets || !self.table.receive_ring(id.slot).is_empty() => {
                if state.sends_data() && !self.table.send_ring(id.slot).is_empty() {
                    self.with_connection(now, id, |connection, context| {
                        connection.deliver(context);
                        true
                    });
                    return;
                }
                let _ = self.reset_connection(now, id.slot, out);
                self.end(now, id.slot, out);
            }
            State::SynReceived
            | State::Established
            | State::CloseWait
            | State::FinWait1
            | State::FinWait2
            | State::Closing
            | State::LastAck => {
                self.with_connection(now, id, |connection, context| {
                    connection.finish_sending(context);
                    connection.linger(context);
                    true
                });
            }
        }
    }
}

impl Connection {
    /// What was written is to arrive before the reset that follows: what a server has to say to a request that it doesn't read to
    /// its end. On Linux it has left by now, and a reset overtakes nothing there. (A FIN that is under way already arrives as well.)
    fn deliver(&mut self, context: &Context<'_>) {
        if self.is_to_be_reset() {
            // Time enough to send again once.
            self.deadlines.linger = Some(context.now + self.rtt.timeout(1));
        }
    }

    /// Whether nobody has the connection any more, and it is reset once what was written has arrived, or in a while.
    pub fn is_to_be_reset(&self) -> bool {
        let open = matches!(self.state(), State::Established | State::CloseWait);
        open && self.program() == Program::Gone
    }

    /// The program sends no more: a FIN follows what is in the send ring.
    pub fn finish_sending(&mut self, context: &Context<'_>) {
        let next = match self.state() {
            State::Established => Some(State::FinWait1),
            State::CloseWait => Some(State::LastAck),
            // Our SYN comes first: the FIN waits for the handshake (RFC 9293 3.10.4).
            State::SynSent | State::SynReceived if self.fin.is_none() => None,
            State::SynSent | State::SynReceived => return,
            State::Closed | State::Listen => return,
            State::FinWait1 | State::FinWait2 | State::Closing => return,
            State::LastAck | State::TimeWait => return,
        };
        let ring = self.send_ring(context);
        // Behind what was sent, even if a program spoilt its ring since. (`iss` is no mark to compare
        // with later: after 2 GiB it lies ahead in the number circle.)
        let sent = match self.state() {
            State::SynSent | State::SynReceived => self.iss + 1,
            _ => self.snd_nxt,
        };
        let fin = self.data_end(&ring).max(sent);
        self.fin = Some(fin);
        let record = self.record(context);
        record.fin_number.store(fin.0, Relaxed);
        let flags = record.fin.load(Relaxed) | FIN_OURS;
        record.fin.store(flags, Release);
        if let Some(next) = next {
            self.enter(next, context);
        }
        self.tell(Events::WRITABLE);
    }
}

/// Whether nobody has it here, its peer has everything, and hasn't closed.
pub(crate) fn is_half_closed(socket: &Socket) -> bool {
    match socket {
        Socket::Free | Socket::Fresh(_) | Socket::Listener(_) => false,
        Socket::Connection(connection) => {
            connection.state() == State::FinWait2 && connection.program() == Program::Gone
        }
    }
}

#[cfg(test)]
mod tests;
