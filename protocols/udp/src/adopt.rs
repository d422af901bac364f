//! Taking over the sockets of a predecessor.

use crate::Udp;
use crate::socket::{
    Address, CLOSING, REUSE, SHARED, Socket, WAS_BOUND, WAS_WILDCARD, is_for_many, unspecified,
};
use skink_memory::{Record, SocketId, SocketKind, SocketTable};
use skink_messages::{BindOptions, Counters, Events, Network, Ports};
use skink_wire::{Endpoint, protocol};
use std::sync::atomic::Ordering;

impl Udp {
    /// Takes over the sockets of a predecessor that ended or crashed: its bound and connected
    /// addresses, its rings and what is in them. A socket whose record makes no sense is closed,
    /// alone. Each one taken over gets all events that may have been lost.
    pub fn adopt<Out>(seed: u64, table: SocketTable, counters: Counters, out: &mut Out) -> Udp
    where
        Out: Network + Ports + ?Sized,
    {
        let mut udp = Udp::new(seed, table, counters);
        let slots: Vec<u32> = udp.table.slots().collect();
        for slot in slots {
            if udp.table.record(slot).kind() != SocketKind::Udp {
                continue;
            }
            if !udp.adopt_slot(slot, out) {
                udp.table.close_slot(slot);
            }
        }
        udp
    }

    fn adopt_slot<Out>(&mut self, slot: u32, out: &mut Out) -> bool
    where
        Out: Network + Ports + ?Sized,
    {
        let record = self.table.record(slot);
        let generation = record.generation.load(Ordering::Acquire);
        let state = record.state.load(Ordering::Relaxed);
        let Some(address) = address_in(record) else {
            return false;
        };
        if let Some(local) = address.local() {
            let may_have =
                local.addr.is_unspecified() || is_for_many(local.addr) || out.is_local(local.addr);
            if !may_have {
                return false;
            }
            // The port table may have outlived us or not; asking again is harmless.
            if !out.use_port(protocol::UDP, local.port, false) {
                return false;
            }
            if matches!(address, Address::Bound(_)) {
                out.listen(protocol::UDP, local.port);
            }
        }
        self.slots.claim(slot);
        let id = SocketId { slot, generation };
        let socket = Socket {
            address,
            sharing: BindOptions {
                reuse_address: state & REUSE != 0,
                shared: state & SHARED != 0,
            },
            ..Socket::new(id)
        };
        self.put(id, socket);
        if state & CLOSING != 0 {
            self.mark_closing(slot);
        } else {
            self.demux.insert(slot, &address);
        }
        if !self.table.receive_ring(slot).is_empty() {
            self.note(slot, Events::READABLE);
        }
        self.note(slot, Events::WRITABLE);
        if let Some(socket) = self.socket(slot) {
            // Whatever is in the send ring goes out with the first poll.
            socket.sending = true;
            self.sending.push_back(slot);
        }
        true
    }
}

/// What a record says of its socket's address; `None` if it contradicts itself.
fn address_in(record: &Record) -> Option<Address> {
    let tuple = record.four_tuple();
    let (local, remote) = (tuple.local, tuple.remote);
    if local.port == 0 {
        return remote.addr.is_unspecified().then_some(Address::Unbound);
    }
    if remote.addr.is_unspecified() {
        return (remote.port == 0).then_some(Address::Bound(local));
    }
    if local.addr.is_unspecified() {
        return None;
    }
    let state = record.state.load(Ordering::Relaxed);
    let bound = (state & WAS_BOUND != 0).then(|| {
        let all = state & WAS_WILDCARD != 0;
        let address = if all {
            unspecified(local.addr)
        } else {
            local.addr
        };
        Endpoint::new(address, local.port)
    });
    Some(Address::Connected {
        local,
        remote,
        bound,
    })
}
