use crate::Instant;

/// Ticks are 2^20 ns, a little over a millisecond.
const TICK_SHIFT: u32 = 20;
const SLOT_BITS: u32 = 8;
const SLOTS: usize = 1 << SLOT_BITS;
const LEVELS: usize = 4;
/// Deadlines further away than the wheel's span (about 52 days) fire at its end.
const SPAN_TICKS: u64 = 1 << (SLOT_BITS * LEVELS as u32);
const NIL: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Node {
    next: u32,
    previous: u32,
    tick: u64,
    /// `level * SLOTS + slot`, or `NIL` while not armed.
    place: u32,
}

const IDLE: Node = Node {
    next: NIL,
    previous: NIL,
    tick: 0,
    place: NIL,
};

/// A hierarchical timer wheel (Varghese and Lauck, 1987): at most one deadline for each key, with
/// constant-time set and cancel.
///
/// Keys are small dense integers such as record slots. A deadline is rounded up to the next tick
/// (about 1 ms), so a timer never fires early.
pub struct TimerWheel {
    heads: Vec<u32>,
    /// One bit a slot: is its list non-empty?
    occupied: [[u64; SLOTS / 64]; LEVELS],
    nodes: Vec<Node>,
    /// All ticks up to and including this one have been handled.
    current: u64,
    /// No slot that is occupied begins before this tick, so that until then nobody need look.
    quiet_until: u64,
    armed: usize,
}

impl Default for TimerWheel {
    fn default() -> Self {
        Self::new()
    }
}

impl TimerWheel {
    /// An empty wheel that starts at [`Instant::ZERO`].
    pub fn new() -> TimerWheel {
        TimerWheel {
            heads: vec![NIL; SLOTS * LEVELS],
            occupied: [[0; SLOTS / 64]; LEVELS],
            nodes: Vec::new(),
            current: 0,
            quiet_until: 0,
            armed: 0,
        }
    }

    /// Arms `key` for `deadline`, in place of what it was armed for.
    pub fn set(&mut self, key: u32, deadline: Instant) {
        self.cancel(key);
        let index = key as usize;
        if index >= self.nodes.len() {
            self.nodes.resize(index + 1, IDLE);
        }
        let tick = (deadline.as_nanos() >> TICK_SHIFT).saturating_add(1);
        let tick = tick.clamp(self.current + 1, self.current + SPAN_TICKS - 1);
        self.insert(key, tick);
    }

    /// Disarms `key`; nothing happens if it isn't armed.
    pub fn cancel(&mut self, key: u32) {
        if self.is_armed(key) {
            self.unlink(key);
            self.armed -= 1;
        }
    }

    /// Whether `key` waits for a deadline.
    pub fn is_armed(&self, key: u32) -> bool {
        self.nodes
            .get(key as usize)
            .is_some_and(|node| node.place != NIL)
    }

    /// A time before which no timer fires; `None` if none is armed. It may be earlier than the
    /// first deadline (where a coarser slot must be opened first), never later.
    pub fn next_deadline(&self) -> Option<Instant> {
        let (_, _, tick) = self.next_slot()?;
        Some(Instant::from_nanos(tick << TICK_SHIFT))
    }

    /// Takes one key whose deadline has passed. Call until it answers `None`.
    pub fn pop_expired(&mut self, now: Instant) -> Option<u32> {
        let now_tick = now.as_nanos() >> TICK_SHIFT;
        while now_tick >= self.quiet_until {
            let Some((level, slot, tick)) = self.next_slot() else {
                self.quiet_until = u64::MAX;
                break;
            };
            if tick > now_tick {
                self.quiet_until = tick;
                break;
            }
            let place = level * SLOTS + slot;
            let key = self.heads[place];
            if level == 0 {
                // `current` stays just before the slot until its list is empty.
                self.current = tick - 1;
                self.unlink(key);
                self.armed -= 1;
                return Some(key);
            }
            self.current = tick - 1;
            self.cascade(place, tick);
        }
        self.current = self.current.max(now_tick);
        None
    }

    /// Spreads a coarse slot that begins at `start` over the finer levels.
    fn cascade(&mut self, place: usize, start: u64) {
        let mut key = self.heads[place];
        self.heads[place] = NIL;
        self.mark(place, false);
        while key != NIL {
            let node = self.nodes[key as usize];
            self.nodes[key as usize].place = NIL;
            self.armed -= 1;
            self.insert_from(key, node.tick.max(start), start);
            key = node.next;
        }
    }

    fn insert(&mut self, key: u32, tick: u64) {
        self.insert_from(key, tick, self.current + 1);
    }

    /// Links `key` into the level at which `tick` and the first unhandled tick differ.
    fn insert_from(&mut self, key: u32, tick: u64, first: u64) {
        let differing = 63 - ((tick ^ first) | 1).leading_zeros();
        let level = ((differing / SLOT_BITS) as usize).min(LEVELS - 1);
        let slot = (tick >> (SLOT_BITS * level as u32)) as usize % SLOTS;
        let place = level * SLOTS + slot;
        let shift = SLOT_BITS * level as u32;
        self.quiet_until = self.quiet_until.min(tick >> shift << shift);
        let head = self.heads[place];
        self.nodes[key as usize] = Node {
            next: head,
            previous: NIL,
            tick,
            place: place as u32,
        };
        if head != NIL {
            self.nodes[head as usize].previous = key;
        }
        self.heads[place] = key;
        self.mark(place, true);
        self.armed += 1;
    }

    fn unlink(&mut self, key: u32) {
        let node = self.nodes[key as usize];
        let place = node.place as usize;
        if node.previous == NIL {
            self.heads[place] = node.next;
        } else {
            self.nodes[node.previous as usize].next = node.next;
        }
        if node.next != NIL {
            self.nodes[node.next as usize].previous = node.previous;
        }
        if self.heads[place] == NIL {
            self.mark(place, false);
        }
        self.nodes[key as usize] = IDLE;
    }

    fn mark(&mut self, place: usize, occupied: bool) {
        let (level, slot) = (place / SLOTS, place % SLOTS);
        let word = &mut self.occupied[level][slot / 64];
        if occupied {
            *word |= 1 << (slot % 64);
        } else {
            *word &= !(1 << (slot % 64));
        }
    }

    /// The slot that must be handled first: its level, its index, and the tick at which it begins.
    fn next_slot(&self) -> Option<(usize, usize, u64)> {
        if self.armed == 0 {
            return None;
        }
        let first = self.current + 1;
        let mut best: Option<(usize, usize, u64)> = None;
        for level in 0..LEVELS {
            let shift = SLOT_BITS * level as u32;
            let from = (first >> shift) as usize % SLOTS;
            let Some(distance) = self.distance_to_occupied(level, from) else {
                continue;
            };
            let slot_number = (first >> shift) + distance as u64;
            let tick = (slot_number << shift).max(first);
            // A coarse slot that begins together with a fine one is opened first.
            if best.is_none_or(|(_, _, least)| tick <= least) {
                best = Some((level, (from + distance) % SLOTS, tick));
            }
        }
        best
    }

    fn distance_to_occupied(&self, level: usize, from: usize) -> Option<usize> {
        let words = &self.occupied[level];
        let (start_word, start_bit) = (from / 64, from % 64);
        for step in 0..=words.len() {
            let index = (start_word + step) % words.len();
            let mut word = words[index];
            if step == 0 {
                word &= u64::MAX << start_bit;
            } else if step == words.len() {
                word &= !(u64::MAX << start_bit);
            }
            if word != 0 {
                let slot = index * 64 + word.trailing_zeros() as usize;
                return Some((slot + SLOTS - from) % SLOTS);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
