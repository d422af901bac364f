//! A program's side of its channels.

use super::{Opened, is_readable};
use crate::place::{SocketPlan, Then};
use skink_library::Protocol;
use skink_memory::{SocketId, SocketTable};
use skink_messages::{Answer, Events, SocketCall, SocketError, SocketEvent};
use skink_sockets::{Client, PortOptions, RequestBody};
use std::collections::VecDeque;

/// A socket that is being made: each call is answered before the next.
struct Opening {
    /// Who wants it; `None` if it is another's that is asked for.
    number: Option<usize>,
    share: Option<(SocketCall, SocketId)>,
    plan: SocketPlan,
    socket: Option<SocketId>,
    /// The calls that are answered.
    answered: usize,
    /// The next one is on its way.
    asked: bool,
    /// What was heard of the socket meanwhile.
    early: Events,
}

impl Opening {
    /// The next call; `None` if all are answered.
    fn call(&self) -> Option<SocketCall> {
        if let Some((call, _)) = self.share {
            return Some(call).filter(|_| self.answered == 0);
        }
        let SocketPlan {
            protocol,
            local,
            then,
            ..
        } = self.plan;
        let Some(socket) = self.socket else {
            return Some(SocketCall::Open(protocol));
        };
        let bind = local.map(|(local, sharing)| {
            let options = PortOptions {
                reuse_address: sharing.reuse_address,
                reuse_port: sharing.shared,
                ticket: 0,
            };
            SocketCall::Bind(protocol, socket, local, options)
        });
        let last = match then {
            Then::Stays => None,
            Then::Listens(backlog) => Some(SocketCall::Listen(socket, backlog)),
            Then::Connects(remote) => Some(SocketCall::Connect(protocol, socket, Some(remote))),
        };
        bind.into_iter().chain(last).nth(self.answered - 1)
    }
}

/// Who has asked for another's socket, and what came of it.
type Shared = (u32, SocketId, Result<(), SocketError>);

/// A program's side of its channels.
pub(super) struct Program {
    number: u32,
    pub client: Client,
    openings: VecDeque<Opening>,
    /// What it has to say and there was no room for.
    waiting: VecDeque<RequestBody>,
    pub events: VecDeque<(Protocol, SocketEvent)>,
    /// Listening sockets on which it couldn't say that it takes a connection.
    pub held_up: Vec<SocketId>,
    /// It has been given something, or has given it away.
    pub has_shared: bool,
}

impl Program {
    pub fn new(number: u32, mut client: Client) -> Program {
        client.announce();
        Program {
            number,
            client,
            openings: VecDeque::new(),
            waiting: VecDeque::new(),
            events: VecDeque::new(),
            held_up: Vec::new(),
            has_shared: false,
        }
    }

    /// Makes a socket for `number`, after those before.
    pub fn make(&mut self, number: usize, plan: SocketPlan) {
        self.openings.push_back(Opening {
            number: Some(number),
            share: None,
            plan,
            socket: None,
            answered: 0,
            asked: false,
            early: Events::empty(),
        });
    }

    /// Asks for another's socket, after what it has asked for before.
    pub fn ask_for(&mut self, call: SocketCall, socket: SocketId) {
        let plan = SocketPlan {
            protocol: Protocol::Tcp,
            program: 0,
            local: None,
            then: Then::Stays,
        };
        self.openings.push_back(Opening {
            number: None,
            share: Some((call, socket)),
            plan,
            socket: None,
            answered: 0,
            asked: false,
            early: Events::empty(),
        });
    }

    /// Whether it waits for nothing, and has said all.
    pub fn is_idle(&self) -> bool {
        self.openings.is_empty() && self.waiting.is_empty()
    }

    /// Listens to what the stack says, if it rang, and goes to sleep again.
    pub fn hear(&mut self, opened: &mut VecDeque<Opened>, shared: &mut Vec<Shared>) {
        while is_readable(self.client.bell()) || !self.client.is_announced() {
            self.client.retract();
            self.client.poll().expect("a good channel");
            while let Some((protocol, event)) = self.client.take_event() {
                self.take_in(protocol, event);
            }
            self.go_on(opened, shared);
            if !self.client.announce() {
                self.client.awake();
            }
        }
    }

    fn take_in(&mut self, protocol: Protocol, event: SocketEvent) {
        let mut openings = self.openings.iter_mut();
        let opening =
            openings.find(|it| it.plan.protocol == protocol && it.socket == Some(event.socket));
        match opening {
            Some(opening) => opening.early |= event.events,
            None => self.events.push_back((protocol, event)),
        }
    }

    /// Says what there is room for, and makes the next call.
    pub fn go_on(&mut self, opened: &mut VecDeque<Opened>, shared: &mut Vec<Shared>) {
        while let Some(body) = self.waiting.front().copied()
            && self.client.has_room(body)
        {
            self.waiting.pop_front();
            self.client.tell(body).expect("room");
        }
        if self.waiting.is_empty() {
            if self.client.has_repeated_offers() {
                self.client.settle_offers().expect("room");
            }
            for socket in std::mem::take(&mut self.held_up) {
                let events = Events::READABLE;
                let event = SocketEvent { socket, events };
                self.events.push_back((Protocol::Tcp, event));
            }
        }
        while let Some(opening) = self.openings.front_mut() {
            if opening.asked {
                let Some(answer) = self.client.take_begun() else {
                    return;
                };
                opening.asked = false;
                if let Some(result) = opening.answer(answer) {
                    self.conclude(result, opened, shared);
                    continue;
                }
            }
            let Some(call) = self.openings.front().and_then(Opening::call) else {
                let made = self.openings.front().and_then(|opening| opening.socket);
                self.conclude(made.ok_or(SocketError::Invalid), opened, shared);
                continue;
            };
            if !self.waiting.is_empty() || !self.client.has_room(RequestBody::Call(call)) {
                return;
            }
            self.client.begin(call).expect("room");
            if let Some(opening) = self.openings.front_mut() {
                opening.asked = true;
            }
        }
    }

    fn conclude(
        &mut self,
        result: Result<SocketId, SocketError>,
        opened: &mut VecDeque<Opened>,
        shared: &mut Vec<Shared>,
    ) {
        let Some(opening) = self.openings.pop_front() else {
            return;
        };
        let Some(number) = opening.number else {
            if let Some((_, socket)) = opening.share {
                self.has_shared = true;
                shared.push((self.number, socket, result.map(drop)));
            }
            return;
        };
        if let (Err(_), Some(socket)) = (result, opening.socket) {
            let close = SocketCall::Close(opening.plan.protocol, socket);
            self.say(RequestBody::Call(close));
        }
        opened.push_back((number, result, opening.early));
    }

    pub fn say(&mut self, body: RequestBody) {
        if self.waiting.is_empty() && self.client.has_room(body) {
            return self.client.tell(body).expect("room");
        }
        self.waiting.push_back(body);
    }

    pub fn close_listener(&mut self, socket: SocketId) {
        self.client.forget_offers(socket);
    }

    pub fn accept(&mut self, listener: SocketId, table: &SocketTable) -> Option<SocketId> {
        let accepted = RequestBody::Accepted {
            listener,
            connection: listener,
        };
        if !self.waiting.is_empty() || !self.client.has_room(accepted) {
            if !self.held_up.contains(&listener) {
                self.held_up.push(listener);
            }
            return None;
        }
        let accepted = self.client.accept(listener, |it| table.take_offer(it));
        accepted.expect("room")
    }
}

impl Opening {
    /// A call is answered. Answers why the socket can't be made, if it can't.
    fn answer(
        &mut self,
        answer: Result<Answer, SocketError>,
    ) -> Option<Result<SocketId, SocketError>> {
        match answer {
            Ok(answer) => {
                self.socket = answer.socket.or(self.socket);
                self.answered += 1;
                None
            }
            Err(error) => Some(Err(error)),
        }
    }
}
