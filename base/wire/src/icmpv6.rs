//! ICMPv6 (RFC 4443), with the messages of neighbour discovery (RFC 4861).

use core::net::{IpAddr, Ipv6Addr};

use crate::{ChecksumPolicy, Malformed, bytes, checksum, protocol};

mod ndp;

pub use ndp::{
    NeighbourAdvertisement, NeighbourSolicitation, PrefixInformation, Prefixes,
    RouterAdvertisement, RouterSolicitation,
};

/// The length of the part that all messages have.
pub const LEN: usize = 8;

const DESTINATION_UNREACHABLE: u8 = 1;
const PACKET_TOO_BIG: u8 = 2;
const TIME_EXCEEDED: u8 = 3;
const PARAMETER_PROBLEM: u8 = 4;
const ECHO_REQUEST: u8 = 128;
const ECHO_REPLY: u8 = 129;
const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
const REDIRECT: u8 = 137;

/// Whether a message is one of neighbour discovery, by its type alone (RFC 4861 section 4).
pub fn is_neighbour_discovery(message: &[u8]) -> bool {
    matches!(message, [ROUTER_SOLICITATION..=REDIRECT, ..])
}

/// Codes of "destination unreachable" (RFC 4443 section 3.1).
pub mod unreachable {
    /// No route to the destination.
    pub const NO_ROUTE: u8 = 0;
    /// Forbidden by a filter.
    pub const ADMINISTRATIVELY_PROHIBITED: u8 = 1;
    /// Beyond the scope of the source address.
    pub const BEYOND_SCOPE: u8 = 2;
    /// The host doesn't answer.
    pub const ADDRESS: u8 = 3;
    /// Nobody is bound to the port.
    pub const PORT: u8 = 4;
}

/// Codes of "time exceeded" (RFC 4443 section 3.3).
pub mod time_exceeded {
    /// The hop limit ran out on the way.
    pub const IN_TRANSIT: u8 = 0;
    /// Fragments stayed away.
    pub const REASSEMBLY: u8 = 1;
}

/// Codes of "parameter problem" (RFC 4443 section 3.4, RFC 7112 section 6).
pub mod parameter_problem {
    /// A header field is wrong.
    pub const ERRONEOUS_FIELD: u8 = 0;
    /// A next-header value is unknown.
    pub const UNKNOWN_NEXT_HEADER: u8 = 1;
    /// An option is unknown.
    pub const UNKNOWN_OPTION: u8 = 2;
    /// The first fragment lacks part of the header chain.
    pub const INCOMPLETE_HEADER_CHAIN: u8 = 3;
}

/// A message. `quoted` is the beginning of the packet that an error is about, from its IP header on;
/// [`ipv6::Header::parse_quoted`](crate::ipv6::Header::parse_quoted) reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message<'a> {
    /// A packet could not be delivered.
    DestinationUnreachable {
        /// One of [`mod@unreachable`].
        code: u8,
        /// The packet.
        quoted: &'a [u8],
    },
    /// A packet didn't fit the next link.
    PacketTooBig {
        /// The MTU of that link, in bytes. It may lie below the minimum of 1280: don't trust it.
        mtu: u32,
        /// The packet.
        quoted: &'a [u8],
    },
    /// A packet was under way for too long.
    TimeExceeded {
        /// One of [`time_exceeded`].
        code: u8,
        /// The packet.
        quoted: &'a [u8],
    },
    /// A packet's header was wrong.
    ParameterProblem {
        /// One of [`parameter_problem`].
        code: u8,
        /// The offending byte of the packet.
        pointer: u32,
        /// The packet.
        quoted: &'a [u8],
    },
    /// A ping.
    EchoRequest {
        /// Tells pingers apart.
        ident: u16,
        /// Tells pings apart.
        seq: u16,
        /// To be sent back.
        data: &'a [u8],
    },
    /// The answer to a ping.
    EchoReply {
        /// That of the request.
        ident: u16,
        /// That of the request.
        seq: u16,
        /// That of the request.
        data: &'a [u8],
    },
    /// A host asks for routers.
    RouterSolicitation(RouterSolicitation),
    /// A router tells what it knows.
    RouterAdvertisement(RouterAdvertisement),
    /// Who has this address?
    NeighbourSolicitation(NeighbourSolicitation),
    /// I have this address.
    NeighbourAdvertisement(NeighbourAdvertisement),
    /// Any other type. Those below 128 are errors, to be passed on; others are to be dropped (RFC 4443
    /// section 2.4).
    Unknown {
        /// The type.
        kind: u8,
        /// The code.
        code: u8,
        /// The four bytes after the checksum.
        rest: [u8; 4],
        /// What follows.
        body: &'a [u8],
    },
}

impl<'a> Message<'a> {
    /// Reads a message, the payload of an IPv6 packet. The addresses are those of the packet. That
    /// messages of neighbour discovery have a hop limit of 255 is for the caller to check.
    pub fn parse(
        source: Ipv6Addr,
        destination: Ipv6Addr,
        message: &'a [u8],
        policy: ChecksumPolicy,
    ) -> Result<Message<'a>, Malformed> {
        let (&[kind, code, _, _, a, b, c, d], body) = message
            .split_first_chunk::<LEN>()
            .ok_or(Malformed::TooShort)?;
        if policy == ChecksumPolicy::Verify
            && !checksum::transport_checksum_is_valid(
                IpAddr::V6(source),
                IpAddr::V6(destination),
                protocol::ICMPV6,
                message,
            )
        {
            return Err(Malformed::BadChecksum);
        }
        let rest = [a, b, c, d];
        if (ROUTER_SOLICITATION..=NEIGHBOUR_ADVERTISEMENT).contains(&kind) && code != 0 {
            return Err(Malformed::BadCode);
        }
        Ok(match kind {
            ROUTER_SOLICITATION => Message::RouterSolicitation(RouterSolicitation::parse(body)?),
            ROUTER_ADVERTISEMENT => {
                Message::RouterAdvertisement(RouterAdvertisement::parse(rest, body)?)
            }
            NEIGHBOUR_SOLICITATION => {
                Message::NeighbourSolicitation(NeighbourSolicitation::parse(body)?)
            }
            NEIGHBOUR_ADVERTISEMENT => {
                Message::NeighbourAdvertisement(NeighbourAdvertisement::parse(rest, body)?)
            }
            _ => Message::parse_basic(kind, code, rest, body),
        })
    }

    /// The messages of RFC 4443 itself.
    fn parse_basic(kind: u8, code: u8, rest: [u8; 4], body: &'a [u8]) -> Message<'a> {
        let [a, b, c, d] = rest;
        let ident = u16::from_be_bytes([a, b]);
        let seq = u16::from_be_bytes([c, d]);
        match kind {
            DESTINATION_UNREACHABLE => Message::DestinationUnreachable { code, quoted: body },
            // The code is to be ignored (RFC 4443 section 3.2).
            PACKET_TOO_BIG => Message::PacketTooBig {
                mtu: u32::from_be_bytes(rest),
                quoted: body,
            },
            TIME_EXCEEDED => Message::TimeExceeded { code, quoted: body },
            PARAMETER_PROBLEM => Message::ParameterProblem {
                code,
                pointer: u32::from_be_bytes(rest),
                quoted: body,
            },
            ECHO_REQUEST => Message::EchoRequest {
                ident,
                seq,
                data: body,
            },
            ECHO_REPLY => Message::EchoReply {
                ident,
                seq,
                data: body,
            },
            _ => Message::Unknown {
                kind,
                code,
                rest,
                body,
            },
        }
    }

    /// Writes the message with its checksum and returns its length, or 0 where `out` is too short. The
    /// addresses are those of the packet that will carry it.
    #[must_use]
    pub fn emit(&self, source: Ipv6Addr, destination: Ipv6Addr, out: &mut [u8]) -> usize {
        let len = self.emit_without_checksum(out);
        if let Some(message) = out.get_mut(..len)
            && len != 0
        {
            let value = bytes::transport_checksum(
                IpAddr::V6(source),
                IpAddr::V6(destination),
                protocol::ICMPV6,
                message,
                2,
                &[],
            );
            bytes::put_u16(message, 2, value);
        }
        len
    }

    fn emit_without_checksum(&self, out: &mut [u8]) -> usize {
        let (kind, code, rest, body) = match *self {
            Message::DestinationUnreachable { code, quoted } => {
                (DESTINATION_UNREACHABLE, code, [0; 4], quoted)
            }
            Message::PacketTooBig { mtu, quoted } => (PACKET_TOO_BIG, 0, mtu.to_be_bytes(), quoted),
            Message::TimeExceeded { code, quoted } => (TIME_EXCEEDED, code, [0; 4], quoted),
            Message::ParameterProblem {
                code,
                pointer,
                quoted,
            } => (PARAMETER_PROBLEM, code, pointer.to_be_bytes(), quoted),
            Message::EchoRequest { ident, seq, data } => (ECHO_REQUEST, 0, pair(ident, seq), data),
            Message::EchoReply { ident, seq, data } => (ECHO_REPLY, 0, pair(ident, seq), data),
            Message::RouterSolicitation(ref message) => {
                return message.emit([ROUTER_SOLICITATION, 0, 0, 0], out);
            }
            Message::RouterAdvertisement(ref message) => {
                return message.emit([ROUTER_ADVERTISEMENT, 0, 0, 0], out);
            }
            Message::NeighbourSolicitation(ref message) => {
                return message.emit([NEIGHBOUR_SOLICITATION, 0, 0, 0], out);
            }
            Message::NeighbourAdvertisement(ref message) => {
                return message.emit([NEIGHBOUR_ADVERTISEMENT, 0, 0, 0], out);
            }
            Message::Unknown {
                kind,
                code,
                rest,
                body,
            } => (kind, code, rest, body),
        };
        bytes::write(out, &[&[kind, code, 0, 0], &rest, body])
    }
}

fn pair(first: u16, second: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (first.to_be_bytes(), second.to_be_bytes());
    [a, b, c, d]
}

/// The solicited-node multicast address of `addr` (RFC 4291 section 2.7.1).
pub const fn solicited_node(addr: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = addr.octets();
    Ipv6Addr::new(
        0xff02,
        0,
        0,
        0,
        0,
        1,
        0xff00 | a as u16,
        (b as u16) << 8 | c as u16,
    )
}

#[cfg(test)]
mod tests;
