use crate::Owner;
use crate::flow_rings::hash;
use crate::shared::{MappedArray, Shared};
use skink_messages::Ports;
use skink_wire::FourTuple;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use zerocopy::FromZeros;

#[cfg(test)]
mod tests;

const TCP: u8 = 6;
const UDP: u8 = 17;
/// Of a table: one for each port.
const ENTRIES: usize = 65536;
/// Behind them there is one for each block of so many, which the kernel never looks at: among its users are the owners that have been
/// in an entry of the block. So who takes an owner out needn't look at 4.5 MiB.
const BLOCK: usize = 64;
/// All of them.
pub(crate) const TABLE_ENTRIES: usize = ENTRIES + ENTRIES / BLOCK;

/// `struct port` of `bpf/steer.bpf.c`.
#[repr(C)]
pub(crate) struct Port {
    /// Owners that have a socket on this local port.
    users: AtomicU64,
    /// Owners that new flows may be given to; none counts that isn't among the users too.
    listeners: AtomicU64,
    /// Listeners that accept only while they wait.
    shown: AtomicU64,
    /// Those where somebody sleeps until a new flow comes. The kernel takes out whom it gives one.
    waiting: AtomicU64,
    /// Listeners that are given new flows only if there are no others.
    reserve: AtomicU64,
    /// Listeners that say when they wait, though they may accept at other times, too.
    tells: AtomicU64,
    /// Owners with a connection on the port, and with another one; the kernel counts those that it gives.
    serving: [AtomicU64; 2],
    /// Of TCP, and not of this port: owners that have a connection whose flow's hash, modulo [`FLOW_BUCKETS`], is this entry's number
    /// less [`FLOW_BASE`].
    flows: AtomicU64,
}

// SAFETY: atomics only.
unsafe impl Shared for Port {}
const _: () = assert!(size_of::<Port>() == 72);

/// Entries that tell of flows. More would be out of the processor's caches for each connection.
const FLOW_BUCKETS: usize = 8192;
/// Where they begin: no port there is likely to be asked of for each packet.
const FLOW_BASE: usize = 16384;

/// The tables of ports as descriptors, one for each transport.
#[derive(Debug)]
pub struct PortMaps {
    /// For whoever has TCP's sockets.
    pub tcp: OwnedFd,
    /// For whoever has UDP's.
    pub udp: OwnedFd,
}

/// Maps the table of a transport.
pub(crate) fn map(table: impl AsFd) -> io::Result<MappedArray<Port>> {
    MappedArray::map(table, TABLE_ENTRIES)
}

/// How often this owner uses a port, and listens on it.
#[derive(Clone, Copy, FromZeros)]
struct Count {
    uses: u32,
    listens: u32,
    /// Its connections there.
    flows: u32,
}

impl Count {
    /// The owner has no more connections on the port than these.
    fn show_flows(self, shared: &Port, owner: Owner) {
        for serving in shared.serving.iter().skip(self.flows as usize) {
            take_out(serving, owner);
        }
    }
}

/// One owner's view of the ports that are in use, by which the kernel steers packets to owners.
///
/// It counts its own calls and changes the shared table at the first and the last of them, each with
/// one atomic operation. The counts are private and don't outlive it: when an owner dies, the broker
/// calls [`Steering::remove_owner`](crate::Steering::remove_owner); a drop changes nothing in the
/// table, since a process that was forked off drops its copy while the parent goes on.
///
/// Exclusive use keeps others out only as they come: an owner that later asks for the same port
/// without `exclusive` gets it, and segments of the first one's connections may then go to either
/// (only flows that began with an inbound SYN are bound to an owner). So whoever binds a port that it
/// doesn't mean to share (`SO_REUSEPORT`, or a listening socket that was inherited) asks for it
/// exclusively, and answers `EADDRINUSE` if that fails.
pub struct PortTable {
    tcp: Option<Table>,
    udp: Option<Table>,
    owner: Owner,
}

/// Of one transport.
struct Table {
    shared: MappedArray<Port>,
    counts: Box<[Count]>,
    /// This owner's connections, by their flows' hash.
    flows: Vec<u32>,
}

impl Table {
    fn map(map: OwnedFd) -> io::Result<Table> {
        // Of zeros that nobody has written: page by page, as ports are used.
        let counts = <[Count]>::new_box_zeroed_with_elems(ENTRIES);
        Ok(Table {
            shared: self::map(map)?,
            counts: counts.map_err(|_| io::ErrorKind::OutOfMemory)?,
            flows: vec![0; FLOW_BUCKETS],
        })
    }
}

impl PortTable {
    /// Maps the tables of the transports that `owner`, or its process, has; see
    /// [`Steering::port_maps`](crate::Steering::port_maps). Of another one every port is free. Needs no privileges. A table's
    /// 4.5 MiB are in memory already; the private counts take pages only as ports are used.
    pub fn map(owner: Owner, tcp: Option<OwnedFd>, udp: Option<OwnedFd>) -> io::Result<PortTable> {
        Ok(PortTable {
            tcp: tcp.map(Table::map).transpose()?,
            udp: udp.map(Table::map).transpose()?,
            owner,
        })
    }

    /// Whose view it is.
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// The entries of the table and of the counts, or `None` for other protocols: those have no
    /// ports to steer by.
    fn entry(&mut self, protocol: u8, port: u16) -> Option<(&Port, &mut Count, u64)> {
        let table = match protocol {
            TCP => self.tcp.as_mut()?,
            UDP => self.udp.as_mut()?,
            _ => return None,
        };
        let (index, entries) = (usize::from(port), table.shared.entries());
        note(entries, index, self.owner);
        Some((
            entries.get(index)?,
            table.counts.get_mut(index)?,
            self.owner.bit(),
        ))
    }
}

impl Table {
    /// How many connections the owner has in a flow's bucket, and who has one there.
    fn bucket(&mut self, flow: &FourTuple, owner: Owner) -> Option<(&mut u32, &AtomicU64)> {
        let bucket = hash(flow) as usize % FLOW_BUCKETS;
        let entries = self.shared.entries();
        note(entries, FLOW_BASE + bucket, owner);
        let shared = &entries.get(FLOW_BASE + bucket)?.flows;
        Some((self.flows.get_mut(bucket)?, shared))
    }
}

impl Port {
    /// The owner doesn't say any more when it waits, nor that it had better get no new flows, nor how many connections it has.
    fn says_nothing(&self, owner: Owner) {
        let said = [&self.shown, &self.waiting, &self.reserve, &self.tells];
        for owners in said.into_iter().chain(&self.serving) {
            take_out(owners, owner);
        }
    }

    /// One of the owners in `of` that listen here, as a new flow is given: one that waits, if there is one, and no other if that is
    /// asked.
    fn give(&self, of: u64, only_waiting: bool, choice: usize) -> Option<Owner> {
        let [users, listeners, shown, waiting] =
            [&self.users, &self.listeners, &self.shown, &self.waiting]
                .map(|owners| owners.load(Relaxed));
        let mut all = users & listeners & of;
        let ready = all & !self.reserve.load(Relaxed);
        if ready != 0 {
            all = ready;
        }
        let mut candidates = waiting & all;
        if !only_waiting {
            let others = [candidates, !shown & all, all];
            candidates = others.into_iter().find(|owners| *owners != 0)?;
        }
        let members = (0..Owner::MAXIMUM).filter_map(Owner::new);
        let mut members = members.filter(|owner| candidates & owner.bit() != 0);
        let given = members.nth(choice.checked_rem(candidates.count_ones() as usize)?)?;
        take_out(&self.waiting, given);
        Some(given)
    }
}

/// One of the owners in `of` that listen on a port, for a connection there.
pub(crate) fn give(
    table: &MappedArray<Port>,
    port: u16,
    of: u64,
    only_waiting: bool,
    choice: usize,
) -> Option<Owner> {
    let port = table.entries().get(usize::from(port))?;
    port.give(of, only_waiting, choice)
}

/// Takes `owner` out of every entry of the table.
pub(crate) fn clear(table: &MappedArray<Port>, owner: Owner) {
    for (block, ports) in blocks(table, owner) {
        for port in ports {
            for owners in [&port.users, &port.listeners, &port.flows] {
                take_out(owners, owner);
            }
            port.says_nothing(owner);
        }
        take_out(&block.users, owner);
    }
}

/// An owner is about to be in an entry.
fn note(entries: &[Port], index: usize, owner: Owner) {
    if let Some(block) = entries.get(ENTRIES + index / BLOCK) {
        put_in(&block.users, owner);
    }
}

/// The blocks that `owner` has been in, with the entries of each.
fn blocks(table: &MappedArray<Port>, owner: Owner) -> impl Iterator<Item = (&Port, &[Port])> {
    let (ports, blocks) = table.entries().split_at(ENTRIES);
    let all = blocks.iter().zip(ports.chunks(BLOCK));
    all.filter(move |(block, _)| block.users.load(Relaxed) & owner.bit() != 0)
}

/// `owner` listens on no port any more.
pub(crate) fn unlisten(table: &MappedArray<Port>, owner: Owner) {
    for port in blocks(table, owner).flat_map(|(_, ports)| ports) {
        take_out(&port.listeners, owner);
        port.says_nothing(owner);
    }
}

/// `owner`, which uses the port, listens there in reserve.
pub(crate) fn listen_in_reserve(table: &MappedArray<Port>, port: u16, owner: Owner) {
    note(table.entries(), usize::from(port), owner);
    if let Some(entry) = table.entries().get(usize::from(port)) {
        put_in(&entry.reserve, owner);
        put_in(&entry.listeners, owner);
    }
}

/// Whether anybody of these owners listens on the port who isn't in reserve.
pub(crate) fn is_listened_on(table: &MappedArray<Port>, port: u16, owners: u64) -> bool {
    let entry = table.entries().get(usize::from(port));
    entry.is_some_and(|entry| {
        let ready = entry.listeners.load(Relaxed) & !entry.reserve.load(Relaxed);
        ready & owners != 0
    })
}

fn put_in(owners: &AtomicU64, owner: Owner) {
    if owners.load(Relaxed) & owner.bit() == 0 {
        owners.fetch_or(owner.bit(), AcqRel);
    }
}

fn take_out(owners: &AtomicU64, owner: Owner) {
    // Most don't have it: those stay clean in everybody's cache.
    if owners.load(Relaxed) & owner.bit() != 0 {
        owners.fetch_and(!owner.bit(), AcqRel);
    }
}

impl Ports for PortTable {
    fn use_port(&mut self, protocol: u8, port: u16, exclusive: bool) -> bool {
        let Some((shared, count, bit)) = self.entry(protocol, port) else {
            return true;
        };
        if exclusive {
            // Our own bit may be set already, by another socket on this port. Who listens in reserve does so for others: the kernel has
            // let us bind.
            let own = if count.uses > 0 { bit } else { 0 };
            let yields = shared.reserve.load(Relaxed) & shared.listeners.load(Relaxed) & !bit;
            let users = shared.users.load(Relaxed);
            let expected = users & yields | own;
            if shared
                .users
                .compare_exchange(expected, users & yields | bit, AcqRel, Acquire)
                .is_err()
            {
                return false;
            }
        } else if count.uses == 0 {
            shared.users.fetch_or(bit, AcqRel);
        }
        count.uses = count.uses.saturating_add(1);
        true
    }

    fn release_port(&mut self, protocol: u8, port: u16) {
        let Some((shared, count, bit)) = self.entry(protocol, port) else {
            return;
        };
        if count.uses == 1 {
            shared.users.fetch_and(!bit, AcqRel);
        }
        count.uses = count.uses.saturating_sub(1);
    }

    fn listen(&mut self, protocol: u8, port: u16) {
        let Some((shared, count, bit)) = self.entry(protocol, port) else {
            return;
        };
        if count.listens == 0 {
            shared.listeners.fetch_or(bit, AcqRel);
        }
        count.listens = count.listens.saturating_add(1);
    }

    fn unlisten(&mut self, protocol: u8, port: u16) {
        let owner = self.owner;
        let Some((shared, count, bit)) = self.entry(protocol, port) else {
            return;
        };
        if count.listens == 1 {
            shared.listeners.fetch_and(!bit, AcqRel);
            shared.says_nothing(owner);
        }
        count.listens = count.listens.saturating_sub(1);
    }

    fn set_waiting(&mut self, protocol: u8, port: u16, waits: bool, only_then: bool) {
        let owner = self.owner;
        let Some((shared, count, _)) = self.entry(protocol, port) else {
            return;
        };
        take_out(&shared.reserve, owner);
        // The kernel may have counted a request that never came.
        count.show_flows(shared, owner);
        if !only_then {
            take_out(&shared.shown, owner);
        }
        if !waits {
            // As a rule the kernel has taken it out already.
            take_out(&shared.waiting, owner);
        } else if count.listens > 0 {
            put_in(&shared.waiting, owner);
            put_in(&shared.tells, owner);
            if only_then {
                put_in(&shared.shown, owner);
            }
        }
    }

    fn keep_in_reserve(&mut self, protocol: u8, port: u16) {
        let owner = self.owner;
        if let Some((shared, count, _)) = self.entry(protocol, port)
            && count.listens > 0
        {
            put_in(&shared.reserve, owner);
            take_out(&shared.waiting, owner);
        }
    }

    fn others_wait(&mut self, protocol: u8, port: u16) -> bool {
        let Some((shared, _, bit)) = self.entry(protocol, port) else {
            return false;
        };
        shared.waiting.load(Relaxed) & shared.listeners.load(Relaxed) & !bit != 0
    }

    fn flow_begins(&mut self, flow: &FourTuple) {
        let (bit, owner) = (self.owner.bit(), self.owner);
        if let Some((count, owners)) = self
            .tcp
            .as_mut()
            .and_then(|table| table.bucket(flow, owner))
        {
            if *count == 0 {
                owners.fetch_or(bit, AcqRel);
            }
            *count = count.saturating_add(1);
        }
        if let Some((shared, count, _)) = self.entry(TCP, flow.local.port) {
            // Who has everything for itself needn't be told from others.
            let has_others = shared.listeners.load(Relaxed) & !bit != 0;
            if has_others && let Some(serving) = shared.serving.get(count.flows as usize) {
                put_in(serving, owner);
            }
            count.flows = count.flows.saturating_add(1);
        }
    }

    fn flow_ends(&mut self, flow: &FourTuple) {
        let (bit, owner) = (self.owner.bit(), self.owner);
        if let Some((count, owners)) = self
            .tcp
            .as_mut()
            .and_then(|table| table.bucket(flow, owner))
        {
            if *count == 1 {
                owners.fetch_and(!bit, AcqRel);
            }
            *count = count.saturating_sub(1);
        }
        if let Some((shared, count, _)) = self.entry(TCP, flow.local.port) {
            count.flows = count.flows.saturating_sub(1);
            count.show_flows(shared, owner);
        }
    }

    fn moved(&mut self, protocol: u8, port: u16) -> bool {
        let Some((shared, _, bit)) = self.entry(protocol, port) else {
            return false;
        };
        let listeners = shared.listeners.load(Relaxed);
        listeners != 0 && listeners & bit == 0
    }

    fn others_use(&mut self, protocol: u8, port: u16) -> bool {
        let Some((shared, _, bit)) = self.entry(protocol, port) else {
            return false;
        };
        shared.users.load(Relaxed) & !bit != 0
    }

    fn is_relieved(&mut self, protocol: u8, port: u16) -> bool {
        let Some((shared, _, bit)) = self.entry(protocol, port) else {
            return false;
        };
        let (listeners, reserve) = (shared.listeners.load(Relaxed), shared.reserve.load(Relaxed));
        listeners & !bit & !reserve != 0
    }

    fn others_listen(&mut self, protocol: u8, port: u16) -> bool {
        let Some((shared, _, bit)) = self.entry(protocol, port) else {
            return false;
        };
        shared.listeners.load(Relaxed) & !bit != 0
    }
}
