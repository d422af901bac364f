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
    /// Whether to have an IPv6 link-local address made from `mac`, unless `addresses` has one.
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
        let is_link_local = |cidr: &IpCidr| match cidr.addr {
            IpAddr::V4(_) => false,
            IpAddr::V6(addr) => addr.is_unicast_link_local(),
        };
        if self.link_local && !all.iter().any(is_link_local) {
            all.push(IpCidr {
                addr: IpAddr::V6(link_local(self.mac)),
                prefix: 64,
            });
        }
        all
    }
}

/// The link-local address with the modified EUI-64 of `mac` (RFC 4291 appendix A).
fn link_local(mac: MacAddr) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.0;
    Ipv6Addr::from([
        0xfe,
        0x80,
        0,
        0,
        0,
        0,
        0,
        0,
        a ^ 2,
        b,
        c,
        0xff,
        0xfe,
        d,
        e,
        f,
    ])
}
