//! From a frame to a transport's packet.

use crate::errors::Report;
use crate::reassembly::{Added, Datagram, Fragment, Key};
use crate::{Ip, OwnedPacket};
use core::net::IpAddr;
use skink_messages::{Counter, FrameOutput, RxChecksum, RxFrame, RxPacket};
use skink_time::Instant;
use skink_wire::icmpv6::parameter_problem;
use skink_wire::{ChecksumPolicy, Malformed, ethernet, icmpv6, ipv4, ipv6, protocol};

/// Where the next-header field of the fixed IPv6 header is, and its payload length.
const NEXT_HEADER_AT: u32 = 6;
const PAYLOAD_LENGTH_AT: u32 = 4;

impl Ip {
    /// Takes a frame that is for our station or a group. Answers the transport protocol (TCP or UDP)
    /// and payload of a whole packet for us, which borrow from the frame only. All else is dealt
    /// with here; it may lead to something to take ([`Ip::take_whole`], [`Ip::take_error`]).
    // Whether it is worth that isn't for the compiler to say: it changes its mind with what is around
    // (`tests/inlined.rs` of the library holds it to that).
    #[inline(always)]
    pub fn receive<'a, O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        frame: &RxFrame<'a>,
        out: &mut O,
    ) -> Option<(u8, RxPacket<'a>)> {
        let Ok((link, rest)) = ethernet::Header::parse(frame.bytes) else {
            return self.drop_received(Counter::IpDropMalformed);
        };
        match link.ethertype {
            ethernet::IPV4 => self.receive_v4(now, frame, &link, rest, out),
            ethernet::IPV6 => self.receive_v6(now, frame, &link, rest, out),
            ethernet::ARP => {
                self.on_arp(now, &link, rest, out);
                None
            }
            _ => self.drop_received(Counter::IpDropEtherType),
        }
    }

    #[inline]
    fn receive_v4<'a, O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        frame: &RxFrame<'a>,
        link: &ethernet::Header,
        packet: &'a [u8],
        out: &mut O,
    ) -> Option<(u8, RxPacket<'a>)> {
        let (header, payload) = match ipv4::Header::parse(packet, ChecksumPolicy::Verify) {
            Ok(parsed) => parsed,
            Err(Malformed::BadChecksum) => return self.drop_received(Counter::IpDropChecksum),
            Err(_) => return self.drop_received(Counter::IpDropMalformed),
        };
        let (source, destination) = (header.source.into(), header.destination.into());
        if !self.accepts(link, source, destination) {
            return None;
        }
        let packet = RxPacket {
            arrived: frame.arrived,
            source,
            destination,
            traffic_class: header.dscp_ecn,
            hop_limit: header.ttl,
            checksum: frame.checksum,
            segment_bytes: frame.segment_bytes,
            payload,
        };
        if header.is_fragment() {
            let key = Key {
                source,
                destination,
                protocol: header.protocol,
                identification: u32::from(header.identification),
            };
            let fragment = Fragment {
                key,
                offset: usize::from(header.fragment_offset),
                more: header.more_fragments,
                next_header: header.protocol,
                traffic_class: header.dscp_ecn,
                hop_limit: header.ttl,
                data: payload,
            };
            self.on_fragment(now, &packet, &fragment, out);
            return None;
        }
        if matches!(header.protocol, protocol::TCP | protocol::UDP) {
            return Some((header.protocol, packet));
        }
        self.on_other(now, header.protocol, &packet, 0, out);
        None
    }

    #[inline]
    fn receive_v6<'a, O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        frame: &RxFrame<'a>,
        link: &ethernet::Header,
        packet: &'a [u8],
        out: &mut O,
    ) -> Option<(u8, RxPacket<'a>)> {
        let Ok((header, payload)) = ipv6::Header::parse(packet) else {
            return self.drop_received(Counter::IpDropMalformed);
        };
        let (source, destination) = (header.source.into(), header.destination.into());
        if !self.accepts(link, source, destination) {
            return None;
        }
        let mut packet = RxPacket {
            arrived: frame.arrived,
            source,
            destination,
            traffic_class: header.traffic_class,
            hop_limit: header.hop_limit,
            checksum: frame.checksum,
            segment_bytes: frame.segment_bytes,
            payload,
        };
        let upper = match ipv6::walk(header.next_header, payload) {
            Ok(upper) => upper,
            Err(fault) => {
                self.on_extension_fault(now, &fault, &packet, header.next_header, out);
                return None;
            }
        };
        let rest = payload.get(upper.offset..).unwrap_or_default();
        if let Some(part) = upper.fragment.filter(|part| !part.is_atomic()) {
            self.on_fragment_v6(now, header.next_header, &packet, &part, rest, out);
            return None;
        }
        let is_transport = matches!(upper.protocol, protocol::TCP | protocol::UDP);
        if is_transport && !header.source.is_unspecified() {
            packet.payload = rest;
            return Some((upper.protocol, packet));
        }
        if is_transport {
            return self.drop_received(Counter::IpDropBadSource);
        }
        if upper.protocol == protocol::ICMPV6 {
            packet.payload = rest;
            match upper.fragment {
                Some(_) => self.on_fragmented_icmpv6(now, &packet, out),
                None => self.on_icmp(now, &packet, out),
            }
        } else {
            let at = upper.next_header_at;
            self.on_unknown_protocol(now, header.next_header, &packet, at, out);
        }
        None
    }

    fn on_fragment_v6<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        next_header: u8,
        packet: &RxPacket<'_>,
        part: &ipv6::FragmentHeader,
        data: &[u8],
        out: &mut O,
    ) {
        let key = Key {
            source: packet.source,
            destination: packet.destination,
            protocol: 0,
            identification: part.identification,
        };
        let fragment = Fragment {
            key,
            offset: usize::from(part.offset),
            more: part.more,
            next_header: part.next_header,
            traffic_class: packet.traffic_class,
            hop_limit: packet.hop_limit,
            data,
        };
        if part.more && !data.len().is_multiple_of(8) {
            let report = Report::Parameter {
                code: parameter_problem::ERRONEOUS_FIELD,
                pointer: PAYLOAD_LENGTH_AT,
                even_if_multicast: false,
            };
            self.send_error(now, report, next_header, packet, out);
        }
        self.on_fragment(now, packet, &fragment, out);
    }

    /// Whether a packet is for us, and from where it can be from. A packet for one of our addresses
    /// must not have been sent to a group of stations (RFC 1122 section 3.3.6).
    #[inline]
    fn accepts(&self, link: &ethernet::Header, source: IpAddr, destination: IpAddr) -> bool {
        let own = self.addresses.is_own(destination) && !link.destination.is_multicast();
        if !own && !self.addresses.is_joined(destination) {
            self.counters.count(Counter::IpDropNotOurs);
            return false;
        }
        if !self.addresses.is_good_source(source) {
            self.counters.count(Counter::IpDropBadSource);
            return false;
        }
        self.counters.count(Counter::IpIn);
        true
    }

    #[cold]
    fn drop_received<T>(&self, reason: Counter) -> Option<T> {
        self.counters.count(reason);
        None
    }

    /// A whole packet of another protocol than TCP and UDP.
    fn on_other<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        protocol: u8,
        packet: &RxPacket<'_>,
        pointer: u32,
        out: &mut O,
    ) {
        match (protocol, packet.source) {
            (protocol::ICMP, IpAddr::V4(_)) | (protocol::ICMPV6, IpAddr::V6(_)) => {
                self.on_icmp(now, packet, out);
            }
            _ => self.on_unknown_protocol(now, protocol, packet, pointer, out),
        }
    }

    /// Neighbour discovery isn't believed if it came in fragments, be it a single one (RFC 6980 section 5): switches that keep
    /// forged messages away may not find it there.
    fn on_fragmented_icmpv6<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        packet: &RxPacket<'_>,
        out: &mut O,
    ) {
        match icmpv6::is_neighbour_discovery(packet.payload) {
            true => self.counters.count(Counter::IpDropNdp),
            false => self.on_icmp(now, packet, out),
        }
    }

    fn on_unknown_protocol<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        protocol: u8,
        packet: &RxPacket<'_>,
        pointer: u32,
        out: &mut O,
    ) {
        self.counters.count(Counter::IpDropProtocol);
        if protocol != protocol::NO_NEXT_HEADER || packet.source.is_ipv4() {
            let report = Report::ProtocolUnreachable { pointer };
            self.send_error(now, report, protocol, packet, out);
        }
    }

    fn on_extension_fault<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        fault: &ipv6::ExtensionFault,
        packet: &RxPacket<'_>,
        next_header: u8,
        out: &mut O,
    ) {
        self.counters.count(Counter::IpDropMartian);
        match *fault {
            ipv6::ExtensionFault::Malformed(_) | ipv6::ExtensionFault::Discard => {}
            ipv6::ExtensionFault::ParameterProblem {
                code,
                pointer,
                even_if_multicast,
            } => {
                let report = Report::Parameter {
                    code,
                    pointer,
                    even_if_multicast,
                };
                self.send_error(now, report, next_header, packet, out);
            }
        }
    }

    fn on_fragment<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        packet: &RxPacket<'_>,
        fragment: &Fragment<'_>,
        out: &mut O,
    ) {
        self.counters.count(Counter::IpFragmentsIn);
        let counters = &self.counters;
        let evicted = || counters.count(Counter::IpDropReassemblyFull);
        match self.reassembly.add(now, fragment, evicted) {
            Added::Kept => {}
            Added::Refused => self.counters.count(Counter::IpDropFragment),
            Added::Whole(datagram) => {
                self.counters.count(Counter::IpReassembled);
                self.on_reassembled(now, packet.arrived, datagram, out);
            }
        }
    }

    fn on_reassembled<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        arrived: Instant,
        datagram: Datagram,
        out: &mut O,
    ) {
        let mut packet = OwnedPacket {
            arrived,
            protocol: datagram.next_header,
            source: datagram.key.source,
            destination: datagram.key.destination,
            traffic_class: datagram.traffic_class,
            hop_limit: datagram.hop_limit,
            // No NIC sums what comes in pieces.
            checksum: RxChecksum::Unverified,
            segment_bytes: 0,
            payload: datagram.into_payload(),
            offset: 0,
        };
        let mut pointer = 0;
        if packet.source.is_ipv6() {
            match ipv6::walk_reassembled(packet.protocol, &packet.payload) {
                Ok(upper) => {
                    packet.offset = upper.offset;
                    packet.protocol = upper.protocol;
                    pointer = upper.next_header_at;
                }
                Err(fault) => {
                    let (next_header, packet) = (packet.protocol, packet.as_packet());
                    return self.on_extension_fault(now, &fault, &packet, next_header, out);
                }
            }
        }
        match packet.protocol {
            protocol::TCP | protocol::UDP if packet.source.is_unspecified() => {
                self.counters.count(Counter::IpDropBadSource);
            }
            protocol::TCP | protocol::UDP if self.whole.has_room(packet.payload.len()) => {
                self.whole.push(packet);
            }
            protocol::TCP | protocol::UDP => self.counters.count(Counter::IpDropReassemblyFull),
            protocol::ICMPV6 if packet.source.is_ipv6() => {
                self.on_fragmented_icmpv6(now, &packet.as_packet(), out);
            }
            protocol => self.on_other(now, protocol, &packet.as_packet(), pointer, out),
        }
    }

    /// Fragments whose companions stayed away.
    pub(crate) fn on_unfinished<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        datagram: &Datagram,
        out: &mut O,
    ) {
        if datagram.is_spoilt() {
            return;
        }
        self.counters.count(Counter::IpDropReassemblyTimeout);
        // Only if the first one came (RFC 792, RFC 4443 section 3.3).
        let beginning = datagram.beginning();
        if !beginning.is_empty() {
            let packet = RxPacket {
                arrived: now,
                source: datagram.key.source,
                destination: datagram.key.destination,
                traffic_class: datagram.traffic_class,
                hop_limit: datagram.hop_limit,
                checksum: RxChecksum::Unverified,
                segment_bytes: 0,
                payload: beginning,
            };
            let protocol = datagram.next_header;
            self.send_error(now, Report::Reassembly, protocol, &packet, out);
        }
    }

    /// The pointer of a parameter problem about the protocol of a packet without extensions.
    pub(crate) const fn next_header_at() -> u32 {
        NEXT_HEADER_AT
    }
}
