//! Connections that nobody has accepted, on their way to a stack in another process.
//!
//! Where each process of a program has a stack of its own, what waits at a listener that its process closes goes to another
//! process that listens there, as it does between programs on one stack ([`Tcp::settle_left`]): as a [`Parcel`], which that one
//! adopts. Until its segments go there, they go on coming here, and are left unanswered.

use crate::instance::{Socket, Tcp};
use crate::saved::FIN_OVER;
use crate::state::State;
use skink_memory::Parcel;
use skink_messages::{Counter, Network, Ports, SocketEvents};
use skink_time::{Duration, Instant};
use skink_wire::{FourTuple, protocol};
use std::collections::VecDeque;

/// After this time whoever has taken a connection in gets its segments.
const ON_THEIR_WAY: Duration = Duration::from_secs(1);

/// So many may be on their way at a time; each may have 64 KiB with it until it is fetched.
const MOST: usize = 1024;

/// What was handed over.
#[derive(Default)]
pub(crate) struct HandedOver {
    /// Somebody fetches parcels.
    enabled: bool,
    parcels: VecDeque<Parcel>,
    /// The oldest first, and since when. Each uses its port, or its segments would come to others before they know of it.
    flows: VecDeque<(FourTuple, Instant)>,
}

impl HandedOver {
    pub fn has(&self, flow: &FourTuple) -> bool {
        self.flows.iter().any(|(other, _)| other == flow)
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        self.flows.front().map(|(_, since)| *since + ON_THEIR_WAY)
    }

    #[cfg(test)]
    pub fn ports(&self) -> impl Iterator<Item = u16> {
        self.flows.iter().map(|(flow, _)| flow.local.port)
    }
}

impl Tcp {
    /// From now on [`Tcp::take_parcel`] is called after each poll, and what it answers brought to other stacks on the NIC.
    pub fn set_hands_over(&mut self) {
        self.handed_over.enabled = true;
    }

    /// A connection that is to be brought to another stack, whose port others listen on.
    pub fn take_parcel(&mut self) -> Option<Parcel> {
        self.handed_over.parcels.pop_front()
    }

    /// A connection that waited at a listener which was left, and is in its queue no more, goes to another stack, if one listens
    /// there. Answers whether it does.
    pub(crate) fn send_away<O: Ports>(&mut self, now: Instant, child: u32, out: &mut O) -> bool {
        let Some(Socket::Connection(connection)) = self.sockets.get_mut(child as usize) else {
            return false;
        };
        let flow = connection.tuple;
        let port = flow.local.port;
        let fits = self.handed_over.enabled && self.handed_over.flows.len() < MOST;
        if !fits || !connection.holds_port || !out.others_listen(protocol::TCP, port) {
            return false;
        }
        let Some(parcel) = self.table.copy_out(child) else {
            return false;
        };
        connection.holds_port = false;
        self.table.leave_copied(child);
        self.leave_flow(&flow, child, out);
        self.free(child, out);
        self.handed_over.parcels.push_back(parcel);
        self.handed_over.flows.push_back((flow, now));
        self.counters.count(Counter::TcpMoved);
        true
    }

    /// Adopts a connection that another stack has handed over, to be accepted by who listens here. Answers whether there is somebody;
    /// if not, the peer is told that it is over.
    pub fn take_in<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        parcel: &Parcel,
        out: &mut O,
    ) -> bool {
        /// A slot that is no listener's, in any region.
        const NOBODY: u32 = u32::MAX;
        let over = parcel.fin() & FIN_OVER != 0;
        match State::from_number(parcel.state()) {
            None | Some(State::Listen | State::SynSent) => {
                self.counters.count(Counter::TcpRecordKind);
                return false;
            }
            Some(State::Closed) if !over => {
                self.counters.count(Counter::TcpRecordKind);
                return false;
            }
            Some(_) => {}
        }
        let heir = self.listener_for(now, &parcel.four_tuple());
        let region = heir.map_or(0, |heir| self.table.region_of(heir));
        let Some(slot) = self.slots.take(region) else {
            self.counters.count(Counter::TcpDropNoMemory);
            return false;
        };
        let Some(id) = self.table.put_in(parcel, slot) else {
            self.slots.give(slot);
            self.counters.count(Counter::TcpRecordRings);
            return false;
        };
        let listener = heir.map_or(NOBODY, |heir| heir & (self.table.stride() - 1));
        self.table.finish_copy(parcel, slot, listener);
        if let Err(reason) = self.adopt_connection(now, id, out) {
            self.counters.count(reason);
            self.give_up(now, id, reason, out);
            return false;
        }
        let Some(heir) = heir else {
            return false;
        };
        if let Some(Socket::Connection(connection)) = self.sockets.get_mut(slot as usize)
            && connection.state() != State::SynReceived
        {
            connection.moved = true;
            self.queue_ready(now, heir, slot);
        }
        true
    }

    /// Those of them that have arrived, or haven't for so long.
    pub(crate) fn forget_handed_over<O: Ports>(&mut self, now: Instant, out: &mut O) {
        while self.handed_over.next_deadline().is_some_and(|at| at <= now)
            && let Some((flow, _)) = self.handed_over.flows.pop_front()
        {
            out.release_port(protocol::TCP, flow.local.port);
        }
    }
}

#[cfg(test)]
mod tests;
