//! What a packet filter beside `tcp` needs of it.

use crate::demux::Place;
use crate::instance::{Socket, Tcp};
use crate::segment::Segment;
use crate::state::State;
use skink_messages::{Counter, Network, RxPacket};
use skink_time::Instant;
use skink_wire::{FourTuple, SeqNum};

impl Tcp {
    /// Refuses a segment that a filter doesn't let in, with a reset (RFC 9293 3.10.7.1). One that makes
    /// no sense, or is a reset itself, isn't answered.
    ///
    /// Nor is one of a connection that both sides know of: a filter lets those in, whatever its rules say by
    /// now. One that doesn't is out of its mind, and so may be who brought its word. What is dropped comes again,
    /// and meets a successor; a reset can't be taken back.
    pub fn reject<O: Network>(&mut self, now: Instant, packet: &RxPacket<'_>, out: &mut O) {
        let Ok(segment) = Segment::parse(packet) else {
            return;
        };
        if self.is_known_to_both(&segment.tuple) {
            return self.counters.count(Counter::TcpDropRejected);
        }
        self.refuse(now, &segment, out);
    }

    /// Whether there is a connection between these ends that the peer has heard of us about.
    fn is_known_to_both(&self, tuple: &FourTuple) -> bool {
        match self.demux.flow(tuple) {
            Some(Place::Connection(slot)) => matches!(
                self.sockets.get(slot as usize),
                Some(Socket::Connection(connection)) if connection.state() != State::SynSent
            ),
            Some(Place::TimeWait(_)) => true,
            None => false,
        }
    }

    /// Whether there is a connection between these ends, TIME-WAIT counted.
    pub fn has_flow(&self, tuple: &FourTuple) -> bool {
        match self.demux.flow(tuple) {
            Some(Place::Connection(_) | Place::TimeWait(_)) => true,
            None => false,
        }
    }

    /// All connections: their ends, their states, and our initial sequence numbers. Those in TIME-WAIT come last, also those
    /// that a program still holds: they only answer a FIN that is sent again, and their numbers aren't known any more.
    pub fn flows(&self) -> impl Iterator<Item = (FourTuple, State, SeqNum)> {
        let connections = self.sockets.iter().filter_map(Socket::flow);
        let waiting = self.time_waits.entries();
        connections.chain(waiting.map(|it| (it.tuple, State::TimeWait, SeqNum(0))))
    }

    /// The slots from `first` on that were ever in use, in order, each with its connection, if there is one that isn't in
    /// TIME-WAIT: for who looks at a few at a time.
    pub fn flows_from(
        &self,
        first: u32,
    ) -> impl Iterator<Item = (u32, Option<(FourTuple, State, SeqNum)>)> {
        let slots = self.table.slots_from(first);
        slots.map(|slot| {
            let socket = self.sockets.get(slot as usize);
            (slot, socket.and_then(Socket::flow))
        })
    }
}

impl Socket {
    /// The connection that it is, unless that is in TIME-WAIT.
    fn flow(&self) -> Option<(FourTuple, State, SeqNum)> {
        match self {
            Socket::Connection(connection) => {
                let state = connection.state();
                (state != State::TimeWait).then_some((connection.tuple, state, connection.iss))
            }
            Socket::Free | Socket::Fresh(_) | Socket::Listener(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;
