use crate::demux::Demux;
use crate::send::{Budget, most_datagrams};
use crate::socket::{Address, FAILED, Socket};
use core::sync::atomic::Ordering::Relaxed;
use skink_memory::{FairQueue, Holder, RegionSlots, SocketId, SocketKind, SocketTable};
use skink_messages::{
    Component, Counters, Events, Full, Network, Ports, Progress, SocketError, SocketEvent,
    SocketEvents, UdpInput, UdpRequest,
};
use skink_time::Instant;
use skink_wire::protocol;
use std::collections::VecDeque;
use std::time::Duration;

/// When to try again at the latest after the output was full.
const RETRY: Duration = Duration::from_millis(1);

/// The UDP component; see the crate's description.
pub struct Udp {
    pub(crate) table: SocketTable,
    pub(crate) counters: Counters,
    pub(crate) slots: RegionSlots,
    /// By slot; as long as the highest slot ever used.
    pub(crate) sockets: Vec<Option<Socket>>,
    pub(crate) demux: Demux,
    /// State of the generator that ephemeral ports are chosen with.
    pub(crate) random: u64,
    /// Slots with something in their send ring that didn't get out yet, each once.
    pub(crate) sending: FairQueue,
    /// What requests have sent at once since the last poll, as [`Budget`] counts; no more than one turn.
    given: u64,
    /// Slots with events to deliver, each once.
    with_events: VecDeque<u32>,
    /// When to poll if nothing else happens.
    wake_up: Option<Instant>,
    /// The last packet was for no socket.
    pub(crate) unreachable: bool,
}

impl Udp {
    /// A component with the sockets of `table`, which must be empty ([`Udp::adopt_region`] takes a region
    /// that isn't). Ephemeral ports and the order of the hash tables depend on `seed`.
    pub fn new(seed: u64, table: SocketTable, counters: Counters) -> Udp {
        Udp {
            sending: FairQueue::new(&table),
            given: 0,
            slots: RegionSlots::new(&table),
            table,
            counters,
            sockets: Vec::new(),
            demux: Demux::new(seed),
            random: seed,
            with_events: VecDeque::new(),
            wake_up: None,
            unreachable: false,
        }
    }

    /// The sockets' records and rings.
    pub fn table(&self) -> &SocketTable {
        &self.table
    }

    /// Opens a socket in the first region, as yet without an address.
    ///
    /// # Errors
    /// As [`Udp::open_in`].
    pub fn open(&mut self) -> Result<SocketId, SocketError> {
        self.open_in(0)
    }

    /// As [`Udp::open`], in this region.
    ///
    /// # Errors
    /// [`SocketError::NoBuffers`] if the region has no slot left, or was abandoned.
    pub fn open_in(&mut self, region: u32) -> Result<SocketId, SocketError> {
        self.open_for(region, 0)
    }

    /// As [`Udp::open_in`], for the program's call with this serial number: a successor finds the socket
    /// by it ([`Udp::opened`]). 0 stands for no number.
    ///
    /// # Errors
    /// As [`Udp::open_in`].
    pub fn open_for(&mut self, region: u32, serial: u32) -> Result<SocketId, SocketError> {
        let slot = self.slots.take(region).ok_or(SocketError::NoBuffers)?;
        let id = self.table.open_slot(slot, SocketKind::Udp);
        let record = self.table.record(slot);
        record
            .serial
            .store(serial, std::sync::atomic::Ordering::Relaxed);
        record.set_holder(Holder::Attached);
        self.put(id, Socket::new(id));
        Ok(id)
    }

    /// Whether the last packet handed in was for a port that nobody has: then the sender of it is
    /// to be told with an ICMP error that quotes it (RFC 1122 4.1.3.1). Ask after each packet.
    pub fn take_unreachable(&mut self) -> bool {
        std::mem::take(&mut self.unreachable)
    }

    pub(crate) fn put(&mut self, id: SocketId, socket: Socket) {
        let index = id.slot as usize;
        if index >= self.sockets.len() {
            self.sockets.resize_with(index + 1, || None);
            // Each socket is in it once at most: it never grows on the data path.
            self.with_events.reserve(index + 1 - self.with_events.len());
        }
        if let Some(place) = self.sockets.get_mut(index) {
            *place = Some(socket);
        }
    }

    pub(crate) fn socket(&mut self, slot: u32) -> Option<&mut Socket> {
        self.sockets.get_mut(slot as usize)?.as_mut()
    }

    /// The socket that `id` names, unless it was closed.
    pub(crate) fn find(&mut self, id: SocketId) -> Option<&mut Socket> {
        self.socket(id.slot)
            .filter(|socket| socket.generation == id.generation && !socket.closing)
    }

    /// Notes an event, to be delivered with the next poll.
    pub(crate) fn note(&mut self, slot: u32, events: Events) {
        let Some(socket) = self.sockets.get_mut(slot as usize).and_then(Option::as_mut) else {
            return;
        };
        if socket.closing {
            return;
        }
        if socket.events.is_empty() {
            self.with_events.push_back(slot);
        }
        socket.events |= events;
        if events.contains(Events::ERROR) {
            let state = &self.table.record(slot).state;
            state.store(state.load(Relaxed) | FAILED, Relaxed);
        }
        self.wake_at(Instant::ZERO);
    }

    pub(crate) fn wake_at(&mut self, at: Instant) {
        self.wake_up = Some(self.wake_up.map_or(at, |before| before.min(at)));
    }

    fn deliver_events(&mut self, out: &mut (impl SocketEvents + ?Sized)) -> Result<(), Full> {
        while let Some(&slot) = self.with_events.front() {
            if let Some(socket) = self.sockets.get_mut(slot as usize).and_then(Option::as_mut) {
                let generation = socket.generation;
                out.udp_event(SocketEvent {
                    socket: SocketId { slot, generation },
                    events: socket.events,
                })?;
                let told = core::mem::replace(&mut socket.events, Events::empty());
                if told.contains(Events::ERROR) {
                    // A successor mustn't tell it once more, long after.
                    let state = &self.table.record(slot).state;
                    state.store(state.load(Relaxed) & !FAILED, Relaxed);
                }
            }
            self.with_events.pop_front();
        }
        Ok(())
    }

    #[inline(always)]
    fn request<Out>(&mut self, now: Instant, request: UdpRequest, out: &mut Out)
    where
        Out: Network + Ports + ?Sized,
    {
        match request {
            UdpRequest::Sent(id) => {
                if self.find(id).is_some_and(|socket| !socket.sending) {
                    // Others may have waited for longer.
                    match self.sending.is_empty() && self.has_turn() {
                        true => drop(self.send_now(now, id.slot, out)),
                        false => self.send_later(id.slot, Instant::ZERO),
                    }
                }
            }
            UdpRequest::Close(id) => self.close(now, id, out),
        }
    }

    /// Sends of what the socket has as much as it may before others have their turn; the rest is left to [`Component::poll`].
    ///
    /// # Errors
    /// [`Full`] if the output has no room for more.
    #[inline(never)]
    fn send_now<Out>(&mut self, now: Instant, slot: u32, out: &mut Out) -> Result<(), Full>
    where
        Out: Network + Ports + ?Sized,
    {
        let mut budget = Budget::of(FairQueue::turn(&self.table));
        let sent = self.drain(now, slot, &mut budget, out);
        self.given += budget.spent();
        self.sending.charge(slot, budget.spent());
        let Some(socket) = self.socket(slot) else {
            return Ok(());
        };
        let mut is_done = sent == Ok(Progress::Idle);
        if socket.closing && sent.is_ok() {
            socket.last_datagrams = socket.last_datagrams.saturating_sub(budget.datagrams());
            is_done |= socket.last_datagrams == 0;
        }
        if is_done {
            if socket.closing && socket.on_their_way.lent() == 0 {
                self.finish(slot, out);
            }
            return Ok(());
        }
        let again = match sent {
            Ok(_) => Instant::ZERO,
            Err(Full) => now + RETRY,
        };
        self.send_later(slot, again);
        sent.map(|_| ())
    }

    /// Whether something is left of the turn.
    fn has_turn(&self) -> bool {
        self.given < FairQueue::turn(&self.table)
    }

    /// The socket, which isn't in the list, sends with a later poll.
    fn send_later(&mut self, slot: u32, at: Instant) {
        if let Some(socket) = self.socket(slot) {
            socket.sending = true;
            self.sending.push(slot);
            self.wake_at(at);
        }
    }

    /// Forgets the socket as soon as what it had to send has left.
    pub(crate) fn close<Out>(&mut self, now: Instant, id: SocketId, out: &mut Out)
    where
        Out: Network + Ports + ?Sized,
    {
        if self.find(id).is_none() {
            return;
        }
        self.mark_closing(id.slot);
        let Some(socket) = self.socket(id.slot) else {
            return;
        };
        let (address, waits) = (socket.address, socket.sending);
        // Nothing more is received.
        self.demux.remove(id.slot, &address);
        if waits {
            return;
        }
        // Its port is free at once, unless much was sent in this turn already, and it has something to send.
        let has_nothing = self.table.send_ring(id.slot).is_empty();
        match has_nothing || self.has_turn() {
            true => drop(self.send_now(now, id.slot, out)),
            false => self.send_later(id.slot, Instant::ZERO),
        }
    }

    pub(crate) fn mark_closing(&mut self, slot: u32) {
        let most = most_datagrams(&self.table.send_ring(slot));
        let place = self.sockets.get_mut(slot as usize);
        let Some(socket) = place.and_then(Option::as_mut) else {
            return;
        };
        socket.closing = true;
        socket.last_datagrams = most;
        socket.save(self.table.record(slot));
        if !socket.events.is_empty() {
            socket.events = Events::empty();
            self.with_events.retain(|other| *other != slot);
        }
    }

    /// Ends a closing socket, which isn't in any list any more.
    pub(crate) fn finish(&mut self, slot: u32, out: &mut (impl Ports + ?Sized)) {
        let place = self.sockets.get_mut(slot as usize);
        let Some(socket) = place.and_then(Option::take) else {
            return;
        };
        if let Some(local) = socket.address.local() {
            if matches!(socket.address, Address::Bound(_)) {
                out.unlisten(protocol::UDP, local.port);
            }
            out.release_port(protocol::UDP, local.port);
        }
        self.table.close_slot(slot, &mut self.slots);
    }
}

impl<Out: Network + SocketEvents + Ports + ?Sized> Component<Out> for Udp {
    type Input<'a> = UdpInput<'a>;

    /// Everything is taken: packets go to rings or are dropped, requests that can't be finished are
    /// remembered. Never answers [`Full`].
    #[inline(always)]
    fn handle(&mut self, now: Instant, input: UdpInput<'_>, out: &mut Out) -> Result<(), Full> {
        match input {
            UdpInput::Packet(packet) => self.receive(&packet, out),
            UdpInput::Error(error) => self.on_error(&error),
            UdpInput::Request(request) => self.request(now, request, out),
            UdpInput::Left(lent) => self.on_left(&lent, out),
        }
        Ok(())
    }

    fn poll(&mut self, now: Instant, out: &mut Out) -> Progress {
        let mut is_full = false;
        self.given = 0;
        for _ in 0..self.sending.len() {
            if is_full || !self.has_turn() {
                break;
            }
            let Some(slot) = self.sending.take() else {
                break;
            };
            if let Some(socket) = self.socket(slot) {
                socket.sending = false;
            }
            is_full = self.send_now(now, slot, out).is_err();
        }
        self.given = 0;
        is_full |= self.deliver_events(out).is_err();
        let has_closed = self.table.shrink(&mut self.slots);
        self.wake_up = if is_full {
            Some(now + RETRY)
        } else {
            (has_closed || !self.sending.is_empty()).then_some(Instant::ZERO)
        };
        if self.wake_up.is_none() {
            Progress::Idle
        } else {
            Progress::More
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.wake_up
    }
}

#[cfg(test)]
mod tests;
