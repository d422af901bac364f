//! Announcing our addresses: gratuitous ARP (RFC 5227 section 2.3) and unsolicited advertisements
//! (RFC 4861 section 7.2.6).

use core::net::IpAddr;
use skink_time::{Duration, Instant};

/// `ANNOUNCE_NUM` and `ANNOUNCE_INTERVAL` of RFC 5227 section 1.1.
const TIMES: u8 = 2;
const INTERVAL: Duration = Duration::from_secs(2);
/// Most addresses that are announced at a time.
const CAPACITY: usize = 256;

struct Announcement {
    address: IpAddr,
    left: u8,
    next: Instant,
}

/// Announcements that aren't finished.
#[derive(Default)]
pub(crate) struct Announcements(Vec<Announcement>);

impl Announcements {
    /// Begins to announce an address, or begins anew.
    pub(crate) fn begin(&mut self, now: Instant, address: IpAddr) {
        self.0.retain(|other| other.address != address);
        if self.0.len() < CAPACITY {
            self.0.push(Announcement {
                address,
                left: TIMES,
                next: now,
            });
        }
    }

    /// The next address that is to be announced now.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<IpAddr> {
        let due = self.0.iter_mut().find(|other| other.next <= now)?;
        let address = due.address;
        due.left = due.left.saturating_sub(1);
        due.next = now + INTERVAL;
        self.0.retain(|other| other.left > 0);
        Some(address)
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.0.iter().map(|other| other.next).min()
    }
}
