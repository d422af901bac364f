//! Every parser against random bytes and against valid packets that were cut and changed: none
//! panics, and what they return lies within what they were given.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use crate::ChecksumPolicy::{Trust, Verify};
use crate::*;

const V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// So many cases from a fixed seed, so that every run is the same.
pub(crate) fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(0x5eed),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

fn assert_within(part: &[u8], whole: &[u8]) {
    let (part, whole) = (part.as_ptr_range(), whole.as_ptr_range());
    assert!(whole.start <= part.start && part.end <= whole.end);
}

/// Feeds `bytes` to every parser, and returns how many took them.
fn parse_all(bytes: &[u8]) -> usize {
    let mut taken = 0;
    let mut check = |part: Option<&[u8]>| {
        if let Some(part) = part {
            assert_within(part, bytes);
            taken += 1;
        }
    };
    check(ethernet::Header::parse(bytes).ok().map(|(_, rest)| rest));
    check(arp::Packet::parse(bytes).ok().map(|_| bytes));
    check(ipv4::Header::parse_quoted(bytes).ok().map(|(_, rest)| rest));
    check(ipv6::Header::parse(bytes).ok().map(|(_, rest)| rest));
    check(ipv6::Header::parse_quoted(bytes).ok().map(|(_, rest)| rest));
    check(
        ipv6::FragmentHeader::parse(bytes)
            .ok()
            .map(|(_, rest)| rest),
    );
    check(udp::Header::parse(bytes).ok().map(|(_, rest)| rest));
    check(tcp::parse(bytes).ok().map(|(_, _, rest)| rest));
    for policy in [Trust, Verify] {
        check(
            ipv4::Header::parse(bytes, policy)
                .ok()
                .map(|(_, rest)| rest),
        );
        check(icmpv4::Message::parse(bytes, policy).ok().map(body_v4));
        let message = icmpv6::Message::parse(V6, V6, bytes, policy).ok();
        check(message.map(|message| body_v6(message).unwrap_or(bytes)));
    }
    for protocol in [0, 43, 44, 60, bytes.first().copied().unwrap_or(0)] {
        for walk in [ipv6::walk, ipv6::walk_reassembled] {
            // Slicing panics where the offset is beyond the end.
            check(
                walk(protocol, bytes)
                    .ok()
                    .map(|upper| &bytes[upper.offset..]),
            );
        }
    }
    let _ = udp::checksum_is_valid(IpAddr::V4(V4), IpAddr::V4(V4), bytes);
    let _ = tcp::checksum_is_valid(IpAddr::V6(V6), IpAddr::V4(V4), bytes);
    taken
}

fn body_v4(message: icmpv4::Message<'_>) -> &[u8] {
    use icmpv4::Message as M;
    match message {
        M::EchoRequest { data: body, .. }
        | M::EchoReply { data: body, .. }
        | M::DestinationUnreachable { quoted: body, .. }
        | M::TimeExceeded { quoted: body, .. }
        | M::ParameterProblem { quoted: body, .. }
        | M::Unknown { body, .. } => body,
    }
}

fn body_v6(message: icmpv6::Message<'_>) -> Option<&[u8]> {
    use icmpv6::Message as M;
    match message {
        M::EchoRequest { data: body, .. }
        | M::EchoReply { data: body, .. }
        | M::DestinationUnreachable { quoted: body, .. }
        | M::PacketTooBig { quoted: body, .. }
        | M::TimeExceeded { quoted: body, .. }
        | M::ParameterProblem { quoted: body, .. }
        | M::Unknown { body, .. } => Some(body),
        M::RouterSolicitation(_)
        | M::RouterAdvertisement(_)
        | M::NeighbourSolicitation(_)
        | M::NeighbourAdvertisement(_) => None,
    }
}

/// A valid packet of every format, made by the emitters.
fn valid_packets() -> Vec<Vec<u8>> {
    let mac = MacAddr([2, 0, 0, 0, 0, 1]);
    let mut packets = Vec::new();
    let mut add = |len: usize, out: &[u8]| packets.push(out[..len].to_vec());
    let mut out = [0; 128];
    let arp = arp::Packet {
        operation: arp::Operation::Reply,
        sender_mac: mac,
        sender_ip: V4,
        target_mac: mac,
        target_ip: V4,
    };
    add(arp.emit(&mut out), &out);
    let ipv4 = ipv4::Header {
        dscp_ecn: 0,
        total_len: 60,
        identification: 1,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        ttl: 64,
        protocol: 6,
        source: V4,
        destination: V4,
        header_len: 20,
    };
    add(ipv4.emit(&mut out) + 40, &out);
    let ipv6 = ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        payload_len: 40,
        next_header: 6,
        hop_limit: 64,
        source: V6,
        destination: V6,
    };
    add(ipv6.emit(&mut out) + 40, &out);
    let mut sack = tcp::SackBlocks::EMPTY;
    sack.push(SeqNum(1), SeqNum(2));
    let options = tcp::Options {
        mss: Some(1460),
        sack,
        ..tcp::Options::only_timestamps(1, 2)
    };
    let tcp = tcp::Header {
        source_port: 1,
        destination_port: 2,
        seq: SeqNum(3),
        ack: SeqNum(4),
        flags: tcp::Flags::ACK,
        window: 5,
        urgent: 0,
        header_len: 0,
    };
    add(tcp::emit(&tcp, &options, &mut out) + 9, &out);
    if let Some(udp) = udp::Header::new(1, 2, 30) {
        add(udp.emit(&mut out) + 30, &out);
    }
    let echo = icmpv4::Message::EchoRequest {
        ident: 1,
        seq: 2,
        data: b"data",
    };
    add(echo.emit(&mut out), &out);
    let mut prefixes = icmpv6::Prefixes::default();
    prefixes.push(icmpv6::PrefixInformation {
        prefix: V6,
        prefix_len: 64,
        on_link: true,
        autonomous: true,
        valid_secs: 1,
        preferred_secs: 1,
    });
    let advertisement = icmpv6::RouterAdvertisement {
        hop_limit: 64,
        managed: false,
        other: false,
        lifetime_secs: 1,
        reachable_ms: 1,
        retransmit_ms: 1,
        source_link_layer: Some(mac),
        mtu: Some(1500),
        prefixes,
    };
    let solicitation = icmpv6::NeighbourSolicitation {
        target: V6,
        source_link_layer: Some(mac),
    };
    for message in [
        icmpv6::Message::RouterAdvertisement(advertisement),
        icmpv6::Message::NeighbourSolicitation(solicitation),
    ] {
        add(message.emit(V6, V6, &mut out), &out);
    }
    packets.push(vec![
        60, 0, 1, 4, 0, 0, 0, 0, 44, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 1, 0, 0, 0, 0,
    ]);
    packets
}

#[test]
fn valid_packets_are_taken() {
    for packet in valid_packets() {
        // The Ethernet parser takes anything, so one alone would mean nothing.
        assert!(parse_all(&packet) > 1, "{packet:?}");
    }
}

#[test]
fn every_truncation_of_valid_packets() {
    for packet in valid_packets() {
        for len in 0..packet.len() {
            parse_all(&packet[..len]);
        }
    }
}

#[test]
fn every_value_of_every_byte_of_valid_packets() {
    for packet in valid_packets() {
        for at in 0..packet.len() {
            let mut packet = packet.clone();
            for value in 0..=255 {
                packet[at] = value;
                parse_all(&packet);
            }
        }
    }
}

proptest! {
    #![proptest_config(config(4000))]

    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        parse_all(&bytes);
    }

    #[test]
    fn mutated_packets(
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        keep in any::<prop::sample::Index>(),
        tail in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let packets = valid_packets();
        let mut packet = which.get(&packets).clone();
        packet.truncate(keep.index(packet.len()) + 1);
        packet.extend(tail);
        for (at, value) in changes {
            let at = at.index(packet.len());
            packet[at] = value;
        }
        parse_all(&packet);
    }
}
