//! Connections end: by TIME-WAIT, by a reset, or because nobody needs them any more.

use crate::connection::Context;
use crate::connection::Program;
use crate::demux::Place;
use crate::instance::{Socket, Tcp};
use crate::output::BURST;
use crate::segment::{Outgoing, Segment};
use crate::sockets::is_half_closed;
use crate::state::State;
use crate::time_wait::{TimeWait, TimeWaits};
use skink_memory::Bytes;
use skink_messages::{Counter, Events, Full, Network, Outbound, Ports, Progress, SocketEvents};
use skink_time::Instant;
use skink_wire::tcp::{Flags, Header, Options};
use skink_wire::{FourTuple, SeqNum, protocol};

impl Tcp {
    /// Sends the last acknowledgement, and keeps just what TIME-WAIT needs.
    pub(crate) fn on_time_wait<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        slot: u32,
        out: &mut O,
    ) {
        let context = Context {
            table: &self.table,
            memory: &self.memory,
            counters: &self.counters,
            now,
        };
        let Some(Socket::Connection(connection)) = self.sockets.get_mut(slot as usize) else {
            return;
        };
        // Nothing more is asked of the peer, which may be gone once it is acknowledged.
        connection.probe_due = false;
        // If it can't leave now, the peer's FIN comes again and is answered from TIME-WAIT.
        let _ = connection.output(&context, &mut { BURST }, out);
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
            self.leave_time_wait(index, &oldest, out);
        }
        // The port stays in use as long as TIME-WAIT lasts.
        out.use_port(protocol::TCP, tuple.local.port, false);
        let index = self.time_waits.insert(now, entry);
        if entry.is_told_by_stamps() {
            self.leave_flow(&tuple, slot, out);
        }
        self.demux.insert(tuple, Place::TimeWait(index));
        let gone = match self.sockets.get(slot as usize) {
            Some(Socket::Connection(connection)) => connection.program() == Program::Gone,
            _ => false,
        };
        self.counters.count(Counter::TcpClosed);
        if gone {
            self.free(slot, out);
        } else {
            self.notice(slot);
        }
    }

    pub(crate) fn end_time_wait<O: Ports>(&mut self, index: u32, out: &mut O) {
        if let Some(entry) = self.time_waits.remove(index) {
            self.leave_time_wait(index, &entry, out);
        }
    }

    /// An entry that was just taken out is over.
    pub(crate) fn leave_time_wait<O: Ports>(&mut self, index: u32, entry: &TimeWait, out: &mut O) {
        self.demux.remove(&entry.tuple, Place::TimeWait(index));
        out.release_port(protocol::TCP, entry.tuple.local.port);
        if !entry.is_told_by_stamps() {
            out.flow_ends(&entry.tuple);
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
            memory: &self.memory,
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
        connection.save_over(&context);
        connection.enter(State::Closed, &context);
        connection.deadlines = Default::default();
        connection.tell(Events::READABLE | Events::WRITABLE | Events::READ_CLOSED | Events::CLOSED);
        let (tuple, program) = (connection.tuple, connection.program());
        let asked = connection.asked;
        self.leave_flow(&tuple, slot, out);
        self.wheel.cancel(slot);
        let keep = match program {
            Program::Attached => true,
            Program::Gone => false,
            Program::Awaited(parent) => {
                if half_open
                    && let Some(Socket::Listener(listener)) = self.sockets.get_mut(parent as usize)
                {
                    listener.half_open = listener.half_open.saturating_sub(1);
                    self.comes_to_nothing(parent);
                }
                !half_open
            }
        };
        if let Program::Awaited(parent) = program
            && half_open
            && asked
        {
            // The place in the accept queue that it was asked for is another's.
            self.ask_again(parent, 1);
        }
        if keep {
            self.notice(slot);
        } else {
            self.free(slot, out);
        }
    }

    /// Segments of the flow are those of the connection in `slot` from now on.
    pub(crate) fn enter_flow<O: Ports>(&mut self, tuple: &FourTuple, slot: u32, out: &mut O) {
        self.demux.insert(*tuple, Place::Connection(slot));
        out.flow_begins(tuple);
    }

    /// The connection in `slot` has its flow no longer.
    pub(crate) fn leave_flow<O: Ports>(&mut self, tuple: &FourTuple, slot: u32, out: &mut O) {
        if self.demux.remove(tuple, Place::Connection(slot)) {
            out.flow_ends(tuple);
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
            Socket::Fresh(fresh) => {
                if let Some(local) = fresh.local.filter(|_| fresh.resting) {
                    self.demux.rest(local, false);
                }
                fresh.local.map(|local| local.port)
            }
            Socket::Listener(listener) => Some(listener.local.port),
            Socket::Connection(connection) => {
                if !connection.ahead.is_empty() {
                    // Whoever has the slot next, or nobody, doesn't know that it takes memory beyond the tail.
                    self.table.strip_received(slot, 0);
                }
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
        self.table.close_slot(slot, &mut self.slots);
    }

    /// Queues a connection that has something to tell.
    pub(crate) fn notice(&mut self, slot: u32) {
        if let Some(Socket::Connection(connection)) = self.sockets.get_mut(slot as usize)
            && !connection.notified
            && !connection.events.is_empty()
        {
            connection.notified = true;
            self.notices.push_back(slot);
        }
    }

    /// Resets connections that have something to deliver, for a stack that stops: nobody would deliver it. So it does with those that
    /// are [half closed](Tcp::half_closed): nobody would answer their peers. `More` if the network had no room for all that.
    pub fn reset_unfinished<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        out: &mut O,
    ) -> Progress {
        for slot in 0..self.sockets.len() {
            let socket = self.sockets.get(slot);
            if !socket.is_some_and(|it| self.is_unfinished(it) || is_half_closed(it)) {
                continue;
            }
            let slot = slot as u32;
            if self.reset_connection(now, slot, out).is_err() {
                return Progress::More;
            }
            self.end(now, slot, out);
        }
        Progress::Idle
    }

    /// Tells the peer that the connection is gone, unless there is no room; [`Tcp::end`] or [`Tcp::free`] must follow.
    pub(crate) fn reset_connection<O: Network>(
        &mut self,
        now: Instant,
        slot: u32,
        out: &mut O,
    ) -> Result<(), Full> {
        let Some(Socket::Connection(connection)) = self.sockets.get(slot as usize) else {
            return Ok(());
        };
        let synchronized = connection.state().is_synchronized();
        if !synchronized && connection.state() != State::SynReceived {
            return Ok(());
        }
        connection.save_over(&Context {
            table: &self.table,
            memory: &self.memory,
            counters: &self.counters,
            now,
        });
        let (tuple, flags) = (connection.tuple, Flags::RST | Flags::ACK);
        let seq = match synchronized {
            true => connection.acceptable_seq(),
            false => connection.snd_nxt,
        };
        let header = reply_header(&tuple, seq, connection.rcv_nxt, flags);
        self.send_bare(now, &tuple, &header, &Options::default(), out)?;
        self.counters.count(Counter::TcpResetsOut);
        Ok(())
    }

    /// Answers a segment that belongs to nothing with a reset (RFC 9293 3.10.7.1).
    pub(crate) fn refuse<O: Network>(&mut self, now: Instant, segment: &Segment<'_>, out: &mut O) {
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
        let _ = self.send_bare(now, tuple, &header, &Options::default(), out);
    }

    /// Sends a header alone. Whoever takes no notice of `Full` has lost it, as on any wire: the peer asks again.
    pub(crate) fn send_bare<O: Network>(
        &self,
        now: Instant,
        tuple: &FourTuple,
        header: &Header,
        options: &Options,
        out: &mut O,
    ) -> Result<(), Full> {
        let to = Outbound {
            source: tuple.local.addr,
            destination: tuple.remote.addr,
            protocol: protocol::TCP,
            hop_limit: None,
            traffic_class: 0,
            dont_fragment: true,
        };
        let segment = Outgoing {
            header: *header,
            options: *options,
            payload: [Bytes::EMPTY; 2],
            mss: 0,
        };
        segment.send(now, &to, &self.counters, out)
    }
}

/// A header without window and options.
pub(crate) fn reply_header(tuple: &FourTuple, seq: SeqNum, ack: SeqNum, flags: Flags) -> Header {
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
