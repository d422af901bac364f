use skink_memory::SocketId;
use std::collections::{HashMap, VecDeque};

/// Connections that were established on listening sockets and wait to be taken.
#[derive(Default)]
pub(super) struct Offers {
    /// By the slot of the listening socket. A connection may still be offered when its listening socket is
    /// closed: one that comes to the slot later must not find it.
    slots: HashMap<u32, (SocketId, VecDeque<SocketId>)>,
}

impl Offers {
    pub fn put(&mut self, listener: SocketId, connection: SocketId) {
        let none = || (listener, VecDeque::new());
        let slot = self.slots.entry(listener.slot).or_insert_with(none);
        if slot.0 != listener {
            *slot = none();
        }
        slot.1.push_back(connection);
    }

    /// Takes the one that was offered first.
    pub fn take(&mut self, listener: SocketId) -> Option<SocketId> {
        let slot = self.slots.get_mut(&listener.slot);
        slot.filter(|slot| slot.0 == listener)?.1.pop_front()
    }

    /// What was offered on a socket and not taken.
    pub fn of(&self, listener: SocketId) -> Option<&VecDeque<SocketId>> {
        let slot = self.slots.get(&listener.slot);
        slot.filter(|slot| slot.0 == listener).map(|slot| &slot.1)
    }

    /// Takes all.
    pub fn remove(&mut self, listener: SocketId) -> VecDeque<SocketId> {
        match self.slots.remove(&listener.slot) {
            Some((other, offers)) if other == listener => offers,
            Some(other) => {
                self.slots.insert(listener.slot, other);
                VecDeque::new()
            }
            None => VecDeque::new(),
        }
    }
}
