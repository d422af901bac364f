//! Connections are offered to programs before they ask: `accept` needs no round trip.
use crate::front::Front;
use skink_memory::SocketId;
use skink_messages::{Counter, Protocol};
use skink_sockets::Notice;

/// Connections offered on one listening socket and not reported as taken yet. The rest waits in the
/// listener's own queue, where its backlog counts it.
const OFFERED: u32 = 64;

/// A listening socket of a program.
pub(crate) struct Listener {
    pub id: SocketId,
    limit: usize,
}

impl Listener {
    pub fn new(id: SocketId, backlog: u32) -> Listener {
        let limit = backlog.clamp(1, OFFERED) as usize;
        Listener { id, limit }
    }

    pub fn set_backlog(&mut self, backlog: u32) {
        self.limit = backlog.clamp(1, OFFERED) as usize;
    }
}

impl Front {
    /// Offers what waits on a listening socket, as far as the program keeps up.
    pub(crate) fn offer(&mut self, program: u32, slot: u32) {
        let transports = self.stack.transports();
        let Some(attached) = self.programs.get_mut(program) else {
            return;
        };
        loop {
            let has_room = attached.has_room();
            let Some(listener) = attached.listeners.get(&slot) else {
                return;
            };
            if transports.offered(listener.id) >= listener.limit {
                return;
            }
            if !has_room {
                attached.must_offer |= transports.acceptable(listener.id) > 0;
                return;
            }
            let Some(connection) = transports.offer(listener.id) else {
                return;
            };
            let notice = Notice::Offered {
                listener: listener.id,
                connection,
            };
            attached.tell(notice);
            self.counters.count(Counter::SocketsNotices);
        }
    }

    /// As [`Host::offer`], on all listening sockets of a program.
    pub(crate) fn offer_all(&mut self, program: u32) {
        let Some(attached) = self.programs.get_mut(program) else {
            return;
        };
        attached.must_offer = false;
        let slots: Vec<u32> = attached.listeners.keys().copied().collect();
        for slot in slots {
            self.offer(program, slot);
        }
    }

    /// The program has taken a connection. It may say so once more, if it was offered that again.
    pub(crate) fn accepted(&mut self, program: u32, listener: SocketId, connection: SocketId) {
        let listeners = self.programs.get(program).map(|it| &it.listeners);
        let known = listeners.and_then(|all| all.get(&listener.slot));
        if known.is_none_or(|known| known.id != listener) {
            return self.counters.count(Counter::SocketsDropForeign);
        }
        // Also one that a predecessor had offered.
        if self.owner_of(Protocol::Tcp, connection) == program {
            self.stack.transports().accepted(connection);
        }
        self.offer(program, listener.slot);
    }

    /// A listening socket is about to be closed: nothing more is offered on it. What was offered and not taken goes where those
    /// go that still wait. (What the program took before, it has reported before: requests keep their order.)
    pub(crate) fn withdraw(&mut self, program: u32, id: SocketId) {
        if let Some(attached) = self.programs.get_mut(program)
            && attached
                .listeners
                .get(&id.slot)
                .is_some_and(|it| it.id == id)
        {
            attached.listeners.remove(&id.slot);
        }
    }
}
