//! ICMP (RFC 792, RFC 1122 section 3.2.2) and ICMPv6 (RFC 4443) on their way in.

use crate::Ip;
use crate::mld;
use crate::path_mtu;
use crate::quoted::Quoted;
use core::net::IpAddr;
use skink_messages::{Counter, ErrorKind, FrameOutput, Outbound, RxChecksum, RxPacket};
use skink_time::Instant;
use skink_wire::{ChecksumPolicy, Malformed, icmpv4, icmpv6, protocol};

/// What a message asks for.
enum Meaning<'a> {
    Echo {
        ident: u16,
        seq: u16,
        data: &'a [u8],
    },
    Error {
        kind: ErrorKind,
        quoted: &'a [u8],
    },
    /// Nothing that concerns us.
    Nothing,
}

impl Ip {
    pub(crate) fn on_icmp<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        packet: &RxPacket<'_>,
        out: &mut O,
    ) {
        let policy = match packet.checksum {
            RxChecksum::Verified => ChecksumPolicy::Trust,
            RxChecksum::Unverified => ChecksumPolicy::Verify,
        };
        let meaning = match (packet.source, packet.destination) {
            (IpAddr::V4(_), _) => icmpv4::Message::parse(packet.payload, policy).map(meaning_v4),
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let message = icmpv6::Message::parse(source, destination, packet.payload, policy);
                match message {
                    Ok(message) if is_ndp(&message) => {
                        self.counters.count(Counter::IpNdpIn);
                        if !self.on_ndp(now, packet, &message, out) {
                            self.counters.count(Counter::IpDropNdp);
                        }
                        return;
                    }
                    Ok(icmpv6::Message::Unknown {
                        kind: mld::QUERY,
                        rest,
                        body,
                        ..
                    }) => {
                        self.counters.count(Counter::IpIcmpIn);
                        if !self.on_query(now, packet, rest, body) {
                            self.counters.count(Counter::IpDropIcmp);
                        }
                        return;
                    }
                    message => message.map(meaning_v6),
                }
            }
            (IpAddr::V6(_), IpAddr::V4(_)) => Ok(Meaning::Nothing),
        };
        self.counters.count(Counter::IpIcmpIn);
        match meaning {
            Ok(Meaning::Echo { ident, seq, data }) => {
                self.on_echo(now, packet, ident, seq, data, out)
            }
            Ok(Meaning::Error { kind, quoted }) => self.on_error(now, kind, quoted),
            Ok(Meaning::Nothing) => self.counters.count(Counter::IpDropIcmp),
            Err(Malformed::BadChecksum) => self.counters.count(Counter::IpDropChecksum),
            Err(_) => self.counters.count(Counter::IpDropIcmp),
        }
    }

    fn on_echo<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        packet: &RxPacket<'_>,
        ident: u16,
        seq: u16,
        data: &[u8],
        out: &mut O,
    ) {
        let is_own = self.addresses.is_own(packet.destination);
        let source = match packet.destination {
            destination if is_own => Some(destination),
            // A ping to all of a network is an amplifier (RFC 1122 section 3.2.2.6 allows silence).
            IpAddr::V4(_) => None,
            IpAddr::V6(_) => self.addresses.source_for(packet.source, packet.source),
        };
        // Of several instances just one gets a request, whether or not it answers for the addresses.
        let Some(source) = source.filter(|_| !packet.source.is_unspecified()) else {
            return self.counters.count(Counter::IpDropIcmp);
        };
        let mut message = core::mem::take(&mut self.message);
        message.clear();
        message.resize(icmpv4::LEN + data.len(), 0);
        let protocol = match (source, packet.source) {
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let reply = icmpv6::Message::EchoReply { ident, seq, data };
                let _ = reply.emit(from, to, &mut message);
                protocol::ICMPV6
            }
            _ => {
                let reply = icmpv4::Message::EchoReply { ident, seq, data };
                let _ = reply.emit(&mut message);
                protocol::ICMP
            }
        };
        let to = Outbound {
            source,
            destination: packet.source,
            protocol,
            hop_limit: None,
            // The reply has the class of the request (RFC 1122 section 3.2.2.6).
            traffic_class: packet.traffic_class & !3,
            dont_fragment: false,
        };
        if self.send_message(now, &to, &message, None, out) {
            self.counters.count(Counter::IpEchoAnswered);
            self.counters.count(Counter::IpIcmpOut);
        }
        self.message = message;
    }

    /// An error about a packet; it must be one that we can have sent.
    fn on_error(&mut self, now: Instant, kind: ErrorKind, quoted: &[u8]) {
        let quoted = Quoted::read(quoted);
        let Some(quoted) = quoted.filter(|quoted| self.addresses.is_own(quoted.local.addr)) else {
            return self.counters.count(Counter::IpDropIcmp);
        };
        let kind = match kind {
            ErrorKind::PacketTooBig { mtu } => match self.on_too_big(now, &quoted, mtu) {
                Some(mtu) => ErrorKind::PacketTooBig { mtu },
                None => return self.counters.count(Counter::IpDropIcmp),
            },
            ErrorKind::HostUnreachable
            | ErrorKind::PortUnreachable
            | ErrorKind::ProtocolUnreachable
            | ErrorKind::Prohibited
            | ErrorKind::TimeExceeded => kind,
        };
        self.push_error(quoted.error(kind));
    }

    /// A router's link takes less than a packet of ours; answers what its path takes, if that may be true.
    ///
    /// Anybody can say so. It is remembered once a transport has shown that it may have sent such a packet (RFC 5927
    /// section 7, RFC 8201 section 4; see [`crate::claims`]). Nothing is believed of datagrams of IPv4: most leave
    /// without DF, so that no router complains of them, and who sends one shows only that its ports were guessed.
    fn on_too_big(&mut self, now: Instant, quoted: &Quoted, mtu: u32) -> Option<u32> {
        let destination = quoted.remote.addr;
        let told = path_mtu::believable(destination, mtu, quoted.packet_bytes)?;
        // (`::` stands for all of IPv6 among path MTUs.)
        let is_cut_on_the_way = quoted.protocol == protocol::UDP && destination.is_ipv4();
        if is_cut_on_the_way || destination.is_unspecified() {
            return None;
        }
        self.claims.add(now, quoted, told);
        // So that `send_slowly` sees what the transport does.
        self.last = None;
        Some(told)
    }
}

fn is_ndp(message: &icmpv6::Message<'_>) -> bool {
    matches!(
        message,
        icmpv6::Message::RouterSolicitation(_)
            | icmpv6::Message::RouterAdvertisement(_)
            | icmpv6::Message::NeighbourSolicitation(_)
            | icmpv6::Message::NeighbourAdvertisement(_)
    )
}

fn meaning_v4(message: icmpv4::Message<'_>) -> Meaning<'_> {
    use icmpv4::unreachable;
    match message {
        icmpv4::Message::EchoRequest { ident, seq, data } => Meaning::Echo { ident, seq, data },
        icmpv4::Message::DestinationUnreachable {
            code,
            next_hop_mtu,
            quoted,
        } => {
            let kind = match code {
                unreachable::PROTOCOL => ErrorKind::ProtocolUnreachable,
                unreachable::PORT => ErrorKind::PortUnreachable,
                unreachable::FRAGMENTATION_NEEDED => ErrorKind::PacketTooBig {
                    mtu: u32::from(next_hop_mtu),
                },
                // What is prohibited, too: programs are told so by IPv6 alone, as on Linux.
                _ => ErrorKind::HostUnreachable,
            };
            Meaning::Error { kind, quoted }
        }
        icmpv4::Message::TimeExceeded { quoted, .. } => Meaning::Error {
            kind: ErrorKind::TimeExceeded,
            quoted,
        },
        icmpv4::Message::EchoReply { .. }
        | icmpv4::Message::ParameterProblem { .. }
        | icmpv4::Message::Unknown { .. } => Meaning::Nothing,
    }
}

fn meaning_v6(message: icmpv6::Message<'_>) -> Meaning<'_> {
    use icmpv6::{parameter_problem, unreachable};
    let (kind, quoted) = match message {
        icmpv6::Message::EchoRequest { ident, seq, data } => {
            return Meaning::Echo { ident, seq, data };
        }
        icmpv6::Message::DestinationUnreachable { code, quoted } => {
            let kind = match code {
                unreachable::PORT => ErrorKind::PortUnreachable,
                unreachable::ADMINISTRATIVELY_PROHIBITED => ErrorKind::Prohibited,
                _ => ErrorKind::HostUnreachable,
            };
            (kind, quoted)
        }
        icmpv6::Message::PacketTooBig { mtu, quoted } => (ErrorKind::PacketTooBig { mtu }, quoted),
        icmpv6::Message::TimeExceeded { quoted, .. } => (ErrorKind::TimeExceeded, quoted),
        icmpv6::Message::ParameterProblem {
            code: parameter_problem::UNKNOWN_NEXT_HEADER,
            quoted,
            ..
        } => (ErrorKind::ProtocolUnreachable, quoted),
        icmpv6::Message::ParameterProblem { .. }
        | icmpv6::Message::EchoReply { .. }
        | icmpv6::Message::RouterSolicitation(_)
        | icmpv6::Message::RouterAdvertisement(_)
        | icmpv6::Message::NeighbourSolicitation(_)
        | icmpv6::Message::NeighbourAdvertisement(_)
        | icmpv6::Message::Unknown { .. } => return Meaning::Nothing,
    };
    Meaning::Error { kind, quoted }
}
