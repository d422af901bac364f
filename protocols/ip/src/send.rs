//! From a transport's packet to a frame.

use crate::Ip;
use crate::held::{Held, Target};
use core::net::IpAddr;
use skink_memory::Bytes;
use skink_messages::{Counter, ErrorKind, FrameOutput, Full, NetworkError, Outbound, TxPacket};
use skink_time::Instant;
use skink_wire::{Endpoint, MacAddr, ethernet, ipv4, ipv6};

/// TTL and hop limit where nobody says otherwise (RFC 1340; Linux has the same).
pub(crate) const HOP_LIMIT: u8 = 64;
/// What the length fields can say.
pub(crate) const MAXIMUM_BYTES: usize = 65_535;

impl Ip {
    /// Sends `packet`, whose headers begin with the transport header, as `to` says. What can't be
    /// sent at all is dropped and counted. If the link has no room, `packet` is unchanged.
    ///
    /// A packet to ourselves is copied and comes back by [`Ip::take_whole`].
    ///
    /// # Errors
    /// [`Full`] if the link, or the queue of packets to ourselves, has no room.
    // This and what it calls inline are what a message from a transport becomes; `send_slowly` is the
    // rest, and the only other place of their bodies.
    #[inline(always)]
    pub fn send<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        to: &Outbound,
        packet: &mut TxPacket<'_>,
        out: &mut O,
    ) -> Result<(), Full> {
        if self.outbox.is_empty()
            && let Some(mac) = self.last_station(now, to.destination)
            && self.leaves_whole(to, packet, out.limits().mtu)
            && let Some(header_bytes) = self.prepend_header(to, packet)
        {
            let sent = self.send_frame(now, mac, ethertype(to), packet, out);
            if sent.is_ok() {
                self.counters.count(Counter::IpOut);
            }
            return undo_if_full(sent, packet, header_bytes);
        }
        self.send_slowly(now, to, packet, out)
    }

    /// As [`Ip::send`], for what isn't like the packet before it, and for messages of our own.
    #[inline(never)]
    pub(crate) fn send_slowly<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        to: &Outbound,
        packet: &mut TxPacket<'_>,
        out: &mut O,
    ) -> Result<(), Full> {
        if !self.outbox.is_empty() {
            self.flush_outbox(now, out)?;
        }
        if !self.claims.is_empty() {
            self.settle_claims(now, to, packet);
        }
        let target = match self.last_station(now, to.destination) {
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
        if self.leaves_whole(to, packet, out.limits().mtu) {
            self.send_whole(now, to, packet, target, out)
        } else {
            self.send_large(now, to, packet, target, out)
        }
    }

    /// Remembers the path's MTU if what a router told is of a packet that a transport may have sent.
    #[cold]
    fn settle_claims(&mut self, now: Instant, to: &Outbound, packet: &TxPacket<'_>) {
        let bytes = piece_bytes(to, packet);
        if let Some(mtu) = self.claims.settle(now, to, packet, bytes) {
            self.path_mtus.shrink(now, to.destination, mtu);
        }
    }

    /// Whether a packet fits a link that takes `mtu` bytes, or is cut there, and no smaller MTU of its
    /// path has to be looked at.
    #[inline(always)]
    fn leaves_whole(&self, to: &Outbound, packet: &TxPacket<'_>, mtu: u32) -> bool {
        let total = header_bytes(to) + packet.len();
        total <= MAXIMUM_BYTES
            && (total <= mtu as usize || is_cut(packet))
            && match to.dont_fragment {
                true => !self.path_mtus.is_link_small() || self.fits_small_link(to, packet),
                false => self.path_mtus.get(to.destination).is_none(),
            }
    }

    /// Whether what a router said of the link lets this packet, or the pieces that it is cut into, pass. Transports ask
    /// for the size of a flow's packets but once, and this may have been said later.
    #[cold]
    fn fits_small_link(&self, to: &Outbound, packet: &TxPacket<'_>) -> bool {
        let most = self.path_mtus.small_link(to.destination);
        most.is_none_or(|most| piece_bytes(to, packet) <= most as usize)
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
        let total = header_bytes(to) + packet.len();
        let link = out.limits().mtu;
        let mtu = self
            .path_mtus
            .get(to.destination)
            .map_or(link, |mtu| mtu.min(link));
        // What has become too large comes back to its transport, as if a router had said so (RFC 8201 section 4).
        let is_old = to.dont_fragment && !self.fits_small_link(to, packet);
        if !is_old && (is_cut(packet) || total <= mtu as usize) {
            if total > MAXIMUM_BYTES + if to.source.is_ipv4() { 0 } else { ipv6::LEN } {
                self.counters.count(Counter::IpDropTooBig);
                return Ok(());
            }
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
    #[inline(never)]
    fn send_whole<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        to: &Outbound,
        packet: &mut TxPacket<'_>,
        target: Target,
        out: &mut O,
    ) -> Result<(), Full> {
        let Some(header_bytes) = self.prepend_header(to, packet) else {
            self.counters.count(Counter::IpDropNoRoute);
            return Ok(());
        };
        let sent = self.transmit(now, target, ethertype(to), packet, out);
        undo_if_full(sent, packet, header_bytes)
    }

    /// Writes the IP header and answers its length; `None` if the addresses are of two families.
    #[inline(always)]
    fn prepend_header(&mut self, to: &Outbound, packet: &mut TxPacket<'_>) -> Option<u8> {
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
                    ttl: self.hop_limit(to),
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
                    hop_limit: self.hop_limit(to),
                    source,
                    destination,
                };
                let _ = header.emit(packet.prepend(ipv6::LEN));
                ipv6::LEN
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return None,
        };
        packet.network_bytes = header_bytes as u8;
        Some(header_bytes as u8)
    }

    /// TTL or hop limit of a packet.
    #[inline(always)]
    pub(crate) fn hop_limit(&self, to: &Outbound) -> u8 {
        to.hop_limit.unwrap_or(match to.source {
            IpAddr::V4(_) => HOP_LIMIT,
            IpAddr::V6(_) => self.hop_limit_v6,
        })
    }

    /// Sends a packet with its IP header, or keeps a copy until its neighbour is known.
    pub(crate) fn transmit<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        target: Target,
        ethertype: u16,
        packet: &mut TxPacket<'_>,
        out: &mut O,
    ) -> Result<(), Full> {
        match target {
            Target::Station(mac) => {
                let sent = self.send_frame_slowly(now, mac, ethertype, packet, out);
                if sent.is_ok() {
                    self.counters.count(Counter::IpOut);
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

    /// Writes the Ethernet header and gives the frame to the link.
    #[inline(always)]
    fn send_frame<O: FrameOutput + ?Sized>(
        &self,
        now: Instant,
        destination: MacAddr,
        ethertype: u16,
        packet: &mut TxPacket<'_>,
        out: &mut O,
    ) -> Result<(), Full> {
        let header = ethernet::Header {
            destination,
            source: self.mac,
            ethertype,
        };
        let _ = header.emit(packet.prepend(ethernet::LEN));
        let sent = out.send(now, packet);
        if sent.is_err() {
            packet.strip(ethernet::LEN);
        }
        sent
    }

    /// As [`Ip::send_frame`], for all that [`Ip::send`] doesn't send at once: the second and last
    /// place where what is below is inlined.
    #[inline(never)]
    pub(crate) fn send_frame_slowly<O: FrameOutput + ?Sized>(
        &self,
        now: Instant,
        destination: MacAddr,
        ethertype: u16,
        packet: &mut TxPacket<'_>,
        out: &mut O,
    ) -> Result<(), Full> {
        self.send_frame(now, destination, ethertype, packet, out)
    }

    /// Sends what the link had no room for.
    #[inline(never)]
    pub(crate) fn flush_outbox<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        out: &mut O,
    ) -> Result<(), Full> {
        while let Some((mac, held)) = self.outbox.pop() {
            let ethertype = match held.bytes().first() {
                Some(first) if first >> 4 == 4 => ethernet::IPV4,
                Some(_) | None => ethernet::IPV6,
            };
            let mut packet = held.packet();
            let target = Target::Station(mac);
            if self
                .transmit(now, target, ethertype, &mut packet, out)
                .is_err()
            {
                self.outbox.put_back(mac, held);
                return Err(Full);
            }
        }
        Ok(())
    }

    /// Sends a message of our own, to `station` or to whom the routes say; it is dropped if there is no room.
    pub(crate) fn send_message<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        to: &Outbound,
        message: &[u8],
        station: Option<MacAddr>,
        out: &mut O,
    ) -> bool {
        let mut packet = TxPacket::new([Bytes::from(message), Bytes::EMPTY]);
        let sent = match station {
            Some(mac) => self.send_whole(now, to, &mut packet, Target::Station(mac), out),
            None => self.send_slowly(now, to, &mut packet, out),
        };
        let sent = sent.is_ok();
        if !sent {
            self.counters.count(Counter::IpDropOutput);
        }
        sent
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

/// Whether the link cuts the packet into segments.
#[inline(always)]
fn is_cut(packet: &TxPacket<'_>) -> bool {
    packet.segment_bytes != 0 && packet.payload_bytes() > usize::from(packet.segment_bytes)
}

/// Length of a packet, or of each that it is cut into, with all headers. There is no IP header yet.
fn piece_bytes(to: &Outbound, packet: &TxPacket<'_>) -> usize {
    let data = match is_cut(packet) {
        true => usize::from(packet.segment_bytes),
        false => packet.payload_bytes(),
    };
    header_bytes(to) + packet.headers().len() + data
}

/// Takes the IP header off again if the packet couldn't leave: it is as its transport made it.
#[inline(always)]
fn undo_if_full(
    sent: Result<(), Full>,
    packet: &mut TxPacket<'_>,
    header_bytes: u8,
) -> Result<(), Full> {
    if sent.is_err() {
        packet.strip(usize::from(header_bytes));
        packet.network_bytes = 0;
    }
    sent
}

/// The Ethernet type of a packet of ours.
#[inline(always)]
pub(crate) fn ethertype(to: &Outbound) -> u16 {
    match to.source {
        IpAddr::V4(_) => ethernet::IPV4,
        IpAddr::V6(_) => ethernet::IPV6,
    }
}

/// Length of the IP header of a packet without options or extensions.
#[inline(always)]
fn header_bytes(to: &Outbound) -> usize {
    if to.source.is_ipv4() {
        ipv4::LEN
    } else {
        ipv6::LEN
    }
}
