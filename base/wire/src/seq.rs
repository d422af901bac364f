//! TCP sequence numbers.

use core::fmt;
use core::ops::{Add, AddAssign, Sub, SubAssign};

/// A sequence number: a point on a circle of 2^32 (RFC 9293 section 3.4).
///
/// It deliberately has no `Ord`: "before" holds only between numbers less than 2^31 apart, and is not
/// transitive around the circle. Two numbers exactly 2^31 apart are each `lt` the other, as in Linux.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
#[repr(transparent)]
pub struct SeqNum(pub u32);

impl SeqNum {
    /// Whether `self` comes before `other`.
    #[inline]
    pub const fn lt(self, other: SeqNum) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }

    /// Whether `self` comes before `other` or is equal to it.
    #[inline]
    pub const fn le(self, other: SeqNum) -> bool {
        self.0 == other.0 || self.lt(other)
    }

    /// Whether `self` comes after `other`.
    #[inline]
    pub const fn gt(self, other: SeqNum) -> bool {
        other.lt(self)
    }

    /// Whether `self` comes after `other` or is equal to it.
    #[inline]
    pub const fn ge(self, other: SeqNum) -> bool {
        other.le(self)
    }

    /// The number of bytes from `self` forward to `later`, modulo 2^32.
    #[inline]
    pub const fn distance_to(self, later: SeqNum) -> u32 {
        later.0.wrapping_sub(self.0)
    }

    /// The later of the two.
    #[inline]
    pub const fn max(self, other: SeqNum) -> SeqNum {
        if self.lt(other) { other } else { self }
    }

    /// The earlier of the two.
    #[inline]
    pub const fn min(self, other: SeqNum) -> SeqNum {
        if other.lt(self) { other } else { self }
    }
}

impl Add<u32> for SeqNum {
    type Output = SeqNum;
    #[inline]
    fn add(self, bytes: u32) -> SeqNum {
        SeqNum(self.0.wrapping_add(bytes))
    }
}

impl Sub<u32> for SeqNum {
    type Output = SeqNum;
    #[inline]
    fn sub(self, bytes: u32) -> SeqNum {
        SeqNum(self.0.wrapping_sub(bytes))
    }
}

impl AddAssign<u32> for SeqNum {
    #[inline]
    fn add_assign(&mut self, bytes: u32) {
        *self = *self + bytes;
    }
}

impl SubAssign<u32> for SeqNum {
    #[inline]
    fn sub_assign(&mut self, bytes: u32) {
        *self = *self - bytes;
    }
}

impl fmt::Display for SeqNum {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, formatter)
    }
}

#[cfg(test)]
mod tests;
