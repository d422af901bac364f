//! Whose a connection is that was offered to its program, and not accepted yet.
//!
//! Both sides may want it at the same time: the program to accept it, the owner of the region to give it to another program. One
//! word decides, which each changes by a compare-and-swap, so that just one of them is told that it has it.
//!
//! The same word of a listening socket says whether its program waits for a connection just now.

use super::Region;
use crate::SocketId;
use std::sync::atomic::Ordering;

/// The lower half of the word; the upper one is the socket's generation.
const OFFERED: u64 = 1;
const TAKEN: u64 = 2;
const WITHDRAWN: u64 = 3;
/// Of a listening socket.
const WAITING: u64 = 4;
const BUSY: u64 = 5;

fn word(id: SocketId, state: u64) -> u64 {
    u64::from(id.generation) << 32 | state
}

impl Region {
    /// Owner: the program may take it from now on, unless it has done so already.
    ///
    /// # Panics
    /// As [`Region::record`].
    pub fn offer(&self, id: SocketId) {
        let place = &self.sending.program_positions(id.slot).receive_head.offer;
        let before = place.load(Ordering::Relaxed);
        if before != word(id, TAKEN) {
            // Whatever the program does just now was done to an offer that stood before.
            let _ = place.compare_exchange(
                before,
                word(id, OFFERED),
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
        }
    }

    /// Owner: the program may take it no more. Answers whether it hasn't taken it, nor can from now on. A program may
    /// store anything there, which is its own harm: what it then has is a socket that is gone.
    ///
    /// # Panics
    /// As [`Region::record`].
    pub fn withdraw(&self, id: SocketId) -> bool {
        self.exchange(id, WITHDRAWN)
    }

    /// Program: takes a connection that it was offered. Answers whether it has it: its owner may have withdrawn it.
    ///
    /// # Panics
    /// As [`Region::record`].
    pub fn take_offer(&self, id: SocketId) -> bool {
        self.exchange(id, TAKEN)
    }

    /// Owner: whether the program has taken it, though it may not have said so yet.
    ///
    /// # Panics
    /// As [`Region::record`].
    pub fn is_taken(&self, id: SocketId) -> bool {
        let place = &self.sending.program_positions(id.slot).receive_head.offer;
        place.load(Ordering::Acquire) == word(id, TAKEN)
    }

    /// Program: whether a thread of it sleeps until the listening socket `id` has a connection.
    ///
    /// # Panics
    /// As [`Region::record`].
    pub fn set_waiting(&self, id: SocketId, waits: bool) {
        let place = &self.sending.program_positions(id.slot).receive_head.offer;
        let [waiting, busy] = [WAITING, BUSY].map(|state| word(id, state));
        if waits {
            place.store(waiting, Ordering::Relaxed);
        } else {
            // The slot may be a newer socket's by now.
            let _ = place.compare_exchange(waiting, busy, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Owner: what the program says of that, if it ever has. It needn't be true.
    ///
    /// # Panics
    /// As [`Region::record`].
    pub fn waits(&self, id: SocketId) -> Option<bool> {
        let place = &self.sending.program_positions(id.slot).receive_head.offer;
        match place.load(Ordering::Relaxed) ^ word(id, 0) {
            WAITING => Some(true),
            BUSY => Some(false),
            _ => None,
        }
    }

    fn exchange(&self, id: SocketId, to: u64) -> bool {
        let place = &self.sending.program_positions(id.slot).receive_head.offer;
        let (from, to) = (word(id, OFFERED), word(id, to));
        let exchanged = place.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
        exchanged.is_ok()
    }
}

#[cfg(test)]
mod tests;
