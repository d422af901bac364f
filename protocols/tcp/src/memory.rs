//! Bounds what the data of all sockets takes of the machine's memory, as Linux' `tcp_mem` does.
//!
//! What peers send is in receive rings until programs read it. As long as the rings take less than half of what they may, nothing is
//! done about it. From then on memory is *scarce*: programs that take more than their share offer windows as small as one that reads
//! nothing has, and what their rings keep without need is given back, again and again. Peers may still send what they were
//! offered before. When all is taken that may be, that is taken back (as by Linux's `tcp_shrink_window`), and what comes
//! in spite of it is dropped, to be sent again when there is room; at a quarter more, and at half as much again, windows are smaller still. No
//! other program hears of it, and whoever reads gets on.
//!
//! How much is taken the system knows best ([`SocketTable::taken`](skink_memory::SocketTable::taken)). It is asked again each time
//! that a part of the budget was put in.

use crate::connection::{Connection, Context};
use crate::instance::{Socket, Tcp};
use skink_memory::{Region, Ring};
use skink_messages::Counter;
use skink_time::{Duration, Instant};
use std::cell::Cell;

/// One in so many of the budget's bytes are put in until it is asked again what is taken.
const PARTS: u64 = 16;
/// While memory is scarce, the sockets are looked at so often.
const PERIOD: Duration = Duration::from_millis(250);
/// So many in a turn: the system takes about a microsecond for each ring that has nothing to give back, and some more
/// for each page.
const SLOTS_IN_A_TURN: usize = 16;
/// What a connection may have in a ring while memory is scarce, in bytes,
const LITTLE: usize = 64 << 10;
/// and from so many quarters of the budget on that are taken.
const LESS: [(u64, usize); 2] = [(6, 4 << 10), (5, 16 << 10)];
/// A program may have as much in a send ring: with less a large answer is a call for each packet.
const LEAST_SENT: usize = 16 << 10;

/// What all rings may take, and what they do.
pub(crate) struct Memory {
    budget: u64,
    /// When it was last asked.
    taken: u64,
    /// Bytes that were put in since.
    put: Cell<u64>,
    is_scarce: bool,
    /// For each region, while memory is scarce: whether its program takes more than its share.
    greedy: Vec<bool>,
    /// While they are looked at: the next slot.
    next: Option<u32>,
    /// When they are to be looked at again.
    due: Instant,
}

impl Memory {
    /// No bound.
    pub fn new() -> Memory {
        Memory {
            budget: u64::MAX,
            taken: 0,
            put: Cell::new(0),
            is_scarce: false,
            greedy: Vec::new(),
            next: None,
            due: Instant::FAR_FUTURE,
        }
    }

    /// Bytes go into a receive ring.
    #[inline]
    pub fn put(&self, bytes: usize) {
        self.put.set(self.put.get().saturating_add(bytes as u64));
    }

    fn is_to_be_asked(&self) -> bool {
        self.put.get() >= self.budget / PARTS
    }

    /// Whether memory is, for a region's program.
    #[inline]
    fn is_scarce_for(&self, region: u32) -> bool {
        self.is_scarce && self.greedy.get(region as usize) == Some(&true)
    }

    /// How many quarters of the budget are taken, if memory is scarce.
    fn quarters(&self) -> Option<u64> {
        let taken = self.taken.saturating_add(self.put.get());
        let quarter = (self.budget / 4).max(1);
        self.is_scarce.then(|| taken / quarter)
    }

    /// Whether programs take more than they may.
    #[inline]
    fn is_exhausted(&self) -> bool {
        self.quarters().is_some_and(|quarters| quarters >= 4)
    }

    /// When the sockets are to be looked at, if they are.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.is_scarce.then_some(self.due)
    }
}

impl Connection {
    /// How many bytes the peer may be ahead of the program, as far as that is a matter of memory.
    #[inline]
    pub fn memory_limit(&self, context: &Context<'_>) -> usize {
        if !context.memory.is_scarce {
            return usize::MAX;
        }
        self.scarce_limit(context)
    }

    #[cold]
    fn scarce_limit(&self, context: &Context<'_>) -> usize {
        let region = context.table.region_of(self.id.slot);
        match context.memory.quarters() {
            Some(quarters) if context.memory.is_scarce_for(region) => bound(quarters),
            _ => usize::MAX,
        }
    }

    /// How many bytes behind the tail of the receive ring have something that arrived ahead of a gap among them.
    fn ahead_bytes(&self) -> usize {
        let last = self.ahead.iter().next_back();
        last.map_or(0, |(_, end)| self.rcv_nxt.distance_to(end) as usize)
    }

    /// How many bytes there is memory for, from `offset` behind those on that the receive ring holds.
    #[inline]
    pub fn memory_room(&self, ring: &Ring<'_>, offset: usize, context: &Context<'_>) -> usize {
        match context.memory.is_exhausted() {
            true => self
                .scarce_limit(context)
                .saturating_sub(ring.len() + offset),
            false => usize::MAX,
        }
    }

    /// Whether what the peer was offered doesn't count any more: it would be dropped, and sent again and again.
    #[inline]
    pub fn takes_back(&self, context: &Context<'_>) -> bool {
        context.memory.is_exhausted() && self.scarce_limit(context) < usize::MAX
    }
}

fn bound(quarters: u64) -> usize {
    let less = LESS.into_iter().find(|(from, _)| quarters >= *from);
    less.map_or(LITTLE, |(_, bytes)| bytes)
}

impl Tcp {
    /// What the data of all sockets may take of the machine's memory, in bytes: what peers have sent, and, if the programs are
    /// [beside this](Tcp::set_beside_programs), what they send.
    pub fn set_memory(&mut self, bytes: u64) {
        self.memory.budget = bytes;
        // A predecessor may have left anything.
        self.memory.put.set(bytes);
    }

    /// How many bytes a program beside this may have in each send ring.
    #[inline]
    pub fn send_limit(&self) -> usize {
        let quarters = self.memory.quarters();
        quarters.map_or(usize::MAX, |quarters| bound(quarters).max(LEAST_SENT))
    }

    /// Once in each turn. Answers whether there is more to be done.
    #[inline]
    pub(crate) fn tend_memory(&mut self, now: Instant) -> bool {
        let is_quiet = !self.memory.is_scarce && !self.memory.is_to_be_asked();
        !is_quiet && self.tend_scarce_memory(now)
    }

    #[cold]
    fn tend_scarce_memory(&mut self, now: Instant) -> bool {
        if self.memory.next.is_none() && self.memory.is_to_be_asked() {
            self.ask_what_is_taken();
        }
        let memory = &mut self.memory;
        if !memory.is_scarce {
            memory.due = now;
            return false;
        }
        if memory.next.is_none() && now >= memory.due {
            memory.next = Some(0);
        }
        let Some(first) = memory.next else {
            return false;
        };
        let next = self.strip_some(first);
        self.memory.next = next;
        if next.is_none() {
            self.memory.due = now + PERIOD;
            self.ask_what_is_taken();
        }
        next.is_some()
    }

    /// Asks what is taken, and finds out what that means for whom.
    fn ask_what_is_taken(&mut self) {
        let of_region = |[sent, received]: [u64; 2]| match self.beside_programs {
            true => sent + received,
            false => received,
        };
        let taken = |region: &Region| of_region(region.taken());
        let memory = &mut self.memory;
        memory.put.set(0);
        memory.taken = self.table.regions().map(|(_, region)| taken(region)).sum();
        let was_scarce = memory.is_scarce;
        // Not now one and now the other.
        let bound = match was_scarce {
            true => memory.budget / 8 * 3,
            false => memory.budget / 2,
        };
        memory.is_scarce = memory.taken >= bound;
        memory.greedy.clear();
        if !memory.is_scarce {
            return;
        }
        if !was_scarce {
            self.counters.count(Counter::TcpMemoryScarce);
        }
        let count = self.table.regions().count() as u64;
        let share = bound.checked_div(count).unwrap_or(0);
        for (index, region) in self.table.regions() {
            let index = index as usize;
            memory
                .greedy
                .resize(memory.greedy.len().max(index + 1), false);
            memory.greedy[index] = taken(region) >= share;
        }
    }

    /// Gives back what rings keep without need, of some slots from `first` on. Answers where to go on, if there are more.
    fn strip_some(&mut self, first: u32) -> Option<u32> {
        let mut slots = self.table.slots_from(first);
        for slot in slots.by_ref().take(SLOTS_IN_A_TURN) {
            match self.sockets.get_mut(slot as usize) {
                Some(Socket::Connection(connection)) => {
                    let rings = [self.table.send_ring(slot), self.table.receive_ring(slot)];
                    let positions = rings.map(|ring| ring.head().wrapping_add(ring.tail()));
                    if core::mem::replace(&mut connection.stripped_at, positions) == positions {
                        continue;
                    }
                    self.table.strip_received(slot, connection.ahead_bytes());
                    if self.beside_programs {
                        self.table.strip_sent(slot);
                    }
                }
                _ if !self.slots.is_taken(slot) => self.table.strip_free(slot),
                _ => {}
            }
        }
        slots.next()
    }
}

#[cfg(test)]
mod tests;
