//! The table of flows: hash, lists by how readily they are given up, and timers.

use crate::kept::KeptFlow;
use crate::track::{Class, Key, Track};
use core::hash::BuildHasher;
use foldhash::fast::FixedState;
use skink_time::{Duration, Instant, TimerWheel};

const NIL: u32 = u32::MAX;
/// Of a flow that no rule let in.
pub(crate) const NO_RULE: u32 = u32::MAX;
/// Datagram flows of which the one silent for longest is given up. They are in the order of their
/// first answer, so the first are likely enough.
const CANDIDATES: usize = 8;
/// What part of a full table flows that begin may take before they make room for each other: one in so many.
const HALF_OPEN_PART: usize = 4;

/// One flow.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) key: Key,
    pub(crate) track: Track,
    /// The rule that let it in, if those rules are still in force.
    pub(crate) rule: u32,
    pub(crate) generation: u32,
    /// Packets and bytes, received and sent.
    pub(crate) packets: [u64; 2],
    pub(crate) bytes: [u64; 2],
    pub(crate) expires: Instant,
    /// Where it is in memory that outlives the filter.
    pub(crate) kept: Option<KeptFlow>,
    last: Instant,
    /// For when the timer is set; never after `expires` was last moved earlier.
    armed: Instant,
    class: Class,
    chain: u32,
    next: u32,
    previous: u32,
}

#[derive(Clone, Copy)]
struct List {
    first: u32,
    last: u32,
    len: usize,
}

impl List {
    const EMPTY: List = List {
        first: NIL,
        last: NIL,
        len: 0,
    };
}

/// All flows that are known. Where it is full, a new one takes the place of one that is less worth.
pub(crate) struct States {
    entries: Vec<Option<Entry>>,
    /// First entry of each hash bucket, plus one; 0 for none. Memory that was never used costs nothing.
    buckets: Vec<u32>,
    free: Vec<u32>,
    lists: [List; 4],
    wheel: TimerWheel,
    hash: FixedState,
    capacity: usize,
}

/// What became of a flow that was to be entered.
pub(crate) enum Entered {
    /// It has the place of another flow, which is told.
    Instead(Entry),
    /// It is in.
    New,
    /// There is no room, and nothing to give up.
    Full,
}

impl States {
    pub(crate) fn new(capacity: u32, seed: u64) -> States {
        let capacity = (capacity as usize).clamp(1, 1 << 24);
        States {
            entries: Vec::new(),
            buckets: vec![0; capacity.next_power_of_two()],
            free: Vec::new(),
            lists: [List::EMPTY; 4],
            wheel: TimerWheel::new(),
            hash: FixedState::with_seed(seed),
            capacity,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().flatten()
    }

    #[inline]
    fn bucket(&self, key: &Key) -> usize {
        self.hash.hash_one(key) as usize & (self.buckets.len() - 1)
    }

    #[inline]
    pub(crate) fn find(&self, key: &Key) -> Option<u32> {
        let mut at = self.buckets.get(self.bucket(key))?.wrapping_sub(1);
        while at != NIL {
            let entry = self.get(at)?;
            if entry.key == *key {
                return Some(at);
            }
            at = entry.chain;
        }
        None
    }

    #[inline]
    pub(crate) fn get(&self, at: u32) -> Option<&Entry> {
        self.entries.get(at as usize)?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, at: u32) -> Option<&mut Entry> {
        self.entries.get_mut(at as usize)?.as_mut()
    }

    /// Notes what a flow has become, and that it lives for `timeout` from now.
    #[inline]
    pub(crate) fn update(&mut self, at: u32, now: Instant, track: Track, timeout: Duration) {
        let Some(entry) = self.get_mut(at) else {
            return;
        };
        entry.track = track;
        entry.last = now;
        entry.expires = now + timeout;
        let class = track.class();
        // A timer that fires too early is set again then: cheaper than moving it for each packet.
        let is_late = entry.expires < entry.armed;
        let is_moved = class != entry.class;
        if is_late {
            entry.armed = entry.expires;
            let deadline = entry.expires;
            self.wheel.set(at, deadline);
        }
        if is_moved {
            self.unlist(at);
            self.enlist(at, class);
        }
    }

    /// Whether a new flow needs the place of another one.
    pub(crate) fn is_full(&self) -> bool {
        self.len() >= self.capacity
    }

    /// Enters a flow that isn't known.
    pub(crate) fn insert(
        &mut self,
        now: Instant,
        key: Key,
        track: Track,
        owner: (u32, u32),
        timeout: Duration,
    ) -> Entered {
        let mut entered = Entered::New;
        if self.is_full() {
            match self.victim().and_then(|victim| self.remove(victim)) {
                Some(entry) => entered = Entered::Instead(entry),
                None => return Entered::Full,
            }
        }
        let bucket = self.bucket(&key);
        let chain = self
            .buckets
            .get(bucket)
            .map_or(NIL, |first| first.wrapping_sub(1));
        let expires = now + timeout;
        let entry = Entry {
            key,
            track,
            rule: owner.0,
            generation: owner.1,
            packets: [0; 2],
            bytes: [0; 2],
            expires,
            kept: None,
            last: now,
            armed: expires,
            class: track.class(),
            chain,
            next: NIL,
            previous: NIL,
        };
        let at = match self.free.pop() {
            Some(at) => {
                if let Some(place) = self.entries.get_mut(at as usize) {
                    *place = Some(entry);
                }
                at
            }
            None => {
                self.entries.push(Some(entry));
                // The capacity is far below 2^32.
                (self.entries.len() - 1) as u32
            }
        };
        if let Some(first) = self.buckets.get_mut(bucket) {
            *first = at + 1;
        }
        self.enlist(at, track.class());
        self.wheel.set(at, expires);
        entered
    }

    pub(crate) fn remove(&mut self, at: u32) -> Option<Entry> {
        let key = self.get(at)?.key;
        self.unchain(at, &key);
        self.unlist(at);
        self.wheel.cancel(at);
        let entry = self.entries.get_mut(at as usize)?.take();
        self.free.push(at);
        entry
    }

    /// Takes one flow whose time is over, unless `keeps` says that it lives on; `None` where there is no
    /// more of them now.
    pub(crate) fn expire(
        &mut self,
        now: Instant,
        mut keeps: impl FnMut(&Entry) -> Option<Duration>,
    ) -> Option<Entry> {
        while let Some(at) = self.wheel.pop_expired(now) {
            let Some(entry) = self.get_mut(at) else {
                continue;
            };
            if entry.expires <= now {
                match keeps(entry) {
                    Some(timeout) => entry.expires = now + timeout,
                    None => return self.remove(at),
                }
            }
            entry.armed = entry.expires;
            let deadline = entry.expires;
            self.wheel.set(at, deadline);
        }
        None
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.wheel.next_deadline()
    }

    /// The flow to give up for a new one. Handshakes have a part of the table to themselves: a flood of them has no more, and
    /// flows that last keep none from beginning.
    fn victim(&self) -> Option<u32> {
        let [half_open, closing, datagram, _] = self.lists;
        if half_open.len >= (self.capacity / HALF_OPEN_PART).max(1) {
            return Some(half_open.first);
        }
        let lasting = Some(closing.first).filter(|first| *first != NIL);
        let lasting = lasting.or_else(|| self.most_silent(datagram));
        lasting.or(Some(half_open.first).filter(|first| *first != NIL))
    }

    /// Of the first flows of a list the one that is silent for longest.
    fn most_silent(&self, list: List) -> Option<u32> {
        let mut best: Option<(Instant, u32)> = None;
        let mut at = list.first;
        for _ in 0..CANDIDATES {
            let Some(entry) = self.get(at) else {
                break;
            };
            if best.is_none_or(|(last, _)| entry.last < last) {
                best = Some((entry.last, at));
            }
            at = entry.next;
        }
        best.map(|(_, at)| at)
    }

    fn unchain(&mut self, at: u32, key: &Key) {
        let Some(after) = self.get(at).map(|entry| entry.chain) else {
            return;
        };
        let bucket = self.bucket(key);
        let Some(first) = self.buckets.get_mut(bucket) else {
            return;
        };
        if *first == at + 1 {
            *first = after.wrapping_add(1);
            return;
        }
        let mut before = first.wrapping_sub(1);
        while let Some(entry) = self.get_mut(before) {
            if entry.chain == at {
                entry.chain = after;
                return;
            }
            before = entry.chain;
        }
    }

    fn list(&mut self, class: Class) -> &mut List {
        let [half_open, closing, datagram, established] = &mut self.lists;
        match class {
            Class::HalfOpen => half_open,
            Class::Closing => closing,
            Class::Datagram => datagram,
            Class::Established => established,
        }
    }

    fn enlist(&mut self, at: u32, class: Class) {
        let last = self.list(class).last;
        if let Some(entry) = self.get_mut(at) {
            entry.class = class;
            entry.previous = last;
            entry.next = NIL;
        }
        match self.get_mut(last) {
            Some(entry) => entry.next = at,
            None => self.list(class).first = at,
        }
        let list = self.list(class);
        list.last = at;
        list.len += 1;
    }

    fn unlist(&mut self, at: u32) {
        let Some((class, previous, next)) = self
            .get(at)
            .map(|entry| (entry.class, entry.previous, entry.next))
        else {
            return;
        };
        match self.get_mut(previous) {
            Some(entry) => entry.next = next,
            None => self.list(class).first = next,
        }
        match self.get_mut(next) {
            Some(entry) => entry.previous = previous,
            None => self.list(class).last = previous,
        }
        self.list(class).len -= 1;
    }
}
