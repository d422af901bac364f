//! Segments that their ends lead to no connection.
//!
//! A reset in answer can't be taken back, and the table that ends are looked up in is private memory: a fault
//! there would have all connections reset by their own stack. So it is made sure that there is none, as long as
//! that is cheap.

use crate::instance::{Socket, Tcp};
use crate::segment::Segment;
use crate::state::State;
use skink_time::{Duration, Instant};

/// Slots that are looked at in an interval at most, most of which are free: some milliseconds.
const MOST: usize = 1 << 21;
const INTERVAL: Duration = Duration::from_millis(200);

/// How much was looked for.
#[derive(Default)]
pub(crate) struct Strays {
    since: Option<Instant>,
    looked_at: usize,
}

impl Strays {
    /// Whether so many slots may be looked at now; notes that they are.
    fn may_look_at(&mut self, now: Instant, slots: usize) -> bool {
        let past = |since| now.since(since) >= INTERVAL;
        if self.since.is_none_or(past) {
            self.since = Some(now);
            self.looked_at = 0;
        }
        let after = self.looked_at.saturating_add(slots);
        let may = after <= MOST;
        if may {
            self.looked_at = after;
        }
        may
    }
}

impl Tcp {
    /// Whether there is a connection that the segment is of, though its ends didn't lead there. What isn't
    /// answered comes again, and may meet a successor.
    #[cold]
    #[inline(never)]
    pub(crate) fn is_of_a_lost_flow(&mut self, now: Instant, segment: &Segment<'_>) -> bool {
        if !self.strays.may_look_at(now, self.sockets.len()) {
            return false;
        }
        self.sockets.iter().any(|socket| match socket {
            Socket::Connection(connection) => {
                connection.tuple == segment.tuple
                    && !matches!(connection.state(), State::Closed | State::TimeWait)
            }
            Socket::Free | Socket::Fresh(_) | Socket::Listener(_) => false,
        })
    }
}

#[cfg(test)]
mod tests;
