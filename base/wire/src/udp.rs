//! The UDP header (RFC 768).

use core::net::IpAddr;

use crate::{Malformed, Sum, bytes, checksum, protocol};

/// The length of the header.
pub const LEN: usize = 8;
/// The offset of the checksum field, for NICs that fill it in.
pub const CHECKSUM_OFFSET: usize = 6;

/// The header of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The sender's port; 0 where no answer is wanted.
    pub source_port: u16,
    /// The receiver's port.
    pub destination_port: u16,
    /// Header and payload together, in bytes.
    pub length: u16,
    /// The checksum field. 0 means that the sender made none: allowed over IPv4, forbidden over IPv6
    /// (RFC 8200 section 8.1), which the caller has to look at.
    pub checksum: u16,
}

impl Header {
    /// The header of a datagram with `payload_len` bytes of payload, the checksum still 0; `None` where
    /// they don't fit into one datagram.
    pub fn new(source_port: u16, destination_port: u16, payload_len: usize) -> Option<Header> {
        let length = u16::try_from(payload_len.checked_add(LEN)?).ok()?;
        Some(Header {
            source_port,
            destination_port,
            length,
            checksum: 0,
        })
    }

    /// Splits a datagram into header and payload. What follows the length of the datagram is left out.
    /// The checksum is not verified; see [`checksum_is_valid`].
    #[inline]
    pub fn parse(datagram: &[u8]) -> Result<(Header, &[u8]), Malformed> {
        let fixed = datagram.first_chunk::<LEN>().ok_or(Malformed::TooShort)?;
        let [s0, s1, d0, d1, l0, l1, c0, c1] = *fixed;
        let header = Header {
            source_port: u16::from_be_bytes([s0, s1]),
            destination_port: u16::from_be_bytes([d0, d1]),
            length: u16::from_be_bytes([l0, l1]),
            checksum: u16::from_be_bytes([c0, c1]),
        };
        let payload = datagram
            .get(LEN..usize::from(header.length))
            .ok_or(Malformed::BadTotalLength)?;
        Ok((header, payload))
    }

    /// Writes the header as it is and returns [`LEN`], or 0 where `out` is too short.
    #[inline]
    #[must_use]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        bytes::write(
            out,
            &[
                &self.source_port.to_be_bytes(),
                &self.destination_port.to_be_bytes(),
                &self.length.to_be_bytes(),
                &self.checksum.to_be_bytes(),
            ],
        )
    }
}

/// Whether the checksum of a datagram is right. Only the bytes that its length field covers count. A
/// field of 0, "no checksum", is the caller's to accept or refuse before asking.
pub fn checksum_is_valid(source: IpAddr, destination: IpAddr, datagram: &[u8]) -> bool {
    let Ok([high, low]) = bytes::array(datagram, 4) else {
        return false;
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    datagram.get(..length).is_some_and(|datagram| {
        checksum::transport_checksum_is_valid(source, destination, protocol::UDP, datagram)
    })
}

/// Fills in the checksum of a datagram whose header is in `header` and whose payload is `payload`,
/// piece by piece. A sum of 0 becomes `0xffff`. Does nothing to a header that is too short.
pub fn fill_checksum(source: IpAddr, destination: IpAddr, header: &mut [u8], payload: &[&[u8]]) {
    let value = bytes::transport_checksum(source, destination, protocol::UDP, header, 6, payload);
    bytes::put_u16(header, 6, if value == 0 { 0xffff } else { value });
}

/// Fills in the checksum of a whole datagram.
pub fn set_checksum(source: IpAddr, destination: IpAddr, datagram: &mut [u8]) {
    fill_checksum(source, destination, datagram, &[]);
}

/// Puts the sum of the pseudo-header into the checksum field, for a NIC that adds the rest.
/// `datagram_len` is the length of header and payload.
pub fn set_partial_checksum(
    source: IpAddr,
    destination: IpAddr,
    header: &mut [u8],
    datagram_len: u32,
) {
    let sum = Sum::pseudo_header(source, destination, protocol::UDP, datagram_len);
    bytes::put_u16(header, 6, sum.fold());
}

#[cfg(test)]
mod tests;
