use crate::connection::{Connection, Context};
use crate::receive::ACK_DELAY;
use crate::segment::Outgoing;
use crate::state::State;
use skink_memory::{Bytes, Ring};
use skink_messages::{Counter, Full, Network};
use skink_time::Duration;
use skink_wire::SeqNum;
use skink_wire::tcp::{Flags, Header, Options, SackBlocks};

/// How long `TCP_CORK` holds a segment back, as in Linux.
const CORK: Duration = Duration::from_millis(200);

/// Bytes sent for one connection before others have their turn: those of one large packet. With more, connections that
/// begin slowly wait behind the bursts of those that don't, each round trip anew.
pub const BURST: u32 = 60 * 1024;

/// What a call to [`Connection::output`] left undone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    Nothing,
    /// There is more to send; it is others' turn.
    More,
}

impl Connection {
    /// Sends what is due: first what was lost, then new data, then an acknowledgement if none of
    /// these carried it. State moves only for what `out` took. Bytes of payload are taken off `budget`; [`BURST`] is enough.
    pub fn output<O: Network + ?Sized>(
        &mut self,
        context: &Context<'_>,
        budget: &mut u32,
        out: &mut O,
    ) -> Result<Left, Full> {
        match self.state() {
            State::Closed | State::Listen => return Ok(Left::Nothing),
            State::TimeWait => {}
            State::SynSent | State::SynReceived => return self.output_handshake(context, out),
            State::Established
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait
            | State::Closing
            | State::LastAck => {
                while self.ack_due && !self.ahead.is_empty()
                    || !self.ahead_untold.is_empty()
                    || self.repeats_due > 0
                {
                    // What a full segment has no room for: which bytes arrived ahead of a gap. Nor
                    // would the peer count a segment with data as a duplicate acknowledgement. One that comes without all
                    // that a batch brought would have it send the rest again.
                    let seq = self.acceptable_seq();
                    self.emit(context, out, seq, Flags::ACK, [Bytes::EMPTY; 2])?;
                    self.repeats_due = self.repeats_due.saturating_sub(1);
                }
                if self.state().sends_data() {
                    self.output_lost(context, out, budget)?;
                    self.output_new(context, out, budget)?;
                }
                if *budget == 0 {
                    return Ok(Left::More);
                }
            }
        }
        // First, since the peer looks at nothing in a segment with an old sequence number.
        if self.ack_due {
            let seq = self.acceptable_seq();
            self.emit(context, out, seq, Flags::ACK, [Bytes::EMPTY; 2])?;
        }
        if self.probe_due && self.flight() > 0 {
            // What is in flight makes the peer answer.
            self.probe_due = false;
        }
        if self.probe_due {
            // An old sequence number makes the peer answer, whatever its window.
            let old = self.snd_una - 1;
            self.emit(context, out, old, Flags::ACK, [Bytes::EMPTY; 2])?;
            self.probe_due = false;
        }
        Ok(Left::Nothing)
    }

    /// The sequence number of a segment with nothing in it. What was sent reaches beyond the edge of the peer's window if the
    /// peer took that back. It drops all that begins there (RFC 9293 3.10.7.4; Linux has `tcp_acceptable_seq`).
    pub fn acceptable_seq(&self) -> SeqNum {
        self.snd_nxt.min(self.snd_una + self.snd_wnd)
    }

    fn output_handshake<O: Network + ?Sized>(
        &mut self,
        context: &Context<'_>,
        out: &mut O,
    ) -> Result<Left, Full> {
        if !self.syn_due {
            if self.ack_due && self.state() == State::SynReceived {
                self.emit(context, out, self.snd_nxt, Flags::ACK, [Bytes::EMPTY; 2])?;
            }
            self.ack_due = false;
            return Ok(Left::Nothing);
        }
        let flags = if self.state() == State::SynSent {
            Flags::SYN
        } else {
            Flags::SYN | Flags::ACK
        };
        let options = self.syn_options(context);
        let free = self.receive_limit(&self.receive_ring(context), context) as u32;
        let window = free.min(65_535);
        if self.state() == State::SynReceived {
            // Whatever the peer may send now, the record says that it may.
            self.rcv_adv = self.rcv_adv.max(self.rcv_nxt + window);
        }
        self.save(context, self.iss + 1);
        self.send(
            context,
            out,
            self.iss,
            flags,
            &options,
            window as u16,
            [Bytes::EMPTY; 2],
        )?;
        self.syn_due = false;
        self.ack_due = false;
        if self.state() == State::SynReceived {
            self.last_ack = self.rcv_nxt;
        }
        // Karn: a request that was repeated gives no round-trip time.
        self.timed = (self.snd_nxt == self.iss).then_some((self.iss + 1, context.now));
        self.snd_nxt = self.iss + 1;
        // Who repeats a request sooner than we answer anew doesn't put that off: it would never count as silent.
        self.start_retransmit_timer(context);
        Ok(Left::Nothing)
    }

    /// Sends again what counts as lost, as far as the congestion window allows (RFC 6675 section 5).
    fn output_lost<O: Network + ?Sized>(
        &mut self,
        context: &Context<'_>,
        out: &mut O,
        budget: &mut u32,
    ) -> Result<(), Full> {
        while let Some((start, end)) = self.next_lost() {
            let window = self.congestion.window();
            let room = window.saturating_sub(self.pipe());
            let room = if self.recovery.first_due {
                room.max(self.mss)
            } else {
                room
            };
            if room < self.mss.min(start.distance_to(end)) || *budget == 0 {
                return Ok(());
            }
            let length = whole_segments(start.distance_to(end), room.min(self.cut_bytes), self.mss);
            let ring = self.send_ring(context);
            let sent = self.output_range(context, out, &ring, start, length)?;
            if sent == 0 {
                // Nothing there to send (only after a neighbour spoilt the ring): don't spin.
                self.recovery.resent_below = end;
                continue;
            }
            context.counters.count(Counter::TcpRetransmits);
            let resent = &self.record(context).retransmits;
            let count = resent.load(core::sync::atomic::Ordering::Relaxed);
            resent.store(count.wrapping_add(1), core::sync::atomic::Ordering::Relaxed);
            self.recovery.resent_below = start + sent;
            self.recovery.first_due = false;
            // What the end being timed waits for was sent twice (Karn): it may be new data of this recovery that got lost.
            self.timed.take_if(|(end, _)| start.lt(*end));
            *budget = budget.saturating_sub(sent);
            self.start_retransmit_timer(context);
        }
        Ok(())
    }

    /// Sends data, and our FIN behind it, for the first time.
    fn output_new<O: Network + ?Sized>(
        &mut self,
        context: &Context<'_>,
        out: &mut O,
        budget: &mut u32,
    ) -> Result<(), Full> {
        let ring = self.send_ring(context);
        let data_end = self.data_end(&ring);
        if self.snd_nxt == data_end && self.fin.is_none() {
            // Nothing to say, which is how most that arrives is answered at first.
            self.deadlines.probe = None;
            return Ok(());
        }
        self.restart_after_idle(context);
        while *budget > 0 {
            let pending = if self.snd_nxt.lt(data_end) {
                self.snd_nxt.distance_to(data_end)
            } else {
                0
            };
            let fin_pending = self.fin.is_some_and(|fin| self.snd_nxt.le(fin));
            if pending == 0 && !fin_pending {
                break;
            }
            let length = self.sendable(pending, fin_pending, context);
            // The FIN goes along with the last byte.
            let with_fin = u32::from(length == pending && self.fin_fits());
            if length + with_fin == 0 {
                break;
            }
            let start = self.snd_nxt;
            let sent = self.output_range(context, out, &ring, start, length + with_fin)?;
            if sent == 0 {
                break;
            }
            self.snd_nxt = start + sent;
            self.override_due = false;
            self.cork_over = false;
            self.deadlines.cork = None;
            self.sent_at = context.now;
            if sent % self.mss != 0 {
                self.small_end = self.snd_nxt;
            }
            if self.timed.is_none() {
                self.timed = Some((self.snd_nxt, context.now));
            }
            context.counters.add(Counter::TcpBytesOut, u64::from(sent));
            *budget = budget.saturating_sub(sent);
            self.start_retransmit_timer(context);
        }
        self.arm_probe(self.fin.map_or(data_end, |fin| fin + 1), context);
        Ok(())
    }

    /// Whether our FIN is within the peer's window, where it takes one number (RFC 9293 3.4). A peer may drop what is beyond,
    /// and the acknowledgements in it.
    fn fin_fits(&self) -> bool {
        let edge = self.snd_una + self.snd_wnd;
        self.fin.is_some_and(|fin| fin.lt(edge))
    }

    /// How many of `pending` new bytes may leave now, in one packet: bounded by the peer's window, the
    /// congestion window, and what Nagle and both silly-window rules hold back (RFC 9293 3.7.4,
    /// 3.8.6.2.1).
    #[inline]
    fn sendable(&mut self, pending: u32, fin_pending: bool, context: &Context<'_>) -> u32 {
        let edge = self.snd_una + self.snd_wnd;
        let offered = if self.snd_nxt.lt(edge) {
            self.snd_nxt.distance_to(edge)
        } else {
            0
        };
        let congestion = self.congestion.window().saturating_sub(self.pipe());
        let usable = offered.min(congestion);
        let length = pending.min(usable).min(self.cut_bytes);
        if length >= self.mss {
            let full = length / self.mss * self.mss;
            let rest = length - full;
            let last = length == pending;
            // The odd rest goes along if it would go anyway.
            return if rest > 0 && last && self.small_may_leave(fin_pending, context) {
                length
            } else {
                full
            };
        }
        let whole = length == pending;
        let idle = self.snd_nxt == self.snd_una;
        let leaves = if self.override_due {
            // The override timer ran out: whatever held it back, it has waited long enough.
            true
        } else if whole {
            self.small_may_leave(fin_pending, context)
        } else if offered <= congestion {
            length >= self.max_window / 2
        } else {
            // The congestion window is smaller than a segment.
            idle && congestion < self.mss
        };
        if leaves { length } else { 0 }
    }

    /// Whether the program has written what was never sent.
    pub(crate) fn has_unsent(&self, context: &Context<'_>) -> bool {
        let ring = self.send_ring(context);
        self.snd_nxt.lt(self.data_end(&ring))
    }

    /// Whether a segment that is less than full may leave although more may come.
    fn small_may_leave(&mut self, fin_pending: bool, context: &Context<'_>) -> bool {
        if fin_pending {
            return true;
        }
        if self.settings.cork && !self.cork_over {
            self.deadlines.cork.get_or_insert(context.now + CORK);
            return false;
        }
        // Minshall's form of Nagle's rule: at most one small segment in flight.
        self.settings.no_delay || self.small_end.le(self.snd_una)
    }

    /// Sends `length` numbers of sequence space from `start`: data, and the FIN if they reach it.
    /// Answers how many were sent.
    fn output_range<O: Network + ?Sized>(
        &mut self,
        context: &Context<'_>,
        out: &mut O,
        ring: &Ring<'_>,
        start: SeqNum,
        length: u32,
    ) -> Result<u32, Full> {
        let data_end = self.data_end(ring);
        let data = if start.lt(data_end) {
            start.distance_to(data_end).min(length)
        } else {
            0
        };
        let payload = ring.spans(self.send_offset(start, ring), data as usize);
        let data = (payload[0].len() + payload[1].len()) as u32;
        let end = start + data;
        let has_fin = self.fin == Some(end) && data < length;
        let sent = data + u32::from(has_fin);
        if sent == 0 {
            return Ok(0);
        }
        let mut flags = Flags::ACK;
        if has_fin {
            flags |= Flags::FIN;
        }
        if end == data_end {
            flags |= Flags::PSH;
        }
        self.emit(context, out, start, flags, payload)?;
        Ok(sent)
    }

    /// Sends one segment with the current acknowledgement and window, and notes that it did.
    fn emit<O: Network + ?Sized>(
        &mut self,
        context: &Context<'_>,
        out: &mut O,
        seq: SeqNum,
        flags: Flags,
        payload: [Bytes<'_>; 2],
    ) -> Result<(), Full> {
        let bytes = (payload[0].len() + payload[1].len()) as u32;
        let mut options = self.options(context.now);
        if bytes == 0 {
            options.sack = self.sack_blocks();
        }
        let (window, edge) = self.window(context);
        let end = seq + bytes + u32::from(flags.contains(Flags::FIN));
        let adv = core::mem::replace(&mut self.rcv_adv, edge);
        let furthest = adv + self.taken_back;
        self.save(context, self.snd_nxt.max(end));
        let sent = self.send(context, out, seq, flags, &options, window, payload);
        if sent.is_err() {
            // The record has the new one, and must not have less than counts here.
            self.rcv_adv = adv.min(edge);
        }
        self.taken_back = self.rcv_adv.distance_to(furthest.max(self.rcv_adv));
        sent?;
        self.emitted = self.emitted.wrapping_add(1);
        self.last_ack = self.rcv_nxt;
        for (start, end) in options.sack.iter() {
            self.ahead_untold.remove_within(start, end);
            self.ahead_told = start;
        }
        self.interactive |= bytes > 0 && context.now.since(self.data_at) < ACK_DELAY;
        self.ack_due = false;
        self.unacknowledged = 0;
        self.deadlines.acknowledge = None;
        Ok(())
    }

    /// Builds the header and hands the packet down.
    #[allow(clippy::too_many_arguments, reason = "what differs between segments")]
    #[inline]
    fn send<O: Network + ?Sized>(
        &self,
        context: &Context<'_>,
        out: &mut O,
        seq: SeqNum,
        flags: Flags,
        options: &Options,
        window: u16,
        payload: [Bytes<'_>; 2],
    ) -> Result<(), Full> {
        let header = Header {
            source_port: self.tuple.local.port,
            destination_port: self.tuple.remote.port,
            seq,
            ack: if flags.contains(Flags::ACK) {
                self.rcv_nxt
            } else {
                SeqNum(0)
            },
            flags,
            window,
            urgent: 0,
            header_len: 0,
        };
        let segment = Outgoing {
            header,
            options: *options,
            payload,
            mss: self.mss as u16,
        };
        segment.send(context.now, &self.outbound(), context.counters, out)
    }

    /// As many stretches beyond `rcv_nxt` as fit: the latest first, and of the others those that weren't told yet
    /// (RFC 2018 section 4). What then has room is told again, by turns, since acknowledgements get lost.
    fn sack_blocks(&self) -> SackBlocks {
        let mut blocks = SackBlocks::EMPTY;
        if !self.sack || self.ahead.is_empty() {
            return blocks;
        }
        let limit = SackBlocks::CAPACITY - usize::from(self.timestamps);
        let latest = self.ahead.around(self.ahead_latest);
        let untold = self.ahead_untold.iter();
        let untold = untold.filter_map(|(start, _)| self.ahead.around(start));
        let is_later = |block: &(SeqNum, SeqNum)| block.0.gt(self.ahead_told);
        let later = self.ahead.iter().filter(is_later);
        let earlier = self.ahead.iter().filter(|block| !is_later(block));
        for (start, end) in latest.into_iter().chain(untold).chain(later).chain(earlier) {
            if blocks.len() == limit {
                break;
            }
            if blocks.iter().all(|block| block.0 != start) {
                blocks.push(start, end);
            }
        }
        blocks
    }
}

/// As much of `wanted` as `room` allows; if that isn't all, only whole segments (but at least one).
fn whole_segments(wanted: u32, room: u32, mss: u32) -> u32 {
    if wanted <= room {
        wanted
    } else if room > mss {
        room / mss * mss
    } else {
        room
    }
}

#[cfg(test)]
mod tests;
