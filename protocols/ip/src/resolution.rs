//! Asking for neighbours, and what becomes of the packets that wait for them.

use crate::Ip;
use crate::held::Held;
use crate::neighbours::Due;
use crate::quoted::Quoted;
use core::net::IpAddr;
use skink_messages::{Counter, ErrorKind, FrameOutput};
use skink_time::Instant;
use skink_wire::MacAddr;
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
            Due::Solicit { address, mac } => self.solicit(now, address, mac, out),
            Due::Failed { held } => self.give_up(held),
        }
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

    /// Asks for `address`: everybody, or the station at `mac` if it is still there.
    fn solicit<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        address: IpAddr,
        mac: Option<MacAddr>,
        out: &mut O,
    ) {
        let Some(source) = self.addresses.source_for(address, address) else {
            return;
        };
        match (source, address) {
            (IpAddr::V4(source), IpAddr::V4(target)) => {
                self.send_arp_request(now, source, target, mac, out);
            }
            (IpAddr::V6(source), IpAddr::V6(target)) => {
                self.send_solicitation(now, source, target, mac.is_some(), out);
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => {}
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
