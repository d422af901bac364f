//! The way down, and what becomes of packets once they were judged.

use super::IpHost;
use super::judge::{Guarded, Judged, Parked};
use crate::{BUDGET, questions};
use skink_filter::{Direction, Verdict};
use skink_lanes::{Lender, PacketDown, Transport};
use skink_messages::Full;
use skink_time::Instant;

/// Transports that wait to be told that a packet of theirs is prohibited; more are told when they
/// send it again.
const PROHIBITED: usize = 64;

impl IpHost {
    /// Tries once more what the link had no room for; answers whether all of it left.
    pub(super) fn send_blocked(&mut self, now: Instant) -> bool {
        while let Some((lender, packet)) = self.blocked.pop_front() {
            if self.send(now, lender, &packet).is_err() {
                self.blocked.push_front((lender, packet));
                return false;
            }
        }
        true
    }

    /// Takes packets from a transport, while the link and the filter have room.
    pub(super) fn take_packets(&mut self, now: Instant, transport: Transport) -> usize {
        for taken in 0..BUDGET {
            if !self.blocked.is_empty() || !self.judging.has_room() {
                return taken;
            }
            let Some(packet) = self.transports[transport.index()].take_packet() else {
                return taken;
            };
            self.packet(now, transport, packet);
        }
        BUDGET
    }

    fn packet(&mut self, now: Instant, transport: Transport, packet: PacketDown) {
        let end = &mut self.transports[transport.index()];
        let lender = Lender {
            transport,
            incarnation: end.neighbour(),
            id: packet.id,
            awaited: packet.awaited,
        };
        if packet.to.protocol != transport.protocol() {
            let malformed = &mut end.counters().malformed;
            *malformed = malformed.wrapping_add(1);
            return self.out.done_with(lender);
        }
        let parked = Parked::Down(lender, packet);
        let refuses = packet.refuses && questions::is_bare_reset(&packet);
        if !self.judging.checks() || refuses {
            return self.judged(now, parked, Verdict::Pass);
        }
        let summary = questions::of_outbound(&packet);
        match self.judging.judge(now, Direction::Out, summary, parked) {
            Judged::Now(verdict, parked) => self.judged(now, parked, verdict),
            Judged::Later => {}
            Judged::NoRoom(parked) => self.judged(now, parked, Verdict::Drop),
        }
    }

    /// Takes verdicts, also while the link has no room: what blocks may wait for a chunk that a packet which was
    /// judged has, or go behind a message of `ip`'s own that is to be judged. What may leave then is blocked too, in
    /// its order.
    pub(super) fn take_verdicts(&mut self, now: Instant) -> usize {
        for taken in 0..BUDGET {
            let Some((parked, verdict)) = self.judging.take_verdict(now) else {
                return taken;
            };
            self.judged(now, parked, verdict);
        }
        BUDGET
    }

    pub(super) fn judged(&mut self, now: Instant, parked: Parked, verdict: Verdict) {
        match (parked, verdict) {
            (Parked::Frame(frame), verdict) => self.receive(now, &frame, verdict),
            (Parked::Whole(packet, chunk), verdict) => {
                self.whole_judged(now, packet, chunk, verdict);
            }
            // Its sender has died, and a successor sends it again.
            (Parked::Down(lender, _), _) if self.is_orphaned(&lender) => {}
            (Parked::Down(lender, packet), Verdict::Pass) => {
                if !self.blocked.is_empty() || self.send(now, lender, &packet) == Err(Full) {
                    self.blocked.push_back((lender, packet));
                }
            }
            (Parked::Down(lender, packet), verdict) => {
                if verdict == Verdict::Return
                    && self.prohibited.len() < PROHIBITED
                    && let Some(error) = questions::prohibited(&packet)
                {
                    self.prohibited.push_back(error);
                }
                // Gone, as far as the transport is concerned.
                self.out.done_with(lender);
            }
            (Parked::Message(prepared), Verdict::Pass) => {
                if let Err((Full, prepared)) = self.out.submit(prepared) {
                    self.count_full();
                    self.out.discard(prepared);
                }
            }
            (Parked::Message(prepared), Verdict::Drop | Verdict::Return) => {
                self.out.discard(prepared);
            }
        }
    }

    /// Whether a packet was lent by a predecessor of the transport that runs.
    fn is_orphaned(&self, lender: &Lender) -> bool {
        let end = &self.transports[lender.transport.index()];
        lender.id != 0 && lender.incarnation != end.neighbour()
    }

    /// Sends a transport's packet. Its payload isn't looked at here: it goes on by name.
    fn send(&mut self, now: Instant, lender: Lender, packet: &PacketDown) -> Result<(), Full> {
        let IpHost {
            ip,
            out,
            judging,
            pools,
            regions,
            transports,
            ..
        } = self;
        let Some(mapped) = regions.resolve(pools, &packet.payload) else {
            let end = &mut transports[lender.transport.index()];
            let stale = &mut end.counters().stale;
            *stale = stale.wrapping_add(1);
            out.done_with(lender);
            return Ok(());
        };
        let owner = (lender.id != 0).then_some(lender);
        let mut whole = packet.headers.packet(mapped);
        out.begin_packet(packet.payload, &mapped, owner);
        let mut guarded = Guarded {
            out,
            judging: Some(judging),
        };
        let sent = ip.send(now, &packet.to, &mut whole, &mut guarded);
        let passed_on = out.end_packet();
        if sent.is_ok() && !passed_on {
            out.done_with(lender);
        }
        sent
    }
}
