//! ICMP for IPv4 (RFC 792, RFC 1191, RFC 1122 section 3.2.2).

use crate::{ChecksumPolicy, Malformed, Sum, bytes, checksum};

/// The length of the part that all messages have.
pub const LEN: usize = 8;

const ECHO_REPLY: u8 = 0;
const DESTINATION_UNREACHABLE: u8 = 3;
const ECHO_REQUEST: u8 = 8;
const TIME_EXCEEDED: u8 = 11;
const PARAMETER_PROBLEM: u8 = 12;

/// Codes of "destination unreachable".
pub mod unreachable {
    /// No route to the network.
    pub const NETWORK: u8 = 0;
    /// The host doesn't answer.
    pub const HOST: u8 = 1;
    /// The host doesn't have the protocol.
    pub const PROTOCOL: u8 = 2;
    /// Nobody is bound to the port.
    pub const PORT: u8 = 3;
    /// The packet is too big and must not be fragmented.
    pub const FRAGMENTATION_NEEDED: u8 = 4;
    /// A source route failed.
    pub const SOURCE_ROUTE_FAILED: u8 = 5;
    /// Forbidden by a filter (RFC 1812 section 5.2.7.1).
    pub const ADMINISTRATIVELY_PROHIBITED: u8 = 13;
}

/// Codes of "time exceeded".
pub mod time_exceeded {
    /// The time to live ran out on the way.
    pub const IN_TRANSIT: u8 = 0;
    /// Fragments stayed away.
    pub const REASSEMBLY: u8 = 1;
}

/// A message. `quoted` is the beginning of the packet that an error is about, from its IP header on;
/// [`ipv4::Header::parse_quoted`](crate::ipv4::Header::parse_quoted) reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message<'a> {
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
    /// A packet could not be delivered.
    DestinationUnreachable {
        /// One of [`mod@unreachable`].
        code: u8,
        /// The MTU of the next hop in bytes, with [`unreachable::FRAGMENTATION_NEEDED`] (RFC 1191
        /// section 4); 0 from routers that don't tell it.
        next_hop_mtu: u16,
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
        /// 0 where `pointer` counts.
        code: u8,
        /// The offending byte of the packet.
        pointer: u8,
        /// The packet.
        quoted: &'a [u8],
    },
    /// Any other type, to be ignored (RFC 1122 section 3.2.2).
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
    /// Reads a message, the payload of an IPv4 packet.
    pub fn parse(message: &'a [u8], policy: ChecksumPolicy) -> Result<Message<'a>, Malformed> {
        let (&[kind, code, _, _, a, b, c, d], body) = message
            .split_first_chunk::<LEN>()
            .ok_or(Malformed::TooShort)?;
        if policy == ChecksumPolicy::Verify && checksum::checksum(&[message]) != 0 {
            return Err(Malformed::BadChecksum);
        }
        let first = u16::from_be_bytes([a, b]);
        let second = u16::from_be_bytes([c, d]);
        match (kind, code) {
            (ECHO_REQUEST, 0) => Ok(Message::EchoRequest {
                ident: first,
                seq: second,
                data: body,
            }),
            (ECHO_REPLY, 0) => Ok(Message::EchoReply {
                ident: first,
                seq: second,
                data: body,
            }),
            (ECHO_REQUEST | ECHO_REPLY, _) => Err(Malformed::BadCode),
            (DESTINATION_UNREACHABLE, _) => Ok(Message::DestinationUnreachable {
                code,
                next_hop_mtu: second,
                quoted: body,
            }),
            (TIME_EXCEEDED, _) => Ok(Message::TimeExceeded { code, quoted: body }),
            (PARAMETER_PROBLEM, _) => Ok(Message::ParameterProblem {
                code,
                pointer: a,
                quoted: body,
            }),
            _ => Ok(Message::Unknown {
                kind,
                code,
                rest: [a, b, c, d],
                body,
            }),
        }
    }

    /// The length of the whole message, in bytes.
    pub fn emitted_len(&self) -> usize {
        LEN + self.parts().1.len()
    }

    /// Writes the message with its checksum and returns its length, or 0 where `out` is too short.
    #[must_use]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let (mut head, body) = self.parts();
        let mut sum = Sum::new();
        sum.add_bytes(&head);
        sum.add_bytes(body);
        bytes::put_u16(&mut head, 2, sum.finish());
        bytes::write(out, &[&head, body])
    }

    /// The fixed part with a checksum of zero, and what follows it.
    fn parts(&self) -> ([u8; LEN], &'a [u8]) {
        let (kind, code, rest, body) = match *self {
            Message::EchoRequest { ident, seq, data } => (ECHO_REQUEST, 0, pair(ident, seq), data),
            Message::EchoReply { ident, seq, data } => (ECHO_REPLY, 0, pair(ident, seq), data),
            Message::DestinationUnreachable {
                code,
                next_hop_mtu,
                quoted,
            } => (DESTINATION_UNREACHABLE, code, pair(0, next_hop_mtu), quoted),
            Message::TimeExceeded { code, quoted } => (TIME_EXCEEDED, code, [0; 4], quoted),
            Message::ParameterProblem {
                code,
                pointer,
                quoted,
            } => (PARAMETER_PROBLEM, code, [pointer, 0, 0, 0], quoted),
            Message::Unknown {
                kind,
                code,
                rest,
                body,
            } => (kind, code, rest, body),
        };
        let [a, b, c, d] = rest;
        ([kind, code, 0, 0, a, b, c, d], body)
    }
}

fn pair(first: u16, second: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (first.to_be_bytes(), second.to_be_bytes());
    [a, b, c, d]
}

#[cfg(test)]
mod tests;
