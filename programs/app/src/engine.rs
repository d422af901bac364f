//! The process's stack: who owns which of its sockets, and how it is driven. `attach` says how it comes
//! to be.
use crate::errno;
use crate::estate::{Keeper, PassedOn, Tethers};
use crate::filter::Errand;
use crate::kept::Kept;
use crate::log::log;
use crate::provider::Provider;
use crate::raw;
use crate::slots::Slots;
use crate::socket::{Role, Socket};
use core::ffi::c_int;
use core::sync::atomic::Ordering;
use skink_control::{Broker, Notice};
use skink_memory::{FallbackTable, Parcel, SocketId};
use skink_messages::{Counter, Counters, Events, Progress, Protocol};
use skink_nic::{Load, Room};
use skink_tcp::State;
use skink_time::Instant;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// The stack and what belongs to it.
pub struct Engine {
    /// The stack.
    pub stack: Provider,
    /// Where to count.
    pub counters: Counters,
    /// Where to say which sockets went to the kernel.
    pub fallbacks: Option<FallbackTable>,
    /// Descriptors that poll readable when there is something to take in: the NIC's, or the bell.
    pub receive_fds: Vec<c_int>,
    /// When the stack was last driven.
    pub last_poll: Instant,
    /// The last drive left something to do at once.
    pub unfinished: bool,
    /// The connection to the broker.
    pub broker: Broker,
    /// Nobody is at its other end any more.
    pub deserted: bool,
    /// The broker has said something that is to be done without the lock.
    pub errand: Option<Errand>,
    /// Name of the interface in the packet filter's rules, if the stack is in this process.
    pub interface: String,
    /// This process's number among the owners of the NIC, if the stack is its own.
    pub owner: u16,
    /// No other process can have a stack of its own beside this one's.
    pub is_sole: bool,
    /// All descriptors of the stack: a child after `fork` closes its copies.
    pub descriptors: Vec<c_int>,
    /// Whose TCP sockets are.
    pub tcp: Slots,
    /// Whose UDP sockets are.
    pub udp: Slots,
    /// Sockets that must still be told that the stack is lost.
    pub struck: Option<Vec<u32>>,
    /// Who holds what is passed, for the next tickets.
    pub keepers: Vec<Keeper>,
    /// Listening sockets that stay for others.
    pub kept: Kept,
    /// Connections on their way to other processes.
    pub passed: PassedOn,
    /// Connections that other processes have, too.
    pub tethers: Tethers,
    /// Until then segments may come that went to where a connection was before.
    pub word_until: Instant,
}

/// How long after a connection has come.
const WORD: Duration = Duration::from_millis(100);

/// What becomes of a socket whose stack is lost.
const LOST: Events = Events::READ_CLOSED
    .union(Events::CLOSED)
    .union(Events::ERROR);

impl Engine {
    /// Drives the stack once.
    pub fn poll(&mut self) {
        let now = raw::now();
        if self.has_chores() {
            self.do_chores(now);
        }
        if self.expects_word(now) {
            // Who has been taken in elsewhere mustn't be reset here.
            self.errand = self.errand.take().or_else(|| self.hear_notices());
            if self.errand.is_some() {
                crate::helper::rouse();
            }
        }
        self.unfinished = self.stack.poll(now) == Progress::More;
        self.last_poll = now;
        let Provider::Library(stack) = &mut self.stack else {
            return;
        };
        while let Some((address, mac)) = stack.take_conflict() {
            log!(
                Warn,
                "{mac} on the link has {address} too: give one of the two another address"
            );
        }
        while let Some(flow) = stack.take_misled() {
            log!(
                Info,
                "a segment of {flow} came here, which is another process's"
            );
            self.broker.tell_misled(&flow);
        }
        let broker = &self.broker;
        while let Some((flow, request)) = stack.take_stray() {
            broker.tell_stray(&flow, request);
        }
        stack.hand_over(now, |flow, parcel, may_stay| {
            broker.hand_over(flow, parcel, may_stay)
        });
    }

    /// Whether the broker may be about to say what can't wait for the helper: of a connection that leaves, or has just come.
    #[inline]
    pub fn expects_word(&self, now: Instant) -> bool {
        now < self.word_until || matches!(&self.stack, Provider::Library(stack) if stack.has_away())
    }

    /// A connection has come from another process.
    pub fn expect_word(&mut self, now: Instant) {
        self.word_until = now + WORD;
    }

    /// Whether something is looked after now and then that other processes are to have.
    #[inline]
    fn has_chores(&self) -> bool {
        !self.keepers.is_empty() || !self.kept.is_empty() || !self.passed.is_empty()
    }

    #[cold]
    fn chores_due(&self) -> Option<Instant> {
        let keepers = self.keepers.iter().map(|keeper| keeper.ends);
        let others = [self.kept.deadline(), self.passed.deadline()];
        keepers.chain(others.into_iter().flatten()).min()
    }

    #[cold]
    fn do_chores(&mut self, now: Instant) {
        self.keepers.retain(|keeper| keeper.ends > now);
        self.look_after_kept(now);
        if let Provider::Library(stack) = &mut self.stack {
            self.passed.look_after(now, stack);
        }
    }

    /// Takes in what has come, without letting anything leave, if the stack is in this process.
    pub fn receive(&mut self) {
        if let Provider::Library(stack) = &mut self.stack {
            let now = raw::now();
            self.unfinished = stack.receive(now) == Progress::More;
            self.last_poll = now;
        }
    }

    /// When the stack must be driven at the latest.
    pub fn deadline(&self) -> Option<Instant> {
        let owes = matches!(&self.stack, Provider::Library(stack) if stack.owes_parcels());
        if self.unfinished || owes {
            return Some(Instant::ZERO);
        }
        let mut due = self.stack.next_deadline();
        if self.has_chores() {
            due = due.into_iter().chain(self.chores_due()).min();
        }
        if let Some(room) = self.stack.send_blocked_on() {
            // Not every sleep can watch for room in the NIC's queue. What is due at once waits for it.
            let again = match room {
                Room::At(_) => Room::SOON,
                Room::Untold(again) => again,
            };
            let again = self.last_poll + again;
            let due = due.filter(|due| *due > self.last_poll);
            return Some(due.map_or(again, |due| due.min(again)));
        }
        due
    }

    /// Takes the next event that a socket of the program must hear of.
    pub fn take_event(&mut self) -> Option<(u32, Events)> {
        while let Some((protocol, event)) = self.stack.take_event() {
            let slots = match protocol {
                Protocol::Tcp => &mut self.tcp,
                Protocol::Udp => &mut self.udp,
            };
            if let Some(owner) = slots.note(event.socket, event.events) {
                return Some((owner, event.events));
            }
        }
        if self.is_down() {
            return self.take_loss();
        }
        None
    }

    /// The stack is lost: all sockets hear of it, once.
    #[cold]
    fn take_loss(&mut self) -> Option<(u32, Events)> {
        let (tcp, udp) = (&mut self.tcp, &mut self.udp);
        let struck = self.struck.get_or_insert_with(|| {
            let mut all = tcp.strike(LOST);
            all.extend(udp.strike(LOST));
            all
        });
        struck.pop().map(|owner| (owner, LOST))
    }

    /// Whether the stack can be asked: it is there, and so are the descriptors that lead to it, which a guest in this
    /// process's memory may have closed.
    pub fn is_reachable(&self) -> bool {
        let open = |fd: &c_int| raw::fcntl(*fd, libc::F_GETFD, 0).is_ok();
        !self.is_down() && (!crate::descriptor::is_guest() || self.descriptors.iter().all(open))
    }

    /// Whether the stack is lost.
    #[inline]
    pub fn is_down(&self) -> bool {
        match &self.stack {
            Provider::Library(_) => false,
            Provider::Served(remote) => remote.is_down(),
        }
    }

    /// Events of this TCP socket concern socket `index` from now on. Answers what lasts so far.
    pub fn own_tcp(&mut self, id: SocketId, index: u32) -> Events {
        let record = self.stack.tcp_table().find(id);
        let state = record.map(|record| record.state.load(Ordering::Relaxed));
        let error = record.map_or(0, |record| record.error.load(Ordering::Relaxed));
        // What happened before somebody accepted the connection was said to nobody.
        let found = match state.and_then(State::from_number) {
            Some(State::CloseWait | State::Closing | State::LastAck | State::TimeWait) => {
                Events::READ_CLOSED
            }
            Some(State::Closed) if error != 0 => {
                Events::READ_CLOSED | Events::CLOSED | Events::ERROR
            }
            _ => Events::empty(),
        };
        self.tcp.own(id, index, found)
    }

    /// As [`Engine::own_tcp`], for a UDP socket.
    pub fn own_udp(&mut self, id: SocketId, index: u32) {
        self.udp.own(id, index, Events::empty());
    }

    /// Nobody is interested in this TCP socket any more.
    pub fn disown_tcp(&mut self, id: SocketId) {
        self.tcp.disown(id);
    }

    /// Nobody is interested in this UDP socket any more.
    pub fn disown_udp(&mut self, id: SocketId) {
        self.udp.disown(id);
    }

    /// What has happened to this TCP socket for good.
    #[inline]
    pub fn lasting(&self, id: SocketId) -> Events {
        self.tcp.lasting(id)
    }

    /// The errno in a socket's record, or 0.
    pub fn error_of(&self, socket: &Socket) -> c_int {
        let (table, halves) = match socket.role {
            Role::Stream(id) => (self.stack.tcp_table(), [Some(id), None]),
            Role::Datagram(halves) => (self.stack.udp_table(), halves),
            Role::Listener(_) if self.is_down() => return libc::ENETDOWN,
            _ => return 0,
        };
        let records = halves.into_iter().flatten().filter_map(|id| table.find(id));
        let errors = records.map(|record| errno::of_number(record.error.load(Ordering::Relaxed)));
        let error = errors.into_iter().find(|error| *error != 0);
        match (error, self.is_down()) {
            (Some(error), _) => error,
            (None, false) => 0,
            (None, true) if socket.datagram => libc::ENETDOWN,
            (None, true) => libc::ECONNRESET,
        }
    }

    /// Counts one.
    pub fn count(&self, counter: Counter) {
        self.counters.count(counter);
    }

    /// The program uses the NIC in another way from now on: whoever set that up may adapt it.
    pub fn tell_load(&mut self, load: Load) {
        if matches!(self.stack, Provider::Library(_)) {
            self.broker.tell_load(load);
        }
    }

    /// Listens to what the broker says unasked, up to an errand.
    pub fn take_notices(&mut self) -> Option<Errand> {
        self.errand.take().or_else(|| self.hear_notices())
    }

    fn hear_notices(&mut self) -> Option<Errand> {
        loop {
            let notice = match self.broker.take_notice() {
                Ok(notice) => notice?,
                Err(_) => {
                    self.deserted = true;
                    return None;
                }
            };
            // To others than those with a stack of their own nothing of this is said.
            let Provider::Library(stack) = &mut self.stack else {
                continue;
            };
            match notice {
                Notice::Answer => stack.set_answers(true),
                Notice::Mtu(mtu) => {
                    log!(Info, "the interface takes packets of {mtu} bytes now");
                    stack.set_mtu(mtu);
                }
                Notice::TakeIn { from, parcel, late } => {
                    let Some(parcel) = Parcel::from_bytes(&parcel) else {
                        log!(Warn, "a connection of another process can't be read");
                        continue;
                    };
                    let (flow, now) = (parcel.four_tuple(), raw::now());
                    let taken = !late && stack.take_in(now, &parcel);
                    self.broker.tell_taken_in(from, 0, &flow, taken);
                    self.expect_word(now);
                    self.unfinished = true;
                }
                Notice::HandedOver { flow, serial, heir } => {
                    let broker = &self.broker;
                    stack.on_handed_over(raw::now(), &flow, serial, heir, |heir, late| {
                        broker.tell_late(heir, &flow, late);
                    });
                    self.passed.heard(serial, heir.is_some());
                    self.unfinished = true;
                }
                Notice::Late(flow, segment) => {
                    stack.on_late(raw::now(), &flow, &segment);
                    self.unfinished = true;
                }
                Notice::LoadFilter(rules) => return Some(Errand::Load(rules)),
                Notice::ShowFilter(question) => return Some(Errand::Show(question)),
            }
        }
    }

    /// The descriptor that is readable when the broker has said something unasked, or -1 if it won't any more.
    pub fn notices_fd(&self) -> c_int {
        if self.deserted { -1 } else { self.broker_fd() }
    }

    /// The connection to the broker.
    pub fn broker_fd(&self) -> c_int {
        self.broker.as_fd().as_raw_fd()
    }
}
