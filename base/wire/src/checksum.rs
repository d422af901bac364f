//! The Internet checksum (RFC 1071).

use crate::udp;
use core::net::IpAddr;

/// Whether a parser verifies the checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChecksumPolicy {
    /// Verify it.
    Verify,
    /// Take it as good: the NIC has verified it, or the sender on a virtual link never filled it in.
    Trust,
}

/// A running one's-complement sum.
///
/// The sum of 16-bit words doesn't depend on byte order (RFC 1071 section 2, B), so the words are
/// added as they lie in memory, eight bytes at a time, and turned once at the end. A piece that
/// follows an odd number of bytes has its bytes in the other halves of the words, so its sum is
/// turned before it is added.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Sum {
    /// The sum in memory order, with end-around carry.
    accumulated: u64,
    /// Whether the number of bytes so far is odd.
    odd: bool,
}

impl Sum {
    /// The sum of nothing.
    pub const fn new() -> Self {
        Sum {
            accumulated: 0,
            odd: false,
        }
    }

    /// The sum of the pseudo-header of TCP, UDP or ICMPv6: `len` is that of the transport header and
    /// payload (RFC 9293 section 3.1, RFC 768, RFC 8200 section 8.1).
    #[inline]
    pub fn pseudo_header(source: IpAddr, destination: IpAddr, protocol: u8, len: u32) -> Self {
        let mut sum = Sum::new();
        for addr in [source, destination] {
            match addr {
                IpAddr::V4(addr) => sum.add_u32(addr.to_bits()),
                IpAddr::V6(addr) => sum.add_bytes(&addr.octets()),
            }
        }
        sum.add_u16(u16::from(protocol));
        sum.add_u32(len);
        sum
    }

    /// Adds `bytes`, which follow whatever was added before.
    #[inline(always)]
    pub fn add_bytes(&mut self, bytes: &[u8]) {
        let piece = sum_words(bytes);
        self.add_piece(piece);
        self.odd ^= bytes.len() & 1 != 0;
    }

    /// Adds the two bytes of `value`, most significant first.
    #[inline]
    pub fn add_u16(&mut self, value: u16) {
        self.add_piece(u64::from(value.to_be()));
    }

    /// Adds the four bytes of `value`, most significant first.
    #[inline]
    pub fn add_u32(&mut self, value: u32) {
        self.add_piece(u64::from(value.to_be()));
    }

    /// The sum of the bytes of `self` followed by those of `next`, which was summed on its own.
    #[inline]
    pub fn combine(mut self, next: Sum) -> Sum {
        self.add_piece(next.accumulated);
        self.odd ^= next.odd;
        self
    }

    /// The 16-bit sum, not complemented: what goes into the checksum field for a NIC to finish. It is
    /// `0xffff` over data whose checksum is right.
    #[inline]
    pub fn fold(self) -> u16 {
        u16::from_be(fold16(self.accumulated))
    }

    /// The checksum: the complement of [`fold`](Self::fold). In UDP, a result of 0 is sent as
    /// `0xffff` (RFC 768).
    #[inline]
    pub fn finish(self) -> u16 {
        !self.fold()
    }

    /// The checksum of a transport header that has it at byte `offset`, which tells UDP (6) from the others: there 0 means
    /// "none", and is sent as `0xffff` (RFC 768).
    #[inline]
    pub fn finish_at(self, offset: u8) -> u16 {
        match self.finish() {
            0 if usize::from(offset) == udp::CHECKSUM_OFFSET => 0xffff,
            checksum => checksum,
        }
    }

    #[inline]
    fn add_piece(&mut self, piece: u64) {
        let piece = if self.odd {
            u64::from(fold16(piece).swap_bytes())
        } else {
            piece
        };
        self.accumulated = add_carry(self.accumulated, piece);
    }
}

/// The checksum of `pieces`, one after another.
pub fn checksum(pieces: &[&[u8]]) -> u16 {
    let mut sum = Sum::new();
    for piece in pieces {
        sum.add_bytes(piece);
    }
    sum.finish()
}

/// Whether the checksum inside `segment` (a whole TCP segment, UDP datagram or ICMPv6 message without
/// link padding) is right. A UDP checksum of 0 means "none" and is the caller's to notice.
#[inline]
pub fn transport_checksum_is_valid(
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    segment: &[u8],
) -> bool {
    let Ok(len) = u32::try_from(segment.len()) else {
        return false;
    };
    let mut sum = Sum::pseudo_header(source, destination, protocol, len);
    sum.add_bytes(segment);
    sum.fold() == 0xffff
}

#[inline]
const fn add_carry(a: u64, b: u64) -> u64 {
    let (sum, carry) = a.overflowing_add(b);
    // Where it carried, the sum is at most 2^64 - 2, so one more always fits.
    sum.wrapping_add(carry as u64)
}

/// Folds the carries of four 16-bit columns into one.
#[inline]
const fn fold16(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + ((sum >> 16) & 0xffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    sum as u16
}

/// Sums `bytes` as words in memory order; a last odd byte is padded with a zero.
#[inline(always)]
fn sum_words(bytes: &[u8]) -> u64 {
    // Halves of 32 bits in 64-bit lanes can't overflow within 2^31 steps (64 GiB), so the lanes are
    // independent and the compiler may put them into vector registers.
    let (blocks, tail) = bytes.as_chunks::<32>();
    let mut lanes = [0u64; 4];
    for block in blocks {
        let (words, _) = block.as_chunks::<8>();
        for (lane, word) in lanes.iter_mut().zip(words) {
            let word = u64::from_ne_bytes(*word);
            *lane = lane.wrapping_add((word & 0xffff_ffff) + (word >> 32));
        }
    }
    let mut sum = lanes.into_iter().fold(0, add_carry);
    let (words, tail) = tail.as_chunks::<8>();
    for word in words {
        sum = add_carry(sum, u64::from_ne_bytes(*word));
    }
    // Any multiple of two bytes may be moved: the sum is of 16-bit words. An IPv4 header ends here.
    let (halves, tail) = tail.as_chunks::<4>();
    for half in halves {
        sum = add_carry(sum, u64::from(u32::from_ne_bytes(*half)));
    }
    let (pairs, tail) = tail.as_chunks::<2>();
    for pair in pairs {
        sum = add_carry(sum, u64::from(u16::from_ne_bytes(*pair)));
    }
    if let [last] = tail {
        sum = add_carry(sum, u64::from(u16::from_ne_bytes([*last, 0])));
    }
    sum
}

#[cfg(test)]
mod tests;
