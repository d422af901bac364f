use crate::connection::{Connection, Context, Program};
use crate::receive::After;
use crate::rtt::MINIMUM;
use crate::settings::{RETRIES, SYN_ACK_RETRIES, SYN_RETRIES};
use crate::state::State;
use skink_messages::{Counter, SocketError};
use skink_time::{Duration, Instant};
use skink_wire::SeqNum;

/// A closed window is probed at least this often (RFC 9293 3.8.6.1 leaves it to us; Linux: 120 s).
const LONGEST_PROBE: Duration = Duration::from_secs(60);

/// A peer that wasn't heard of for longer than the longest retransmission timeout is gone.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(150);

impl Connection {
    /// Does whatever's time has come.
    pub fn on_timers(&mut self, context: &Context<'_>) -> After {
        let now = context.now;
        let due = |deadline: Option<Instant>| deadline.is_some_and(|deadline| deadline <= now);
        if due(self.deadlines.retransmit) {
            self.deadlines.retransmit = None;
            if self.on_retransmit_timer(context) == After::Closed {
                return After::Closed;
            }
        }
        if due(self.deadlines.acknowledge) {
            self.deadlines.acknowledge = None;
            self.ack_due = true;
            self.interactive = false;
            context.counters.count(Counter::TcpDelayedAcks);
        }
        if due(self.deadlines.probe) {
            self.deadlines.probe = None;
            // As long as the peer answers, its window may stay closed (RFC 9293 3.8.6.1); but
            // nobody waits for what a program left behind.
            let patient = self.program() != Program::Gone && self.settings.user_timeout.is_none();
            let gone = self.probes_unanswered >= RETRIES;
            if gone || self.gives_up(context, RETRIES) && !patient {
                return self.time_out(context);
            }
            if self.snd_wnd > 0 {
                // The last time nothing left: the program spoilt its ring, so don't try for ever.
                if core::mem::replace(&mut self.override_due, true) {
                    self.back_off(now);
                }
            } else {
                context.counters.count(Counter::TcpZeroWindowProbes);
                self.back_off(now);
                self.probes_unanswered += 1;
                self.probe_due = true;
            }
        }
        if due(self.deadlines.cork) {
            self.deadlines.cork = None;
            self.cork_over = true;
        }
        if due(self.deadlines.keep_alive) && self.on_keep_alive_timer(context) == After::Closed {
            return After::Closed;
        }
        if due(self.deadlines.linger) {
            if self.is_to_be_reset() {
                self.fail(SocketError::Reset, context);
            }
            return After::Closed;
        }
        After::Goes
    }

    /// RFC 6298 (5.4) to (5.7), and R2 of RFC 9293 3.8.3.
    fn on_retransmit_timer(&mut self, context: &Context<'_>) -> After {
        let handshake = match self.state() {
            State::SynSent => Some(SYN_RETRIES),
            State::SynReceived => Some(SYN_ACK_RETRIES),
            _ => None,
        };
        if self.flight() == 0 && handshake.is_none() {
            return After::Goes;
        }
        // A peer that took back the window it had offered, but goes on answering, lives.
        let shut = self.snd_wnd == 0
            && handshake.is_none()
            && self.program() != Program::Gone
            && self.settings.user_timeout.is_none()
            && context.now.since(self.heard) < LONGEST_TIMEOUT;
        if !shut && self.gives_up(context, handshake.unwrap_or(RETRIES)) {
            return self.time_out(context);
        }
        context.counters.count(Counter::TcpRetransmitTimeouts);
        self.stalled_since.get_or_insert(context.now);
        self.back_off(context.now);
        if handshake.is_some() {
            self.syn_due = true;
            context.counters.count(Counter::TcpRetransmits);
        } else {
            self.recovery_on_timeout(context);
        }
        self.deadlines.retransmit = Some(self.due_after(self.timeout(), context));
        After::Goes
    }

    /// When something is due that would be in `wait`, but for the end of `TCP_USER_TIMEOUT`, which is met to the moment.
    fn due_after(&self, wait: Duration, context: &Context<'_>) -> Instant {
        let due = context.now + wait;
        match (self.settings.user_timeout, self.stalled_since) {
            (Some(limit), Some(since)) => due.min(since + limit),
            _ => due,
        }
    }

    /// What was sent last may have been lost together with who should have put it on the wire, and what the
    /// peer sent too: neither waits for the retransmission timer.
    pub fn hurry(&mut self, now: Instant) {
        match self.state() {
            State::Closed | State::Listen | State::TimeWait => return,
            State::SynSent | State::SynReceived => {
                // The timer isn't asked, which would count it among the retries.
                self.syn_due = true;
                return;
            }
            State::Established
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait
            | State::Closing
            | State::LastAck => self.ack_due = true,
        }
        match self.flight() > 0 {
            true => self.deadlines.retransmit = Some(now),
            false => self.probe_due = true,
        }
    }

    fn back_off(&mut self, now: Instant) {
        self.timed_out = now;
        self.backoff += 1;
        self.retries += 1;
    }

    fn gives_up(&self, context: &Context<'_>, retries: u32) -> bool {
        match (self.settings.user_timeout, self.stalled_since) {
            (Some(limit), Some(since)) => context.now.since(since) >= limit,
            (Some(_), None) => false,
            (None, _) => self.retries >= retries,
        }
    }

    fn time_out(&mut self, context: &Context<'_>) -> After {
        self.fail(SocketError::TimedOut, context);
        After::Closed
    }

    fn on_keep_alive_timer(&mut self, context: &Context<'_>) -> After {
        self.deadlines.keep_alive = None;
        let settings = &self.settings;
        if !settings.keep_alive || self.state() == State::TimeWait {
            return After::Goes;
        }
        if self.flight() > 0 {
            // Data in flight shows soon enough whether the peer is there.
            self.deadlines.keep_alive = Some(context.now + settings.keep_alive_idle);
            return After::Goes;
        }
        let idle = context.now.since(self.heard);
        if self.keep_alive_sent == 0 && idle < settings.keep_alive_idle {
            self.arm_keep_alive(context.now);
            return After::Goes;
        }
        if self.keep_alive_sent >= settings.keep_alive_probes {
            return self.time_out(context);
        }
        context.counters.count(Counter::TcpKeepAliveProbes);
        self.keep_alive_sent += 1;
        self.probe_due = true;
        self.deadlines.keep_alive = Some(context.now + settings.keep_alive_interval);
        After::Goes
    }

    /// Waits for silence, if the program wants to know of it.
    pub fn arm_keep_alive(&mut self, now: Instant) {
        let state = self.state();
        let lives = state.is_synchronized() && state != State::TimeWait;
        self.deadlines.keep_alive = (self.settings.keep_alive && lives)
            .then(|| (self.heard + self.settings.keep_alive_idle).max(now));
    }

    /// RFC 6298 (5.1).
    pub fn start_retransmit_timer(&mut self, context: &Context<'_>) {
        if self.deadlines.retransmit.is_none() {
            self.deadlines.retransmit = Some(context.now + self.timeout());
        }
    }

    /// Probes the peer's window if that is all that keeps what is before `end`, data or our FIN, from leaving.
    pub fn arm_probe(&mut self, end: SeqNum, context: &Context<'_>) {
        let stuck = self.flight() == 0
            && self.snd_nxt.lt(end)
            && self.deadlines.retransmit.is_none()
            && self.deadlines.cork.is_none();
        if !stuck {
            self.deadlines.probe = None;
        } else if self.deadlines.probe.is_none() {
            self.stalled_since.get_or_insert(context.now);
            let wait = self.timeout().min(LONGEST_PROBE);
            self.deadlines.probe = Some(self.due_after(wait, context));
        }
    }

    /// RFC 5681 section 4.1: after a pause longer than a timeout the window begins small again.
    pub fn restart_after_idle(&mut self, context: &Context<'_>) {
        // No timeout is shorter than the minimum, and that is quickly compared.
        if self.flight() == 0
            && context.now > self.sent_at + MINIMUM
            && context.now > self.sent_at + self.rtt.timeout(0)
        {
            self.congestion.on_idle();
        }
    }
}

#[cfg(test)]
mod tests;
