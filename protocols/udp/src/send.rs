//! From a send ring to the wire.

use crate::Udp;
use crate::socket::{Address, is_for_many, unspecified};
use skink_memory::{Datagram, DatagramRing, FairQueue, Ring, SocketId};
use skink_messages::{
    BindOptions, Counter, Events, Full, Lent, Network, Outbound, Ports, Progress, Sent,
    SocketError, TxPacket,
};
use skink_time::Instant;
use skink_wire::{Endpoint, protocol, udp};

/// The largest payload of one datagram in bytes: what IPv4's total length leaves (RFC 768, RFC 791).
pub const MAXIMUM_PAYLOAD: usize = 65_535 - 20 - udp::LEN;

/// Most pieces that one datagram is cut into, as Linux's `UDP_MAX_SEGMENTS` before 6.9.
const MOST_PIECES: usize = 64;

/// Where the checksum is in the header.
const CHECKSUM_OFFSET: u8 = udp::CHECKSUM_OFFSET as u8;

/// The program is told of room in the send ring if it had less than this, in bytes, or than a quarter: a program that
/// found no room for a datagram of any size, maybe while the one before it was being sent, had; and so had one that
/// waits until it may write.
const LITTLE_ROOM: usize = 2 * 65_536;

pub(crate) fn has_little_room(ring: &DatagramRing<'_>) -> bool {
    ring.room().unwrap_or(0) < LITTLE_ROOM.max(ring.capacity() / 4)
}

/// How many datagrams a ring has room for at the most.
pub(crate) fn most_datagrams(ring: &Ring<'_>) -> usize {
    ring.capacity() / DatagramRing::bytes_for(0)
}

/// What may be sent from one socket before others have their turn, of which each datagram takes its payload, and each piece
/// that it is cut into [`FairQueue::PACKET`].
pub(crate) struct Budget {
    all: u64,
    spent: u64,
    datagrams: usize,
}

impl Budget {
    /// Where there is no other program.
    const MOST: u64 = 256 * 1024;

    /// For a socket of an owner that has such a turn.
    pub(crate) fn of(turn: u64) -> Budget {
        Budget {
            all: turn.min(Budget::MOST),
            spent: FairQueue::VISIT,
            datagrams: 0,
        }
    }

    fn is_spent(&self) -> bool {
        self.spent > self.all
    }

    fn spend(&mut self, payload_bytes: usize, pieces: usize) {
        self.spent += FairQueue::PACKET * pieces as u64 + payload_bytes as u64;
        self.datagrams += 1;
    }

    pub(crate) fn spent(&self) -> u64 {
        self.spent
    }

    pub(crate) fn datagrams(&self) -> usize {
        self.datagrams
    }
}

/// Why a datagram isn't sent.
enum Unsent {
    /// Not now.
    Full,
    /// Not ever, and this counter says why.
    Dropped(Counter),
    /// Its path takes no packet of that size, and it mustn't be fragmented.
    TooLarge,
}

/// Where a datagram goes.
struct Route {
    local: Endpoint,
    remote: Endpoint,
    /// Largest packet in bytes that isn't cut, and largest that is.
    limits: Option<(u32, u32)>,
}

impl Udp {
    /// Sends datagrams of a socket's send ring, as many as are in the budget. [`Full`] if the output took no more.
    pub(crate) fn drain<Out>(
        &mut self,
        now: Instant,
        slot: u32,
        budget: &mut Budget,
        out: &mut Out,
    ) -> Result<Progress, Full>
    where
        Out: Network + Ports + ?Sized,
    {
        let mut had_little_room = false;
        let mut was_too_large = false;
        let mut ended = Ok(Progress::More);
        while !budget.is_spent() {
            if !self.has_address_to_send(slot, out) {
                ended = Ok(Progress::Idle);
                break;
            }
            let ring = DatagramRing::new(self.table.send_ring(slot));
            let has_little_room = has_little_room(&ring);
            let Some(socket) = self.sockets.get_mut(slot as usize).and_then(Option::as_mut) else {
                break;
            };
            let ahead = socket.on_their_way.bytes();
            let Some(datagram) = ring.peek_at(ahead) else {
                if ring.filled() < ahead {
                    // It was spoilt, and is empty.
                    socket.on_their_way.lose();
                }
                ended = Ok(Progress::Idle);
                break;
            };
            let lent = Lent {
                socket: SocketId {
                    slot,
                    generation: socket.generation,
                },
                position: ring.position().wrapping_add(ahead as u64),
                awaited: has_little_room,
            };
            let is_lent = match self.send_one(now, lent, &datagram, out) {
                Ok(sent) => {
                    budget.spend(datagram.len(), pieces(&datagram));
                    self.counters.count(Counter::UdpOut);
                    sent == Sent::Lent
                }
                Err(Unsent::Full) => {
                    ended = Err(Full);
                    break;
                }
                Err(Unsent::Dropped(counter)) => {
                    budget.spend(0, 1);
                    self.counters.count(counter);
                    false
                }
                Err(Unsent::TooLarge) => {
                    budget.spend(0, 1);
                    self.counters.count(Counter::UdpDropBadRequest);
                    was_too_large = true;
                    false
                }
            };
            if ahead == 0 && !is_lent {
                ring.pop(&datagram);
                had_little_room |= has_little_room;
            } else {
                let entry_bytes = datagram.entry_bytes();
                if let Some(socket) = self.socket(slot) {
                    let on_their_way = &mut socket.on_their_way;
                    on_their_way.push(lent.position, entry_bytes, !is_lent);
                }
            }
        }
        if had_little_room {
            self.note(slot, Events::WRITABLE);
        }
        // What one peer's path takes is none of the others' business: who isn't connected isn't told, as by ICMP.
        let address = self.socket(slot).map(|socket| socket.address);
        if was_too_large && matches!(address, Some(Address::Connected { .. })) {
            self.fail(slot, SocketError::MessageSize);
        }
        ended
    }

    /// Whether the socket can send: if it has no address, it gets a port, as with `sendto` before
    /// `bind`. If there is none left, what it has to send is lost.
    fn has_address_to_send<Out>(&mut self, slot: u32, out: &mut Out) -> bool
    where
        Out: Network + Ports + ?Sized,
    {
        match self.socket(slot).map(|socket| socket.address) {
            None => return false,
            Some(Address::Bound(_) | Address::Connected { .. }) => return true,
            Some(Address::Unbound) => {}
        }
        let ahead = self.socket(slot).map_or(0, |it| it.on_their_way.bytes());
        let ring = DatagramRing::new(self.table.send_ring(slot));
        let Some(datagram) = ring.peek_at(ahead) else {
            return false;
        };
        let any = Endpoint::new(unspecified(datagram.header.remote.addr), 0);
        if self
            .bind_slot(slot, any, BindOptions::default(), out)
            .is_ok()
        {
            return true;
        }
        DatagramRing::new(self.table.send_ring(slot)).clear();
        if let Some(socket) = self.socket(slot) {
            socket.on_their_way.lose();
        }
        self.counters.count(Counter::UdpDropBadRequest);
        self.fail(slot, SocketError::NoBuffers);
        false
    }

    fn send_one<Out>(
        &self,
        now: Instant,
        lent: Lent,
        datagram: &Datagram<'_>,
        out: &mut Out,
    ) -> Result<Sent, Unsent>
    where
        Out: Network + ?Sized,
    {
        let bad = Unsent::Dropped(Counter::UdpDropBadRequest);
        let route = self.route(lent.socket.slot, datagram, out)?;
        let payload_bytes = datagram.len();
        // At most 65,535 bytes of payload for IPv6, as the UDP header counts itself too.
        let largest = match route.local.addr.is_ipv4() {
            true => MAXIMUM_PAYLOAD,
            false => MAXIMUM_PAYLOAD + 20,
        };
        let Some(header) = udp::Header::new(route.local.port, route.remote.port, payload_bytes)
            .filter(|_| payload_bytes <= largest)
        else {
            return Err(bad);
        };
        if datagram.header.dont_fragment && !fits_path(datagram, &route, out) {
            return Err(Unsent::TooLarge);
        }
        let mut packet = TxPacket::new(datagram.payload);
        packet.transport_bytes = udp::LEN as u8;
        packet.checksum_offset = Some(CHECKSUM_OFFSET);
        packet.segment_bytes = segment_bytes(datagram, &route, out).ok_or(bad)?;
        let bytes = packet.prepend(udp::LEN);
        let _ = header.emit(bytes);
        let (source, destination) = (route.local.addr, route.remote.addr);
        udp::set_partial_checksum(source, destination, bytes, u32::from(header.length));
        let to = Outbound {
            source,
            destination,
            protocol: protocol::UDP,
            hop_limit: match datagram.header.hop_limit {
                // Groups are reached beyond the link only if the program says so (RFC 1112 6.1).
                0 if destination.is_multicast() => Some(1),
                0 => None,
                hops => Some(hops),
            },
            traffic_class: datagram.header.traffic_class,
            dont_fragment: datagram.header.dont_fragment,
        };
        let sent = out.lend(now, &to, &mut packet, lent);
        sent.map_err(|Full| Unsent::Full)
    }

    /// Both ends of a datagram: what the socket is bound or connected to comes before what the
    /// datagram says of our end, and after what it says of the other.
    fn route<Out>(&self, slot: u32, datagram: &Datagram<'_>, out: &Out) -> Result<Route, Unsent>
    where
        Out: Network + ?Sized,
    {
        let bad = Err(Unsent::Dropped(Counter::UdpDropBadRequest));
        let socket = self.sockets.get(slot as usize).and_then(Option::as_ref);
        let header = &datagram.header;
        let (local, remote) = match socket.map(|socket| socket.address) {
            Some(Address::Connected { local, remote, .. }) => {
                let to_peer = header.remote.port == 0 || header.remote == remote;
                if to_peer && remote.port != 0 && !is_for_many(local.addr, out) {
                    let limits = None;
                    return Ok(Route {
                        local,
                        remote,
                        limits,
                    });
                }
                (local, if to_peer { remote } else { header.remote })
            }
            Some(Address::Bound(local)) => (local, header.remote),
            Some(Address::Unbound) | None => return bad,
        };
        if remote.port == 0 || local.addr.is_ipv4() != remote.addr.is_ipv4() {
            return bad;
        }
        let source = [local.addr, header.local]
            .into_iter()
            .find(|address| !address.is_unspecified() && !is_for_many(*address, out));
        let Some(path) = out.path(source, remote.addr) else {
            return Err(Unsent::Dropped(Counter::UdpDropNoRoute));
        };
        Ok(Route {
            local: Endpoint::new(path.source, local.port),
            remote,
            limits: Some((path.mtu, path.cut_bytes)),
        })
    }
}

/// How many pieces the datagram is to be cut into.
fn pieces(datagram: &Datagram<'_>) -> usize {
    match datagram.header.segment_bytes {
        0 => 1,
        each => datagram.len().div_ceil(usize::from(each)).max(1),
    }
}

/// How large the pieces are that the datagram is to be cut into, 0 if it isn't; `None` if the pieces
/// wouldn't fit the path, since they must not be fragmented as well.
fn segment_bytes(
    datagram: &Datagram<'_>,
    route: &Route,
    out: &(impl Network + ?Sized),
) -> Option<u16> {
    let segment_bytes = datagram.header.segment_bytes;
    match pieces(datagram) {
        0 | 1 => return Some(0),
        2..=MOST_PIECES => {}
        _ => return None,
    }
    let (mtu, cut_bytes) = limits(route, out)?;
    let headers = header_bytes(route);
    let fits = headers + usize::from(segment_bytes) <= mtu as usize
        && headers + datagram.len() <= cut_bytes as usize;
    fits.then_some(segment_bytes)
}

/// Whether its path takes the datagram as it is, or nobody knows.
fn fits_path(datagram: &Datagram<'_>, route: &Route, out: &(impl Network + ?Sized)) -> bool {
    let largest = limits(route, out).map(|(mtu, _)| mtu as usize);
    largest.is_none_or(|largest| header_bytes(route) + datagram.len() <= largest)
}

/// The largest packet of the path in bytes that isn't cut, and the largest that is.
fn limits(route: &Route, out: &(impl Network + ?Sized)) -> Option<(u32, u32)> {
    route.limits.or_else(|| {
        let path = out.path(Some(route.local.addr), route.remote.addr)?;
        Some((path.mtu, path.cut_bytes))
    })
}

/// Length of both headers of a datagram.
fn header_bytes(route: &Route) -> usize {
    udp::LEN + if route.local.addr.is_ipv4() { 20 } else { 40 }
}
