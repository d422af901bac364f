//! What paths take less than the link (RFC 1191, RFC 8201).

use core::net::{IpAddr, Ipv6Addr};
use foldhash::fast::FixedState;
use skink_time::{Duration, Instant};
use skink_wire::{ipv4, ipv6};
use std::collections::HashMap;

/// After this a larger size is tried again (RFC 1191 section 6.3, RFC 8201 section 4).
const LIFETIME: Duration = Duration::from_secs(600);
const CAPACITY: usize = 1024;
const MINIMUM_V4: u32 = ipv4::MINIMUM_PATH_MTU;
const MINIMUM_V6: u32 = ipv6::MINIMUM_MTU as u32;
/// Stands for all destinations of IPv6 where path MTUs are told to others.
pub(crate) const ALL_V6: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
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
    /// What a router said that the link takes of IPv6, if that is less than it could.
    link_v6: Option<u32>,
    advertised: Advertised,
    entries: HashMap<IpAddr, Entry, FixedState>,
    /// No entry expires before this.
    first: Option<Instant>,
    /// How often entries changed.
    revision: u64,
}

impl PathMtus {
    pub(crate) fn new(seed: u64) -> PathMtus {
        PathMtus {
            link_v6: None,
            advertised: Advertised::default(),
            entries: HashMap::with_hasher(FixedState::with_seed(seed)),
            first: None,
            revision: 0,
        }
    }

    /// The MTU in bytes to `destination` where it is known to be less than the link's.
    #[inline]
    pub(crate) fn get(&self, destination: IpAddr) -> Option<u32> {
        if self.entries.is_empty() && self.link_v6.is_none() {
            return None;
        }
        self.look_up(destination)
    }

    #[inline(never)]
    fn look_up(&self, destination: IpAddr) -> Option<u32> {
        let path = self.entries.get(&destination).map(|entry| entry.mtu);
        least(path, self.link_v6, destination)
    }

    /// Whether a router said that the link takes less of IPv6 than it could.
    #[inline(always)]
    pub(crate) fn is_link_small(&self) -> bool {
        self.link_v6.is_some()
    }

    /// What the link takes of packets to `destination`, if a router said that this is less than it could.
    pub(crate) fn small_link(&self, destination: IpAddr) -> Option<u32> {
        least(None, self.link_v6, destination)
    }

    /// All of them, [`ALL_V6`] first: what a router said of the link, though it be no less than that could take.
    pub(crate) fn all(&self) -> impl Iterator<Item = (IpAddr, u32)> {
        let link = self.advertised.mtu.map(|mtu| (ALL_V6, mtu));
        let paths = self.entries.iter().map(|(to, entry)| (*to, entry.mtu));
        link.into_iter().chain(paths)
    }

    /// A router advertises the MTU of the link, which could take `most`. What can't be true is ignored (RFC 4861
    /// section 6.3.4).
    pub(crate) fn advertised(&mut self, mtu: u32, most: u32) {
        if !(MINIMUM_V6..=most).contains(&mtu) {
            return;
        }
        self.link_v6 = (mtu < most).then_some(mtu);
        if self.advertised.hear(mtu) {
            self.revision = self.revision.wrapping_add(1);
        }
    }

    /// As [`Advertised::raises`].
    #[inline(always)]
    pub(crate) fn raises(&self) -> u32 {
        self.advertised.raises
    }

    /// Another number whenever they changed.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// Remembers what [`believable`] has answered; answers the path's MTU now.
    pub(crate) fn shrink(&mut self, now: Instant, destination: IpAddr, told: u32) -> u32 {
        let known = self.entries.get(&destination).map(|entry| entry.mtu);
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

/// What routers said of the link. Where nobody has said anything yet, nothing was raised either: a successor of `ip` knows
/// no router at first, and the link of its predecessor takes no more for that.
#[derive(Clone, Copy, Default)]
pub(crate) struct Advertised {
    pub(crate) mtu: Option<u32>,
    /// How often it was more than the time before.
    pub(crate) raises: u32,
}

impl Advertised {
    /// A router said so last. Answers whether that is new.
    pub(crate) fn hear(&mut self, mtu: u32) -> bool {
        if self.mtu.is_some_and(|before| before < mtu) {
            self.raises = self.raises.wrapping_add(1);
        }
        self.mtu.replace(mtu) != Some(mtu)
    }
}

/// The MTU to `destination` of its path and, if that is IPv6, of the link.
pub(crate) fn least(path: Option<u32>, link_v6: Option<u32>, destination: IpAddr) -> Option<u32> {
    let link = link_v6.filter(|_| destination.is_ipv6());
    path.into_iter().chain(link).min()
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
