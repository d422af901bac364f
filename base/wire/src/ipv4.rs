//! The IPv4 header (RFC 791).

use core::net::Ipv4Addr;

use crate::{ChecksumPolicy, Malformed, Sum, bytes};

/// The length of a header without options, which is what [`Header::emit`] writes.
pub const LEN: usize = 20;
/// The smallest MTU that every IPv4 link has (RFC 791 section 3.2).
pub const MINIMUM_MTU: usize = 68;
/// Less than this, in bytes, is not believed of a path: a forged error must not make us send crumbs. Linux' `min_pmtu` is the same.
pub const MINIMUM_PATH_MTU: u32 = 552;

/// The fields of a header. Options are skipped on the way in and not written on the way out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The DSCP (upper six bits) and ECN (lower two) fields (RFC 2474, RFC 3168).
    pub dscp_ecn: u8,
    /// Header and payload together, in bytes.
    pub total_len: u16,
    /// Tells the fragments of one packet from those of another.
    pub identification: u16,
    /// Routers must not fragment.
    pub dont_fragment: bool,
    /// This is a fragment, and not the last.
    pub more_fragments: bool,
    /// Where this fragment's payload goes, in bytes; a multiple of 8.
    pub fragment_offset: u16,
    /// Time to live, in hops.
    pub ttl: u8,
    /// What the payload is; see [`protocol`](crate::protocol).
    pub protocol: u8,
    /// From whom.
    pub source: Ipv4Addr,
    /// To whom.
    pub destination: Ipv4Addr,
    /// The length of the header that was parsed, options included, in bytes. `emit` ignores it.
    pub header_len: u8,
}

impl Header {
    /// Splits a packet into header and payload, without link padding. Checks version, lengths and, if
    /// asked, the header checksum (RFC 1122 section 3.2.1).
    #[inline]
    pub fn parse(packet: &[u8], policy: ChecksumPolicy) -> Result<(Header, &[u8]), Malformed> {
        let header = Header::decode(packet)?;
        let header_len = usize::from(header.header_len);
        let payload = packet
            .get(header_len..usize::from(header.total_len))
            .ok_or(Malformed::BadTotalLength)?;
        if policy == ChecksumPolicy::Verify {
            let mut sum = Sum::new();
            match packet.first_chunk::<LEN>() {
                // As almost always; of a known length it is a few additions.
                Some(fixed) if header_len == LEN => sum.add_bytes(fixed),
                _ => sum.add_bytes(packet.get(..header_len).ok_or(Malformed::BadHeaderLength)?),
            }
            if sum.fold() != 0xffff {
                return Err(Malformed::BadChecksum);
            }
        }
        Ok((header, payload))
    }

    /// Reads a packet that an ICMP error quotes: it is cut short, and a router on the way may have
    /// changed the fields that the checksum covers. The slice is as much of the payload as is there.
    pub fn parse_quoted(packet: &[u8]) -> Result<(Header, &[u8]), Malformed> {
        let header = Header::decode(packet)?;
        let header_len = usize::from(header.header_len);
        let end = usize::from(header.total_len).min(packet.len());
        let payload = packet
            .get(header_len..end)
            .ok_or(Malformed::BadTotalLength)?;
        Ok((header, payload))
    }

    /// Whether this is a fragment rather than a whole packet.
    #[inline]
    pub const fn is_fragment(&self) -> bool {
        self.more_fragments || self.fragment_offset != 0
    }

    /// Writes the header with its checksum and returns [`LEN`], or 0 where `out` is too short.
    #[inline]
    #[must_use]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        bytes::write(out, &[&self.to_bytes()])
    }

    /// The header as it goes on the wire, checksum included.
    #[inline(always)]
    pub fn to_bytes(&self) -> [u8; LEN] {
        let flags = u16::from(self.dont_fragment) << 14 | u16::from(self.more_fragments) << 13;
        let mut header = [0; LEN];
        header[0] = 0x45;
        header[1] = self.dscp_ecn;
        header[2..4].copy_from_slice(&self.total_len.to_be_bytes());
        header[4..6].copy_from_slice(&self.identification.to_be_bytes());
        header[6..8].copy_from_slice(&(flags | self.fragment_offset >> 3).to_be_bytes());
        header[8] = self.ttl;
        header[9] = self.protocol;
        header[12..16].copy_from_slice(&self.source.octets());
        header[16..20].copy_from_slice(&self.destination.octets());
        let mut sum = Sum::new();
        sum.add_bytes(&header);
        header[10..12].copy_from_slice(&sum.finish().to_be_bytes());
        header
    }

    #[inline]
    fn decode(packet: &[u8]) -> Result<Header, Malformed> {
        let fixed = packet.first_chunk::<LEN>().ok_or(Malformed::TooShort)?;
        if fixed[0] >> 4 != 4 {
            return Err(Malformed::BadVersion);
        }
        let header_len = (fixed[0] & 0xf) * 4;
        if usize::from(header_len) < LEN || usize::from(header_len) > packet.len() {
            return Err(Malformed::BadHeaderLength);
        }
        let fragment = u16::from_be_bytes([fixed[6], fixed[7]]);
        Ok(Header {
            dscp_ecn: fixed[1],
            total_len: u16::from_be_bytes([fixed[2], fixed[3]]),
            identification: u16::from_be_bytes([fixed[4], fixed[5]]),
            dont_fragment: fragment & 0x4000 != 0,
            more_fragments: fragment & 0x2000 != 0,
            fragment_offset: (fragment & 0x1fff) << 3,
            ttl: fixed[8],
            protocol: fixed[9],
            source: Ipv4Addr::new(fixed[12], fixed[13], fixed[14], fixed[15]),
            destination: Ipv4Addr::new(fixed[16], fixed[17], fixed[18], fixed[19]),
            header_len,
        })
    }
}

#[cfg(test)]
mod tests;
