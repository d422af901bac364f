//! What is known of one attached program.
use super::offers::Listener;
use skink_memory::SocketId;
use skink_messages::{CallOutcome, Events, Protocol, SocketEvent};
use skink_sockets::{Notice, Server};
use std::collections::{HashMap, VecDeque};

/// Requests taken from one program before the next has its turn.
pub(crate) const REQUEST_BUDGET: usize = 64;

/// One attached program. Everything in it is bounded: by the sizes of its regions, by what `syscall` lets it
/// share, and by the number of answers to one batch of requests.
pub struct Program {
    /// This process's end of its channel.
    pub server: Server,
    /// For people.
    pub pid: u32,
    /// Its listening sockets, by slot.
    pub(crate) listeners: HashMap<u32, Listener>,
    /// What happened to sockets of others that it holds, merged.
    foreign: VecDeque<(Protocol, SocketId)>,
    foreign_events: HashMap<(Protocol, SocketId), Events>,
    /// Notices that found no room. While there are any, no request is taken.
    waiting: VecDeque<Notice>,
    /// Its call is unfinished: the request is still first in its queue, and the rest waits behind it.
    pub(crate) in_hand: bool,
    /// The call that is first in its queue can't be taken now: `syscall` has something to get rid of first.
    pub(crate) blocked: bool,
    /// What its last call to each transport came to, in case `syscall` dies and asks again.
    pub(crate) outcomes: [Option<CallOutcome>; 2],
    /// A listener has connections that there was no room to offer.
    pub(crate) must_offer: bool,
    /// It was told something since the last flush.
    pub(crate) told: bool,
    /// It has something coming, and is in the list of those that do.
    pub(crate) due: bool,
    /// As the server counts, when it was last looked at.
    pub(crate) malformed: u64,
}

impl Program {
    pub(crate) fn new(server: Server, pid: u32) -> Program {
        Program {
            server,
            pid,
            listeners: HashMap::new(),
            foreign: VecDeque::new(),
            foreign_events: HashMap::new(),
            waiting: VecDeque::new(),
            in_hand: false,
            blocked: false,
            outcomes: [None; 2],
            must_offer: false,
            told: false,
            due: false,
            malformed: 0,
        }
    }

    /// Whether it has asked for something that can be served now.
    pub(crate) fn asks(&self) -> bool {
        let has = self.server.is_ready() || self.server.holds_request();
        has && !self.in_hand && !self.blocked && !self.is_stuck()
    }

    /// Tells the program something, now or later.
    pub(crate) fn tell(&mut self, notice: Notice) {
        if !self.waiting.is_empty() || self.server.tell(&notice).is_err() {
            self.waiting.push_back(notice);
        }
        self.told = true;
    }

    /// Whether something can be told now.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting.is_empty() && self.server.has_room()
    }

    /// Whether notices wait for room.
    pub(crate) fn is_stuck(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Tells what has waited, as far as there is room. Answers whether all of it is told.
    pub(crate) fn catch_up(&mut self) -> bool {
        while let Some(notice) = self.waiting.front() {
            if self.server.tell(notice).is_err() {
                return false;
            }
            self.told = true;
            self.waiting.pop_front();
        }
        true
    }

    /// Something happened to a socket that the program shares.
    pub(crate) fn push_foreign(&mut self, protocol: Protocol, event: SocketEvent) {
        let key = (protocol, event.socket);
        let events = self.foreign_events.entry(key).or_insert(Events::empty());
        if events.is_empty() {
            self.foreign.push_back(key);
        }
        *events |= event.events;
    }

    /// Takes the event of a shared socket that has waited longest.
    pub(crate) fn pop_foreign(&mut self) -> Option<(Protocol, SocketEvent)> {
        loop {
            let key = self.foreign.pop_front()?;
            if let Some(events) = self.foreign_events.remove(&key) {
                let (protocol, socket) = key;
                return Some((protocol, SocketEvent { socket, events }));
            }
        }
    }

    /// The program doesn't hold another's socket any more.
    pub(crate) fn drop_share(&mut self, protocol: Protocol, socket: SocketId) {
        if self.foreign_events.remove(&(protocol, socket)).is_some() {
            self.foreign.retain(|key| *key != (protocol, socket));
        }
    }
}
