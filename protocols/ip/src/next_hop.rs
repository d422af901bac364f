//! Where a packet goes on the link.

use crate::Ip;
use crate::addresses::Addresses;
use crate::held::Target;
use crate::ip::LastHop;
use crate::routes::Routes;
use core::net::IpAddr;
use skink_messages::FrameOutput;
use skink_time::Instant;
use skink_wire::MacAddr;

/// What a route leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hop {
    /// All stations of a group.
    Group(MacAddr),
    /// A neighbour.
    Neighbour(IpAddr),
}

/// The next hop of a packet that isn't for ourselves.
pub(crate) fn hop(addresses: &Addresses, routes: &Routes, destination: IpAddr) -> Option<Hop> {
    match destination {
        IpAddr::V4(addr) => {
            if addr.is_unspecified() || addr.is_loopback() {
                return None;
            }
            if addr.is_multicast() {
                return Some(Hop::Group(MacAddr::multicast_for_ipv4(addr)));
            }
            if addresses.is_broadcast(addr) {
                return Some(Hop::Group(MacAddr::BROADCAST));
            }
        }
        IpAddr::V6(addr) => {
            if addr.is_unspecified() || addr.is_loopback() {
                return None;
            }
            if addr.is_multicast() {
                return Some(Hop::Group(MacAddr::multicast_for_ipv6(addr)));
            }
        }
    }
    routes.next_hop(destination).map(Hop::Neighbour)
}

impl Ip {
    /// The station to which the last packet went, if it went to `destination` too.
    #[inline(always)]
    pub(crate) fn last_station(&mut self, now: Instant, destination: IpAddr) -> Option<MacAddr> {
        let last = self.last.filter(|last| last.destination == destination)?;
        self.neighbours.resolve(now, last.slot, last.next_hop)
    }

    /// The next hop of a packet that isn't for ourselves.
    pub(crate) fn hop(&self, destination: IpAddr) -> Option<Hop> {
        hop(&self.addresses, &self.routes, destination)
    }

    /// Where a packet goes on the link. Begins to look for a neighbour that isn't known.
    pub(crate) fn target<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        destination: IpAddr,
        out: &mut O,
    ) -> Option<Target> {
        let next_hop = match self.hop(destination)? {
            Hop::Group(mac) => return Some(Target::Station(mac)),
            Hop::Neighbour(next_hop) => next_hop,
        };
        let slot = match self.neighbours.find(next_hop) {
            Some(slot) => slot,
            None => {
                let (slot, lost) = self.neighbours.begin(now, next_hop);
                self.give_up(lost);
                if let Some(due) = self.neighbours.expire(now, slot) {
                    self.on_due(now, due, out);
                }
                slot
            }
        };
        self.last = (!self.claims.concern(destination)).then_some(LastHop {
            destination,
            next_hop,
            slot,
        });
        Some(match self.neighbours.resolve(now, slot, next_hop) {
            Some(mac) => Target::Station(mac),
            None => Target::Unresolved(next_hop),
        })
    }
}
