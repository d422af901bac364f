//! What lets a host answer a call again that a predecessor had carried out.
//!
//! Before it carries a call out on a socket, a host notes the call's serial number there; `open_for`
//! does so itself. Asked again for the same one after an adoption, it finds the number, and looks
//! whether the call is done: a socket that is bound, listens or is connected as asked. If not, it
//! carries the call out (once more: one that failed fails again).

use crate::instance::{Socket, Tcp};
use core::sync::atomic::Ordering::Relaxed;
use skink_memory::{Holder, Region, SocketId};
use skink_wire::Endpoint;

impl Tcp {
    /// The socket on which the call with this number, the last of `program`'s (its region), was carried
    /// out at least in part; for `open`, the socket that was opened. Looks at all sockets of the program:
    /// for the first call after an adoption.
    pub fn opened(&self, program: u32, serial: u32) -> Option<SocketId> {
        if serial == 0 {
            return None;
        }
        let used = self.table.region(program).map_or(0, Region::used);
        let mut slots = (0..used).map(|slot| self.table.slot_of(program, slot));
        let slot = slots.find(|slot| {
            let record = self.table.record(*slot);
            let there = !matches!(self.sockets.get(*slot as usize), None | Some(Socket::Free));
            there
                && record.holder() == Some(Holder::Attached)
                && record.serial.load(Relaxed) == serial
        })?;
        let generation = self.table.record(slot).generation.load(Relaxed);
        Some(SocketId { slot, generation })
    }

    /// Notes that this call of the program is about to be carried out on the socket.
    pub fn note_call(&mut self, id: SocketId, serial: u32) {
        if let Some(record) = self.table.find(id) {
            record
                .serial
                .store(serial, core::sync::atomic::Ordering::Release);
        }
    }

    /// Whether this was the last call noted on the socket.
    pub fn was_called(&self, id: SocketId, serial: u32) -> bool {
        let record = self.table.find(id);
        serial != 0 && record.is_some_and(|record| record.serial.load(Relaxed) == serial)
    }

    /// What the socket is bound to, if it is bound and neither listens nor is connected.
    pub fn bound_to(&self, id: SocketId) -> Option<Endpoint> {
        match self.socket(id)? {
            Socket::Fresh(fresh) => fresh.local,
            Socket::Free | Socket::Listener(_) | Socket::Connection(_) => None,
        }
    }

    /// Where the socket listens, if it does.
    pub fn listens_on(&self, id: SocketId) -> Option<Endpoint> {
        match self.socket(id)? {
            Socket::Listener(listener) => Some(listener.local),
            Socket::Free | Socket::Fresh(_) | Socket::Connection(_) => None,
        }
    }

    /// Our end and the peer's, if the socket is connected, is about to be, or was.
    pub fn connected_to(&self, id: SocketId) -> Option<(Endpoint, Endpoint)> {
        match self.socket(id)? {
            Socket::Connection(connection) => {
                Some((connection.tuple.local, connection.tuple.remote))
            }
            Socket::Free | Socket::Fresh(_) | Socket::Listener(_) => None,
        }
    }
}
