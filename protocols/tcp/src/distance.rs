//! When a connection needs rings that hold more ([`Ring::grow`]): its peer is so far away that what may be under way at a time is
//! bounded by what a ring holds.
//!
//! Receiving goes by what arrives in a round trip, as in Linux's dynamic right-sizing (Fisk and Feng 2001); sending by the congestion
//! window.

use crate::connection::{Connection, Context};
use skink_memory::{Record, Ring};
use skink_time::{Duration, Instant};
use skink_wire::SeqNum;
use std::sync::atomic::Ordering::Relaxed;

/// Whose shortest round trip takes less is near: in that time what a ring has in the beginning, 1 MiB unless somebody chose otherwise, is
/// 2 Gbit/s, and where more arrives than is taken out a larger one would only be colder in the caches.
const FAR: Duration = Duration::from_millis(4);

/// Whether a connection's program may put more into its send ring than that holds for now.
#[inline]
pub fn may_send_ahead(record: &Record, ring: &Ring<'_>) -> bool {
    // What hasn't been acknowledged is in the ring too, besides what is to be sent next.
    record.is_far.load(Relaxed) != 0 && record.cwnd.load(Relaxed) as usize >= ring.size() / 2
}

/// What has arrived in a round trip.
#[derive(Clone, Copy, Debug)]
pub struct Arrivals {
    since: Instant,
    from: SeqNum,
}

impl Arrivals {
    pub fn new(now: Instant) -> Arrivals {
        Arrivals {
            since: now,
            from: SeqNum(0),
        }
    }
}

impl Connection {
    /// Whether the peer is far away. A round trip over which data waits says nothing of that, but the shortest one does.
    #[inline]
    pub fn is_far(&self) -> bool {
        self.rtt.least().is_some_and(|least| least >= FAR)
    }

    /// Tells the program.
    pub fn save_distance(&self, context: &Context<'_>) {
        let is_far = u8::from(self.is_far());
        self.record(context).is_far.store(is_far, Relaxed);
    }

    /// Data is next in order, and nothing is ahead of it. If a round trip has passed since this was looked at last: has so much
    /// arrived in it that the peer has to wait for room?
    #[inline]
    pub fn grow_for_far_peer(&mut self, ring: &Ring<'_>, context: &Context<'_>) {
        // Before the program has read anything, the connection may go to another one's listener.
        if ring.size() < ring.capacity()
            && ring.head() > 0
            && self.is_far()
            && let Some(rtt) = self.rtt.smoothed()
            && context.now >= self.arrivals.since + rtt
        {
            let Arrivals { since, from } = self.arrivals;
            self.arrivals = Arrivals {
                since: context.now,
                from: self.rcv_nxt,
            };
            // An interval in which nothing came for a while, or that began before the connection did, says nothing.
            let arrived = from.distance_to(self.rcv_nxt) as usize;
            let is_bound = context.now < since + rtt * 2
                && (ring.size() / 2..2 * ring.size()).contains(&arrived);
            let wanted = self.settings.receive_buffer.map(|bytes| bytes as usize);
            if is_bound && wanted.is_none_or(|bytes| bytes > ring.size()) {
                ring.grow(0);
            }
        }
    }
}
