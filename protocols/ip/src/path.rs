//! The ways to destinations, as transports ask for them: in `ip`, or beside a transport that is in
//! another process.

use crate::addresses::Addresses;
use crate::next_hop::{Hop, hop};
use crate::path_mtu::{ALL_V6, Advertised, least};
use crate::routes::Routes;
use core::net::{IpAddr, Ipv4Addr};
use foldhash::fast::FixedState;
use skink_messages::{LinkLimits, NetworkView, Path};
use std::collections::HashMap;

/// Largest packet to ourselves in bytes: what the length field of IPv4 can say.
const LOOPED_BYTES: u32 = 65_535;

/// The way to `destination`, whose MTU is `known` to be less than the link's; see [`crate::Ip::path`].
pub(crate) fn find(
    addresses: &Addresses,
    routes: &Routes,
    source: Option<IpAddr>,
    destination: IpAddr,
    known: Option<u32>,
    limits: &LinkLimits,
) -> Option<Path> {
    let is_good =
        |source: &IpAddr| addresses.is_own(*source) && source.is_ipv4() == destination.is_ipv4();
    if source.is_some_and(|source| !is_good(&source)) {
        return None;
    }
    if addresses.is_own(destination) {
        return Some(Path {
            source: source.unwrap_or(destination),
            mtu: LOOPED_BYTES,
            cut_bytes: LOOPED_BYTES,
        });
    }
    let next_hop = match hop(addresses, routes, destination)? {
        Hop::Group(_) => routes.next_hop(destination).unwrap_or(destination),
        Hop::Neighbour(next_hop) => next_hop,
    };
    let source = match source {
        Some(source) => source,
        None => addresses.source_for(destination, next_hop)?,
    };
    let mtu = known.map_or(limits.mtu, |mtu| mtu.min(limits.mtu));
    Some(Path {
        source,
        mtu,
        cut_bytes: limits.cut_bytes.max(mtu),
    })
}

/// Answers what a transport asks of its [`Network`](skink_messages::Network), from what an `ip` in
/// another process has published ([`crate::Ip::view`]).
pub struct Replica {
    addresses: Addresses,
    routes: Routes,
    link_v6: Option<u32>,
    advertised: Advertised,
    path_mtus: HashMap<IpAddr, u32, FixedState>,
}

impl Replica {
    /// What `view` says, after what `last` was told. `seed` makes the order of hash tables hard to guess.
    pub fn new(view: NetworkView, last: Option<&Replica>, seed: u64) -> Replica {
        let NetworkView {
            addresses,
            gateways,
            path_mtus,
        } = view;
        let mut mtus = HashMap::with_hasher(FixedState::with_seed(seed));
        mtus.extend(path_mtus);
        let link_v6 = mtus.remove(&ALL_V6);
        let mut advertised = last.map_or_else(Advertised::default, |last| last.advertised);
        if let Some(mtu) = link_v6 {
            advertised.hear(mtu);
        }
        Replica {
            routes: Routes::new(&addresses, &gateways),
            addresses: Addresses::new(addresses),
            link_v6,
            advertised,
            path_mtus: mtus,
        }
    }

    /// As [`crate::Ip::path`].
    pub fn path(
        &self,
        source: Option<IpAddr>,
        destination: IpAddr,
        limits: &LinkLimits,
    ) -> Option<Path> {
        let path = self.path_mtus.get(&destination).copied();
        let known = least(path, self.link_v6, destination);
        find(
            &self.addresses,
            &self.routes,
            source,
            destination,
            known,
            limits,
        )
    }

    /// As [`crate::Ip::raises`].
    pub fn raises(&self) -> u32 {
        self.advertised.raises
    }

    /// As [`crate::Ip::is_local`].
    pub fn is_local(&self, address: IpAddr) -> bool {
        self.addresses.is_own(address) || self.addresses.is_joined(address)
    }

    /// As [`crate::Ip::is_broadcast`].
    pub fn is_broadcast(&self, address: Ipv4Addr) -> bool {
        self.addresses.is_for_all(address)
    }
}
