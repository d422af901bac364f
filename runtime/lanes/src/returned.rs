//! What a neighbour lent, and is to be told of.

use crate::codec::Few;
use crate::exchange::HELD_BACK;
use skink_time::{Duration, Instant};
use std::collections::VecDeque;

/// A neighbour that nothing else wakes is told so long after at the latest: it may be a socket's last datagram, which is
/// forgotten only then.
const AT_THE_LATEST: Duration = Duration::from_millis(50);

/// Ids of packets that aren't needed any more, of which the neighbour doesn't know yet.
pub(crate) struct Returned {
    ids: VecDeque<u64>,
    awaited: bool,
    /// When it is to be told; none if there is nothing to tell.
    due: Option<Instant>,
}

impl Returned {
    /// With room for so many.
    pub fn with_capacity(capacity: usize) -> Returned {
        Returned {
            ids: VecDeque::with_capacity(capacity),
            awaited: false,
            due: None,
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// One more. If it is awaited, all are told with the next flush. 0 stands for nobody who wants to know.
    pub fn push(&mut self, id: u64, awaited: bool) {
        if id != 0 {
            self.ids.push_back(id);
            self.awaited |= awaited;
        }
    }

    /// Whether it is time to tell some; `speaks` if the neighbour is told something else anyway. What waits longer is due
    /// at [`Returned::next_deadline`].
    pub fn is_due(&mut self, now: Instant, speaks: bool) -> bool {
        if self.ids.is_empty() {
            return false;
        }
        let due = *self.due.get_or_insert(now + AT_THE_LATEST);
        speaks || self.awaited || self.ids.len() > HELD_BACK || due <= now
    }

    /// The next ones to tell.
    pub fn take<const N: usize>(&mut self) -> Few<u64, N> {
        let ids = Few::take(&mut self.ids, 0);
        if self.ids.is_empty() {
            self.clear();
        }
        ids
    }

    /// When [`Returned::is_due`] at the latest.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.due
    }

    /// Nobody wants to know any more.
    pub fn clear(&mut self) {
        self.ids.clear();
        self.awaited = false;
        self.due = None;
    }
}
