//! The way up: frames, packets put together, errors, and what transports are done with.

use super::IpHost;
use super::judge::{Guarded, Judged, Parked};
use crate::{BUDGET, questions};
use skink_channel::RichPointer;
use skink_filter::{Direction, Summary, Verdict};
use skink_lanes::{Fate, FrameUp, HELD_BACK, PacketUp, Transport, holder};
use skink_messages::{NetworkError, Progress, RxFrame, RxPacket};
use skink_time::Instant;
use skink_wire::{ethernet, ipv4, ipv6, protocol};

/// Chunks of `ip`'s own pool that are kept for what leaves, so that some of them come back by themselves: `link`'s queue
/// is always read, but what a transport is done with is behind packets that may wait for a chunk.
const FOR_OUTPUT: usize = HELD_BACK + 1;

/// As much of a frame as is looked at if it is a whole TCP or UDP packet: Ethernet, IPv6 and the fixed
/// part of TCP's header are less.
const FRONT_BYTES: u32 = 128;

impl IpHost {
    /// Takes frames from `link`. They are never left there: what is behind them must be heard.
    pub(super) fn take_frames(&mut self, now: Instant) -> usize {
        for taken in 0..BUDGET {
            let Some(frame) = self.out.take_frame() else {
                return taken;
            };
            self.frame(now, frame);
        }
        BUDGET
    }

    fn frame(&mut self, now: Instant, frame: FrameUp) {
        if frame.again && !self.may_come_twice(&frame) {
            return self.out.done(frame.pointer);
        }
        if !self.judging.checks() {
            return self.receive(now, &frame, Verdict::Pass);
        }
        let Some(bytes) = self.copy(&frame, false) else {
            return self.stale(frame.pointer);
        };
        let summary = self.scratch.get(..bytes).and_then(questions::of_frame);
        let Some(summary) = summary else {
            return self.receive(now, &frame, Verdict::Pass);
        };
        let parked = Parked::Frame(frame);
        match self.judging.judge(now, Direction::In, summary, parked) {
            Judged::Now(Verdict::Pass, _) => self.receive_copied(now, &frame, bytes, Verdict::Pass),
            Judged::Now(verdict, _) => self.receive(now, &frame, verdict),
            Judged::Later => {}
            Judged::NoRoom(_) => {
                self.count_full();
                self.out.done(frame.pointer);
            }
        }
    }

    /// Whether it does no harm if a predecessor had this, and passed it on: it is a segment of TCP's.
    fn may_come_twice(&mut self, frame: &FrameUp) -> bool {
        let bytes = self.copy(frame, false);
        let seen = bytes.and_then(|bytes| self.scratch.get(..bytes.min(FRONT_BYTES as usize)));
        seen.and_then(plain_protocol) == Some(protocol::TCP)
    }

    /// Copies a frame to the scratch, or just its front where the rest isn't looked at: what is behind
    /// that is then of no meaning. Answers its length; `None` if its bytes are gone.
    fn copy(&mut self, frame: &FrameUp, whole: bool) -> Option<usize> {
        let pointer = frame.pointer;
        let front = RichPointer {
            length: pointer.length.min(FRONT_BYTES),
            ..pointer
        };
        self.pools.copy_out(front, &mut self.scratch).ok()?;
        let seen = self.scratch.get(..front.length as usize)?;
        if front != pointer && (whole || plain_protocol(seen).is_none()) {
            self.pools.copy_out(pointer, &mut self.scratch).ok()?;
        }
        let length = pointer.length as usize;
        (length <= self.scratch.len()).then_some(length)
    }

    pub(super) fn receive(&mut self, now: Instant, frame: &FrameUp, verdict: Verdict) {
        if verdict == Verdict::Drop {
            return self.out.done(frame.pointer);
        }
        // Who is told of a packet is told some of what is in it.
        let Some(length) = self.copy(frame, verdict == Verdict::Return) else {
            return self.stale(frame.pointer);
        };
        self.receive_copied(now, frame, length, verdict);
    }

    /// A frame of which `length` bytes are in the scratch: those that are looked at.
    fn receive_copied(&mut self, now: Instant, frame: &FrameUp, length: usize, verdict: Verdict) {
        let IpHost {
            ip,
            out,
            judging,
            scratch,
            ..
        } = self;
        let bytes = scratch.get(..length).unwrap_or_default();
        let received = RxFrame {
            arrived: frame.arrived,
            bytes,
            checksum: frame.checksum,
            segment_bytes: frame.segment_bytes,
        };
        let mut guarded = Guarded {
            out,
            judging: Some(judging),
        };
        let Some((number, packet)) = ip.receive(now, &received, &mut guarded) else {
            return self.out.done(frame.pointer);
        };
        // A part of the frame.
        let offset = (packet.payload.as_ptr() as usize).saturating_sub(bytes.as_ptr() as usize);
        let pointer = RichPointer {
            offset: frame.pointer.offset.saturating_add(offset as u32),
            length: packet.payload.len() as u32,
            ..frame.pointer
        };
        if verdict == Verdict::Return && number == protocol::UDP {
            let mut unguarded = Guarded { out, judging: None };
            ip.port_unreachable(now, number, &packet, &mut unguarded);
            return self.out.done(pointer);
        }
        let fate = match verdict {
            Verdict::Return => Fate::Reject,
            Verdict::Pass | Verdict::Drop => Fate::Deliver,
        };
        let packet = PacketUp::new(number, &packet, pointer, fate);
        self.deliver(packet);
    }

    fn deliver(&mut self, packet: PacketUp) {
        let Some(transport) = Transport::of(packet.protocol) else {
            return self.out.done(packet.pointer);
        };
        if let Err(dropped) = self.transports[transport.index()].deliver(packet) {
            self.release(transport, dropped.pointer);
        }
    }

    /// A packet isn't needed any more.
    fn release(&mut self, transport: Transport, pointer: RichPointer) {
        if pointer.pool == self.out.pool().id() {
            let _ = self.out.pool().give_back(pointer, holder::of(transport));
        } else {
            self.out.done(pointer);
        }
    }

    fn stale(&mut self, pointer: RichPointer) {
        let stale = &mut self.out.counters().stale;
        *stale = stale.wrapping_add(1);
        self.out.done(pointer);
    }

    pub(super) fn count_full(&mut self) {
        let full = &mut self.out.counters().full;
        *full = full.wrapping_add(1);
    }

    /// What transports are done with.
    pub(super) fn take_returned(&mut self, now: Instant) {
        for transport in Transport::ALL {
            while let Some((packet, unreachable)) =
                self.transports[transport.index()].take_returned()
            {
                if unreachable && transport == Transport::Udp {
                    self.unreachable(now, &packet, true);
                }
                self.release(transport, packet.pointer);
            }
        }
    }

    /// Tells the sender of a datagram that nobody has its port. What the filter answers itself isn't `judged`.
    fn unreachable(&mut self, now: Instant, packet: &PacketUp, judged: bool) {
        let IpHost {
            ip,
            out,
            judging,
            scratch,
            pools,
            ..
        } = self;
        if pools.copy_out(packet.pointer, scratch).is_err() {
            return;
        }
        let payload = scratch.get(..packet.pointer.length as usize);
        let packet_up = packet.with_payload(payload.unwrap_or_default());
        let mut guarded = Guarded {
            out,
            judging: judged.then_some(judging),
        };
        ip.port_unreachable(now, packet.protocol, &packet_up, &mut guarded);
    }

    /// Lets the component do what is due; answers whether something is left that can be done at once.
    pub(super) fn poll_component(&mut self, now: Instant) -> bool {
        let IpHost {
            ip, out, judging, ..
        } = self;
        let mut guarded = Guarded {
            out,
            judging: Some(judging),
        };
        let progress = ip.poll(now, &mut guarded);
        let filter = self.judging.poll(now);
        let mut left = BUDGET;
        while left > 0
            && let Some(whole) = self.ip.take_whole()
        {
            left -= 1;
            self.whole(now, whole.protocol(), &whole.as_packet());
            self.ip.recycle(whole);
        }
        while let Some(error) = self.ip.take_error() {
            self.error(error);
        }
        while let Some(error) = self.prohibited.pop_front() {
            self.error(error);
        }
        let held = progress == Progress::More && !self.out.was_full() && self.judging.takes();
        left == 0 || filter == Progress::More || held
    }

    fn error(&mut self, error: NetworkError) {
        if let Some(transport) = Transport::of(error.protocol) {
            self.transports[transport.index()].error(error);
        }
    }

    /// A packet that was put together from fragments, or that we sent to ourselves.
    fn whole(&mut self, now: Instant, number: u8, packet: &RxPacket<'_>) {
        let pool = self.out.pool();
        if pool.available() <= FOR_OUTPUT {
            return self.count_full();
        }
        let Ok(chunk) = pool.allocate() else {
            return self.count_full();
        };
        if pool.write(&chunk, 0, packet.payload).is_err() {
            pool.free(chunk);
            return self.count_full();
        }
        // Not lent to anybody yet; the pointer will say where it is.
        let pointer = RichPointer {
            length: packet.payload.len() as u32,
            ..RichPointer::default()
        };
        let up = PacketUp::new(number, packet, pointer, Fate::Deliver);
        let parked = Parked::Whole(up, chunk);
        if !self.judging.checks() {
            return self.judged(now, parked, Verdict::Pass);
        }
        let summary = Summary::of_received(number, packet);
        match self.judging.judge(now, Direction::In, summary, parked) {
            Judged::Now(verdict, parked) => self.judged(now, parked, verdict),
            Judged::Later => {}
            Judged::NoRoom(parked) => {
                self.count_full();
                self.judged(now, parked, Verdict::Drop);
            }
        }
    }

    pub(super) fn whole_judged(
        &mut self,
        now: Instant,
        packet: PacketUp,
        chunk: skink_channel::Chunk,
        verdict: Verdict,
    ) {
        let length = packet.pointer.length;
        let pool = self.out.pool();
        let transport = Transport::of(packet.protocol).filter(|_| verdict != Verdict::Drop);
        let lent = transport.map(|transport| pool.lend(&chunk, 0, length, holder::of(transport)));
        pool.free(chunk);
        let (Some(transport), Some(Ok(pointer))) = (transport, lent) else {
            return;
        };
        let packet = PacketUp { pointer, ..packet };
        match (verdict, transport) {
            (Verdict::Return, Transport::Udp) => {
                self.unreachable(now, &packet, false);
                self.release(transport, pointer);
            }
            (Verdict::Return, Transport::Tcp) => self.deliver(PacketUp {
                fate: Fate::Reject,
                ..packet
            }),
            (Verdict::Pass | Verdict::Drop, _) => self.deliver(packet),
        }
    }
}

/// TCP's number or UDP's, if a frame is a whole packet of theirs without options or extensions in its IP header, so that
/// `ip` looks at nothing behind that.
fn plain_protocol(front: &[u8]) -> Option<u8> {
    let (link, packet) = ethernet::Header::parse(front).ok()?;
    let number = match (link.ethertype, packet.first()) {
        (ethernet::IPV4, Some(0x45)) if packet.len() > ipv4::LEN => {
            let place = packet.get(6..8).and_then(|place| place.first_chunk());
            // Neither more fragments nor an offset (RFC 791 section 3.1).
            let is_whole = place.is_some_and(|place| u16::from_be_bytes(*place) & 0x3fff == 0);
            packet.get(9).filter(|_| is_whole)
        }
        (ethernet::IPV6, Some(_)) if packet.len() > ipv6::LEN => packet.get(6),
        _ => None,
    };
    number
        .copied()
        .filter(|number| [protocol::TCP, protocol::UDP].contains(number))
}
