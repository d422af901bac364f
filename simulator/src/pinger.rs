//! A station without a stack: it pings every host and answers what it is asked for that.

use crate::frame::{self, Frame};
use crate::scenario::{Scenario, address, mac};
use core::net::{IpAddr, Ipv4Addr};
use skink_messages::RxChecksum;
use skink_wire::{ChecksumPolicy, MacAddr, arp, ethernet, icmpv4, ipv4, protocol};
use std::collections::BTreeSet;

const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 200);
const DATA: &[u8] = b"is anybody there?";

/// The station.
pub struct Pinger {
    hosts: usize,
    answered: BTreeSet<(Ipv4Addr, u16)>,
    wrong: Option<String>,
}

impl Pinger {
    /// Its address on the link.
    pub const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 200]);

    /// A pinger of so many hosts.
    pub fn new(hosts: usize) -> Pinger {
        Pinger {
            hosts,
            answered: BTreeSet::new(),
            wrong: None,
        }
    }

    /// Ping `number` to each host.
    pub fn pings(&self, number: u16) -> Vec<Frame> {
        let to_host = |host| match address(host, false) {
            IpAddr::V4(destination) => Some(ping(mac(host), destination, number)),
            IpAddr::V6(_) => None,
        };
        (0..self.hosts).filter_map(to_host).collect()
    }

    /// Takes a frame; answers an ARP request.
    pub fn on_frame(&mut self, bytes: &[u8]) -> Option<Frame> {
        let (header, payload) = ethernet::Header::parse(bytes).ok()?;
        match header.ethertype {
            ethernet::ARP => answer_arp(payload),
            ethernet::IPV4 => {
                let (ip, payload) = ipv4::Header::parse(payload, ChecksumPolicy::Verify).ok()?;
                if ip.destination == ADDRESS && ip.protocol == protocol::ICMP {
                    self.on_answer(ip.source, payload);
                }
                None
            }
            _ => None,
        }
    }

    fn on_answer(&mut self, from: Ipv4Addr, message: &[u8]) {
        match icmpv4::Message::parse(message, ChecksumPolicy::Verify) {
            Ok(icmpv4::Message::EchoReply { ident, seq, data }) if ident == 77 && data == DATA => {
                self.answered.insert((from, seq));
            }
            Ok(other) => self.wrong = Some(format!("{from} answered a ping with {other:?}")),
            // Damaged on the way.
            Err(_) => {}
        }
    }

    /// What is wrong with the answers, if anything.
    pub fn verdict(&self, scenario: &Scenario) -> Option<String> {
        if self.wrong.is_some() {
            return self.wrong.clone();
        }
        let expected = self.hosts * usize::from(scenario.pings);
        // Pings aren't repeated, so they may be lost where anything may.
        let missing = scenario.quiet && self.answered.len() != expected;
        missing.then(|| format!("{} of {expected} pings were answered", self.answered.len()))
    }
}

fn ping(to: MacAddr, destination: Ipv4Addr, seq: u16) -> Frame {
    let message = icmpv4::Message::EchoRequest {
        ident: 77,
        seq,
        data: DATA,
    };
    let mut bytes = ethernet::Header {
        destination: to,
        source: Pinger::MAC,
        ethertype: ethernet::IPV4,
    }
    .to_bytes()
    .to_vec();
    let header = ipv4::Header {
        dscp_ecn: 0,
        total_len: (ipv4::LEN + message.emitted_len()) as u16,
        identification: seq,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        ttl: 64,
        protocol: protocol::ICMP,
        source: ADDRESS,
        destination,
        header_len: ipv4::LEN as u8,
    };
    bytes.extend_from_slice(&header.to_bytes());
    let at = bytes.len();
    bytes.resize(at + message.emitted_len(), 0);
    let _ = message.emit(&mut bytes[at..]);
    unverified(bytes)
}

fn answer_arp(payload: &[u8]) -> Option<Frame> {
    let request = arp::Packet::parse(payload).ok()?;
    if request.operation != arp::Operation::Request || request.target_ip != ADDRESS {
        return None;
    }
    let reply = arp::Packet {
        operation: arp::Operation::Reply,
        sender_mac: Pinger::MAC,
        sender_ip: ADDRESS,
        target_mac: request.sender_mac,
        target_ip: request.sender_ip,
    };
    let header = ethernet::Header {
        destination: request.sender_mac,
        source: Pinger::MAC,
        ethertype: ethernet::ARP,
    };
    let mut bytes = header.to_bytes().to_vec();
    bytes.resize(ethernet::LEN + arp::LEN, 0);
    let _ = reply.emit(&mut bytes[ethernet::LEN..]);
    Some(unverified(bytes))
}

fn unverified(bytes: Vec<u8>) -> Frame {
    frame::Frame {
        bytes,
        checksum: RxChecksum::Unverified,
        segment_bytes: 0,
    }
}
