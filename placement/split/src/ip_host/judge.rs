//! Where packets meet the filter: between `ip` and its neighbours, as in the library's placement
//! (`placement/library/src/guard.rs` has the table), but that the filter may answer later.

use super::Judge;
use super::asking::Asking;
use crate::questions;
use skink_channel::{AttachError, Chunk};
use skink_filter::{Direction, Filter, Summary, Verdict};
use skink_lanes::{
    EndCounters, FrameUp, Incarnation, IpLinkEnd, Lender, PacketDown, PacketUp, Prepared,
};
use skink_messages::{FrameOutput, Full, LinkLimits, Progress, TxPacket};
use skink_time::Instant;
use skink_wire::{Malformed, ethernet};

/// A packet that waits for its verdict.
pub(super) enum Parked {
    /// A frame that arrived.
    Frame(FrameUp),
    /// A packet that was put together or looped back, in `ip`'s own pool; its pointer says only how long.
    Whole(PacketUp, Chunk),
    /// What a transport sends.
    Down(Lender, PacketDown),
    /// A message of `ip`'s own.
    Message(Prepared),
}

/// Who judges, and what waits for a verdict.
pub(super) enum Judging {
    Nobody,
    Inline(Box<Filter>),
    Asked(Box<Asking>),
}

/// What is known of a packet that was to be judged.
pub(super) enum Judged {
    /// The verdict, with the packet.
    Now(Verdict, Parked),
    /// It will come.
    Later,
    /// There is no room for the question.
    NoRoom(Parked),
}

impl Judging {
    /// `seed` must be hard to guess from outside.
    pub(super) fn new(judge: Judge, seed: u64) -> Result<Judging, AttachError> {
        Ok(match judge {
            Judge::Nobody => Judging::Nobody,
            Judge::Inline(filter) => Judging::Inline(filter),
            Judge::Asked(parts) => Judging::Asked(Box::new(Asking::new(parts, seed)?)),
        })
    }

    /// Whether packets are judged at all.
    pub(super) fn checks(&self) -> bool {
        match self {
            Judging::Nobody => false,
            Judging::Inline(filter) => filter.is_active(),
            Judging::Asked(asking) => asking.checks(),
        }
    }

    /// Whether one more packet can be judged now.
    pub(super) fn has_room(&mut self) -> bool {
        match self {
            Judging::Nobody | Judging::Inline(_) => true,
            Judging::Asked(asking) => asking.has_room(),
        }
    }

    /// As [`Judging::has_room`], as far as that can be told without looking at the queue.
    pub(super) fn takes(&self) -> bool {
        match self {
            Judging::Nobody | Judging::Inline(_) => true,
            Judging::Asked(asking) => asking.takes(),
        }
    }

    pub(super) fn judge(
        &mut self,
        now: Instant,
        direction: Direction,
        summary: Result<Summary, Malformed>,
        packet: Parked,
    ) -> Judged {
        match self {
            Judging::Nobody => Judged::Now(Verdict::Pass, packet),
            Judging::Inline(filter) => {
                Judged::Now(filter.check_parsed(now, direction, summary), packet)
            }
            Judging::Asked(asking) => asking.judge(now, direction, &summary, packet),
        }
    }

    /// A packet whose verdict has come.
    pub(super) fn take_verdict(&mut self, now: Instant) -> Option<(Parked, Verdict)> {
        match self {
            Judging::Nobody | Judging::Inline(_) => None,
            Judging::Asked(asking) => asking.take_answered(now),
        }
    }

    pub(super) fn poll(&mut self, now: Instant) -> Progress {
        match self {
            Judging::Inline(filter) => filter.poll(now),
            Judging::Asked(asking) => {
                asking.poll(now);
                Progress::Idle
            }
            Judging::Nobody => Progress::Idle,
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        match self {
            Judging::Inline(filter) => filter.next_deadline(),
            Judging::Asked(asking) => asking.next_deadline(),
            Judging::Nobody => None,
        }
    }

    pub(super) fn filter_restarted(&mut self, incarnation: Incarnation) {
        if let Judging::Asked(asking) = self {
            asking.filter_restarted(incarnation);
        }
    }

    pub(super) fn ask_all(&mut self) {
        if let Judging::Asked(asking) = self {
            asking.ask_all();
        }
    }

    pub(super) fn begin(&mut self) {
        if let Judging::Asked(asking) = self {
            asking.begin();
        }
    }

    pub(super) fn flush(&mut self) {
        if let Judging::Asked(asking) = self {
            asking.flush();
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        match self {
            Judging::Nobody | Judging::Inline(_) => false,
            Judging::Asked(asking) => asking.is_ready(),
        }
    }

    pub(super) fn is_broken(&self) -> bool {
        match self {
            Judging::Nobody | Judging::Inline(_) => false,
            Judging::Asked(asking) => asking.is_broken(),
        }
    }

    pub(super) fn waiting(&self) -> u32 {
        match self {
            Judging::Nobody | Judging::Inline(_) => 0,
            Judging::Asked(asking) => asking.waiting(),
        }
    }

    pub(super) fn counters(&mut self) -> EndCounters {
        match self {
            Judging::Nobody | Judging::Inline(_) => EndCounters::default(),
            Judging::Asked(asking) => asking.counters(),
        }
    }
}

/// The link, behind the filter: messages of `ip`'s own are judged here.
pub(super) struct Guarded<'a> {
    pub(super) out: &'a mut IpLinkEnd,
    /// `None` for what the filter itself leads to, which isn't asked about.
    pub(super) judging: Option<&'a mut Judging>,
}

impl FrameOutput for Guarded<'_> {
    fn send(&mut self, now: Instant, packet: &mut TxPacket<'_>) -> Result<(), Full> {
        let judging = self.judging.as_deref_mut();
        let judging = judging.filter(|judging| judging.checks());
        let Some(judging) = judging.filter(|_| questions::is_message(packet.headers())) else {
            return self.out.send(now, packet);
        };
        if !judging.has_room() {
            return Err(Full);
        }
        let summary = Summary::of_frame(packet, ethernet::LEN);
        let prepared = Parked::Message(self.out.prepare(packet)?);
        match judging.judge(now, Direction::Out, summary, prepared) {
            Judged::Now(Verdict::Pass, Parked::Message(prepared)) => {
                self.out.submit(prepared).map_err(|(full, prepared)| {
                    self.out.discard(prepared);
                    full
                })
            }
            Judged::Now(_, Parked::Message(prepared))
            | Judged::NoRoom(Parked::Message(prepared)) => {
                self.out.discard(prepared);
                Ok(())
            }
            Judged::Now(..) | Judged::Later | Judged::NoRoom(_) => Ok(()),
        }
    }

    fn limits(&self) -> LinkLimits {
        self.out.limits()
    }
}
