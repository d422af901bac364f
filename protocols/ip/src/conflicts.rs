//! Stations that claim an address of ours.

use core::net::IpAddr;
use skink_time::{Duration, Instant};
use skink_wire::MacAddr;
use std::collections::VecDeque;

/// How long nothing more is said of an address: a station may claim it with each frame that it sends.
const QUIET: Duration = Duration::from_secs(60);
/// Most that wait to be taken.
const WAITING: usize = 64;

pub(crate) struct Conflicts {
    waiting: VecDeque<(IpAddr, MacAddr)>,
    /// Addresses of which nothing is said until then.
    quiet: Vec<(IpAddr, Instant)>,
}

impl Conflicts {
    pub(crate) fn new() -> Conflicts {
        Conflicts {
            waiting: VecDeque::new(),
            quiet: Vec::new(),
        }
    }

    /// A station claims `address`, which is ours.
    pub(crate) fn note(&mut self, now: Instant, address: IpAddr, mac: MacAddr) {
        self.quiet.retain(|(_, until)| *until > now);
        let is_quiet = self.quiet.iter().any(|(other, _)| *other == address);
        if !is_quiet && self.waiting.len() < WAITING {
            self.quiet.push((address, now + QUIET));
            self.waiting.push_back((address, mac));
        }
    }

    pub(crate) fn take(&mut self) -> Option<(IpAddr, MacAddr)> {
        self.waiting.pop_front()
    }
}
