use core::hash::BuildHasher;
use core::net::IpAddr;
use foldhash::fast::FixedState;
use skink_wire::{Endpoint, FourTuple};
use std::collections::HashMap;

/// Where the segments of a flow belong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// A connection, by its slot.
    Connection(u32),
    /// A finished connection, by its index among the waiting ones.
    TimeWait(u32),
}

/// Finds the owner of a segment in constant time: first the connection by both ends, then a
/// listener by the local end, first with its address, then with any.
///
/// The hash is keyed, so that a peer can't choose ports that collide.
pub struct Demux {
    flows: HashMap<FourTuple, Place, FixedState>,
    listeners: HashMap<Listening, Vec<u32>, FixedState>,
    state: FixedState,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Listening {
    /// An unspecified address stands for all of ours of its family.
    addr: IpAddr,
    port: u16,
}

impl Demux {
    pub fn new(seed: u64) -> Demux {
        let state = FixedState::with_seed(seed);
        Demux {
            flows: HashMap::with_hasher(state.clone()),
            listeners: HashMap::with_hasher(state.clone()),
            state,
        }
    }

    #[inline]
    pub fn flow(&self, tuple: &FourTuple) -> Option<Place> {
        self.flows.get(tuple).copied()
    }

    pub fn insert(&mut self, tuple: FourTuple, place: Place) {
        self.flows.insert(tuple, place);
    }

    /// Forgets the flow if it (still) leads to `place`.
    pub fn remove(&mut self, tuple: &FourTuple, place: Place) {
        if self.flow(tuple) == Some(place) {
            self.flows.remove(tuple);
        }
    }

    /// The listener for a new flow; several on one end (`SO_REUSEPORT`) share by the flow's hash.
    pub fn listener(&self, tuple: &FourTuple) -> Option<u32> {
        let Endpoint { addr, port } = tuple.local;
        let exact = self.listeners.get(&Listening { addr, port });
        let any = Listening {
            addr: unspecified_like(addr),
            port,
        };
        let slots = exact.or_else(|| self.listeners.get(&any))?;
        let index = self.state.hash_one(tuple) as usize % slots.len().max(1);
        slots.get(index).copied()
    }

    /// The listeners on exactly this end.
    pub fn listeners_on(&self, local: Endpoint) -> &[u32] {
        let Endpoint { addr, port } = local;
        let slots = self.listeners.get(&Listening { addr, port });
        slots.map_or(&[], Vec::as_slice)
    }

    pub fn add_listener(&mut self, local: Endpoint, slot: u32) {
        let Endpoint { addr, port } = local;
        let slots = self.listeners.entry(Listening { addr, port });
        slots.or_default().push(slot);
    }

    pub fn remove_listener(&mut self, local: Endpoint, slot: u32) {
        let Endpoint { addr, port } = local;
        let key = Listening { addr, port };
        if let Some(slots) = self.listeners.get_mut(&key) {
            slots.retain(|other| *other != slot);
            if slots.is_empty() {
                self.listeners.remove(&key);
            }
        }
    }
}

/// `0.0.0.0` or `::`, of the family of `addr`.
pub fn unspecified_like(addr: IpAddr) -> IpAddr {
    match addr {
        IpAddr::V4(_) => IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(core::net::Ipv6Addr::UNSPECIFIED),
    }
}
