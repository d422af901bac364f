use crate::connection::{Connection, Context, Program};
use crate::demux::{Demux, Place};
use crate::listener::Listener;
use crate::output::{Left, packet};
use crate::receive::After;
use crate::segment::Segment;
use crate::settings::Settings;
use crate::state::State;
use crate::time_wait::TimeWaits;
use core::net::IpAddr;
use skink_memory::{Bytes, Slots, SocketId, SocketKind, SocketTable};
use skink_messages::{
    Component, Counter, Counters, ErrorKind, Events, Full, Network, NetworkError, Outbound, Ports,
    Progress, SocketError, SocketEvent, SocketEvents, TcpInput,
};
use skink_time::{Instant, TimerWheel};
use skink_wire::tcp::{Flags, Header, Options, Timestamps};
use skink_wire::{Endpoint, FourTuple, SeqNum, protocol};
use std::collections::{HashMap, VecDeque};

/// What a TCP instance needs to know.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpConfig {
    /// Sequence numbers, timestamps, ports and hash keys are drawn from it.
    pub seed: u64,
}

/// A socket that is neither listening nor connected.
#[derive(Clone, Default)]
pub(crate) struct Fresh {
    pub settings: Settings,
    pub local: Option<Endpoint>,
    pub reuse_address: bool,
}

pub(crate) enum Socket {
    Free,
    Fresh(Box<Fresh>),
    Listener(Box<Listener>),
    Connection(Box<Connection>),
}

/// One instance of TCP, with a table of sockets of its own. See the crate's documentation.
pub struct Tcp {
    pub(crate) secret: u64,
    pub(crate) table: SocketTable,
    pub(crate) counters: Counters,
    pub(crate) slots: Slots,
    pub(crate) sockets: Vec<Socket>,
    pub(crate) demux: Demux,
    /// Who is bound to a port explicitly, or listens.
    pub(crate) bound: HashMap<u16, Vec<(IpAddr, u32)>>,
    pub(crate) ephemeral_counter: u16,
    pub(crate) time_waits: TimeWaits,
    pub(crate) wheel: TimerWheel,
    /// Connections that may have something to send.
    pub(crate) queue: VecDeque<u32>,
    /// Sockets that have something to tell their program.
    pub(crate) notices: VecDeque<u32>,
}

impl Tcp {
    /// An instance without sockets, on a table that nobody else gives slots of.
    pub fn new(config: TcpConfig, table: SocketTable, counters: Counters) -> Tcp {
        Tcp {
            secret: config.seed,
            slots: Slots::new(table.config().sockets),
            table,
            counters,
            sockets: Vec::new(),
            demux: Demux::new(config.seed),
            bound: HashMap::new(),
            ephemeral_counter: config.seed as u16,
            time_waits: TimeWaits::default(),
            wheel: TimerWheel::new(),
            queue: VecDeque::new(),
            notices: VecDeque::new(),
        }
    }

    /// The sockets' records and rings.
    pub fn table(&self) -> &SocketTable {
        &self.table
    }

    pub(crate) fn put(&mut self, slot: u32, socket: Socket) {
        let index = slot as usize;
        if index >= self.sockets.len() {
            self.sockets.resize_with(index + 1, || Socket::Free);
        }
        self.sockets[index] = socket;
    }

    pub(crate) fn socket(&self, id: SocketId) -> Option<&Socket> {
        self.table.find(id)?;
        self.sockets.get(id.slot as usize)
    }

    pub(crate) fn socket_mut(&mut self, id: SocketId) -> Option<&mut Socket> {
        self.table.find(id)?;
        self.sockets.get_mut(id.slot as usize)
    }

    pub(crate) fn connection_mut(&mut self, id: SocketId) -> Option<&mut Connection> {
        match self.socket_mut(id) {
            Some(Socket::Connection(connection)) => Some(connection),
            _ => None,
        }
    }

    /// Lets a connection look for something to send at the next poll.
    pub(crate) fn enqueue(&mut self, slot: u32) {
        if let Some(Socket::Connection(connection)) = self.sockets.get_mut(slot as usize)
            && !connection.queued
        {
            connection.queued = true;
            self.queue.push_back(slot);
        }
    }

    /// A segment arrives.
    fn on_segment<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        segment: &Segment<'_>,
        out: &mut O,
    ) {
        match self.demux.flow(&segment.tuple) {
            Some(Place::Connection(slot)) => self.on_connection_segment(now, slot, segment, out),
            Some(Place::TimeWait(index)) => self.on_time_wait_segment(now, index, segment, out),
            None => self.on_new_flow(now, segment, None, out),
        }
    }

    fn on_connection_segment<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        slot: u32,
        segment: &Segment<'_>,
        out: &mut O,
    ) {
        if self.accept_queue_is_full(slot, segment) {
            // As in Linux, the peer's acknowledgement is forgotten; ours is sent again later.
            self.counters.count(Counter::TcpDropListenOverflow);
            return;
        }
        let context = Context {
            table: &self.table,
            counters: &self.counters,
            now,
        };
        let Some(Socket::Connection(connection)) = self.sockets.get_mut(slot as usize) else {
            return;
        };
        let after = match connection.state() {
            State::SynSent => connection.on_segment_in_syn_sent(segment, &context),
            State::SynReceived => connection.on_segment_in_syn_received(segment, &context),
            State::Closed | State::Listen => After::Refuse,
            State::Established
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait
            | State::Closing
            | State::LastAck
            | State::TimeWait => connection.on_segment(segment, &context),
        };
        self.finish(now, slot, after, segment, out);
        let more = !segment.payload.is_empty() || segment.has(Flags::FIN);
        if after == After::Established && more && !segment.has(Flags::SYN) {
            self.on_connection_segment(now, slot, segment, out);
        }
    }

    fn accept_queue_is_full(&self, slot: u32, segment: &Segment<'_>) -> bool {
        let Some(Socket::Connection(connection)) = self.sockets.get(slot as usize) else {
            return false;
        };
        let Program::Awaited(listener) = connection.program else {
            return false;
        };
        let completes = connection.state() == State::SynReceived
            && segment.has(Flags::ACK)
            && !segment.has(Flags::RST);
        completes
            && matches!(self.sockets.get(listener as usize),
                Some(Socket::Listener(listener)) if !listener.has_room())
    }

    /// Does what a segment (or a timer) led to.
    fn finish<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        slot: u32,
        after: After,
        segment: &Segment<'_>,
        out: &mut O,
    ) {
        match after {
            After::Goes => {}
            After::Established => self.on_established(slot),
            After::TimeWait => self.on_time_wait(now, slot, out),
            After::Closed => return self.end(now, slot, out),
            After::Reset => {
                self.refuse(now, segment, out);
                return self.end(now, slot, out);
            }
            After::Refuse => self.refuse(now, segment, out),
        }
        self.enqueue(slot);
    }

    /// A handshake is complete: the connection waits to be accepted, if nobody has it yet.
    fn on_established(&mut self, slot: u32) {
        let Some(Socket::Connection(connection)) = self.sockets.get(slot as usize) else {
            return;
        };
        let Program::Awaited(parent) = connection.program else {
            return;
        };
        if let Some(Socket::Listener(listener)) = self.sockets.get_mut(parent as usize) {
            listener.half_open = listener.half_open.saturating_sub(1);
            listener.ready.push_back(slot);
            if !listener.notify {
                listener.notify = true;
                self.notices.push_back(parent);
            }
        }
    }

    /// Sends the last acknowledgement, and keeps just what TIME-WAIT needs.
    fn on_time_wait<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        slot: u32,
        out: &mut O,
    ) {
        let context = Context {
            table: &self.table,
            counters: &self.counters,
            now,
        };
        let Some(Socket::Connection(connection)) = self.sockets.get_mut(slot as usize) else {
            return;
        };
        // If it can't leave now, the peer's FIN comes again and is answered from TIME-WAIT.
        let _ = connection.output(&context, out);
        connection.ack_due = false;
        connection.deadlines = Default::default();
        connection.tell(Events::READ_CLOSED | Events::CLOSED);
        let tuple = connection.tuple;
        let stamps = (connection.ts_recent, connection.ts_offset);
        let entry = TimeWaits::entry(
            tuple,
            connection.snd_nxt,
            connection.rcv_nxt,
            connection.timestamps.then_some(stamps),
            connection.window(&context).0,
        );
        if self.time_waits.is_full()
            && let Some((index, oldest)) = self.time_waits.pop_oldest()
        {
            self.counters.count(Counter::TcpTimeWaitReused);
            self.demux.remove(&oldest.tuple, Place::TimeWait(index));
            out.release_port(protocol::TCP, oldest.tuple.local.port);
        }
        // The port stays in use as long as TIME-WAIT lasts.
        out.use_port(protocol::TCP, tuple.local.port, false);
        let index = self.time_waits.insert(now, entry);
        self.demux.insert(tuple, Place::TimeWait(index));
        let gone = match self.sockets.get(slot as usize) {
            Some(Socket::Connection(connection)) => connection.program == Program::Gone,
            _ => false,
        };
        self.counters.count(Counter::TcpClosed);
        if gone {
            self.free(slot, out);
        } else {
            self.notice(slot);
        }
    }

    /// A segment for a connection in TIME-WAIT (RFC 9293 3.10.7.4, RFC 1337, RFC 6191).
    fn on_time_wait_segment<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        index: u32,
        segment: &Segment<'_>,
        out: &mut O,
    ) {
        let Some(entry) = self.time_waits.get(index).copied() else {
            return;
        };
        if segment.has(Flags::RST) {
            self.counters.count(Counter::TcpDropBadReset);
            return;
        }
        let newer = match (entry.timestamps, segment.options.timestamps) {
            // RFC 6191, and within one tick of the clock by the sequence number, as in Linux.
            (Some((recent, _)), Some(stamp)) if stamp.value != recent => {
                (stamp.value.wrapping_sub(recent) as i32) > 0
            }
            _ => segment.header.seq.gt(entry.rcv_nxt),
        };
        let request = segment.has(Flags::SYN) && !segment.has(Flags::ACK);
        if request && newer && self.demux.listener(&segment.tuple).is_some() {
            self.counters.count(Counter::TcpTimeWaitReused);
            self.end_time_wait(index, out);
            self.on_new_flow(now, segment, Some(entry.snd_nxt), out);
            return;
        }
        if segment.sequence_len() == 0 {
            return;
        }
        self.counters.count(Counter::TcpDropDuplicate);
        let timestamps = entry.timestamps.map(|(recent, offset)| Timestamps {
            value: (now.as_millis() as u32).wrapping_add(offset),
            echo: recent,
        });
        let options = Options {
            timestamps,
            ..Options::default()
        };
        let header = reply_header(&entry.tuple, entry.snd_nxt, entry.rcv_nxt, Flags::ACK);
        let header = Header {
            window: entry.window,
            ..header
        };
        self.send_bare(now, &entry.tuple, &header, &options, out);
    }

    fn end_time_wait<O: Ports>(&mut self, index: u32, out: &mut O) {
        if let Some(entry) = self.time_waits.remove(index) {
            self.demux.remove(&entry.tuple, Place::TimeWait(index));
            out.release_port(protocol::TCP, entry.tuple.local.port);
        }
    }

    /// A segment of no known flow: a connection request for a listener, or a stray (RFC 9293
    /// 3.10.7.1 and 3.10.7.2). `after`: the sequence numbers of an earlier connection between the
    /// same ends went up to here.
    fn on_new_flow<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        segment: &Segment<'_>,
        after: Option<SeqNum>,
        out: &mut O,
    ) {
        let group = segment.tuple.local.addr.is_multicast();
        if group || segment.tuple.remote.addr.is_multicast() {
            // RFC 9293 3.9.2.3 (MUST-57): neither connections nor resets for groups.
            return self.counters.count(Counter::TcpDropMalformed);
        }
        let parent = self.demux.listener(&segment.tuple);
        let Some(parent) = parent.filter(|_| !segment.has(Flags::ACK)) else {
            self.counters.count(Counter::TcpDropNoSocket);
            return self.refuse(now, segment, out);
        };
        if segment.has(Flags::RST) || !segment.has(Flags::SYN) {
            self.counters.count(Counter::TcpDropBadFlags);
            return;
        }
        let Some(Socket::Listener(listener)) = self.sockets.get_mut(parent as usize) else {
            return;
        };
        if !listener.admits() {
            self.counters.count(Counter::TcpDropListenOverflow);
            return;
        }
        let tuple = segment.tuple;
        let Some(path) = out.path(Some(tuple.local.addr), tuple.remote.addr) else {
            self.counters.count(Counter::TcpDropNoSocket);
            return;
        };
        let Some(slot) = self.slots.take() else {
            self.counters.count(Counter::TcpDropNoMemory);
            return;
        };
        listener.half_open += 1;
        let settings = listener.settings;
        let id = self.table.open_slot(slot, SocketKind::Tcp);
        let context = Context {
            table: &self.table,
            counters: &self.counters,
            now,
        };
        let mut connection = Connection::new(id, settings, Program::Awaited(parent), now);
        connection.set_path(tuple, &path, &context);
        connection.begin(self.secret, State::SynReceived, &context);
        if let Some(after) = after {
            // RFC 6191: beyond anything that the earlier connection sent.
            connection.restart_numbers(after + 65_537);
        }
        connection.take_syn(segment, &context);
        connection.holds_port = out.use_port(protocol::TCP, tuple.local.port, false);
        self.counters.count(Counter::TcpPassiveOpens);
        self.demux.insert(tuple, Place::Connection(slot));
        self.put(slot, Socket::Connection(Box::new(connection)));
        self.enqueue(slot);
    }

    /// Answers a segment that belongs to nothing with a reset (RFC 9293 3.10.7.1).
    fn refuse<O: Network>(&mut self, now: Instant, segment: &Segment<'_>, out: &mut O) {
        if segment.has(Flags::RST) {
            return;
        }
        let tuple = &segment.tuple;
        let header = if segment.has(Flags::ACK) {
            reply_header(tuple, segment.header.ack, SeqNum(0), Flags::RST)
        } else {
            reply_header(tuple, SeqNum(0), segment.end(), Flags::RST | Flags::ACK)
        };
        self.counters.count(Counter::TcpResetsOut);
        self.send_bare(now, tuple, &header, &Options::default(), out);
    }

    /// Tells the peer that the connection is gone.
    pub(crate) fn reset_connection<O: Network>(&mut self, now: Instant, slot: u32, out: &mut O) {
        let Some(Socket::Connection(connection)) = self.sockets.get(slot as usize) else {
            return;
        };
        let synchronized = connection.state().is_synchronized();
        if !synchronized && connection.state() != State::SynReceived {
            return;
        }
        let (tuple, flags) = (connection.tuple, Flags::RST | Flags::ACK);
        let header = reply_header(&tuple, connection.snd_nxt, connection.rcv_nxt, flags);
        self.counters.count(Counter::TcpResetsOut);
        self.send_bare(now, &tuple, &header, &Options::default(), out);
    }

    /// Sends a header alone. If there is no room it is lost, as on any wire: the peer asks again.
    fn send_bare<O: Network>(
        &self,
        now: Instant,
        tuple: &FourTuple,
        header: &Header,
        options: &Options,
        out: &mut O,
    ) {
        let to = Outbound {
            source: tuple.local.addr,
            destination: tuple.remote.addr,
            protocol: protocol::TCP,
            hop_limit: None,
            traffic_class: 0,
            dont_fragment: true,
        };
        let mut packet = packet(tuple, header, options, [Bytes::EMPTY; 2]);
        if out.send(now, &to, &mut packet).is_ok() {
            self.counters.count(Counter::TcpSegmentsOut);
        }
    }

    /// A connection is over: what is left is what its program hasn't taken.
    pub(crate) fn end<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        slot: u32,
        out: &mut O,
    ) {
        let context = Context {
            table: &self.table,
            counters: &self.counters,
            now,
        };
        let Some(Socket::Connection(connection)) = self.sockets.get_mut(slot as usize) else {
            return;
        };
        let state = connection.state();
        let half_open = matches!(state, State::SynSent | State::SynReceived);
        let counter = if half_open {
            Counter::TcpFailed
        } else {
            Counter::TcpClosed
        };
        context.counters.count(counter);
        connection.enter(State::Closed, &context);
        connection.deadlines = Default::default();
        connection.tell(Events::READABLE | Events::WRITABLE | Events::READ_CLOSED | Events::CLOSED);
        let (tuple, program) = (connection.tuple, connection.program);
        self.demux.remove(&tuple, Place::Connection(slot));
        self.wheel.cancel(slot);
        let keep = match program {
            Program::Attached => true,
            Program::Gone => false,
            Program::Awaited(parent) => {
                if half_open
                    && let Some(Socket::Listener(listener)) = self.sockets.get_mut(parent as usize)
                {
                    listener.half_open = listener.half_open.saturating_sub(1);
                }
                !half_open
            }
        };
        if keep {
            self.notice(slot);
        } else {
            self.free(slot, out);
        }
    }

    /// Gives a socket's slot back.
    pub(crate) fn free<O: Ports>(&mut self, slot: u32, out: &mut O) {
        let Some(place) = self.sockets.get_mut(slot as usize) else {
            return;
        };
        let socket = core::mem::replace(place, Socket::Free);
        let port = match &socket {
            Socket::Free => return,
            Socket::Fresh(fresh) => fresh.local.map(|local| local.port),
            Socket::Listener(listener) => Some(listener.local.port),
            Socket::Connection(connection) => {
                connection.holds_port.then_some(connection.tuple.local.port)
            }
        };
        if let Some(port) = port {
            out.release_port(protocol::TCP, port);
            if let Some(bound) = self.bound.get_mut(&port) {
                bound.retain(|(_, other)| *other != slot);
                if bound.is_empty() {
                    self.bound.remove(&port);
                }
            }
        }
        self.wheel.cancel(slot);
        self.table.close_slot(slot);
        self.slots.give(slot);
    }

    /// Queues a connection that has something to tell.
    fn notice(&mut self, slot: u32) {
        if let Some(Socket::Connection(connection)) = self.sockets.get_mut(slot as usize)
            && !connection.notified
            && !connection.events.is_empty()
        {
            connection.notified = true;
            self.notices.push_back(slot);
        }
    }

    /// An ICMP error about a segment of ours (RFC 5461, RFC 5927, RFC 8201).
    fn on_error<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        error: &NetworkError,
        out: &mut O,
    ) {
        let tuple = FourTuple::new(error.local, error.remote);
        let context = Context {
            table: &self.table,
            counters: &self.counters,
            now,
        };
        let slot = match self.demux.flow(&tuple) {
            Some(Place::Connection(slot)) => slot,
            Some(Place::TimeWait(_)) | None => {
                return self.counters.count(Counter::TcpDropBadError);
            }
        };
        let Some(Socket::Connection(connection)) = self.sockets.get_mut(slot as usize) else {
            return;
        };
        let quoted = SeqNum(error.sequence);
        if quoted.lt(connection.snd_una) || quoted.ge(connection.snd_nxt) {
            return self.counters.count(Counter::TcpDropBadError);
        }
        let opening = connection.state() == State::SynSent;
        let failure = match error.kind {
            ErrorKind::PacketTooBig { mtu } => {
                connection.shrink_path(mtu);
                return self.enqueue(slot);
            }
            ErrorKind::PortUnreachable | ErrorKind::ProtocolUnreachable => SocketError::Refused,
            ErrorKind::HostUnreachable | ErrorKind::TimeExceeded => SocketError::HostUnreachable,
            ErrorKind::Prohibited => SocketError::Prohibited,
        };
        // RFC 5461: only a connection that doesn't stand yet takes it as final.
        if opening {
            connection.fail(failure, &context);
            self.end(now, slot, out);
        }
    }

    /// Lets timers run.
    fn expire<O: Network + SocketEvents + Ports>(&mut self, now: Instant, out: &mut O) {
        while let Some((index, entry)) = self.time_waits.pop_expired(now) {
            self.demux.remove(&entry.tuple, Place::TimeWait(index));
            out.release_port(protocol::TCP, entry.tuple.local.port);
        }
        while let Some(slot) = self.wheel.pop_expired(now) {
            let context = Context {
                table: &self.table,
                counters: &self.counters,
                now,
            };
            let Some(Socket::Connection(connection)) = self.sockets.get_mut(slot as usize) else {
                continue;
            };
            connection.armed = None;
            if connection.on_timers(&context) == After::Closed {
                // A peer that still asks must not be refused just because our answers were lost.
                if !matches!(connection.state(), State::FinWait2 | State::SynReceived) {
                    self.reset_connection(now, slot, out);
                }
                self.end(now, slot, out);
            } else {
                self.enqueue(slot);
            }
        }
    }

    /// Lets queued connections send; `Full` if the network had no room.
    fn send_queued<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        out: &mut O,
    ) -> Result<(), Full> {
        let context = Context {
            table: &self.table,
            counters: &self.counters,
            now,
        };
        for _ in 0..self.queue.len() {
            let Some(slot) = self.queue.pop_front() else {
                break;
            };
            let Some(Socket::Connection(connection)) = self.sockets.get_mut(slot as usize) else {
                continue;
            };
            connection.queued = false;
            let left = connection.output(&context, out);
            let first = connection.deadlines.first();
            if let Some(first) = first
                && connection.armed.is_none_or(|armed| first < armed)
            {
                self.wheel.set(slot, first);
                connection.armed = Some(first);
            }
            if !connection.notified && !connection.events.is_empty() {
                connection.notified = true;
                self.notices.push_back(slot);
            }
            match left {
                Ok(Left::Nothing) => {}
                Ok(Left::More) => {
                    connection.queued = true;
                    self.queue.push_back(slot);
                }
                Err(full) => {
                    connection.queued = true;
                    self.queue.push_front(slot);
                    return Err(full);
                }
            }
        }
        Ok(())
    }

    /// Tells programs what happened; `Full` if they have no room for it.
    fn send_events<O: SocketEvents>(&mut self, out: &mut O) -> Result<(), Full> {
        while let Some(slot) = self.notices.front().copied() {
            let event = match self.sockets.get_mut(slot as usize) {
                Some(Socket::Connection(connection)) => {
                    // Nobody knows the connection until it is accepted, nor once it was closed. Who
                    // accepts it looks at the rings and the record anyway.
                    let event = SocketEvent {
                        socket: connection.id,
                        events: connection.events,
                    };
                    (connection.program == Program::Attached).then_some(event)
                }
                Some(Socket::Listener(listener)) => Some(SocketEvent {
                    socket: listener.id,
                    events: Events::READABLE,
                }),
                Some(Socket::Fresh(_) | Socket::Free) | None => None,
            };
            if let Some(event) = event.filter(|event| !event.events.is_empty()) {
                out.tcp_event(event)?;
            }
            self.notices.pop_front();
            match self.sockets.get_mut(slot as usize) {
                Some(Socket::Connection(connection)) => {
                    connection.notified = false;
                    connection.events = Events::empty();
                }
                Some(Socket::Listener(listener)) => listener.notify = false,
                Some(Socket::Fresh(_) | Socket::Free) | None => {}
            }
        }
        Ok(())
    }
}

fn reply_header(tuple: &FourTuple, seq: SeqNum, ack: SeqNum, flags: Flags) -> Header {
    Header {
        source_port: tuple.local.port,
        destination_port: tuple.remote.port,
        seq,
        ack,
        flags,
        window: 0,
        urgent: 0,
        header_len: 0,
    }
}

impl<Out: Network + SocketEvents + Ports> Component<Out> for Tcp {
    type Input<'a> = TcpInput<'a>;

    /// Never refuses: what a message leads to is sent by [`Component::poll`], which must follow.
    #[inline]
    fn handle(&mut self, now: Instant, input: TcpInput<'_>, out: &mut Out) -> Result<(), Full> {
        match input {
            TcpInput::Packet(packet) => {
                self.counters.count(Counter::TcpSegmentsIn);
                match Segment::parse(&packet) {
                    Ok(segment) => self.on_segment(now, &segment, out),
                    Err(reason) => self.counters.count(reason),
                }
            }
            TcpInput::Error(error) => self.on_error(now, &error, out),
            TcpInput::Request(request) => self.request(now, request, out),
        }
        Ok(())
    }

    fn poll(&mut self, now: Instant, out: &mut Out) -> Progress {
        self.expire(now, out);
        let sent = self.send_queued(now, out);
        let told = self.send_events(out);
        if sent.is_err() || told.is_err() || !self.queue.is_empty() {
            Progress::More
        } else {
            Progress::Idle
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let timers = self.wheel.next_deadline();
        let waiting = self.time_waits.next_deadline();
        [timers, waiting].into_iter().flatten().min()
    }
}

impl Connection {
    /// Moves our half of the sequence space, before anything was sent.
    fn restart_numbers(&mut self, at_least: SeqNum) {
        let iss = self.iss.max(at_least);
        self.iss = iss;
        self.snd_una = iss;
        self.snd_nxt = iss;
        self.small_end = iss;
        self.recovery.lost_below = iss;
        self.recovery.resent_below = iss;
    }

    /// The path takes smaller packets than was thought: cut again what is in flight.
    fn shrink_path(&mut self, mtu: u32) {
        // RFC 8201: never below 1280; RFC 1191: 68, but no sane path is below 576.
        let least = if self.tuple.local.addr.is_ipv4() {
            576
        } else {
            1_280
        };
        let mtu = mtu.max(least);
        if mtu < self.path_mtu {
            self.path_mtu = mtu;
            self.update_segment_sizes();
            self.resend_all();
        }
    }
}
