//! One connection's control block, from its record and its rings.

use crate::connection::{Connection, Context, Program};
use crate::recovery::Phase;
use crate::saved::{FIN_OURS, OPTION_SACK, OPTION_TIMESTAMPS, OPTION_WINDOW_SCALING};
use crate::settings::Settings;
use crate::state::State;
use core::sync::atomic::Ordering::Relaxed;
use skink_memory::{Record, SocketId};
use skink_messages::{Counter, Events};
use skink_time::Duration;
use skink_wire::SeqNum;
use skink_wire::tcp::MAXIMUM_WINDOW_SCALE;

/// A round-trip time on record that is longer isn't believed.
const LONGEST_RTT_US: u32 = 1_000_000;

/// The largest window that a peer can offer (RFC 7323 section 2.3).
const LARGEST_WINDOW: u32 = 65_535 << MAXIMUM_WINDOW_SCALE;

/// Whether two numbers are so far apart at most: others aren't of one connection at one time.
fn is_within(one: SeqNum, other: SeqNum, most: u32) -> bool {
    one.distance_to(other) <= most || other.distance_to(one) <= most
}

impl Connection {
    /// Checks a record against itself and its rings, and makes a control block of it. The error is the
    /// counter of the reason why not.
    pub fn restore(
        id: SocketId,
        settings: Settings,
        program: Program,
        context: &Context<'_>,
    ) -> Result<Connection, Counter> {
        let mut connection = Connection::new(id, settings, program, context.now);
        let record = connection.record(context);
        let number = record.state.load(Relaxed);
        let state = State::from_number(number).ok_or(Counter::TcpRecordKind)?;
        if state.is_synchronized() && record.seal.load(Relaxed) != record.seal() {
            return Err(Counter::TcpRecordChanged);
        }
        connection.restore_state(state);
        connection.tuple = record.four_tuple();
        let rings = [
            connection.send_ring(context),
            connection.receive_ring(context),
        ];
        if rings.iter().any(|ring| ring.is_spoilt()) {
            return Err(Counter::TcpRecordRings);
        }
        if state == State::Closed {
            connection.tell(Events::READABLE | Events::WRITABLE);
            connection.tell(Events::READ_CLOSED | Events::CLOSED);
            connection.tell_error(record);
            return Ok(connection);
        }
        if !matches!(record.family.load(Relaxed), 4 | 6) {
            return Err(Counter::TcpRecordEnds);
        }
        connection.restore_negotiated(record)?;
        if state.is_synchronized() {
            connection.restore_sending(state, context)?;
            connection.restore_receiving(state, context)?;
        } else {
            connection.restore_handshake(state, context)?;
        }
        connection.tell_error(record);
        Ok(connection)
    }

    fn tell_error(&mut self, record: &Record) {
        if record.error.load(Relaxed) != 0 {
            self.tell(Events::ERROR);
        }
    }

    fn restore_negotiated(&mut self, record: &Record) -> Result<(), Counter> {
        let options = record.options.load(Relaxed);
        self.iss = SeqNum(record.iss.load(Relaxed));
        self.irs = SeqNum(record.irs.load(Relaxed));
        self.peer_mss = record.mss.load(Relaxed);
        self.snd_wscale = record.snd_wscale.load(Relaxed);
        self.rcv_wscale = record.rcv_wscale.load(Relaxed);
        self.sack = options & OPTION_SACK != 0;
        self.timestamps = options & OPTION_TIMESTAMPS != 0;
        self.window_scaling = options & OPTION_WINDOW_SCALING != 0;
        self.ts_recent = record.ts_recent.load(Relaxed);
        self.ts_offset = record.ts_offset.load(Relaxed);
        self.doubts_stamps = self.timestamps;
        let scales = self.snd_wscale.max(self.rcv_wscale);
        let known = OPTION_SACK | OPTION_TIMESTAMPS | OPTION_WINDOW_SCALING;
        let sane = scales <= MAXIMUM_WINDOW_SCALE && options & !known == 0 && self.peer_mss >= 64;
        sane.then_some(()).ok_or(Counter::TcpRecordNumbers)
    }

    fn own_fin(record: &Record) -> Option<SeqNum> {
        let ours = record.fin.load(Relaxed) & FIN_OURS != 0;
        ours.then(|| SeqNum(record.fin_number.load(Relaxed)))
    }

    /// A handshake begins anew, with the same numbers.
    fn restore_handshake(&mut self, state: State, context: &Context<'_>) -> Result<(), Counter> {
        let record = self.record(context);
        let (send, receive) = (self.send_ring(context), self.receive_ring(context));
        // What the program has written already may wait there.
        if send.head() != 0 || receive.tail() != 0 || receive.head() != 0 {
            return Err(Counter::TcpRecordRings);
        }
        let sent = record.snd_max.load(Relaxed) == (self.iss + 1).0;
        self.snd_una = self.iss;
        // An answer to what the predecessor sent counts; but it gives no round-trip time.
        self.snd_nxt = self.iss + u32::from(sent);
        self.fin = Connection::own_fin(record);
        self.syn_due = true;
        if state == State::SynReceived {
            let offered = self.irs.distance_to(SeqNum(record.rcv_adv.load(Relaxed)));
            if offered > receive.capacity() as u32 + 1 {
                return Err(Counter::TcpRecordNumbers);
            }
            self.rcv_nxt = self.irs + 1;
            self.rcv_adv = self.rcv_nxt.max(SeqNum(record.rcv_adv.load(Relaxed)));
            self.snd_wnd = record.snd_wnd.load(Relaxed);
            self.max_window = self.snd_wnd;
            self.snd_wl1 = self.irs;
        }
        Ok(())
    }

    /// Between two segments that we sent, the ring's head is ahead of `snd_una`; what was refused when it
    /// was to be sent is below `snd_max`, and counts as lost.
    fn restore_sending(&mut self, state: State, context: &Context<'_>) -> Result<(), Counter> {
        let (record, ring) = (self.record(context), self.send_ring(context));
        let bad = || Counter::TcpRecordNumbers;
        let head = self.iss + 1 + ring.head() as u32;
        let tail = head + ring.len() as u32;
        let finished = match state {
            State::FinWait1 | State::FinWait2 | State::Closing => true,
            State::LastAck | State::TimeWait => true,
            State::Established | State::CloseWait => false,
            State::Closed | State::Listen | State::SynSent | State::SynReceived => false,
        };
        // A flag without the state: `shutdown` or `close` was under way, and is finished at the end.
        self.fin = Connection::own_fin(record);
        if finished && self.fin.is_none() {
            return Err(bad());
        }
        if self.fin.is_some_and(|fin| fin.lt(head) || fin.gt(tail)) {
            return Err(bad());
        }
        let fin_acknowledged = matches!(state, State::FinWait2 | State::TimeWait);
        if fin_acknowledged && self.fin != Some(head) {
            return Err(bad());
        }
        self.snd_una = head + u32::from(fin_acknowledged);
        let limit = self.fin.map_or(tail, |fin| fin + 1);
        let saved_una = SeqNum(record.snd_una.load(Relaxed));
        let saved_max = SeqNum(record.snd_max.load(Relaxed));
        // Of the FIN it may be on record that it is acknowledged, and not yet in the state.
        let una_limit = self.snd_una + u32::from(self.fin == Some(head));
        let mut saved_wnd = record.snd_wnd.load(Relaxed);
        let in_ring = self.snd_una.distance_to(saved_max) <= self.snd_una.distance_to(limit);
        let ordered = saved_una.le(una_limit.min(saved_max)) && in_ring;
        let sane = ordered && saved_wnd <= LARGEST_WINDOW;
        self.snd_nxt = saved_max;
        if !sane {
            let reach = ring.capacity() as u32;
            let could_be = saved_una.le(saved_max) && is_within(saved_max, head, reach);
            if could_be && saved_max.lt(self.snd_una) {
                // They agree with each other that the peer can't have acknowledged so much: the ring's end is wrong.
                return Err(bad());
            }
            // Of the numbers nothing is needed but that none is too low: all that there is may have been sent.
            self.snd_nxt = limit;
            saved_wnd = saved_wnd.min(u32::from(self.peer_mss));
            context.counters.count(Counter::TcpMended);
        }
        self.small_end = self.snd_nxt;
        self.limited_end = self.snd_una;
        let from = if sane { saved_una } else { self.snd_una };
        let edge = from + saved_wnd;
        self.snd_wnd = if edge.gt(self.snd_una) {
            self.snd_una.distance_to(edge)
        } else {
            0
        };
        self.max_window = self.snd_wnd.max(saved_wnd);
        self.tell_if(ring.free() > 0, Events::WRITABLE);
        Ok(())
    }

    /// Between two segments that we sent, the ring's tail is ahead of `rcv_nxt`: what is beyond it
    /// wasn't acknowledged, and what arrived ahead of a gap is gone and sent again.
    fn restore_receiving(&mut self, state: State, context: &Context<'_>) -> Result<(), Counter> {
        let (record, ring) = (self.record(context), self.receive_ring(context));
        let finished = match state {
            State::CloseWait | State::Closing | State::LastAck | State::TimeWait => true,
            State::Established | State::FinWait1 | State::FinWait2 => false,
            State::Closed | State::Listen | State::SynSent | State::SynReceived => false,
        };
        let tail = self.irs + 1 + ring.tail() as u32;
        self.peer_fin = finished.then_some(tail);
        self.rcv_nxt = tail + u32::from(finished);
        let saved_nxt = SeqNum(record.rcv_nxt.load(Relaxed));
        let saved_adv = SeqNum(record.rcv_adv.load(Relaxed));
        let slack = (1 << self.rcv_wscale) - 1;
        let reach = self.rcv_nxt + ring.free() as u32 + slack;
        // A FIN may lie beyond the window.
        let was_offered = self.rcv_nxt.le(saved_adv + slack + 1);
        let in_order = saved_nxt.le(self.rcv_nxt) && saved_adv.le(reach) && was_offered;
        self.rcv_adv = saved_adv.max(self.rcv_nxt);
        if !in_order {
            // What the peer was told to have sent in vain, or was never offered room for, is only believed to be so if
            // it can be: then the ring's end is wrong.
            let most = ring.capacity() as u32 + slack + 1;
            let told = saved_nxt.gt(self.rcv_nxt) && is_within(saved_nxt, self.rcv_nxt, most);
            let unasked = !was_offered && is_within(saved_adv, self.rcv_nxt, most);
            if told || unasked {
                return Err(Counter::TcpRecordNumbers);
            }
            self.rcv_adv = saved_adv.min(reach).max(self.rcv_nxt);
            if !is_within(saved_adv, self.rcv_nxt, most) {
                self.rcv_adv = self.rcv_nxt;
            }
            context.counters.count(Counter::TcpMended);
        }
        self.last_ack = self.rcv_nxt;
        self.ahead_latest = self.rcv_nxt;
        self.snd_wl1 = self.rcv_nxt;
        self.tell_if(!ring.is_empty() || finished, Events::READABLE);
        self.tell_if(finished, Events::READ_CLOSED);
        Ok(())
    }

    /// Goes on where the predecessor stopped: what wasn't acknowledged is sent again, and the peer is made
    /// to say how things stand.
    pub fn resume(&mut self, context: &Context<'_>) {
        self.update_segment_sizes();
        self.receive_mss = self.mss;
        // RFC 5681 section 4.1: as after a pause, the network's state isn't known.
        self.congestion = crate::cubic::Cubic::new(self.mss);
        let rtt_us = self.record(context).rtt_us.load(Relaxed);
        if (1..=LONGEST_RTT_US).contains(&rtt_us) {
            self.rtt.sample(Duration::from_micros(u64::from(rtt_us)));
        }
        self.save_distance(context);
        self.recovery.lost_below = self.snd_una;
        self.recovery.resent_below = self.snd_una;
        let state = self.state();
        if !state.is_synchronized() {
            self.stalled_since = Some(context.now);
            return;
        }
        if state == State::TimeWait {
            // A peer that has heard of it has forgotten the connection.
            let told = SeqNum(self.record(context).rcv_nxt.load(Relaxed));
            self.ack_due = told != self.rcv_nxt;
            return;
        }
        self.ack_due = true;
        if self.fin.is_some() && matches!(state, State::Established | State::CloseWait) {
            // Of `shutdown` the number was stored, and the state not.
            self.fin = None;
            self.finish_sending(context);
        }
        if self.flight() > 0 {
            // As after a timeout: duplicate acknowledgements begin no fast recovery.
            self.recovery.phase = Phase::Timeout {
                until: self.snd_nxt,
                needless: None,
            };
            self.stalled_since = Some(context.now);
            self.resend_all();
            self.start_retransmit_timer(context);
        } else {
            // The peer's window may have changed since our last segment, and it won't say so again.
            self.probe_due = true;
        }
        self.arm_keep_alive(context.now);
        self.linger(context);
    }
}
