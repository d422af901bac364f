//! ARP (RFC 826, RFC 1122 section 2.3.2, RFC 5227).

use crate::Ip;
use crate::addresses::is_station;
use crate::neighbours::Heard;
use core::net::{IpAddr, Ipv4Addr};
use skink_memory::Bytes;
use skink_messages::{Counter, FrameOutput, TxPacket};
use skink_time::Instant;
use skink_wire::arp::{Operation, Packet};
use skink_wire::{MacAddr, arp, ethernet};

impl Ip {
    pub(crate) fn on_arp<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        link: &ethernet::Header,
        packet: &[u8],
        out: &mut O,
    ) {
        self.counters.count(Counter::IpArpIn);
        let Ok(packet) = Packet::parse(packet) else {
            return self.counters.count(Counter::IpDropArp);
        };
        // What we sent to all may come back to us.
        if packet.sender_mac == self.mac {
            return;
        }
        let (sender, target) = (packet.sender_ip.into(), packet.target_ip.into());
        if self.addresses.is_own(sender) {
            self.counters.count(Counter::IpDropArp);
            return self.conflict(now, sender, packet.sender_mac);
        }
        // Who probes for an address has none yet (RFC 5227 section 2.1.1).
        let probes = packet.sender_ip.is_unspecified();
        let asked = packet.operation == Operation::Request && self.addresses.is_own(target);
        if !probes {
            let is_on_link = self.routes.is_on_link(sender);
            if !self.could_send(&packet) || !is_on_link && !asked {
                return self.counters.count(Counter::IpDropArp);
            }
            if is_on_link {
                self.hear_arp(now, link, &packet, out);
            }
        }
        // Who is on no network of ours is answered too (a router asks from whichever of its addresses), but not remembered.
        if asked && self.answers {
            let reply = Packet {
                operation: Operation::Reply,
                sender_mac: self.mac,
                sender_ip: packet.target_ip,
                target_mac: packet.sender_mac,
                target_ip: packet.sender_ip,
            };
            self.send_arp(now, packet.sender_mac, &reply, out);
        }
    }

    /// Whether the sender can be who it says.
    fn could_send(&self, packet: &Packet) -> bool {
        packet.sender_mac.is_unicast()
            && is_station(packet.sender_ip)
            && !self.addresses.is_broadcast(packet.sender_ip)
    }

    /// Takes note of the sender.
    fn hear_arp<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        link: &ethernet::Header,
        packet: &Packet,
        out: &mut O,
    ) {
        let sender = IpAddr::V4(packet.sender_ip);
        let to_us = self.addresses.is_own(packet.target_ip.into());
        let heard = Heard {
            mac: Some(packet.sender_mac),
            solicited: packet.operation == Operation::Reply
                && to_us
                && link.destination == self.mac,
            replace: true,
            // Who asks for us will soon be talked to (RFC 826).
            create: packet.operation == Operation::Request && to_us,
        };
        let resolved = self.neighbours.heard(now, sender, heard);
        self.release(now, resolved, out);
    }

    /// Asks all stations, or one, who has `target`.
    pub(crate) fn send_arp_request<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        source: Ipv4Addr,
        target: Ipv4Addr,
        mac: Option<MacAddr>,
        out: &mut O,
    ) -> bool {
        let request = Packet {
            operation: Operation::Request,
            sender_mac: self.mac,
            sender_ip: source,
            target_mac: MacAddr::UNSPECIFIED,
            target_ip: target,
        };
        self.send_arp(now, mac.unwrap_or(MacAddr::BROADCAST), &request, out)
    }

    fn send_arp<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        destination: MacAddr,
        message: &Packet,
        out: &mut O,
    ) -> bool {
        let mut packet = TxPacket::new([Bytes::EMPTY; 2]);
        let _ = message.emit(packet.prepend(arp::LEN));
        let sent = self.send_frame_slowly(now, destination, ethernet::ARP, &mut packet, out);
        self.counters.count(match sent {
            Ok(()) => Counter::IpArpOut,
            Err(_) => Counter::IpDropOutput,
        });
        sent.is_ok()
    }
}
