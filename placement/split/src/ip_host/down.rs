//! The way down, and what becomes of packets once they were judged.

use super::IpHost;
use super::judge::{Guarded, Judged, Parked};
use crate::{BUDGET, questions};
use skink_filter::{Direction, Verdict};
use skink_lanes::{PacketDown, Transport};
use skink_messages::Full;
use skink_time::Instant;

/// Transports that wait to be told that a packet of theirs is prohibited; more are told when they
/// send it again.
const PROHIBITED: usize = 64;

impl IpHost {
    /// Tries once more what the link had no room for; answers whether all of it left.
    pub(super) fn send_blocked(&mut self, now: Instant) -> bool {
        while let Some((transport, packet)) = self.blocked.pop_front() {
            if self.send(now, transport, &packet).is_err() {
                self.blocked.push_front((transport, packet));
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
        if packet.to.protocol != transport.protocol() {
            let end = &mut self.transports[transport.index()];
            let malformed = &mut end.counters().malformed;
            *malformed = malformed.wrapping_add(1);
            return end.sent(packet.id);
        }
        let parked = Parked::Down(transport, packet);
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
            let Some((parked, verdict)) = self.judging.take_verdict() else {
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
            (Parked::Down(transport, packet), Verdict::Pass) => {
                if !self.blocked.is_empty() || self.send(now, transport, &packet) == Err(Full) {
                    self.blocked.push_back((transport, packet));
                }
            }
            (Parked::Down(transport, packet), verdict) => {
                if verdict == Verdict::Return
                    && self.prohibited.len() < PROHIBITED
                    && let Some(error) = questions::prohibited(&packet)
                {
                    self.prohibited.push_back(error);
                }
                // Gone, as far as the transport is concerned.
                self.transports[transport.index()].sent(packet.id);
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

    /// Sends a transport's packet. Its payload isn't looked at here: it goes on by name.
    fn send(
        &mut self,
        now: Instant,
        transport: Transport,
        packet: &PacketDown,
    ) -> Result<(), Full> {
        let IpHost {
            ip,
            out,
            judging,
            pools,
            regions,
            transports,
            ..
        } = self;
        let end = &mut transports[transport.index()];
        let Some(mapped) = regions.resolve(pools, &packet.payload) else {
            let stale = &mut end.counters().stale;
            *stale = stale.wrapping_add(1);
            end.sent(packet.id);
            return Ok(());
        };
        let owner = (packet.id != 0).then_some((transport, packet.id));
        let mut whole = packet.headers.packet(mapped);
        out.begin_packet(packet.payload, &mapped, owner);
        let mut guarded = Guarded {
            out,
            judging: Some(judging),
        };
        let sent = ip.send(now, &packet.to, &mut whole, &mut guarded);
        let passed_on = out.end_packet();
        if sent.is_ok() && !passed_on {
            end.sent(packet.id);
        }
        sent
    }
}
