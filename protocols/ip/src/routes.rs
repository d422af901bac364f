//! Where packets go next.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use skink_wire::IpCidr;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Route {
    network: IpCidr,
    /// `None` if the network is on the link.
    gateway: Option<IpAddr>,
    /// Whether a router advertisement told of it.
    learned: bool,
}

/// The routes, longest prefix first.
pub(crate) struct Routes(Vec<Route>);

impl Routes {
    /// Routes to the networks of `addresses`, and a default route for the first gateway of each
    /// family.
    pub(crate) fn new(addresses: &[IpCidr], gateways: &[IpAddr]) -> Routes {
        let mut routes = Routes(Vec::new());
        for address in addresses {
            routes.insert(address.network(), None, false);
        }
        for gateway in gateways {
            if !routes.has_default(gateway.is_ipv4()) {
                routes.insert(everywhere(*gateway), Some(*gateway), false);
            }
        }
        routes
    }

    fn insert(&mut self, network: IpCidr, gateway: Option<IpAddr>, learned: bool) {
        let route = Route {
            network,
            gateway,
            learned,
        };
        if !self.0.contains(&route) {
            self.0.push(route);
            // Stable: among equals, the first configured wins.
            self.0
                .sort_by_key(|route| core::cmp::Reverse(route.network.prefix));
        }
    }

    /// The default routers.
    pub(crate) fn gateways(&self) -> impl Iterator<Item = IpAddr> {
        self.0.iter().filter_map(|route| route.gateway)
    }

    /// Whether there is a default route for a family.
    pub(crate) fn has_default(&self, is_ipv4: bool) -> bool {
        self.0
            .iter()
            .any(|route| route.gateway.is_some_and(|via| via.is_ipv4() == is_ipv4))
    }

    /// Makes `router` the default for IPv6 in place of an earlier learned one, or forgets that.
    /// Configured gateways stay.
    pub(crate) fn learn_default(&mut self, router: Option<Ipv6Addr>) {
        self.0.retain(|route| !route.learned);
        if let Some(router) = router.map(IpAddr::V6)
            && !self.has_default(false)
        {
            self.insert(everywhere(router), Some(router), true);
        }
    }

    /// The neighbour to which a unicast packet to `destination` goes.
    #[inline]
    pub(crate) fn next_hop(&self, destination: IpAddr) -> Option<IpAddr> {
        let route = self
            .0
            .iter()
            .find(|route| route.network.contains(destination))?;
        match (route.gateway, destination) {
            // A gateway doesn't forward what is for the link (RFC 4291 section 2.5.6).
            (Some(gateway), IpAddr::V6(addr))
                if addr.is_unicast_link_local() && gateway != destination =>
            {
                None
            }
            (gateway, _) => Some(gateway.unwrap_or(destination)),
        }
    }

    /// Whether `address` is on the link, as a neighbour must be.
    pub(crate) fn is_on_link(&self, address: IpAddr) -> bool {
        self.0.iter().any(|route| match route.gateway {
            Some(gateway) => gateway == address,
            None => route.network.contains(address),
        })
    }
}

/// The default network of the family of `address`.
fn everywhere(address: IpAddr) -> IpCidr {
    let addr = match address {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    IpCidr { addr, prefix: 0 }
}
