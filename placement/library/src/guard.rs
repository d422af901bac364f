//! Where packets meet the packet filter: between `ip` and its neighbours (NewtOS 2.5.1, figure 2.3).
//!
//! | on the way | at | whole packets of |
//! | --- | --- | --- |
//! | in | the link, before `ip` ([`Guard::judge_frame`]) | everything but pieces of TCP and UDP |
//! | in | what `ip` put together or looped back ([`Guard::judge_whole`]) | TCP, UDP |
//! | out | the transports, before `ip` ([`Guard::lets_out`]) | TCP, UDP |
//! | out | the link, behind `ip` ([`Guarded::send`](FrameOutput::send)) | ICMP, ICMPv6 |
//!
//! Without rules each place costs one branch that is always predicted.

use crate::below::Tap;
use core::net::IpAddr;
use skink_filter::{Direction, Filter, Piece, Summary, Verdict};
use skink_link::LinkOutput;
use skink_messages::{
    ErrorKind, FrameOutput, Full, LinkLimits, NetworkError, Outbound, Progress, RxFrame, RxPacket,
    TxPacket,
};
use skink_time::Instant;
use skink_wire::{Endpoint, FourTuple, ethernet, protocol};
use std::collections::VecDeque;

/// Transports that wait to be told that a packet of theirs is prohibited; more are told when they
/// send it again.
const ERRORS: usize = 64;

/// The packet filter as the places see it that ask it.
pub(crate) struct Guard<'a> {
    /// `None` where no packet is checked.
    filter: Option<&'a mut Filter>,
    prohibited: &'a mut VecDeque<NetworkError>,
}

impl<'a> Guard<'a> {
    #[inline(always)]
    pub(crate) fn new(
        filter: Option<&'a mut Filter>,
        prohibited: &'a mut VecDeque<NetworkError>,
    ) -> Guard<'a> {
        Guard {
            filter: filter.filter(|filter| filter.is_active()),
            prohibited,
        }
    }

    /// Whether packets are checked at all.
    #[inline(always)]
    pub(crate) fn checks(&self) -> bool {
        self.filter.is_some()
    }

    /// Judges a frame before `ip` sees it. Pieces of TCP and UDP are judged once they are whole, and
    /// frames without a packet in them are none of the filter's business.
    #[cold]
    #[inline(never)]
    pub(crate) fn judge_frame(&mut self, now: Instant, frame: &RxFrame<'_>) -> Verdict {
        let (Some(filter), Ok((link, packet))) =
            (&mut self.filter, ethernet::Header::parse(frame.bytes))
        else {
            return Verdict::Pass;
        };
        if !matches!(link.ethertype, ethernet::IPV4 | ethernet::IPV6) {
            return Verdict::Pass;
        }
        let summary = Summary::parse(packet);
        if let Ok(summary) = &summary
            && summary.piece != Piece::Whole
            && matches!(summary.protocol, protocol::TCP | protocol::UDP)
        {
            return Verdict::Pass;
        }
        filter.check_parsed(now, Direction::In, summary)
    }

    /// Judges a packet that was put together, or that we sent to ourselves.
    #[cold]
    #[inline(never)]
    pub(crate) fn judge_whole(
        &mut self,
        now: Instant,
        protocol: u8,
        packet: &RxPacket<'_>,
    ) -> Verdict {
        match &mut self.filter {
            Some(filter) => {
                let summary = Summary::of_received(protocol, packet);
                filter.check_parsed(now, Direction::In, summary)
            }
            None => Verdict::Pass,
        }
    }

    /// Judges what a transport sends. If it is to be told, [`Guard::take_error`] has the error.
    #[cold]
    #[inline(never)]
    pub(crate) fn lets_out(&mut self, now: Instant, to: &Outbound, packet: &TxPacket<'_>) -> bool {
        let Some(filter) = &mut self.filter else {
            return true;
        };
        let summary = Summary::of_outbound(to, packet);
        match filter.check_parsed(now, Direction::Out, summary) {
            Verdict::Pass => true,
            Verdict::Drop => false,
            Verdict::Return => {
                if let Some(error) = prohibited(to, packet)
                    && self.prohibited.len() < ERRORS
                {
                    self.prohibited.push_back(error);
                }
                false
            }
        }
    }

    /// Lets the filter forget flows whose time is over and of which `lives` doesn't say otherwise.
    #[cold]
    #[inline(never)]
    pub(crate) fn poll(
        &mut self,
        now: Instant,
        lives: impl FnMut(u8, &FourTuple) -> bool,
    ) -> Progress {
        let told = self.prohibited.is_empty();
        let filter = self.filter.as_mut();
        match filter.map(|filter| filter.poll_asking(now, lives)) {
            Some(Progress::Idle) | None if told => Progress::Idle,
            Some(_) | None => Progress::More,
        }
    }

    /// An error for the transport that sent a packet which is prohibited.
    pub(crate) fn take_error(&mut self) -> Option<NetworkError> {
        self.prohibited.pop_front()
    }

    /// Judges a message of `ip`'s own.
    #[cold]
    #[inline(never)]
    fn lets_message_out(&mut self, now: Instant, packet: &TxPacket<'_>) -> bool {
        let Some(filter) = &mut self.filter else {
            return true;
        };
        let headers = packet.headers().get(ethernet::LEN..);
        if !Summary::is_message(headers.unwrap_or_default()) {
            return true;
        }
        let summary = Summary::of_frame(packet, ethernet::LEN);
        // Nobody waits for an answer to it.
        filter.check_parsed(now, Direction::Out, summary) == Verdict::Pass
    }

    /// Without checks: what the filter itself leads to isn't asked about.
    pub(crate) fn suspend(&mut self) -> Option<&'a mut Filter> {
        self.filter.take()
    }

    /// After [`Guard::suspend`].
    pub(crate) fn resume(&mut self, filter: Option<&'a mut Filter>) {
        self.filter = filter;
    }
}

/// What an ICMP error about the packet would say, had a router on the way blocked it (RFC 1812 section
/// 5.2.7.1: communication administratively prohibited).
fn prohibited(to: &Outbound, packet: &TxPacket<'_>) -> Option<NetworkError> {
    let headers = packet.headers();
    let pair = |at: usize| {
        headers
            .get(at..at + 2)
            .and_then(|bytes| bytes.try_into().ok())
    };
    let port = |at| pair(at).map(u16::from_be_bytes);
    let sequence = headers.get(4..8).and_then(|bytes| bytes.try_into().ok());
    let end = |addr: IpAddr, at| Some(Endpoint::new(addr, port(at)?));
    Some(NetworkError {
        kind: ErrorKind::Prohibited,
        protocol: to.protocol,
        local: end(to.source, 0)?,
        remote: end(to.destination, 2)?,
        sequence: u32::from_be_bytes(sequence?),
    })
}

/// The link, behind the filter.
pub(crate) struct Guarded<'a> {
    pub(crate) output: LinkOutput<'a, Tap<'a>>,
    pub(crate) guard: Guard<'a>,
}

impl FrameOutput for Guarded<'_> {
    #[inline(always)]
    fn send(&mut self, now: Instant, packet: &mut TxPacket<'_>) -> Result<(), Full> {
        if self.guard.checks() && !self.guard.lets_message_out(now, packet) {
            return Ok(());
        }
        self.output.send(now, packet)
    }

    #[inline(always)]
    fn limits(&self) -> LinkLimits {
        self.output.limits()
    }
}
