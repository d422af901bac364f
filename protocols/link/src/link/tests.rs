use super::*;
use core::net::{Ipv4Addr, Ipv6Addr};
use skink_messages::{FrameOutput, RxChecksum, Steering};
use skink_wire::{MacAddr, SeqNum, arp, ipv4, ipv6, tcp, udp};

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const PEER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const V4: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)),
];
const V6: [IpAddr; 2] = [
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2)),
];
const MTU: u32 = 1500;

/// What a NIC was handed.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Sent {
    bytes: Vec<u8>,
    checksum_offset: Option<u8>,
    segment_bytes: u16,
}

struct FakeNic {
    room: usize,
    sent: Vec<Sent>,
}

impl NicOutput for FakeNic {
    fn room(&mut self) -> usize {
        self.room
    }
    fn send(&mut self, packet: &TxPacket<'_>) -> Result<(), Full> {
        self.room = self.room.checked_sub(1).ok_or(Full)?;
        self.sent.push(snapshot(packet));
        Ok(())
    }
}

fn snapshot(packet: &TxPacket<'_>) -> Sent {
    let mut bytes = vec![0; packet.len()];
    packet.copy_to(&mut bytes).expect("as long as the packet");
    Sent {
        bytes,
        checksum_offset: packet.checksum_offset,
        segment_bytes: packet.segment_bytes,
    }
}

fn nic(room: usize) -> FakeNic {
    FakeNic {
        room,
        sent: Vec::new(),
    }
}

fn link(tx_checksum: bool, cut_bytes: u32) -> (Link, Counters) {
    let capabilities = Capabilities {
        kind: "fake",
        mac: MAC,
        mtu: MTU,
        tx_checksum,
        rx_checksum: false,
        cut_bytes,
        joins: false,
        queues: 1,
        steering: Steering::Sole,
        zero_copy: false,
    };
    let counters = Counters::create().expect("a small mapping");
    let config = LinkConfig {
        addresses: Some(vec![V6[0], V4[0]]),
    };
    (Link::new(capabilities, config, counters.clone()), counters)
}

/// What a packet to send is made of.
#[derive(Clone, Copy, Debug)]
struct Case {
    addresses: [IpAddr; 2],
    protocol: u8,
    /// Timestamps, to have a longer header.
    options: bool,
    flags: tcp::Flags,
    seq: u32,
    identification: u16,
    segment_bytes: u16,
}

impl Case {
    fn transport_bytes(&self) -> usize {
        match (self.protocol, self.options) {
            (protocol::UDP, _) => 8,
            (_, false) => 20,
            (_, true) => 32,
        }
    }

    fn network_bytes(&self) -> usize {
        if self.addresses[0].is_ipv4() { 20 } else { 40 }
    }

    /// The transport header, its checksum field zero.
    fn transport(&self, seq: u32, flags: tcp::Flags, payload: usize) -> Vec<u8> {
        let mut bytes = vec![0; self.transport_bytes()];
        let written = if self.protocol == protocol::UDP {
            let header = udp::Header::new(1000, 2000, payload).expect("fits");
            header.emit(&mut bytes)
        } else {
            let header = tcp::Header {
                source_port: 1000,
                destination_port: 2000,
                seq: SeqNum(seq),
                ack: SeqNum(77),
                flags,
                window: 1234,
                urgent: 0,
                header_len: 0,
            };
            let mut options = tcp::Options::default();
            if self.options {
                options.timestamps = Some(tcp::Timestamps { value: 5, echo: 6 });
            }
            tcp::emit(&header, &options, &mut bytes)
        };
        assert_eq!(written, bytes.len());
        bytes
    }

    fn network(&self, identification: u16, transport_len: usize) -> Vec<u8> {
        let mut bytes = vec![0; self.network_bytes()];
        let written = match self.addresses {
            [IpAddr::V4(source), IpAddr::V4(destination)] => ipv4::Header {
                dscp_ecn: 2,
                total_len: (20 + transport_len) as u16,
                identification,
                dont_fragment: true,
                more_fragments: false,
                fragment_offset: 0,
                ttl: 64,
                protocol: self.protocol,
                source,
                destination,
                header_len: 20,
            }
            .emit(&mut bytes),
            [IpAddr::V6(source), IpAddr::V6(destination)] => ipv6::Header {
                traffic_class: 2,
                flow_label: 9,
                payload_len: transport_len as u16,
                next_header: self.protocol,
                hop_limit: 64,
                source,
                destination,
            }
            .emit(&mut bytes),
            _ => unreachable!("one family"),
        };
        assert_eq!(written, bytes.len());
        bytes
    }

    fn ethernet(&self) -> Vec<u8> {
        let ethertype = if self.addresses[0].is_ipv4() {
            ethernet::IPV4
        } else {
            ethernet::IPV6
        };
        ethernet::Header {
            destination: PEER,
            source: MAC,
            ethertype,
        }
        .to_bytes()
        .to_vec()
    }

    /// The packet as `ip` hands it in, its payload wrapping around after `first` bytes.
    fn packet<'a>(&self, payload: &'a [u8], first: usize) -> TxPacket<'a> {
        let (front, back) = payload.split_at(first);
        let mut packet = TxPacket::new([front.into(), back.into()]);
        let mut transport = self.transport(self.seq, self.flags, payload.len());
        let transport_len = transport.len() + payload.len();
        let [source, destination] = self.addresses;
        let sum = Sum::pseudo_header(source, destination, self.protocol, transport_len as u32);
        let offset = if self.protocol == protocol::UDP {
            6
        } else {
            16
        };
        transport[offset..offset + 2].copy_from_slice(&sum.fold().to_be_bytes());
        packet.prepend(transport.len()).copy_from_slice(&transport);
        let network = self.network(self.identification, transport_len);
        packet.prepend(network.len()).copy_from_slice(&network);
        packet.prepend(14).copy_from_slice(&self.ethernet());
        packet.transport_bytes = self.transport_bytes() as u8;
        packet.network_bytes = self.network_bytes() as u8;
        packet.checksum_offset = Some(offset as u8);
        packet.segment_bytes = self.segment_bytes;
        packet
    }

    /// The oracle: each segment built on its own, its checksum computed over the whole.
    fn segments(&self, payload: &[u8]) -> Vec<Vec<u8>> {
        let pieces: Vec<&[u8]> = payload.chunks(usize::from(self.segment_bytes)).collect();
        let mut seq = self.seq;
        let build = |(index, piece): (usize, &&[u8])| {
            let mut flags = self.flags;
            if index > 0 {
                flags = flags.without(tcp::Flags::CWR);
            }
            if index + 1 < pieces.len() {
                flags = flags.without(tcp::Flags::FIN | tcp::Flags::PSH);
            }
            let mut segment = self.transport(seq, flags, piece.len());
            seq = seq.wrapping_add(piece.len() as u32);
            segment.extend_from_slice(piece);
            let [source, destination] = self.addresses;
            if self.protocol == protocol::UDP {
                udp::set_checksum(source, destination, &mut segment);
            } else {
                tcp::set_checksum(source, destination, &mut segment);
            }
            let identification = self.identification.wrapping_add(index as u16);
            let network = self.network(identification, segment.len());
            [self.ethernet(), network, segment].concat()
        };
        pieces.iter().enumerate().map(build).collect()
    }

    /// A frame that the NIC was to complete, completed.
    fn complete(&self, sent: &Sent) -> Vec<u8> {
        let mut bytes = sent.bytes.clone();
        if let Some(offset) = sent.checksum_offset {
            let transport = 14 + self.network_bytes();
            let mut sum = Sum::new();
            sum.add_bytes(&bytes[transport..]);
            let checksum = match sum.finish() {
                0 if self.protocol == protocol::UDP => 0xffff,
                checksum => checksum,
            };
            let at = transport + usize::from(offset);
            bytes[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
        }
        bytes
    }
}

fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
}

fn cases() -> Vec<Case> {
    let all = tcp::Flags::ACK | tcp::Flags::PSH | tcp::Flags::FIN | tcp::Flags::CWR;
    let mut cases = Vec::new();
    for addresses in [V4, V6] {
        for (protocol, options, flags) in [
            (protocol::UDP, false, tcp::Flags::EMPTY),
            (protocol::TCP, false, all),
            (protocol::TCP, true, tcp::Flags::ACK | tcp::Flags::ECE),
        ] {
            for segment_bytes in [1, 537, 1000, 1400] {
                cases.push(Case {
                    addresses,
                    protocol,
                    options,
                    flags,
                    seq: u32::MAX - 1500,
                    identification: u16::MAX - 1,
                    segment_bytes,
                });
            }
        }
    }
    cases
}

#[test]
fn cut_segments_are_as_if_built_one_by_one() {
    for case in cases() {
        let segment = usize::from(case.segment_bytes);
        for len in [
            0,
            1,
            segment - 1,
            segment,
            segment + 1,
            3 * segment,
            7 * segment + 5,
        ] {
            let payload = payload(len);
            for first in [0, 1, len / 2, len.saturating_sub(1), len] {
                let first = first.min(len);
                for tx_checksum in [false, true] {
                    let (mut link, _) = link(tx_checksum, 0);
                    let mut nic = nic(100);
                    let mut packet = case.packet(&payload, first);
                    assert_eq!(link.send(Instant::ZERO, &mut packet, &mut nic), Ok(()));
                    let sent: Vec<_> = nic.sent.iter().map(|sent| case.complete(sent)).collect();
                    let expected = if len == 0 {
                        vec![case.complete(&snapshot(&case.packet(&payload, 0)))]
                    } else {
                        case.segments(&payload)
                    };
                    assert_eq!(sent, expected, "{case:?} {len} {first} {tx_checksum}");
                    let offsets = nic.sent.iter().all(|s| s.checksum_offset.is_some());
                    assert_eq!(offsets, tx_checksum);
                    assert!(nic.sent.iter().all(|sent| sent.segment_bytes == 0));
                }
            }
        }
    }
}

/// RFC 768: a checksum that is zero by computation is sent as all ones.
#[test]
fn a_udp_checksum_of_zero_is_sent_as_all_ones() {
    for case in [cases()[0], cases()[12]] {
        assert_eq!(case.protocol, protocol::UDP);
        let field = 14 + case.network_bytes() + 6;
        for segment_bytes in [0, 2] {
            let case = Case {
                segment_bytes: 2,
                ..case
            };
            // With its own checksum as payload, a datagram of zeros sums up to zero.
            let zeros = case.segments(&[0, 0]).remove(0);
            let mut payload = [0; 4];
            payload[..2].copy_from_slice(&zeros[field..field + 2]);
            let len = if segment_bytes == 0 { 2 } else { 4 };
            let mut packet = case.packet(&payload[..len], 0);
            packet.segment_bytes = segment_bytes;
            let (mut link, _) = link(false, 0);
            let mut nic = nic(2);
            assert_eq!(link.send(Instant::ZERO, &mut packet, &mut nic), Ok(()));
            assert_eq!(nic.sent[0].bytes[field..field + 2], [0xff, 0xff]);
        }
    }
}

#[test]
fn a_nic_that_can_do_it_gets_the_packet_untouched() {
    let case = cases()[7];
    assert_eq!((case.protocol, case.segment_bytes), (protocol::TCP, 1400));
    let payload = payload(20_000);
    let (mut link, counters) = link(true, 65_535);
    let mut nic = nic(1);
    let mut packet = case.packet(&payload, 7_000);
    let before = snapshot(&packet);
    let mut output = crate::LinkOutput {
        link: &mut link,
        nic: &mut nic,
    };
    assert_eq!(output.limits().cut_bytes, 65_535);
    assert_eq!(output.send(Instant::ZERO, &mut packet), Ok(()));
    assert_eq!(nic.sent, [before]);
    assert_eq!(counters.get(Counter::LinkCut), 0);
    assert_eq!(counters.get(Counter::LinkFramesOut), 1);
    assert_eq!(counters.get(Counter::LinkBytesOut), 20_054);
}

#[test]
fn a_nic_that_cuts_less_gets_pieces_it_can_cut() {
    for addresses in [V4, V6] {
        let case = Case {
            addresses,
            ..cases()[7]
        };
        let payload = payload(30_000);
        // Five segments and a bit for each piece.
        let (mut link, _) = link(true, 54 + 5 * 1400 + 300);
        let mut nic = nic(100);
        let mut packet = case.packet(&payload, 9_999);
        assert_eq!(link.send(Instant::ZERO, &mut packet, &mut nic), Ok(()));
        let lens: Vec<usize> = nic.sent.iter().map(|sent| sent.bytes.len()).collect();
        let headers = 34 + case.network_bytes();
        let mut expected = vec![headers + 7000; 4];
        expected.push(headers + 2000);
        assert_eq!(lens, expected);
        // What the NIC makes of them is what one cut would have made.
        let mut segments = Vec::new();
        for sent in &nic.sent {
            assert_eq!(sent.segment_bytes, 1400);
            let (header, _, data) =
                tcp::parse(&sent.bytes[14 + case.network_bytes()..]).expect("a segment");
            let identification = match addresses[0] {
                IpAddr::V4(_) => u16::from_be_bytes([sent.bytes[18], sent.bytes[19]]),
                IpAddr::V6(_) => 0,
            };
            let piece = Case {
                seq: header.seq.0,
                flags: header.flags,
                identification,
                ..case
            };
            // The NIC relies on the sum of the pseudo-header of what it is handed.
            let whole = piece.packet(data, 0);
            assert_eq!(snapshot(&whole), *sent);
            segments.extend(piece.segments(data));
        }
        assert_eq!(segments, case.segments(&payload));
    }
}

#[test]
fn a_nic_that_sums_only_what_it_cuts_gets_everything_else_summed() {
    let case = cases()[7];
    let payload = payload(7_000 + 900);
    let (mut link, _) = link(false, 54 + 5 * 1400 + 300);
    let mut nic = nic(100);
    let mut packet = case.packet(&payload, 3_333);
    assert_eq!(link.send(Instant::ZERO, &mut packet, &mut nic), Ok(()));
    let [large, small] = &nic.sent[..] else {
        panic!("two pieces, not {}", nic.sent.len());
    };
    assert_eq!((large.segment_bytes, small.segment_bytes), (1400, 0));
    assert!(large.checksum_offset.is_some());
    assert_eq!(small.checksum_offset, None);
    let segments = case.segments(&payload);
    assert_eq!(Some(&small.bytes), segments.last());
}

#[test]
fn full_leaves_everything_as_it_was() {
    let case = cases()[7];
    let payload = payload(14_000);
    for (tx_checksum, cut_bytes, len, room) in [
        (false, 0, 14_000, 9),
        (true, 0, 14_000, 9),
        (true, 65_535, 14_000, 0),
        (true, 8_000, 14_000, 1),
        (false, 0, 1_000, 0),
        (true, 0, 1_000, 0),
        (false, 0, 14_000, 0),
    ] {
        let (mut link, counters) = link(tx_checksum, cut_bytes);
        let mut nic = nic(room);
        // It had more room once.
        link.most_room = 100;
        let mut packet = case.packet(&payload[..len], 100);
        let before = snapshot(&packet);
        assert_eq!(link.send(Instant::ZERO, &mut packet, &mut nic), Err(Full));
        assert_eq!(snapshot(&packet), before);
        assert!(nic.sent.is_empty() && nic.room == room);
        assert_eq!(counters.get(Counter::LinkFull), 1);
        assert_eq!(counters.get(Counter::LinkFramesOut), 0);
        nic.room = 100;
        assert_eq!(link.send(Instant::ZERO, &mut packet, &mut nic), Ok(()));
        assert!(!nic.sent.is_empty());
    }
}

#[test]
fn a_packet_of_more_frames_than_the_nic_ever_takes_does_not_block_for_ever() {
    let case = cases()[7];
    let payload = payload(14_000);
    let (mut link, counters) = link(true, 0);
    let mut nic = nic(4);
    let mut packet = case.packet(&payload, 100);
    assert_eq!(link.send(Instant::ZERO, &mut packet, &mut nic), Ok(()));
    assert_eq!(nic.sent.len(), 4);
    assert_eq!(counters.get(Counter::LinkDropSend), 6);
    // While it is busy, the packet waits.
    nic.room = 3;
    assert_eq!(link.send(Instant::ZERO, &mut packet, &mut nic), Err(Full));
}

/// Otherwise the sum, which the sender can choose by its payload, would become an address that isn't ours.
#[test]
fn a_checksum_is_not_written_over_addresses() {
    let payload = payload(100);
    for case in cases() {
        for tx_checksum in [false, true] {
            let source_address = if case.addresses[0].is_ipv4() { 12 } else { 8 };
            let over_address = (ethernet::LEN, source_address);
            let over_mac = (0, 6);
            for (transport, offset) in [over_address, over_mac] {
                let (mut link, counters) = link(tx_checksum, 0);
                let mut nic = nic(100);
                let mut packet = case.packet(&payload, 0);
                packet.network_bytes = 0;
                packet.transport_bytes = (packet.headers().len() - transport) as u8;
                packet.checksum_offset = Some(offset);
                assert_eq!(link.send(Instant::ZERO, &mut packet, &mut nic), Ok(()));
                assert!(nic.sent.is_empty(), "{case:?}");
                assert_eq!(counters.get(Counter::LinkDropMalformed), 1);
            }
        }
    }
}

#[test]
fn frames_from_others_and_frames_too_large_do_not_leave() {
    let case = Case {
        segment_bytes: 0,
        ..cases()[4]
    };
    let six = Case {
        addresses: V6,
        ..case
    };
    let foreign = |case: Case, address: &str| Case {
        addresses: [address.parse().expect("an address"), case.addresses[1]],
        ..case
    };
    let spoofed = Counter::LinkDropSpoofed;
    let oversize = Counter::LinkDropOversize;
    let large = Case {
        segment_bytes: 1461,
        ..case
    };
    for (case, mac, len, dropped) in [
        (case, MAC, 1460, None),
        (case, MAC, 1461, Some(oversize)),
        (large, MAC, 1461, Some(oversize)),
        (large, MAC, 3000, Some(oversize)),
        (six, MAC, 1440, None),
        (six, MAC, 1441, Some(oversize)),
        (case, PEER, 10, Some(spoofed)),
        (foreign(case, "192.0.2.3"), MAC, 10, Some(spoofed)),
        (foreign(case, "0.0.0.0"), MAC, 10, None),
        (foreign(six, "2001:db8::3"), MAC, 10, Some(spoofed)),
        (foreign(six, "::"), MAC, 10, None),
    ] {
        let (mut link, counters) = link(false, 0);
        let mut nic = nic(10);
        let payload = payload(len);
        let mut packet = case.packet(&payload, 0);
        packet.headers_mut()[6..12].copy_from_slice(&mac.0);
        assert_eq!(link.send(Instant::ZERO, &mut packet, &mut nic), Ok(()));
        let sent = usize::from(dropped.is_none());
        assert_eq!(nic.sent.len(), sent, "{case:?} {mac} {len}");
        for counter in [spoofed, oversize, Counter::LinkDropMalformed] {
            let expected = u64::from(dropped == Some(counter));
            assert_eq!(counters.get(counter), expected, "{case:?} {mac} {len}");
        }
    }
}

#[test]
fn arp_speaks_for_ourselves_only() {
    for (sender_mac, sender, addresses, passes) in [
        (MAC, [192, 0, 2, 1], true, true),
        (MAC, [0, 0, 0, 0], true, true),
        (MAC, [192, 0, 2, 9], true, false),
        (MAC, [192, 0, 2, 9], false, true),
        (PEER, [192, 0, 2, 1], true, false),
        (PEER, [192, 0, 2, 1], false, false),
    ] {
        let (mut link, _) = link(true, 0);
        if !addresses {
            link.set_addresses(None);
        }
        let message = arp::Packet {
            operation: arp::Operation::Request,
            sender_mac,
            sender_ip: sender.into(),
            target_mac: MacAddr::UNSPECIFIED,
            target_ip: [192, 0, 2, 2].into(),
        };
        let mut packet = TxPacket::new([Bytes::EMPTY; 2]);
        let written = message.emit(packet.prepend(arp::LEN));
        assert_eq!(written, arp::LEN);
        let header = ethernet::Header {
            destination: MacAddr::BROADCAST,
            source: MAC,
            ethertype: ethernet::ARP,
        };
        packet.prepend(14).copy_from_slice(&header.to_bytes());
        let mut nic = nic(1);
        assert_eq!(link.send(Instant::ZERO, &mut packet, &mut nic), Ok(()));
        assert_eq!(nic.sent.len(), usize::from(passes));
    }
}

#[test]
fn headers_that_contradict_themselves_do_not_leave_or_panic() {
    let case = cases()[7];
    let payload = payload(5_000);
    for seed in 0..3_000u32 {
        let (mut link, _) = link(seed % 2 == 0, if seed % 3 == 0 { 4_000 } else { 0 });
        link.set_addresses(None);
        let mut random = seed.wrapping_mul(0x9e37_79b9) | 1;
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 17;
            random ^= random << 5;
            random
        };
        let len = next() as usize % payload.len();
        let mut packet = case.packet(&payload[..len], 0);
        match next() % 5 {
            0 => packet.strip(next() as usize % 100),
            1 => packet.network_bytes = next() as u8,
            2 => packet.transport_bytes = next() as u8,
            3 => packet.checksum_offset = Some(next() as u8),
            _ => packet.segment_bytes = next() as u16 % 2_000,
        }
        let headers = packet.headers_mut();
        for _ in 0..next() % 4 {
            if let Some(byte) = headers.get_mut(12 + next() as usize % 60) {
                *byte = next() as u8;
            }
        }
        let mut nic = nic(10_000);
        assert_eq!(link.send(Instant::ZERO, &mut packet, &mut nic), Ok(()));
        for sent in &nic.sent {
            let limit = if sent.segment_bytes != 0 { 4_000 } else { MTU };
            assert!(sent.bytes.len() <= 14 + limit as usize);
        }
    }
}

#[test]
fn frames_for_us_and_for_groups_are_received() {
    for (destination, len, ours, dropped) in [
        (MAC, 60, true, None),
        (MacAddr::BROADCAST, 60, true, None),
        (MacAddr([0x33, 0x33, 0, 0, 0, 1]), 60, true, None),
        (PEER, 60, false, Some(Counter::LinkDropForeign)),
        (MAC, 14, true, None),
        (MAC, 13, false, Some(Counter::LinkDropShort)),
        (MAC, 0, false, Some(Counter::LinkDropShort)),
    ] {
        let (link, counters) = link(true, 0);
        let mut bytes = [0; 60];
        bytes[..6].copy_from_slice(&destination.0);
        let frame = RxFrame {
            arrived: Instant::ZERO,
            bytes: &bytes[..len],
            checksum: RxChecksum::Unverified,
            segment_bytes: 0,
        };
        assert_eq!(link.receive(&frame), ours);
        assert_eq!(counters.get(Counter::LinkFramesIn), 1);
        assert_eq!(counters.get(Counter::LinkBytesIn), len as u64);
        for counter in [Counter::LinkDropForeign, Counter::LinkDropShort] {
            assert_eq!(counters.get(counter), u64::from(dropped == Some(counter)));
        }
    }
}
