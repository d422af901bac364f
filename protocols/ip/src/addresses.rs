//! Which addresses are ours, and from which one to send.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use skink_wire::{IpCidr, icmpv6::solicited_node};

/// All hosts on the link (RFC 1112 section 4).
const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
/// All nodes on the link (RFC 4291 section 2.7.1).
pub(crate) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// All routers on the link (RFC 4291 section 2.7.1).
pub(crate) const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// Our addresses: few, so that going through them costs less than hashing.
pub(crate) struct Addresses {
    own: Vec<IpCidr>,
    /// The broadcast addresses of their networks, each once.
    broadcasts: Vec<Ipv4Addr>,
}

impl Addresses {
    pub(crate) fn new(addresses: Vec<IpCidr>) -> Addresses {
        let mut broadcasts: Vec<_> = addresses.iter().filter_map(IpCidr::broadcast).collect();
        broadcasts.sort_unstable();
        broadcasts.dedup();
        Addresses {
            own: addresses,
            broadcasts,
        }
    }

    pub(crate) fn all(&self) -> &[IpCidr] {
        &self.own
    }

    /// Whether `address` is a unicast address of ours.
    #[inline]
    pub(crate) fn is_own(&self, address: IpAddr) -> bool {
        self.own.iter().any(|own| own.addr == address)
    }

    /// Whether a packet to `address` is for us among others: broadcast, or a group that we are in.
    pub(crate) fn is_joined(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(ALL_HOSTS) => self.own.iter().any(|own| own.addr.is_ipv4()),
            IpAddr::V4(addr) => self.is_broadcast(addr),
            IpAddr::V6(ALL_NODES) => self.own.iter().any(|own| own.addr.is_ipv6()),
            IpAddr::V6(addr) if addr.is_multicast() => self.own.iter().any(|own| match own.addr {
                IpAddr::V4(_) => false,
                IpAddr::V6(own) => solicited_node(own) == addr,
            }),
            IpAddr::V6(_) => false,
        }
    }

    /// The groups in which neighbours are asked for our addresses, each once.
    pub(crate) fn solicited_nodes(&self) -> Vec<Ipv6Addr> {
        let mut groups = Vec::new();
        for own in &self.own {
            if let IpAddr::V6(own) = own.addr
                && !groups.contains(&solicited_node(own))
            {
                groups.push(solicited_node(own));
            }
        }
        groups
    }

    /// Our address on this link only.
    pub(crate) fn link_local(&self) -> Option<Ipv6Addr> {
        self.own.iter().find_map(|own| match own.addr {
            IpAddr::V6(addr) if addr.is_unicast_link_local() => Some(addr),
            IpAddr::V4(_) | IpAddr::V6(_) => None,
        })
    }

    /// Whether `addr` is the limited broadcast address or that of a connected network.
    #[inline]
    pub(crate) fn is_broadcast(&self, addr: Ipv4Addr) -> bool {
        addr.is_broadcast() || self.broadcasts.contains(&addr)
    }

    /// Whether packets to `addr` are for all of a network, and not just for us.
    #[inline]
    pub(crate) fn is_for_all(&self, addr: Ipv4Addr) -> bool {
        self.is_broadcast(addr) && !self.is_own(addr.into())
    }

    /// Whether a packet can have come from `source` (RFC 1122 section 3.2.1.3, RFC 4291 section 2).
    /// The unspecified IPv6 address passes: solicitations may come from it.
    #[inline]
    pub(crate) fn is_good_source(&self, source: IpAddr) -> bool {
        let possible = match source {
            IpAddr::V4(addr) => is_station(addr) && !self.broadcasts.contains(&addr),
            IpAddr::V6(addr) => !addr.is_multicast() && !addr.is_loopback(),
        };
        possible && !self.is_own(source)
    }

    /// The address to send from to `destination`, whose next hop is `next_hop`: for IPv4 the one
    /// that shares the longest prefix with the next hop; for IPv6 rules 1, 2 and 8 of RFC 6724
    /// section 5 (same address, appropriate scope, longest matching prefix).
    pub(crate) fn source_for(&self, destination: IpAddr, next_hop: IpAddr) -> Option<IpAddr> {
        let candidates = self.own.iter().map(|own| own.addr);
        match (destination, next_hop) {
            (IpAddr::V4(_), IpAddr::V4(next_hop)) => first_best(candidates, |own| match own {
                IpAddr::V4(own) => Some((own.to_bits() ^ next_hop.to_bits()).leading_zeros()),
                IpAddr::V6(_) => None,
            }),
            (IpAddr::V6(destination), IpAddr::V6(_)) => first_best(candidates, |own| match own {
                IpAddr::V4(_) => None,
                IpAddr::V6(own) => Some(rank(own, destination)),
            }),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => None,
        }
    }
}

/// Whether an IPv4 address is one that a station may have: not in 0/8, 127/8, nor from 224/4 on.
#[inline]
pub(crate) fn is_station(address: Ipv4Addr) -> bool {
    let [first, ..] = address.octets();
    first != 0 && first != 127 && first < 224
}

/// The first of the candidates with the highest rank.
fn first_best<R: Ord>(
    candidates: impl Iterator<Item = IpAddr>,
    rank: impl Fn(IpAddr) -> Option<R>,
) -> Option<IpAddr> {
    let mut best: Option<(R, IpAddr)> = None;
    for candidate in candidates {
        if let Some(rank) = rank(candidate)
            && best.as_ref().is_none_or(|(least, _)| rank > *least)
        {
            best = Some((rank, candidate));
        }
    }
    best.map(|(_, address)| address)
}

fn rank(own: Ipv6Addr, destination: Ipv6Addr) -> (bool, i8, u32) {
    let (ours, theirs) = (scope(own), scope(destination));
    // The smallest scope that reaches the destination; if none does, the widest.
    let scope_rank = if ours >= theirs { 32 - ours } else { ours - 32 };
    // Beyond 64 bits it is the host part that happens to be alike (RFC 6724 section 2.2).
    let common = (own.to_bits() ^ destination.to_bits())
        .leading_zeros()
        .min(64);
    (own == destination, scope_rank, common)
}

/// The scope as a multicast address would name it (RFC 4291 section 2.7, RFC 6724 section 3.1).
fn scope(address: Ipv6Addr) -> i8 {
    let [_, second, ..] = address.octets();
    if address.is_multicast() {
        // Four bits.
        (second & 0xf) as i8
    } else if address.is_unicast_link_local() || address.is_loopback() {
        2
    } else {
        14
    }
}
