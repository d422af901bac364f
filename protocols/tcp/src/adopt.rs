//! Taking over the sockets of a predecessor, which may have died between any two instructions.

use crate::binding::Binding;
use crate::connection::{Connection, Context, Program};
use crate::demux::{Place, unspecified_like};
use crate::instance::{Fresh, Socket, Tcp};
use crate::listener::Listener;
use crate::saved::FIN_OVER;
use crate::settings::Settings;
use crate::stalled::Stall;
use crate::state::State;
use core::net::IpAddr;
use core::sync::atomic::Ordering::{Relaxed, Release};
use foldhash::fast::FixedState;
use skink_memory::{Adopted, Holder, KEEP_BYTES, Record, Region, SocketId, TableError};
use skink_messages::{Counter, Events, Network, Path, Ports, SocketEvents, Waits};
use skink_time::{Duration, Instant};
use skink_wire::{Endpoint, FourTuple, protocol};
use std::collections::{HashSet, VecDeque};

mod calls;
mod lost;
mod restore;

/// As long as the predecessor's TIME-WAITs could have lasted (see `time_wait`).
const REMEMBERED: Duration = Duration::from_secs(60);
/// How many connections that were given up are remembered.
const GIVEN_UP: usize = 4096;

/// What must be known of whose sockets were adopted.
pub(crate) struct Predecessor {
    until: Instant,
    /// Connections that are reset since their records made no sense.
    given_up: HashSet<FourTuple, FixedState>,
    /// Connections that are over, and wait to be accepted: ends and initial number.
    over: HashSet<(FourTuple, u32), FixedState>,
}

/// What a slot holds, at first sight.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    /// Nothing; but a predecessor may not have given memory back yet.
    Free,
    /// A socket that nobody knows of: it was about to be opened, or to be freed.
    Unknown,
    Listener,
    Other,
    Flawed,
}

impl Tcp {
    /// Serves one more program, whose sockets in `region` were a predecessor's: one that died, at any
    /// instruction, or was stopped. Nobody else may serve them any more. Each socket whose record
    /// passes its check goes on; one whose record doesn't is reset, alone, and counted by the reason.
    /// `ip` must have its addresses and routes. What leads to segments leaves with the next polls.
    ///
    /// The program gets all events that may have been lost.
    ///
    /// # Errors
    /// As [`skink_memory::SocketTable::insert`].
    pub fn adopt_region<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        index: u32,
        region: Region,
        out: &mut O,
    ) -> Result<Adopted, TableError> {
        let used = region.used();
        let abandoned = region.is_abandoned();
        self.add_region(index, region)?;
        // A program that is new has no connections that anybody could have forgotten.
        if used > 0 {
            let before = self.predecessor.take().filter(|it| now < it.until);
            let (given_up, over) = before.map(|it| (it.given_up, it.over)).unwrap_or_default();
            self.predecessor = Some(Predecessor {
                until: now + REMEMBERED,
                given_up,
                over,
            });
        }
        let slots = (0..used).map(|slot| self.table.slot_of(index, slot));
        let found: Vec<(u32, Found)> = slots
            .map(|slot| (slot, look_at(self.table.record(slot))))
            .collect();
        for (slot, _) in &found {
            self.slots.claim(*slot);
        }
        let mut adopted = Adopted::default();
        // Listeners first: connections wait with them.
        for listeners in [true, false] {
            for (slot, found) in &found {
                if (*found == Found::Listener) == listeners {
                    self.adopt_slot(now, *slot, *found, &mut adopted, out);
                }
            }
        }
        self.line_up(now, &found);
        if abandoned {
            self.abandon_region(now, index, out);
        }
        Ok(adopted)
    }

    fn adopt_slot<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        slot: u32,
        found: Found,
        adopted: &mut Adopted,
        out: &mut O,
    ) {
        let record = self.table.record(slot);
        let generation = record.generation.load(Relaxed);
        let id = SocketId { slot, generation };
        let over = record.fin.load(Relaxed) & FIN_OVER != 0;
        let state = State::from_number(record.state.load(Relaxed));
        let result = match (found, state) {
            (Found::Free | Found::Unknown, _) => return self.forget(slot),
            (Found::Other, Some(State::Closed)) if over && self.is_copy(slot) => {
                return self.forget(slot);
            }
            (Found::Flawed, _) | (_, None) => Err(Counter::TcpRecordKind),
            (Found::Listener, Some(_)) => self.adopt_listener(id, out),
            // (A bound socket that was about to listen.)
            (Found::Other, Some(State::Listen)) => self.adopt_fresh(id, out),
            (Found::Other, Some(State::Closed)) if !over => self.adopt_fresh(id, out),
            (Found::Other, Some(state)) if self.stateless && state != State::Closed => {
                Err(Counter::TcpForgotten)
            }
            (Found::Other, Some(_)) => self.adopt_connection(now, id, out),
        };
        match result {
            Ok(()) => {
                adopted.sockets += 1;
                self.counters.count(Counter::TcpAdopted);
            }
            Err(reason) => {
                adopted.given_up += 1;
                self.counters.count(reason);
                self.give_up(now, id, reason, out);
            }
        }
    }

    /// Whether a connection that is over, and waits to be accepted, was found before: the predecessor died while it moved it. (Of
    /// others the demultiplexer knows.)
    fn is_copy(&mut self, slot: u32) -> bool {
        let record = self.table.record(slot);
        let key = (record.four_tuple(), record.iss.load(Relaxed));
        record.holder() == Some(Holder::Awaited)
            && self
                .predecessor
                .as_mut()
                .is_some_and(|it| !it.over.insert(key))
    }

    /// A slot that no program knows of.
    pub(crate) fn forget(&mut self, slot: u32) {
        self.table.close_slot(slot, &mut self.slots);
    }

    fn adopt_fresh<O: Network + Ports>(
        &mut self,
        id: SocketId,
        out: &mut O,
    ) -> Result<(), Counter> {
        let record = self.table.record(id.slot);
        if record.holder() != Some(Holder::Attached) {
            // The program closed it, or it was never more than a slot.
            self.forget(id.slot);
            return Ok(());
        }
        let unused = self.table.receive_ring(id.slot).tail() == 0;
        if !unused || self.table.send_ring(id.slot).head() != 0 {
            return Err(Counter::TcpRecordRings);
        }
        let Binding {
            local,
            sharing,
            resting,
        } = Binding::load(record);
        if local.is_some_and(|local| !is_ours(local.addr, out)) {
            return Err(Counter::TcpRecordEnds);
        }
        // What an unfinished `connect` or `listen` left; the call is repeated.
        let nothing = Endpoint::new(IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED), 0);
        let local_end = local.unwrap_or(nothing);
        let remote = Endpoint::new(unspecified_like(local_end.addr), 0);
        record.set_four_tuple(&FourTuple::new(local_end, remote));
        record.state.store(State::Closed as u8, Release);
        let fresh = Fresh {
            settings: Settings::load(record),
            local,
            sharing,
            resting,
        };
        if let Some(local) = local {
            self.take_port(local, id.slot, out);
            if resting {
                self.demux.rest_on(local);
            }
        }
        self.put(id.slot, Socket::Fresh(Box::new(fresh)));
        Ok(())
    }

    /// What `bind` did.
    fn take_port<O: Ports>(&mut self, local: Endpoint, slot: u32, out: &mut O) {
        out.use_port(protocol::TCP, local.port, false);
        let bound = self.bound.entry(local.port).or_default();
        bound.push((local.addr, slot));
    }

    fn adopt_listener<O: Network + Ports>(
        &mut self,
        id: SocketId,
        out: &mut O,
    ) -> Result<(), Counter> {
        let record = self.table.record(id.slot);
        if record.seal.load(Relaxed) != record.seal() {
            return Err(Counter::TcpRecordChanged);
        }
        let left = match record.holder() {
            Some(Holder::Attached) => false,
            Some(Holder::Gone) => true,
            Some(Holder::Awaited | Holder::Away | Holder::Passed) | None => {
                return Err(Counter::TcpRecordKind);
            }
        };
        if record.state.load(Relaxed) != State::Listen as u8 {
            return Err(Counter::TcpRecordKind);
        }
        let binding = Binding::load(record);
        let local = binding.local.ok_or(Counter::TcpRecordEnds)?;
        let shared = binding.sharing.shared;
        let taken = !left && self.is_listened_on(local, id.slot, shared);
        if taken || !is_ours(local.addr, out) {
            return Err(Counter::TcpRecordEnds);
        }
        let listener = Listener {
            id,
            local,
            settings: Settings::load(record),
            shared,
            backlog: record.backlog.load(Relaxed) as usize,
            ready: VecDeque::new(),
            offered: VecDeque::new(),
            next_order: 1,
            half_open: 0,
            flooded_until: None,
            handshakes: VecDeque::new(),
            turned_away: VecDeque::new(),
            notify: false,
            lent: false,
            waits: Waits::UNKNOWN,
            stall: Stall::default(),
            left,
            orphaned: false,
        };
        self.take_port(local, id.slot, out);
        if left {
            self.leave(id);
        } else {
            self.demux
                .add_listener(local, id.slot, listener.settings.reserve);
            out.listen(protocol::TCP, local.port);
        }
        self.put(id.slot, Socket::Listener(Box::new(listener)));
        if !left {
            // Of another program, adopted before, when it seemed to be alone.
            self.look_again(local, id.slot);
        }
        Ok(())
    }

    pub(crate) fn adopt_connection<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        id: SocketId,
        out: &mut O,
    ) -> Result<(), Counter> {
        let slot = id.slot;
        let record = self.table.record(slot);
        let away =
            matches!(record.holder(), Some(Holder::Away | Holder::Passed)) && self.hands_over();
        let program = self.program_in(slot)?;
        let settings = Settings::load(record);
        let context = Context {
            table: &self.table,
            memory: &self.memory,
            counters: &self.counters,
            now,
        };
        let mut connection = Connection::restore(id, settings, program, &context)?;
        let (tuple, state) = (connection.tuple, connection.state());
        for ring in [
            connection.send_ring(&context),
            connection.receive_ring(&context),
        ] {
            connection.spread |= ring.tail() > KEEP_BYTES as u64;
        }
        let goes_on = state != State::Closed && self.make_way(&tuple, state, out)?;
        if goes_on {
            let path = out.path(Some(tuple.local.addr), tuple.remote.addr);
            let context = Context {
                table: &self.table,
                memory: &self.memory,
                counters: &self.counters,
                now,
            };
            connection.take_path(&path.unwrap_or(UNKNOWN_PATH), out);
            connection.resume(&context);
            self.enter_flow(&tuple, slot, out);
        } else {
            connection.tell(Events::READ_CLOSED | Events::CLOSED);
        }
        let binding = Binding::load(self.table.record(slot));
        connection.holds_port = tuple.local.port != 0;
        if connection.holds_port {
            out.use_port(protocol::TCP, tuple.local.port, false);
        }
        if let Some(bound) = binding.local {
            let others = self.bound.entry(bound.port).or_default();
            others.push((bound.addr, slot));
        }
        self.put(slot, Socket::Connection(Box::new(connection)));
        match (program, state) {
            // Its program had let go of it.
            (Program::Gone, _) if !goes_on => self.free(slot, out),
            (_, State::TimeWait) if goes_on => self.on_time_wait(now, slot, out),
            (Program::Gone, _) if away => self.adopt_away(now, id, tuple, state),
            (Program::Gone, _) => self.close_connection(now, id, out),
            (Program::Awaited(parent), State::SynReceived) => self.note_half_open(parent, id),
            (Program::Awaited(_) | Program::Attached, _) => {}
        }
        self.enqueue(slot);
        self.notice(slot);
        Ok(())
    }

    /// Whether a connection that was found may have its flow. One in TIME-WAIT may not, if another one has
    /// it: as long as its program holds it, its record stays, although the wait is over, or the peer has
    /// opened a new connection between the same ends (RFC 6191).
    fn make_way<O: Network + Ports>(
        &mut self,
        tuple: &FourTuple,
        state: State,
        out: &mut O,
    ) -> Result<bool, Counter> {
        if !is_credible(tuple, out) {
            return Err(Counter::TcpRecordEnds);
        }
        match self.demux.flow(tuple) {
            None => Ok(true),
            Some(_) if state == State::TimeWait => Ok(false),
            Some(Place::TimeWait(index)) => {
                self.end_time_wait(index, out);
                Ok(true)
            }
            Some(Place::Connection(_)) => Err(Counter::TcpRecordEnds),
        }
    }

    fn program_in(&self, slot: u32) -> Result<Program, Counter> {
        let record = self.table.record(slot);
        match record.holder() {
            Some(Holder::Attached) => Ok(Program::Attached),
            Some(Holder::Gone | Holder::Away | Holder::Passed) => Ok(Program::Gone),
            Some(Holder::Awaited) => {
                let listener = record.listener.load(Relaxed);
                let region = self.table.region_of(slot);
                let parent = self.table.slot_of(region, listener);
                let listens = listener < self.table.stride()
                    && matches!(self.sockets.get(parent as usize), Some(Socket::Listener(_)));
                match listens {
                    true => Ok(Program::Awaited(parent)),
                    false => Err(Counter::TcpRecordListener),
                }
            }
            None => Err(Counter::TcpRecordKind),
        }
    }

    /// Connections that weren't accepted wait again, in their order.
    fn line_up(&mut self, now: Instant, found: &[(u32, Found)]) {
        let mut waiting: Vec<(u64, u32, u32)> = Vec::new();
        for (slot, _) in found {
            let Some(Socket::Connection(connection)) = self.sockets.get(*slot as usize) else {
                continue;
            };
            let Program::Awaited(parent) = connection.program() else {
                continue;
            };
            if connection.state() != State::SynReceived {
                let order = self.table.record(*slot).order.load(Relaxed);
                // 0, which was never stored, comes last.
                waiting.push((order.wrapping_sub(1), *slot, parent));
            }
        }
        waiting.sort_unstable();
        for (_, slot, parent) in waiting {
            self.queue_ready(now, parent, slot);
        }
    }
}

/// If `ip` has no route at the moment, nothing leaves anyway; an ICMP error says if this is too much.
const UNKNOWN_PATH: Path = Path {
    source: IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED),
    mtu: 1_500,
    cut_bytes: 0,
};

fn look_at(record: &Record) -> Found {
    let (kind, holder) = (record.kind.load(Relaxed), record.holder.load(Relaxed));
    let known = Holder::from_number(holder).is_some();
    let state = State::from_number(record.state.load(Relaxed));
    match kind {
        // A free slot has no holder.
        0 if !known => Found::Free,
        // These are the states of one that is being opened or freed.
        1 | 2 if holder == 0 => match state {
            Some(State::Closed | State::Listen | State::SynReceived | State::TimeWait) => {
                Found::Unknown
            }
            _ => Found::Flawed,
        },
        1 if known => Found::Listener,
        2 if known && state.is_some() => Found::Other,
        _ => Found::Flawed,
    }
}

fn is_ours<O: Network>(address: IpAddr, out: &O) -> bool {
    address.is_unspecified() || out.is_local(address)
}

/// Whether there can be a connection between these ends.
fn is_credible<O: Network>(tuple: &FourTuple, out: &O) -> bool {
    let FourTuple { local, remote } = tuple;
    let named = local.port != 0 && remote.port != 0;
    let peer = !remote.addr.is_unspecified() && !remote.addr.is_multicast();
    named && peer && out.is_local(local.addr)
}

#[cfg(test)]
mod tests;
