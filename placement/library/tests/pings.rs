//! Pings in one frame and in several, to a stack with rules.

use skink_filter::RuleSet;
use skink_library::{Stack, StackConfig};
use skink_memory::{Bytes, TableConfig};
use skink_messages::{Counters, SoleOwner, TxPacket};
use skink_nic::{Budget, MemoryConfig};
use skink_time::Instant;
use skink_wire::arp::{Operation, Packet};
use skink_wire::icmpv6::{self, NeighbourSolicitation};
use skink_wire::{MacAddr, ethernet, icmpv4, ipv4, ipv6, protocol};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

const OURS: (Ipv4Addr, Ipv6Addr) = (
    Ipv4Addr::new(192, 0, 2, 1),
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
);
const PEERS: (Ipv4Addr, Ipv6Addr) = (
    Ipv4Addr::new(192, 0, 2, 2),
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2),
);
const PEERS_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);
/// What of a message is in one frame.
const PIECE: usize = 1400;

fn frame(destination: MacAddr, ethertype: u16, parts: &[&[u8]]) -> Vec<u8> {
    let header = ethernet::Header {
        destination,
        source: PEERS_MAC,
        ethertype,
    };
    [&header.to_bytes(), &*parts.concat()].concat()
}

fn v6_header(next_header: u8, length: usize, hop_limit: u8) -> [u8; ipv6::LEN] {
    let header = ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        payload_len: length as u16,
        next_header,
        hop_limit,
        source: PEERS.1,
        destination: OURS.1,
    };
    header.to_bytes()
}

/// The peer asks who has our address, and is known then.
fn question(to: MacAddr, is_v4: bool) -> Vec<u8> {
    let mut bytes = [0; 64];
    if is_v4 {
        let question = Packet {
            operation: Operation::Request,
            sender_mac: PEERS_MAC,
            sender_ip: PEERS.0,
            target_mac: MacAddr::UNSPECIFIED,
            target_ip: OURS.0,
        };
        let length = question.emit(&mut bytes);
        return frame(to, ethernet::ARP, &[&bytes[..length]]);
    }
    let question = icmpv6::Message::NeighbourSolicitation(NeighbourSolicitation {
        target: OURS.1,
        source_link_layer: Some(PEERS_MAC),
    });
    let length = question.emit(PEERS.1, OURS.1, &mut bytes);
    let header = v6_header(protocol::ICMPV6, length, 255);
    frame(to, ethernet::IPV6, &[&header, &bytes[..length]])
}

/// A ping with so much data.
fn ping(to: MacAddr, is_v4: bool, bytes: usize) -> Vec<Vec<u8>> {
    let (ident, seq, data) = (7, 1, &*vec![7; bytes]);
    let mut message = vec![0; icmpv4::LEN + bytes];
    let length = match is_v4 {
        true => icmpv4::Message::EchoRequest { ident, seq, data }.emit(&mut message),
        false => {
            icmpv6::Message::EchoRequest { ident, seq, data }.emit(PEERS.1, OURS.1, &mut message)
        }
    };
    let piece = |(index, piece): (usize, &[u8])| {
        let offset = index * PIECE;
        let more = offset + piece.len() < length;
        if is_v4 {
            let header = ipv4::Header {
                dscp_ecn: 0,
                total_len: (ipv4::LEN + piece.len()) as u16,
                identification: 5,
                dont_fragment: false,
                more_fragments: more,
                fragment_offset: offset as u16,
                ttl: 64,
                protocol: protocol::ICMP,
                source: PEERS.0,
                destination: OURS.0,
                header_len: 20,
            };
            return frame(to, ethernet::IPV4, &[&header.to_bytes(), piece]);
        }
        let fragment = ipv6::FragmentHeader {
            next_header: protocol::ICMPV6,
            offset: offset as u16,
            more,
            identification: 5,
        };
        let mut extension = [0; ipv6::FRAGMENT_LEN];
        let behind = fragment.emit(&mut extension) + piece.len();
        let header = v6_header(protocol::FRAGMENT, behind, 64);
        frame(to, ethernet::IPV6, &[&header, &extension, piece])
    };
    message[..length]
        .chunks(PIECE)
        .enumerate()
        .map(piece)
        .collect()
}

/// How many frames the answer to a ping has.
fn answer(rules: &str, is_v4: bool, bytes: usize) -> usize {
    let (nic, mut peer) = skink_nic::pair(MemoryConfig::default()).expect("a link");
    let to = nic.capabilities.mac;
    let table = TableConfig {
        sockets: 1,
        send_bytes: 4096,
        receive_bytes: 4096,
    };
    let addresses = ["192.0.2.1/24", "2001:db8::1/64"];
    let config = StackConfig {
        addresses: addresses
            .map(|text| text.parse().expect("an address"))
            .into(),
        gateways: Vec::new(),
        seed: 1,
        answers: true,
        tcp_table: table,
        udp_table: table,
        socket_memory: u64::MAX,
        counters: Counters::create().expect("memory"),
    };
    let mut stack = Stack::new(config, nic, Box::new(SoleOwner)).expect("memory");
    let mut now = Instant::from_millis(1000);
    let mut give = |stack: &mut Stack, frames: &[Vec<u8>]| {
        for frame in frames {
            let packet = TxPacket::new([Bytes::from(frame.as_slice()), Bytes::EMPTY]);
            peer.sender.send(&packet).expect("room");
        }
        for _ in 0..3 {
            stack.poll(now);
            stack.flush();
            now += Duration::from_millis(1);
        }
        let mut large = 0;
        peer.receiver
            .receive(now, &mut Budget::frames(100), &mut |frame| {
                large += usize::from(frame.bytes.len() > 500);
            });
        large
    };
    give(&mut stack, &[question(to, is_v4)]);
    let rules = RuleSet::parse(rules).expect("good rules");
    stack.set_rules(Instant::from_millis(1000), "eth0", rules);
    give(&mut stack, &ping(to, is_v4, bytes))
}

#[test]
fn a_large_ping_is_judged_as_a_small_one() {
    let echo = |rule: &str, kind: &str| {
        ["", "6"].map(|v| format!("\n{rule} inet{v} proto icmp{v} icmp{v}-type {kind}"))
    };
    // Rules, and the frames of the answers to a ping in one frame and to one in three.
    let table = [
        ("pass all".to_owned(), [1, 3]),
        (
            format!("block all{}", echo("pass in", "echoreq").concat()),
            [1, 3],
        ),
        (
            format!("pass in no state{}", echo("block out", "echorep").concat()),
            [0, 0],
        ),
        ("block in proto { icmp icmp6 }".to_owned(), [0, 0]),
    ];
    for is_v4 in [true, false] {
        for (rules, expected) in &table {
            let frames = [1000, 4000].map(|bytes| answer(rules, is_v4, bytes));
            assert_eq!(frames, *expected, "IPv4: {is_v4}, {rules}");
        }
    }
}
