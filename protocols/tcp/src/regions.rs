//! Programs come and go: each has a region of the table.

use crate::connection::Program;
use crate::instance::{Socket, Tcp};
use skink_memory::{Region, SocketId, TableError};
use skink_messages::{Network, Ports, SocketEvents, Waits};
use skink_time::Instant;
use skink_wire::FourTuple;

impl Tcp {
    /// Serves one more program, whose sockets are in `region`, an empty one ([`Tcp::adopt_region`] takes
    /// one that isn't). With its index, which was
    /// agreed on, the numbers of its slots begin (see [`skink_memory::SocketTable`]).
    ///
    /// # Errors
    /// As [`skink_memory::SocketTable::insert`].
    pub fn add_region(&mut self, index: u32, region: Region) -> Result<(), TableError> {
        let sockets = region.config().sockets;
        self.table.insert(index, region)?;
        self.slots.add(index, sockets);
        Ok(())
    }

    /// The program of a region has died. As Linux does then: listeners are closed; a connection with
    /// data that it hasn't read is reset; of others what it had written is still sent, and a FIN
    /// behind it. No event comes from the region any more. Nothing happens if there is no such
    /// region, or its program is known to be gone.
    pub fn abandon_region<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        region: u32,
        out: &mut O,
    ) {
        if !self.slots.abandon(region) {
            return;
        }
        if let Some(region) = self.table.region(region) {
            // First: a successor does the rest.
            region.abandon();
        }
        self.orphan_region(now, region, &[], &[], out);
    }

    /// The program of a region is gone, but others have its sockets that listen on these ports: they stay, in reserve, and what nobody has
    /// accepted; and so do connections that others have, which are `kept`. All else is closed. [`Tcp::abandon_region`] is to follow.
    pub fn orphan_region<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        region: u32,
        ports: &[u16],
        kept: &[FourTuple],
        out: &mut O,
    ) {
        let used = self.table.region(region).map_or(0, Region::used);
        // Listeners first: connections that wait with them end with them.
        for listeners in [true, false] {
            for slot in 0..used {
                let slot = self.table.slot_of(region, slot);
                let Some(id) = self.held(slot, listeners) else {
                    continue;
                };
                let is_kept = !listeners && kept.contains(&self.table.record(slot).four_tuple());
                match self.listener_mut(slot) {
                    Some(listener) if ports.contains(&listener.local.port) => {
                        listener.lent = true;
                        listener.waits = Waits::UNKNOWN;
                        listener.settings.reserve = true;
                        self.note_reserve(now, slot, out);
                    }
                    _ if is_kept => {}
                    _ => self.close(now, id, out),
                }
            }
        }
    }

    /// The program's socket of a region that has this connection.
    pub fn find_held(&self, region: u32, flow: &FourTuple) -> Option<SocketId> {
        let used = self.table.region(region).map_or(0, Region::used);
        let slots = (0..used).map(|slot| self.table.slot_of(region, slot));
        slots
            .filter_map(|slot| self.held(slot, false))
            .find(|id| self.table.record(id.slot).four_tuple() == *flow)
    }

    /// What is below `tcp` was replaced, and may have lost frames in both directions: each connection sends
    /// at once what makes its peer say how things stand.
    pub fn network_restarted(&mut self, now: Instant) {
        let slots: Vec<u32> = self.table.slots().collect();
        for slot in slots {
            if let Some(Socket::Connection(connection)) = self.sockets.get_mut(slot as usize) {
                connection.hurry(now);
                self.enqueue(slot);
            }
        }
    }

    /// The socket in `slot` that a program holds, if it is a listener or not as asked for.
    fn held(&self, slot: u32, listener: bool) -> Option<SocketId> {
        let held = match self.sockets.get(slot as usize)? {
            Socket::Free => false,
            Socket::Fresh(_) => !listener,
            Socket::Listener(_) => listener,
            Socket::Connection(connection) => {
                !listener && connection.program() == Program::Attached
            }
        };
        let generation = &self.table.record(slot).generation;
        held.then(|| SocketId {
            slot,
            generation: generation.load(core::sync::atomic::Ordering::Relaxed),
        })
    }

    /// A region whose program was gone, and whose last connection has ended by now: it is dropped,
    /// and its index may be given to another program's. Connections in TIME-WAIT don't keep it.
    /// Ask after each poll.
    pub fn take_finished_region(&mut self) -> Option<u32> {
        let region = self.slots.take_finished()?;
        self.table.remove(region);
        Some(region)
    }
}

#[cfg(test)]
mod tests;
