//! What a packet of ours was, from the beginning of it that an ICMP error quotes.

use core::net::IpAddr;
use skink_messages::{ErrorKind, NetworkError};
use skink_wire::{Endpoint, ipv4, ipv6, protocol};

/// A packet of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Quoted {
    pub(crate) protocol: u8,
    pub(crate) local: Endpoint,
    pub(crate) remote: Endpoint,
    pub(crate) sequence: u32,
    /// Its length with the IP header, in bytes.
    pub(crate) packet_bytes: u32,
}

impl Quoted {
    /// Reads the beginning of a packet; `None` if it isn't one of TCP or UDP whose ports can be seen.
    pub(crate) fn read(packet: &[u8]) -> Option<Quoted> {
        let version = packet.first()? >> 4;
        let (protocol, source, destination, packet_bytes, transport): (u8, IpAddr, IpAddr, _, _) =
            if version == 4 {
                let (header, payload) = ipv4::Header::parse_quoted(packet).ok()?;
                if header.fragment_offset != 0 {
                    return None;
                }
                (
                    header.protocol,
                    header.source.into(),
                    header.destination.into(),
                    u32::from(header.total_len),
                    payload,
                )
            } else {
                let (header, payload) = ipv6::Header::parse_quoted(packet).ok()?;
                let upper = ipv6::walk(header.next_header, payload).ok()?;
                let mut protocol = upper.protocol;
                let mut offset = upper.offset;
                if let Some(fragment) = upper.fragment.filter(|fragment| !fragment.is_atomic()) {
                    if fragment.offset != 0 {
                        return None;
                    }
                    let rest = payload.get(offset..)?;
                    let inner = ipv6::walk_reassembled(fragment.next_header, rest).ok()?;
                    protocol = inner.protocol;
                    offset += inner.offset;
                }
                (
                    protocol,
                    header.source.into(),
                    header.destination.into(),
                    u32::from(header.payload_len) + ipv6::LEN as u32,
                    payload.get(offset..)?,
                )
            };
        if !matches!(protocol, protocol::TCP | protocol::UDP) {
            return None;
        }
        // An IPv4 router quotes at least this much (RFC 792).
        let &[s0, s1, d0, d1, a, b, c, d] = transport.first_chunk::<8>()?;
        Some(Quoted {
            protocol,
            local: Endpoint::new(source, u16::from_be_bytes([s0, s1])),
            remote: Endpoint::new(destination, u16::from_be_bytes([d0, d1])),
            sequence: u32::from_be_bytes([a, b, c, d]),
            packet_bytes,
        })
    }

    /// The error for the transport that sent it.
    pub(crate) fn error(&self, kind: ErrorKind) -> NetworkError {
        NetworkError {
            kind,
            protocol: self.protocol,
            local: self.local,
            remote: self.remote,
            sequence: self.sequence,
        }
    }
}
