use skink_memory::SocketId;
use std::collections::{HashMap, VecDeque};

/// How far a connection has come that was offered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    /// It waits to be taken, on this listening socket.
    Waits(SocketId),
    /// The program has taken it.
    Taken,
    /// The program has closed it since, or refused it.
    Closed,
}

/// Connections that were established on listening sockets: those that wait to be taken, and how far each has
/// come. For a `tcp` that was restarted doesn't know which of them its predecessor had offered, and which the
/// program has taken.
#[derive(Default)]
pub(super) struct Offers {
    /// By the slot of the listening socket. A connection may still be offered when its listening socket is
    /// closed: one that comes to the slot later must not find it.
    slots: HashMap<u32, (SocketId, VecDeque<SocketId>)>,
    /// By the slot of the connection, its last generation of which anything is known: as many as the table
    /// has slots at most.
    known: HashMap<u32, (u32, Progress)>,
}

/// Whether generation `one` of a slot comes after `other`.
fn is_newer(one: u32, other: u32) -> bool {
    one.wrapping_sub(other).cast_signed() > 0
}

impl Offers {
    /// A connection is offered. Answers how far it has come if it was offered before: then nothing changes, unless it waited on
    /// another listening socket, which was closed, or whose connections the stack has withdrawn.
    pub fn put(&mut self, listener: SocketId, connection: SocketId) -> Option<Progress> {
        match self.known.get(&connection.slot) {
            Some((generation, progress)) if *generation == connection.generation => {
                match progress {
                    Progress::Waits(other) if *other != listener => {
                        if let Some((_, waiting)) = self.slots.get_mut(&other.slot) {
                            waiting.retain(|it| *it != connection);
                        }
                    }
                    Progress::Waits(_) | Progress::Taken | Progress::Closed => {
                        return Some(*progress);
                    }
                }
            }
            // The slot is another's by now.
            Some((generation, _)) if is_newer(*generation, connection.generation) => {
                return Some(Progress::Closed);
            }
            Some(_) | None => {}
        }
        self.note(connection, Progress::Waits(listener));
        let none = || (listener, VecDeque::new());
        let slot = self.slots.entry(listener.slot).or_insert_with(none);
        if slot.0 != listener {
            *slot = none();
        }
        slot.1.push_back(connection);
        None
    }

    /// A connection has come so far, unless its slot is another's by now.
    pub fn note(&mut self, connection: SocketId, progress: Progress) {
        let now = (connection.generation, progress);
        let known = self.known.entry(connection.slot).or_insert(now);
        if !is_newer(known.0, connection.generation) {
            *known = now;
        }
    }

    /// Takes the one that was offered first, of those that are the program's by now. The others, which were withdrawn, are
    /// forgotten; they may be offered once more.
    pub fn take(
        &mut self,
        listener: SocketId,
        is_ours: impl Fn(SocketId) -> bool,
    ) -> Option<SocketId> {
        loop {
            let slot = self.slots.get_mut(&listener.slot);
            let connection = slot.filter(|slot| slot.0 == listener)?.1.pop_front()?;
            if is_ours(connection) {
                self.note(connection, Progress::Taken);
                return Some(connection);
            }
            let withdrawn = (connection.generation, Progress::Waits(listener));
            if self.known.get(&connection.slot) == Some(&withdrawn) {
                self.known.remove(&connection.slot);
            }
        }
    }

    /// What was offered on a socket and not taken.
    pub fn of(&self, listener: SocketId) -> Option<&VecDeque<SocketId>> {
        let slot = self.slots.get(&listener.slot);
        slot.filter(|slot| slot.0 == listener).map(|slot| &slot.1)
    }

    /// The listening socket is closed. What waits there isn't the program's any more; but it may be offered once more.
    pub fn remove(&mut self, listener: SocketId) {
        if self.of(listener).is_some() {
            self.slots.remove(&listener.slot);
        }
    }
}

#[cfg(test)]
mod tests;
