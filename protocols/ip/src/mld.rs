//! Telling routers and switches which multicast groups we are in (RFC 3810, MLDv2): the solicited-node groups
//! of our addresses (RFC 4291 section 2.8). Switches pass on only to those who say so what is sent to a group,
//! solicitations for instance.

use crate::Ip;
use crate::addresses::ALL_NODES;
use core::hash::BuildHasher;
use core::net::{IpAddr, Ipv6Addr};
use foldhash::fast::FixedState;
use skink_memory::Bytes;
use skink_messages::{Counter, FrameOutput, Outbound, RxPacket, TxPacket};
use skink_time::{Duration, Instant};
use skink_wire::{icmpv6, protocol};

/// Types of messages (RFC 2710 section 3.1, RFC 3810 section 5).
pub(crate) const QUERY: u8 = 130;
const REPORT_V1: u8 = 131;
const REPORT: u8 = 143;
/// Types of records (RFC 3810 section 5.2.12): any source is welcome, and that it is so anew.
const MODE_IS_EXCLUDE: u8 = 2;
const CHANGE_TO_EXCLUDE: u8 = 4;
const RECORD_BYTES: usize = 20;
/// Records of one report, which every link takes.
const RECORDS: usize = 60;

/// All routers that speak MLDv2 (RFC 3810 section 5.2.14).
const ALL_MLDV2_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
/// Hop-by-hop options: the router alert of MLD (RFC 2711 section 2.1), and padding.
const ROUTER_ALERT: [u8; 8] = [protocol::ICMPV6, 0, 5, 2, 0, 0, 1, 0];
/// So that no router passes them on.
const HOP_LIMIT: u8 = 1;

/// Robustness Variable, Unsolicited Report Interval, and Older Version Querier Present Timeout (RFC 3810
/// section 9) with the default Query Interval of 125 s and Query Response Interval of 10 s.
const ROBUSTNESS: u8 = 2;
const UNSOLICITED_MS: u64 = 1000;
const OLDER_QUERIER: Duration = Duration::from_secs(2 * 125 + 10);

/// What is to be reported, and when.
pub(crate) struct Reports {
    /// Reports that we are in our groups now, still to be sent, and when.
    left: u8,
    next: Instant,
    /// When a query is to be answered. The answer names all groups, so that one serves for all queries.
    answer: Option<Instant>,
    /// Until then a router is there that speaks MLDv1 only.
    older_until: Instant,
    /// For delays that nobody else has.
    hash: FixedState,
    drawn: u64,
}

/// A report that is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Report {
    /// We have joined our groups.
    Joined,
    /// We are in our groups.
    Current,
}

impl Reports {
    pub(crate) fn new(seed: u64) -> Reports {
        Reports {
            left: 0,
            next: Instant::ZERO,
            answer: None,
            older_until: Instant::ZERO,
            hash: FixedState::with_seed(seed),
            drawn: 0,
        }
    }

    /// Begins to tell with the next poll that we are in our groups.
    pub(crate) fn join(&mut self) {
        self.left = ROBUSTNESS;
        self.next = Instant::ZERO;
    }

    /// A query is to be answered within so many milliseconds.
    fn asked(&mut self, now: Instant, within_ms: u64) {
        let at = now + self.delay(within_ms);
        self.answer = Some(self.answer.map_or(at, |before| before.min(at)));
    }

    fn delay(&mut self, most_ms: u64) -> Duration {
        self.drawn = self.drawn.wrapping_add(1);
        Duration::from_millis(self.hash.hash_one(self.drawn) % (most_ms + 1))
    }

    /// A report that is to be sent now.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<Report> {
        if self.left > 0 && self.next <= now {
            self.left -= 1;
            self.next = now + Duration::from_millis(1) + self.delay(UNSOLICITED_MS - 1);
            return Some(Report::Joined);
        }
        let answer = self.answer.take_if(|answer| *answer <= now);
        answer.map(|_| Report::Current)
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let joined = (self.left > 0).then_some(self.next);
        joined.into_iter().chain(self.answer).min()
    }
}

impl Ip {
    /// Begins to tell that we are in our groups, if that is our task and there are any.
    pub(crate) fn join_groups(&mut self) {
        if self.answers && !self.addresses.solicited_nodes().is_empty() {
            self.reports.join();
        }
    }

    /// A query, whose part behind the checksum is `rest` and `body`; `false` if it breaks a rule of RFC 3810
    /// section 6.2. (Its router alert isn't looked for.)
    pub(crate) fn on_query(
        &mut self,
        now: Instant,
        packet: &RxPacket<'_>,
        rest: [u8; 4],
        body: &[u8],
    ) -> bool {
        let IpAddr::V6(source) = packet.source else {
            return false;
        };
        let Some((group, behind)) = body.split_first_chunk::<16>() else {
            return false;
        };
        if !source.is_unicast_link_local() || packet.hop_limit != HOP_LIMIT {
            return false;
        }
        let [high, low, ..] = rest;
        let code = u16::from_be_bytes([high, low]);
        // RFC 3810 section 8.1.
        let within_ms = match behind.len() {
            0 => {
                self.reports.older_until = now + OLDER_QUERIER;
                u64::from(code)
            }
            4.. => maximum_response_delay(code),
            _ => return false,
        };
        let group = Ipv6Addr::from(*group);
        let is_ours = group.is_unspecified()
            || group != ALL_NODES && self.addresses.is_joined(IpAddr::V6(group));
        if self.answers && is_ours {
            self.reports.asked(now, within_ms);
        }
        true
    }

    pub(crate) fn send_report<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        report: Report,
        out: &mut O,
    ) {
        let kind = match report {
            Report::Joined => CHANGE_TO_EXCLUDE,
            Report::Current => MODE_IS_EXCLUDE,
        };
        let groups = self.addresses.solicited_nodes();
        if now < self.reports.older_until {
            for group in groups {
                let message = icmpv6::Message::Unknown {
                    kind: REPORT_V1,
                    code: 0,
                    rest: [0; 4],
                    body: &group.octets(),
                };
                self.send_mld(now, group, &message, out);
            }
            return;
        }
        for groups in groups.chunks(RECORDS) {
            let mut records = [0; RECORDS * RECORD_BYTES];
            for (record, group) in records.chunks_mut(RECORD_BYTES).zip(groups) {
                record[0] = kind;
                record[4..].copy_from_slice(&group.octets());
            }
            let message = icmpv6::Message::Unknown {
                kind: REPORT,
                code: 0,
                rest: [0, 0, 0, groups.len() as u8],
                body: &records[..groups.len() * RECORD_BYTES],
            };
            self.send_mld(now, ALL_MLDV2_ROUTERS, &message, out);
        }
    }

    fn send_mld<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        destination: Ipv6Addr,
        message: &icmpv6::Message<'_>,
        out: &mut O,
    ) {
        // A report from any other address wouldn't count (RFC 3810 section 5.2.13).
        let source = self.addresses.link_local().unwrap_or(Ipv6Addr::UNSPECIFIED);
        let mut bytes = [0; icmpv6::LEN + RECORDS * RECORD_BYTES];
        let length = message.emit(source, destination, &mut bytes);
        let mut packet = TxPacket::new([Bytes::from(&bytes[..length]), Bytes::EMPTY]);
        packet
            .prepend(ROUTER_ALERT.len())
            .copy_from_slice(&ROUTER_ALERT);
        let to = Outbound {
            source: source.into(),
            destination: destination.into(),
            protocol: protocol::HOP_BY_HOP,
            hop_limit: Some(HOP_LIMIT),
            traffic_class: 0,
            dont_fragment: true,
        };
        match self.send_slowly(now, &to, &mut packet, out) {
            Ok(()) => self.counters.count(Counter::IpIcmpOut),
            Err(_) => self.counters.count(Counter::IpDropOutput),
        }
    }
}

/// What a query's Maximum Response Code means in milliseconds (RFC 3810 section 5.1.3).
fn maximum_response_delay(code: u16) -> u64 {
    let (exponent, mantissa) = (code >> 12 & 7, u64::from(code & 0xfff));
    match code {
        ..0x8000 => u64::from(code),
        _ => (mantissa | 0x1000) << (exponent + 3),
    }
}
