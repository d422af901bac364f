//! Segments arrive: each finds its connection, what is left of one, or a listener.

use crate::connection::{Connection, Context, Program};
use crate::demux::Place;
use crate::ending::reply_header;
use crate::instance::{Socket, Tcp};
use crate::receive::After;
use crate::segment::Segment;
use crate::state::State;
use skink_memory::SocketKind;
use skink_messages::{Counter, Network, Ports, SocketEvents};
use skink_time::Instant;
use skink_wire::tcp::{Flags, Header, Options, Timestamps};
use skink_wire::{SeqNum, protocol};

impl Tcp {
    /// A segment arrives.
    #[inline(always)]
    pub(crate) fn on_segment<O: Network + SocketEvents + Ports>(
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

    #[inline(never)]
    fn on_connection_segment<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        slot: u32,
        segment: &Segment<'_>,
        out: &mut O,
    ) {
        if self.accept_queue_is_full(slot, segment) {
            return self.turn_away(slot, segment);
        }
        let context = Context {
            table: &self.table,
            memory: &self.memory,
            counters: &self.counters,
            now,
        };
        let Some(Socket::Connection(connection)) = self.sockets.get_mut(slot as usize) else {
            return;
        };
        if connection.away {
            let id = connection.id;
            return self.keep_late(id, segment);
        }
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
        let Program::Awaited(listener) = connection.program() else {
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
            After::Established => self.on_established(now, slot),
            After::TimeWait => self.on_time_wait(now, slot, out),
            After::Closed => return self.end(now, slot, out),
            After::Reset => {
                // In this order: who took over in between would go on with what the peer has given up.
                self.end(now, slot, out);
                return self.refuse(now, segment, out);
            }
            After::Refuse => self.refuse(now, segment, out),
        }
        self.enqueue(slot);
    }

    /// A handshake is complete: the connection waits to be accepted, if nobody has it yet.
    fn on_established(&mut self, now: Instant, slot: u32) {
        let Some(Socket::Connection(connection)) = self.sockets.get(slot as usize) else {
            return;
        };
        let Program::Awaited(parent) = connection.program() else {
            return;
        };
        if let Some(Socket::Listener(listener)) = self.sockets.get_mut(parent as usize) {
            listener.half_open = listener.half_open.saturating_sub(1);
        }
        self.queue_ready(now, parent, slot);
    }

    /// A segment for a connection in TIME-WAIT (RFC 9293 3.10.7.4, RFC 1337, RFC 6191).
    #[inline(never)]
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
            // An old one would end it too early (RFC 1337), but the answer to ours doesn't: the peer would ask in vain, for a minute.
            if entry.asked && segment.header.seq == entry.rcv_nxt {
                self.counters.count(Counter::TcpResetsIn);
                self.end_time_wait(index, out);
            } else {
                self.counters.count(Counter::TcpDropBadReset);
            }
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
        if request
            && newer
            && self
                .demux
                .listener(&segment.tuple, [&|_| true; 3], &|_| 0)
                .is_some()
        {
            self.counters.count(Counter::TcpTimeWaitReused);
            self.end_time_wait(index, out);
            self.on_new_flow(now, segment, Some(entry.snd_nxt), out);
            return;
        }
        if segment.sequence_len() == 0 {
            return;
        }
        self.counters.count(Counter::TcpDropDuplicate);
        if request {
            self.time_waits.note_asked(index);
        }
        let end = segment.header.seq + segment.sequence_len();
        if segment.has(Flags::FIN) && end == entry.rcv_nxt {
            // Our last acknowledgement was lost, and so may be this one.
            self.time_waits.renew(now, index);
        }
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
        let _ = self.send_bare(now, &entry.tuple, &header, &options, out);
    }

    /// A segment of no known flow: a connection request for a listener, or a stray (RFC 9293
    /// 3.10.7.1 and 3.10.7.2). `after`: the sequence numbers of an earlier connection between the
    /// same ends went up to here.
    #[inline(never)]
    fn on_new_flow<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        segment: &Segment<'_>,
        after: Option<SeqNum>,
        out: &mut O,
    ) {
        let tuple = segment.tuple;
        if tuple.local.addr.is_multicast() || tuple.remote.addr.is_multicast() {
            // RFC 9293 3.9.2.3 (MUST-57): neither connections nor resets for groups.
            return self.counters.count(Counter::TcpDropMalformed);
        }
        let parent = self.listener_for(now, &tuple);
        let [acks, resets] = [Flags::ACK, Flags::RST].map(|flag| segment.has(flag));
        let request = segment.has(Flags::SYN) && !acks && !resets;
        if parent.is_none() && request {
            // Refused, the peer would give up, although somebody is about to listen.
            let (local, port) = (tuple.local, tuple.local.port);
            let left = self.demux.has_left(now, local);
            let elsewhere =
                out.moved(protocol::TCP, port) || left && out.others_listen(protocol::TCP, port);
            // What we send to ourselves reaches nobody else.
            let elsewhere = elsewhere && !out.is_local(tuple.remote.addr);
            if elsewhere && self.send_on(segment) {
                return self.counters.count(Counter::TcpSentOn);
            }
            if self.demux.is_resting(local) || elsewhere {
                return self.counters.count(Counter::TcpDropMoved);
            }
        }
        let Some(parent) = parent.filter(|_| !segment.has(Flags::ACK)) else {
            if self.answer_forgotten(now, segment, out) {
                return;
            }
            if self.is_of_a_lost_flow(now, segment) {
                return self.counters.count(Counter::TcpDropLost);
            }
            if !request
                && !resets
                && out.others_use(protocol::TCP, tuple.local.port)
                && !out.is_local(tuple.remote.addr)
                && self.misled.may_be(now, &tuple)
            {
                return self.counters.count(Counter::TcpDropMisled);
            }
            self.counters.count(Counter::TcpDropNoSocket);
            return self.refuse(now, segment, out);
        };
        // (What begins and ends at once is no correct peer's. Linux drops it, too.)
        if segment.has(Flags::RST) || segment.has(Flags::FIN) || !segment.has(Flags::SYN) {
            self.counters.count(Counter::TcpDropBadFlags);
            return;
        }
        let Some(Socket::Listener(listener)) = self.sockets.get(parent as usize) else {
            return;
        };
        if !listener.has_room() {
            self.counters.count(Counter::TcpDropListenOverflow);
            return;
        }
        let (settings, crowded) = (listener.settings, listener.is_crowded());
        let Some(path) = out.path(Some(tuple.local.addr), tuple.remote.addr) else {
            self.counters.count(Counter::TcpDropNoSocket);
            return;
        };
        if crowded && !self.give_up_oldest(now, parent, out) {
            self.counters.count(Counter::TcpDropHalfOpen);
            return;
        }
        let region = self.table.region_of(parent);
        let mut slot = self.slots.take(region);
        if slot.is_none() && self.give_up_oldest(now, parent, out) {
            slot = self.slots.take(region);
        }
        let Some(slot) = slot else {
            self.counters.count(Counter::TcpDropNoMemory);
            return;
        };
        let id = self.table.open_slot(slot, SocketKind::Tcp);
        let context = Context {
            table: &self.table,
            memory: &self.memory,
            counters: &self.counters,
            now,
        };
        let mut connection = Connection::new(id, settings, Program::Awaited(parent), now);
        connection.set_path(tuple, &path, &context, out);
        connection.begin(self.sequence_secret, State::SynReceived, &context);
        if let Some(after) = after {
            // RFC 6191: beyond anything that the earlier connection sent.
            connection.restart_numbers(after + 65_537);
        }
        connection.take_syn(segment, &context);
        connection.settings.save(connection.record(&context));
        // All that an adopter needs, and only then that there is something to adopt.
        connection.save(&context, connection.snd_nxt);
        connection.save_program(&context);
        connection.holds_port = out.use_port(protocol::TCP, tuple.local.port, false);
        self.counters.count(Counter::TcpPassiveOpens);
        self.enter_flow(&tuple, slot, out);
        self.put(slot, Socket::Connection(Box::new(connection)));
        self.note_half_open(parent, id);
        self.enqueue(slot);
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
        self.limited_end = iss;
        self.recovery.lost_below = iss;
        self.recovery.resent_below = iss;
    }
}
