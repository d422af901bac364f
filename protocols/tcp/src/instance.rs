use crate::adopt::Predecessor;
use crate::connection::{Connection, Context, Program};
use crate::demux::Demux;
use crate::handed_over::HandedOver;
use crate::idle_rings::IdleRings;
use crate::listener::Listener;
use crate::memory::Memory;
use crate::misled::Misled;
use crate::output::{BURST, Left};
use crate::receive::After;
use crate::segment::Segment;
use crate::settings::Settings;
use crate::state::State;
use crate::strays::Strays;
use crate::time_wait::TimeWaits;
use core::net::IpAddr;
use skink_memory::{FairQueue, RegionSlots, SocketId, SocketTable};
use skink_messages::{
    BindOptions, Component, Counter, Counters, Events, Full, Network, Ports, Progress, SocketEvent,
    SocketEvents, TcpInput,
};
use skink_time::{Instant, TimerWheel};
use skink_wire::Endpoint;
use std::collections::{HashMap, VecDeque};

/// What a TCP instance needs to know.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpConfig {
    /// Sequence numbers ([`Tcp::set_sequence_secret`]), timestamps, ports and hash keys are drawn from it.
    pub seed: u64,
}

/// A socket that is neither listening nor connected.
#[derive(Clone, Default)]
pub(crate) struct Fresh {
    pub settings: Settings,
    pub local: Option<Endpoint>,
    pub sharing: BindOptions,
    /// See [`Tcp::rest`].
    pub resting: bool,
}

pub(crate) enum Socket {
    Free,
    Fresh(Box<Fresh>),
    Listener(Box<Listener>),
    Connection(Box<Connection>),
}

/// One instance of TCP, with a table of sockets of its own. See the crate's documentation.
pub struct Tcp {
    pub(crate) secret: u64,
    /// What initial sequence numbers and timestamp offsets are drawn from.
    pub(crate) sequence_secret: u64,
    pub(crate) table: SocketTable,
    pub(crate) counters: Counters,
    pub(crate) slots: RegionSlots,
    pub(crate) sockets: Vec<Socket>,
    pub(crate) demux: Demux,
    /// Who is bound to a port explicitly, or listens.
    pub(crate) bound: HashMap<u16, Vec<(IpAddr, u32)>>,
    pub(crate) ephemeral_counter: u16,
    pub(crate) time_waits: TimeWaits,
    /// Connections of stalled listeners that went elsewhere in this turn.
    pub(crate) given_away: usize,
    pub(crate) wheel: TimerWheel,
    /// Connections that may have something to send.
    pub(crate) queue: FairQueue,
    /// Sockets that have something to tell their program.
    pub(crate) notices: VecDeque<u32>,
    /// Listeners that their programs have closed, and where connections wait for who listens next.
    pub(crate) left: Vec<SocketId>,
    /// Of some of these it isn't known yet where that goes.
    pub(crate) left_due: bool,
    /// Ports of listeners of which other stacks' owners are to hear anew at the next poll ([`Tcp::show_port`]).
    pub(crate) shown_due: Vec<u16>,
    /// Whose sockets were adopted, as long as that matters.
    pub(crate) predecessor: Option<Predecessor>,
    /// How much is looked for what strays.
    pub(crate) strays: Strays,
    /// Flows that may be other owners'.
    pub(crate) misled: Misled,
    pub(crate) handed_over: HandedOver,
    /// Connections of predecessors aren't taken over.
    pub(crate) stateless: bool,
    pub(crate) memory: Memory,
    pub(crate) idle_rings: IdleRings,
    /// See [`Tcp::set_beside_programs`].
    pub(crate) beside_programs: bool,
}

impl Tcp {
    /// Initial sequence numbers and timestamp offsets are drawn from `secret` (RFC 6528). With the same in all stacks on a NIC, a
    /// connection goes on beyond what an earlier one between its ends has sent, whichever stack had that.
    pub fn set_sequence_secret(&mut self, secret: u64) {
        self.sequence_secret = secret;
    }

    /// An instance without sockets, on a table that nobody else gives slots of. [`Tcp::add_region`]
    /// makes the table larger.
    pub fn new(config: TcpConfig, table: SocketTable, counters: Counters) -> Tcp {
        let queue = FairQueue::new(&table);
        Tcp {
            secret: config.seed,
            sequence_secret: config.seed,
            slots: RegionSlots::new(&table),
            table,
            counters,
            sockets: Vec::new(),
            demux: Demux::new(config.seed),
            bound: HashMap::new(),
            ephemeral_counter: config.seed as u16,
            time_waits: TimeWaits::default(),
            given_away: 0,
            wheel: TimerWheel::new(),
            queue,
            notices: VecDeque::new(),
            left: Vec::new(),
            left_due: false,
            shown_due: Vec::new(),
            predecessor: None,
            strays: Strays::default(),
            misled: Misled::default(),
            handed_over: HandedOver::default(),
            stateless: false,
            memory: Memory::new(),
            idle_rings: IdleRings::new(),
            beside_programs: false,
        }
    }

    /// Whether [`Tcp::adopt_region`] resets connections instead of taking them over, as systems do that keep
    /// no state of connections (NewtOS, section 2.5.4). What listens goes on listening.
    pub fn set_stateless(&mut self, stateless: bool) {
        self.stateless = stateless;
    }

    /// The sockets' records and rings.
    pub fn table(&self) -> &SocketTable {
        &self.table
    }

    pub(crate) fn put(&mut self, slot: u32, socket: Socket) {
        let index = slot as usize;
        if index >= self.sockets.len() {
            self.sockets.resize_with(index + 1, || Socket::Free);
        }
        self.sockets[index] = socket;
    }

    pub(crate) fn socket(&self, id: SocketId) -> Option<&Socket> {
        self.table.find(id)?;
        self.sockets.get(id.slot as usize)
    }

    pub(crate) fn socket_mut(&mut self, id: SocketId) -> Option<&mut Socket> {
        self.table.find(id)?;
        self.sockets.get_mut(id.slot as usize)
    }

    pub(crate) fn connection_mut(&mut self, id: SocketId) -> Option<&mut Connection> {
        match self.socket_mut(id) {
            Some(Socket::Connection(connection)) => Some(connection),
            _ => None,
        }
    }

    /// Lets a connection look for something to send at the next poll.
    pub(crate) fn enqueue(&mut self, slot: u32) {
        if let Some(Socket::Connection(connection)) = self.sockets.get_mut(slot as usize)
            && !connection.queued
        {
            connection.queued = true;
            self.queue.push(slot);
        }
    }

    /// `TcpRequest::Sent`: the program put bytes into its send ring, `count` of them as far as is known.
    #[inline]
    pub fn sent(&mut self, now: Instant, id: SocketId, count: usize) {
        let beside_programs = self.beside_programs;
        self.with_connection(now, id, |connection, context| {
            if beside_programs {
                let ring = connection.send_ring(context);
                connection.note_spread(&ring);
                context.memory.budget.put(count);
            }
            true
        });
    }

    /// `TcpRequest::Received`: the program took bytes from its receive ring. Answers whether there may
    /// be something to send now.
    #[inline]
    pub fn received(&mut self, now: Instant, id: SocketId) -> bool {
        self.with_connection(now, id, |connection, context| {
            connection.on_program_read(context);
            connection.ack_due
        })
    }

    /// Changes a connection; `change` answers whether something may have to be sent, and so does this.
    #[inline]
    pub(crate) fn with_connection(
        &mut self,
        now: Instant,
        id: SocketId,
        change: impl FnOnce(&mut Connection, &Context<'_>) -> bool,
    ) -> bool {
        let context = Context {
            table: &self.table,
            memory: &self.memory,
            counters: &self.counters,
            now,
        };
        if let Some(Socket::Connection(connection)) = self.sockets.get_mut(id.slot as usize)
            && connection.id == id
            && change(connection, &context)
        {
            self.enqueue(id.slot);
            return true;
        }
        false
    }

    /// Lets timers run.
    fn expire<O: Network + SocketEvents + Ports>(&mut self, now: Instant, out: &mut O) {
        while let Some((index, entry)) = self.time_waits.pop_expired(now) {
            self.leave_time_wait(index, &entry, out);
        }
        self.give_up_away(now, out);
        while let Some(slot) = self.wheel.pop_expired(now) {
            let context = Context {
                table: &self.table,
                memory: &self.memory,
                counters: &self.counters,
                now,
            };
            let Some(Socket::Connection(connection)) = self.sockets.get_mut(slot as usize) else {
                self.look_after(now, slot, out);
                continue;
            };
            connection.armed = None;
            let timed_out = connection.on_timers(&context) == After::Closed;
            // A peer that still asks must not be refused just because our answers were lost.
            let silent = matches!(connection.state(), State::FinWait2 | State::SynReceived);
            // A reset can't be taken back: the record must say too that the connection has failed.
            if !timed_out || !silent && !connection.has_failed(&context) {
                let waits_for = match connection.program() {
                    Program::Awaited(parent) if connection.state() == State::SynReceived => {
                        Some(parent)
                    }
                    _ => None,
                };
                self.enqueue(slot);
                self.pass_on_place(slot);
                if let Some(parent) = waits_for {
                    self.comes_to_nothing(parent);
                }
                continue;
            }
            if !silent {
                let _ = self.reset_connection(now, slot, out);
            }
            self.end(now, slot, out);
        }
    }

    /// Lets queued connections send, as much as is for one turn; `Full` if the network had no room.
    fn send_queued<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        out: &mut O,
    ) -> Result<(), Full> {
        let context = Context {
            table: &self.table,
            memory: &self.memory,
            counters: &self.counters,
            now,
        };
        let turn = FairQueue::turn(&self.table);
        let mut given = 0;
        for _ in 0..self.queue.len() {
            if given >= turn {
                break;
            }
            let Some(slot) = self.queue.take() else {
                break;
            };
            let Some(Socket::Connection(connection)) = self.sockets.get_mut(slot as usize) else {
                continue;
            };
            connection.queued = false;
            if connection.away {
                continue;
            }
            connection.follow_raises(out);
            let mut budget = BURST;
            let before = connection.emitted;
            let left = connection.output(&context, &mut budget, out);
            let packets = u64::from(connection.emitted.wrapping_sub(before)) * FairQueue::PACKET;
            let cost = FairQueue::VISIT + u64::from(BURST - budget) + packets;
            given += cost;
            self.queue.charge(slot, cost);
            let first = connection.deadlines.first();
            if let Some(first) = first
                && connection.armed.is_none_or(|armed| first < armed)
            {
                self.wheel.set(slot, first);
                connection.armed = Some(first);
            }
            if !connection.notified && !connection.events.is_empty() {
                connection.notified = true;
                self.notices.push_back(slot);
            }
            if connection.spread && !connection.listed {
                connection.listed = true;
                self.idle_rings.push(now, connection.id);
            }
            match left {
                Ok(Left::Nothing) => {}
                Ok(Left::More) => {
                    connection.queued = true;
                    self.queue.push(slot);
                }
                Err(full) => {
                    connection.queued = true;
                    self.queue.put_back(slot);
                    return Err(full);
                }
            }
        }
        Ok(())
    }

    /// Tells programs what happened; `Full` if they have no room for it.
    fn send_events<O: SocketEvents>(&mut self, out: &mut O) -> Result<(), Full> {
        while let Some(slot) = self.notices.front().copied() {
            match self.sockets.get_mut(slot as usize) {
                Some(Socket::Connection(connection)) => {
                    // Nobody knows the connection until it is accepted, nor once it was closed. Who
                    // accepts it looks at the rings and the record anyway.
                    if connection.program() == Program::Attached && !connection.events.is_empty() {
                        out.tcp_event(SocketEvent {
                            socket: connection.id,
                            events: connection.events,
                        })?;
                    }
                    connection.notified = false;
                    connection.events = Events::empty();
                }
                Some(Socket::Listener(listener)) => {
                    out.tcp_event(SocketEvent {
                        socket: listener.id,
                        events: Events::READABLE,
                    })?;
                    listener.notify = false;
                }
                Some(Socket::Fresh(_) | Socket::Free) | None => {}
            }
            self.notices.pop_front();
        }
        Ok(())
    }
}

impl<Out: Network + SocketEvents + Ports> Component<Out> for Tcp {
    type Input<'a> = TcpInput<'a>;

    /// Never refuses: what a message leads to is sent by [`Component::poll`], which must follow.
    #[inline(always)]
    fn handle(&mut self, now: Instant, input: TcpInput<'_>, out: &mut Out) -> Result<(), Full> {
        match input {
            TcpInput::Packet(packet) => {
                self.counters.count(Counter::TcpSegmentsIn);
                match Segment::parse(&packet) {
                    Ok(segment) => self.on_segment(now, &segment, out),
                    Err(reason) => self.counters.count(reason),
                }
            }
            TcpInput::Error(error) => self.on_error(now, &error, out),
            TcpInput::Request(request) => self.request(now, request, out),
        }
        Ok(())
    }

    fn poll(&mut self, now: Instant, out: &mut Out) -> Progress {
        self.given_away = 0;
        self.expire(now, out);
        for port in core::mem::take(&mut self.shown_due) {
            self.show_port(port, out);
        }
        // Whatever waits, a poll at which nothing has changed doesn't look at it.
        if self.demux.take_changed() || self.left_due {
            self.settle_left(now, out);
        }
        let sent = self.send_queued(now, out);
        let told = self.send_events(out);
        let has_more =
            self.table.shrink(&mut self.slots) | self.give_back_idle(now) | self.tend_memory(now);
        if sent.is_err() || told.is_err() || !self.queue.is_empty() || self.left_due || has_more {
            Progress::More
        } else {
            Progress::Idle
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let timers = self.wheel.next_deadline();
        let waiting = self.time_waits.next_deadline();
        let idle = self.idle_rings.next_deadline();
        let scarce = self.memory.next_deadline();
        let handed = self.handed_over.next_deadline();
        let all = [timers, waiting, idle, scarce, handed];
        all.into_iter().flatten().min()
    }
}
