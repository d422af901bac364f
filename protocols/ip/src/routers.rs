//! Finding a default router for IPv6 (RFC 4861 section 6.3).

use core::net::Ipv6Addr;
use skink_time::{Duration, Instant};

/// `MAX_RTR_SOLICITATIONS`, `RTR_SOLICITATION_INTERVAL` (RFC 4861 section 10).
const SOLICITATIONS: u8 = 3;
const INTERVAL: Duration = Duration::from_secs(4);

/// The router that is used, or the search for one.
pub(crate) struct Routers {
    /// Solicitations still to be sent, and when.
    left: u8,
    next: Instant,
    router: Option<(Ipv6Addr, Instant)>,
}

impl Routers {
    /// `search`: whether to ask for routers.
    pub(crate) fn new(search: bool) -> Routers {
        Routers {
            left: if search { SOLICITATIONS } else { 0 },
            next: Instant::ZERO,
            router: None,
        }
    }

    /// A router tells how long it is one; answers whether the default router changed. One that
    /// works is kept when others come along.
    pub(crate) fn heard(&mut self, now: Instant, router: Ipv6Addr, lifetime: Duration) -> bool {
        self.left = 0;
        match self.router {
            Some((known, _)) if known == router && lifetime.is_zero() => self.router = None,
            Some((known, _)) if known == router => {
                self.router = Some((router, now + lifetime));
                return false;
            }
            Some(_) => return false,
            None if lifetime.is_zero() => return false,
            None => self.router = Some((router, now + lifetime)),
        }
        true
    }

    /// A neighbour says that it is no router (any more); answers whether that changes the default.
    pub(crate) fn is_none(&mut self, neighbour: Ipv6Addr) -> bool {
        let gone = self.router.is_some_and(|(router, _)| router == neighbour);
        if gone {
            self.router = None;
        }
        gone
    }

    pub(crate) fn router(&self) -> Option<Ipv6Addr> {
        self.router.map(|(router, _)| router)
    }

    /// Whether the router's time has run out just now.
    pub(crate) fn expire(&mut self, now: Instant) -> bool {
        let gone = self.router.is_some_and(|(_, until)| until <= now);
        if gone {
            self.router = None;
        }
        gone
    }

    /// Whether to ask for routers now.
    pub(crate) fn solicit(&mut self, now: Instant) -> bool {
        let due = self.left > 0 && self.next <= now;
        if due {
            self.left -= 1;
            self.next = now + INTERVAL;
        }
        due
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let solicitation = (self.left > 0).then_some(self.next);
        let router = self.router.map(|(_, until)| until);
        [solicitation, router].into_iter().flatten().min()
    }
}
