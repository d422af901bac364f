//! What routers say of segments, until TCP shows that it believes them: it alone knows what is in flight, and what it
//! has lost there it sends again, in segments of the size that it was told.

use crate::quoted::Quoted;
use core::net::IpAddr;
use skink_messages::{Outbound, TxPacket};
use skink_time::{Duration, Instant};
use skink_wire::{Endpoint, SeqNum, protocol};
use std::collections::VecDeque;

/// TCP acts at once; but its window may be small, and what was quoted not be the first that it sends again.
const LIFETIME: Duration = Duration::from_secs(2);
/// The oldest make room.
const CAPACITY: usize = 32;

struct Claim {
    local: Endpoint,
    remote: Endpoint,
    sequence: SeqNum,
    mtu: u32,
    until: Instant,
}

/// The claims, oldest first.
#[derive(Default)]
pub(crate) struct Claims(VecDeque<Claim>);

impl Claims {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The path of a segment takes `mtu` bytes, it is said.
    pub(crate) fn add(&mut self, now: Instant, quoted: &Quoted, mtu: u32) {
        if self.0.len() >= CAPACITY {
            self.0.pop_front();
        }
        self.0.push_back(Claim {
            local: quoted.local,
            remote: quoted.remote,
            sequence: SeqNum(quoted.sequence),
            mtu,
            until: now + LIFETIME,
        });
    }

    /// What the path of `packet`, which leaves in pieces of `bytes` bytes, takes, if a claim says so and this is
    /// the data that it quoted. A piece that is larger shows that TCP doesn't believe it.
    pub(crate) fn settle(
        &mut self,
        now: Instant,
        to: &Outbound,
        packet: &TxPacket<'_>,
        bytes: usize,
    ) -> Option<u32> {
        while self.0.front().is_some_and(|oldest| oldest.until <= now) {
            self.0.pop_front();
        }
        if to.protocol != protocol::TCP {
            return None;
        }
        let &[s0, s1, d0, d1, a, b, c, d] = packet.headers().first_chunk()?;
        let end = |address: IpAddr, port| Endpoint::new(address, u16::from_be_bytes(port));
        let local = end(to.source, [s0, s1]);
        let remote = end(to.destination, [d0, d1]);
        let first = SeqNum(u32::from_be_bytes([a, b, c, d]));
        let behind = first + packet.payload_bytes() as u32;
        let at = self.0.iter().position(|claim| {
            (claim.local, claim.remote) == (local, remote)
                && first.le(claim.sequence)
                && claim.sequence.lt(behind)
        })?;
        let mtu = self.0.remove(at)?.mtu;
        if bytes > mtu as usize {
            return None;
        }
        // A router says it of each segment that was in flight.
        self.0
            .retain(|claim| (claim.local, claim.remote) != (local, remote) || claim.mtu < mtu);
        Some(mtu)
    }
}
