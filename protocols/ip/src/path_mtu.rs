//! What paths take less than the link (RFC 1191, RFC 8201).

use core::net::IpAddr;
use foldhash::fast::FixedState;
use skink_time::{Duration, Instant};
use std::collections::HashMap;

/// After this a larger size is tried again (RFC 1191 section 6.3, RFC 8201 section 4).
const LIFETIME: Duration = Duration::from_secs(600);
const CAPACITY: usize = 1024;
/// Less than this is not believed of an IPv4 path: a forged error must not make us send crumbs.
/// RFC 791 would allow 68; Linux' `min_pmtu` is the same as this.
const MINIMUM_V4: u32 = 552;
const MINIMUM_V6: u32 = 1280;
/// Sizes to try where a router doesn't tell its MTU (RFC 1191 section 7.1).
const PLATEAUS: [u32; 8] = [
    32_000, 17_914, 8_166, 4_352, 2_002, 1_492, 1_006, MINIMUM_V4,
];

struct Entry {
    mtu: u32,
    expires: Instant,
}

/// Destinations with a small path MTU.
pub(crate) struct PathMtus {
    entries: HashMap<IpAddr, Entry, FixedState>,
    /// No entry expires before this.
    first: Option<Instant>,
    /// How often entries changed.
    revision: u64,
}

impl PathMtus {
    pub(crate) fn new(seed: u64) -> PathMtus {
        PathMtus {
            entries: HashMap::with_hasher(FixedState::with_seed(seed)),
            first: None,
            revision: 0,
        }
    }

    /// The MTU in bytes to `destination` where it is known to be less than the link's.
    #[inline]
    pub(crate) fn get(&self, destination: IpAddr) -> Option<u32> {
        if self.entries.is_empty() {
            return None;
        }
        self.look_up(destination)
    }

    #[inline(never)]
    fn look_up(&self, destination: IpAddr) -> Option<u32> {
        self.entries.get(&destination).map(|entry| entry.mtu)
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = (IpAddr, u32)> {
        self.entries.iter().map(|(to, entry)| (*to, entry.mtu))
    }

    /// Another number whenever they changed.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// Remembers what [`believable`] has answered; answers the path's MTU now.
    pub(crate) fn shrink(&mut self, now: Instant, destination: IpAddr, told: u32) -> u32 {
        let known = self.get(destination);
        let mtu = known.map_or(told, |known| known.min(told));
        if known.is_none() && self.entries.len() >= CAPACITY {
            self.evict();
        }
        let expires = now + LIFETIME;
        self.entries.insert(destination, Entry { mtu, expires });
        if known != Some(mtu) {
            self.revision = self.revision.wrapping_add(1);
        }
        self.first = self.first.or(Some(expires));
        mtu
    }

    fn evict(&mut self) {
        let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.expires);
        if let Some(address) = oldest.map(|(address, _)| *address) {
            self.entries.remove(&address);
        }
    }

    /// Forgets what is too old.
    pub(crate) fn expire(&mut self, now: Instant) {
        if self.first.is_some_and(|first| first <= now) {
            self.entries.retain(|_, entry| entry.expires > now);
            self.revision = self.revision.wrapping_add(1);
            self.first = self.entries.values().map(|entry| entry.expires).min();
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.first
    }
}

/// What a path takes if a router told that a packet of `packet_bytes` bytes didn't fit the `mtu` of its next
/// link, or `None` if that can't be true.
pub(crate) fn believable(destination: IpAddr, mtu: u32, packet_bytes: u32) -> Option<u32> {
    let told = match (mtu, destination) {
        (0, IpAddr::V4(_)) => PLATEAUS
            .into_iter()
            .find(|plateau| *plateau < packet_bytes)?,
        (mtu, IpAddr::V4(_)) => mtu.max(MINIMUM_V4),
        (mtu, IpAddr::V6(_)) => mtu.max(MINIMUM_V6),
    };
    (told < packet_bytes).then_some(told)
}
