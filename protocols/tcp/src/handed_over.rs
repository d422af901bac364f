//! Connections that nobody has accepted, on their way to a stack in another process.
//!
//! Where each process of a program has a stack of its own, what waits at a listener that its process closes goes to another
//! process that listens there, as it does between programs on one stack ([`Tcp::settle_left`]); so does what waits where nobody
//! accepts, if another process waits for it (`stalled`). A copy of it, a [`Parcel`], is
//! adopted there. Until that is known, the connection stays here, *away*: it sends nothing, and takes nothing in. If nobody takes it in
//! it waits here again, or is reset if its listener is gone.

use crate::connection::Program;
use crate::instance::{Socket, Tcp};
use crate::saved::FIN_OVER;
use crate::state::State;
use skink_memory::{Parcel, SocketId};
use skink_messages::{Counter, Network, Ports, SocketEvents};
use skink_time::{Duration, Instant};
use skink_wire::{FourTuple, protocol};
use std::collections::VecDeque;

/// Who was to take a connection in, and hasn't said so for so long, won't.
const PATIENCE: Duration = Duration::from_secs(1);

/// When there was no room for a parcel on its way, or nobody took it in, it is tried again.
const AGAIN: Duration = Duration::from_millis(10);

/// So often somebody else is asked to take a connection in, if it has no listener here to wait at: who was asked first may just have
/// stopped to listen.
const MOST_TIMES: u8 = 8;

/// So many parcels are on their way at a time, and so many bytes, if they are several: what takes them there has little room.
const MOST: usize = 16;
const MOST_BYTES: usize = 48 * 1024;

/// One of them.
struct Away {
    id: SocketId,
    flow: FourTuple,
    /// The listener where it waits if nobody takes it in; none if that was left.
    home: Option<SocketId>,
    /// When its parcel left, and its size in bytes.
    left: Option<(Instant, usize)>,
    /// How often it has been taken in by nobody.
    failed: u8,
}

/// All of them, in order.
#[derive(Default)]
pub(crate) struct HandedOver {
    /// Somebody fetches parcels.
    enabled: bool,
    list: VecDeque<Away>,
    /// There was no room for a parcel: not before then.
    again: Option<Instant>,
    /// Until then somebody may begin to listen elsewhere.
    heirs_until: Instant,
}

impl HandedOver {
    pub fn next_deadline(&self) -> Option<Instant> {
        let left = self.list.iter().filter_map(|away| away.left);
        let first = left.map(|(since, _)| since + PATIENCE).min();
        first.into_iter().chain(self.again).min()
    }

    /// Whether a parcel can leave, of which nothing else tells.
    fn owes(&self) -> bool {
        self.again.is_none() && !self.list.is_empty() && self.under_way().0 == 0
    }

    fn under_way(&self) -> (usize, usize) {
        let left = self.list.iter().filter_map(|away| away.left);
        left.fold((0, 0), |(count, all), (_, bytes)| (count + 1, all + bytes))
    }
}

impl Tcp {
    /// From now on [`Tcp::take_parcel`] is called after each poll, and what it answers brought to other stacks on the NIC.
    pub fn set_hands_over(&mut self) {
        self.handed_over.enabled = true;
    }

    pub(crate) fn hands_over(&self) -> bool {
        self.handed_over.enabled
    }

    /// What waits at listeners that are closed before then waits for somebody who listens elsewhere, for so long.
    pub fn expect_heirs(&mut self, until: Instant) {
        self.handed_over.heirs_until = until;
    }

    pub(crate) fn expects_heirs(&self, now: Instant) -> bool {
        now < self.handed_over.heirs_until
    }

    /// Whether [`Tcp::on_handed_over`] may be due: what is known of that is to be told before the next poll.
    pub fn has_away(&self) -> bool {
        !self.handed_over.list.is_empty()
    }

    /// Whether [`Tcp::take_parcel`] is to be called soon, whenever the next poll would be.
    pub fn owes_parcels(&self) -> bool {
        self.handed_over.owes()
    }

    /// A connection that waited at a listener, and is in its queue no more, goes to another stack, if one listens there; if that fails it
    /// waits again at `home`, or is reset if that is gone. Answers whether it is tried.
    pub(crate) fn send_away<O: Network + Ports>(
        &mut self,
        now: Instant,
        child: u32,
        home: Option<SocketId>,
        out: &mut O,
    ) -> bool {
        let enabled = self.hands_over();
        let Some(Socket::Connection(connection)) = self.sockets.get_mut(child as usize) else {
            return false;
        };
        let (id, flow) = (connection.id, connection.tuple);
        let elsewhere = out.others_listen(protocol::TCP, flow.local.port);
        // What we send to ourselves reaches nobody else.
        if !enabled || !elsewhere || out.is_local(flow.remote.addr) {
            return false;
        }
        connection.away = true;
        connection.deadlines = Default::default();
        connection.armed = None;
        self.wheel.cancel(child);
        self.set_program(now, child, Program::Gone);
        self.handed_over.list.push_back(Away {
            id,
            flow,
            home,
            left: None,
            failed: 0,
        });
        true
    }

    /// The next connection that is to be brought to another stack, whose port others listen on, and whether it had better stay here
    /// than go to one whose program doesn't wait for it. [`Tcp::on_handed_over`] follows, or [`Tcp::put_back`].
    pub fn take_parcel(&mut self, now: Instant) -> Option<(Parcel, bool)> {
        let (count, bytes) = self.handed_over.under_way();
        if self.handed_over.again.is_some_and(|again| now < again) || count >= MOST {
            return None;
        }
        self.handed_over.again = None;
        for away in &mut self.handed_over.list {
            if away.left.is_some() {
                continue;
            }
            let parcel = self.table.copy_out(away.id.slot);
            let size = parcel.as_ref().map_or(0, Parcel::len);
            if count > 0 && bytes + size > MOST_BYTES {
                return None;
            }
            away.left = Some((now, size));
            // One that can't be copied isn't taken in by anybody.
            if let Some(parcel) = parcel {
                return Some((parcel, away.home.is_some()));
            }
        }
        None
    }

    /// A parcel couldn't leave.
    pub fn put_back(&mut self, now: Instant, flow: &FourTuple) {
        self.handed_over.again = Some(now + AGAIN);
        let mut list = self.handed_over.list.iter_mut();
        if let Some(away) = list.find(|away| away.flow == *flow) {
            away.left = None;
        }
    }

    /// Another stack has taken a connection in, or nobody will. Nothing happens if it isn't away.
    pub fn on_handed_over<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        flow: &FourTuple,
        taken: bool,
        out: &mut O,
    ) {
        let mut list = self.handed_over.list.iter();
        let found = list.position(|away| away.flow == *flow && away.left.is_some());
        if let Some(index) = found {
            self.end_away(now, index, taken, out);
        }
    }

    fn end_away<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        index: usize,
        taken: bool,
        out: &mut O,
    ) {
        let Some(away) = self.handed_over.list.remove(index) else {
            return;
        };
        let Away {
            id,
            flow,
            home,
            failed,
            ..
        } = away;
        let could_stay = home.is_some();
        let home = home.filter(|home| {
            let listener = self.listener(home.slot);
            listener.is_some_and(|listener| listener.id == *home && !listener.left)
        });
        // Of those whose handshake isn't over there may be thousands, which nobody has room for.
        let is_half_open = matches!(
            self.socket(id),
            Some(Socket::Connection(it)) if it.state() == State::SynReceived
        );
        let most = if is_half_open { 0 } else { MOST_TIMES };
        if !taken
            && home.is_none()
            && (could_stay || failed < most)
            && out.others_listen(protocol::TCP, flow.local.port)
        {
            // If its listener was closed meanwhile, it may go to who doesn't wait, too.
            self.handed_over.list.push_back(Away {
                id,
                flow,
                home,
                left: None,
                failed: failed.saturating_add(1),
            });
            if !could_stay {
                self.handed_over.again = Some(now + AGAIN);
            }
            return;
        }
        let Some(Socket::Connection(connection)) = self.socket_mut(id) else {
            return;
        };
        connection.away = false;
        if taken {
            self.table.leave_copied(id.slot);
            self.leave_flow(&flow, id.slot, out);
            self.free(id.slot, out);
            self.counters.count(Counter::TcpMoved);
        } else if let Some(home) = home {
            // What its peer has sent meanwhile was dropped.
            connection.hurry(now);
            self.set_program(now, id.slot, Program::Awaited(home.slot));
            if let Some(listener) = self.listener_mut(home.slot) {
                listener.ready.push_front(id.slot);
            }
            self.enqueue(id.slot);
            self.tell_again(home.slot);
            self.watch(now, home.slot);
            self.wheel.set(home.slot, now + AGAIN);
        } else {
            self.reset_child(now, id.slot, out);
        }
    }

    /// Those that nobody has taken in for too long, or nobody could any more.
    pub(crate) fn give_up_away<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        out: &mut O,
    ) {
        self.handed_over.again.take_if(|again| *again <= now);
        let mut index = 0;
        while let Some(away) = self.handed_over.list.get(index) {
            let over = match away.left {
                Some((since, _)) => now >= since + PATIENCE,
                None => !out.others_listen(protocol::TCP, away.flow.local.port),
            };
            match over {
                true => self.end_away(now, index, false, out),
                false => index += 1,
            }
        }
    }

    /// Adopts a connection that another stack has handed over, to be accepted by who listens here. Answers whether that is done; if not,
    /// nothing has happened, and its stack goes on to be the one that has it.
    pub fn take_in<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        parcel: &Parcel,
        out: &mut O,
    ) -> bool {
        let over = parcel.fin() & FIN_OVER != 0;
        let sound = match State::from_number(parcel.state()) {
            None | Some(State::Listen | State::SynSent) => false,
            Some(State::Closed) => over,
            Some(_) => true,
        };
        let flow = parcel.four_tuple();
        // It was given to who waits here, who does so still if it isn't taken in.
        self.shown_due.push(flow.local.port);
        let heir = self.listener_for(now, &flow);
        let Some(heir) = heir.filter(|heir| sound && self.has_room(*heir)) else {
            return false;
        };
        let Some(slot) = self.slots.take(self.table.region_of(heir)) else {
            self.counters.count(Counter::TcpDropNoMemory);
            return false;
        };
        let Some(id) = self.table.put_in(parcel, slot) else {
            self.slots.give(slot);
            self.counters.count(Counter::TcpRecordRings);
            return false;
        };
        let listener = heir & (self.table.stride() - 1);
        self.table.finish_copy(parcel, slot, listener);
        if let Err(reason) = self.adopt_connection(now, id, out) {
            self.counters.count(reason);
            self.forget(slot);
            return false;
        }
        if let Some(Socket::Connection(connection)) = self.sockets.get_mut(slot as usize)
            && connection.state() != State::SynReceived
        {
            connection.moved = true;
            self.queue_ready(now, heir, slot);
        }
        true
    }
}

#[cfg(test)]
mod tests;
