//! Programs come and go: each has a region of the table.

use crate::Udp;
use skink_memory::{Region, SocketId, TableError};
use skink_messages::{Network, Ports};
use skink_time::Instant;

impl Udp {
    /// Serves one more program, whose sockets are in `region`, an empty one
    /// ([`Udp::adopt_region`] takes one that isn't). With its index, which was
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

    /// The program of a region has died: its sockets are closed, and what is in their send rings is
    /// still sent. No event comes from the region any more. Nothing happens if there is no such
    /// region, or its program is known to be gone.
    pub fn abandon_region<Out>(&mut self, now: Instant, region: u32, out: &mut Out)
    where
        Out: Network + Ports + ?Sized,
    {
        if !self.slots.abandon(region) {
            return;
        }
        if let Some(region) = self.table.region(region) {
            // First: a successor does the rest.
            region.abandon();
        }
        let used = self.table.region(region).map_or(0, Region::used);
        for slot in 0..used {
            let slot = self.table.slot_of(region, slot);
            if let Some(generation) = self.socket(slot).map(|socket| socket.generation) {
                self.close(now, SocketId { slot, generation }, out);
            }
        }
    }

    /// A region whose program was gone, and whose last socket has ended by now: it is dropped, and
    /// its index may be given to another program's. Ask after each poll.
    pub fn take_finished_region(&mut self) -> Option<u32> {
        let region = self.slots.take_finished()?;
        self.table.remove(region);
        Some(region)
    }
}
