//! Stations on the link and their addresses: one table for ARP and neighbour discovery, with the
//! states of RFC 4861 section 7.3.2.

use crate::held::Held;
use core::net::IpAddr;
use core::ops::RangeInclusive;
use foldhash::fast::FixedState;
use skink_time::{Duration, Instant};
use skink_wire::MacAddr;
use std::collections::{HashMap, VecDeque};

/// Most neighbours known; see [`Neighbours::evict`].
const CAPACITY: usize = 1024;
/// Entries of a full table that may be unresolved before they make room for each other.
const UNRESOLVED: usize = CAPACITY / 2;
/// Most bytes that wait for one neighbour ([`Held::cost`]): three of the largest packets, or the first of each of a thousand connections.
const HELD_BYTES: usize = 192 * 1024;
/// Most that wait for all neighbours together.
const HELD_BYTES_IN_ALL: usize = 4 * 1024 * 1024;

/// `RETRANS_TIMER`, `MAX_MULTICAST_SOLICIT`, `MAX_UNICAST_SOLICIT`, `DELAY_FIRST_PROBE_TIME` and
/// `REACHABLE_TIME` (RFC 4861 section 10).
const RETRANSMIT: Duration = Duration::from_secs(1);
const SOLICITATIONS: u8 = 3;
/// When to ask again if the link had no room for the question, and how often that doesn't count.
const UNSENT: Duration = Duration::from_millis(100);
const UNSENT_MOST: u8 = 50;
const DELAY: Duration = Duration::from_secs(5);
const REACHABLE_MS: u32 = 30_000;
/// What is believed of a router that says otherwise, in milliseconds: the most that RFC 4861 section 6.2.1 lets it say,
/// and no less than makes sense. Linux has such bounds, too.
const RETRANSMIT_BOUNDS: RangeInclusive<u32> = 100..=10_000;
const REACHABLE_BOUNDS: RangeInclusive<u32> = 1_000..=3_600_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// Asked for, not yet answered.
    Incomplete { sent: u8, next: Instant },
    /// Known to answer, for now.
    Reachable { until: Instant },
    /// Probably still there; nobody has asked since.
    Stale,
    /// In use while stale: will be asked unless something is heard before.
    Delay { until: Instant },
    /// Being asked whether it is still there.
    Probe { sent: u8, next: Instant },
}

impl State {
    fn timer(self) -> Option<Instant> {
        match self {
            State::Incomplete { next, .. } | State::Probe { next, .. } => Some(next),
            State::Delay { until } => Some(until),
            // That time has run out is noticed when the neighbour is next used.
            State::Reachable { .. } | State::Stale => None,
        }
    }

    /// Whether it answered lately, or is being asked whether it still does.
    fn is_in_use(self, now: Instant) -> bool {
        match self {
            State::Reachable { until } => now < until,
            State::Delay { .. } | State::Probe { .. } => true,
            State::Incomplete { .. } | State::Stale => false,
        }
    }
}

struct Neighbour {
    address: IpAddr,
    /// Meaningless while incomplete.
    mac: MacAddr,
    state: State,
    /// When a packet was last sent to it; zero if never.
    used: Instant,
    /// How often the link had no room for a question, since it was last heard.
    unsent: u8,
    held: VecDeque<Held>,
    held_bytes: usize,
}

/// What a neighbour said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Heard {
    /// Its link-layer address, unless it told none.
    pub(crate) mac: Option<MacAddr>,
    /// It answered us, so it can be reached.
    pub(crate) solicited: bool,
    /// This replaces what is known.
    pub(crate) replace: bool,
    /// It is worth remembering even if nobody asked.
    pub(crate) create: bool,
}

/// What a timer leads to.
pub(crate) enum Due {
    /// Ask `address`, at `mac` if that is known.
    Solicit {
        address: IpAddr,
        mac: Option<MacAddr>,
    },
    /// `address` doesn't answer; these packets can't be sent there.
    Failed {
        address: IpAddr,
        held: VecDeque<Held>,
    },
}

/// The table.
pub(crate) struct Neighbours {
    slots: Vec<Option<Neighbour>>,
    free: Vec<u32>,
    index: HashMap<IpAddr, u32, FixedState>,
    /// No timer runs out before this.
    first: Option<Instant>,
    held_bytes: usize,
    /// Of IPv6, whose routers may say otherwise.
    times_v6: Times,
    times_v4: Times,
    /// Chosen at random.
    seed: u32,
}

/// Between queries, and after an answer.
#[derive(Clone, Copy)]
struct Times {
    retransmit: Duration,
    reachable: Duration,
}

/// How long a neighbour is taken to be there after an answer: uniformly between half and one and a half times
/// the base (RFC 4861 section 6.3.4).
fn reachable(base_ms: u32, seed: u32) -> Duration {
    let base = u64::from(base_ms);
    Duration::from_millis(base / 2 + u64::from(seed) % base.max(1))
}

impl Neighbours {
    pub(crate) fn new(seed: u64) -> Neighbours {
        let hashes = FixedState::with_seed(seed);
        let seed = (seed >> 32) as u32;
        let times = Times {
            retransmit: RETRANSMIT,
            reachable: reachable(REACHABLE_MS, seed),
        };
        Neighbours {
            slots: Vec::new(),
            free: Vec::new(),
            index: HashMap::with_hasher(hashes),
            first: None,
            held_bytes: 0,
            times_v6: times,
            times_v4: times,
            seed,
        }
    }

    fn times(&self, address: IpAddr) -> Times {
        match address {
            IpAddr::V4(_) => self.times_v4,
            IpAddr::V6(_) => self.times_v6,
        }
    }

    /// A router tells how long neighbours are reachable, and how often they are asked; 0 where it doesn't.
    pub(crate) fn advertised(&mut self, reachable_ms: u32, retransmit_ms: u32) {
        if REACHABLE_BOUNDS.contains(&reachable_ms) {
            self.times_v6.reachable = reachable(reachable_ms, self.seed);
        }
        if RETRANSMIT_BOUNDS.contains(&retransmit_ms) {
            self.times_v6.retransmit = Duration::from_millis(u64::from(retransmit_ms));
        }
    }

    pub(crate) fn find(&self, address: IpAddr) -> Option<u32> {
        self.index.get(&address).copied()
    }

    fn get_mut(&mut self, slot: u32) -> Option<&mut Neighbour> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    #[cfg(test)]
    pub(crate) fn state(&self, address: IpAddr) -> Option<State> {
        let slot = self.find(address)? as usize;
        Some(self.slots.get(slot)?.as_ref()?.state)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// The link-layer address for a packet that is about to be sent to the neighbour in `slot`, if
    /// it is `address` and resolved.
    #[inline]
    pub(crate) fn resolve(&mut self, now: Instant, slot: u32, address: IpAddr) -> Option<MacAddr> {
        let neighbour = self.slots.get_mut(slot as usize)?.as_mut()?;
        if neighbour.address != address {
            return None;
        }
        neighbour.used = now;
        let mac = neighbour.mac;
        match neighbour.state {
            State::Reachable { until } if now < until => {}
            State::Incomplete { .. } => return None,
            State::Delay { .. } | State::Probe { .. } => {}
            State::Reachable { .. } | State::Stale => {
                let until = now + DELAY;
                neighbour.state = State::Delay { until };
                self.arm(until);
            }
        }
        Some(mac)
    }

    fn arm(&mut self, at: Instant) {
        self.first = Some(self.first.map_or(at, |first| first.min(at)));
    }

    /// A new entry that is to be asked for at once; answers its slot, and packets that waited for
    /// an entry that had to make room.
    pub(crate) fn begin(&mut self, now: Instant, address: IpAddr) -> (u32, VecDeque<Held>) {
        let state = State::Incomplete { sent: 0, next: now };
        let lost = match self.index.len() >= CAPACITY {
            true => self.evict(now, true).unwrap_or_default(),
            false => VecDeque::new(),
        };
        let slot = self.insert(address, MacAddr::UNSPECIFIED, state, now);
        self.arm(now);
        (slot, lost)
    }

    /// Adds an entry; there is room for it.
    fn insert(&mut self, address: IpAddr, mac: MacAddr, state: State, used: Instant) -> u32 {
        let neighbour = Neighbour {
            address,
            mac,
            state,
            used,
            unsent: 0,
            held: VecDeque::new(),
            held_bytes: 0,
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            // There are at most `CAPACITY`.
            (self.slots.len() - 1) as u32
        });
        if let Some(place) = self.slots.get_mut(slot as usize) {
            *place = Some(neighbour);
        }
        self.index.insert(address, slot);
        slot
    }

    /// Removes a neighbour and answers the packets that waited for it. Those that are in use go last; of
    /// others the one that was used least recently goes. Unresolved ones, for which packets wait, go before
    /// resolved ones if they are many, as when addresses are scanned that nobody has (RFC 6583 section 7.1), else
    /// after them. If one that nobody asked for needs the place, only a resolved one that isn't in use goes.
    fn evict(&mut self, now: Instant, is_asked_for: bool) -> Option<VecDeque<Held>> {
        let is_incomplete = |known: &Neighbour| matches!(known.state, State::Incomplete { .. });
        let known = self.slots.iter().flatten();
        let are_many = known.filter(|known| is_incomplete(known)).count() >= UNRESOLVED;
        let rank = |(slot, place): (u32, &Option<Neighbour>)| {
            let neighbour = place.as_ref()?;
            let class = match (is_incomplete(neighbour), neighbour.state.is_in_use(now)) {
                (true, _) if are_many => 0,
                (false, false) => 1,
                (true, _) => 2,
                (false, true) => 3,
            };
            (is_asked_for || class == 1).then_some((class, neighbour.used, slot))
        };
        let (_, _, slot) = (0u32..).zip(&self.slots).filter_map(rank).min()?;
        Some(self.remove(slot))
    }

    fn remove(&mut self, slot: u32) -> VecDeque<Held> {
        let place = self.slots.get_mut(slot as usize);
        let Some(neighbour) = place.and_then(Option::take) else {
            return VecDeque::new();
        };
        self.index.remove(&neighbour.address);
        self.free.push(slot);
        self.held_bytes -= neighbour.held_bytes;
        neighbour.held
    }

    /// Keeps a packet until `address` is resolved. The oldest make room for it (RFC 4861 section
    /// 7.2.2); answers how many packets were dropped.
    pub(crate) fn hold(&mut self, address: IpAddr, held: Held) -> u64 {
        let bytes = held.cost();
        let mut total = self.held_bytes;
        let Some(neighbour) = self.find(address).and_then(|slot| self.get_mut(slot)) else {
            return 1;
        };
        let mut dropped = 0;
        while neighbour.held_bytes + bytes > HELD_BYTES {
            let Some(oldest) = neighbour.held.pop_front() else {
                break;
            };
            neighbour.held_bytes -= oldest.cost();
            total -= oldest.cost();
            dropped += 1;
        }
        if total + bytes <= HELD_BYTES_IN_ALL {
            neighbour.held.push_back(held);
            neighbour.held_bytes += bytes;
            total += bytes;
        } else {
            dropped += 1;
        }
        self.held_bytes = total;
        dropped
    }

    /// Takes note of what `address` said. Answers the packets that waited for it, and where they go.
    pub(crate) fn heard(
        &mut self,
        now: Instant,
        address: IpAddr,
        heard: Heard,
    ) -> Option<(MacAddr, VecDeque<Held>)> {
        let fresh = match heard.solicited {
            true => State::Reachable {
                until: now + self.times(address).reachable,
            },
            false => State::Stale,
        };
        let Some(slot) = self.find(address) else {
            if let (Some(mac), true) = (heard.mac, heard.create) {
                let is_full = self.index.len() >= CAPACITY;
                if !is_full || self.evict(now, false).is_some() {
                    // Never used, so it is the first to go.
                    self.insert(address, mac, fresh, Instant::ZERO);
                }
            }
            return None;
        };
        let neighbour = self.get_mut(slot)?;
        neighbour.unsent = 0;
        if let State::Incomplete { .. } = neighbour.state {
            let mac = heard.mac?;
            neighbour.mac = mac;
            neighbour.state = fresh;
            let waiting = core::mem::take(&mut neighbour.held);
            let bytes = core::mem::take(&mut neighbour.held_bytes);
            self.held_bytes -= bytes;
            return Some((mac, waiting));
        }
        // RFC 4861 section 7.2.5.
        let differs = heard.mac.is_some_and(|mac| mac != neighbour.mac);
        if differs && !heard.replace {
            if let State::Reachable { .. } = neighbour.state {
                neighbour.state = State::Stale;
            }
        } else {
            neighbour.mac = heard.mac.unwrap_or(neighbour.mac);
            if heard.solicited || differs {
                neighbour.state = fresh;
            }
        }
        None
    }

    /// Slots in use lie below this.
    pub(crate) fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Lets the timer of the neighbour in `slot` run out, if it is time.
    pub(crate) fn expire(&mut self, now: Instant, slot: u32) -> Option<Due> {
        let address = self.slots.get(slot as usize)?.as_ref()?.address;
        let next = now + self.times(address).retransmit;
        let neighbour = self.get_mut(slot)?;
        if neighbour.state.timer().is_none_or(|timer| timer > now) {
            return None;
        }
        let mac = match neighbour.state {
            State::Incomplete { sent, .. } if sent < SOLICITATIONS => {
                let sent = sent + 1;
                neighbour.state = State::Incomplete { sent, next };
                None
            }
            State::Delay { .. } => {
                neighbour.state = State::Probe { sent: 1, next };
                Some(neighbour.mac)
            }
            State::Probe { sent, .. } if sent < SOLICITATIONS => {
                let sent = sent + 1;
                neighbour.state = State::Probe { sent, next };
                Some(neighbour.mac)
            }
            State::Incomplete { .. }
            | State::Probe { .. }
            | State::Reachable { .. }
            | State::Stale => {
                let held = self.remove(slot);
                return Some(Due::Failed { address, held });
            }
        };
        self.arm(next);
        Some(Due::Solicit { address, mac })
    }

    /// The link had no room for the question that was due: it is asked again soon, and that one doesn't count, unless the
    /// link has had none for long.
    pub(crate) fn unsent(&mut self, now: Instant, address: IpAddr) {
        let slot = self.find(address);
        let Some(neighbour) = slot.and_then(|slot| self.get_mut(slot)) else {
            return;
        };
        if neighbour.unsent < UNSENT_MOST
            && let State::Incomplete { sent, next } | State::Probe { sent, next } =
                &mut neighbour.state
        {
            neighbour.unsent += 1;
            *sent = sent.saturating_sub(1);
            *next = now + UNSENT;
            self.arm(now + UNSENT);
        }
    }

    /// What was asked last, or its answer, may be lost: it is asked again with the next poll, and doesn't
    /// count twice.
    pub(crate) fn hurry(&mut self) {
        for known in self.slots.iter_mut().flatten() {
            if let State::Incomplete { sent, next } | State::Probe { sent, next } = &mut known.state
            {
                *sent = sent.saturating_sub(1);
                *next = Instant::ZERO;
            }
        }
        self.rearm();
    }

    /// Looks anew which timer runs out first, after all that were due have been handled.
    pub(crate) fn rearm(&mut self) {
        let neighbours = self.slots.iter().flatten();
        self.first = neighbours.filter_map(|known| known.state.timer()).min();
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.first
    }
}
