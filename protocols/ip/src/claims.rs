//! What routers say of packets of ours, until a transport shows that there may be such packets.
//!
//! TCP knows what is in flight, and what it has lost there it sends again, in segments of the size that it was told. Of
//! datagrams nobody knows that; but who has sent one from a port sends the next from there. (Linux believes what it is
//! told if there is a socket on the port. Here that one must also send to whom the claim is about.)

use crate::quoted::Quoted;
use core::net::IpAddr;
use skink_messages::{Outbound, TxPacket};
use skink_time::{Duration, Instant};
use skink_wire::{Endpoint, SeqNum, protocol};
use std::collections::VecDeque;

/// TCP acts at once; but its window may be small, and what was quoted not be the first that it sends again.
const LIFETIME: Duration = Duration::from_secs(2);
/// The next datagram leaves when a program likes; who repeats a question that wasn't answered does so within seconds.
const LIFETIME_OF_DATAGRAMS: Duration = Duration::from_secs(10);
/// The oldest make room.
const CAPACITY: usize = 32;

struct Claim {
    protocol: u8,
    local: Endpoint,
    remote: Endpoint,
    sequence: SeqNum,
    mtu: u32,
    until: Instant,
}

impl Claim {
    /// Whether this is about packets from `local` to `remote`: to any port there, if they are datagrams.
    fn is_about(&self, protocol: u8, local: Endpoint, remote: Endpoint) -> bool {
        let is_same = (self.protocol, self.local) == (protocol, local);
        is_same
            && self.remote.addr == remote.addr
            && (protocol == protocol::UDP || self.remote.port == remote.port)
    }
}

/// The claims, oldest first.
#[derive(Default)]
pub(crate) struct Claims(VecDeque<Claim>);

impl Claims {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether there is one about packets to `destination`.
    pub(crate) fn concern(&self, destination: IpAddr) -> bool {
        self.0.iter().any(|claim| claim.remote.addr == destination)
    }

    /// The path of a packet takes `mtu` bytes, it is said.
    pub(crate) fn add(&mut self, now: Instant, quoted: &Quoted, mtu: u32) {
        let &Quoted {
            protocol,
            local,
            remote,
            sequence,
            packet_bytes: _,
        } = quoted;
        if protocol == protocol::UDP {
            // A router says it of each datagram that was in flight, and they are all alike here: the least counts.
            let mut same = self.0.iter_mut();
            if let Some(claim) = same.find(|claim| claim.is_about(protocol, local, remote)) {
                claim.mtu = claim.mtu.min(mtu);
                claim.until = now + LIFETIME_OF_DATAGRAMS;
                return;
            }
        }
        if self.0.len() >= CAPACITY {
            self.0.pop_front();
        }
        let lifetime = match protocol {
            protocol::UDP => LIFETIME_OF_DATAGRAMS,
            _ => LIFETIME,
        };
        self.0.push_back(Claim {
            protocol,
            local,
            remote,
            sequence: SeqNum(sequence),
            mtu,
            until: now + lifetime,
        });
    }

    /// What the path of `packet`, which leaves in pieces of `bytes` bytes, takes, if a claim says so and this is
    /// the data that it quoted, or a datagram from the same port. A segment that is larger shows that TCP doesn't
    /// believe it; UDP doesn't choose how large datagrams are.
    pub(crate) fn settle(
        &mut self,
        now: Instant,
        to: &Outbound,
        packet: &TxPacket<'_>,
        bytes: usize,
    ) -> Option<u32> {
        self.0.retain(|claim| claim.until > now);
        let &[s0, s1, d0, d1, a, b, c, d] = packet.headers().first_chunk()?;
        let end = |address: IpAddr, port| Endpoint::new(address, u16::from_be_bytes(port));
        let local = end(to.source, [s0, s1]);
        let remote = end(to.destination, [d0, d1]);
        let first = SeqNum(u32::from_be_bytes([a, b, c, d]));
        let behind = first + packet.payload_bytes() as u32;
        let at = self.0.iter().position(|claim| {
            let is_quoted = first.le(claim.sequence) && claim.sequence.lt(behind);
            claim.is_about(to.protocol, local, remote)
                && (is_quoted || to.protocol == protocol::UDP)
        })?;
        let mtu = self.0.remove(at)?.mtu;
        if bytes > mtu as usize && to.protocol == protocol::TCP {
            return None;
        }
        // A router says it of each segment that was in flight.
        self.0
            .retain(|claim| !claim.is_about(to.protocol, local, remote) || claim.mtu < mtu);
        Some(mtu)
    }
}
