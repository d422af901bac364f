//! Whether a process receives in bulk, so that AF_XDP had better step aside on a virtual cable: while an XDP program is
//! there, the other end cuts what it sends to frames, and each is copied by itself; without, up to 64 KiB come in one
//! piece ([`Opener::step_aside`](crate::Opener::step_aside), docs/decisions/0021).
use super::Traffic;
use super::votes::PERIOD;
use skink_time::{Duration, Instant};

/// So much more time with bulk than without makes it bulk: a file of some MiB is over before,
const BECOMES: Duration = Duration::from_millis(40);
/// and so much the other way ends it. More, since who receives files with pauses between them would go on and off.
const CEASES: Duration = Duration::from_millis(400);
/// Bytes received in a microsecond below which there is little to gain: 32 MB/s.
const LEAST: u64 = 32;
/// Bytes of the mean frame received: full ones, as Ethernet has them, and acknowledgements now and then.
const LARGE: u64 = 1_000;
/// So many times the bytes that it sends: who answers has more use for AF_XDP.
const SURPLUS: u64 = 8;

/// How the last periods were.
pub(super) struct Inflow {
    begun: Instant,
    /// What had passed when the period began.
    before: Traffic,
    bulk: bool,
    /// Time that speaks for a change, less that which doesn't: who receives much makes few calls, and is looked at seldom.
    against: Duration,
}

impl Inflow {
    /// Of a process that has received nothing yet.
    pub(super) const fn new() -> Inflow {
        Inflow {
            begun: Instant::ZERO,
            before: Traffic::NONE,
            bulk: false,
            against: Duration::ZERO,
        }
    }

    /// Whether it is so.
    pub(super) fn is_bulk(&self) -> bool {
        self.bulk
    }

    /// Looks: answers whether that has changed.
    pub(super) fn look(&mut self, now: Instant, traffic: Traffic) -> bool {
        let period = now.since(self.begun);
        if period < PERIOD {
            return false;
        }
        let frames = traffic.frames_in.wrapping_sub(self.before.frames_in);
        let received = traffic.bytes_in.wrapping_sub(self.before.bytes_in);
        let sent = traffic.bytes_out.wrapping_sub(self.before.bytes_out);
        (self.begun, self.before) = (now, traffic);
        let bulk = received >= LEAST.saturating_mul(period.as_micros() as u64)
            && received >= frames.saturating_mul(LARGE)
            && received >= sent.saturating_mul(SURPLUS);
        self.against = match bulk == self.bulk {
            true => self.against.saturating_sub(period),
            false => self.against + period,
        };
        let enough = if self.bulk { CEASES } else { BECOMES };
        let changed = self.against >= enough;
        if changed {
            self.against = Duration::ZERO;
            self.bulk = bulk;
        }
        changed
    }
}

#[cfg(test)]
mod tests;
