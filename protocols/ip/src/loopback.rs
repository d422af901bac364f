//! Packets to ourselves.

use crate::send::{HOP_LIMIT, MAXIMUM_BYTES};
use crate::whole::WholeQueue;
use crate::{Ip, OwnedPacket};
use skink_messages::{Counter, FrameOutput, Full, Outbound, RxChecksum, TxPacket};
use skink_time::Instant;
use skink_wire::protocol;

impl Ip {
    /// Copies a packet to ourselves to where it will be taken from. Its checksum counts as good: it
    /// never leaves this memory.
    #[inline(never)]
    pub(crate) fn loop_back<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        to: &Outbound,
        packet: &TxPacket<'_>,
        out: &mut O,
    ) -> Result<(), Full> {
        let bytes = packet.len();
        if !self.whole.has_room(bytes) {
            return Err(Full);
        }
        if bytes > MAXIMUM_BYTES || to.source.is_ipv4() != to.destination.is_ipv4() {
            self.counters.count(Counter::IpDropTooBig);
            return Ok(());
        }
        let looped = copy(&mut self.whole, now, to, packet);
        self.counters.count(Counter::IpLooped);
        if matches!(to.protocol, protocol::TCP | protocol::UDP) {
            self.whole.push(looped);
        } else {
            self.on_icmp(now, &looped.as_packet(), out);
            self.recycle(looped);
        }
        Ok(())
    }
}

fn copy(queue: &mut WholeQueue, now: Instant, to: &Outbound, packet: &TxPacket<'_>) -> OwnedPacket {
    let mut payload = queue.buffer();
    payload.resize(packet.len(), 0);
    packet.copy_to(&mut payload);
    let is_cut = packet.payload_bytes() > usize::from(packet.segment_bytes);
    OwnedPacket {
        arrived: now,
        protocol: to.protocol,
        source: to.source,
        destination: to.destination,
        traffic_class: to.traffic_class,
        hop_limit: to.hop_limit.unwrap_or(HOP_LIMIT),
        checksum: RxChecksum::Verified,
        segment_bytes: if is_cut { packet.segment_bytes } else { 0 },
        payload,
        offset: 0,
    }
}
