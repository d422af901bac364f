//! Connections on their way to a stack in another process.
//!
//! Where each process of a program has a stack of its own, what waits at a listener that its process closes goes to another
//! process that listens there, as it does between programs on one stack ([`Tcp::settle_left`]); so does what waits where nobody
//! accepts, if another process waits for it (`stalled`), and what a program passes to another process ([`Tcp::pass`]). A copy of
//! it, a [`Parcel`], is
//! adopted there. Until that is known, the connection stays here, *away*: it sends nothing, and keeps what comes for whoever has it
//! then ([`Tcp::take_late`]). If nobody takes it in it goes on here, waits here again, or is reset if its listener is gone.

use crate::connection::Program;
use crate::demux::Place;
use crate::instance::{Socket, Tcp};
use crate::saved::FIN_OVER;
use crate::segment::Segment;
use crate::state::State;
use skink_memory::{Holder, Parcel, SocketId};
use skink_messages::{Counter, Network, Ports, SocketEvents};
use skink_time::{Duration, Instant};
use skink_wire::tcp::Flags;
use skink_wire::{FourTuple, protocol};
use std::collections::VecDeque;

/// Who was to take a connection in, and hasn't said so for so long, won't.
const PATIENCE: Duration = Duration::from_secs(1);

/// Who has claimed a connection that was passed has adopted it after so long.
const CLAIMED: Duration = Duration::from_millis(50);

/// So often it doesn't count as time in which somebody was asked.
const MOST_SILENCES: u8 = 3;

/// When there was no room for a parcel on its way, or nobody took it in, it is tried again.
const AGAIN: Duration = Duration::from_millis(10);

/// So long somebody is asked again and again to take a connection in that has no listener here to wait at: who was asked first may
/// just have stopped to listen, and the next one, of a server whose processes are all replaced, may be about to begin.
const HOPE: Duration = Duration::from_millis(250);

/// So many parcels are on their way at a time, and so many bytes, if they are several: what takes them there has little room.
const MOST: usize = 16;
const MOST_BYTES: usize = 48 * 1024;

/// So many bytes that come for one that is away are kept at most, and as many segments as hold 64 each.
const MOST_LATE_BYTES: usize = 64 * 1024;
const MOST_LATE: usize = MOST_LATE_BYTES / 64;

/// So many requests wait at most to be brought to who listens.
const MOST_STRAY: usize = 64;

/// One of them.
struct Away {
    id: SocketId,
    flow: FourTuple,
    /// The listener where it waits if nobody takes it in; none if that was left.
    home: Option<SocketId>,
    /// A program has passed it to another process, which may not look for it for any time.
    passed: bool,
    /// When its parcel left, and its size in bytes.
    left: Option<(Instant, usize)>,
    /// If nobody takes it in, others are asked until then.
    hopes: Instant,
    /// How often nobody has said anything.
    silences: u8,
    /// By which a word about it is told from one about an earlier time. Whose process has died takes any.
    serial: Option<u32>,
    /// What has come since.
    late: Vec<Vec<u8>>,
}

impl Away {
    /// When its parcel left, if somebody is to say at once whether it was taken in.
    fn awaited(&self) -> Option<(Instant, usize)> {
        self.left.filter(|_| !self.passed)
    }

    /// Since when nobody knows whose it is, if it is to be asked for that.
    fn asks_since(&self) -> Option<Instant> {
        let asks = self.passed && self.serial.is_none();
        self.left.filter(|_| asks).map(|(since, _)| since)
    }
}

/// Until when others are asked, and how many silences count already. Of those whose handshake isn't over there may be thousands, which
/// nobody has room for.
fn patience_for(state: State, now: Instant) -> (Instant, u8) {
    match state {
        State::SynReceived => (now, MOST_SILENCES),
        _ => (now + HOPE, 0),
    }
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
    /// Segments of the one that went last, for who has it now.
    late: VecDeque<Vec<u8>>,
    /// Requests for others' listeners.
    stray: VecDeque<(FourTuple, Vec<u8>)>,
    /// What is looked at was brought here: nobody else is to have it, or two that don't listen on its address would never be rid of it.
    brought: bool,
}

impl HandedOver {
    pub fn next_deadline(&self) -> Option<Instant> {
        let left = self.list.iter().filter_map(Away::awaited);
        let first = left.map(|(since, _)| since + PATIENCE).min();
        let questions = self.list.iter().filter_map(Away::asks_since);
        let question = questions.map(|since| since + CLAIMED).min();
        let all = [first, question, self.again];
        all.into_iter().flatten().min()
    }

    /// Whether a parcel can leave, of which nothing else tells.
    fn owes(&self) -> bool {
        let waits = self.list.iter().any(|away| away.left.is_none());
        self.again.is_none() && waits && self.under_way().0 == 0
    }

    fn under_way(&self) -> (usize, usize) {
        let left = self.list.iter().filter_map(Away::awaited);
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
        let (hopes, silences) = patience_for(connection.state(), now);
        let elsewhere = out.others_listen(protocol::TCP, flow.local.port);
        // What we send to ourselves reaches nobody else.
        if !enabled || !elsewhere || out.is_local(flow.remote.addr) {
            return false;
        }
        self.leave_for_away(now, child, Holder::Away);
        self.handed_over.list.push_back(Away {
            id,
            flow,
            home,
            passed: false,
            left: None,
            hopes,
            silences,
            serial: Some(0),
            late: Vec::new(),
        });
        true
    }

    /// A connection was away when the process ended whose sockets are adopted: it is offered again. If another stack has taken it in
    /// meanwhile, whoever brings it there knows, and says so.
    pub(crate) fn adopt_away(&mut self, now: Instant, id: SocketId, flow: FourTuple, state: State) {
        let (hopes, silences) = patience_for(state, now);
        let holder = self.table.record(id.slot).holder();
        let holder = holder.unwrap_or(Holder::Away);
        let passed = holder == Holder::Passed;
        self.leave_for_away(now, id.slot, holder);
        self.handed_over.list.push_back(Away {
            id,
            flow,
            home: None,
            passed,
            left: passed.then_some((now, 0)),
            hopes,
            silences,
            serial: None,
            late: Vec::new(),
        });
    }

    /// Takes a connection that a program had passed to another process before it died: it is to be asked whose it is now, and
    /// [`Tcp::on_handed_over`] to be told.
    pub fn take_question(&mut self, now: Instant) -> Option<FourTuple> {
        let mut list = self.handed_over.list.iter_mut();
        let asks = |away: &&mut Away| {
            let since = away.asks_since();
            since.is_some_and(|since| now >= since + CLAIMED)
        };
        let away = list.find(asks)?;
        // If nobody answers: again.
        away.left = Some((now + PATIENCE, 0));
        Some(away.flow)
    }

    fn leave_for_away(&mut self, now: Instant, slot: u32, holder: Holder) {
        if let Some(Socket::Connection(connection)) = self.sockets.get_mut(slot as usize) {
            connection.away = true;
            // Who has it then makes its peer say how things stand, as does this one if it comes back.
            connection.ack_due = false;
            connection.probe_due = false;
            connection.syn_due = false;
            connection.deadlines = Default::default();
            connection.armed = None;
        }
        self.wheel.cancel(slot);
        self.set_program(now, slot, Program::Gone);
        self.table.record(slot).set_holder(holder);
    }

    /// Whether a connection can go to another process's stack: not before its handshake is over, or once nothing of it is left, nor if it
    /// leads to ourselves, is away already, or nobody brings it anywhere.
    pub fn may_pass<O: Network>(&self, id: SocketId, out: &O) -> bool {
        let Some(Socket::Connection(connection)) = self.socket(id) else {
            return false;
        };
        connection.state().is_synchronized()
            && !connection.away
            && self.hands_over()
            && !out.is_local(connection.tuple.remote.addr)
    }

    /// Whether the connection of this flow is on its way to another stack.
    pub fn has_away_flow(&self, flow: &FourTuple) -> bool {
        self.handed_over.list.iter().any(|away| away.flow == *flow)
    }

    /// Whether a connection is on its way to another stack.
    pub fn is_away(&self, id: SocketId) -> bool {
        matches!(self.socket(id), Some(Socket::Connection(connection)) if connection.away)
    }

    /// A program passes its connection to another process, whose stack adopts it from this ([`Tcp::adopt_passed`]). It is away, and no
    /// longer the program's, until [`Tcp::on_handed_over`] tells what has become of it. `None`, and nothing happens, if it can't leave
    /// ([`Tcp::may_pass`]). `serial` is above 0, and another one each time.
    pub fn pass<O: Network>(
        &mut self,
        now: Instant,
        id: SocketId,
        serial: u32,
        out: &O,
    ) -> Option<Parcel> {
        if !self.may_pass(id, out) {
            return None;
        }
        let parcel = self.table.copy_out(id.slot)?;
        let flow = parcel.four_tuple();
        self.leave_for_away(now, id.slot, Holder::Passed);
        self.handed_over.list.push_back(Away {
            id,
            flow,
            home: None,
            passed: true,
            left: Some((now, 0)),
            hopes: now,
            silences: 0,
            serial: Some(serial),
            late: Vec::new(),
        });
        Some(parcel)
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
            let parcel = self.table.copy_untouched(away.id.slot);
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
    ///
    /// `serial` is what [`Tcp::pass`] was told, 0 of one that nobody has accepted; `None` stands for any.
    pub fn on_handed_over<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        flow: &FourTuple,
        serial: Option<u32>,
        taken: bool,
        out: &mut O,
    ) {
        let mut list = self.handed_over.list.iter();
        let is_it = |away: &Away| {
            let same = away.serial.is_none() || serial.is_none() || away.serial == serial;
            away.flow == *flow && away.left.is_some() && same
        };
        let found = list.position(is_it);
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
            passed,
            hopes,
            silences,
            serial,
            late,
            ..
        } = away;
        let could_stay = home.is_some();
        let home = home.filter(|home| {
            let listener = self.listener(home.slot);
            listener.is_some_and(|listener| listener.id == *home && !listener.left)
        });
        let elsewhere = out.others_listen(protocol::TCP, flow.local.port);
        let hopes_on = match home {
            // Its listener may have been closed meanwhile: then it may go to who doesn't wait, too.
            None if could_stay => elsewhere,
            None => now < hopes,
            Some(_) => false,
        };
        if !taken && !passed && hopes_on {
            self.handed_over.list.push_back(Away {
                id,
                flow,
                home,
                passed,
                left: None,
                hopes: if could_stay { now + HOPE } else { hopes },
                silences,
                serial,
                late,
            });
            if !could_stay {
                self.handed_over.again = Some(now + AGAIN);
            }
            return;
        }
        let abandoned = self.slots.is_abandoned(self.table.region_of(id.slot));
        let Some(Socket::Connection(connection)) = self.socket_mut(id) else {
            return;
        };
        connection.away = false;
        if taken {
            self.table.leave_copied(id.slot);
            self.leave_flow(&flow, id.slot, out);
            self.free(id.slot, out);
            self.counters.count(Counter::TcpMoved);
            self.handed_over.late = late.into();
            return;
        }
        if passed && abandoned {
            self.close_connection(now, id, out);
            self.enqueue(id.slot);
        } else if passed {
            connection.hurry(now);
            self.set_program(now, id.slot, Program::Attached);
            self.enqueue(id.slot);
        } else if let Some(home) = home {
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
            return self.reset_child(now, id.slot, out);
        }
        for segment in late {
            self.on_late(now, &flow, &segment, out);
        }
    }

    /// A segment of a connection that is away.
    #[cold]
    pub(crate) fn keep_late(&mut self, id: SocketId, segment: &Segment<'_>) {
        let mut list = self.handed_over.list.iter_mut();
        if let Some(away) = list.find(|away| away.id == id) {
            let kept: usize = away.late.iter().map(Vec::len).sum();
            let bytes = segment.to_bytes();
            if away.late.is_empty() && segment.has(Flags::ACK) {
                // Its handshake isn't over here only because it is away.
                away.hopes = away.hopes.max(segment.arrived + HOPE);
            }
            if away.late.len() < MOST_LATE && kept + bytes.len() <= MOST_LATE_BYTES {
                return away.late.push(bytes);
            }
        }
        self.counters.count(Counter::TcpDropMoved);
    }

    /// A request came here, as nobody listens any more, for one who listens on another stack. Answers whether it is brought there.
    #[cold]
    pub(crate) fn send_on(&mut self, segment: &Segment<'_>) -> bool {
        let HandedOver {
            stray,
            enabled,
            brought,
            ..
        } = &mut self.handed_over;
        let has_room = *enabled && !*brought && stray.len() < MOST_STRAY;
        if has_room {
            stray.push_back((segment.tuple, segment.to_bytes()));
        }
        has_room
    }

    /// A request, header and data, which is to be brought to a stack where somebody listens ([`Tcp::on_late`]).
    pub fn take_stray(&mut self) -> Option<(FourTuple, Vec<u8>)> {
        self.handed_over.stray.pop_front()
    }

    /// A segment, header and data, of the connection of which was told last that another stack has it, for [`Tcp::on_late`] there: it
    /// came while the connection was away.
    pub fn take_late(&mut self) -> Option<Vec<u8>> {
        self.handed_over.late.pop_front()
    }

    /// A segment of `flow` came to another stack while the connection was on its way from there; it was checked there.
    pub fn on_late<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        flow: &FourTuple,
        segment: &[u8],
        out: &mut O,
    ) {
        let mut segment = match Segment::of_late(now, flow, segment) {
            Ok(segment) => segment,
            Err(reason) => return self.counters.count(reason),
        };
        // Segments that were sent after it may have come here before it: it isn't an old one for that (RFC 7323 section 5.3).
        if let Some(stamp) = &mut segment.options.timestamps
            && let Some(Place::Connection(slot)) = self.demux.flow(flow)
            && let Some(Socket::Connection(connection)) = self.sockets.get(slot as usize)
            && !connection.doubts_stamps
            && (stamp.value.wrapping_sub(connection.ts_recent) as i32) < 0
        {
            stamp.value = connection.ts_recent;
        }
        self.handed_over.brought = true;
        self.on_segment(now, &segment, out);
        self.handed_over.brought = false;
    }

    /// Those that nobody has taken in for too long, or nobody could any more.
    pub(crate) fn give_up_away<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        out: &mut O,
    ) {
        self.handed_over.again.take_if(|again| *again <= now);
        let mut index = 0;
        while let Some(away) = self.handed_over.list.get_mut(index) {
            let awaited = away.awaited();
            let silent = awaited.is_some_and(|(since, _)| now >= since + PATIENCE);
            if silent && away.silences < MOST_SILENCES {
                away.silences += 1;
                away.hopes = now + HOPE;
            }
            let over = match away.left {
                Some(_) => silent,
                None => {
                    let elsewhere = out.others_listen(protocol::TCP, away.flow.local.port);
                    !elsewhere && now >= away.hopes.max(self.handed_over.heirs_until)
                }
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
        let Some(SocketId { slot, .. }) = self.adopt_parcel(now, parcel, heir, true, out) else {
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

    /// Adopts a connection that a program in another process has passed to this stack's program ([`Tcp::pass`]). `None`, and nothing
    /// has happened, if that can't be.
    pub fn adopt_passed<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        parcel: &Parcel,
        out: &mut O,
    ) -> Option<SocketId> {
        let state = State::from_number(parcel.state())?;
        if !state.is_synchronized() {
            return None;
        }
        // It comes back before it was told here that it had arrived elsewhere.
        let flow = parcel.four_tuple();
        self.on_handed_over(now, &flow, None, true, out);
        let adopted = self.adopt_parcel(now, parcel, 0, false, out);
        while let Some(segment) = self.take_late() {
            self.on_late(now, &flow, &segment, out);
        }
        adopted
    }

    /// Adopts a connection in the region of the slot `beside`, where it waits to be accepted, or for a program.
    fn adopt_parcel<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        parcel: &Parcel,
        beside: u32,
        waits: bool,
        out: &mut O,
    ) -> Option<SocketId> {
        let Some(slot) = self.slots.take(self.table.region_of(beside)) else {
            self.counters.count(Counter::TcpDropNoMemory);
            return None;
        };
        let Some(id) = self.table.put_in(parcel, slot) else {
            self.slots.give(slot);
            self.counters.count(Counter::TcpRecordRings);
            return None;
        };
        let listener = beside & (self.table.stride() - 1);
        self.table
            .finish_copy(parcel, slot, waits.then_some(listener));
        if let Err(reason) = self.adopt_connection(now, id, out) {
            self.counters.count(reason);
            self.forget(slot);
            return None;
        }
        Some(id)
    }
}

#[cfg(test)]
mod tests;
