use crate::Incarnation;
use crate::codec::Few;
use crate::exchange::{EndCounters, Exchange};
use crate::ip_link;
use crate::lane::AttachParts;
use crate::packet_down::{FromTransport, Headers, PacketDown};
use crate::packet_up::{PacketUp, ToTransport};
use crate::payload::Payload;
use crate::regions::Regions;
use skink_channel::{
    AttachError, HolderId, NeighbourId, Pool, PoolReader, PoolSet, RequestDatabase, RequestId,
    RichPointer,
};
use skink_messages::{Full, NetworkError, Outbound, RxPacket, TxPacket};
use std::collections::VecDeque;

const IP: NeighbourId = NeighbourId(0);
const HOLDER: HolderId = HolderId(0);
/// Ids that may wait for room; no more packets are taken then.
const WAITING: usize = 1024;
/// Packets with payload in a pool that may be on their way.
const REQUESTS: u32 = 1024;

/// How a transport names the payload that it sends.
pub enum TransportPayload {
    /// `tcp`: it is in the send rings of these regions, and stays there until it is acknowledged. Nobody
    /// has to say that it has left.
    Rings(Regions),
    /// `udp`: it is copied to a pool of one holder, whose chunks hold a packet of 64 KiB each; so that its
    /// room in the ring is free at once. It is freed when it has left.
    Pool(Pool),
}

/// A transport's side towards `ip`.
pub struct TransportEnd {
    exchange: Exchange<ToTransport, FromTransport>,
    payload: TransportPayload,
    on_their_way: RequestDatabase<RichPointer>,
    /// Received packets that aren't needed any more, and whether they were for no socket.
    done: VecDeque<(u64, bool)>,
    /// What packets point into: pools of `link` and `ip`.
    pools: PoolSet,
    refuses: bool,
    /// There was no room in our pool, or for another request, since the batch began.
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
    pub fn attach(
        parts: AttachParts,
        payload: TransportPayload,
    ) -> Result<TransportEnd, AttachError> {
        let exchange = Exchange::attach(parts)?;
        Ok(TransportEnd {
            on_their_way: RequestDatabase::new(REQUESTS, 1, exchange.request_incarnation()),
            exchange,
            done: VecDeque::with_capacity(WAITING + 1),
            pools: PoolSet::new(),
            refuses: false,
            exhausted: false,
            payload,
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

    /// The regions whose rings are sent from.
    pub fn regions(&mut self) -> Option<&mut Regions> {
        match &mut self.payload {
            TransportPayload::Rings(regions) => Some(regions),
            TransportPayload::Pool(_) => None,
        }
    }

    /// The pool that payload is copied to.
    pub fn pool(&self) -> Option<&Pool> {
        match &self.payload {
            TransportPayload::Rings(_) => None,
            TransportPayload::Pool(pool) => Some(pool),
        }
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
            Some(pointer) => self.give_back(pointer),
            None => {
                let unasked = &mut self.exchange.counters.unasked;
                *unasked = unasked.wrapping_add(1);
            }
        }
    }

    fn give_back(&mut self, pointer: RichPointer) {
        if let TransportPayload::Pool(pool) = &mut self.payload {
            let _ = pool.give_back(pointer, HOLDER);
        }
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

    /// Sends a packet, as [`skink_messages::Network::send`] does.
    ///
    /// # Errors
    /// [`Full`] if `ip` takes no more now; `packet` is unchanged.
    pub fn send(&mut self, to: &Outbound, packet: &TxPacket<'_>) -> Result<(), Full> {
        self.exchange.reserve(1)?;
        let Some(headers) = Headers::of(packet) else {
            return self.drop_outbound();
        };
        let mut id = 0;
        let payload = match &mut self.payload {
            _ if packet.payload_bytes() == 0 => Payload::Empty,
            TransportPayload::Rings(regions) => match regions.name(&packet.payload) {
                Some(payload) => payload,
                None => return self.drop_outbound(),
            },
            TransportPayload::Pool(pool) => {
                // There will be room when `ip` says that something has left, or has a successor.
                self.exhausted = true;
                if self.on_their_way.awaited() >= REQUESTS {
                    return Err(Full);
                }
                let pointer = copy(pool, packet)?;
                self.exhausted = false;
                match self.on_their_way.issue(IP, pointer) {
                    Ok(request) => id = request.to_wire(),
                    Err(unsent) => {
                        self.give_back(unsent.0);
                        return Err(Full);
                    }
                }
                Payload::Pool(pointer)
            }
        };
        let down = PacketDown {
            id,
            payload,
            to: *to,
            refuses: self.refuses,
            headers,
        };
        // There is room: see above.
        self.exchange.send(&FromTransport::Packet(down))
    }

    /// A packet that can't be sent from here, which no transport makes.
    fn drop_outbound(&mut self) -> Result<(), Full> {
        self.exchange.counters.malformed = self.exchange.counters.malformed.wrapping_add(1);
        Ok(())
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

    /// `ip` was restarted: packets on their way are taken as lost, and nobody wants to know any more what
    /// isn't needed.
    pub fn ip_restarted(&mut self, incarnation: Incarnation) {
        self.exchange.restarted(incarnation);
        self.done.clear();
        self.on_their_way.abort_all(IP);
        while let Some(aborted) = self.on_their_way.poll_aborted() {
            self.give_back(aborted.abort);
        }
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

/// Copies a packet's payload to a chunk, and lends it.
fn copy(pool: &mut Pool, packet: &TxPacket<'_>) -> Result<RichPointer, Full> {
    let chunk = pool.allocate().map_err(|_| Full)?;
    let written = ip_link::write(pool, &chunk, &packet.payload);
    let pointer = written.and_then(|bytes| pool.lend(&chunk, 0, bytes, HOLDER));
    pool.free(chunk);
    pointer.map_err(|_| Full)
}
