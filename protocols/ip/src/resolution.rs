//! Asking for neighbours, and what becomes of the packets that wait for them.

use crate::Ip;
use crate::held::{Held, Target};
use crate::neighbours::Due;
use crate::next_hop::Hop;
use crate::quoted::Quoted;
use core::net::IpAddr;
use skink_messages::{Counter, ErrorKind, FrameOutput};
use skink_time::Instant;
use skink_wire::{MacAddr, ipv6};
use std::collections::VecDeque;

impl Ip {
    /// Handles neighbours' timers.
    pub(crate) fn run_neighbours<O: FrameOutput + ?Sized>(&mut self, now: Instant, out: &mut O) {
        let due = self.neighbours.next_deadline();
        if due.is_none_or(|due| due > now) {
            return;
        }
        for slot in 0..self.neighbours.slots() {
            if let Some(due) = self.neighbours.expire(now, slot) {
                self.on_due(now, due, out);
            }
        }
        self.neighbours.rearm();
    }

    pub(crate) fn on_due<O: FrameOutput + ?Sized>(&mut self, now: Instant, due: Due, out: &mut O) {
        match due {
            Due::Solicit { address, mac } => {
                if !self.solicit(now, address, mac, out) {
                    self.neighbours.unsent(now, address);
                }
            }
            Due::Failed { address, held } => {
                let changed = match address {
                    IpAddr::V6(router) => self.routers.is_silent(router),
                    IpAddr::V4(_) => false,
                };
                if changed {
                    self.use_learned_router();
                }
                match changed && self.routers.has_good() {
                    true => self.send_otherwise(now, address, held, out),
                    false => self.give_up(held),
                }
            }
        }
    }

    /// Packets that waited for a router that doesn't answer leave by another one.
    fn send_otherwise<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        silent: IpAddr,
        held: VecDeque<Held>,
        out: &mut O,
    ) {
        let mut lost = VecDeque::new();
        for held in held {
            let header = ipv6::Header::parse_quoted(held.bytes());
            let destination = header.map(|(header, _)| IpAddr::V6(header.destination));
            let destination = destination.ok().filter(|destination| {
                self.hop(*destination)
                    .is_some_and(|hop| hop != Hop::Neighbour(silent))
            });
            match destination.and_then(|destination| self.target(now, destination, out)) {
                Some(Target::Station(mac)) => self.outbox.push(mac, held),
                Some(Target::Unresolved(router)) => {
                    let dropped = self.neighbours.hold(router, held);
                    self.counters.add(Counter::IpDropQueueFull, dropped);
                }
                None => lost.push_back(held),
            }
        }
        self.give_up(lost);
        let _ = self.flush_outbox(now, out);
    }

    /// Packets that can't be sent, since their neighbour doesn't answer.
    pub(crate) fn give_up(&mut self, held: VecDeque<Held>) {
        for held in held {
            self.counters.count(Counter::IpDropUnresolved);
            if let Some(quoted) = Quoted::read(held.bytes()) {
                self.push_error(quoted.error(ErrorKind::HostUnreachable));
            }
        }
    }

    /// Asks for `address`: everybody, or the station at `mac` if it is still there. Answers whether the question left.
    fn solicit<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        address: IpAddr,
        mac: Option<MacAddr>,
        out: &mut O,
    ) -> bool {
        let Some(source) = self.addresses.source_for(address, address) else {
            return true;
        };
        match (source, address) {
            (IpAddr::V4(source), IpAddr::V4(target)) => {
                self.send_arp_request(now, source, target, mac, out)
            }
            (IpAddr::V6(source), IpAddr::V6(target)) => {
                self.send_solicitation(now, source, target, mac.is_some(), out)
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => true,
        }
    }

    /// Packets that waited for a neighbour leave.
    pub(crate) fn release<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        resolved: Option<(MacAddr, VecDeque<Held>)>,
        out: &mut O,
    ) {
        let Some((mac, waiting)) = resolved else {
            return;
        };
        for held in waiting {
            self.outbox.push(mac, held);
        }
        let _ = self.flush_outbox(now, out);
    }
}
