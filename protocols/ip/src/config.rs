use core::net::{IpAddr, Ipv6Addr};
use skink_wire::{IpCidr, MacAddr};

/// What `ip` needs to know.
#[derive(Clone, Debug)]
pub struct IpConfig {
    /// Our address on the link.
    pub mac: MacAddr,
    /// Our addresses, each with the prefix of its network, which is on the link.
    pub addresses: Vec<IpCidr>,
    /// Default gateways, one for each family (others are ignored). They count as on the link.
    pub gateways: Vec<IpAddr>,
    /// Makes identifications and the order of hash tables hard to guess.
    pub seed: u64,
    /// Whether ARP, neighbour, router and multicast listener discovery are answered (or begun) here. Off for all
    /// but one of several owners of an address. (An echo request reaches one of them anyway, which answers it.)
    pub answers: bool,
    /// Whether to have an IPv6 link-local address that is made up, unless `addresses` has one. Programs don't have it.
    pub link_local: bool,
}

impl IpConfig {
    /// The usual: answers, no gateways, a link-local address if there is any IPv6 address.
    pub fn new(mac: MacAddr, addresses: Vec<IpCidr>) -> IpConfig {
        let link_local = addresses.iter().any(|cidr| cidr.addr.is_ipv6());
        IpConfig {
            mac,
            addresses,
            gateways: Vec::new(),
            seed: 0,
            answers: true,
            link_local,
        }
    }

    /// The addresses with the link-local one.
    pub(crate) fn all_addresses(&self) -> Vec<IpCidr> {
        let mut all = self.addresses.clone();
        if self.link_local && !self.has_link_local() {
            all.push(IpCidr {
                addr: IpAddr::V6(link_local(self.mac, &self.addresses)),
                prefix: 64,
            });
        }
        all
    }

    /// Whether `addresses` has a link-local one.
    pub(crate) fn has_link_local(&self) -> bool {
        let mut addresses = self.addresses.iter();
        addresses.any(|cidr| is_link_local(cidr.addr))
    }
}

pub(crate) fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// A link-local address that the kernel's own on the same interface isn't, which has the EUI-64 of the same `mac`, nor that of another stack
/// there; and the same each time, and in each process (in the manner of RFC 7217).
fn link_local(mac: MacAddr, addresses: &[IpCidr]) -> Ipv6Addr {
    let first = addresses.iter().find_map(|cidr| match cidr.addr {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => Some(address.octets()),
    });
    // FNV-1a, 64 bits.
    let bytes = mac.0.into_iter().chain(first.unwrap_or_default());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    Ipv6Addr::from_bits(0xfe80 << 112 | u128::from(hash))
}
