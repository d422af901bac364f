//! Datagrams that are on their way, and lie in their send ring until they have left.
//!
//! Where the network takes a datagram at once, there are none: its room is free when it was sent. Where others have yet
//! to read it, each keeps its place, and places are freed from the ring's front on, though datagrams may leave in another
//! order.

use crate::Udp;
use crate::send::{has_little_room, most_datagrams};
use skink_memory::DatagramRing;
use skink_messages::{Events, Lent, Ports};
use std::collections::VecDeque;

/// Those of one socket, in the order of its ring.
#[derive(Default)]
pub(crate) struct OnTheirWay {
    datagrams: VecDeque<Handed>,
    /// Of the ring, that all of them take.
    bytes: usize,
    /// Those of which it isn't known that they have left, whatever the program has made of its ring since: somebody may
    /// be reading them.
    lent: u32,
}

struct Handed {
    /// Where it begins, in bytes since the socket was opened.
    position: u64,
    entry_bytes: usize,
    has_left: bool,
}

impl OnTheirWay {
    /// How many haven't left.
    pub fn lent(&self) -> u32 {
        self.lent
    }

    /// Bytes of the ring that they take, from its front on.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// One more, behind the others.
    pub fn push(&mut self, position: u64, entry_bytes: usize, has_left: bool) {
        self.bytes += entry_bytes;
        self.lent += u32::from(!has_left);
        self.datagrams.push_back(Handed {
            position,
            entry_bytes,
            has_left,
        });
    }

    /// One has left. Answers how many bytes at the ring's front are free now.
    fn left(&mut self, position: u64) -> usize {
        self.lent = self.lent.saturating_sub(1);
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

    /// Where they are isn't known any more, as the ring was spoilt.
    pub fn lose(&mut self) {
        self.datagrams.clear();
        self.bytes = 0;
    }

    /// The network was replaced: no word of them comes any more.
    fn forget(&mut self) -> bool {
        self.lose();
        std::mem::take(&mut self.lent) > 0
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
        let had_little_room = has_little_room(&ring);
        let free = socket.on_their_way.left(lent.position);
        let front = ring.position().wrapping_add(free as u64);
        ring.drop_front(free);
        if ring.position() != front {
            // The program has spoilt it.
            ring.clear();
            socket.on_their_way.lose();
        }
        if socket.closing && !socket.sending && socket.on_their_way.lent() == 0 {
            return self.finish(slot, out);
        }
        if free > 0 && had_little_room {
            self.note(slot, Events::WRITABLE);
        }
    }

    /// How many datagrams are lent.
    pub fn lent(&self) -> u32 {
        let sockets = self.sockets.iter().flatten();
        sockets.map(|socket| socket.on_their_way.lent()).sum()
    }

    /// The network was replaced, and may have lost what was lent: it is sent once more, with the next poll. Some of it
    /// may arrive twice.
    pub fn network_restarted(&mut self) {
        for (slot, place) in (0..).zip(&mut self.sockets) {
            let Some(socket) = place.as_mut() else {
                continue;
            };
            if !socket.on_their_way.forget() {
                continue;
            }
            // All that is in the ring is to be sent, also where the socket is closed.
            socket.last_datagrams = most_datagrams(&self.table.send_ring(slot));
            if !std::mem::replace(&mut socket.sending, true) {
                self.sending.push(slot);
            }
        }
        if !self.sending.is_empty() {
            self.wake_at(skink_time::Instant::ZERO);
        }
    }
}
