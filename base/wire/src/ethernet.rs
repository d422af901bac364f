//! Ethernet II frames (RFC 894, IEEE 802.3).

use crate::{MacAddr, Malformed, bytes};

/// The length of the header, without any VLAN tag.
pub const LEN: usize = 14;

/// The ethertype of IPv4.
pub const IPV4: u16 = 0x0800;
/// The ethertype of ARP.
pub const ARP: u16 = 0x0806;
/// The ethertype of an 802.1Q VLAN tag.
pub const VLAN: u16 = 0x8100;
/// The ethertype of IPv6.
pub const IPV6: u16 = 0x86dd;

/// The header of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// To whom.
    pub destination: MacAddr,
    /// From whom.
    pub source: MacAddr,
    /// What the payload is; values below 0x0600 are 802.3 lengths.
    pub ethertype: u16,
}

impl Header {
    /// Splits a frame into header and payload. The payload may end in padding.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<(Header, &[u8]), Malformed> {
        let (header, payload) = frame
            .split_first_chunk::<LEN>()
            .ok_or(Malformed::TooShort)?;
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1] = *header;
        let header = Header {
            destination: MacAddr([d0, d1, d2, d3, d4, d5]),
            source: MacAddr([s0, s1, s2, s3, s4, s5]),
            ethertype: u16::from_be_bytes([t0, t1]),
        };
        Ok((header, payload))
    }

    /// Writes the header and returns [`LEN`], or 0 where `out` is too short.
    #[inline]
    #[must_use]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        bytes::write(out, &[&self.to_bytes()])
    }

    /// The header as it goes on the wire.
    #[inline]
    pub fn to_bytes(&self) -> [u8; LEN] {
        let mut header = [0; LEN];
        header[..6].copy_from_slice(&self.destination.0);
        header[6..12].copy_from_slice(&self.source.0);
        header[12..].copy_from_slice(&self.ethertype.to_be_bytes());
        header
    }
}

#[cfg(test)]
mod tests;
