//! A filter in another process: who is asked about what, and what passes unasked (docs/decisions/0028).

use super::judge::{Judged, Parked};
use crate::questions;
use skink_channel::AttachError;
use skink_filter::{Direction, FlowTable, Offload, Summary, Verdict};
use skink_lanes::{Answer, AttachParts, EndCounters, Incarnation, IpFilterEnd};
use skink_messages::FlowAccount;
use skink_time::Instant;
use skink_wire::Malformed;
use std::collections::VecDeque;

/// Packets that may wait, for their verdict or their turn, before one that came in is dropped: some room is kept for what
/// transports send.
const INBOUND: u32 = 192;

/// The end towards the filter, and the flows that it needn't be asked about.
pub(super) struct Asking {
    end: IpFilterEnd<Parked>,
    known: FlowTable,
    /// What the filter is to be told before it is asked anything more.
    accounts: VecDeque<FlowAccount>,
}

impl Asking {
    /// `seed` must be hard to guess from outside.
    pub(super) fn new(parts: AttachParts, seed: u64) -> Result<Asking, AttachError> {
        Ok(Asking {
            end: IpFilterEnd::attach(parts)?,
            known: FlowTable::new(seed),
            accounts: VecDeque::new(),
        })
    }

    /// Whether packets must come here.
    pub(super) fn checks(&self) -> bool {
        let free = self.end.passes_from();
        !free.is_some_and(|from| self.end.is_open(from))
    }

    /// Whether one more packet can come here now.
    pub(super) fn has_room(&mut self) -> bool {
        !self.checks() || (self.tell() && self.end.has_room())
    }

    /// As [`Asking::has_room`], as far as that can be told without looking at the queue.
    pub(super) fn takes(&self) -> bool {
        !self.checks() || self.end.takes()
    }

    /// Tells the filter what went by; answers whether it knows all of that.
    fn tell(&mut self) -> bool {
        while let Some(account) = self.accounts.front().copied() {
            if self.end.tell(account).is_err() {
                return false;
            }
            self.accounts.pop_front();
        }
        true
    }

    pub(super) fn judge(
        &mut self,
        now: Instant,
        direction: Direction,
        summary: &Result<Summary, Malformed>,
        packet: Parked,
    ) -> Judged {
        let Asking { end, known, .. } = self;
        let most = match direction {
            Direction::In => INBOUND,
            Direction::Out => u32::MAX,
        };
        let is_full = end.waiting() >= most;
        let flow = summary.as_ref().ok().and_then(|summary| {
            let flow = known.find(direction, summary)?;
            Some((flow, summary))
        });
        let known_from = flow.as_ref().map(|(flow, _)| flow.mark());
        if let Some(from) = end.passes_from().or(known_from) {
            if end.is_open(from) {
                if let Some((flow, summary)) = flow {
                    flow.pass(now, direction, summary);
                }
                return Judged::Now(Verdict::Pass, packet);
            }
            if is_full {
                return Judged::NoRoom(packet);
            }
            if let Some((flow, _)) = flow {
                // It may be asked about again before that one is answered.
                flow.set_mark(from);
            }
            let question = questions::question(direction, summary);
            let held = end.hold(from, question, packet);
            return held.map_or_else(Judged::NoRoom, |()| Judged::Later);
        }
        if is_full || !self.has_room() {
            return Judged::NoRoom(packet);
        }
        self.forget(direction, summary);
        if !self.tell() {
            return Judged::NoRoom(packet);
        }
        let question = questions::question(direction, summary);
        let asked = self.end.ask(question, packet);
        asked.map_or_else(Judged::NoRoom, |()| Judged::Later)
    }

    /// A packet that passes unasked has waited for that.
    fn count(&mut self, now: Instant, direction: Direction, summary: &Result<Summary, Malformed>) {
        if let Ok(summary) = summary
            && let Some(flow) = self.known.find(direction, summary)
        {
            flow.pass(now, direction, summary);
        }
    }

    /// The filter is asked about the flow from now on.
    fn forget(&mut self, direction: Direction, summary: &Result<Summary, Malformed>) {
        if let Ok(summary) = summary {
            self.accounts.extend(self.known.remove(direction, summary));
        }
    }

    /// A packet whose turn has come.
    pub(super) fn take_answered(&mut self, now: Instant) -> Option<(Parked, Verdict)> {
        let (question, packet, answer) = self.end.take_answered()?;
        let Some((direction, summary)) = questions::packet(&question) else {
            // Not one that was made here.
            return Some((packet, Verdict::Drop));
        };
        match (answer, summary) {
            (Answer::Passed, summary) => self.count(now, direction, &summary),
            (Answer::Offload(expected), Ok(summary)) => {
                let offload = Offload { expected };
                let mark = self.end.asked();
                self.known.insert(now, direction, &summary, offload, mark);
            }
            // What the filter said last of a flow counts.
            (Answer::Verdict(_) | Answer::Offload(_), summary) => self.forget(direction, &summary),
        }
        let verdict = match answer {
            Answer::Verdict(number) => questions::verdict(number),
            Answer::Offload(_) | Answer::Passed => Verdict::Pass,
        };
        Some((packet, verdict))
    }

    /// Tells the filter of flows whose time is over.
    pub(super) fn poll(&mut self, now: Instant) {
        while let Some(account) = self.known.expire(now) {
            self.accounts.push_back(account);
        }
        self.tell();
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.known.next_deadline()
    }

    /// Flows that its predecessor let pass go on, until their time is over: it knows them too, and is told then.
    pub(super) fn filter_restarted(&mut self, incarnation: Incarnation) {
        self.end.filter_restarted(incarnation);
    }

    /// Packets are asked about, whatever the filter has said.
    pub(super) fn ask_all(&mut self) {
        self.end.ask_all();
    }

    pub(super) fn begin(&mut self) {
        self.end.begin();
    }

    pub(super) fn flush(&mut self) {
        self.end.flush();
    }

    pub(super) fn is_ready(&self) -> bool {
        self.end.is_ready()
    }

    pub(super) fn is_broken(&self) -> bool {
        self.end.is_broken()
    }

    pub(super) fn waiting(&self) -> u32 {
        self.end.waiting()
    }

    pub(super) fn counters(&mut self) -> EndCounters {
        *self.end.counters()
    }
}

#[cfg(test)]
mod tests;
