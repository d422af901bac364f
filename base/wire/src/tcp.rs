//! The TCP header (RFC 9293 section 3.1).

use core::net::IpAddr;

use crate::{Malformed, SeqNum, Sum, bytes, checksum, protocol};

mod flags;
mod options;

pub use flags::Flags;
pub use options::{MAXIMUM_WINDOW_SCALE, Options, SackBlocks, Timestamps};

/// The length of a header without options.
pub const LEN: usize = 20;
/// The length of the longest header.
pub const MAXIMUM_LEN: usize = 60;
/// The most bytes that options can take.
pub const MAXIMUM_OPTIONS_LEN: usize = MAXIMUM_LEN - LEN;
/// The offset of the checksum field, for NICs that fill it in.
pub const CHECKSUM_OFFSET: usize = 16;

/// The fixed fields of a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The sender's port.
    pub source_port: u16,
    /// The receiver's port.
    pub destination_port: u16,
    /// The sequence number of the first payload byte, or of the SYN.
    pub seq: SeqNum,
    /// The next sequence number that the sender expects, where [`Flags::ACK`] is set.
    pub ack: SeqNum,
    /// The control bits.
    pub flags: Flags,
    /// The receive window as it stands in the header, not scaled.
    pub window: u16,
    /// The urgent pointer, where [`Flags::URG`] is set.
    pub urgent: u16,
    /// The length of the header that was parsed, options included, in bytes. [`emit`] ignores it.
    pub header_len: u8,
}

impl Header {
    /// How much of the sequence space a segment with this header and `payload_len` bytes takes: SYN and
    /// FIN count as one each (RFC 9293 section 3.4).
    #[inline]
    pub const fn sequence_len(&self, payload_len: u32) -> u32 {
        payload_len
            .wrapping_add(self.flags.contains(Flags::SYN) as u32)
            .wrapping_add(self.flags.contains(Flags::FIN) as u32)
    }
}

/// Splits a segment into header, options and payload. Unknown options, and known ones of the wrong
/// length, are skipped (RFC 9293 section 3.1, MUST-6); an option that claims fewer than two bytes or
/// runs out of the header makes the segment malformed (MUST-7). The checksum is not verified; see
/// [`checksum_is_valid`].
#[inline]
pub fn parse(segment: &[u8]) -> Result<(Header, Options, &[u8]), Malformed> {
    let fixed = segment.first_chunk::<LEN>().ok_or(Malformed::TooShort)?;
    let header_len = (fixed[12] >> 4) * 4;
    if usize::from(header_len) < LEN {
        return Err(Malformed::BadHeaderLength);
    }
    let (head, payload) = segment
        .split_at_checked(usize::from(header_len))
        .ok_or(Malformed::BadHeaderLength)?;
    let options = Options::parse(head.get(LEN..).unwrap_or_default())?;
    let header = Header {
        source_port: u16::from_be_bytes([fixed[0], fixed[1]]),
        destination_port: u16::from_be_bytes([fixed[2], fixed[3]]),
        seq: SeqNum(u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]])),
        ack: SeqNum(u32::from_be_bytes([
            fixed[8], fixed[9], fixed[10], fixed[11],
        ])),
        flags: Flags::from_bits(u16::from_be_bytes([fixed[12], fixed[13]])),
        window: u16::from_be_bytes([fixed[14], fixed[15]]),
        urgent: u16::from_be_bytes([fixed[18], fixed[19]]),
        header_len,
    };
    Ok((header, options, payload))
}

/// The length of the header that [`emit`] writes with these options, in bytes.
#[inline]
pub fn emitted_len(options: &Options) -> usize {
    LEN + options.emitted_len()
}

/// Writes the header and its options, padded to a multiple of four, with a checksum field of zero, and
/// returns the length of both; writes nothing and returns 0 where `out` is too short. Selective
/// acknowledgements that don't fit into 40 bytes of options are left out, the last ones first.
#[inline]
#[must_use]
pub fn emit(header: &Header, options: &Options, out: &mut [u8]) -> usize {
    let len = emitted_len(options);
    let Some((fixed, rest)) = out
        .get_mut(..len)
        .and_then(|out| out.split_first_chunk_mut::<LEN>())
    else {
        return 0;
    };
    // `len` is at most 60, so this is at most 15 << 12.
    let words = ((len / 4) as u16) << 12;
    fixed[0..2].copy_from_slice(&header.source_port.to_be_bytes());
    fixed[2..4].copy_from_slice(&header.destination_port.to_be_bytes());
    fixed[4..8].copy_from_slice(&header.seq.0.to_be_bytes());
    fixed[8..12].copy_from_slice(&header.ack.0.to_be_bytes());
    fixed[12..14].copy_from_slice(&(words | header.flags.bits()).to_be_bytes());
    fixed[14..16].copy_from_slice(&header.window.to_be_bytes());
    fixed[16..18].copy_from_slice(&[0, 0]);
    fixed[18..20].copy_from_slice(&header.urgent.to_be_bytes());
    options.emit(rest);
    len
}

/// Whether the checksum of a segment is right.
#[inline]
pub fn checksum_is_valid(source: IpAddr, destination: IpAddr, segment: &[u8]) -> bool {
    checksum::transport_checksum_is_valid(source, destination, protocol::TCP, segment)
}

/// Fills in the checksum of a segment whose header and options are in `header` and whose payload is
/// `payload`, piece by piece (two where a ring wraps). Does nothing to a header that is too short.
#[inline]
pub fn fill_checksum(source: IpAddr, destination: IpAddr, header: &mut [u8], payload: &[&[u8]]) {
    let value = bytes::transport_checksum(
        source,
        destination,
        protocol::TCP,
        header,
        CHECKSUM_OFFSET,
        payload,
    );
    bytes::put_u16(header, CHECKSUM_OFFSET, value);
}

/// Fills in the checksum of a whole segment.
#[inline]
pub fn set_checksum(source: IpAddr, destination: IpAddr, segment: &mut [u8]) {
    fill_checksum(source, destination, segment, &[]);
}

/// Puts the sum of the pseudo-header into the checksum field, for a NIC that adds the rest.
/// `segment_len` is the length of header, options and payload.
#[inline]
pub fn set_partial_checksum(
    source: IpAddr,
    destination: IpAddr,
    header: &mut [u8],
    segment_len: u32,
) {
    let sum = Sum::pseudo_header(source, destination, protocol::TCP, segment_len);
    bytes::put_u16(header, CHECKSUM_OFFSET, sum.fold());
}

#[cfg(test)]
mod tests;
