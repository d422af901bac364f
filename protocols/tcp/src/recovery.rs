use crate::connection::{Connection, Context};
use crate::cubic::Undo;
use crate::ranges::Ranges;
use skink_messages::Counter;
use skink_wire::SeqNum;

/// Segments that must arrive behind a hole before it counts as lost (RFC 6675 section 2).
const DUPLICATES: u32 = 3;
/// More segments than that aren't waited for, however many came before one that was late.
const MOST_LATE: u32 = 127;

/// What is known of losses among `snd_una..snd_nxt`.
#[derive(Clone, Debug, Default)]
pub struct Recovery {
    pub phase: Phase,
    /// What the peer has selectively acknowledged (RFC 2018): the scoreboard of RFC 6675.
    pub sacked: Ranges,
    /// Acknowledgements in a row that moved nothing, though something arrived (`DupAcks`).
    pub duplicates: u32,
    /// What isn't acknowledged below this counts as lost. Only meaningful ahead of `snd_una`.
    pub lost_below: SeqNum,
    /// What isn't acknowledged below this was sent again: `HighRxt` of RFC 6675.
    pub resent_below: SeqNum,
    /// The first retransmission of a recovery needs no room in the window.
    pub first_due: bool,
    /// Segments that must arrive behind a hole beyond [`DUPLICATES`], on a path that changes their order.
    pub patience: u32,
}

/// Whether losses are being repaired.
#[derive(Clone, Copy, Debug, Default)]
pub enum Phase {
    /// No.
    #[default]
    Open,
    /// Fast recovery, until all that was sent when it began is acknowledged.
    Fast {
        /// `RecoveryPoint` of RFC 6675.
        until: SeqNum,
        needless: Option<Needless>,
    },
    /// After a retransmission timeout.
    Timeout {
        until: SeqNum,
        needless: Option<Needless>,
    },
}

/// What to undo if the acknowledgement of the original arrives after all: the timestamp of the first retransmission (Eifel
/// detection, RFC 3522), and the window before.
#[derive(Clone, Copy, Debug)]
pub struct Needless {
    stamp: u32,
    undo: Undo,
}

impl Needless {
    /// Whether an acknowledgement with this echo is for what was sent before the retransmission.
    fn is_shown_by(&self, echo: u32) -> bool {
        (echo.wrapping_sub(self.stamp) as i32) < 0
    }
}

impl Connection {
    /// Bytes that are thought to be in the network (`pipe` of RFC 6675 section 4).
    pub fn pipe(&self) -> u32 {
        let flight = self.flight();
        let recovery = &self.recovery;
        let gone = if self.sack {
            recovery.sacked.bytes_between(self.snd_una, self.snd_nxt)
        } else {
            // Each duplicate acknowledgement stands for a segment that left the network.
            recovery.duplicates.saturating_mul(self.mss)
        };
        let from = recovery.resent_below.max(self.snd_una);
        let lost = if recovery.lost_below.gt(from) {
            let sacked = recovery.sacked.bytes_between(from, recovery.lost_below);
            from.distance_to(recovery.lost_below).saturating_sub(sacked)
        } else {
            0
        };
        flight.saturating_sub(gone).saturating_sub(lost)
    }

    /// The next stretch to send again, if there is one.
    pub fn next_lost(&self) -> Option<(SeqNum, SeqNum)> {
        let recovery = &self.recovery;
        let from = recovery.resent_below.max(self.snd_una);
        if !recovery.lost_below.gt(from) {
            return None;
        }
        recovery
            .sacked
            .first_gap(from, recovery.lost_below.min(self.snd_nxt))
    }

    /// Takes the selective acknowledgements of a segment; answers whether they held anything new.
    pub fn note_sacked(&mut self, blocks: &[(SeqNum, SeqNum)]) -> bool {
        if !self.sack {
            return false;
        }
        let before = self
            .recovery
            .sacked
            .bytes_between(self.snd_una, self.snd_nxt);
        for (start, end) in blocks {
            // Blocks at or below the acknowledgement report duplicates (RFC 2883); others are lies.
            let sound = start.lt(*end) && start.gt(self.snd_una) && end.le(self.snd_nxt);
            if sound {
                self.recovery.sacked.insert(*start, *end);
            }
        }
        self.recovery
            .sacked
            .bytes_between(self.snd_una, self.snd_nxt)
            != before
    }

    /// An acknowledgement of `acked` bytes moved `snd_una`.
    pub fn recovery_on_progress(&mut self, acked: u32, context: &Context<'_>, echo: Option<u32>) {
        let before = self.snd_una - acked;
        let arrived = self.recovery.sacked.bytes_between(before, self.snd_nxt) / self.mss;
        self.recovery.sacked.remove_below(self.snd_una);
        // Comparisons hold for half of the number circle only: old marks must not fall behind.
        self.recovery.resent_below = self.recovery.resent_below.max(self.snd_una);
        self.recovery.lost_below = self.recovery.lost_below.max(self.snd_una);
        let duplicates = core::mem::take(&mut self.recovery.duplicates);
        let (until, needless) = match self.recovery.phase {
            Phase::Open => return,
            Phase::Fast { until, needless } | Phase::Timeout { until, needless } => {
                (until, needless)
            }
        };
        let shown = echo.and_then(|echo| needless.filter(|it| it.is_shown_by(echo)));
        match &mut self.recovery.phase {
            Phase::Open => {}
            phase if shown.is_some() => {
                let counter = match phase {
                    Phase::Fast { .. } => Counter::TcpSpuriousRecoveries,
                    _ => Counter::TcpSpuriousTimeouts,
                };
                if let Phase::Fast { .. } = phase {
                    // So many came before one that was only late.
                    let ahead = duplicates.max(arrived).min(MOST_LATE);
                    let late = (ahead + 1).saturating_sub(DUPLICATES);
                    self.recovery.patience = self.recovery.patience.max(late);
                }
                context.counters.count(counter);
                if let Some(Needless { undo, .. }) = shown {
                    self.congestion.undo(undo);
                }
                self.end_recovery();
            }
            _ if self.snd_una.ge(until) => self.end_recovery(),
            Phase::Timeout { needless, .. } => *needless = None,
            Phase::Fast { needless, .. } => {
                *needless = None;
                if self.sack {
                    // What was sent again has arrived, so what was sent before that, and hasn't, is late by a round trip: it
                    // counts as lost (RFC 8985 section 3.1) though less than three segments may have arrived behind it.
                    if let Some((newest, _)) = self.recovery.sacked.iter().next_back() {
                        let lost_below = self.recovery.lost_below.max(newest.min(until));
                        self.recovery.lost_below = lost_below;
                    }
                } else {
                    // NewReno (RFC 6582): a partial acknowledgement shows the next hole.
                    self.recovery.resent_below = self.snd_una;
                    self.recovery.lost_below = self.snd_una + self.mss.min(self.flight());
                    // It is sent again at once, whatever the window (step 3, *partial
                    // acknowledgements*); of what was acknowledged, all but the segment sent again
                    // had left the network before and was counted then.
                    self.recovery.first_due = true;
                    let counted = (acked / self.mss).saturating_sub(1);
                    self.recovery.duplicates = duplicates.saturating_sub(counted);
                }
            }
        }
    }

    fn end_recovery(&mut self) {
        self.recovery.phase = Phase::Open;
        self.recovery.lost_below = self.snd_una;
        self.recovery.resent_below = self.snd_una;
        self.recovery.first_due = false;
    }

    /// Decides from duplicate and selective acknowledgements what is lost (RFC 6675 section 4,
    /// `IsLost`), and begins a recovery.
    pub fn find_losses(&mut self, context: &Context<'_>) {
        let enough = self.enough();
        let by_duplicates = self.recovery.duplicates >= enough;
        let first = by_duplicates.then(|| self.first_missing());
        let lost_below = self.lost_by_sack(enough).or(first);
        let Some(lost_below) = lost_below.filter(|bound| bound.gt(self.snd_una)) else {
            return;
        };
        match self.recovery.phase {
            Phase::Open => {
                context.counters.count(Counter::TcpFastRecoveries);
                let undo = self.congestion.on_loss(self.flight());
                self.recovery.phase = Phase::Fast {
                    until: self.snd_nxt,
                    needless: self.needless(undo, context),
                };
                self.recovery.resent_below = self.snd_una;
                self.recovery.lost_below = lost_below;
                self.recovery.first_due = true;
                // A retransmission can't be told from the original (Karn).
                self.timed = None;
            }
            Phase::Fast { .. } | Phase::Timeout { .. } => {
                if self.sack {
                    self.recovery.lost_below = self.recovery.lost_below.max(lost_below);
                }
            }
        }
    }

    /// The end of the first segment that isn't acknowledged.
    fn first_missing(&self) -> SeqNum {
        let end = self.snd_una + self.mss.min(self.flight());
        let arrived = self.recovery.sacked.iter().next();
        arrived.map_or(end, |(start, _)| end.min(start))
    }

    /// So many segments that arrived behind a hole say that it is lost: three, or as many as have been seen to come before one that
    /// was late, if so many can come at all.
    fn enough(&self) -> u32 {
        let others = (self.flight() / self.mss).saturating_sub(1);
        (DUPLICATES + self.recovery.patience)
            .min(others)
            .max(DUPLICATES)
    }

    /// What would be undone of a reduction of the window at this moment.
    fn needless(&self, undo: Undo, context: &Context<'_>) -> Option<Needless> {
        let stamp = self.timestamp(context.now);
        self.timestamps.then_some(Needless { stamp, undo })
    }

    /// Below which number a hole has so many segments' worth, or separate stretches, behind it.
    fn lost_by_sack(&self, enough: u32) -> Option<SeqNum> {
        let mut bytes = 0u32;
        let mut stretches = 0u32;
        for (start, end) in self.recovery.sacked.iter().rev() {
            bytes = bytes.saturating_add(start.distance_to(end));
            stretches += 1;
            if bytes > (enough - 1) * self.mss || stretches >= enough {
                return Some(start);
            }
        }
        None
    }

    /// The retransmission timer ran out: all that isn't acknowledged counts as lost, selective
    /// acknowledgements included, since the peer may take them back (RFC 2018 section 8).
    pub fn recovery_on_timeout(&mut self, context: &Context<'_>) {
        let flight = self.flight();
        let is_new = !matches!(self.recovery.phase, Phase::Timeout { .. });
        let needless = if self.retries > 1 {
            self.congestion.on_repeated_timeout();
            None
        } else {
            let undo = self.congestion.on_timeout(flight);
            // One that comes while another one's losses are being repaired isn't taken for needless.
            self.needless(undo, context).filter(|_| is_new)
        };
        self.recovery.phase = Phase::Timeout {
            until: self.snd_nxt,
            needless,
        };
        self.recovery.patience = 0;
        self.recovery.sacked.clear();
        self.recovery.duplicates = 0;
        self.recovery.lost_below = self.snd_nxt;
        self.recovery.resent_below = self.snd_una;
        self.recovery.first_due = true;
        self.timed = None;
    }

    /// All in flight must be sent again, but the network isn't to blame: the path takes smaller
    /// packets than was thought (RFC 1191 section 6.4).
    pub fn resend_all(&mut self) {
        self.recovery.lost_below = self.snd_nxt;
        self.recovery.resent_below = self.snd_una;
        self.recovery.first_due = true;
        self.timed = None;
    }
}

#[cfg(test)]
mod tests;
