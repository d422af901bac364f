//! Claiming addresses: probing for others who have them, and announcing that they are ours
//! (RFC 5227 for IPv4, RFC 4862 section 5.4 and RFC 4861 section 7.2.6 for IPv6).

use core::net::IpAddr;
use skink_time::{Duration, Instant};

/// `PROBE_NUM`, `PROBE_MIN`, `ANNOUNCE_WAIT`, `ANNOUNCE_NUM`, `ANNOUNCE_INTERVAL` of RFC 5227
/// section 1.1; `DupAddrDetectTransmits` and `RetransTimer` of RFC 4862 section 5.1.
const PROBES_V4: u8 = 3;
const PROBES_V6: u8 = 1;
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
const LAST_WAIT_V4: Duration = Duration::from_secs(2);
const ANNOUNCEMENTS: u8 = 2;
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(2);
/// Most claims at a time.
const CAPACITY: usize = 256;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Does anybody have this address?
    Probe,
    /// This address is ours.
    Announce,
}

struct Claim {
    address: IpAddr,
    kind: Kind,
    left: u8,
    next: Instant,
}

/// Claims that aren't finished.
#[derive(Default)]
pub(crate) struct Claims(Vec<Claim>);

impl Claims {
    /// Begins a claim, or begins it anew.
    pub(crate) fn begin(&mut self, now: Instant, address: IpAddr, kind: Kind) {
        self.end(address, kind);
        let left = match (kind, address) {
            (Kind::Probe, IpAddr::V4(_)) => PROBES_V4,
            (Kind::Probe, IpAddr::V6(_)) => PROBES_V6,
            (Kind::Announce, _) => ANNOUNCEMENTS,
        };
        if self.0.len() < CAPACITY {
            self.0.push(Claim {
                address,
                kind,
                left,
                next: now,
            });
        }
    }

    pub(crate) fn end(&mut self, address: IpAddr, kind: Kind) {
        self.0
            .retain(|claim| claim.address != address || claim.kind != kind);
    }

    pub(crate) fn is_probing(&self, address: IpAddr) -> bool {
        self.probing().any(|probed| probed == address)
    }

    pub(crate) fn probing(&self) -> impl Iterator<Item = IpAddr> {
        self.0
            .iter()
            .filter(|claim| claim.kind == Kind::Probe)
            .map(|claim| claim.address)
    }

    /// The next message that is due.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<(IpAddr, Kind)> {
        self.0.retain(|claim| claim.left > 0 || claim.next > now);
        let claim = self.0.iter_mut().find(|claim| claim.next <= now)?;
        claim.left -= 1;
        claim.next = now
            + match (claim.kind, claim.address, claim.left) {
                (Kind::Probe, IpAddr::V4(_), 0) => LAST_WAIT_V4,
                (Kind::Probe, _, _) => PROBE_INTERVAL,
                (Kind::Announce, _, 0) => Duration::ZERO,
                (Kind::Announce, _, _) => ANNOUNCE_INTERVAL,
            };
        Some((claim.address, claim.kind))
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.0.iter().map(|claim| claim.next).min()
    }
}
