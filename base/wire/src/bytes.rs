//! Bounds-checked access to byte slices.

use core::net::IpAddr;

use crate::{Malformed, Sum};

/// The `N` bytes at offset `at`.
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], Malformed> {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk::<N>())
        .copied()
        .ok_or(Malformed::TooShort)
}

/// Copies `pieces` one after another to the front of `out` and returns their total length; writes
/// nothing and returns 0 where they don't fit.
pub(crate) fn write(out: &mut [u8], pieces: &[&[u8]]) -> usize {
    let total: usize = pieces.iter().map(|piece| piece.len()).sum();
    let Some(mut rest) = out.get_mut(..total) else {
        return 0;
    };
    for piece in pieces {
        let Some((front, back)) = rest.split_at_mut_checked(piece.len()) else {
            return 0;
        };
        front.copy_from_slice(piece);
        rest = back;
    }
    total
}

/// Writes `value` at offset `at`, or nothing where that is beyond the end.
#[inline]
pub(crate) fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(field) = bytes
        .get_mut(at..)
        .and_then(|rest| rest.first_chunk_mut::<2>())
    {
        *field = value.to_be_bytes();
    }
}

/// The checksum of `header`, whose checksum field is at offset `field` and counts as zero, and
/// `payload` under their pseudo-header.
#[inline]
pub(crate) fn transport_checksum(
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    header: &mut [u8],
    field: usize,
    payload: &[&[u8]],
) -> u16 {
    put_u16(header, field, 0);
    let mut sum = Sum::new();
    sum.add_bytes(header);
    let mut len = header.len();
    for piece in payload {
        sum.add_bytes(piece);
        len = len.saturating_add(piece.len());
    }
    // No IP packet is longer than that; the sum of a longer one would mean nothing anyway.
    let len = u32::try_from(len).unwrap_or(u32::MAX);
    Sum::pseudo_header(source, destination, protocol, len)
        .combine(sum)
        .finish()
}
