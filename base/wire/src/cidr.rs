//! Addresses with a prefix length.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

/// An address and the length of its network prefix, such as `192.0.2.7/24` (RFC 4632 section 3.1).
/// The host bits are kept, so that it can name an interface's address as well as a network.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct IpCidr {
    /// The address, host bits included.
    pub addr: IpAddr,
    /// The number of leading bits that make the network: at most 32 for IPv4 and 128 for IPv6. A
    /// larger value counts as that maximum.
    pub prefix: u8,
}

impl IpCidr {
    /// `addr/prefix`, or an error where the prefix is longer than the address.
    pub const fn new(addr: IpAddr, prefix: u8) -> Result<Self, CidrError> {
        let maximum = width(addr);
        if prefix > maximum {
            return Err(CidrError::PrefixTooLong { prefix, maximum });
        }
        Ok(IpCidr { addr, prefix })
    }

    /// Whether `addr` is of the same family and in the same network.
    pub const fn contains(&self, addr: IpAddr) -> bool {
        match (self.addr, addr) {
            (IpAddr::V4(mine), IpAddr::V4(other)) => {
                (mine.to_bits() ^ other.to_bits()) & mask_v4(self.prefix) == 0
            }
            (IpAddr::V6(mine), IpAddr::V6(other)) => {
                (mine.to_bits() ^ other.to_bits()) & mask_v6(self.prefix) == 0
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }

    /// The same prefix with the host bits cleared.
    pub const fn network(&self) -> IpCidr {
        let addr = match self.addr {
            IpAddr::V4(addr) => {
                IpAddr::V4(Ipv4Addr::from_bits(addr.to_bits() & mask_v4(self.prefix)))
            }
            IpAddr::V6(addr) => {
                IpAddr::V6(Ipv6Addr::from_bits(addr.to_bits() & mask_v6(self.prefix)))
            }
        };
        IpCidr {
            addr,
            prefix: self.prefix,
        }
    }

    /// The directed broadcast address of an IPv4 network. IPv6 has none, nor have networks of one or
    /// two addresses (RFC 3021).
    pub const fn broadcast(&self) -> Option<Ipv4Addr> {
        match self.addr {
            IpAddr::V4(addr) if self.prefix < 31 => {
                Some(Ipv4Addr::from_bits(addr.to_bits() | !mask_v4(self.prefix)))
            }
            IpAddr::V4(_) | IpAddr::V6(_) => None,
        }
    }
}

const fn width(addr: IpAddr) -> u8 {
    match addr {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

const fn mask_v4(prefix: u8) -> u32 {
    // Shifting by the whole width is not defined, so the two ends are cases of their own.
    match prefix {
        0 => 0,
        1..32 => u32::MAX << (32 - prefix),
        32.. => u32::MAX,
    }
}

const fn mask_v6(prefix: u8) -> u128 {
    match prefix {
        0 => 0,
        1..128 => u128::MAX << (128 - prefix),
        128.. => u128::MAX,
    }
}

/// Why a text is not an `ADDRESS/PREFIX`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CidrError {
    /// There is no `/`.
    NoSlash,
    /// What stands before the `/` is neither an IPv4 nor an IPv6 address.
    BadAddress,
    /// What stands after the `/` is not a number from 0 to 255.
    BadPrefix,
    /// The prefix has more bits than the address.
    PrefixTooLong {
        /// The prefix that was given, in bits.
        prefix: u8,
        /// The longest one that the address allows, in bits.
        maximum: u8,
    },
}

impl fmt::Display for CidrError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CidrError::NoSlash => formatter.write_str(
                "no '/' in it: write an address, a slash and a prefix length, such as 192.0.2.1/24 or 2001:db8::1/64",
            ),
            CidrError::BadAddress => formatter.write_str(
                "what stands before the '/' is not an IP address: write one such as 192.0.2.1 or 2001:db8::1",
            ),
            CidrError::BadPrefix => formatter.write_str(
                "what stands after the '/' is not a prefix length: write a whole number of bits, such as 24",
            ),
            CidrError::PrefixTooLong { prefix, maximum } => write!(
                formatter,
                "a prefix of {prefix} bits is longer than the address: write at most {maximum}",
            ),
        }
    }
}

impl core::error::Error for CidrError {}

impl FromStr for IpCidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        let (addr, prefix) = text.split_once('/').ok_or(CidrError::NoSlash)?;
        let addr = addr.parse().map_err(|_| CidrError::BadAddress)?;
        // `u8::from_str` would take a leading plus sign.
        if !prefix.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(CidrError::BadPrefix);
        }
        IpCidr::new(addr, prefix.parse().map_err(|_| CidrError::BadPrefix)?)
    }
}

impl fmt::Display for IpCidr {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.addr, self.prefix)
    }
}

#[cfg(test)]
mod tests;
