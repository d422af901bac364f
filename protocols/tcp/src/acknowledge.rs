use crate::connection::{Connection, Context};
use crate::recovery::Phase;
use crate::segment::Segment;
use skink_messages::{Counter, Events};
use skink_time::Duration;
use skink_wire::SeqNum;

/// The acknowledgement in a segment was one that makes no sense: answer and drop it.
pub struct BadAck;

impl Connection {
    /// What RFC 9293 3.10.7.4 calls *fifth, check the ACK field*, for synchronized states.
    #[inline]
    pub fn on_ack(&mut self, segment: &Segment<'_>, context: &Context<'_>) -> Result<(), BadAck> {
        let ack = segment.header.ack;
        if ack.gt(self.snd_nxt) {
            context.counters.count(Counter::TcpDropBadAck);
            self.challenge(context);
            return Err(BadAck);
        }
        // RFC 5961 section 5: nor may it be older than the largest window.
        if ack.lt(self.snd_una - self.max_window.max(65_535)) {
            context.counters.count(Counter::TcpDropBadAck);
            return Err(BadAck);
        }
        let window = u32::from(segment.header.window) << self.snd_wscale;
        let sacked_more = self.note_sacked(segment.options.sack.as_slice());
        let advances = ack.gt(self.snd_una);
        if advances {
            self.advance(ack, segment, context);
        } else if ack == self.snd_una && self.is_duplicate(segment, window, sacked_more) {
            context.counters.count(Counter::TcpDuplicateAcks);
            self.recovery.duplicates = self.recovery.duplicates.saturating_add(1);
        }
        // Of two ends that have both taken back their windows neither may say more with the number that it had come to. While nothing may be
        // sent, an old window does no harm: it would be taken back again.
        let is_newest = self.snd_wl1.le(segment.header.seq) || self.snd_wnd == 0;
        if advances || ack == self.snd_una && is_newest {
            self.update_window(segment, window, context);
        }
        if self.flight() > 0 && (sacked_more || self.recovery.duplicates > 0) {
            self.find_losses(context);
        }
        if !self.recovery.sacked.is_empty() && ack.lt(self.snd_nxt) && !sacked_more {
            // Holes may have become lost because the acknowledgement moved.
            self.find_losses(context);
        }
        Ok(())
    }

    /// Whether an acknowledgement that moves nothing shows that something arrived behind a hole. With selective acknowledgements
    /// it says what (RFC 6675 section 2, `DupAck`). Without, data is in flight, and the segment has no data, no FIN and the same
    /// window (RFC 5681 section 2).
    fn is_duplicate(&self, segment: &Segment<'_>, window: u32, sacked_more: bool) -> bool {
        match self.sack {
            true => sacked_more,
            false => self.flight() > 0 && segment.sequence_len() == 0 && window == self.snd_wnd,
        }
    }

    /// New data (or our FIN) is acknowledged.
    fn advance(&mut self, ack: SeqNum, segment: &Segment<'_>, context: &Context<'_>) {
        if self.pipe().saturating_add(self.mss) >= self.congestion.window()
            || self.congestion.in_slow_start() && self.flight() >= self.congestion.window() / 2
        {
            self.limited_end = self.snd_nxt;
        }
        // Of several acknowledgements that come before anything leaves, the first one finds the window full, but all are
        // for what it limited.
        let was_limited = self.snd_una.lt(self.limited_end);
        let acked = self.snd_una.distance_to(ack);
        let ring = self.send_ring(context);
        // The FIN is no byte of the ring, even if a program writes behind it.
        let data = self.fin.map_or(ack, |fin| ack.min(fin));
        let freed = self.send_offset(data, &ring).min(ring.len());
        self.snd_una = ack;
        // Comparisons hold for half of the number circle only: an old mark must not fall behind.
        self.small_end = self.small_end.max(ack);
        self.limited_end = self.limited_end.max(ack);
        if freed > 0 {
            ring.advance_head(freed);
            // Who writes at this moment may have seen less room. Whoever sleeps for it has filled the ring, so that later
            // acknowledgements come.
            self.tell_if(ring.is_roomy(), Events::WRITABLE);
        }
        self.measure(ack, segment, context);
        self.retries = 0;
        self.stalled_since = None;
        let echo = segment.options.timestamps.map(|stamp| stamp.echo);
        let in_fast_recovery = matches!(self.recovery.phase, Phase::Fast { .. });
        let in_timeout = matches!(self.recovery.phase, Phase::Timeout { .. });
        self.recovery_on_progress(acked, context, echo.filter(|_| self.timestamps));
        if !in_fast_recovery {
            let rtt = self.rtt.smoothed().unwrap_or_default();
            let limited = was_limited || in_timeout;
            self.congestion.on_ack(context.now, acked, rtt, limited);
        }
        // RFC 6298 (5.2) and (5.3).
        self.deadlines.retransmit = if self.flight() > 0 {
            Some(context.now + self.timeout())
        } else {
            None
        };
    }

    /// Takes a round-trip time from the segment that was timed (RFC 6298 section 4), by the time of
    /// arrival: time spent in queues of this machine isn't the network's. Until there is one the timeout stays doubled: of a
    /// path that has become slower than the timeout none would ever be measured.
    pub fn measure(&mut self, ack: SeqNum, segment: &Segment<'_>, context: &Context<'_>) {
        let timed = self.timed.take_if(|(end, _)| ack.ge(*end));
        let measured = match timed {
            Some((_, sent)) => Some(segment.arrived.since(sent)),
            None if self.backoff > 0 => self.echoed(segment),
            None => None,
        };
        if let Some(rtt) = measured {
            self.rtt.sample(rtt);
            self.backoff = 0;
            self.save_distance(context);
        }
    }

    /// How long ago what is acknowledged was sent, by the peer's timestamp (RFC 7323 section 4.1), if that was after the last
    /// timeout. An older echo says nothing: an acknowledgement that was lost comes again, with the same echo, in answer to what
    /// is sent again. Nor does one that we never sent.
    fn echoed(&self, segment: &Segment<'_>) -> Option<Duration> {
        let stamp = segment.options.timestamps.filter(|_| self.timestamps)?;
        if segment.arrived < self.timed_out {
            return None;
        }
        let arrived = self.timestamp(segment.arrived);
        let age = arrived.wrapping_sub(stamp.echo);
        let most = arrived.wrapping_sub(self.timestamp(self.timed_out));
        (age <= most).then(|| Duration::from_millis(u64::from(age)))
    }

    /// The window of the peer's newest segment. Its acknowledgements never go back, so one that acknowledges more is
    /// newer, if it is one that is sent again too (as in Linux; RFC 9293 3.10.7.4 looks at the sequence number first, and with
    /// the old window the edge of what may be sent would move along with `snd_una`).
    fn update_window(&mut self, segment: &Segment<'_>, window: u32, context: &Context<'_>) {
        if self.snd_wnd == 0 && window > 0 {
            // The peer lives and takes data again: probes are over, and what it didn't take when it was sent isn't kept
            // from it by a timeout that was doubled meanwhile.
            (self.backoff, self.retries) = (0, 0);
            self.stalled_since = None;
            if self.flight() > 0 {
                self.deadlines.retransmit = Some(context.now + self.timeout());
            }
        }
        self.snd_wnd = window;
        self.snd_wl1 = segment.header.seq;
        self.max_window = self.max_window.max(window);
    }
}
