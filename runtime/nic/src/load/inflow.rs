//! Whether a process receives in bulk, so that AF_XDP had better step aside on a virtual cable: while an XDP program is
//! there, the other end cuts what it sends to frames, and each is copied by itself; without, up to 64 KiB come in one
//! piece ([`Opener::step_aside`](crate::Opener::step_aside), docs/decisions/0021).
use super::period::Period;
use skink_time::Duration;

/// So much more time with bulk than without makes it bulk: a file of some MiB is over before,
const BECOMES: Duration = Duration::from_millis(40);
/// and so much the other way ends it. More, since who receives files with pauses between them would go on and off.
const CEASES: Duration = Duration::from_millis(400);
/// Bytes received in a second below which there is little to gain.
const LEAST: u64 = 32_000_000;
/// Bytes of the mean frame received: full ones, as Ethernet has them, and acknowledgements now and then.
const LARGE: u64 = 1_000;
/// What it sends may be so many times that: with more, there is little to gain. (What is sent in bulk leaves the same way
/// with and without an XDP program.)
const SENT: u64 = 16;

/// How the last periods were.
pub(super) struct Inflow {
    bulk: bool,
    /// Time that speaks for a change, less that which doesn't: who receives much makes few calls, and is looked at seldom.
    against: Duration,
}

impl Inflow {
    /// Of a process that has received nothing yet.
    pub(super) const fn new() -> Inflow {
        Inflow {
            bulk: false,
            against: Duration::ZERO,
        }
    }

    /// Whether it is so.
    pub(super) fn is_bulk(&self) -> bool {
        self.bulk
    }

    /// Takes a period in: answers whether that has changed.
    pub(super) fn take(&mut self, period: &Period) -> bool {
        let traffic = &period.traffic;
        let received = traffic.bytes_in;
        let bulk = period.rate(received) >= LEAST
            && received >= traffic.frames_in.saturating_mul(LARGE)
            && traffic.bytes_out <= received.saturating_mul(SENT);
        self.against = match bulk == self.bulk {
            true => self.against.saturating_sub(period.length),
            false => self.against + period.length,
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
