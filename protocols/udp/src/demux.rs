//! Which socket a datagram is for, by hash tables.

use crate::socket::{Address, unspecified};
use core::hash::BuildHasher;
use foldhash::fast::FixedState;
use skink_wire::{Endpoint, FourTuple};
use std::collections::HashMap;

/// Slots of the sockets that share an address; most often one.
type Members = Vec<u32>;

/// The demultiplexer. A datagram is first sought by both its ends, then by ours, then by our port.
pub(crate) struct Demux {
    connected: HashMap<FourTuple, Members, FixedState>,
    bound: HashMap<Endpoint, Members, FixedState>,
    /// All sockets on a port, however bound, of both families.
    ports: HashMap<u16, Members, FixedState>,
    hash: FixedState,
}

impl Demux {
    pub(crate) fn new(seed: u64) -> Demux {
        let hash = FixedState::with_seed(seed);
        Demux {
            connected: HashMap::with_hasher(hash.clone()),
            bound: HashMap::with_hasher(hash.clone()),
            ports: HashMap::with_hasher(hash.clone()),
            hash,
        }
    }

    pub(crate) fn insert(&mut self, slot: u32, address: &Address) {
        if let Some(local) = address.local() {
            self.ports.entry(local.port).or_default().push(slot);
        }
        match *address {
            Address::Unbound => {}
            Address::Bound(local) => self.bound.entry(local).or_default().push(slot),
            Address::Connected { local, remote, .. } => {
                let tuple = FourTuple::new(local, remote);
                self.connected.entry(tuple).or_default().push(slot);
            }
        }
    }

    pub(crate) fn remove(&mut self, slot: u32, address: &Address) {
        if let Some(local) = address.local() {
            forget(&mut self.ports, &local.port, slot);
        }
        match *address {
            Address::Unbound => {}
            Address::Bound(local) => forget(&mut self.bound, &local, slot),
            Address::Connected { local, remote, .. } => {
                forget(&mut self.connected, &FourTuple::new(local, remote), slot);
            }
        }
    }

    /// The sockets whose port is `port`.
    pub(crate) fn on_port(&self, port: u16) -> &[u32] {
        members(&self.ports, &port)
    }

    /// The sockets connected so.
    pub(crate) fn connected(&self, tuple: &FourTuple) -> &[u32] {
        members(&self.connected, tuple)
    }

    /// The socket that a datagram with these ends is for. Several that share an address share the
    /// flows: one flow always goes to the same one.
    #[inline]
    pub(crate) fn find(&self, tuple: &FourTuple) -> Option<u32> {
        let any = Endpoint::new(unspecified(tuple.local.addr), tuple.local.port);
        let candidates = match self.connected(tuple) {
            [] => match members(&self.bound, &tuple.local) {
                [] => members(&self.bound, &any),
                exact => exact,
            },
            connected => connected,
        };
        match candidates {
            [] => None,
            [one] => Some(*one),
            several => {
                let at = self.hash.hash_one(tuple) % several.len() as u64;
                several.get(at as usize).copied()
            }
        }
    }

    /// The `index`th of the sockets that a datagram to many (broadcast or a group) is for: those
    /// bound to the group, if they aren't connected to another sender, and those bound to all addresses.
    pub(crate) fn nth_of_many(&self, tuple: &FourTuple, index: usize) -> Option<u32> {
        let any = Endpoint::new(unspecified(tuple.local.addr), tuple.local.port);
        let connected = self.connected(tuple).iter();
        let bound = members(&self.bound, &tuple.local).iter();
        let all = connected.chain(bound).chain(members(&self.bound, &any));
        all.copied().nth(index)
    }
}

fn members<'a, Key: Eq + core::hash::Hash>(
    map: &'a HashMap<Key, Members, FixedState>,
    key: &Key,
) -> &'a [u32] {
    map.get(key).map_or(&[], Vec::as_slice)
}

fn forget<Key: Eq + core::hash::Hash>(
    map: &mut HashMap<Key, Members, FixedState>,
    key: &Key,
    slot: u32,
) {
    if let Some(members) = map.get_mut(key) {
        members.retain(|member| *member != slot);
        if members.is_empty() {
            map.remove(key);
        }
    }
}
