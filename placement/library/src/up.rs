//! The way up: what a frame, and what is in it, is told to.

use crate::below::Below;
use crate::stack::RECEIVE_BUDGET;
use skink_filter::Verdict;
use skink_memory::{Bytes, CaptureDirection, CaptureRing};
use skink_messages::{Component, NetworkError, RxFrame, RxPacket, TcpInput, UdpInput};
use skink_tcp::Tcp;
use skink_time::Instant;
use skink_udp::Udp;
use skink_wire::protocol;

/// The transports, and what is below them.
pub(crate) struct Up<'a, 'b> {
    pub(crate) now: Instant,
    pub(crate) tcp: &'a mut Tcp,
    pub(crate) udp: &'a mut Udp,
    pub(crate) below: &'a mut Below<'b>,
}

impl Up<'_, '_> {
    /// A frame on its way up. All messages on the way are inlined here, from `link` to the transport
    /// that finds the socket.
    #[inline(never)]
    pub(crate) fn frame(&mut self, frame: &RxFrame<'_>) {
        let (now, below) = (self.now, &mut *self.below);
        let capture = below.link.output.nic.capture;
        if let Some(capture) = capture.filter(|capture| capture.wants()) {
            capture_received(capture, frame);
        }
        if !below.link.output.link.receive(frame) {
            return;
        }
        let mut verdict = Verdict::Pass;
        if below.link.guard.checks() {
            verdict = below.link.guard.judge_frame(now, frame);
            if verdict == Verdict::Drop {
                return;
            }
        }
        if let Some((protocol, packet)) = below.ip.receive(now, frame, &mut below.link) {
            if verdict == Verdict::Return {
                return self.refuse(protocol, packet);
            }
            self.packet(protocol, packet);
        }
    }

    /// What `ip` keeps until it is taken: packets to ourselves or that came in fragments, and errors.
    #[inline(never)]
    pub(crate) fn rest(&mut self) {
        for _ in 0..RECEIVE_BUDGET {
            let Some(whole) = self.below.ip.take_whole() else {
                break;
            };
            self.whole(whole.protocol(), whole.as_packet());
            self.below.ip.recycle(whole);
        }
        while let Some(error) = self.below.ip.take_error() {
            self.error(error);
        }
        while let Some(error) = self.below.link.guard.take_error() {
            self.error(error);
        }
    }

    fn whole(&mut self, protocol: u8, packet: RxPacket<'_>) {
        let guard = &mut self.below.link.guard;
        let verdict = match guard.checks() {
            true => guard.judge_whole(self.now, protocol, &packet),
            false => Verdict::Pass,
        };
        match verdict {
            Verdict::Pass => self.packet(protocol, packet),
            Verdict::Drop => {}
            Verdict::Return => self.refuse(protocol, packet),
        }
    }

    /// Tells the sender of a packet that the filter doesn't let it in; the filter lets that out.
    #[cold]
    #[inline(never)]
    fn refuse(&mut self, protocol: u8, packet: RxPacket<'_>) {
        let (now, below) = (self.now, &mut *self.below);
        let filter = below.link.guard.suspend();
        match protocol {
            protocol::TCP => self.tcp.reject(now, &packet, below),
            protocol::UDP => {
                let link = &mut below.link;
                below.ip.port_unreachable(now, protocol, &packet, link);
            }
            _ => {}
        }
        below.link.guard.resume(filter);
    }

    /// A packet on its way up. [`skink_messages::Full`] can't be answered here (components keep what
    /// they couldn't send), and a packet that wasn't taken would be lost as on any wire.
    #[inline(always)]
    fn packet(&mut self, protocol: u8, packet: RxPacket<'_>) {
        let (now, below) = (self.now, &mut *self.below);
        match protocol {
            protocol::TCP => {
                let _ = self.tcp.handle(now, TcpInput::Packet(packet), below);
            }
            protocol::UDP => {
                let _ = self.udp.handle(now, UdpInput::Packet(packet), below);
                if self.udp.take_unreachable() {
                    let link = &mut below.link;
                    below.ip.port_unreachable(now, protocol, &packet, link);
                }
            }
            _ => {}
        }
    }

    /// An ICMP error on its way up, to the transport whose packet it is about.
    fn error(&mut self, error: NetworkError) {
        let now = self.now;
        match error.protocol {
            protocol::TCP => {
                let _ = self.tcp.handle(now, TcpInput::Error(error), self.below);
            }
            protocol::UDP => {
                let _ = self.udp.handle(now, UdpInput::Error(error), self.below);
            }
            _ => {}
        }
    }
}

#[cold]
#[inline(never)]
fn capture_received(capture: &CaptureRing, frame: &RxFrame<'_>) {
    let pieces = [Bytes::from(frame.bytes)];
    let (at, length) = (frame.arrived.as_nanos(), frame.bytes.len());
    capture.push(at, CaptureDirection::Inbound, &pieces, length);
}
