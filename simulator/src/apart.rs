//! A host's components on their own, as its programs see them: through their channels.

mod program;
mod sharing;

use crate::machine::{Machine, Who};
use crate::place::SocketPlan;
use program::Program;
use rustix::event::{PollFd, PollFlags, Timespec};
use sharing::Sharing;
use skink_channel::{Sleeper, SpinBudget};
use skink_library::Protocol;
use skink_memory::SocketId;
use skink_messages::{Events, SocketCall, SocketError, SocketEvent, TcpRequest, UdpRequest};
use skink_sockets::RequestBody;
use skink_time::Instant;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::BorrowedFd;

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
    sharing: Sharing,
    /// `syscall` was told that a program has ended.
    ordered: bool,
}

impl Apart {
    /// Around a machine that has just started.
    pub fn new(machine: Machine) -> Apart {
        let sleepers = machine.sleepers.each_ref().map(|it| {
            let parts = it.sleeper().expect("a sleeper");
            Sleeper::attach(parts, SpinBudget::new(0)).expect("a sleeper")
        });
        let programs = machine.regions().iter();
        let programs = programs
            .map(|(number, _, _)| (*number, Program::new(*number, machine.client(*number))));
        Apart {
            programs: programs.collect(),
            machine,
            sleepers,
            opened: VecDeque::new(),
            halves: Vec::new(),
            finished: VecDeque::new(),
            sharing: Sharing::default(),
            ordered: false,
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
    pub fn make(&mut self, number: usize, mut plan: SocketPlan) {
        if self.sharing.ended.contains(&plan.program) {
            // Another one of the same does it.
            plan.program = 0;
        }
        if let Some(program) = self.programs.get_mut(&plan.program) {
            program.make(number, plan);
            program.go_on(&mut self.opened, &mut self.sharing.answers);
        }
    }

    /// Takes a socket that was made.
    pub fn take_opened(&mut self) -> Option<Opened> {
        for program in self.programs.values_mut() {
            program.hear(&mut self.opened, &mut self.sharing.answers);
        }
        self.hand_over();
        let opened = self.opened.pop_front();
        if let Some((_, Ok(socket), _)) = opened {
            self.own(socket);
        }
        opened
    }

    /// What programs have said leaves.
    pub fn flush(&mut self, now: Instant) {
        for program in self.programs.values_mut() {
            program.go_on(&mut self.opened, &mut self.sharing.answers);
            program.client.flush();
        }
        self.end_idle(now);
    }

    fn say(&mut self, protocol: Protocol, socket: SocketId, body: RequestBody) {
        let user = self.user(protocol, socket);
        if let Some(program) = self.programs.get_mut(&user) {
            program.say(body);
        }
    }

    /// As [`skink_library::Stack::tcp_request`].
    pub fn tcp_request(&mut self, request: TcpRequest) {
        let socket = match request {
            TcpRequest::Close(socket) => {
                if self.close_shared(socket) {
                    return;
                }
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
        if sharing::is_use(&request) {
            self.used(socket);
        }
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
            self.ordered = true;
        }
    }

    /// Whether `syscall` has been told something since the last time.
    pub fn take_ordered(&mut self) -> bool {
        std::mem::take(&mut self.ordered)
    }

    /// As [`skink_library::Stack::take_eventful`], of what was heard.
    pub fn take_eventful(&mut self) -> Option<u32> {
        let mut programs = self.programs.iter();
        let (number, _) = programs.find(|(_, program)| !program.events.is_empty())?;
        Some(*number)
    }

    /// As [`skink_library::Stack::take_event_of`].
    pub fn take_event_of(&mut self, program: u32) -> Option<(Protocol, SocketEvent)> {
        loop {
            let event = self.programs.get_mut(&program)?.events.pop_front()?;
            if !self.is_for_another(program, event) {
                return Some(event);
            }
        }
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
        loop {
            let program = self.finished.pop_front()?;
            self.machine.forget_program(program);
            if !self.sharing.ended.contains(&program) {
                return Some(program);
            }
        }
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
        let program = self.programs.get_mut(&owner)?;
        let accepted = program.accept(listener, self.machine.table(Protocol::Tcp))?;
        self.own(accepted);
        Some(accepted)
    }

    /// A program that would have to wait until it can take a connection.
    pub fn is_held_up(&self, listener: SocketId) -> bool {
        let owner = self.machine.owner(Protocol::Tcp, listener);
        let program = self.programs.get(&owner);
        program.is_some_and(|program| program.held_up.contains(&listener))
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
