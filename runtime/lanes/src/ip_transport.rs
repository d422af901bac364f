use crate::exchange::{EndCounters, Exchange, is_before};
use crate::lane::AttachParts;
use crate::packet_down::{FromTransport, PacketDown};
use crate::packet_up::{PacketUp, ToTransport, is_for};
use crate::returned::Returned;
use crate::{Incarnation, is_worth_repeating};
use skink_channel::{AttachError, NeighbourId, RequestDatabase, RequestId};
use skink_messages::NetworkError;
use skink_time::Instant;
use std::collections::VecDeque;

const TRANSPORT: NeighbourId = NeighbourId(0);
/// Packets that a transport may have at a time: a third of what `link` can lend, so that one that hangs
/// leaves enough for the others.
const LENT: u32 = 256;
/// Ids that may wait for room; no more packets are taken then.
const WAITING: usize = 1024;

/// A packet that the transport has.
struct Loan {
    packet: PacketUp,
    /// Of the message that told of it.
    number: u64,
}

/// `ip`'s side towards `tcp` or `udp`.
pub struct IpTransportEnd {
    exchange: Exchange<FromTransport, ToTransport>,
    /// Packets that the transport has.
    lent: RequestDatabase<Loan>,
    sent: Returned,
    /// Packets that the transport is done with, and whether they were for no socket.
    returned: VecDeque<(PacketUp, bool)>,
}

impl IpTransportEnd {
    /// As [`Exchange::attach`].
    ///
    /// # Errors
    /// As [`Exchange::attach`].
    pub fn attach(parts: AttachParts) -> Result<IpTransportEnd, AttachError> {
        let exchange = Exchange::attach(parts)?;
        Ok(IpTransportEnd {
            lent: RequestDatabase::new(LENT, 1, exchange.request_incarnation()),
            exchange,
            sent: Returned::with_capacity(WAITING),
            returned: VecDeque::with_capacity(LENT as usize),
        })
    }

    /// Hands a packet up. It comes back by [`IpTransportEnd::take_returned`].
    ///
    /// # Errors
    /// The packet, dropped for want of room: it isn't needed any more.
    pub fn deliver(&mut self, packet: PacketUp) -> Result<(), PacketUp> {
        let first = self.exchange.neighbour();
        self.hand_up(PacketUp { first, ..packet })
    }

    fn hand_up(&mut self, packet: PacketUp) -> Result<(), PacketUp> {
        if self.lent.awaited() >= LENT || self.exchange.reserve(1).is_err() {
            self.exchange.counters.full = self.exchange.counters.full.wrapping_add(1);
            return Err(packet);
        }
        let loan = Loan {
            packet,
            number: self.exchange.position(),
        };
        let id = self.lent.issue(TRANSPORT, loan);
        let id = id.map_err(|unsent| unsent.0.packet)?;
        let told = ToTransport::Packet(PacketUp {
            id: id.to_wire(),
            ..packet
        });
        // There is room: see above.
        let _ = self.exchange.send(&told);
        Ok(())
    }

    /// Tells of an error; it is dropped if there is no room.
    pub fn error(&mut self, error: NetworkError) {
        if self.exchange.send(&ToTransport::Error(error)).is_err() {
            self.exchange.counters.full = self.exchange.counters.full.wrapping_add(1);
        }
    }

    /// Tells that a packet of the transport has left, or was dropped.
    pub fn sent(&mut self, id: u64, awaited: bool) {
        self.sent.push(id, awaited);
    }

    /// Which restart of the transport sends now.
    pub fn neighbour(&self) -> Incarnation {
        self.exchange.neighbour()
    }

    /// The next packet to be sent. What the transport is done with is noted on the way.
    pub fn take_packet(&mut self) -> Option<PacketDown> {
        while self.sent.len() < WAITING {
            match self.exchange.take()? {
                FromTransport::Packet(packet) => return Some(packet),
                FromTransport::Done(ids, unreachable) => {
                    for (at, id) in ids.as_slice().iter().enumerate() {
                        self.complete(*id, unreachable >> at & 1 == 1);
                    }
                }
            }
        }
        None
    }

    fn complete(&mut self, id: u64, unreachable: bool) {
        match self.lent.complete(RequestId::from_wire(id), TRANSPORT) {
            Some(loan) => self.returned.push_back((loan.packet, unreachable)),
            None => {
                let unasked = &mut self.exchange.counters.unasked;
                *unasked = unasked.wrapping_add(1);
            }
        }
    }

    /// A packet that isn't needed any more, and whether it was for no socket, so that its sender is to be
    /// told.
    pub fn take_returned(&mut self) -> Option<(PacketUp, bool)> {
        self.returned.pop_front()
    }

    /// Packets that the transport has.
    pub fn lent(&self) -> u32 {
        self.lent.awaited()
    }

    /// Begins a batch.
    pub fn begin(&mut self) {
        self.exchange.begin();
    }

    /// Packets that left of which the neighbour doesn't know yet that they aren't needed any more.
    pub fn held_back(&self) -> usize {
        self.sent.len()
    }

    /// Ends a batch.
    pub fn flush(&mut self, now: Instant) {
        while self.sent.is_due(now, self.exchange.speaks()) && self.exchange.reserve(1).is_ok() {
            let _ = self.exchange.send(&ToTransport::Sent(self.sent.take()));
        }
        self.exchange.flush();
    }

    /// When it has something to tell that nothing else wakes the transport for. None while there is no room for it: that
    /// wakes.
    pub fn next_deadline(&self) -> Option<Instant> {
        let due = self.sent.next_deadline();
        due.filter(|_| !self.exchange.was_full())
    }

    /// The transport was restarted. What its predecessor hadn't taken is the successor's. What it had taken has come back; if it is
    /// `repeatable` it is handed up again: it isn't known how far that had got with it, and who sent it would notice a loss only
    /// after a while (NewtOS, section 2.5.3). What was there for two that died has come back in any case: they may have died of it.
    pub fn transport_restarted(
        &mut self,
        now: Instant,
        incarnation: Incarnation,
        repeatable: bool,
    ) {
        self.exchange.restarted(incarnation);
        self.sent.clear();
        let untaken = self.exchange.first_untaken();
        let is_back =
            |it: &Loan| is_before(it.number, untaken) || !is_for(it.packet.first, incarnation);
        for _ in 0..self.lent.abort_while(TRANSPORT, is_back) {
            let Some(aborted) = self.lent.poll_aborted() else {
                return;
            };
            let packet = aborted.abort.packet;
            let wanted = repeatable
                && is_for(packet.first, incarnation)
                && is_worth_repeating(now, packet.arrived);
            if !wanted || self.hand_up(packet).is_err() {
                self.returned.push_back((packet, false));
            }
        }
    }

    /// Whether there is something to do.
    pub fn is_ready(&self) -> bool {
        self.exchange.is_ready() || !self.returned.is_empty()
    }

    /// As [`Exchange::is_broken`].
    pub fn is_broken(&self) -> bool {
        self.exchange.is_broken()
    }

    /// What was dropped here.
    pub fn counters(&mut self) -> &mut EndCounters {
        &mut self.exchange.counters
    }
}

#[cfg(test)]
mod tests;
