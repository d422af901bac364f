use crate::codec::Few;
use crate::exchange::{EndCounters, Exchange};
use crate::lane::AttachParts;
use crate::packet_down::{FromTransport, Headers, PacketDown};
use crate::packet_up::{PacketUp, ToTransport};
use crate::payload::Payload;
use crate::regions::Regions;
use crate::{Incarnation, Transport};
use skink_channel::{AttachError, NeighbourId, PoolReader, PoolSet, RequestDatabase, RequestId};
use skink_memory::SendRegion;
use skink_messages::{Full, Lent, NetworkError, Outbound, RxPacket, Sent, TxPacket};
use std::collections::VecDeque;

const IP: NeighbourId = NeighbourId(0);
/// Ids that may wait for room; no more packets are taken then.
const WAITING: usize = 1024;
/// Packets whose payload is lent that may be on their way.
const REQUESTS: u32 = 1024;

/// A transport's side towards `ip`.
pub struct TransportEnd {
    exchange: Exchange<ToTransport, FromTransport>,
    transport: Transport,
    /// What is sent is in their send rings, and named there.
    regions: Regions,
    /// Payload of `udp`. `tcp`'s stays until it is acknowledged, and nobody has to say that it has left.
    on_their_way: RequestDatabase<Lent>,
    left: VecDeque<Lent>,
    /// Received packets that aren't needed any more, and whether they were for no socket.
    done: VecDeque<(u64, bool)>,
    /// What packets point into: pools of `link` and `ip`.
    pools: PoolSet,
    refuses: bool,
    /// See [`TransportEnd::set_cuts`].
    cuts: bool,
    /// There was no room for another request since the batch began.
    exhausted: bool,
}

/// What has come from `ip`.
#[derive(Clone, Copy, Debug)]
pub enum Arrival {
    /// A packet; [`TransportEnd::read`] has its bytes, and [`TransportEnd::done`] must follow.
    Packet(PacketUp),
    /// An error.
    Error(NetworkError),
}

impl TransportEnd {
    /// As [`Exchange::attach`].
    ///
    /// # Errors
    /// As [`Exchange::attach`].
    pub fn attach(parts: AttachParts, transport: Transport) -> Result<TransportEnd, AttachError> {
        let exchange = Exchange::attach(parts)?;
        Ok(TransportEnd {
            on_their_way: RequestDatabase::new(REQUESTS, 1, exchange.request_incarnation()),
            exchange,
            transport,
            regions: Regions::new(),
            left: VecDeque::with_capacity(REQUESTS as usize),
            done: VecDeque::with_capacity(WAITING + 1),
            pools: PoolSet::new(),
            refuses: false,
            cuts: true,
            exhausted: false,
        })
    }

    /// Maps a pool of `link` or `ip`.
    pub fn add_pool(&mut self, pool: PoolReader) {
        self.pools.insert(pool);
    }

    /// Unmaps the pool of one that died. Packets in it are dropped from now on.
    pub fn remove_pool(&mut self, id: u32) {
        self.pools.remove(id);
    }

    /// Whether the NIC cuts large packets, as [`skink_messages::LinkLimits::cuts`] says.
    pub fn set_cuts(&mut self, cuts: bool) {
        self.cuts = cuts;
    }

    /// From now on rings of this region are sent from.
    pub fn add_region(&mut self, index: u32, region: SendRegion) {
        self.regions.insert(self.transport, index, region);
    }

    /// Nothing is sent from this region any more.
    pub fn remove_region(&mut self, index: u32) {
        self.regions.remove(self.transport, index);
    }

    /// What arrived next.
    pub fn take_arrival(&mut self) -> Option<Arrival> {
        while self.done.len() < WAITING {
            match self.exchange.take()? {
                ToTransport::Packet(packet) => return Some(Arrival::Packet(packet)),
                ToTransport::Error(error) => return Some(Arrival::Error(error)),
                ToTransport::Sent(ids) => ids.as_slice().iter().for_each(|id| self.complete(*id)),
            }
        }
        None
    }

    fn complete(&mut self, id: u64) {
        match self.on_their_way.complete(RequestId::from_wire(id), IP) {
            Some(lent) => self.left.push_back(lent),
            None => {
                let unasked = &mut self.exchange.counters.unasked;
                *unasked = unasked.wrapping_add(1);
            }
        }
    }

    /// What was lent and isn't needed any more.
    pub fn take_left(&mut self) -> Option<Lent> {
        self.left.pop_front()
    }

    /// Copies a packet's bytes to `space`, which is as large as any packet; `None` if they are gone. What
    /// is looked at later is the copy.
    pub fn read<'a>(&mut self, packet: &PacketUp, space: &'a mut [u8]) -> Option<RxPacket<'a>> {
        if self.pools.copy_out(packet.pointer, space).is_err() {
            self.exchange.counters.stale = self.exchange.counters.stale.wrapping_add(1);
            return None;
        }
        let payload = space.get(..packet.pointer.length as usize)?;
        Some(packet.with_payload(payload))
    }

    /// A packet isn't needed any more; `unreachable` if it was for no socket.
    pub fn done(&mut self, packet: &PacketUp, unreachable: bool) {
        self.done.push_back((packet.id, unreachable));
    }

    /// Whether what is sent from now on refuses a packet that the filter didn't let in.
    pub fn set_refuses(&mut self, refuses: bool) {
        self.refuses = refuses;
    }

    /// Sends a packet, as [`skink_messages::Network::send`] does, and [`skink_messages::Network::lend`] if its payload is
    /// `lent`.
    ///
    /// # Errors
    /// [`Full`] if `ip` takes no more now; `packet` is unchanged.
    pub fn send(
        &mut self,
        to: &Outbound,
        packet: &TxPacket<'_>,
        lent: Option<Lent>,
    ) -> Result<Sent, Full> {
        match packet.payload_bytes() {
            0 => self.exchange.reserve(1)?,
            _ => self.exchange.reserve_payload()?,
        }
        let lent = lent.filter(|_| packet.payload_bytes() > 0);
        if lent.is_some() && self.on_their_way.awaited() >= REQUESTS {
            // There will be room when `ip` says that something has left, or has a successor.
            self.exhausted = true;
            return Err(Full);
        }
        let payload = match packet.payload_bytes() {
            0 => Some(Payload::Empty),
            _ => self.regions.name(self.transport, &packet.payload),
        };
        let (Some(headers), Some(payload)) = (Headers::of(packet), payload) else {
            // No transport makes such a packet.
            self.exchange.counters.malformed = self.exchange.counters.malformed.wrapping_add(1);
            return Ok(Sent::Done);
        };
        let bytes = payload.bytes();
        let id = match lent.map(|lent| self.on_their_way.issue(IP, lent)) {
            None => 0,
            Some(Ok(request)) => request.to_wire(),
            Some(Err(_)) => return Err(Full),
        };
        let down = PacketDown {
            id,
            awaited: lent.is_some_and(|lent| lent.awaited),
            pressing: self
                .exchange
                .note_payload(bytes, headers.packets(bytes, self.cuts)),
            payload,
            to: *to,
            refuses: self.refuses,
            headers,
        };
        // There is room: see above.
        self.exchange.send(&FromTransport::Packet(down))?;
        Ok(match lent {
            Some(_) => Sent::Lent,
            None => Sent::Done,
        })
    }

    /// Begins a batch.
    pub fn begin(&mut self) {
        self.exhausted = false;
        self.exchange.begin();
    }

    /// Received packets of which the neighbour doesn't know yet that they aren't needed any more.
    pub fn held_back(&self) -> usize {
        self.done.len()
    }

    /// Ends a batch.
    pub fn flush(&mut self) {
        let is_urgent =
            |done: &VecDeque<(u64, bool)>| done.iter().any(|(_, unreachable)| *unreachable);
        while (self.exchange.gives_back(self.done.len()) || is_urgent(&self.done))
            && self.exchange.reserve(1).is_ok()
        {
            let mut unreachable = 0;
            for (at, (_, is_unreachable)) in self.done.iter().take(20).enumerate() {
                unreachable |= u32::from(*is_unreachable) << at;
            }
            let pairs: Few<(u64, bool), 20> = Few::take(&mut self.done, (0, false));
            let ids = Few {
                all: pairs.all.map(|(id, _)| id),
                count: pairs.count,
            };
            let _ = self.exchange.send(&FromTransport::Done(ids, unreachable));
        }
        self.exchange.flush();
    }

    /// `ip` was restarted: packets on their way may be lost, no word of any of them comes any more, and nobody wants to
    /// know what isn't needed.
    pub fn ip_restarted(&mut self, incarnation: Incarnation) {
        self.exchange.restarted(incarnation);
        self.done.clear();
        self.on_their_way.abort_all(IP);
        while self.on_their_way.poll_aborted().is_some() {}
        self.left.clear();
    }

    /// Whether there is something to do.
    pub fn is_ready(&self) -> bool {
        self.exchange.is_ready()
    }

    /// Whether there was no room for something since the batch began.
    pub fn was_full(&self) -> bool {
        self.exhausted || self.exchange.was_full()
    }

    /// As [`Exchange::is_broken`].
    pub fn is_broken(&self) -> bool {
        self.exchange.is_broken()
    }

    /// What was dropped here.
    pub fn counters(&self) -> EndCounters {
        self.exchange.counters
    }
}

#[cfg(test)]
mod tests;
