//! From a transport's packet to a frame.

use crate::Ip;
use crate::OwnedPacket;
use crate::held::{Held, Target};
use crate::ip::LastHop;
use crate::whole::WholeQueue;
use core::net::IpAddr;
use skink_memory::Bytes;
use skink_messages::{
    Counter, ErrorKind, FrameOutput, Full, NetworkError, Outbound, RxChecksum, TxPacket,
};
use skink_time::Instant;
use skink_wire::{Endpoint, MacAddr, ethernet, ipv4, ipv6, protocol};

/// TTL and hop limit where nobody says otherwise (RFC 1340; Linux has the same).
pub(crate) const HOP_LIMIT: u8 = 64;
/// What the length fields can say.
pub(crate) const MAXIMUM_BYTES: usize = 65_535;

/// What a route leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hop {
    /// All stations of a group.
    Group(MacAddr),
    /// A neighbour.
    Neighbour(IpAddr),
}

impl Ip {
    /// Sends `packet`, whose headers begin with the transport header, as `to` says. What can't be
    /// sent at all is dropped and counted. If the link has no room, `packet` is unchanged.
    ///
    /// A packet to ourselves is copied and comes back by [`Ip::take_whole`].
    ///
    /// # Errors
    /// [`Full`] if the link, or the queue of packets to ourselves, has no room.
    #[inline]
    pub fn send<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        to: &Outbound,
        packet: &mut TxPacket<'_>,
        out: &mut O,
    ) -> Result<(), Full> {
        if !self.outbox.is_empty() {
            self.flush_outbox(now, out)?;
        }
        let station = match self.last {
            Some(last) if last.destination == to.destination => {
                self.neighbours.resolve(now, last.slot, last.next_hop)
            }
            Some(_) | None => None,
        };
        let target = match station {
            Some(mac) => Target::Station(mac),
            None if self.addresses.is_own(to.destination) => {
                return self.loop_back(now, to, packet, out);
            }
            None => match self.target(now, to.destination, out) {
                Some(target) => target,
                None => {
                    self.counters.count(Counter::IpDropNoRoute);
                    return Ok(());
                }
            },
        };
        self.send_to(now, to, packet, target, out)
    }

    /// The next hop of a packet that isn't for ourselves.
    pub(crate) fn hop(&self, destination: IpAddr) -> Option<Hop> {
        match destination {
            IpAddr::V4(addr) => {
                if addr.is_unspecified() || addr.is_loopback() {
                    return None;
                }
                if addr.is_multicast() {
                    return Some(Hop::Group(MacAddr::multicast_for_ipv4(addr)));
                }
                if self.addresses.is_broadcast(addr) {
                    return Some(Hop::Group(MacAddr::BROADCAST));
                }
            }
            IpAddr::V6(addr) => {
                if addr.is_unspecified() || addr.is_loopback() {
                    return None;
                }
                if addr.is_multicast() {
                    return Some(Hop::Group(MacAddr::multicast_for_ipv6(addr)));
                }
            }
        }
        self.routes.next_hop(destination).map(Hop::Neighbour)
    }

    /// Where a packet goes on the link. Begins to look for a neighbour that isn't known.
    fn target<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        destination: IpAddr,
        out: &mut O,
    ) -> Option<Target> {
        let next_hop = match self.hop(destination)? {
            Hop::Group(mac) => return Some(Target::Station(mac)),
            Hop::Neighbour(next_hop) => next_hop,
        };
        let slot = match self.neighbours.find(next_hop) {
            Some(slot) => slot,
            None => {
                let (slot, lost) = self.neighbours.begin(now, next_hop);
                self.give_up(lost);
                if let Some(due) = self.neighbours.expire(now, slot) {
                    self.on_due(now, due, out);
                }
                slot
            }
        };
        self.last = Some(LastHop {
            destination,
            next_hop,
            slot,
        });
        Some(match self.neighbours.resolve(now, slot, next_hop) {
            Some(mac) => Target::Station(mac),
            None => Target::Unresolved(next_hop),
        })
    }

    #[inline]
    fn send_to<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        to: &Outbound,
        packet: &mut TxPacket<'_>,
        target: Target,
        out: &mut O,
    ) -> Result<(), Full> {
        let header_bytes = header_bytes(to);
        let total = header_bytes + packet.len();
        let segment_bytes = usize::from(packet.segment_bytes);
        let is_cut = segment_bytes != 0 && packet.payload_bytes() > segment_bytes;
        if !is_cut && total > out.limits().mtu as usize
            || !to.dont_fragment && self.path_mtus.get(to.destination).is_some()
        {
            return self.send_large(now, to, packet, target, out);
        }
        if total > MAXIMUM_BYTES + if to.source.is_ipv4() { 0 } else { ipv6::LEN } {
            self.counters.count(Counter::IpDropTooBig);
            return Ok(());
        }
        self.send_whole(now, to, packet, target, out)
    }

    /// A packet that doesn't fit the link, or that may be fragmented and has a path with a smaller
    /// MTU than the link's.
    #[inline(never)]
    fn send_large<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        to: &Outbound,
        packet: &mut TxPacket<'_>,
        target: Target,
        out: &mut O,
    ) -> Result<(), Full> {
        let header_bytes = header_bytes(to);
        let link = out.limits().mtu;
        let mtu = self
            .path_mtus
            .get(to.destination)
            .map_or(link, |mtu| mtu.min(link));
        let segment_bytes = usize::from(packet.segment_bytes);
        let is_cut = segment_bytes != 0 && packet.payload_bytes() > segment_bytes;
        if is_cut || header_bytes + packet.len() <= mtu as usize {
            // What is to be cut is cut to a size that its sender chose for the path.
            return self.send_whole(now, to, packet, target, out);
        }
        if to.dont_fragment {
            self.counters.count(Counter::IpDropTooBig);
            if let Some(error) = too_big(to, packet, mtu) {
                self.push_error(error);
            }
            return Ok(());
        }
        self.send_fragments(now, to, packet, target, mtu, out)
    }

    /// A packet as it is, with an IP header.
    #[inline]
    pub(crate) fn send_whole<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        to: &Outbound,
        packet: &mut TxPacket<'_>,
        target: Target,
        out: &mut O,
    ) -> Result<(), Full> {
        let network_bytes = packet.network_bytes;
        let bytes = packet.len();
        let header_bytes = match (to.source, to.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let identification = match to.dont_fragment {
                    // Such a packet needs none (RFC 6864 section 4.1).
                    true => 0,
                    false => self.identifications.next(to.source, to.destination, 1) as u16,
                };
                let header = ipv4::Header {
                    dscp_ecn: to.traffic_class,
                    total_len: (bytes + ipv4::LEN).min(MAXIMUM_BYTES) as u16,
                    identification,
                    dont_fragment: to.dont_fragment,
                    more_fragments: false,
                    fragment_offset: 0,
                    ttl: to.hop_limit.unwrap_or(HOP_LIMIT),
                    protocol: to.protocol,
                    source,
                    destination,
                    header_len: ipv4::LEN as u8,
                };
                let _ = header.emit(packet.prepend(ipv4::LEN));
                ipv4::LEN
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let header = ipv6::Header {
                    traffic_class: to.traffic_class,
                    flow_label: 0,
                    payload_len: bytes.min(MAXIMUM_BYTES) as u16,
                    next_header: to.protocol,
                    hop_limit: to.hop_limit.unwrap_or(HOP_LIMIT),
                    source,
                    destination,
                };
                let _ = header.emit(packet.prepend(ipv6::LEN));
                ipv6::LEN
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => {
                self.counters.count(Counter::IpDropNoRoute);
                return Ok(());
            }
        };
        packet.network_bytes = header_bytes as u8;
        let sent = self.transmit(now, target, to.source.is_ipv4(), packet, out);
        if sent.is_err() {
            packet.strip(header_bytes);
            packet.network_bytes = network_bytes;
        }
        sent
    }

    /// Sends a packet with its IP header, or keeps a copy until its neighbour is known.
    #[inline]
    pub(crate) fn transmit<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        target: Target,
        is_ipv4: bool,
        packet: &mut TxPacket<'_>,
        out: &mut O,
    ) -> Result<(), Full> {
        match target {
            Target::Station(mac) => {
                let ethertype = if is_ipv4 {
                    ethernet::IPV4
                } else {
                    ethernet::IPV6
                };
                let header = ethernet::Header {
                    destination: mac,
                    source: self.mac,
                    ethertype,
                };
                let _ = header.emit(packet.prepend(ethernet::LEN));
                let sent = out.send(now, packet);
                match sent {
                    Ok(()) => self.counters.count(Counter::IpOut),
                    Err(Full) => packet.strip(ethernet::LEN),
                }
                sent
            }
            Target::Unresolved(next_hop) => {
                let dropped = self.neighbours.hold(next_hop, Held::copy(packet));
                self.counters.add(Counter::IpDropQueueFull, dropped);
                Ok(())
            }
        }
    }

    /// Sends what the link had no room for.
    #[inline(never)]
    pub(crate) fn flush_outbox<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        out: &mut O,
    ) -> Result<(), Full> {
        while let Some((mac, held)) = self.outbox.pop() {
            let is_ipv4 = held.bytes().first().is_some_and(|first| first >> 4 == 4);
            let mut packet = held.packet();
            let target = Target::Station(mac);
            if self
                .transmit(now, target, is_ipv4, &mut packet, out)
                .is_err()
            {
                self.outbox.put_back(mac, held);
                return Err(Full);
            }
        }
        Ok(())
    }

    /// Copies a packet to ourselves to where it will be taken from. Its checksum counts as good: it
    /// never leaves this memory.
    #[inline(never)]
    fn loop_back<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        to: &Outbound,
        packet: &TxPacket<'_>,
        out: &mut O,
    ) -> Result<(), Full> {
        let bytes = packet.len();
        if !self.whole.has_room(bytes) {
            return Err(Full);
        }
        if bytes > MAXIMUM_BYTES || to.source.is_ipv4() != to.destination.is_ipv4() {
            self.counters.count(Counter::IpDropTooBig);
            return Ok(());
        }
        let looped = copy(&mut self.whole, now, to, packet);
        self.counters.count(Counter::IpLooped);
        if matches!(to.protocol, protocol::TCP | protocol::UDP) {
            self.whole.push(looped);
        } else {
            self.on_icmp(now, &looped.as_packet(), out);
            self.recycle(looped);
        }
        Ok(())
    }

    /// Sends a message of our own; it is dropped if there is no room.
    pub(crate) fn send_message<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        to: &Outbound,
        message: &[u8],
        out: &mut O,
    ) -> bool {
        let mut packet = TxPacket::new([Bytes::from(message), Bytes::EMPTY]);
        let sent = self.send(now, to, &mut packet, out).is_ok();
        if !sent {
            self.counters.count(Counter::IpDropOutput);
        }
        sent
    }
}

fn copy(queue: &mut WholeQueue, now: Instant, to: &Outbound, packet: &TxPacket<'_>) -> OwnedPacket {
    let mut payload = queue.buffer();
    payload.resize(packet.len(), 0);
    packet.copy_to(&mut payload);
    let is_cut = packet.payload_bytes() > usize::from(packet.segment_bytes);
    OwnedPacket {
        arrived: now,
        protocol: to.protocol,
        source: to.source,
        destination: to.destination,
        traffic_class: to.traffic_class,
        hop_limit: to.hop_limit.unwrap_or(HOP_LIMIT),
        checksum: RxChecksum::Verified,
        segment_bytes: if is_cut { packet.segment_bytes } else { 0 },
        payload,
        offset: 0,
    }
}

/// The error about a packet whose headers begin with the transport header.
fn too_big(to: &Outbound, packet: &TxPacket<'_>, mtu: u32) -> Option<NetworkError> {
    let &[s0, s1, d0, d1, a, b, c, d] = packet.headers().first_chunk::<8>()?;
    Some(NetworkError {
        kind: ErrorKind::PacketTooBig { mtu },
        protocol: to.protocol,
        local: Endpoint::new(to.source, u16::from_be_bytes([s0, s1])),
        remote: Endpoint::new(to.destination, u16::from_be_bytes([d0, d1])),
        sequence: u32::from_be_bytes([a, b, c, d]),
    })
}

/// Length of the IP header of a packet without options or extensions.
fn header_bytes(to: &Outbound) -> usize {
    if to.source.is_ipv4() {
        ipv4::LEN
    } else {
        ipv6::LEN
    }
}
