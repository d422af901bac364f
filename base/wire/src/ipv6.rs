//! The IPv6 header (RFC 8200).

use core::net::Ipv6Addr;

use crate::{Malformed, bytes};

mod extension;

pub use extension::{
    ExtensionFault, FRAGMENT_LEN, FragmentHeader, MAXIMUM_EXTENSIONS, Upper, walk, walk_reassembled,
};

/// The length of the fixed header.
pub const LEN: usize = 40;
/// The smallest MTU that every IPv6 link has (RFC 8200 section 5).
pub const MINIMUM_MTU: usize = 1280;

/// The fixed header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// DSCP (upper six bits) and ECN (lower two).
    pub traffic_class: u8,
    /// The flow label, 20 bits (RFC 6437).
    pub flow_label: u32,
    /// Everything after the fixed header, extension headers included, in bytes.
    pub payload_len: u16,
    /// What follows the fixed header; see [`protocol`](crate::protocol).
    pub next_header: u8,
    /// Time to live, in hops.
    pub hop_limit: u8,
    /// From whom.
    pub source: Ipv6Addr,
    /// To whom.
    pub destination: Ipv6Addr,
}

impl Header {
    /// Splits a packet into its fixed header and what follows, without link padding. Jumbograms
    /// (RFC 2675) are not understood.
    #[inline]
    pub fn parse(packet: &[u8]) -> Result<(Header, &[u8]), Malformed> {
        let (header, rest) = Header::decode(packet)?;
        let payload = rest
            .get(..usize::from(header.payload_len))
            .ok_or(Malformed::BadTotalLength)?;
        Ok((header, payload))
    }

    /// Reads a packet that an ICMPv6 error quotes, which is cut short. The slice is as much of the
    /// payload as is there.
    pub fn parse_quoted(packet: &[u8]) -> Result<(Header, &[u8]), Malformed> {
        let (header, rest) = Header::decode(packet)?;
        let payload = rest.get(..usize::from(header.payload_len)).unwrap_or(rest);
        Ok((header, payload))
    }

    /// Writes the fixed header and returns [`LEN`], or 0 where `out` is too short.
    #[inline]
    #[must_use]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        bytes::write(out, &[&self.to_bytes()])
    }

    /// The fixed header as it goes on the wire.
    #[inline]
    pub fn to_bytes(&self) -> [u8; LEN] {
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0xf_ffff;
        let mut header = [0; LEN];
        header[0..4].copy_from_slice(&first.to_be_bytes());
        header[4..6].copy_from_slice(&self.payload_len.to_be_bytes());
        header[6] = self.next_header;
        header[7] = self.hop_limit;
        header[8..24].copy_from_slice(&self.source.octets());
        header[24..40].copy_from_slice(&self.destination.octets());
        header
    }

    #[inline]
    fn decode(packet: &[u8]) -> Result<(Header, &[u8]), Malformed> {
        let (fixed, rest) = packet
            .split_first_chunk::<LEN>()
            .ok_or(Malformed::TooShort)?;
        let first = u32::from_be_bytes([fixed[0], fixed[1], fixed[2], fixed[3]]);
        if first >> 28 != 6 {
            return Err(Malformed::BadVersion);
        }
        let header = Header {
            traffic_class: (first >> 20) as u8,
            flow_label: first & 0xf_ffff,
            payload_len: u16::from_be_bytes([fixed[4], fixed[5]]),
            next_header: fixed[6],
            hop_limit: fixed[7],
            source: bytes::array::<16>(fixed, 8)?.into(),
            destination: bytes::array::<16>(fixed, 24)?.into(),
        };
        Ok((header, rest))
    }
}

#[cfg(test)]
mod tests;
