use super::*;
use crate::test_support::{PEER, Random, US, end, flags, tcp, udp};
use skink_wire::{FourTuple, icmpv4, icmpv6};
use std::net::{Ipv4Addr, Ipv6Addr};

const V4: (&str, &str) = (PEER, US);
const V6: (&str, &str) = ("[2001:db8::9]:4000", "[2001:db8::1]:80");

fn ends((source, destination): (&str, &str)) -> FourTuple {
    FourTuple::new(end(source), end(destination))
}

/// An IPv4 packet whose fragment field is `(offset, more)`.
fn v4(number: u8, fragment: (u16, bool), transport: &[u8]) -> Vec<u8> {
    let tuple = ends(V4);
    let (IpAddr::V4(source), IpAddr::V4(destination)) = (tuple.local.addr, tuple.remote.addr)
    else {
        unreachable!("both are IPv4");
    };
    let header = ipv4::Header {
        dscp_ecn: 0,
        total_len: (ipv4::LEN + transport.len()) as u16,
        identification: 1,
        dont_fragment: false,
        more_fragments: fragment.1,
        fragment_offset: fragment.0,
        ttl: 64,
        protocol: number,
        source,
        destination,
        header_len: 20,
    };
    [&header.to_bytes(), transport].concat()
}

fn v6(next_header: u8, payload: &[u8]) -> Vec<u8> {
    let tuple = ends(V6);
    let (IpAddr::V6(source), IpAddr::V6(destination)) = (tuple.local.addr, tuple.remote.addr)
    else {
        unreachable!("both are IPv6");
    };
    let header = ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        payload_len: payload.len() as u16,
        next_header,
        hop_limit: 64,
        source,
        destination,
    };
    [&header.to_bytes(), payload].concat()
}

fn segment(payload: usize) -> Vec<u8> {
    let mut segment = vec![0; 24 + payload];
    segment[0..2].copy_from_slice(&4000u16.to_be_bytes());
    segment[2..4].copy_from_slice(&80u16.to_be_bytes());
    segment[4..8].copy_from_slice(&1000u32.to_be_bytes());
    segment[8..12].copy_from_slice(&2001u32.to_be_bytes());
    segment[12..14].copy_from_slice(&(0x6000 | flags("PA").bits()).to_be_bytes());
    segment[14..16].copy_from_slice(&77u16.to_be_bytes());
    segment
}

fn datagram() -> [u8; 10] {
    [0x0f, 0xa0, 0, 80, 0, 10, 0, 0, 1, 2]
}

#[test]
fn segments_and_datagrams_are_read() {
    let mut padded = v4(protocol::TCP, (0, false), &segment(5));
    padded.extend([0; 9]);
    for (packet, (source, destination), length) in [
        (padded, V4, 49),
        (v6(protocol::TCP, &segment(5)), V6, 69),
        // Hop-by-hop options and an atomic fragment before it.
        (
            v6(
                protocol::HOP_BY_HOP,
                &[
                    &[protocol::FRAGMENT, 0, 1, 4, 0, 0, 0, 0][..],
                    &[protocol::TCP, 0, 0, 0, 0, 0, 0, 1],
                    &segment(5),
                ]
                .concat(),
            ),
            V6,
            85,
        ),
    ] {
        let expected = Summary {
            length,
            payload_length: 5,
            window: 77,
            seq: 1000,
            ack: 2001,
            ..tcp(source, destination, "PA")
        };
        assert_eq!(Summary::parse(&packet), Ok(expected));
    }
    let expected = Summary {
        length: 30,
        ..udp(V4.0, V4.1)
    };
    let packet = v4(protocol::UDP, (0, false), &datagram());
    assert_eq!(Summary::parse(&packet), Ok(expected));
}

#[test]
fn pieces_are_told_apart() {
    let fragment = |offset: u16, more: bool| {
        let field = (offset | u16::from(more)).to_be_bytes();
        let header = [protocol::UDP, 0, field[0], field[1], 0, 0, 0, 1];
        [&header[..], &datagram()].concat()
    };
    for (packet, piece, port) in [
        (v4(protocol::UDP, (0, true), &datagram()), Piece::First, 80),
        (v4(protocol::UDP, (8, true), &datagram()), Piece::Later, 0),
        (v4(protocol::UDP, (8, false), &[1, 2, 3]), Piece::Later, 0),
        (v6(protocol::FRAGMENT, &fragment(0, true)), Piece::First, 80),
        (
            v6(protocol::FRAGMENT, &fragment(16, false)),
            Piece::Later,
            0,
        ),
    ] {
        let summary = Summary::parse(&packet).expect("a good packet");
        assert_eq!((summary.piece, summary.destination_port), (piece, port));
        assert_eq!(summary.protocol, protocol::UDP);
    }
    // What follows the header of a later piece is data, though it looks like an extension header.
    let data = [
        protocol::DESTINATION_OPTIONS,
        0,
        0,
        16,
        0,
        0,
        0,
        1,
        6,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
    ];
    let summary = Summary::parse(&v6(protocol::FRAGMENT, &data)).expect("a good packet");
    assert_eq!(
        (summary.piece, summary.protocol),
        (Piece::Later, protocol::DESTINATION_OPTIONS)
    );
}

#[test]
fn what_an_icmp_error_quotes_is_read() {
    let quoted = v4(protocol::TCP, (0, false), &segment(0));
    let message = icmpv4::Message::DestinationUnreachable {
        code: 3,
        next_hop_mtu: 0,
        quoted: &quoted[..28],
    };
    let mut bytes = [0; 100];
    let len = message.emit(&mut bytes);
    let summary = Summary::parse(&v4(protocol::ICMP, (0, false), &bytes[..len]));
    let summary = summary.expect("a good packet");
    let about = summary.quoted().expect("a packet inside");
    assert_eq!((summary.icmp_type, summary.icmp_code), (3, 3));
    let tuple = ends(V4);
    assert_eq!(
        (about.source, about.destination),
        (number(tuple.local.addr), number(tuple.remote.addr))
    );
    assert_eq!((about.source_port, about.destination_port), (4000, 80));
    assert_eq!(about.protocol, protocol::TCP);

    let quoted = v6(protocol::UDP, &datagram());
    let message = icmpv6::Message::PacketTooBig {
        mtu: 1280,
        quoted: &quoted,
    };
    let len = message.emit(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST, &mut bytes);
    let summary = Summary::parse(&v6(protocol::ICMPV6, &bytes[..len])).expect("a good packet");
    let about = summary.quoted().expect("a packet inside");
    assert_eq!((about.source_port, about.protocol), (4000, protocol::UDP));

    // What can't be read is an error about nothing.
    let message = icmpv4::Message::TimeExceeded {
        code: 0,
        quoted: &[0x45; 27],
    };
    let len = message.emit(&mut bytes);
    let summary = Summary::parse(&v4(protocol::ICMP, (0, false), &bytes[..len]));
    assert_eq!(summary.map(|summary| summary.quoted()), Ok(None));
}

#[test]
fn echo_has_an_identifier() {
    let packet = v4(protocol::ICMP, (0, false), &[8, 0, 0, 0, 0x12, 0x34, 0, 1]);
    let summary = Summary::parse(&packet).expect("a good packet");
    assert_eq!((summary.icmp_type, summary.source_port), (8, 0x1234));
    // ICMPv6 in an IPv4 packet is none.
    let packet = v4(
        protocol::ICMPV6,
        (0, false),
        &[128, 0, 0, 0, 0x12, 0x34, 0, 1],
    );
    let summary = Summary::parse(&packet).expect("a good packet");
    assert_eq!((summary.icmp_type, summary.source_port), (0, 0));
}

#[test]
fn headers_that_are_cut_short_are_refused() {
    for (packet, reason) in [
        (vec![], Malformed::TooShort),
        (vec![0x50; 40], Malformed::BadVersion),
        (vec![0x45; 19], Malformed::TooShort),
        (
            v4(protocol::TCP, (0, false), &segment(0)[..19]),
            Malformed::TooShort,
        ),
        // A first fragment that hides the flags in the second (RFC 1858).
        (
            v4(protocol::TCP, (0, true), &segment(0)[..8]),
            Malformed::TooShort,
        ),
        (v4(protocol::UDP, (0, false), &[0; 7]), Malformed::TooShort),
        (v4(protocol::ICMP, (0, false), &[8; 7]), Malformed::TooShort),
        (v6(protocol::FRAGMENT, &[0; 7]), Malformed::TooShort),
        (v6(protocol::ROUTING, &[0; 1]), Malformed::BadExtension),
        (v6(protocol::HOP_BY_HOP, &[0; 800]), Malformed::BadExtension),
    ] {
        assert_eq!(Summary::parse(&packet), Err(reason), "{packet:?}");
    }
}

#[test]
fn a_packet_on_its_way_down_is_read_like_one_on_its_way_up() {
    let payload = [7; 100];
    let (first, second) = payload.split_at(60);
    let mut packet = TxPacket::new([first.into(), second.into()]);
    let header = &segment(0)[..24];
    packet.prepend(24).copy_from_slice(header);
    let tuple = ends(V4);
    let to = Outbound {
        source: tuple.local.addr,
        destination: tuple.remote.addr,
        protocol: protocol::TCP,
        hop_limit: None,
        traffic_class: 0,
        dont_fragment: true,
    };
    let expected = Summary {
        length: 144,
        payload_length: 100,
        window: 77,
        seq: 1000,
        ack: 2001,
        ..tcp(V4.0, V4.1, "PA")
    };
    assert_eq!(Summary::of_outbound(&to, &packet), Ok(expected));
    let mut whole = header.to_vec();
    whole.extend(payload);
    let whole = v4(protocol::TCP, (0, false), &whole);
    packet.prepend(ipv4::LEN).copy_from_slice(&whole[..20]);
    packet.prepend(14);
    assert_eq!(Summary::of_frame(&packet, 14), Ok(expected));

    // A message of ICMP that is all payload.
    let mut packet = TxPacket::new([(&[8, 0, 0, 0, 9, 9, 0, 0][..]).into(), (&[][..]).into()]);
    let whole = v4(protocol::ICMP, (0, false), &[0; 8]);
    packet.prepend(ipv4::LEN).copy_from_slice(&whole[..20]);
    let summary = Summary::of_frame(&packet, 0).expect("a good packet");
    assert_eq!(
        (summary.icmp_type, summary.source_port, summary.length),
        (8, 0x909, 28)
    );
}

#[test]
fn no_packet_makes_the_reader_panic() {
    let samples = [
        v4(protocol::TCP, (0, false), &segment(3)),
        v4(
            protocol::ICMP,
            (0, false),
            &[&[3; 8][..], &v4(protocol::UDP, (0, false), &datagram())].concat(),
        ),
        v6(
            protocol::HOP_BY_HOP,
            &[
                &[44, 0, 1, 4, 0, 0, 0, 0][..],
                &[58, 0, 0, 1, 0, 0, 0, 0],
                &[1; 80],
            ]
            .concat(),
        ),
        v6(
            protocol::ICMPV6,
            &[&[2; 8][..], &v6(protocol::ROUTING, &[0; 30])].concat(),
        ),
    ];
    for seed in 0..20_000 {
        let mut random = Random::new(seed);
        let mut packet = samples[random.below(samples.len())].clone();
        for _ in 0..random.below(6) {
            let at = random.below(packet.len());
            packet[at] = random.next() as u8;
        }
        packet.truncate(random.below(packet.len() + 1));
        if let Ok(summary) = Summary::parse(&packet) {
            assert!(summary.length as usize <= packet.len(), "seed {seed}");
        }
    }
}

#[test]
fn addresses_are_numbers_and_back() {
    for text in [
        "0.0.0.0",
        "255.1.2.3",
        "::",
        "::ffff:1.2.3.4",
        "2001:db8::1",
    ] {
        let value: IpAddr = text.parse().expect("an address");
        assert_eq!(address(Family::of(value), number(value)), value);
    }
    assert_eq!(number(Ipv4Addr::new(1, 2, 3, 4).into()), 0xffff_0102_0304);
}
