use core::hash::BuildHasher;
use core::net::IpAddr;
use core::time::Duration;
use foldhash::fast::FixedState;
use skink_time::Instant;
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
    listeners: HashMap<Listening, Listeners, FixedState>,
    /// Sockets that rest on an end.
    resting: HashMap<Listening, Resting, FixedState>,
    /// Ends on which the last listener was closed a moment ago, and when.
    left: Vec<(Listening, Instant)>,
    /// See [`Demux::take_changed`].
    changed: bool,
    state: FixedState,
}

/// For how long it is known that there was a listener on an end: a request that comes just after it was closed comes
/// again after one second (RFC 6298), and after three.
const LEFT_FOR: Duration = Duration::from_secs(4);
/// How many such ends are known at the most: whoever leaves more at once has the oldest ones' peers refused.
const LEFT: usize = 64;

/// How many listeners on one end are asked for a new flow.
const ASKED: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Listening {
    /// An unspecified address stands for all of ours of its family.
    addr: IpAddr,
    port: u16,
}

/// Those who listen on one end.
#[derive(Default)]
struct Listeners {
    in_use: Vec<u32>,
    /// Who gets what comes if there are no others ([`ConnectionOption::Reserve`](skink_messages::ConnectionOption)). A server may
    /// have thousands, one in each child.
    reserve: Vec<u32>,
}

impl Listeners {
    fn count(&self) -> usize {
        self.in_use.len() + self.reserve.len()
    }

    fn add(&mut self, slot: u32, reserve: bool) {
        match reserve {
            true => self.reserve.push(slot),
            false => self.in_use.push(slot),
        }
    }

    fn remove(&mut self, slot: u32) {
        for slots in [&mut self.in_use, &mut self.reserve] {
            slots.retain(|other| *other != slot);
        }
    }

    /// Some of those in reserve: always the same, so that what waits there is found.
    fn some_in_reserve(&self) -> impl Iterator<Item = u32> {
        self.reserve.iter().copied().take(ASKED)
    }
}

/// Sockets that rest on one end.
#[derive(Clone, Copy, Default)]
struct Resting {
    sockets: u32,
    /// Somebody has listened there since the first of them began.
    heard: bool,
}

impl Demux {
    pub fn new(seed: u64) -> Demux {
        let state = FixedState::with_seed(seed);
        Demux {
            flows: HashMap::with_hasher(state.clone()),
            listeners: HashMap::with_hasher(state.clone()),
            resting: HashMap::with_hasher(state.clone()),
            left: Vec::new(),
            changed: false,
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

    /// Forgets the flow if it (still) leads to `place`; answers whether it did.
    pub fn remove(&mut self, tuple: &FourTuple, place: Place) -> bool {
        let leads = self.flow(tuple) == Some(place);
        if leads {
            self.flows.remove(tuple);
        }
        leads
    }

    /// The listener for a new flow. Of several on one end it is one with the least `load`, by the flow's hash if that is several, as far as
    /// they are `willing`, in the first sense or else in a later one; if none is, one that isn't. If all are in reserve, one that is willing
    /// in the last sense has all flows.
    pub fn listener(
        &self,
        tuple: &FourTuple,
        willing: [&dyn Fn(u32) -> bool; 3],
        load: &dyn Fn(u32) -> usize,
    ) -> Option<u32> {
        let Endpoint { addr, port } = tuple.local;
        let exact = self.listeners.get(&Listening { addr, port });
        let any = Listening {
            addr: unspecified_like(addr),
            port,
        };
        let listeners = exact.or_else(|| self.listeners.get(&any))?;
        match listeners.in_use.as_slice() {
            [] => {
                let [.., has_room] = willing;
                let mut reserve = listeners.some_in_reserve();
                let found = reserve.find(|slot| has_room(*slot));
                found.or_else(|| listeners.some_in_reserve().next())
            }
            [only] => Some(*only),
            slots => {
                let hash = self.state.hash_one(tuple);
                let mut all = willing
                    .into_iter()
                    .chain([&(|_| true) as &dyn Fn(u32) -> bool]);
                all.find_map(|willing| pick(slots, hash, willing, load))
            }
        }
    }

    /// A willing listener with the least `load` among those on exactly this end, one in reserve if there is no other.
    pub fn listener_on(
        &self,
        local: Endpoint,
        tuple: &FourTuple,
        willing: impl Fn(u32) -> bool,
        load: impl Fn(u32) -> usize,
    ) -> Option<u32> {
        let Endpoint { addr, port } = local;
        let listeners = self.listeners.get(&Listening { addr, port })?;
        let found = pick(
            &listeners.in_use,
            self.state.hash_one(tuple),
            &willing,
            load,
        );
        found.or_else(|| listeners.some_in_reserve().find(|slot| willing(*slot)))
    }

    /// Whether others than this listener, which may be in `reserve`, are in use on exactly its end.
    pub fn is_shared(&self, local: Endpoint, reserve: bool) -> bool {
        let Endpoint { addr, port } = local;
        let listeners = self.listeners.get(&Listening { addr, port });
        let in_use = listeners.map_or(0, |listeners| listeners.in_use.len());
        in_use > usize::from(!reserve)
    }

    /// Those who listen on exactly this end, some of them if they are many: for each `slot` others.
    pub fn listeners_beside(&self, local: Endpoint, slot: u32) -> impl Iterator<Item = u32> {
        let Endpoint { addr, port } = local;
        let listeners = self.listeners.get(&Listening { addr, port }).into_iter();
        listeners.flat_map(move |listeners| {
            asked(&listeners.in_use, slot as usize).chain(listeners.some_in_reserve())
        })
    }

    /// Whether anybody listens on exactly this end.
    pub fn has_listener(&self, local: Endpoint) -> bool {
        let Endpoint { addr, port } = local;
        self.listeners.contains_key(&Listening { addr, port })
    }

    pub fn add_listener(&mut self, local: Endpoint, slot: u32, reserve: bool) {
        let Endpoint { addr, port } = local;
        let key = Listening { addr, port };
        self.changed = true;
        self.listeners.entry(key).or_default().add(slot, reserve);
        if let Some(resting) = self.resting.get_mut(&key) {
            resting.heard = true;
        }
    }

    /// A listener comes into use, or goes out of it.
    pub fn set_reserve(&mut self, local: Endpoint, slot: u32, reserve: bool) {
        let Endpoint { addr, port } = local;
        if let Some(listeners) = self.listeners.get_mut(&Listening { addr, port }) {
            listeners.remove(slot);
            listeners.add(slot, reserve);
        }
    }

    pub fn remove_listener(&mut self, now: Instant, local: Endpoint, slot: u32) {
        let Endpoint { addr, port } = local;
        let key = Listening { addr, port };
        if let Some(listeners) = self.listeners.get_mut(&key) {
            listeners.remove(slot);
            if listeners.count() == 0 {
                self.listeners.remove(&key);
                let lately = |at| now.since(at) < LEFT_FOR;
                self.left.retain(|(end, at)| *end != key && lately(*at));
                if self.left.len() == LEFT {
                    self.left.remove(0);
                }
                self.left.push((key, now));
            }
        }
    }

    /// Whether there was a listener a moment ago that would have got what comes to this end.
    pub fn has_left(&self, now: Instant, local: Endpoint) -> bool {
        let Endpoint { addr, port } = local;
        let ends = [addr, unspecified_like(addr)].map(|addr| Listening { addr, port });
        let mut left = self.left.iter();
        left.any(|(end, at)| ends.contains(end) && now.since(*at) < LEFT_FOR)
    }

    /// A socket on this end begins to rest, or ends it.
    pub fn rest(&mut self, local: Endpoint, resting: bool) {
        let Endpoint { addr, port } = local;
        let key = Listening { addr, port };
        self.changed = true;
        let heard = self.listeners.contains_key(&key);
        let ends = self.resting.entry(key).or_default();
        ends.heard |= heard;
        ends.sockets = match resting {
            true => ends.sockets + 1,
            false => ends.sockets.saturating_sub(1),
        };
        if ends.sockets == 0 {
            self.resting.remove(&key);
        }
    }

    /// Sockets rest on this end since before a predecessor's death: somebody may have listened there.
    pub fn rest_on(&mut self, local: Endpoint) {
        self.rest(local, true);
        self.note_heard(local);
    }

    /// Somebody has listened where sockets rest.
    pub fn note_heard(&mut self, local: Endpoint) {
        let Endpoint { addr, port } = local;
        if let Some(resting) = self.resting.get_mut(&Listening { addr, port }) {
            resting.heard = true;
        }
    }

    /// Whether somebody listens or rests since the last time, or doesn't any more.
    pub fn take_changed(&mut self) -> bool {
        core::mem::take(&mut self.changed)
    }

    /// Whether a socket rests on exactly this end.
    pub fn rests_on(&self, local: Endpoint) -> bool {
        let Endpoint { addr, port } = local;
        self.resting.contains_key(&Listening { addr, port })
    }

    /// Whether a socket rests that would get what comes to this end, if it listened, as somebody has.
    pub fn is_resting(&self, local: Endpoint) -> bool {
        let Endpoint { addr, port } = local;
        let ends = [addr, unspecified_like(addr)].map(|addr| Listening { addr, port });
        let mut resting = ends.iter().filter_map(|end| self.resting.get(end));
        resting.any(|resting| resting.heard)
    }
}

/// The first of the willing ones with the least load, from a place on that depends on the hash of a flow. Of a longer list only so many
/// are asked: what a new flow costs has a bound.
fn pick(
    slots: &[u32],
    hash: u64,
    willing: impl Fn(u32) -> bool,
    load: impl Fn(u32) -> usize,
) -> Option<u32> {
    asked(slots, hash as usize)
        .filter(|slot| willing(*slot))
        .min_by_key(|slot| load(*slot))
}

/// Up to [`ASKED`] of them.
fn asked(slots: &[u32], start: usize) -> impl Iterator<Item = u32> {
    let (before, after) = slots.split_at(start % slots.len().max(1));
    after.iter().chain(before).copied().take(ASKED)
}

/// `0.0.0.0` or `::`, of the family of `addr`.
pub fn unspecified_like(addr: IpAddr) -> IpAddr {
    match addr {
        IpAddr::V4(_) => IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(core::net::Ipv6Addr::UNSPECIFIED),
    }
}
