use std::fmt;

/// One of the up to 64 processes that share a NIC.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize,
)]
pub struct Owner(u8);

impl Owner {
    /// Most owners that a NIC can have.
    pub const MAXIMUM: u8 = 64;

    /// Owner `number`, or `None` if it is 64 or more.
    pub const fn new(number: u8) -> Option<Owner> {
        if number < Self::MAXIMUM {
            Some(Owner(number))
        } else {
            None
        }
    }

    /// Its number, less than 64.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Its bit in a set of owners.
    pub(crate) const fn bit(self) -> u64 {
        1 << self.0
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
