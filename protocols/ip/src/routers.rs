//! Finding a default router for IPv6 (RFC 4861 section 6.3, RFC 7559).

use core::hash::BuildHasher;
use core::net::Ipv6Addr;
use foldhash::fast::FixedState;
use skink_time::{Duration, Instant};

/// How long the first solicitation's answer is waited for, and any one's at the most (RFC 7559 section 2): also a
/// router that comes up late, and doesn't say so or isn't heard, is found in the end.
const INTERVAL_MS: u64 = 4_000;
const LONGEST_MS: u64 = 3_600_000;
/// Most routers known (RFC 4861 section 6.3.4 asks for two at least).
const CAPACITY: usize = 8;

struct Router {
    address: Ipv6Addr,
    until: Instant,
    /// It didn't answer when it was asked last, and hasn't been heard since.
    silent: bool,
}

/// The routers there are, or the search for one.
pub(crate) struct Routers {
    /// Whether one is looked for: none is configured.
    wanted: bool,
    /// Whether to ask for them here.
    asks: bool,
    /// There is none, and they are asked for until there is one.
    searches: bool,
    /// How long the last solicitation's answer is waited for, 0 before the first one of a search.
    interval_ms: u64,
    /// The next solicitation, and when another search may begin.
    next: Instant,
    earliest: Instant,
    /// For intervals that nobody else has.
    hash: FixedState,
    drawn: u64,
    /// The first one is used.
    known: Vec<Router>,
}

impl Routers {
    /// `wanted`: whether there is none yet. `asks`: whether to ask for them.
    pub(crate) fn new(wanted: bool, asks: bool, seed: u64) -> Routers {
        let mut routers = Routers {
            wanted,
            asks,
            searches: false,
            interval_ms: 0,
            next: Instant::ZERO,
            earliest: Instant::ZERO,
            hash: FixedState::with_seed(seed),
            drawn: 0,
            known: Vec::new(),
        };
        routers.search();
        routers
    }

    /// From now on routers are asked for, or not any more.
    pub(crate) fn set_asks(&mut self, asks: bool) {
        let begins = asks && !self.asks;
        self.asks = asks;
        if begins && self.known.is_empty() {
            self.search();
        }
    }

    fn search(&mut self) {
        if self.wanted && self.asks {
            self.searches = true;
            self.interval_ms = 0;
            self.next = self.earliest;
        }
    }

    /// A router tells how long it is one; answers whether the default router changed. One that
    /// works is kept when others come along.
    pub(crate) fn heard(&mut self, now: Instant, address: Ipv6Addr, lifetime: Duration) -> bool {
        if lifetime.is_zero() {
            return self.is_none(address);
        }
        self.searches = false;
        let router = Router {
            address,
            until: now + lifetime,
            silent: false,
        };
        self.change(|known| {
            let is_full = known.len() >= CAPACITY;
            let mut places = known.iter_mut();
            if let Some(place) = places.find(|other| other.address == address) {
                *place = router;
            } else if !is_full {
                known.push(router);
            } else if let Some(place) = known.iter_mut().find(|other| other.silent) {
                *place = router;
            }
        })
    }

    /// A neighbour says that it is no router (any more); answers whether that changes the default.
    pub(crate) fn is_none(&mut self, neighbour: Ipv6Addr) -> bool {
        self.change(|known| known.retain(|router| router.address != neighbour))
    }

    /// A neighbour doesn't answer; answers whether that changes the default. While none answers they are
    /// tried one after the other (RFC 4861 section 6.3.6).
    pub(crate) fn is_silent(&mut self, neighbour: Ipv6Addr) -> bool {
        self.change(|known| {
            let at = known.iter().position(|router| router.address == neighbour);
            if let Some(at) = at {
                let router = known.remove(at);
                known.push(Router {
                    silent: true,
                    ..router
                });
            }
        })
    }

    /// A neighbour answers; answers whether that changes the default.
    pub(crate) fn answers(&mut self, neighbour: Ipv6Addr) -> bool {
        self.change(|known| {
            let mut routers = known.iter_mut();
            if let Some(router) = routers.find(|router| router.address == neighbour) {
                router.silent = false;
            }
        })
    }

    /// The default router.
    pub(crate) fn router(&self) -> Option<Ipv6Addr> {
        self.known.first().map(|router| router.address)
    }

    /// Whether there is a router that answers, as far as is known.
    pub(crate) fn has_good(&self) -> bool {
        self.known.first().is_some_and(|router| !router.silent)
    }

    /// Forgets routers whose time has run out; answers whether that changes the default.
    pub(crate) fn expire(&mut self, now: Instant) -> bool {
        let any = self.known.iter().any(|router| router.until <= now);
        any && self.change(|known| known.retain(|router| router.until > now))
    }

    /// Whether the default router is another one after a change. Those that aren't silent come first. If the last
    /// one is gone others are asked for; never more often than the first time (RFC 4861 section 6.3.7).
    fn change(&mut self, change: impl FnOnce(&mut Vec<Router>)) -> bool {
        let before = self.router();
        change(&mut self.known);
        // Stable.
        self.known.sort_by_key(|router| router.silent);
        if before.is_some() && self.known.is_empty() {
            self.search();
        }
        self.router() != before
    }

    /// Whether to ask for routers now.
    pub(crate) fn solicit(&mut self, now: Instant) -> bool {
        let due = self.searches && self.asks && self.next <= now;
        if due {
            self.interval_ms = self.next_interval_ms();
            self.next = now + Duration::from_millis(self.interval_ms);
            self.earliest = now + Duration::from_millis(INTERVAL_MS);
        }
        due
    }

    /// Twice as long as before, a tenth of that before more or less, so that those who begin together don't go on
    /// together (RFC 7559 section 2, RFC 3315 section 14).
    fn next_interval_ms(&mut self) -> u64 {
        let next = match self.interval_ms {
            0 => self.about(INTERVAL_MS),
            before => before + self.about(before),
        };
        match next {
            too_long if too_long > LONGEST_MS => self.about(LONGEST_MS),
            next => next,
        }
    }

    /// So long, a tenth more or less.
    fn about(&mut self, interval_ms: u64) -> u64 {
        self.drawn = self.drawn.wrapping_add(1);
        let tenth = interval_ms / 10;
        interval_ms - tenth + self.hash.hash_one(self.drawn) % (2 * tenth + 1)
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let solicitation = (self.searches && self.asks).then_some(self.next);
        let routers = self.known.iter().map(|router| router.until);
        solicitation.into_iter().chain(routers).min()
    }
}
