//! Processes of a program hand their connections on to each other, as after `fork`, or in messages.

use super::Apart;
use crate::random::Random;
use skink_library::{Protocol, State};
use skink_memory::{SocketId, SocketKind};
use skink_messages::{Events, Holder, SocketCall, SocketError, SocketEvent, TcpRequest};
use skink_sockets::RequestBody;
use skink_time::Instant;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;

/// Times that one connection is handed on at most.
const TIMES: u32 = 4;
/// Most requests that its user makes before it is.
const USES: u64 = 6;

/// Who has a connection.
struct Hand {
    /// Who reads, writes and listens to its events. The others only hold it.
    user: u32,
    holders: BTreeSet<u32>,
    /// Whoever has asked for it, and waits for the answer.
    heir: Option<u32>,
    /// Requests until it is handed on.
    uses: u64,
    /// How often that happens still.
    times: u32,
}

/// What the processes of a host share.
#[derive(Default)]
pub(super) struct Sharing {
    /// If they share at all.
    random: Option<Random>,
    /// Those that never end. All others end once they have nothing left.
    lasting: BTreeSet<u32>,
    hands: BTreeMap<SocketId, Hand>,
    /// What came of asking for a connection.
    pub answers: Vec<(u32, SocketId, Result<(), SocketError>)>,
    /// Processes that have ended, and are not finished.
    pub ended: BTreeSet<u32>,
    /// How often a connection has changed hands, and how many processes have ended.
    pub counts: [u64; 2],
}

impl Apart {
    /// From now on its processes hand connections on to each other. These never end.
    pub fn share(&mut self, seed: u64, lasting: impl IntoIterator<Item = u32>) {
        self.sharing.random = Some(Random::new(seed));
        self.sharing.lasting = lasting.into_iter().collect();
    }

    /// How often a connection has changed hands, and how many processes have ended.
    pub fn shared(&self) -> [u64; 2] {
        self.sharing.counts
    }

    /// A process has a connection that is new.
    pub(super) fn own(&mut self, socket: SocketId) {
        let table = self.machine.table(Protocol::Tcp);
        let connects = table.find(socket).map(|record| record.kind()) == Some(SocketKind::Tcp);
        let owner = table.region_of(socket.slot);
        let Some(random) = self.sharing.random.as_mut().filter(|_| connects) else {
            return;
        };
        let hand = Hand {
            user: owner,
            holders: BTreeSet::from([owner]),
            heir: None,
            uses: random.range(1, USES),
            times: random.range(0, u64::from(TIMES)) as u32,
        };
        self.sharing.hands.insert(socket, hand);
    }

    /// Who uses a socket.
    pub(super) fn user(&self, protocol: Protocol, socket: SocketId) -> u32 {
        let hand = self.sharing.hands.get(&socket);
        match hand.filter(|_| protocol == Protocol::Tcp) {
            Some(hand) => hand.user,
            None => self.machine.owner(protocol, socket),
        }
    }

    /// A connection was used: it may be another one's turn.
    pub(super) fn used(&mut self, socket: SocketId) {
        let Sharing { random, hands, .. } = &mut self.sharing;
        let (Some(random), Some(hand)) = (random, hands.get_mut(&socket)) else {
            return;
        };
        hand.uses = hand.uses.saturating_sub(1);
        if hand.uses > 0 || hand.times == 0 || hand.heir.is_some() {
            return;
        }
        let others: Vec<u32> = self.programs.keys().copied().collect();
        let others: Vec<u32> = others.into_iter().filter(|it| *it != hand.user).collect();
        if others.is_empty() {
            return;
        }
        hand.times -= 1;
        hand.uses = random.range(1, USES);
        let heir = random.pick(&others);
        if hand.holders.contains(&heir) {
            // It has had it all the time.
            hand.user = heir;
            self.sharing.counts[0] += 1;
            return self.look_at(heir, socket);
        }
        hand.heir = Some(heir);
        let owner = self.machine.owner(Protocol::Tcp, socket);
        let secret = self.machine.secret(owner);
        if let Some(program) = self.programs.get_mut(&heir) {
            program.ask_for(SocketCall::Share(Protocol::Tcp, socket, secret), socket);
        }
    }

    /// Whoever uses a socket from now on looks what has happened to it.
    fn look_at(&mut self, program: u32, socket: SocketId) {
        let record = self.machine.table(Protocol::Tcp).find(socket);
        let mut events = Events::READABLE | Events::WRITABLE;
        if let Some(record) = record {
            let state = State::from_number(record.state.load(Relaxed));
            let over = [
                State::CloseWait,
                State::Closing,
                State::LastAck,
                State::TimeWait,
            ];
            if state.is_some_and(|state| over.contains(&state)) {
                events |= Events::READ_CLOSED;
            }
            if record.error.load(Relaxed) != 0 {
                events |= Events::ERROR;
            }
        }
        if let Some(program) = self.programs.get_mut(&program) {
            let event = SocketEvent { socket, events };
            program.events.push_back((Protocol::Tcp, event));
        }
    }

    /// Whoever asked for a connection has it, and the one before lets go of it, or not, or ends.
    pub(super) fn hand_over(&mut self) {
        for (heir, socket, answer) in std::mem::take(&mut self.sharing.answers) {
            let Sharing { random, hands, .. } = &mut self.sharing;
            let hand = hands.get_mut(&socket).filter(|it| it.heir == Some(heir));
            let (Some(random), Some(hand)) = (random, hand) else {
                // It was closed meanwhile.
                if answer.is_ok() {
                    self.let_go(heir, socket);
                }
                continue;
            };
            if let Err(error) = answer {
                panic!("process {heir} doesn't get {socket:?}: {error:?}");
            }
            hand.heir = None;
            let giver = std::mem::replace(&mut hand.user, heir);
            hand.holders.insert(heir);
            let is_last = hand.times == 0;
            let lets_go = random.chance(700);
            if lets_go {
                hand.holders.remove(&giver);
                let giver = self.programs.get_mut(&giver);
                giver.into_iter().for_each(|giver| giver.has_shared = true);
            }
            self.sharing.counts[0] += 1;
            // One that ends may let go before, or not.
            if lets_go && (!self.may_end(giver) || self.sharing.counts[0].is_multiple_of(2)) {
                // Of its own it lets go itself; who may get the socket again mustn't be relieved late, nor who has something to say of it.
                let is_own = giver == self.machine.owner(Protocol::Tcp, socket);
                let has_said_all = self.programs.get_mut(&giver).is_some_and(|giver| {
                    giver.client.flush();
                    giver.is_idle()
                });
                match is_last && !is_own && has_said_all {
                    true => self.relieve(heir, socket, giver),
                    false => self.let_go(giver, socket),
                }
            }
            self.look_at(heir, socket);
        }
    }

    fn let_go(&mut self, program: u32, socket: SocketId) {
        if let Some(program) = self.programs.get_mut(&program) {
            let close = SocketCall::Close(Protocol::Tcp, socket);
            program.say(RequestBody::Call(close));
        }
    }

    /// Who has got a connection says that the one before may let go of it.
    fn relieve(&mut self, heir: u32, socket: SocketId, giver: u32) {
        let holder = Holder {
            program: giver,
            secret: self.machine.secret(giver),
        };
        if let Some(heir) = self.programs.get_mut(&heir) {
            let relieve = SocketCall::Relieve(Protocol::Tcp, socket, holder);
            heir.say(RequestBody::Call(relieve));
        }
    }

    /// Whether a process has nothing left to do.
    fn may_end(&self, number: u32) -> bool {
        let mut hands = self.sharing.hands.values();
        let busy = |hand: &Hand| {
            let alone = hand.holders.len() == 1 && hand.holders.contains(&number);
            hand.user == number || hand.heir == Some(number) || alone
        };
        let idle = self.programs.get(&number).is_some_and(|it| it.is_idle());
        !self.sharing.lasting.contains(&number) && idle && !hands.any(busy)
    }

    /// Processes end that have handed on all they had.
    pub(super) fn end_idle(&mut self, now: Instant) {
        if self.sharing.random.is_none() {
            return;
        }
        let all: Vec<u32> = self.programs.keys().copied().collect();
        for number in all {
            // One that never had anything goes on.
            let used = self.programs.get(&number).is_some_and(|it| it.has_shared);
            if used && self.may_end(number) {
                for hand in self.sharing.hands.values_mut() {
                    hand.holders.remove(&number);
                }
                self.programs.remove(&number);
                self.sharing.ended.insert(number);
                self.sharing.counts[1] += 1;
                self.machine.program_ended(now, number);
                self.ordered = true;
            }
        }
    }

    /// All that hold a connection close it. Answers whether it was one.
    pub(super) fn close_shared(&mut self, socket: SocketId) -> bool {
        let Some(hand) = self.sharing.hands.remove(&socket) else {
            return false;
        };
        let last = hand.user;
        for holder in hand.holders.into_iter().filter(|it| *it != last) {
            self.let_go(holder, socket);
        }
        self.let_go(last, socket);
        true
    }

    /// Whether this is said to a process that doesn't look at the socket.
    pub(super) fn is_for_another(&self, program: u32, event: (Protocol, SocketEvent)) -> bool {
        let (protocol, event) = event;
        let hand = self.sharing.hands.get(&event.socket);
        protocol == Protocol::Tcp && hand.is_some_and(|hand| hand.user != program)
    }
}

/// What only a request of a connection's user means.
pub(super) fn is_use(request: &TcpRequest) -> bool {
    match request {
        TcpRequest::Sent(_) | TcpRequest::Received(_) | TcpRequest::Shutdown(..) => true,
        TcpRequest::SetOption(..) | TcpRequest::Close(_) => false,
    }
}
