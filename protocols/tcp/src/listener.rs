//! Sockets that wait for connection requests.
//!
//! Only so many handshakes may be under way for each ([`Listener::is_crowded`]). One more request is dropped, and an honest client
//! repeats it; unless there is a handshake that gives way: one whose SYN-ACK was sent twice, a second apart, and
//! never acknowledged. So clients that come in a burst are served as fast as they complete their handshakes, and hardly any of them is
//! reset though it believes to be connected (its acknowledgement must have been lost, and others crowd in before it has answered
//! the second SYN-ACK). Linux does much the same without SYN cookies.
//!
//! A flood from forged addresses would hold each place for a second, and leave little to others. So if half of the handshakes are
//! forsaken like that, the oldest one gives way at any age for a while: who completes a handshake before as many others
//! begin gets in, as most do.

use crate::connection::{Connection, Context, Program};
use crate::instance::{Socket, Tcp};
use crate::segment::Segment;
use crate::settings::Settings;
use crate::stalled::Stall;
use crate::state::State;
use core::sync::atomic::Ordering::Relaxed;
use skink_memory::{Holder, SocketId};
use skink_messages::{Counter, Network, Ports, SocketEvents, Waits};
use skink_time::{Duration, Instant};
use skink_wire::{Endpoint, FourTuple, protocol};
use std::collections::VecDeque;

/// A socket that waits for connection requests.
pub struct Listener {
    pub id: SocketId,
    pub local: Endpoint,
    pub settings: Settings,
    /// Others may listen on the same end.
    pub shared: bool,
    /// How many connections may wait to be accepted.
    pub backlog: usize,
    /// Established connections in order of arrival, by slot.
    pub ready: VecDeque<u32>,
    /// Those that were offered to the program and not reported as taken, in that order.
    pub offered: VecDeque<SocketId>,
    /// What the next of them has in its record to tell the order by.
    pub next_order: u64,
    /// Handshakes under way.
    pub half_open: usize,
    /// Those handshakes, the oldest first, among others that have ended: see
    /// [`Tcp::note_half_open`].
    pub handshakes: VecDeque<SocketId>,
    /// Those of them that were acknowledged in vain, in that order, among others that have ended: see [`Tcp::turn_away`].
    pub turned_away: VecDeque<SocketId>,
    /// See [`Tcp::is_flooded`].
    pub flooded_until: Option<Instant>,
    /// A READABLE event is due.
    pub notify: bool,
    /// Other stacks' owners may listen on the same socket.
    pub lent: bool,
    /// How the program that has this stack for itself waits for it, as far as that is said.
    pub waits: Waits,
    /// Whether its program accepts.
    pub stall: Stall,
    /// Its program has closed it, and it gets no new flows. What waits there is whose who listens next ([`Tcp::settle_left`]).
    pub left: bool,
    /// Nobody listened there or was about to: whoever does later is somebody else.
    pub orphaned: bool,
}

/// Handshakes that may be under way at once, at least.
const HALF_OPEN: usize = 256;

impl Listener {
    /// How many connections more may be established. As in Linux, a backlog of n admits n + 1.
    pub fn room(&self) -> usize {
        (self.backlog + 1).saturating_sub(self.ready.len())
    }

    /// Whether one more connection may be established.
    pub fn has_room(&self) -> bool {
        self.room() > 0
    }

    /// Whether as many handshakes are under way as may be.
    pub fn is_crowded(&self) -> bool {
        self.half_open >= self.backlog.max(HALF_OPEN)
    }
}

/// How long a flood of requests is taken to last once it was seen: while the oldest handshakes give way none grows so old that
/// it would be seen again.
const FLOOD: Duration = Duration::from_secs(60);

/// Fewer handshakes than these are no flood, but there may be no room for more in the program's memory.
const FEW: usize = 32;

/// How many of those that wait at closed or stalled listeners go elsewhere in one turn: each may have a whole ring to be copied, 64 KiB as a rule.
pub(crate) const LEFT_IN_A_TURN: usize = 32;

/// So often it is looked whether another process listens where something waits at a socket that was left.
const LOOK_ELSEWHERE: Duration = Duration::from_millis(50);

/// Handshakes that are looked at for one request.
const LOOKED_AT: usize = 8;

impl Connection {
    /// Nobody seems to mean to complete this handshake: our answer was sent twice, and not acknowledged.
    fn is_forsaken(&self) -> bool {
        self.retries > 0 && !self.acknowledged
    }
}

/// Handshakes that have ended are dropped from the list when it is longer than twice those that go on,
/// and this.
const LIST_SLACK: usize = 64;

impl Tcp {
    /// A handshake has begun.
    pub(crate) fn note_half_open(&mut self, parent: u32, id: SocketId) {
        let Some(Socket::Listener(listener)) = self.sockets.get_mut(parent as usize) else {
            return;
        };
        listener.half_open += 1;
        listener.handshakes.push_back(id);
        self.trim(parent, |listener| &mut listener.handshakes);
    }

    /// Takes those that have ended out of a list of handshakes, if they may be as many as the others.
    fn trim(&mut self, parent: u32, of: impl Fn(&mut Listener) -> &mut VecDeque<SocketId>) {
        let Some(Socket::Listener(listener)) = self.sockets.get_mut(parent as usize) else {
            return;
        };
        let most = 2 * listener.half_open + LIST_SLACK;
        if of(listener).len() <= most {
            return;
        }
        let mut list = core::mem::take(of(listener));
        list.retain(|id| self.is_half_open(parent, *id));
        if let Some(Socket::Listener(listener)) = self.sockets.get_mut(parent as usize) {
            *of(listener) = list;
        }
    }

    /// A segment that would complete a handshake finds no room in the accept queue. As in Linux, the peer's acknowledgement is
    /// forgotten; ours is sent again later ([`Tcp::ask_again`]).
    pub(crate) fn turn_away(&mut self, slot: u32, segment: &Segment<'_>) {
        self.counters.count(Counter::TcpDropListenOverflow);
        let Some(Socket::Connection(child)) = self.sockets.get_mut(slot as usize) else {
            return;
        };
        let (id, program) = (child.id, child.program());
        let Program::Awaited(parent) = program else {
            return;
        };
        if segment.header.ack != child.iss + 1 {
            return;
        }
        child.acknowledged = true;
        child.asked = false;
        if core::mem::replace(&mut child.turned_away, true) {
            return;
        }
        let Some(Socket::Listener(listener)) = self.sockets.get_mut(parent as usize) else {
            return;
        };
        listener.turned_away.push_back(id);
        self.trim(parent, |listener| &mut listener.turned_away);
    }

    /// There is room for so many more in the accept queue: as many that were turned away are asked to acknowledge once more. They
    /// believe to be connected, and may have nothing to say before they hear of us. Of who doesn't answer in time the next one
    /// gets the place ([`Tcp::pass_on_place`]); he may still come, but others may have come first.
    pub(crate) fn ask_again(&mut self, parent: u32, places: usize) {
        let mut left = places;
        while left > 0 {
            let Some(Socket::Listener(listener)) = self.sockets.get_mut(parent as usize) else {
                return;
            };
            if !listener.has_room() {
                return;
            }
            let Some(id) = listener.turned_away.pop_front() else {
                return;
            };
            if self.is_half_open(parent, id) {
                self.repeat_answer(id.slot);
                left -= 1;
            }
        }
    }

    /// Sends a SYN-ACK once more, to a peer that has acknowledged it.
    fn repeat_answer(&mut self, slot: u32) {
        let Some(Socket::Connection(child)) = self.sockets.get_mut(slot as usize) else {
            return;
        };
        child.turned_away = false;
        child.asked = true;
        child.syn_due = true;
        // Which begins when that leaves.
        child.deadlines.retransmit = None;
        // What made the timeouts long and the retries few was our lack of room, no silence of the peer's.
        child.backoff = child.backoff.min(1);
        child.retries = 0;
        // No poll need follow when a program takes a connection; but one follows a deadline.
        child.armed = Some(Instant::ZERO);
        self.wheel.set(slot, Instant::ZERO);
        self.enqueue(slot);
    }

    /// A handshake's timer ran out. If that was one which was asked to acknowledge again, the next one in line is asked, too: who
    /// is silent doesn't keep others out. Each passes on the place that it was asked for but once.
    pub(crate) fn pass_on_place(&mut self, slot: u32) {
        if let Some(Socket::Connection(child)) = self.sockets.get_mut(slot as usize)
            && child.retries > 0
            && core::mem::take(&mut child.asked)
            && let Program::Awaited(parent) = child.program()
        {
            self.ask_again(parent, 1);
        }
    }

    /// Forgets the oldest handshake that gives way to others. Answers whether there was one.
    pub(crate) fn give_up_oldest<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        parent: u32,
        out: &mut O,
    ) -> bool {
        let flooded = self.is_flooded(now, parent);
        for _ in 0..LOOKED_AT {
            let Some(id) = self.pop_oldest(parent) else {
                return false;
            };
            let Some(Socket::Connection(child)) = self.sockets.get(id.slot as usize) else {
                return false;
            };
            let acknowledged = child.acknowledged;
            if child.is_forsaken() || flooded && !acknowledged {
                self.counters.count(Counter::TcpDropHalfOpen);
                self.end(now, id.slot, out);
                return true;
            }
            let Some(Socket::Listener(listener)) = self.sockets.get_mut(parent as usize) else {
                return false;
            };
            if !acknowledged {
                // Those behind it are younger still.
                listener.handshakes.push_front(id);
                return false;
            }
            // It waits for room in the accept queue, and others are behind it.
            listener.handshakes.push_back(id);
        }
        false
    }

    /// Whether requests come that nobody means to complete: the list is nearly in order of age, so if the handshake in its
    /// middle is forsaken, about half of them are.
    fn is_flooded(&mut self, now: Instant, parent: u32) -> bool {
        let Some(Socket::Listener(listener)) = self.sockets.get(parent as usize) else {
            return false;
        };
        if listener.flooded_until.is_some_and(|until| now < until) {
            return true;
        }
        if listener.half_open < FEW {
            return false;
        }
        let list = &listener.handshakes;
        let mut later = list.iter().skip(list.len() / 2).take(LOOKED_AT);
        let middle = later.find(|id| self.is_half_open(parent, **id));
        let flooded = middle.is_some_and(|id| {
            matches!(self.sockets.get(id.slot as usize), Some(Socket::Connection(child))
                if child.is_forsaken())
        });
        if flooded && let Some(Socket::Listener(listener)) = self.sockets.get_mut(parent as usize) {
            listener.flooded_until = Some(now + FLOOD);
        }
        flooded
    }

    /// Takes the oldest handshake that goes on off the list.
    fn pop_oldest(&mut self, parent: u32) -> Option<SocketId> {
        loop {
            let Some(Socket::Listener(listener)) = self.sockets.get_mut(parent as usize) else {
                return None;
            };
            let id = listener.handshakes.pop_front()?;
            if self.is_half_open(parent, id) {
                return Some(id);
            }
        }
    }

    fn is_half_open(&self, parent: u32, id: SocketId) -> bool {
        matches!(self.sockets.get(id.slot as usize), Some(Socket::Connection(child))
            if child.id == id
                && child.program() == Program::Awaited(parent)
                && child.state() == State::SynReceived)
    }

    /// The listener that gets a new flow. Of several on one end, those are asked that have room, first those whose program
    /// waits for it, then those whose program accepts.
    pub(crate) fn listener_for(&self, now: Instant, tuple: &FourTuple) -> Option<u32> {
        let has_room = |slot: u32| self.has_room(slot);
        let free = |slot: u32| self.has_room(slot) && self.is_free_for_flow(now, slot);
        let accepts = |slot: u32| self.has_room(slot) && self.accepts(now, slot);
        let load = |slot: u32| self.load(slot);
        self.demux
            .listener(tuple, [&free, &accepts, &has_room], &load)
    }

    /// Connections that wait at a listener or are about to.
    fn load(&self, slot: u32) -> usize {
        let listener = self.listener(slot);
        listener.map_or(0, |it| it.waiting() + it.half_open)
    }

    pub(crate) fn has_room(&self, slot: u32) -> bool {
        let region = self.table.region_of(slot);
        matches!(self.sockets.get(slot as usize), Some(Socket::Listener(listener))
            if listener.has_room() && (listener.half_open > 0 || self.slots.has_free(region)))
    }

    /// An established connection waits to be accepted.
    pub(crate) fn queue_ready(&mut self, now: Instant, parent: u32, child: u32) {
        if let Some(Socket::Listener(listener)) = self.sockets.get_mut(parent as usize) {
            listener.ready.push_back(child);
            let order = &self.table.record(child).order;
            order.store(listener.next_order, Relaxed);
            listener.next_order = listener.next_order.wrapping_add(1).max(1);
            if !listener.notify && !listener.left && !listener.settings.reserve {
                listener.notify = true;
                self.notices.push_back(parent);
            }
        }
        self.watch(now, parent);
    }

    /// Its program doesn't listen here any more. What nobody accepted goes to another listener on the same end, or else is
    /// reset; but as long as somebody rests there, who will listen, it waits for him.
    pub(crate) fn close_listener<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        id: SocketId,
        out: &mut O,
    ) {
        let Some(Socket::Listener(listener)) = self.socket_mut(id) else {
            return;
        };
        if core::mem::replace(&mut listener.left, true) {
            return;
        }
        let local = listener.local;
        let offered = core::mem::take(&mut listener.offered);
        self.table.record(id.slot).set_holder(Holder::Gone);
        self.demux.remove_listener(now, local, id.slot);
        out.unlisten(protocol::TCP, local.port);
        if !self.is_awaited(now, local)
            && let Some(Socket::Listener(listener)) = self.socket_mut(id)
        {
            listener.orphaned = true;
        }
        for child in offered.into_iter().rev() {
            self.take_back(now, id.slot, child);
        }
        self.leave(id);
    }

    /// Whether somebody listens on an end, or is about to.
    fn is_awaited(&self, now: Instant, local: Endpoint) -> bool {
        let here = self.demux.has_listener(local) || self.demux.rests_on(local);
        here || self.expects_heirs(now)
    }

    /// At the next poll it is looked where goes what waits there: a successor has adopted the others by then.
    pub(crate) fn leave(&mut self, id: SocketId) {
        self.left.push(id);
        self.left_due = true;
    }

    /// What waits at listeners that were left goes to who listens there by now, on another stack if need be. If nobody will, it is reset.
    /// Each turn takes some.
    pub(crate) fn settle_left<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        out: &mut O,
    ) {
        let mut budget = LEFT_IN_A_TURN;
        self.left_due = false;
        for id in core::mem::take(&mut self.left) {
            let Some(Socket::Listener(listener)) = self.socket(id) else {
                continue;
            };
            let local = listener.local;
            let has_some = !listener.ready.is_empty() || listener.half_open > 0;
            let orphaned = listener.orphaned || !self.is_awaited(now, local);
            let elsewhere = self.hands_over() && out.others_listen(protocol::TCP, local.port);
            if has_some && !orphaned && !elsewhere && !self.demux.has_listener(local) {
                self.left.push(id);
                if self.hands_over() {
                    // Nobody tells when somebody listens elsewhere.
                    self.wheel.set(id.slot, now + LOOK_ELSEWHERE);
                }
                continue;
            }
            if let Some(Socket::Listener(listener)) = self.socket_mut(id) {
                listener.orphaned = orphaned;
            }
            while budget > 0
                && let Some(child) = self.next_left(id.slot)
            {
                budget -= 1;
                if self.take_as_accepted(child) {
                    continue;
                }
                let stays = !orphaned
                    && (self.pass_on(now, child, local, |it| !it.is_stalled(now), out)
                        || self.pass_on(now, child, local, |_| true, out));
                if !stays && !self.send_away(now, child, None, out) {
                    self.reset_child(now, child, out);
                }
            }
            if budget > 0 {
                self.free(id.slot, out);
            } else {
                self.leave(id);
            }
        }
    }

    /// The first one that waits at a listener, which isn't in its queue any more.
    fn next_left(&mut self, parent: u32) -> Option<u32> {
        match self.sockets.get_mut(parent as usize) {
            Some(Socket::Listener(listener)) if !listener.ready.is_empty() => {
                listener.ready.pop_front()
            }
            _ => self.pop_oldest(parent).map(|id| id.slot),
        }
    }

    /// Whether the program of a listener that was left has taken this connection before: what it said of that may come later,
    /// from a queue of its own.
    fn take_as_accepted(&mut self, child: u32) -> bool {
        let Some(Socket::Connection(connection)) = self.sockets.get(child as usize) else {
            return false;
        };
        let id = connection.id;
        let lives = !self.slots.is_abandoned(self.table.region_of(child));
        let taken = lives && self.table.is_taken(id);
        if taken {
            self.accepted(id);
        }
        taken
    }

    /// A connection that was offered, and that the program isn't known to have, waits again as the first one.
    pub(crate) fn take_back(&mut self, now: Instant, parent: u32, id: SocketId) {
        let holder = self.table.find(id).map(|record| record.holder());
        if let None | Some(Some(Holder::Attached | Holder::Gone | Holder::Away | Holder::Passed)) =
            holder
        {
            return;
        }
        self.set_program(now, id.slot, Program::Awaited(parent));
        if let Some(Socket::Listener(listener)) = self.sockets.get_mut(parent as usize) {
            listener.ready.push_front(id.slot);
        }
    }

    /// Nobody is going to accept a connection that waited at a listener that was left.
    pub(crate) fn reset_child<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        child: u32,
        out: &mut O,
    ) {
        let Some(Socket::Connection(connection)) = self.sockets.get(child as usize) else {
            return;
        };
        let state = connection.state();
        let _ = self.reset_connection(now, child, out);
        self.set_program(now, child, Program::Gone);
        match state {
            // It had ended before it was accepted.
            State::Closed | State::TimeWait => self.free(child, out),
            State::Listen
            | State::SynSent
            | State::SynReceived
            | State::Established
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait
            | State::Closing
            | State::LastAck => self.end(now, child, out),
        }
    }

    /// A connection that waits goes to a listener on `local` that is `willing` and has room: of the same program if there is
    /// one, as then its bytes stay where they are. Answers whether there was one.
    pub(crate) fn pass_on<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        child: u32,
        local: Endpoint,
        willing: impl Fn(&Listener) -> bool,
        out: &mut O,
    ) -> bool {
        let Some(Socket::Connection(connection)) = self.sockets.get(child as usize) else {
            return false;
        };
        let (id, tuple) = (connection.id, connection.tuple);
        let turned_away = connection.turned_away;
        let half_open = connection.state() == State::SynReceived;
        let region = self.table.region_of(child);
        let takes = |slot: u32| {
            !self.slots.is_abandoned(self.table.region_of(slot))
                && matches!(self.sockets.get(slot as usize), Some(Socket::Listener(listener))
                    if listener.has_room() && !(half_open && listener.is_crowded()) && willing(listener))
        };
        let is_own = |slot: u32| self.table.region_of(slot) == region;
        let own = |slot: u32| is_own(slot) && takes(slot);
        let others = |slot: u32| !is_own(slot) && takes(slot);
        let load = |slot: u32| self.load(slot);
        let Some(heir) = self.demux.listener_on(local, &tuple, own, load) else {
            let heir = self.demux.listener_on(local, &tuple, others, load);
            return heir.is_some_and(|heir| self.move_child(now, child, heir, out));
        };
        self.set_program(now, child, Program::Awaited(heir));
        match half_open {
            true => self.note_half_open(heir, id),
            false => self.queue_ready(now, heir, child),
        }
        if half_open && turned_away {
            self.repeat_answer(child);
        }
        true
    }

    pub(crate) fn set_program(&mut self, now: Instant, slot: u32, program: Program) {
        if let Some(Socket::Connection(connection)) = self.sockets.get_mut(slot as usize) {
            let context = Context {
                table: &self.table,
                memory: &self.memory,
                counters: &self.counters,
                now,
            };
            connection.set_program(program, &context);
        }
    }

    /// A connection that nobody has accepted goes to the listener `heir` of another program: it is copied to that one's memory, and
    /// adopted there. Answers whether it did; there may be no room, and who has read or written anything may not
    /// have said yet that he has accepted it.
    fn move_child<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        child: u32,
        heir: u32,
        out: &mut O,
    ) -> bool {
        let Some(Socket::Connection(connection)) = self.sockets.get(child as usize) else {
            return false;
        };
        let (tuple, half_open) = (connection.tuple, connection.state() == State::SynReceived);
        let Some(parcel) = self.table.copy_untouched(child) else {
            return false;
        };
        let Some(slot) = self.slots.take(self.table.region_of(heir)) else {
            return false;
        };
        let Some(id) = self.table.put_in(&parcel, slot) else {
            self.slots.give(slot);
            return false;
        };
        let listener = heir & (self.table.stride() - 1);
        self.table.finish_copy(&parcel, slot, Some(listener));
        self.table.leave_copied(child);
        self.leave_flow(&tuple, child, out);
        self.free(child, out);
        if let Err(reason) = self.adopt_connection(now, id, out) {
            self.counters.count(reason);
            self.give_up(now, id, reason, out);
        } else if !half_open {
            if let Some(Socket::Connection(connection)) = self.sockets.get_mut(slot as usize) {
                connection.moved = true;
            }
            self.queue_ready(now, heir, slot);
        }
        self.counters.count(Counter::TcpMoved);
        true
    }
}
