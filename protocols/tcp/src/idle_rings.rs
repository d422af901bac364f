//! Gives back the memory of rings that stays behind when a connection has nothing more to say.
//!
//! An empty ring is filled from the start of its memory again, so it takes as much as the most that was ever in it: a server that has
//! sent something large to each of its clients, which all stay, would keep all of that. Linux' buffers take no more than what is in
//! them. So connections whose rings have spread are looked at now and then, and those that were idle since the last look give back
//! all but the beginning.

use crate::connection::Connection;
use crate::instance::Tcp;
use skink_memory::{Ring, SocketId};
use skink_time::{Duration, Instant};
use std::collections::VecDeque;

/// From one look at all to the next.
const PERIOD: Duration = Duration::from_secs(4);

/// Connections whose rings have spread.
pub(crate) struct IdleRings {
    entries: VecDeque<Entry>,
    /// When they are to be looked at.
    due: Instant,
    /// How many of them are left to be looked at now.
    left: usize,
}

struct Entry {
    id: SocketId,
    /// The tails of its rings at the last look.
    tails: [u64; 2],
}

impl IdleRings {
    pub fn new() -> IdleRings {
        IdleRings {
            entries: VecDeque::new(),
            due: Instant::FAR_FUTURE,
            left: 0,
        }
    }

    /// One more.
    pub fn push(&mut self, now: Instant, id: SocketId) {
        if self.entries.is_empty() {
            self.due = now + PERIOD;
        }
        let tails = [u64::MAX; 2];
        self.entries.push_back(Entry { id, tails });
    }

    /// When they are to be looked at, if there are some.
    pub fn next_deadline(&self) -> Option<Instant> {
        (!self.entries.is_empty()).then_some(self.due)
    }

    /// The next one to be looked at now.
    fn pop(&mut self, now: Instant) -> Option<Entry> {
        if self.left == 0 && now >= self.due {
            self.left = self.entries.len();
            self.due = now + PERIOD;
        }
        self.left = self.left.checked_sub(1)?;
        self.entries.pop_front()
    }
}

impl Connection {
    /// Notes whether a ring of the connection has spread.
    #[inline]
    pub fn note_spread(&mut self, ring: &Ring<'_>) {
        self.spread |= ring.has_spread();
    }
}

impl Tcp {
    /// The programs that fill the send rings are on the same thread: none puts anything in meanwhile, and what a send ring has taken can
    /// be given back here.
    pub fn set_beside_programs(&mut self) {
        self.beside_programs = true;
    }

    /// Once in each turn: looks at one connection, as the system takes some time for each page. Answers whether there are more.
    pub(crate) fn give_back_idle(&mut self, now: Instant) -> bool {
        if let Some(entry) = self.idle_rings.pop(now)
            && let Some(entry) = self.look_at_idle(entry)
        {
            self.idle_rings.entries.push_back(entry);
        }
        self.idle_rings.left > 0
    }

    /// Answers the entry if it is to be looked at again.
    fn look_at_idle(&mut self, entry: Entry) -> Option<Entry> {
        let id = entry.id;
        let [send, receive] = self.table.find_rings(id)?;
        let tails = [send.tail(), receive.tail()];
        let is_ahead = !self.connection_mut(id)?.ahead.is_empty();
        let is_idle = tails == entry.tails && !is_ahead;
        let mut given_back = is_idle && self.table.give_back_received(id.slot);
        if self.beside_programs {
            given_back &= is_idle && self.table.give_back_sent(id.slot);
        }
        if !given_back {
            return Some(Entry { id, tails });
        }
        let connection = self.connection_mut(id)?;
        (connection.spread, connection.listed) = (false, false);
        None
    }
}

#[cfg(test)]
mod tests;
