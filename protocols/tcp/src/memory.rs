//! Bounds what the data of all sockets takes of the machine's memory, as Linux' `tcp_mem` does.
//!
//! What peers send is in receive rings until programs read it. As long as the rings take less than half of what they may, nothing is
//! done about it. From then on memory is *scarce*: programs that take more than their share offer windows as small as one that reads
//! nothing has, and what their rings keep without need is given back, again and again. Peers may still send what they were
//! offered before. When all is taken that may be, that is taken back (as by Linux's `tcp_shrink_window`), and what comes
//! in spite of it is dropped, to be sent again when there is room; at a quarter more, and at half as much again, windows are smaller still. No
//! other program hears of it, and whoever reads gets on.

use crate::budget::Budget;
use crate::connection::{Connection, Context};
use crate::instance::{Socket, Tcp};
use skink_memory::{Region, Ring};
use skink_messages::Counter;
use skink_time::{Duration, Instant};
use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;

/// While memory is scarce, the sockets are looked at so often.
const PERIOD: Duration = Duration::from_millis(250);
/// So many in a turn: the system takes about a microsecond for each ring that has nothing to give back, and some more
/// for each page.
const SLOTS_IN_A_TURN: usize = 16;

/// What all rings may take, and for whom it is too much.
pub(crate) struct Memory {
    pub budget: Budget,
    /// For each region, while memory is scarce: whether its program takes more than its share.
    greedy: Vec<bool>,
    /// Free slots that have given back their memory since it is scarce, with their generations.
    stripped: HashMap<u32, u32>,
    /// While the sockets are looked at: the next slot.
    next: Option<u32>,
    /// When they are to be looked at again.
    due: Instant,
}

impl Memory {
    /// No bound.
    pub fn new() -> Memory {
        Memory {
            budget: Budget::new(u64::MAX),
            greedy: Vec::new(),
            stripped: HashMap::new(),
            next: None,
            due: Instant::FAR_FUTURE,
        }
    }

    /// When the sockets are to be looked at, if they are.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.budget.is_scarce().then_some(self.due)
    }
}

impl Connection {
    /// How many bytes the peer may be ahead of the program, as far as that is a matter of memory.
    #[inline]
    pub fn memory_limit(&self, context: &Context<'_>) -> usize {
        match context.memory.budget.is_scarce() {
            true => self.scarce_limit(context),
            false => usize::MAX,
        }
    }

    #[cold]
    fn scarce_limit(&self, context: &Context<'_>) -> usize {
        let region = context.table.region_of(self.id.slot) as usize;
        match context.memory.greedy.get(region) {
            // Less isn't offered: see `receive_limit`.
            Some(true) => context.memory.budget.limit().max(2 * self.mss as usize),
            _ => usize::MAX,
        }
    }

    /// How many bytes behind the tail of the receive ring have something that arrived ahead of a gap among them.
    pub fn ahead_bytes(&self) -> usize {
        let last = self.ahead.iter().next_back();
        last.map_or(0, |(_, end)| self.rcv_nxt.distance_to(end) as usize)
    }

    /// How many bytes there is memory for, from `offset` behind those on that the receive ring holds.
    #[inline]
    pub fn memory_room(&self, ring: &Ring<'_>, offset: usize, context: &Context<'_>) -> usize {
        match context.memory.budget.is_exhausted() {
            true => self
                .scarce_limit(context)
                .saturating_sub(ring.len() + offset),
            false => usize::MAX,
        }
    }

    /// Whether what the peer was offered doesn't count any more: it would be dropped, and sent again and again.
    #[inline]
    pub fn takes_back(&self, context: &Context<'_>) -> bool {
        context.memory.budget.is_exhausted() && self.scarce_limit(context) < usize::MAX
    }
}

impl Tcp {
    /// What the data of all sockets may take of the machine's memory, in bytes: what peers have sent, and, if the programs are
    /// [beside this](Tcp::set_beside_programs), what they send.
    pub fn set_memory(&mut self, bytes: u64) {
        // A predecessor may have left anything: it is asked at once.
        self.memory.budget = Budget::new(bytes);
    }

    /// How many bytes a program beside this may have in each send ring.
    #[inline]
    pub fn send_limit(&self) -> usize {
        self.memory.budget.send_limit()
    }

    /// Once in each turn. Answers whether there is more to be done.
    #[inline]
    pub(crate) fn tend_memory(&mut self, now: Instant) -> bool {
        let budget = &self.memory.budget;
        (budget.is_scarce() || budget.is_to_be_asked()) && self.tend_scarce_memory(now)
    }

    #[cold]
    fn tend_scarce_memory(&mut self, now: Instant) -> bool {
        let memory = &mut self.memory;
        if memory.next.is_none() && memory.budget.is_to_be_asked() {
            self.ask_what_is_taken(now);
        }
        let memory = &mut self.memory;
        if memory.budget.is_scarce() && now >= memory.due && memory.next.is_none() {
            memory.next = Some(0);
        }
        let Some(first) = memory.next else {
            return false;
        };
        let next = self.strip_some(first);
        self.memory.next = next;
        if next.is_none() {
            self.memory.due = now + PERIOD;
            self.ask_what_is_taken(now);
        }
        next.is_some()
    }

    /// Asks what is taken, and finds out what that means for whom.
    fn ask_what_is_taken(&mut self, now: Instant) {
        let of_region = |region: &Region| match self.beside_programs {
            true => region.taken_to_send() + region.taken_to_receive(),
            false => region.taken_to_receive(),
        };
        let regions = self.table.regions();
        let taken: Vec<(u32, u64)> = regions
            .map(|(index, region)| (index, of_region(region)))
            .collect();
        let memory = &mut self.memory;
        let was_scarce = memory.budget.is_scarce();
        let share = memory.budget.scarce_from() / (taken.len() as u64).max(1);
        memory
            .budget
            .set_taken(taken.iter().map(|(_, taken)| taken).sum());
        memory.greedy.clear();
        if !memory.budget.is_scarce() {
            memory.stripped.clear();
            return;
        }
        if !was_scarce {
            self.counters.count(Counter::TcpMemoryScarce);
            memory.due = now;
        }
        let last = taken.last().map_or(0, |(index, _)| *index as usize);
        memory.greedy.resize(last + 1, false);
        for (index, taken) in taken {
            memory.greedy[index as usize] = taken >= share;
        }
    }

    /// Gives back what rings keep without need, of some slots from `first` on whose programs take more than their share. Answers where to
    /// go on, if there are more.
    fn strip_some(&mut self, first: u32) -> Option<u32> {
        let is_greedy = |slot: &u32| {
            let region = self.table.region_of(*slot) as usize;
            self.memory.greedy.get(region) == Some(&true)
        };
        let slots = self.table.slots_from(first).filter(is_greedy);
        let mut some: Vec<u32> = slots.take(SLOTS_IN_A_TURN + 1).collect();
        let next = match some.len() > SLOTS_IN_A_TURN {
            true => some.pop(),
            false => None,
        };
        for slot in some {
            self.strip(slot);
        }
        next
    }

    /// Unless nothing has changed there since the last time.
    fn strip(&mut self, slot: u32) {
        if let Some(Socket::Connection(connection)) = self.sockets.get_mut(slot as usize) {
            let ahead = connection.ahead_bytes();
            let rings = [
                (self.table.send_ring(slot), 0),
                (self.table.receive_ring(slot), ahead as u64),
            ];
            let ends = rings.map(|(ring, beyond)| {
                let end = ring.tail().wrapping_add(beyond);
                ring.head().wrapping_add(end)
            });
            if core::mem::replace(&mut connection.stripped_at, ends) == ends {
                return;
            }
            self.table.strip_received(slot, ahead);
            if self.beside_programs {
                self.table.strip_sent(slot);
            }
        } else if !self.slots.is_taken(slot) {
            let generation = self.table.record(slot).generation.load(Relaxed);
            if self.memory.stripped.insert(slot, generation) != Some(generation) {
                self.table.strip_free(slot);
            }
        }
    }
}

#[cfg(test)]
mod tests;
