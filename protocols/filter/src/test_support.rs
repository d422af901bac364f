//! What the tests share: packets by a word or two, and random numbers from a seed.

use crate::filter::{Filter, FilterConfig};
use crate::rules::RuleSet;
use crate::summary::{Piece, Summary};
use crate::verdict::{Direction, Verdict};
use skink_messages::Counters;
use skink_time::Instant;
use skink_wire::tcp::Flags;
use skink_wire::{Endpoint, protocol};
use std::net::SocketAddr;

pub(crate) const US: &str = "10.0.0.1:80";
pub(crate) const PEER: &str = "192.0.2.9:4000";

/// xorshift64* (Marsaglia, Vigna): enough to choose test cases.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub(crate) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}

pub(crate) fn end(text: &str) -> Endpoint {
    text.parse::<SocketAddr>().expect("an endpoint").into()
}

pub(crate) fn at(seconds: u64) -> Instant {
    Instant::from_millis(seconds * 1_000)
}

fn transport(number: u8, source: &str, destination: &str, header: &[u8]) -> Summary {
    let (source, destination) = (end(source), end(destination));
    Summary::of_transport(source.addr, destination.addr, number, header, header.len())
        .expect("a whole header")
}

/// The letters are those of pf.
pub(crate) fn flags(letters: &str) -> Flags {
    let known = [
        ('F', Flags::FIN),
        ('S', Flags::SYN),
        ('R', Flags::RST),
        ('P', Flags::PSH),
        ('A', Flags::ACK),
    ];
    letters.chars().fold(Flags::EMPTY, |flags, letter| {
        let found = known.iter().find(|(name, _)| *name == letter);
        flags | found.expect("a flag").1
    })
}

/// A segment of a connection in which both initial sequence numbers are 1000, and no data was sent.
pub(crate) fn tcp(source: &str, destination: &str, letters: &str) -> Summary {
    let seq: u32 = if letters.contains('S') { 1000 } else { 1001 };
    let mut header = [0; 20];
    header[0..2].copy_from_slice(&end(source).port.to_be_bytes());
    header[2..4].copy_from_slice(&end(destination).port.to_be_bytes());
    header[4..8].copy_from_slice(&seq.to_be_bytes());
    header[8..12].copy_from_slice(&1001u32.to_be_bytes());
    let bits = 0x5000 | flags(letters).bits();
    header[12..14].copy_from_slice(&bits.to_be_bytes());
    transport(protocol::TCP, source, destination, &header)
}

pub(crate) fn udp(source: &str, destination: &str) -> Summary {
    let mut header = [0; 8];
    header[0..2].copy_from_slice(&end(source).port.to_be_bytes());
    header[2..4].copy_from_slice(&end(destination).port.to_be_bytes());
    header[5] = 8;
    transport(protocol::UDP, source, destination, &header)
}

/// An ICMP message between the addresses of two endpoints.
pub(crate) fn icmp(source: &str, destination: &str, kind: u8, ident: u16) -> Summary {
    let [high, low] = ident.to_be_bytes();
    let number = if end(source).addr.is_ipv4() {
        protocol::ICMP
    } else {
        protocol::ICMPV6
    };
    let header = [kind, 0, 0, 0, high, low, 0, 1];
    transport(number, source, destination, &header)
}

/// An ICMP error from `source` about a packet.
pub(crate) fn icmp_error(source: &str, destination: &str, quoted: &Summary) -> Summary {
    Summary {
        quoted_source: quoted.source,
        quoted_destination: quoted.destination,
        quoted_source_port: quoted.source_port,
        quoted_destination_port: quoted.destination_port,
        quoted_protocol: quoted.protocol,
        quoted_icmp_type: quoted.icmp_type,
        ..icmp(source, destination, 3, 0)
    }
}

/// A later fragment of the packet.
pub(crate) fn later(packet: Summary) -> Summary {
    Summary {
        piece: Piece::Later,
        source_port: 0,
        destination_port: 0,
        tcp_flags: 0,
        ..packet
    }
}

pub(crate) fn rules(text: &str) -> RuleSet {
    RuleSet::parse(text).unwrap_or_else(|errors| panic!("{}", errors[0]))
}

pub(crate) fn filter(text: &str) -> Filter {
    filter_of(text, 1_000)
}

pub(crate) fn filter_of(text: &str, capacity: u32) -> Filter {
    let config = FilterConfig {
        capacity,
        ..FilterConfig::new("eth0", 7)
    };
    let mut filter = Filter::new(config, Counters::create().expect("a small mapping"));
    filter.load(rules(text));
    filter
}

/// Whether a packet passes at a time.
pub(crate) fn passes(
    filter: &mut Filter,
    seconds: u64,
    direction: Direction,
    packet: &Summary,
) -> bool {
    filter.check(at(seconds), direction, packet) == Verdict::Pass
}
