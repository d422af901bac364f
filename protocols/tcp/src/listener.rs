use crate::connection::Program;
use crate::instance::{Socket, Tcp};
use crate::settings::Settings;
use crate::state::State;
use skink_memory::SocketId;
use skink_messages::{Counter, Network, Ports, SocketEvents};
use skink_time::Instant;
use skink_wire::Endpoint;
use std::collections::VecDeque;

/// A socket that waits for connection requests.
pub struct Listener {
    pub id: SocketId,
    pub local: Endpoint,
    pub settings: Settings,
    /// How many connections may wait to be accepted.
    pub backlog: usize,
    /// Established connections in order of arrival, by slot.
    pub ready: VecDeque<u32>,
    /// Handshakes under way.
    pub half_open: usize,
    /// Those handshakes, the oldest first, among others that have ended: see
    /// [`Tcp::note_half_open`].
    pub handshakes: VecDeque<SocketId>,
    /// A READABLE event is due.
    pub notify: bool,
}

/// Handshakes that may be under way at once, at least.
const HALF_OPEN: usize = 256;

impl Listener {
    /// Whether one more connection may be established. As in Linux, a backlog of n admits n + 1.
    pub fn has_room(&self) -> bool {
        self.ready.len() <= self.backlog
    }

    /// Whether as many handshakes are under way as may be.
    pub fn is_crowded(&self) -> bool {
        self.half_open >= self.backlog.max(HALF_OPEN)
    }
}

/// Handshakes that have ended are dropped from the list when it is longer than twice those that go on,
/// and this.
const LIST_SLACK: usize = 64;

impl Tcp {
    /// A handshake has begun.
    pub(crate) fn note_half_open(&mut self, parent: u32, id: SocketId) {
        let Some(Socket::Listener(listener)) = self.sockets.get_mut(parent as usize) else {
            return;
        };
        listener.half_open += 1;
        listener.handshakes.push_back(id);
        if listener.handshakes.len() <= 2 * listener.half_open + LIST_SLACK {
            return;
        }
        let mut list = core::mem::take(&mut listener.handshakes);
        list.retain(|id| self.is_half_open(parent, *id));
        if let Some(Socket::Listener(listener)) = self.sockets.get_mut(parent as usize) {
            listener.handshakes = list;
        }
    }

    /// Forgets the oldest handshake, so that requests that nobody means to complete (a flood from
    /// forged addresses) don't keep others out until they time out. Whoever is honest and that slow
    /// sends his request again. Answers whether there was one.
    pub(crate) fn give_up_oldest<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        parent: u32,
        out: &mut O,
    ) -> bool {
        loop {
            let Some(Socket::Listener(listener)) = self.sockets.get_mut(parent as usize) else {
                return false;
            };
            let Some(id) = listener.handshakes.pop_front() else {
                return false;
            };
            if self.is_half_open(parent, id) {
                self.counters.count(Counter::TcpDropHalfOpen);
                self.end(now, id.slot, out);
                return true;
            }
        }
    }

    fn is_half_open(&self, parent: u32, id: SocketId) -> bool {
        matches!(self.sockets.get(id.slot as usize), Some(Socket::Connection(child))
            if child.id == id
                && child.program == Program::Awaited(parent)
                && child.state() == State::SynReceived)
    }
}
