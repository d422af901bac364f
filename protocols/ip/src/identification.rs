//! Identifications of packets that may be fragmented.

use core::hash::BuildHasher;
use core::net::IpAddr;
use foldhash::fast::FixedState;

const COUNTERS: usize = 1024;

/// Counters chosen by a keyed hash of both addresses, so that nobody can tell from the packets that
/// they get how many others get (RFC 7739 section 5.3, Linux' `ip_idents`).
pub(crate) struct Identifications {
    counters: Box<[u32; COUNTERS]>,
    state: FixedState,
}

impl Identifications {
    pub(crate) fn new(seed: u64) -> Identifications {
        let state = FixedState::with_seed(seed);
        let counters = core::array::from_fn(|index| state.hash_one(index) as u32);
        Identifications {
            counters: Box::new(counters),
            state,
        }
    }

    /// The next one between two addresses; `count` are used up.
    #[inline(never)]
    pub(crate) fn next(&mut self, source: IpAddr, destination: IpAddr, count: u32) -> u32 {
        let index = self.state.hash_one((source, destination)) as usize % COUNTERS;
        let Some(counter) = self.counters.get_mut(index) else {
            return 0;
        };
        let next = *counter;
        *counter = counter.wrapping_add(count);
        next
    }
}
