use crate::connection::{Connection, Context};
use crate::receive::After;
use crate::segment::Segment;
use crate::state::State;
use core::net::IpAddr;
use skink_messages::{Counter, Events, SocketError};
use skink_time::Duration;
use skink_wire::tcp::{Flags, MAXIMUM_WINDOW_SCALE, Options, Timestamps};
use skink_wire::{FourTuple, SeqNum};
use std::hash::{DefaultHasher, Hasher};

/// After an answer that isn't one to our request, it is sent again so soon: as in Linux.
const ASK_AGAIN: Duration = Duration::from_millis(4);

/// What initial sequence numbers and timestamp offsets are drawn from: hard to guess for others,
/// different for each pair of ends, and rising with time for the same pair (RFC 6528).
pub fn initial_numbers(secret: u64, tuple: &FourTuple, context: &Context<'_>) -> (SeqNum, u32) {
    // All in one piece: each that is written takes as long as the hash itself.
    let mut bytes = [0; 44];
    let (head, ends) = bytes.split_at_mut(8);
    head.copy_from_slice(&secret.to_ne_bytes());
    for (end, to) in [tuple.local, tuple.remote]
        .iter()
        .zip(ends.chunks_exact_mut(18))
    {
        let (address, port) = to.split_at_mut(16);
        let bits = match end.addr {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        };
        address.copy_from_slice(&bits);
        port.copy_from_slice(&end.port.to_ne_bytes());
    }
    let mut hasher = DefaultHasher::new();
    hasher.write(&bytes);
    let hash = hasher.finish();
    let clock = (context.now.as_nanos() / 4_000) as u32;
    (
        SeqNum((hash as u32).wrapping_add(clock)),
        (hash >> 32) as u32,
    )
}

impl Connection {
    /// Sets up our half of the sequence space and asks for a SYN to be sent.
    pub fn begin(&mut self, secret: u64, state: State, context: &Context<'_>) {
        let (iss, ts_offset) = initial_numbers(secret, &self.tuple, context);
        self.iss = iss;
        self.snd_una = iss;
        self.snd_nxt = iss;
        self.small_end = iss;
        self.limited_end = iss;
        self.ts_offset = ts_offset;
        self.recovery.lost_below = iss;
        self.recovery.resent_below = iss;
        self.rcv_wscale = window_scale(self.receive_ring(context).capacity());
        self.syn_due = true;
        self.stalled_since = Some(context.now);
        self.update_segment_sizes();
        self.save_negotiated(context);
        self.enter(state, context);
    }

    /// Takes what a SYN says: sequence number, window, options.
    pub fn take_syn(&mut self, segment: &Segment<'_>, context: &Context<'_>) {
        let options = &segment.options;
        self.irs = segment.header.seq;
        self.rcv_nxt = self.irs + 1;
        self.rcv_adv = self.rcv_nxt;
        self.last_ack = self.rcv_nxt;
        // RFC 9293 3.7.1: without the option 536, and for IPv6 1220 (RFC 9293 3.7.1 too).
        let default_mss = if self.tuple.local.addr.is_ipv4() {
            536
        } else {
            1_220
        };
        self.peer_mss = options.mss.unwrap_or(default_mss).max(64);
        self.sack = options.sack_permitted;
        self.window_scaling = options.window_scale.is_some();
        self.snd_wscale = options.window_scale.unwrap_or(0).min(MAXIMUM_WINDOW_SCALE);
        if !self.window_scaling {
            self.rcv_wscale = 0;
        }
        self.timestamps = options.timestamps.is_some();
        if let Some(stamp) = options.timestamps {
            self.ts_recent = stamp.value;
            self.ts_recent_at = context.now;
        }
        // A SYN's window is never scaled (RFC 7323 2.2).
        self.snd_wnd = u32::from(segment.header.window);
        self.max_window = self.snd_wnd;
        self.snd_wl1 = segment.header.seq;
        self.update_segment_sizes();
        self.receive_mss = self.mss;
        self.congestion = crate::cubic::Cubic::new(self.mss);
        self.save_negotiated(context);
    }

    /// The options of a SYN; in an answer only those that the peer offered too.
    pub fn syn_options(&self, context: &Context<'_>) -> Options {
        let answer = self.state() == State::SynReceived;
        let timestamps = (!answer || self.timestamps).then(|| Timestamps {
            value: self.timestamp(context.now),
            echo: if answer { self.ts_recent } else { 0 },
        });
        Options {
            mss: Some(self.own_mss()),
            window_scale: (!answer || self.window_scaling).then_some(self.rcv_wscale),
            sack_permitted: !answer || self.sack,
            timestamps,
            ..Options::default()
        }
    }

    /// A segment arrives in SYN-SENT (RFC 9293 3.10.7.3).
    pub fn on_segment_in_syn_sent(
        &mut self,
        segment: &Segment<'_>,
        context: &Context<'_>,
    ) -> After {
        let ack = segment.header.ack;
        let acked = segment.has(Flags::ACK);
        if acked && (ack.le(self.iss) || ack.gt(self.snd_nxt)) {
            context.counters.count(Counter::TcpDropBadAck);
            if segment.has(Flags::RST) {
                return After::Goes;
            }
            // The peer has an old connection there, which our reset ends: it is asked again at once, but that only once.
            if self.retries == 0 {
                let again = context.now + ASK_AGAIN;
                let due = self.deadlines.retransmit;
                self.deadlines.retransmit = Some(due.map_or(again, |due| due.min(again)));
            }
            return After::Refuse;
        }
        if segment.has(Flags::RST) {
            if !acked {
                context.counters.count(Counter::TcpDropBadReset);
                return After::Goes;
            }
            context.counters.count(Counter::TcpResetsIn);
            self.fail(SocketError::Refused, context);
            return After::Closed;
        }
        if !segment.has(Flags::SYN) {
            context.counters.count(Counter::TcpDropBadFlags);
            return After::Goes;
        }
        self.take_syn(segment, context);
        if acked {
            self.establish(segment, context);
            self.ack_due = true;
            After::Established
        } else {
            // Both sides call each other (RFC 9293 figure 8).
            self.enter(State::SynReceived, context);
            self.syn_due = true;
            After::Goes
        }
    }

    /// A segment arrives in SYN-RECEIVED (RFC 9293 3.10.7.4).
    pub fn on_segment_in_syn_received(
        &mut self,
        segment: &Segment<'_>,
        context: &Context<'_>,
    ) -> After {
        if segment.has(Flags::SYN) && segment.header.seq == self.irs {
            // Our answer was lost.
            self.syn_due = true;
            if !segment.has(Flags::ACK) {
                return After::Goes;
            }
        } else if segment.header.seq.lt(self.rcv_nxt)
            || segment.header.seq.gt(self.rcv_adv.max(self.rcv_nxt))
        {
            context.counters.count(Counter::TcpDropOutOfWindow);
            self.answer_unacceptable(segment, context);
            return After::Goes;
        }
        if segment.has(Flags::SYN) && segment.header.seq != self.irs && !segment.has(Flags::RST) {
            // A request of another life (RFC 5961 section 4): our answer makes the peer reset this.
            context.counters.count(Counter::TcpDropBadFlags);
            self.challenge(context);
            return After::Goes;
        }
        if segment.has(Flags::RST) {
            if segment.header.seq != self.rcv_nxt {
                context.counters.count(Counter::TcpDropBadReset);
                return After::Goes;
            }
            context.counters.count(Counter::TcpResetsIn);
            self.fail(SocketError::Refused, context);
            return After::Closed;
        }
        if !segment.has(Flags::ACK) {
            return After::Goes;
        }
        if segment.header.ack != self.iss + 1 {
            context.counters.count(Counter::TcpDropBadAck);
            return After::Refuse;
        }
        self.note_timestamp(segment, context);
        self.establish(segment, context);
        After::Established
    }

    /// Our SYN is acknowledged.
    fn establish(&mut self, segment: &Segment<'_>, context: &Context<'_>) {
        self.measure(self.iss + 1, segment, context);
        self.snd_una = self.iss + 1;
        self.snd_nxt = self.snd_una;
        self.small_end = self.snd_una;
        self.limited_end = self.snd_una;
        self.recovery.lost_below = self.snd_una;
        self.recovery.resent_below = self.snd_una;
        if !segment.has(Flags::SYN) {
            self.snd_wnd = u32::from(segment.header.window) << self.snd_wscale;
            self.max_window = self.max_window.max(self.snd_wnd);
        }
        self.snd_wl1 = segment.header.seq;
        if self.backoff > 0 {
            // RFC 6298 (5.7): unless the round trip was measured nevertheless, data begins with three seconds.
            self.rtt.on_repeated_request();
        }
        (self.backoff, self.retries) = (0, 0);
        // A successor may be about to repeat it.
        self.syn_due = false;
        self.asked = false;
        self.stalled_since = None;
        self.deadlines.retransmit = None;
        self.heard = context.now;
        self.tell(Events::WRITABLE);
        // Before the state, which says that they mean something.
        self.save(context, self.snd_nxt);
        self.enter(State::Established, context);
        self.arm_keep_alive(context.now);
        if self.fin.is_some() {
            // The program finished sending before the handshake did.
            self.enter(State::FinWait1, context);
        }
    }
}

/// The smallest shift with which the whole ring can be offered (RFC 7323 2.3).
fn window_scale(ring_bytes: usize) -> u8 {
    (0..MAXIMUM_WINDOW_SCALE)
        .find(|shift| ring_bytes >> shift <= 65_535)
        .unwrap_or(MAXIMUM_WINDOW_SCALE)
}

#[cfg(test)]
mod tests;
