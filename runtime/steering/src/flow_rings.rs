//! Which of an owner's sockets on a queue gets a flow: an indirection table, as a card's for receive-side scaling.

use crate::Owner;
use crate::owners::Owners;
use crate::shared::{MappedArray, Shared};
use skink_wire::FourTuple;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// AF_XDP sockets that a queue can have: its first, and those for flows that a thread waits for.
pub const RINGS: u32 = 32;
/// Entries of an owner's table.
pub const BUCKETS: u16 = 1024;
const TCP: u64 = 6;

/// A value of `flow_rings` in `bpf/steer.bpf.c`.
#[repr(C)]
pub(crate) struct Table([AtomicU8; BUCKETS as usize]);

// SAFETY: atomics only.
unsafe impl Shared for Table {}

/// All owners' tables.
pub(crate) fn map(fd: impl AsFd) -> io::Result<MappedArray<Table>> {
    MappedArray::map(fd, usize::from(Owner::MAXIMUM))
}

/// Sends all flows of `owner` to the first socket of their queue.
pub(crate) fn clear(tables: &MappedArray<Table>, owner: Owner) {
    for bucket in &tables.entries()[usize::from(owner.number())].0 {
        bucket.store(0, Relaxed);
    }
}

/// An owner's view of which of its sockets on a queue (see [`Steering::set_ring`](crate::Steering::set_ring)) gets which
/// TCP flow, so that a frame wakes the thread that waits for it and no other. Flows are told apart by a hash: those of one
/// *bucket* go to the same socket. Needs no privileges.
pub struct FlowRings {
    tables: MappedArray<Table>,
    owners: Owners,
    owner: Owner,
}

impl FlowRings {
    /// Maps the tables behind `rings` and `owners` (see [`Steering::flow_ring_map`](crate::Steering::flow_ring_map) and
    /// [`Steering::owner_map`](crate::Steering::owner_map)) for `owner`, and sends all its flows to the first socket.
    pub fn map(rings: impl AsFd, owners: impl AsFd, owner: Owner) -> io::Result<FlowRings> {
        let rings = FlowRings {
            tables: map(rings)?,
            owners: Owners::map(owners)?,
            owner,
        };
        rings.owners.set_threaded(owner, false);
        clear(&rings.tables, owner);
        Ok(rings)
    }

    /// The table counts from now on. Before, the kernel doesn't spend time on it.
    pub fn begin(&self) {
        self.owners.set_threaded(self.owner, true);
    }

    /// The bucket of a TCP flow, less than [`BUCKETS`].
    pub fn bucket(flow: &FourTuple) -> u16 {
        (hash(flow) % u64::from(BUCKETS)) as u16
    }

    /// The flows of `bucket` go to socket `ring` of the queue that they come by from now on, or to the first if the
    /// queue has no such socket. Frames on their way may still go where they went before.
    pub fn steer(&self, bucket: u16, ring: u8) {
        let table = &self.tables.entries()[usize::from(self.owner.number())].0;
        table[usize::from(bucket % BUCKETS)].store(ring, Release);
    }
}

/// As `hash_of` of `bpf/steer.bpf.c`, of a TCP flow.
pub(crate) fn hash(flow: &FourTuple) -> u64 {
    let [remote_port, local_port] =
        [flow.remote, flow.local].map(|end| u64::from(end.port.to_be()));
    let addresses = [flow.remote, flow.local].map(|end| words(end.addr));
    let addresses = addresses.as_flattened().iter();
    let hash = mix(TCP, remote_port << 16 | local_port);
    let hash = addresses.fold(hash, |hash, word| mix(hash, *word));
    mix(hash, 0)
}

/// As `mix` of `bpf/steer.bpf.c`.
fn mix(hash: u64, word: u64) -> u64 {
    let hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ (hash >> 32)
}

/// As `struct address` of `bpf/steer.bpf.c`.
fn words(address: IpAddr) -> [u64; 2] {
    let octets = match address {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    };
    let both = u128::from_ne_bytes(octets);
    let first = both as u64;
    let second = (both >> 64) as u64;
    match cfg!(target_endian = "little") {
        true => [first, second],
        false => [second, first],
    }
}
