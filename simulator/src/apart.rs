//! A host's components on their own, as its programs see them.

use crate::machine::{Machine, Who};
use skink_channel::{Sleeper, SpinBudget};
use skink_library::{EventQueues, Protocol};
use skink_memory::SocketId;
use skink_messages::{Component, SocketEvent, TcpInput, TcpRequest, UdpInput, UdpRequest};
use skink_time::Instant;
use std::collections::VecDeque;

/// What a program wants of a transport, without an answer. While that is dead, it waits in a channel.
#[derive(Clone, Copy, Debug)]
enum Wish {
    Tcp(TcpRequest),
    Udp(UdpRequest),
    Abandon(Protocol, u32),
}

impl Wish {
    fn of(self) -> Who {
        match self {
            Wish::Tcp(_) | Wish::Abandon(Protocol::Tcp, _) => Who::Tcp,
            Wish::Udp(_) | Wish::Abandon(Protocol::Udp, _) => Who::Udp,
        }
    }
}

/// A machine with its programs' queues.
pub struct Apart {
    /// The components.
    pub machine: Machine,
    sleepers: [Sleeper; 5],
    events: EventQueues,
    waiting: Vec<Wish>,
    /// What each transport was asked for since its last turn ended.
    fresh: Vec<Wish>,
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
        let tcp = machine.tcp.tcp().table().stride();
        let mut events = EventQueues::new(tcp, machine.udp.udp().table().stride());
        let programs = machine.regions().iter();
        programs.for_each(|(program, _, _)| events.add(*program));
        Apart {
            machine,
            sleepers,
            events,
            waiting: Vec::new(),
            fresh: Vec::new(),
            halves: Vec::new(),
            finished: VecDeque::new(),
        }
    }

    /// Whether a call that needs an answer can be carried out.
    pub fn answers(&self) -> bool {
        !self.machine.is_dead(Who::Tcp) && !self.machine.is_dead(Who::Udp)
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
    }

    /// Whether somebody rang for it.
    pub fn is_rung(&self, who: Who) -> bool {
        let bell = self.sleepers[who as usize].bell();
        let mut bell = [rustix::event::PollFd::from_borrowed_fd(
            bell,
            rustix::event::PollFlags::IN,
        )];
        let now = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        rustix::event::poll(&mut bell, Some(&now)) == Ok(1)
    }

    /// What rang isn't heard; the component sleeps on.
    pub fn lose_bell(&mut self, who: Who) {
        let bell = self.sleepers[who as usize].bell();
        let _ = rustix::io::read(bell, &mut [0; 8]);
    }

    /// A component's turn is over, and it lives.
    pub fn turn_ended(&mut self, who: Who) {
        self.fresh.retain(|wish| wish.of() != who);
    }

    /// A component died. What programs wanted of it since its last turn, they still want if `again`: it may have
    /// died before it took that from their queues.
    pub fn part_died(&mut self, who: Who, again: bool) {
        let fresh: Vec<Wish> = self.fresh.extract_if(.., |wish| wish.of() == who).collect();
        if again {
            self.waiting.extend(fresh);
        }
    }

    /// A transport has a successor: it takes what waits for it.
    pub fn greet(&mut self, now: Instant, who: Who) {
        let waiting = self.waiting.extract_if(.., |wish| wish.of() == who);
        for wish in waiting.collect::<Vec<_>>() {
            self.ask(now, wish);
        }
    }

    fn ask(&mut self, now: Instant, wish: Wish) {
        if self.machine.is_dead(wish.of()) {
            return self.waiting.push(wish);
        }
        self.fresh.push(wish);
        let (tcp, udp) = (&mut self.machine.tcp, &mut self.machine.udp);
        // A request is never refused: transports remember what they couldn't send.
        match wish {
            Wish::Tcp(request) => tcp.call(|tcp, below| {
                let _ = tcp.handle(now, TcpInput::Request(request), below);
            }),
            Wish::Udp(request) => udp.call(|udp, below| {
                let _ = udp.handle(now, UdpInput::Request(request), below);
            }),
            Wish::Abandon(Protocol::Tcp, program) => {
                tcp.call(|tcp, below| tcp.abandon_region(now, program, below));
            }
            Wish::Abandon(Protocol::Udp, program) => {
                udp.call(|udp, below| udp.abandon_region(now, program, below));
            }
        }
    }

    /// As [`skink_library::Stack::tcp_request`].
    pub fn tcp_request(&mut self, now: Instant, request: TcpRequest) {
        self.ask(now, Wish::Tcp(request));
    }

    /// As [`skink_library::Stack::udp_request`].
    pub fn udp_request(&mut self, now: Instant, request: UdpRequest) {
        self.ask(now, Wish::Udp(request));
    }

    /// As [`skink_library::Stack::abandon`].
    pub fn abandon(&mut self, now: Instant, protocol: Protocol, program: u32) {
        self.ask(now, Wish::Abandon(protocol, program));
    }

    fn take_events(&mut self) {
        let machine = &mut self.machine;
        if !machine.is_dead(Who::Tcp) {
            while let Some(event) = machine.tcp.take_event() {
                self.events.push(Protocol::Tcp, event);
            }
        }
        if !machine.is_dead(Who::Udp) {
            while let Some(event) = machine.udp.take_event() {
                self.events.push(Protocol::Udp, event);
            }
        }
    }

    /// As [`skink_library::Stack::take_eventful`].
    pub fn take_eventful(&mut self) -> Option<u32> {
        self.take_events();
        self.events.take_eventful()
    }

    /// As [`skink_library::Stack::take_event_of`].
    pub fn take_event_of(&mut self, program: u32) -> Option<(Protocol, SocketEvent)> {
        self.take_events();
        self.events.pop(program)
    }

    /// As [`skink_library::Stack::take_finished`].
    pub fn take_finished(&mut self) -> Option<u32> {
        let machine = &mut self.machine;
        let mut over = Vec::new();
        if !machine.is_dead(Who::Tcp) {
            let regions = std::iter::from_fn(|| machine.tcp.take_finished_region());
            over.extend(regions.map(|program| (Protocol::Tcp, Protocol::Udp, program)));
        }
        if !machine.is_dead(Who::Udp) {
            let regions = std::iter::from_fn(|| machine.udp.take_finished_region());
            over.extend(regions.map(|program| (Protocol::Udp, Protocol::Tcp, program)));
        }
        for (protocol, other, program) in over {
            if self.halves.contains(&(other, program)) {
                self.halves.retain(|(_, it)| *it != program);
                self.finished.push_back(program);
            } else if !self.halves.contains(&(protocol, program)) {
                self.halves.push((protocol, program));
            }
        }
        let program = self.finished.pop_front()?;
        self.machine.forget_program(program);
        self.events.remove(program);
        Some(program)
    }

    /// As [`skink_library::Stack::tcp_accept`].
    pub fn tcp_accept(&mut self, listener: SocketId) -> Option<SocketId> {
        self.machine.tcp.call(|tcp, _| tcp.accept(listener))
    }
}
