//! Taking over the sockets of a predecessor.

use crate::Udp;
use crate::socket::{
    Address, CLOSING, FAILED, REUSE, SHARED, Socket, WAS_BOUND, WAS_WILDCARD, is_for_many,
    unspecified,
};
use core::net::IpAddr;
use core::sync::atomic::Ordering;
use skink_memory::{Adopted, Holder, Record, Region, SocketId, SocketKind, TableError};
use skink_messages::{BindOptions, Counter, Events, Network, Ports, SocketError};
use skink_time::Instant;
use skink_wire::{Endpoint, protocol};

impl Udp {
    /// Serves one more program, whose sockets in `region` were a predecessor's: one that died, at any
    /// instruction, or was stopped. Their bound and connected addresses, their rings and what is in
    /// them are taken over. A socket whose record makes no sense is given up, alone, and told so. Each
    /// one taken over gets all events that may have been lost. A datagram that was being sent may be
    /// sent twice.
    ///
    /// # Errors
    /// As [`skink_memory::SocketTable::insert`].
    pub fn adopt_region<Out>(
        &mut self,
        now: Instant,
        index: u32,
        region: Region,
        out: &mut Out,
    ) -> Result<Adopted, TableError>
    where
        Out: Network + Ports + ?Sized,
    {
        let used = region.used();
        let abandoned = region.is_abandoned();
        self.add_region(index, region)?;
        let mut adopted = Adopted::default();
        for slot in 0..used {
            let slot = self.table.slot_of(index, slot);
            let record = self.table.record(slot);
            let (kind, holder) = (record.kind.load(Ordering::Relaxed), record.holder());
            let is_udp = kind == SocketKind::Udp as u8;
            match (kind, holder) {
                // Free, where a predecessor may not have given memory back yet, or about to be opened or to be freed: no program
                // knows of it.
                (_, None) if is_udp || kind == 0 => {
                    self.slots.claim(slot);
                    self.table.close_slot(slot, &mut self.slots);
                }
                _ if is_udp && self.adopt_slot(slot, out) => {
                    adopted.sockets += 1;
                    self.counters.count(Counter::UdpAdopted);
                }
                _ => {
                    adopted.given_up += 1;
                    self.counters.count(Counter::UdpRecordBad);
                    self.give_up(slot);
                }
            }
        }
        if abandoned {
            self.abandon_region(now, index, out);
        }
        Ok(adopted)
    }

    fn adopt_slot<Out>(&mut self, slot: u32, out: &mut Out) -> bool
    where
        Out: Network + Ports + ?Sized,
    {
        let record = self.table.record(slot);
        let generation = record.generation.load(Ordering::Relaxed);
        let state = record.state.load(Ordering::Relaxed);
        let may_have =
            |addr: IpAddr| addr.is_unspecified() || is_for_many(addr, out) || out.is_local(addr);
        let Some(address) = address_in(record, may_have) else {
            return false;
        };
        if let Some(local) = address.local() {
            // The port table may have outlived us or not; asking again is harmless.
            if !out.use_port(protocol::UDP, local.port, false) {
                return false;
            }
            if matches!(address, Address::Bound(_)) {
                out.listen(protocol::UDP, local.port);
            }
        }
        let failed = state & FAILED != 0;
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
        self.mend_rings(slot);
        if !self.table.receive_ring(slot).is_empty() {
            self.note(slot, Events::READABLE);
        }
        if failed {
            self.note(slot, Events::ERROR);
        }
        self.note(slot, Events::WRITABLE);
        if let Some(socket) = self.socket(slot) {
            // Whatever is in the send ring goes out with the first poll.
            socket.sending = true;
            self.sending.push(slot);
        }
        true
    }

    /// A ring whose ends contradict each other is emptied: datagrams may get lost.
    fn mend_rings(&self, slot: u32) {
        let (send, receive) = (self.table.send_ring(slot), self.table.receive_ring(slot));
        if send.is_spoilt() {
            send.clear();
        }
        if receive.is_spoilt() {
            receive.take_back();
        }
    }

    /// The program keeps a socket without an address, that says it failed; it can close it.
    fn give_up(&mut self, slot: u32) {
        let record = self.table.record(slot);
        let generation = record.generation.load(Ordering::Relaxed);
        let id = SocketId { slot, generation };
        record
            .error
            .store(SocketError::Reset as u32, Ordering::Relaxed);
        record.set_holder(Holder::Attached);
        record.set_kind(SocketKind::Udp);
        let socket = Socket::new(id);
        socket.save(record);
        self.table.send_ring(slot).clear();
        self.table.receive_ring(slot).take_back();
        self.slots.claim(slot);
        self.put(id, socket);
        self.note(slot, Events::ERROR | Events::READABLE | Events::WRITABLE);
    }
}

/// What a record says of its socket's address; `None` if it contradicts itself, or the address is one
/// that the socket can't have. A change of it may have been under way (see `Socket::save`).
fn address_in(record: &Record, may_have: impl Fn(IpAddr) -> bool) -> Option<Address> {
    let family = record.family.load(Ordering::Relaxed);
    let tuple = record.four_tuple();
    let (local, remote) = (tuple.local, tuple.remote);
    if family == 0 {
        // Its first address was about to be stored.
        return Some(Address::Unbound);
    }
    if !matches!(family, 4 | 6) {
        return None;
    }
    if local.port == 0 {
        return remote.addr.is_unspecified().then_some(Address::Unbound);
    }
    let state = record.state.load(Ordering::Relaxed);
    if !may_have(local.addr) {
        let any = Endpoint::new(unspecified(local.addr), local.port);
        return (state & WAS_WILDCARD != 0).then_some(Address::Bound(any));
    }
    if remote.addr.is_unspecified() {
        return Some(Address::Bound(local));
    }
    if local.addr.is_unspecified() {
        // The connection was about to be dissolved.
        return match state & WAS_BOUND {
            0 => Some(Address::Unbound),
            _ => Some(Address::Bound(local)),
        };
    }
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

/// What lets a host answer a call again that a predecessor had carried out: as with `tcp`, it notes the
/// number of each call on the socket before it carries it out, and looks after an adoption whether the
/// call is done.
impl Udp {
    /// The socket on which the call with this number, the last of `program`'s (its region), was carried
    /// out at least in part; for `open`, the socket that was opened.
    pub fn opened(&self, program: u32, serial: u32) -> Option<SocketId> {
        if serial == 0 {
            return None;
        }
        let used = self.table.region(program).map_or(0, Region::used);
        let mut slots = (0..used).map(|slot| self.table.slot_of(program, slot));
        let slot = slots.find(|slot| {
            let record = self.table.record(*slot);
            let there = self
                .sockets
                .get(*slot as usize)
                .is_some_and(Option::is_some);
            there
                && record.holder() == Some(Holder::Attached)
                && record.serial.load(Ordering::Relaxed) == serial
        })?;
        let generation = self.table.record(slot).generation.load(Ordering::Relaxed);
        Some(SocketId { slot, generation })
    }

    /// Notes that this call of the program is about to be carried out on the socket.
    pub fn note_call(&mut self, id: SocketId, serial: u32) {
        if let Some(record) = self.table.find(id) {
            record.serial.store(serial, Ordering::Release);
        }
    }

    /// Whether this was the last call noted on the socket.
    pub fn was_called(&self, id: SocketId, serial: u32) -> bool {
        let record = self.table.find(id);
        serial != 0 && record.is_some_and(|it| it.serial.load(Ordering::Relaxed) == serial)
    }

    /// What the socket is bound to, if it is bound and not connected.
    pub fn bound_to(&self, id: SocketId) -> Option<Endpoint> {
        match self.known(id)?.address {
            Address::Bound(local) => Some(local),
            Address::Unbound | Address::Connected { .. } => None,
        }
    }

    /// Our end and the peer's, if the socket is connected.
    pub fn connected_to(&self, id: SocketId) -> Option<(Endpoint, Endpoint)> {
        match self.known(id)?.address {
            Address::Connected { local, remote, .. } => Some((local, remote)),
            Address::Unbound | Address::Bound(_) => None,
        }
    }

    fn known(&self, id: SocketId) -> Option<&Socket> {
        let socket = self.sockets.get(id.slot as usize)?.as_ref();
        socket.filter(|socket| socket.generation == id.generation && !socket.closing)
    }
}
