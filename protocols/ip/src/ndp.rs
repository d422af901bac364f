//! Neighbour and router discovery (RFC 4861).

use crate::Ip;
use crate::addresses::{ALL_NODES, ALL_ROUTERS};
use crate::neighbours::Heard;
use crate::send;
use core::net::{IpAddr, Ipv6Addr};
use skink_messages::{Counter, FrameOutput, Outbound, RxPacket};
use skink_time::{Duration, Instant};
use skink_wire::icmpv6::{
    Message, NeighbourAdvertisement, NeighbourSolicitation, RouterAdvertisement,
    RouterSolicitation, solicited_node,
};
use skink_wire::{MacAddr, protocol};

/// Proves that a message comes from the link: no router passes it on (RFC 4861 section 3.1).
pub(crate) const HOP_LIMIT: u8 = 255;
/// Room for any message that is sent here.
const MESSAGE_BYTES: usize = 64;

impl Ip {
    /// A solicitation or advertisement from `source`; `false` if it breaks a rule of RFC 4861
    /// section 6.1 or 7.1.
    pub(crate) fn on_ndp<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        packet: &RxPacket<'_>,
        message: &Message<'_>,
        out: &mut O,
    ) -> bool {
        let (IpAddr::V6(source), IpAddr::V6(destination)) = (packet.source, packet.destination)
        else {
            return false;
        };
        if packet.hop_limit != HOP_LIMIT {
            return false;
        }
        match message {
            Message::NeighbourSolicitation(message) => {
                self.on_solicitation(now, source, destination, message, out)
            }
            Message::NeighbourAdvertisement(message) => {
                self.on_advertisement(now, destination, message, out)
            }
            Message::RouterAdvertisement(message) => self.on_router(now, source, message, out),
            // We are no router.
            Message::RouterSolicitation(_) => true,
            _ => false,
        }
    }

    fn on_solicitation<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        message: &NeighbourSolicitation,
        out: &mut O,
    ) -> bool {
        let target = message.target;
        let from_us = message.source_link_layer == Some(self.mac);
        // Somebody wants this address (RFC 4861 section 7.1.1).
        let probes = source.is_unspecified();
        if probes && (message.source_link_layer.is_some() || destination != solicited_node(target))
        {
            return false;
        }
        if from_us || !self.addresses.is_own(target.into()) {
            return true;
        }
        if let Some(mac) = message.source_link_layer {
            if !mac.is_unicast() {
                return false;
            }
            let heard = Heard {
                mac: Some(mac),
                solicited: false,
                replace: true,
                create: true,
            };
            if self.routes.is_on_link(source.into()) {
                let resolved = self.neighbours.heard(now, source.into(), heard);
                self.release(now, resolved, out);
            }
        }
        if self.answers {
            let (to, solicited) = match probes {
                true => (ALL_NODES, false),
                false => (source, true),
            };
            // A router may ask from an address of a network that we don't know: it is answered where it says to be.
            let is_strange = !probes && !self.routes.is_on_link(source.into());
            let station = message.source_link_layer.filter(|_| is_strange);
            self.send_advertisement(now, target, to, solicited, station, out);
        }
        true
    }

    fn on_advertisement<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        destination: Ipv6Addr,
        message: &NeighbourAdvertisement,
        out: &mut O,
    ) -> bool {
        if destination.is_multicast() && message.solicited {
            return false;
        }
        let target = IpAddr::V6(message.target);
        let mac = message.target_link_layer;
        if mac == Some(self.mac) {
            return true;
        }
        if mac.is_some_and(|mac| !mac.is_unicast()) {
            return false;
        }
        if self.addresses.is_own(target) {
            self.conflict(now, target, mac.unwrap_or(MacAddr::UNSPECIFIED));
            return true;
        }
        let heard = Heard {
            mac,
            solicited: message.solicited,
            replace: message.replace,
            create: false,
        };
        let resolved = self.neighbours.heard(now, target, heard);
        let changed = match (message.router, message.solicited) {
            (false, _) => self.routers.is_none(message.target),
            (true, true) => self.routers.answers(message.target),
            (true, false) => false,
        };
        if changed {
            self.use_learned_router();
        }
        self.release(now, resolved, out);
        true
    }

    fn on_router<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        source: Ipv6Addr,
        message: &RouterAdvertisement,
        out: &mut O,
    ) -> bool {
        if !source.is_unicast_link_local() {
            return false;
        }
        if let Some(mac) = message.source_link_layer.filter(|mac| mac.is_unicast()) {
            let heard = Heard {
                mac: Some(mac),
                solicited: false,
                replace: true,
                create: true,
            };
            let resolved = self.neighbours.heard(now, source.into(), heard);
            self.release(now, resolved, out);
        }
        if let Some(mtu) = message.mtu {
            self.path_mtus.advertised(mtu, out.limits().mtu);
        }
        if message.hop_limit != 0 {
            // Less than what all have would let whoever forges this keep our packets from arriving
            // (CVE-2015-2922); FreeBSD takes no less either.
            self.hop_limit_v6 = message.hop_limit.max(send::HOP_LIMIT);
        }
        let (reachable, retransmit) = (message.reachable_ms, message.retransmit_ms);
        self.neighbours.advertised(reachable, retransmit);
        let lifetime = Duration::from_secs(u64::from(message.lifetime_secs));
        if self.routers.heard(now, source, lifetime) {
            self.use_learned_router();
        }
        true
    }

    /// Asks who has `target`; only the neighbour that had it, if that is to be `probed`.
    pub(crate) fn send_solicitation<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        source: Ipv6Addr,
        target: Ipv6Addr,
        probed: bool,
        out: &mut O,
    ) -> bool {
        let message = Message::NeighbourSolicitation(NeighbourSolicitation {
            target,
            source_link_layer: Some(self.mac),
        });
        let destination = if probed {
            target
        } else {
            solicited_node(target)
        };
        self.send_ndp(now, source, destination, &message, None, out)
    }

    fn send_advertisement<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        target: Ipv6Addr,
        destination: Ipv6Addr,
        solicited: bool,
        station: Option<MacAddr>,
        out: &mut O,
    ) {
        let message = Message::NeighbourAdvertisement(NeighbourAdvertisement {
            router: false,
            solicited,
            replace: true,
            target,
            target_link_layer: Some(self.mac),
        });
        self.send_ndp(now, target, destination, &message, station, out);
    }

    pub(crate) fn solicit_routers<O: FrameOutput + ?Sized>(&mut self, now: Instant, out: &mut O) {
        let destination = IpAddr::V6(ALL_ROUTERS);
        let source = self.addresses.source_for(destination, destination);
        if let Some(IpAddr::V6(source)) = source {
            let message = Message::RouterSolicitation(RouterSolicitation {
                source_link_layer: Some(self.mac),
            });
            self.send_ndp(now, source, ALL_ROUTERS, &message, None, out);
        }
    }

    /// Sends a message, to `station` or to whom the routes say.
    fn send_ndp<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        message: &Message<'_>,
        station: Option<MacAddr>,
        out: &mut O,
    ) -> bool {
        let mut bytes = [0; MESSAGE_BYTES];
        let len = message.emit(source, destination, &mut bytes);
        let to = Outbound {
            source: source.into(),
            destination: destination.into(),
            protocol: protocol::ICMPV6,
            hop_limit: Some(HOP_LIMIT),
            traffic_class: 0,
            dont_fragment: true,
        };
        let message = bytes.get(..len).unwrap_or_default();
        let sent = self.send_message(now, &to, message, station, out);
        if sent {
            self.counters.count(Counter::IpNdpOut);
        }
        sent
    }

    /// Tells all stations that an address is ours.
    pub(crate) fn send_announcement<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        address: IpAddr,
        out: &mut O,
    ) {
        match address {
            IpAddr::V4(address) => {
                self.send_arp_request(now, address, address, None, out);
            }
            IpAddr::V6(address) => {
                self.send_advertisement(now, address, ALL_NODES, false, None, out);
            }
        }
    }
}
