//! Segments of flows that nobody knows here, on ports that other owners of the NIC use as well.
//!
//! Which owner a flow goes to, the steering program remembers in a table of limited size. What was pushed out of it goes by
//! who listens now, as a new flow does: so a connection that rests for long may come to a process that listens instead of
//! the one that has it, and isn't reset here before others were asked. If one of them has it, the next segment goes there;
//! the peer sends this one again.

use skink_time::{Duration, Instant};
use skink_wire::FourTuple;
use std::collections::VecDeque;

/// Of so many flows it is remembered that others were asked.
const MOST: usize = 256;
/// In this time somebody who has a flow has been found.
const PATIENCE: Duration = Duration::from_millis(500);
/// After this time others may be asked anew.
const FORGOTTEN: Duration = Duration::from_secs(4);

/// Flows that may be other owners'.
#[derive(Default)]
pub(crate) struct Misled {
    /// The oldest first, and when it came first.
    list: VecDeque<(FourTuple, Instant)>,
    unasked: VecDeque<FourTuple>,
}

impl Misled {
    /// A segment of `flow` has come: whether it may be another owner's, so that it is left unanswered. While more flows come
    /// than others can be asked about, as when a program has begun anew, the rest are taken for nobody's.
    pub(crate) fn may_be(&mut self, now: Instant, flow: &FourTuple) -> bool {
        let is_old = |(_, since): &(FourTuple, Instant)| now.since(*since) >= FORGOTTEN;
        while self.list.front().is_some_and(is_old) {
            let (old, _) = self.list.pop_front().unzip();
            // Nobody asks in every process that has a stack.
            if self.unasked.front() == old.as_ref() {
                self.unasked.pop_front();
            }
        }
        if let Some((_, since)) = self.list.iter().find(|(known, _)| known == flow) {
            return now.since(*since) < PATIENCE;
        }
        let may_ask = self.list.len() < MOST;
        if may_ask {
            self.list.push_back((*flow, now));
            self.unasked.push_back(*flow);
        }
        may_ask
    }

    /// The next flow that others are to be asked about.
    pub(crate) fn take(&mut self) -> Option<FourTuple> {
        self.unasked.pop_front()
    }
}

#[cfg(test)]
mod tests;
