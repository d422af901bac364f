//! A link that records frames, and the frames of a neighbour.

mod component;
mod fragments;
mod hostile;
mod icmp;
mod mld;
mod receiving;
mod replica;
mod resolving;
mod sending;

use crate::{Ip, IpConfig};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use skink_memory::Bytes;
use skink_messages::{
    Counter, Counters, FrameOutput, Full, LinkLimits, Outbound, RxChecksum, RxFrame, TxPacket,
};
use skink_time::Instant;
use skink_wire::arp::{Operation, Packet};
use skink_wire::icmpv6::{self, NeighbourAdvertisement, solicited_node};
use skink_wire::{IpCidr, MacAddr, arp, ethernet, ipv4, ipv6, protocol};

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const PEER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const OTHER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 3]);
const US4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const US6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const PEER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
/// Not the kernel's, which is fe80::ff:fe00:1.
const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0xe85, 0x6b91, 0x95b5, 0x9d6d);
const MTU: u32 = 1500;
const FAMILIES: [(IpAddr, IpAddr); 2] = [
    (IpAddr::V4(US4), IpAddr::V4(PEER4)),
    (IpAddr::V6(US6), IpAddr::V6(PEER6)),
];

/// A link with room for so many frames.
struct Wire {
    room: usize,
    frames: Vec<Vec<u8>>,
    segment_bytes: Vec<u16>,
}

impl FrameOutput for Wire {
    fn send(&mut self, _now: Instant, packet: &mut TxPacket<'_>) -> Result<(), Full> {
        self.room = self.room.checked_sub(1).ok_or(Full)?;
        let mut bytes = vec![0; packet.len()];
        packet.copy_to(&mut bytes).expect("as long as the packet");
        self.frames.push(bytes);
        self.segment_bytes.push(packet.segment_bytes);
        Ok(())
    }
    fn limits(&self) -> LinkLimits {
        LinkLimits {
            mac: MAC,
            mtu: MTU,
            cut_bytes: 65_535,
            cuts: true,
        }
    }
}

struct Host {
    ip: Ip,
    wire: Wire,
    counters: Counters,
    now: Instant,
}

fn at(ms: u64) -> Instant {
    Instant::from_millis(1_000_000 + ms)
}

impl Host {
    fn with(change: impl FnOnce(&mut IpConfig)) -> Host {
        let counters = Counters::create().expect("memory for counters");
        let cidr = |text: &str| text.parse::<IpCidr>().expect("a network");
        let addresses = vec![cidr("10.0.0.1/24"), cidr("2001:db8::1/64")];
        let mut config = IpConfig::new(MAC, addresses);
        config.seed = 7;
        config.gateways = vec![
            IpAddr::V4(Ipv4Addr::new(10, 0, 0, 254)),
            "fe80::fe".parse().expect("an address"),
        ];
        change(&mut config);
        Host {
            ip: Ip::new(config, counters.clone()),
            wire: Wire {
                room: usize::MAX,
                frames: Vec::new(),
                segment_bytes: Vec::new(),
            },
            counters,
            now: at(0),
        }
    }

    fn new() -> Host {
        Host::with(|_| {})
    }

    /// A host that knows its peer.
    fn acquainted() -> Host {
        let mut host = Host::new();
        for (us, peer) in FAMILIES {
            host.send(us, peer, b"12345678", false).expect("room");
            host.answer(peer, PEER_MAC);
        }
        host.wire.frames.clear();
        host.wire.segment_bytes.clear();
        host
    }

    fn count(&self, counter: Counter) -> u64 {
        self.counters.get(counter)
    }

    fn poll(&mut self, ms: u64) {
        self.now = at(ms);
        self.ip.poll(self.now, &mut self.wire);
    }

    fn receive(&mut self, bytes: &[u8]) -> Option<(u8, Vec<u8>)> {
        self.receive_as(bytes, RxChecksum::Unverified)
    }

    fn receive_as(&mut self, bytes: &[u8], checksum: RxChecksum) -> Option<(u8, Vec<u8>)> {
        let frame = RxFrame {
            arrived: self.now,
            bytes,
            checksum,
            segment_bytes: 0,
        };
        let taken = self.ip.receive(self.now, &frame, &mut self.wire);
        taken.map(|(protocol, packet)| (protocol, packet.payload.to_vec()))
    }

    /// Sends `payload` as UDP.
    fn send(
        &mut self,
        source: IpAddr,
        destination: IpAddr,
        payload: &[u8],
        dont_fragment: bool,
    ) -> Result<(), Full> {
        let to = outbound(source, destination, dont_fragment);
        let mut packet = TxPacket::new([Bytes::from(payload), Bytes::EMPTY]);
        self.ip.send(self.now, &to, &mut packet, &mut self.wire)
    }

    /// The neighbour at `mac` tells that it has `address`.
    fn answer(&mut self, address: IpAddr, mac: MacAddr) {
        let frame = match address {
            IpAddr::V4(address) => arp_frame(Operation::Reply, mac, address, US4, MAC),
            IpAddr::V6(address) => {
                let solicited = NeighbourAdvertisement {
                    router: false,
                    solicited: true,
                    replace: true,
                    target: address,
                    target_link_layer: Some(mac),
                };
                advertisement(address, US6, &solicited)
            }
        };
        assert!(self.receive(&frame).is_none());
    }

    /// Takes the frames that were sent, without Ethernet headers, those to `mac` only.
    fn sent_to(&mut self, mac: MacAddr) -> Vec<Vec<u8>> {
        let frames = core::mem::take(&mut self.wire.frames);
        frames
            .iter()
            .filter(|frame| frame.get(..6) == Some(&mac.0))
            .map(|frame| frame.get(14..).expect("a header").to_vec())
            .collect()
    }
}

fn outbound(source: IpAddr, destination: IpAddr, dont_fragment: bool) -> Outbound {
    Outbound {
        source,
        destination,
        protocol: protocol::UDP,
        hop_limit: None,
        traffic_class: 0,
        dont_fragment,
    }
}

fn ethernet_frame(destination: MacAddr, ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let header = ethernet::Header {
        destination,
        source: PEER_MAC,
        ethertype,
    };
    [&header.to_bytes(), payload].concat()
}

fn arp_frame(
    operation: Operation,
    sender_mac: MacAddr,
    sender_ip: Ipv4Addr,
    target_ip: Ipv4Addr,
    to: MacAddr,
) -> Vec<u8> {
    let packet = Packet {
        operation,
        sender_mac,
        sender_ip,
        target_mac: MacAddr::UNSPECIFIED,
        target_ip,
    };
    let mut bytes = [0; arp::LEN];
    assert_eq!(packet.emit(&mut bytes), arp::LEN);
    ethernet_frame(to, ethernet::ARP, &bytes)
}

fn v4_header(protocol: u8, payload: usize) -> ipv4::Header {
    ipv4::Header {
        dscp_ecn: 0,
        total_len: u16::try_from(ipv4::LEN + payload).expect("a packet's length"),
        identification: 9,
        dont_fragment: false,
        more_fragments: false,
        fragment_offset: 0,
        ttl: 64,
        protocol,
        source: PEER4,
        destination: US4,
        header_len: 20,
    }
}

fn v6_header(protocol: u8, payload: usize) -> ipv6::Header {
    ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        payload_len: u16::try_from(payload).expect("a packet's length"),
        next_header: protocol,
        hop_limit: 64,
        source: PEER6,
        destination: US6,
    }
}

fn v4_frame(header: &ipv4::Header, payload: &[u8]) -> Vec<u8> {
    let packet = [&header.to_bytes(), payload].concat();
    ethernet_frame(MAC, ethernet::IPV4, &packet)
}

fn v6_frame(header: &ipv6::Header, payload: &[u8]) -> Vec<u8> {
    let packet = [&header.to_bytes(), payload].concat();
    let to = match header.destination.is_multicast() {
        true => MacAddr::multicast_for_ipv6(header.destination),
        false => MAC,
    };
    ethernet_frame(to, ethernet::IPV6, &packet)
}

/// A frame from the peer with `payload`.
fn packet_frame(is_v4: bool, protocol: u8, payload: &[u8]) -> Vec<u8> {
    match is_v4 {
        true => v4_frame(&v4_header(protocol, payload.len()), payload),
        false => v6_frame(&v6_header(protocol, payload.len()), payload),
    }
}

fn icmpv6_frame(source: Ipv6Addr, destination: Ipv6Addr, message: &icmpv6::Message<'_>) -> Vec<u8> {
    let mut bytes = vec![0; 2048];
    let len = message.emit(source, destination, &mut bytes);
    bytes.truncate(len);
    let header = ipv6::Header {
        hop_limit: 255,
        source,
        destination,
        ..v6_header(protocol::ICMPV6, len)
    };
    v6_frame(&header, &bytes)
}

fn advertisement(
    source: Ipv6Addr,
    destination: Ipv6Addr,
    message: &NeighbourAdvertisement,
) -> Vec<u8> {
    let message = icmpv6::Message::NeighbourAdvertisement(*message);
    icmpv6_frame(source, destination, &message)
}

/// The group to which a solicitation for `address` goes on the link.
fn solicited_mac(address: Ipv6Addr) -> MacAddr {
    MacAddr::multicast_for_ipv6(solicited_node(address))
}

/// A pseudorandom sequence (xorshift).
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}
