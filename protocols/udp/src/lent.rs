//! Datagrams that are on their way, and lie in their send ring until they have left.
//!
//! Where the network takes a datagram at once, there are none: its room is free when it was sent. Where others have yet
//! to read it, each keeps its place, and places are freed from the ring's front on, though datagrams may leave in another
//! order.

use crate::Udp;
use crate::send::LITTLE_ROOM;
use skink_memory::DatagramRing;
use skink_messages::{Events, Lent, Ports};
use std::collections::VecDeque;

/// Those of one socket, in the order of its ring.
#[derive(Default)]
pub(crate) struct OnTheirWay {
    datagrams: VecDeque<Handed>,
    /// Of the ring, that all of them take.
    bytes: usize,
}

struct Handed {
    /// Where it begins, in bytes since the socket was opened.
    position: u64,
    entry_bytes: usize,
    has_left: bool,
}

impl OnTheirWay {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }

    /// Bytes of the ring that they take, from its front on.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// One more, behind the others.
    pub fn push(&mut self, position: u64, entry_bytes: usize, has_left: bool) {
        self.bytes += entry_bytes;
        self.datagrams.push_back(Handed {
            position,
            entry_bytes,
            has_left,
        });
    }

    /// One has left. Answers how many bytes at the ring's front are free now.
    fn left(&mut self, position: u64) -> usize {
        let found = self
            .datagrams
            .binary_search_by_key(&position, |it| it.position);
        let datagram = found.ok().and_then(|at| self.datagrams.get_mut(at));
        if let Some(datagram) = datagram {
            datagram.has_left = true;
        }
        let mut free = 0;
        while self.datagrams.front().is_some_and(|first| first.has_left)
            && let Some(first) = self.datagrams.pop_front()
        {
            free += first.entry_bytes;
        }
        self.bytes -= free;
        free
    }

    /// Nothing is known of them any more.
    pub fn clear(&mut self) {
        self.datagrams.clear();
        self.bytes = 0;
    }
}

impl Udp {
    /// A datagram that was lent has left, or never will.
    pub(crate) fn on_left(&mut self, lent: &Lent, out: &mut (impl Ports + ?Sized)) {
        let slot = lent.socket.slot;
        let ring = match self.table.find(lent.socket) {
            Some(_) => DatagramRing::new(self.table.send_ring(slot)),
            None => return,
        };
        let place = self.sockets.get_mut(slot as usize);
        let Some(socket) = place.and_then(Option::as_mut) else {
            return;
        };
        let had_little_room = ring.room().unwrap_or(0) < LITTLE_ROOM;
        let free = socket.on_their_way.left(lent.position);
        if free == 0 {
            return;
        }
        let front = ring.position().wrapping_add(free as u64);
        ring.drop_front(free);
        if ring.position() != front {
            // The program has spoilt it.
            ring.clear();
            socket.on_their_way.clear();
        }
        if socket.closing && !socket.sending && socket.on_their_way.is_empty() {
            return self.finish(slot, out);
        }
        if had_little_room {
            self.note(slot, Events::WRITABLE);
        }
    }

    /// The network was replaced, and may have lost what was lent: it is sent once more, with the next poll. Some of it
    /// may arrive twice.
    pub fn network_restarted(&mut self) {
        for (slot, place) in (0..).zip(&mut self.sockets) {
            let Some(socket) = place.as_mut() else {
                continue;
            };
            if socket.on_their_way.is_empty() {
                continue;
            }
            socket.on_their_way.clear();
            socket.last_datagrams = self.table.send_ring(slot).capacity();
            if !std::mem::replace(&mut socket.sending, true) {
                self.sending.push_back(slot);
            }
        }
        if !self.sending.is_empty() {
            self.wake_at(skink_time::Instant::ZERO);
        }
    }
}
