//! A host's components on their own, as its programs see them: through their channels.

use crate::machine::{Machine, Who};
use crate::place::{SocketPlan, Then};
use rustix::event::{PollFd, PollFlags, Timespec};
use skink_channel::{Sleeper, SpinBudget};
use skink_library::Protocol;
use skink_memory::SocketId;
use skink_messages::{
    Answer, Events, SocketCall, SocketError, SocketEvent, TcpRequest, UdpRequest,
};
use skink_sockets::{Client, PortOptions, RequestBody};
use skink_time::Instant;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::BorrowedFd;

/// A socket that is being made: each call is answered before the next.
struct Opening {
    /// Who wants it.
    number: usize,
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

/// A program's side of its channels.
struct Program {
    client: Client,
    openings: VecDeque<Opening>,
    /// What it has to say and there was no room for.
    waiting: VecDeque<RequestBody>,
    events: VecDeque<(Protocol, SocketEvent)>,
    /// Listening sockets on which it couldn't say that it takes a connection.
    held_up: Vec<SocketId>,
}

/// A socket that was made, or why not, for whom, and what was heard of it since.
pub type Opened = (usize, Result<SocketId, SocketError>, Events);

/// A machine with its programs.
pub struct Apart {
    /// The components.
    pub machine: Machine,
    sleepers: [Sleeper; Who::COUNT],
    programs: BTreeMap<u32, Program>,
    opened: VecDeque<Opened>,
    /// Programs that are gone, of which one of two regions is finished: a transport's successor says it again.
    halves: Vec<(Protocol, u32)>,
    finished: VecDeque<u32>,
}

impl Apart {
    /// Around a machine that has just started.
    pub fn new(machine: Machine) -> Apart {
        let sleepers = machine.sleepers.each_ref().map(|it| {
            let parts = it.sleeper().expect("a sleeper");
            Sleeper::attach(parts, SpinBudget::new(0)).expect("a sleeper")
        });
        let programs = machine.regions().iter().map(|(number, _, _)| {
            let mut client = machine.client(*number);
            client.announce();
            let program = Program {
                client,
                openings: VecDeque::new(),
                waiting: VecDeque::new(),
                events: VecDeque::new(),
                held_up: Vec::new(),
            };
            (*number, program)
        });
        Apart {
            programs: programs.collect(),
            machine,
            sleepers,
            opened: VecDeque::new(),
            halves: Vec::new(),
            finished: VecDeque::new(),
        }
    }

    /// A component is about to sleep. Answers whether it must not.
    pub fn lie_down(&mut self, who: Who) -> bool {
        let sleeper = &mut self.sleepers[who as usize];
        sleeper.announce();
        let wakes = self.machine.host(who).is_some_and(|host| host.is_ready());
        if wakes {
            sleeper.awake();
        }
        wakes
    }

    /// It goes on.
    pub fn get_up(&mut self, who: Who) {
        self.sleepers[who as usize].retract();
        self.hush(who);
    }

    fn hush(&mut self, who: Who) {
        if let Some(front) = self.machine.front(who) {
            for program in front.programs.numbers.clone() {
                front.hush(program);
            }
        }
    }

    /// Whether a neighbour or a program rang for it.
    pub fn is_rung(&mut self, who: Who) -> bool {
        let own = self.sleepers[who as usize].bell();
        let front = self.machine.front(who);
        let programs = front.iter().flat_map(|front| {
            let all = front.programs.numbers.iter();
            all.filter_map(|number| Some(front.programs.get(*number)?.server.bell()))
        });
        is_any_readable(std::iter::once(own).chain(programs))
    }

    /// What rang isn't heard; the component sleeps on.
    pub fn lose_bell(&mut self, who: Who) {
        let bell = self.sleepers[who as usize].bell();
        if is_readable(bell) {
            let _ = rustix::io::read(bell, &mut [0; 8]);
        }
        self.hush(who);
    }

    /// A program makes a socket, after those before.
    pub fn make(&mut self, number: usize, plan: SocketPlan) {
        let opening = Opening {
            number,
            plan,
            socket: None,
            answered: 0,
            asked: false,
            early: Events::empty(),
        };
        if let Some(program) = self.programs.get_mut(&plan.program) {
            program.openings.push_back(opening);
            program.go_on(&mut self.opened);
        }
    }

    /// Takes a socket that was made.
    pub fn take_opened(&mut self) -> Option<Opened> {
        for program in self.programs.values_mut() {
            program.hear(&mut self.opened);
        }
        self.opened.pop_front()
    }

    /// What programs have said leaves.
    pub fn flush(&mut self) {
        for program in self.programs.values_mut() {
            program.go_on(&mut self.opened);
            program.client.flush();
        }
    }

    fn say(&mut self, protocol: Protocol, socket: SocketId, body: RequestBody) {
        let owner = self.machine.owner(protocol, socket);
        if let Some(program) = self.programs.get_mut(&owner) {
            program.say(body);
        }
    }

    /// As [`skink_library::Stack::tcp_request`].
    pub fn tcp_request(&mut self, request: TcpRequest) {
        let socket = match request {
            TcpRequest::Close(socket) => {
                let owner = self.machine.owner(Protocol::Tcp, socket);
                if let Some(program) = self.programs.get_mut(&owner) {
                    program.close_listener(socket);
                }
                let close = RequestBody::Call(SocketCall::Close(Protocol::Tcp, socket));
                return self.say(Protocol::Tcp, socket, close);
            }
            TcpRequest::Sent(socket)
            | TcpRequest::Received(socket)
            | TcpRequest::Shutdown(socket, _)
            | TcpRequest::SetOption(socket, _) => socket,
        };
        self.say(Protocol::Tcp, socket, RequestBody::Tcp(request));
    }

    /// As [`skink_library::Stack::udp_request`].
    pub fn udp_request(&mut self, request: UdpRequest) {
        let (socket, body) = match request {
            UdpRequest::Close(socket) => {
                let close = SocketCall::Close(Protocol::Udp, socket);
                (socket, RequestBody::Call(close))
            }
            UdpRequest::Sent(socket) => (socket, RequestBody::Udp(request)),
        };
        self.say(Protocol::Udp, socket, body);
    }

    /// A program is gone: whoever watches programs says so.
    pub fn abandon(&mut self, now: Instant, program: u32) {
        if self.programs.remove(&program).is_some() {
            self.machine.program_ended(now, program);
        }
    }

    /// As [`skink_library::Stack::take_eventful`], of what was heard.
    pub fn take_eventful(&mut self) -> Option<u32> {
        let mut programs = self.programs.iter();
        let (number, _) = programs.find(|(_, program)| !program.events.is_empty())?;
        Some(*number)
    }

    /// As [`skink_library::Stack::take_event_of`].
    pub fn take_event_of(&mut self, program: u32) -> Option<(Protocol, SocketEvent)> {
        self.programs.get_mut(&program)?.events.pop_front()
    }

    /// As [`skink_library::Stack::take_finished`].
    pub fn take_finished(&mut self) -> Option<u32> {
        for (who, protocol, other) in [
            (Who::Tcp, Protocol::Tcp, Protocol::Udp),
            (Who::Udp, Protocol::Udp, Protocol::Tcp),
        ] {
            while let Some(program) = self
                .machine
                .front(who)
                .and_then(|front| front.take_finished())
            {
                if self.halves.contains(&(other, program)) {
                    self.halves.retain(|(_, it)| *it != program);
                    self.finished.push_back(program);
                } else if !self.halves.contains(&(protocol, program)) {
                    self.halves.push((protocol, program));
                }
            }
        }
        let program = self.finished.pop_front()?;
        self.machine.forget_program(program);
        Some(program)
    }

    /// Connections that a program was offered.
    pub fn tcp_acceptable(&self, listener: SocketId) -> usize {
        let owner = self.machine.owner(Protocol::Tcp, listener);
        let program = self.programs.get(&owner);
        program.map_or(0, |program| program.client.acceptable(listener))
    }

    /// As [`skink_library::Stack::tcp_accept`].
    pub fn tcp_accept(&mut self, listener: SocketId) -> Option<SocketId> {
        let owner = self.machine.owner(Protocol::Tcp, listener);
        self.programs.get_mut(&owner)?.accept(listener)
    }

    /// A program that would have to wait until it can take a connection.
    pub fn is_held_up(&self, listener: SocketId) -> bool {
        let owner = self.machine.owner(Protocol::Tcp, listener);
        let program = self.programs.get(&owner);
        program.is_some_and(|program| program.held_up.contains(&listener))
    }
}

impl Program {
    /// Listens to what the stack says, if it rang, and goes to sleep again.
    fn hear(&mut self, opened: &mut VecDeque<Opened>) {
        while is_readable(self.client.bell()) || !self.client.is_announced() {
            self.client.retract();
            self.client.poll().expect("a good channel");
            while let Some((protocol, event)) = self.client.take_event() {
                self.take_in(protocol, event);
            }
            self.go_on(opened);
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
    fn go_on(&mut self, opened: &mut VecDeque<Opened>) {
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
                    self.conclude(result, opened);
                    continue;
                }
            }
            let Some(call) = self.openings.front().and_then(Opening::call) else {
                let made = self.openings.front().and_then(|opening| opening.socket);
                self.conclude(made.ok_or(SocketError::Invalid), opened);
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

    fn conclude(&mut self, result: Result<SocketId, SocketError>, opened: &mut VecDeque<Opened>) {
        let Some(opening) = self.openings.pop_front() else {
            return;
        };
        if let (Err(_), Some(socket)) = (result, opening.socket) {
            let close = SocketCall::Close(opening.plan.protocol, socket);
            self.say(RequestBody::Call(close));
        }
        opened.push_back((opening.number, result, opening.early));
    }

    fn say(&mut self, body: RequestBody) {
        if self.waiting.is_empty() && self.client.has_room(body) {
            return self.client.tell(body).expect("room");
        }
        self.waiting.push_back(body);
    }

    fn close_listener(&mut self, socket: SocketId) {
        for offered in self.client.refuse_offers(socket) {
            let close = SocketCall::Close(Protocol::Tcp, offered);
            self.say(RequestBody::Call(close));
        }
    }

    fn accept(&mut self, listener: SocketId) -> Option<SocketId> {
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
        self.client.accept(listener).expect("room")
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

fn is_readable(bell: BorrowedFd<'_>) -> bool {
    is_any_readable(std::iter::once(bell))
}

fn is_any_readable<'a>(bells: impl Iterator<Item = BorrowedFd<'a>>) -> bool {
    let bells = bells.map(|bell| PollFd::from_borrowed_fd(bell, PollFlags::IN));
    let mut bells: Vec<PollFd<'_>> = bells.collect();
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let polled = rustix::event::poll(&mut bells, Some(&now));
    polled.is_ok()
        && bells
            .iter()
            .any(|bell| bell.revents().contains(PollFlags::IN))
}
