//! The control bits.

use core::fmt;
use core::ops::{BitOr, BitOrAssign};

/// The control bits of a header, as they stand in its bytes 12 and 13.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct Flags(u16);

impl Flags {
    /// No bit.
    pub const EMPTY: Flags = Flags(0);
    /// The sender has no more to send.
    pub const FIN: Flags = Flags(0x001);
    /// Synchronise sequence numbers.
    pub const SYN: Flags = Flags(0x002);
    /// Reset the connection.
    pub const RST: Flags = Flags(0x004);
    /// Push.
    pub const PSH: Flags = Flags(0x008);
    /// The acknowledgement field counts.
    pub const ACK: Flags = Flags(0x010);
    /// The urgent pointer counts.
    pub const URG: Flags = Flags(0x020);
    /// Explicit congestion echo (RFC 3168 section 6.1).
    pub const ECE: Flags = Flags(0x040);
    /// Congestion window reduced (RFC 3168 section 6.1).
    pub const CWR: Flags = Flags(0x080);
    /// Accurate ECN, once the nonce sum (RFC 9768).
    pub const AE: Flags = Flags(0x100);

    const ALL: u16 = 0x1ff;

    /// The flags among `bits`; others, such as the header length, are dropped.
    #[inline]
    pub const fn from_bits(bits: u16) -> Flags {
        Flags(bits & Flags::ALL)
    }

    /// The flags as they stand in the header.
    #[inline]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Whether all of `other` are set.
    #[inline]
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any of `other` is set.
    #[inline]
    pub const fn intersects(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }

    /// These and `other`; `|` for constants.
    #[inline]
    pub const fn union(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// These without `other`.
    #[inline]
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }

    /// Whether no bit is set.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for Flags {
    type Output = Flags;
    #[inline]
    fn bitor(self, other: Flags) -> Flags {
        self.union(other)
    }
}

impl BitOrAssign for Flags {
    #[inline]
    fn bitor_assign(&mut self, other: Flags) {
        *self = *self | other;
    }
}

/// The names joined by `|`, such as `SYN|ACK`; `-` for none.
impl fmt::Display for Flags {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [(Flags, &str); 9] = [
            (Flags::FIN, "FIN"),
            (Flags::SYN, "SYN"),
            (Flags::RST, "RST"),
            (Flags::PSH, "PSH"),
            (Flags::ACK, "ACK"),
            (Flags::URG, "URG"),
            (Flags::ECE, "ECE"),
            (Flags::CWR, "CWR"),
            (Flags::AE, "AE"),
        ];
        if self.is_empty() {
            return formatter.write_str("-");
        }
        let mut separator = "";
        for (flag, name) in NAMES {
            if self.contains(flag) {
                write!(formatter, "{separator}{name}")?;
                separator = "|";
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}
