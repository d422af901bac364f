//! ICMP errors on their way out.

use crate::Ip;
use core::net::{IpAddr, Ipv6Addr};
use skink_messages::{Counter, FrameOutput, Outbound, RxPacket};
use skink_time::Instant;
use skink_wire::{icmpv4, icmpv6, ipv4, ipv6, protocol};

/// At most so many errors at once, and one for each interval in the long run (RFC 4443 section
/// 2.4 f; the figures are those of Linux' `icmp_msgs_burst` and `icmp_msgs_per_sec`).
const BURST: u64 = 50;
const INTERVAL_NS: u64 = 1_000_000;
/// Largest error packets (RFC 1812 section 4.3.2.3; RFC 4443 section 2.4 c).
const ERROR_BYTES_V4: usize = 576;
const ERROR_BYTES_V6: usize = 1280;

/// What is wrong with a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Report {
    Port,
    ProtocolUnreachable {
        /// Where an IPv6 packet names the protocol.
        pointer: u32,
    },
    /// Fragments stayed away.
    Reassembly,
    /// Something in an IPv6 header.
    Parameter {
        code: u8,
        pointer: u32,
        even_if_multicast: bool,
    },
}

/// A token bucket, kept as the time up to which tokens have been used.
#[derive(Default)]
pub(crate) struct Limiter {
    used_until_ns: u64,
}

impl Limiter {
    fn allow(&mut self, now: Instant) -> bool {
        // One burst is there from the start, so time is counted from one burst before the clock's.
        let now_ns = now.as_nanos().saturating_add(BURST * INTERVAL_NS);
        let used = self
            .used_until_ns
            .max(now_ns.saturating_sub(BURST * INTERVAL_NS));
        let after = used.saturating_add(INTERVAL_NS);
        if after > now_ns {
            return false;
        }
        self.used_until_ns = after;
        true
    }
}

impl Ip {
    /// Tells the sender of `packet`, which has come up whole, that nobody has the port (or, if
    /// `protocol` isn't UDP, that the protocol isn't spoken). See RFC 1122 sections 3.2.2 and
    /// 4.1.3.1 on when that isn't done.
    pub fn port_unreachable<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        protocol: u8,
        packet: &RxPacket<'_>,
        out: &mut O,
    ) {
        let report = match protocol {
            protocol::UDP => Report::Port,
            _ => Report::ProtocolUnreachable {
                pointer: Ip::next_header_at(),
            },
        };
        self.send_error(now, report, protocol, packet, out);
    }

    /// Sends an error about `packet`, of which `payload` is what follows the IP header that names
    /// `protocol`, unless the rules forbid it (RFC 1122 section 3.2.2, RFC 4443 section 2.4 e).
    pub(crate) fn send_error<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        report: Report,
        protocol: u8,
        packet: &RxPacket<'_>,
        out: &mut O,
    ) {
        let to_many = !self.addresses.is_own(packet.destination);
        let even_if_multicast = matches!(
            report,
            Report::Parameter {
                even_if_multicast: true,
                ..
            }
        );
        let forbidden = (to_many && !even_if_multicast)
            || packet.source.is_unspecified()
            || is_icmp_error(protocol, packet.payload);
        if forbidden {
            return;
        }
        let source = match to_many {
            true => self.addresses.source_for(packet.source, packet.source),
            false => Some(packet.destination),
        };
        let Some(source) = source else {
            return;
        };
        if !self.limiter.allow(now) {
            return self.counters.count(Counter::IpDropRateLimited);
        }
        let mut message = core::mem::take(&mut self.message);
        let icmp = compose(report, protocol, packet, source, &mut message);
        let to = Outbound {
            source,
            destination: packet.source,
            protocol: icmp,
            hop_limit: None,
            traffic_class: 0,
            dont_fragment: false,
        };
        if self.send_message(now, &to, &message, None, out) {
            self.counters.count(Counter::IpIcmpOut);
        }
        self.message = message;
    }
}

/// Whether a packet is an ICMP error (or redirect), or can't be told not to be one.
fn is_icmp_error(protocol: u8, payload: &[u8]) -> bool {
    let kind = payload.first().copied();
    match protocol {
        protocol::ICMP => !matches!(kind, Some(0 | 8 | 13 | 14)),
        protocol::ICMPV6 => kind.is_none_or(|kind| kind < 128 || kind == 137),
        _ => false,
    }
}

/// Writes the error to `message`, and answers its protocol.
fn compose(
    report: Report,
    protocol: u8,
    packet: &RxPacket<'_>,
    from: IpAddr,
    message: &mut Vec<u8>,
) -> u8 {
    message.clear();
    match (packet.source, packet.destination, from) {
        (IpAddr::V6(source), IpAddr::V6(destination), IpAddr::V6(from)) => {
            let quoted = quote_v6(protocol, packet, source, destination);
            let quoted = quoted.as_slice();
            let error = message_v6(report, quoted);
            message.resize(icmpv6::LEN + quoted.len(), 0);
            let _ = error.emit(from, source, message);
            protocol::ICMPV6
        }
        _ => {
            let quoted = quote_v4(protocol, packet);
            let error = message_v4(report, &quoted);
            message.resize(error.emitted_len(), 0);
            let _ = error.emit(message);
            protocol::ICMP
        }
    }
}

fn message_v4(report: Report, quoted: &[u8]) -> icmpv4::Message<'_> {
    let unreachable = |code| icmpv4::Message::DestinationUnreachable {
        code,
        next_hop_mtu: 0,
        quoted,
    };
    match report {
        Report::Port => unreachable(icmpv4::unreachable::PORT),
        Report::ProtocolUnreachable { .. } => unreachable(icmpv4::unreachable::PROTOCOL),
        Report::Reassembly => icmpv4::Message::TimeExceeded {
            code: icmpv4::time_exceeded::REASSEMBLY,
            quoted,
        },
        // IPv6 only; here for completeness.
        Report::Parameter { code, pointer, .. } => icmpv4::Message::ParameterProblem {
            code,
            pointer: pointer as u8,
            quoted,
        },
    }
}

fn message_v6(report: Report, quoted: &[u8]) -> icmpv6::Message<'_> {
    match report {
        Report::Port => icmpv6::Message::DestinationUnreachable {
            code: icmpv6::unreachable::PORT,
            quoted,
        },
        Report::ProtocolUnreachable { pointer } => icmpv6::Message::ParameterProblem {
            code: icmpv6::parameter_problem::UNKNOWN_NEXT_HEADER,
            pointer,
            quoted,
        },
        Report::Reassembly => icmpv6::Message::TimeExceeded {
            code: icmpv6::time_exceeded::REASSEMBLY,
            quoted,
        },
        Report::Parameter { code, pointer, .. } => icmpv6::Message::ParameterProblem {
            code,
            pointer,
            quoted,
        },
    }
}

/// The beginning of a packet as it came, made anew from what is known of it: identification, flags
/// and options of the IPv4 header are not.
fn quote_v4(protocol: u8, packet: &RxPacket<'_>) -> Vec<u8> {
    let mut quoted = vec![0; ipv4::LEN];
    if let (IpAddr::V4(source), IpAddr::V4(destination)) = (packet.source, packet.destination) {
        let header = ipv4::Header {
            dscp_ecn: packet.traffic_class,
            total_len: u16::try_from(ipv4::LEN + packet.payload.len()).unwrap_or(u16::MAX),
            identification: 0,
            dont_fragment: false,
            more_fragments: false,
            fragment_offset: 0,
            ttl: packet.hop_limit,
            protocol,
            source,
            destination,
            header_len: ipv4::LEN as u8,
        };
        let _ = header.emit(&mut quoted);
    }
    let room = ERROR_BYTES_V4 - 2 * ipv4::LEN - icmpv4::LEN;
    quoted.extend(packet.payload.iter().take(room));
    quoted
}

fn quote_v6(
    protocol: u8,
    packet: &RxPacket<'_>,
    source: Ipv6Addr,
    destination: Ipv6Addr,
) -> Vec<u8> {
    let mut quoted = vec![0; ipv6::LEN];
    let header = ipv6::Header {
        traffic_class: packet.traffic_class,
        flow_label: 0,
        payload_len: u16::try_from(packet.payload.len()).unwrap_or(u16::MAX),
        next_header: protocol,
        hop_limit: packet.hop_limit,
        source,
        destination,
    };
    let _ = header.emit(&mut quoted);
    let room = ERROR_BYTES_V6 - 2 * ipv6::LEN - icmpv6::LEN;
    quoted.extend(packet.payload.iter().take(room));
    quoted
}
