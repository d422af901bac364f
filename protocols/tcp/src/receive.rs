use crate::connection::{Connection, Context, Program};
use crate::segment::Segment;
use crate::state::State;
use skink_memory::Ring;
use skink_messages::{Counter, Events, SocketError};
use skink_time::Duration;
use skink_wire::SeqNum;
use skink_wire::tcp::Flags;

/// A timestamp older than this says nothing any more (RFC 7323 section 5.5).
const STALE_TIMESTAMP: Duration = Duration::from_secs(24 * 24 * 3_600);

/// How long a delayed acknowledgement waits. RFC 9293 allows 500 ms; Linux begins with 40.
pub(crate) const ACK_DELAY: Duration = Duration::from_millis(40);
/// At the beginning of a connection it is delayed for no longer than this: a peer that wrote twice sends the second part only then
/// (RFC 9293 3.7.4). Linux acknowledges at once there; a program that answers within this time costs no segment more.
const QUICK_DELAY: Duration = Duration::from_millis(1);
/// The largest segments on any wire, in bytes, and some.
const JUMBO: u32 = 16 * 1024;
/// What counts as a full segment where they may be larger: whoever has filled a small send buffer waits for an acknowledgement.
const LITTLE: u32 = 1024;

/// The least time between two answers to senseless segments, as in Linux.
const CHALLENGE_INTERVAL: Duration = Duration::from_millis(500);

/// Acknowledgements at once for segments ahead of a gap, at most: about as many packets as data leaves in at once. The peer
/// needs three.
const MOST_REPEATS: u32 = 32;

/// What a peer may send to a program that has read nothing yet, in bytes, as in Linux: whoever doesn't read, or doesn't even
/// accept, takes no more of the memory, and of the time that it takes to fill it, for each connection.
const UNREAD_BYTES: u64 = 65_536;

/// How many bytes a peer may be ahead of a program that hasn't set it: [`UNREAD_BYTES`] and twice what the program has taken out
/// of `ring` so far, at most what it holds. So the window grows at least as fast as a peer in slow start can fill it.
pub fn unread_limit(ring: &Ring<'_>) -> usize {
    let bytes = ring.head().saturating_mul(2).saturating_add(UNREAD_BYTES);
    usize::try_from(bytes).map_or(ring.size(), |bytes| bytes.min(ring.size()))
}

/// Memory is taken by pages of so many bytes.
const PAGE: usize = 4096;

/// How long FIN-WAIT-2 lasts when no program holds the socket, as in Linux.
const LINGER: Duration = Duration::from_secs(60);

/// What became of the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum After {
    /// It goes on.
    Goes,
    /// The handshake is complete.
    Established,
    /// It is over but for TIME-WAIT.
    TimeWait,
    /// It is over.
    Closed,
    /// It is over, and the peer must be told: answer this segment with a reset.
    Reset,
    /// It goes on, but this segment belongs to no connection of ours: answer it with a reset.
    Refuse,
}

impl Connection {
    /// A segment arrives in a synchronized state (RFC 9293 3.10.7.4).
    #[inline]
    pub fn on_segment(&mut self, segment: &Segment<'_>, context: &Context<'_>) -> After {
        self.heard = context.now;
        self.keep_alive_sent = 0;
        self.probes_unanswered = 0;
        if !self.passes_paws(segment, context) || !self.is_acceptable(segment, context) {
            return After::Goes;
        }
        if segment.has(Flags::RST) {
            return self.on_reset(segment, context);
        }
        if segment.has(Flags::SYN) {
            // RFC 5961 section 4: an acknowledgement tells an honest peer what is wrong.
            context.counters.count(Counter::TcpDropBadFlags);
            self.challenge(context);
            return After::Goes;
        }
        if !segment.has(Flags::ACK) {
            context.counters.count(Counter::TcpDropBadFlags);
            return After::Goes;
        }
        if self.on_ack(segment, context).is_err() {
            return After::Goes;
        }
        if self.is_to_be_reset() && self.send_ring(context).is_empty() {
            return After::Reset;
        }
        // Only now, as in Linux: who guesses a sequence number in the window, but no acknowledgement (RFC 5961
        // section 5), could otherwise have all that the peer sends taken for old.
        self.settle_doubts(segment, context);
        self.note_timestamp(segment, context);
        let after = self.on_fin_acknowledged(context);
        if after != After::Goes {
            return after;
        }
        if !segment.payload.is_empty() || segment.has(Flags::FIN) {
            return self.on_data(segment, context);
        }
        After::Goes
    }

    /// Protection against wrapped sequence numbers (RFC 7323 section 5.3, R1).
    fn passes_paws(&mut self, segment: &Segment<'_>, context: &Context<'_>) -> bool {
        if !self.timestamps || segment.has(Flags::RST) {
            return true;
        }
        let Some(stamp) = segment.options.timestamps else {
            if !self.doubts_stamps {
                context.counters.count(Counter::TcpDropPaws);
                if segment.has(Flags::SYN) {
                    // A peer that has begun anew, or another one behind the same address, finds out (RFC 5961 section 4.2).
                    self.challenge(context);
                }
            }
            return self.doubts_stamps;
        };
        let older = (stamp.value.wrapping_sub(self.ts_recent) as i32) < 0;
        let fresh = context.now.since(self.ts_recent_at) < STALE_TIMESTAMP;
        if older && fresh && !self.doubts_stamps {
            context.counters.count(Counter::TcpDropPaws);
            self.answer_unacceptable(segment, context);
            return false;
        }
        true
    }

    /// After an adoption the peer's first acceptable segment says what its timestamps are, and which of ours it has
    /// seen: if that is one that our clock hasn't come to, it takes nothing from us before we are past it. One that has
    /// none, in spite of what is on record, has never heard that there would be any (RFC 7323 section 3.2: they
    /// are in each segment if they were agreed on).
    fn settle_doubts(&mut self, segment: &Segment<'_>, context: &Context<'_>) {
        if !core::mem::take(&mut self.doubts_stamps) {
            return;
        }
        let Some(stamp) = segment.options.timestamps else {
            // The record stays as it is: who adopts it next finds out by the same means.
            self.timestamps = false;
            return self.update_segment_sizes();
        };
        self.ts_recent = stamp.value;
        let ahead = stamp.echo.wrapping_sub(self.timestamp(context.now));
        if (ahead as i32) > 0 {
            self.ts_offset = self.ts_offset.wrapping_add(ahead).wrapping_add(1);
        }
    }

    /// RFC 7323 section 4.3, (2).
    pub fn note_timestamp(&mut self, segment: &Segment<'_>, context: &Context<'_>) {
        if let Some(stamp) = segment.options.timestamps.filter(|_| self.timestamps)
            && segment.header.seq.le(self.last_ack)
            && ((stamp.value.wrapping_sub(self.ts_recent) as i32) >= 0
                || context.now.since(self.ts_recent_at) >= STALE_TIMESTAMP)
        {
            self.ts_recent = stamp.value;
            self.ts_recent_at = context.now;
        }
    }

    /// The four cases of RFC 9293 3.10.7.4, *first, check sequence number*. A segment that begins
    /// before the window and reaches it is acceptable; so is a bare acknowledgement at its edge.
    fn is_acceptable(&mut self, segment: &Segment<'_>, context: &Context<'_>) -> bool {
        let (seq, end) = (segment.header.seq, segment.end());
        let edge = (self.rcv_adv + self.window_slack()).max(self.rcv_nxt);
        let acceptable = if segment.sequence_len() == 0 {
            // Many peers that were offered more before go on from the end of what they have sent.
            seq.ge(self.rcv_nxt) && seq.le(edge + self.taken_back)
        } else {
            // With a closed window, data right at its edge is trimmed away, but its
            // acknowledgement counts.
            seq.lt(edge) && end.gt(self.rcv_nxt) || seq == self.rcv_nxt
        };
        if acceptable {
            return true;
        }
        let duplicate = end.le(self.rcv_nxt) && segment.sequence_len() > 0;
        context.counters.count(if duplicate {
            Counter::TcpDropDuplicate
        } else {
            Counter::TcpDropOutOfWindow
        });
        self.answer_unacceptable(segment, context);
        false
    }

    /// RFC 9293 3.10.7.4: what isn't acceptable is answered with an acknowledgement, except a reset.
    pub fn answer_unacceptable(&mut self, segment: &Segment<'_>, context: &Context<'_>) {
        if segment.has(Flags::RST) {
            return;
        }
        if segment.sequence_len() > 0 {
            self.ack_due = true;
        } else {
            self.challenge(context);
        }
    }

    /// Asks for an acknowledgement in answer to a segment that makes no sense here, but not too
    /// often (RFC 5961 section 7): two ends that disagree would otherwise answer each other's
    /// answers for ever. Data, FIN and SYN aren't limited, as in Linux: no answer contains them.
    pub fn challenge(&mut self, context: &Context<'_>) {
        let allowed = self
            .challenged
            .is_none_or(|last| context.now.since(last) >= CHALLENGE_INTERVAL);
        if allowed {
            self.challenged = Some(context.now);
            self.ack_due = true;
        }
    }

    /// RFC 5961 section 3: only the exact number resets.
    fn on_reset(&mut self, segment: &Segment<'_>, context: &Context<'_>) -> After {
        if segment.header.seq != self.rcv_nxt {
            context.counters.count(Counter::TcpDropBadReset);
            self.challenge(context);
            return After::Goes;
        }
        context.counters.count(Counter::TcpResetsIn);
        match self.state() {
            State::TimeWait | State::Closing | State::LastAck => {}
            // As Linux: what it had to say is complete.
            State::CloseWait => self.fail(SocketError::BrokenPipe, context),
            _ => self.fail(SocketError::Reset, context),
        }
        After::Closed
    }

    /// The states that wait for an acknowledgement of our FIN.
    fn on_fin_acknowledged(&mut self, context: &Context<'_>) -> After {
        if !self.fin_acknowledged() {
            return After::Goes;
        }
        match self.state() {
            State::FinWait1 => {
                self.enter(State::FinWait2, context);
                self.linger(context);
                After::Goes
            }
            State::Closing => {
                self.enter(State::TimeWait, context);
                After::TimeWait
            }
            State::LastAck => After::Closed,
            State::Closed | State::Listen | State::SynSent | State::SynReceived => After::Goes,
            State::Established | State::FinWait2 | State::CloseWait | State::TimeWait => {
                After::Goes
            }
        }
    }

    /// FIN-WAIT-2 ends by itself if nobody is left to read what the peer may still send.
    pub fn linger(&mut self, context: &Context<'_>) {
        if self.state() == State::FinWait2 && self.program() == Program::Gone {
            self.deadlines.linger = Some(context.now + LINGER);
        }
    }

    /// *Seventh, process the segment text*, and *eighth, check the FIN bit*.
    fn on_data(&mut self, segment: &Segment<'_>, context: &Context<'_>) -> After {
        if !self.state().receives_data() {
            // The peer repeats what it sent before its FIN, or its FIN.
            self.ack_due = true;
            return After::Goes;
        }
        let payload_end = segment.payload_seq() + segment.payload.len() as u32;
        if self.program() == Program::Gone && payload_end.gt(self.rcv_nxt) {
            // Nobody can read it any more (RFC 9293 3.6.1 and RFC 2525 2.17). But what was written may still be under way.
            context.counters.count(Counter::TcpDropClosed);
            return match self.is_to_be_reset() {
                true => After::Goes,
                false => After::Reset,
            };
        }
        let has_finished = matches!(self.state(), State::FinWait1 | State::FinWait2);
        if self.reading_over && has_finished && payload_end.gt(self.rcv_nxt) {
            // RFC 1122 4.2.2.13. Linux does so too, and takes in what comes for who may still write.
            context.counters.count(Counter::TcpDropClosed);
            self.fail(SocketError::Reset, context);
            return After::Reset;
        }
        if segment.has(Flags::FIN) {
            // Data beyond the FIN, or a FIN elsewhere, would be a peer gone mad: the first one counts.
            self.peer_fin.get_or_insert(segment.end() - 1);
        }
        let waited = context.now.since(segment.arrived);
        if self.crowding.is_changed_by(waited, self.rcv_nxt) {
            let limit = self.receive_limit(&self.receive_ring(context), context);
            let edge = self.rcv_adv.max(self.rcv_nxt);
            let rtt = self.rtt.smoothed().unwrap_or_default();
            let is_less = self.crowding.change(waited, rtt, limit, edge);
            context.counters.add(Counter::TcpCrowded, is_less.into());
        }
        let (before, was_due) = (self.rcv_nxt, self.ack_due);
        self.place(segment, context);
        self.pull_ahead(context);
        if self.rcv_nxt != before {
            // Repetitions of the new acknowledgement would tell of a gap there.
            self.repeats_due = 0;
        }
        if self.peer_fin == Some(self.rcv_nxt) {
            return self.on_fin(context);
        }
        // A FIN ahead of a gap: the acknowledgement says what is missing.
        self.ack_due |= segment.has(Flags::FIN);
        if segment.payload_seq().gt(self.rcv_nxt) {
            self.note_ahead(segment, was_due);
        }
        After::Goes
    }

    /// A segment arrived ahead of a gap. A peer without SACK counts acknowledgements, and begins to repair with the third that
    /// is a duplicate: each such segment has its own (RFC 5681 section 4.2), and so has what was acknowledged before.
    fn note_ahead(&mut self, segment: &Segment<'_>, was_due: bool) {
        if self.sack {
            return;
        }
        let due = self.repeats_due.max(u32::from(was_due));
        self.repeats_due = (due + segment.count()).min(MOST_REPEATS);
    }

    /// Puts the payload into the receive ring: in order, or ahead of a gap.
    fn place(&mut self, segment: &Segment<'_>, context: &Context<'_>) {
        let seq = segment.payload_seq();
        let past = if seq.lt(self.rcv_nxt) {
            seq.distance_to(self.rcv_nxt)
        } else {
            0
        };
        let Some(payload) = segment
            .payload
            .get(past as usize..)
            .filter(|rest| !rest.is_empty())
        else {
            self.ack_due |= past > 0;
            return;
        };
        let start = seq + past;
        let edge = self.rcv_adv + self.window_slack();
        let room = start.distance_to(edge.max(start)) as usize;
        let payload = payload.get(..room).unwrap_or(payload);
        if let Some(fin) = self.peer_fin
            && (start + payload.len() as u32).gt(fin)
        {
            context.counters.count(Counter::TcpDropBadFlags);
            return;
        }
        let ring = self.receive_ring(context);
        let offset = self.rcv_nxt.distance_to(start) as usize;
        let room = self.memory_room(&ring, offset, context).min(payload.len());
        let (payload, left_out) = payload.split_at(room);
        if !left_out.is_empty() {
            context.counters.count(Counter::TcpDropScarce);
            self.ack_due = true;
            if start == self.rcv_nxt || self.memory_room(&ring, 0, context) == 0 {
                // The gap can't be filled, and a window that is open for what is ahead of it would have the peer try
                // until it gives up. RFC 2018 section 8 allows to forget that, and Linux does so.
                self.forget_ahead();
            }
            if payload.is_empty() {
                return;
            }
        }
        // A byte takes a page, and more of them one at either end.
        context.memory.budget.put(payload.len() + 2 * PAGE);
        if self.ahead.is_empty() {
            ring.restart();
            self.grow_for_far_peer(&ring, context);
        }
        if start == self.rcv_nxt {
            let taken = ring.write(payload);
            self.note_spread(&ring);
            if taken + left_out.len() < segment.payload.len() - past as usize {
                context.counters.count(Counter::TcpDropNoBuffer);
                self.ack_due = true;
            }
            self.rcv_nxt += taken as u32;
            context.counters.add(Counter::TcpBytesIn, taken as u64);
            self.schedule_ack(taken as u32, segment.has(Flags::PSH), context);
            if taken > 0 {
                self.tell(Events::READABLE);
            }
        } else {
            // What isn't kept isn't put there, where it would take memory.
            let fits = ring.free().saturating_sub(offset).min(payload.len());
            let taken = fits as u32;
            if taken > 0 && self.ahead.insert(start, start + taken) {
                ring.write_ahead(offset, &payload[..fits]);
                context.counters.count(Counter::TcpOutOfOrder);
                self.ahead_latest = start;
                if self.sack {
                    self.ahead_untold.insert(start, start + taken);
                }
            } else {
                context.counters.count(Counter::TcpDropNoBuffer);
            }
            // RFC 5681 section 4.2: at once, for the peer's fast retransmit.
            self.ack_due = true;
        }
    }

    /// Takes what had arrived ahead and is in order now.
    fn pull_ahead(&mut self, context: &Context<'_>) {
        if self.ahead.is_empty() {
            return;
        }
        if let Some((_, end)) = self.ahead.around(self.rcv_nxt) {
            // A peer gone mad sent data beyond its FIN before that.
            let end = self.peer_fin.map_or(end, |fin| end.min(fin));
            let more = self.rcv_nxt.distance_to(end);
            let ring = self.receive_ring(context);
            ring.advance_tail(more as usize);
            self.note_spread(&ring);
            self.rcv_nxt = end;
            context.counters.add(Counter::TcpBytesIn, u64::from(more));
            self.tell(Events::READABLE);
        }
        self.ahead.remove_below(self.rcv_nxt);
        self.ahead_untold.remove_below(self.rcv_nxt);
        // RFC 5681 section 4.2: a segment that fills a gap is acknowledged at once.
        self.ack_due = true;
    }

    /// Nothing has arrived ahead of a gap.
    fn forget_ahead(&mut self) {
        self.ahead.clear();
        self.ahead_untold.clear();
        self.repeats_due = 0;
    }

    /// Postpones the acknowledgement of `bytes` in-order bytes as long as is allowed; not for who says nothing itself, if this
    /// is all for now (`pushed`): a peer that writes little at a time may send the next only then (Nagle's algorithm).
    fn schedule_ack(&mut self, bytes: u32, pushed: bool, context: &Context<'_>) {
        self.data_at = context.now;
        self.unacknowledged = self.unacknowledged.saturating_add(bytes);
        let segment = match self.receive_mss {
            mss @ ..=JUMBO => mss,
            // On the way to ourselves a segment holds more than some send buffers.
            _ => LITTLE,
        };
        let full = bytes >= segment;
        let is_new = self.quick_acks > 0;
        // RFC 9293 3.8.6.3: at least every second full segment; and while the peer's window is
        // still small, each.
        if self.unacknowledged >= 2 * segment || full && is_new {
            self.ack_due = true;
            self.quick_acks = self.quick_acks.saturating_sub(u8::from(full));
        } else if self.settings.quick_ack || pushed && !self.interactive && !is_new {
            self.ack_due = true;
        } else if self.deadlines.acknowledge.is_none() {
            let delay = if is_new { QUICK_DELAY } else { ACK_DELAY };
            self.quick_acks = self.quick_acks.saturating_sub(1);
            self.deadlines.acknowledge = Some(context.now + delay);
        }
    }

    /// The peer has finished sending, and everything before has arrived.
    fn on_fin(&mut self, context: &Context<'_>) -> After {
        self.rcv_nxt += 1;
        self.rcv_adv = self.rcv_adv.max(self.rcv_nxt);
        self.forget_ahead();
        self.ack_due = true;
        self.tell(Events::READABLE | Events::READ_CLOSED);
        match self.state() {
            State::Established => self.enter(State::CloseWait, context),
            State::FinWait1 => self.enter(State::Closing, context),
            State::FinWait2 => {
                self.enter(State::TimeWait, context);
                return After::TimeWait;
            }
            State::Closed | State::Listen | State::SynSent | State::SynReceived => {}
            State::CloseWait | State::Closing | State::LastAck | State::TimeWait => {}
        }
        After::Goes
    }

    /// The program took bytes from the receive ring: tells the peer if that opens its window by an
    /// amount worth a segment (RFC 9293 3.8.6.2.2).
    pub fn on_program_read(&mut self, context: &Context<'_>) {
        let ring = self.receive_ring(context);
        let limit = self.receive_limit(&ring, context);
        // More can't be told: 65,535 bytes, if the peer doesn't scale windows.
        let most = u32::from(u16::MAX) << self.rcv_wscale;
        let room = most.min(limit.saturating_sub(ring.len()) as u32);
        let limit = most.min(limit as u32);
        let left = self.rcv_nxt.distance_to(self.rcv_adv.max(self.rcv_nxt));
        // While the peer still has half of the window, the next acknowledgement is early enough.
        if left >= limit / 2 {
            return;
        }
        let edge = self.rcv_nxt + room;
        let gain = if edge.gt(self.rcv_adv) {
            self.rcv_adv.distance_to(edge)
        } else {
            0
        };
        let worth = (limit / 2).min(2 * self.receive_mss);
        if gain >= worth && self.state().receives_data() {
            self.ack_due = true;
        }
    }

    /// A scaled window is a multiple of its unit; rounded up, it reaches this much further at most.
    fn window_slack(&self) -> u32 {
        (1 << self.rcv_wscale) - 1
    }

    /// Bytes of the receive ring that may be offered: as many as the program has set, or else [`unread_limit`]; fewer while data
    /// waits in front of the stack, or memory is scarce. A unit of the window less one byte is kept back: what a window rounded up promised has
    /// room too.
    pub fn receive_limit(&self, ring: &Ring<'_>, context: &Context<'_>) -> usize {
        let most = ring.size().saturating_sub(self.window_slack() as usize);
        let bytes = match self.settings.receive_buffer {
            Some(bytes) => bytes as usize,
            None => unread_limit(ring),
        };
        let bytes = bytes
            .min(self.crowding.most())
            .min(self.memory_limit(context));
        bytes.max(2 * self.mss as usize).min(most)
    }

    /// The window to put in a header, and the right edge that it offers.
    pub fn window(&self, context: &Context<'_>) -> (u16, SeqNum) {
        let ring = self.receive_ring(context);
        let limit = self.receive_limit(&ring, context);
        let free = limit.saturating_sub(ring.len()).min(ring.free()) as u32;
        // The edge must not move left (RFC 9293 3.8.6), whatever the program set meanwhile; unless nothing beyond could be kept.
        let offered = match self.takes_back(context) {
            true => self.ahead_bytes() as u32,
            false => self.rcv_nxt.distance_to(self.rcv_adv.max(self.rcv_nxt)),
        };
        // Nor does it move right by little (RFC 9293 3.8.6.2.2).
        let worth = (limit as u32 / 2).min(self.receive_mss);
        let free = if free.saturating_sub(offered) < worth {
            free.min(offered)
        } else {
            free
        };
        let field = (free >> self.rcv_wscale).min(65_535);
        let field = if field << self.rcv_wscale < offered {
            offered.div_ceil(1 << self.rcv_wscale).min(65_535)
        } else {
            field
        };
        let reach = (field << self.rcv_wscale).min(free).max(offered);
        (field as u16, self.rcv_nxt + reach)
    }
}

#[cfg(test)]
mod tests;
