//! What programs have channels to.

mod calls;
mod holders;
mod notices;
mod offers;
mod program;
mod requests;
mod sharing;
mod syscall;

pub use calls::CallEnd;
pub use program::Program;

use crate::apart::Apart;
use crate::host::{Host, Neighbour};
use crate::serving::Serving;
use crate::syscall_host::SyscallHost;
use holders::Holders;
use sharing::Sharing;
use skink_lanes::{EndCounters, Incarnation};
use skink_memory::{Adopted, Region, TableError};
use skink_messages::{Counter, Counters, Progress, Protocol};
use skink_sockets::Server;
use skink_time::Instant;
use std::collections::{HashMap, HashSet, VecDeque};

/// The attached programs, by number.
#[derive(Default)]
pub struct Programs {
    all: Vec<Option<Program>>,
    /// Numbers of those there are.
    pub numbers: Vec<u32>,
}

impl Programs {
    /// One of them.
    pub fn get(&self, program: u32) -> Option<&Program> {
        self.all.get(program as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, program: u32) -> Option<&mut Program> {
        self.all.get_mut(program as usize)?.as_mut()
    }

    fn insert(&mut self, number: u32, program: Program) {
        let index = number as usize;
        if index >= self.all.len() {
            self.all.resize_with(index + 1, || None);
        }
        if let Some(place) = self.all.get_mut(index) {
            *place = Some(program);
            self.numbers.push(number);
        }
    }

    fn remove(&mut self, number: u32) -> Option<Program> {
        let program = self.all.get_mut(number as usize)?.take()?;
        self.numbers.retain(|other| *other != number);
        Some(program)
    }

    fn iter(&self) -> impl Iterator<Item = &Program> {
        self.numbers.iter().filter_map(|number| self.get(*number))
    }
}

/// A program that comes, as this process is told of it.
pub struct Arrival {
    /// Its number.
    pub program: u32,
    /// Its process, for people.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Who knows it may share its sockets.
    pub secret: u64,
    /// This process's end of its channel.
    pub server: Server,
    /// By [`Protocol::index`]: its sockets, if they are here.
    pub regions: [Option<Region>; 2],
}

/// What a turn came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Turn {
    /// There was something to do.
    pub busy: bool,
    /// There is more to do at once, unless the NIC is full.
    pub more: bool,
}

/// Those of `syscall`, `tcp` and `udp` that are in one process, or all of a stack, with the programs that have
/// a channel to it.
pub struct Front {
    /// `tcp` and `udp`, and in one process with them all the rest.
    pub stack: Serving,
    /// Their ends towards a `syscall` that is apart, by [`Protocol::index`].
    call_ends: [Option<CallEnd>; 2],
    syscall: Option<SyscallHost>,
    counters: Counters,
    /// The programs that are served.
    pub programs: Programs,
    /// Sockets that several programs hold.
    holders: Holders,
    /// Whether it knows all of them, by [`Protocol::index`].
    sharing: [Sharing; 2],
    /// Programs that have ended while others held sockets of theirs.
    departed: HashSet<(Protocol, u32)>,
    /// The tags of programs whose sockets are here, see [`skink_messages::attachment_tag`].
    tags: HashMap<u32, u32>,
    /// Slots of each program's regions, by [`Protocol::index`]: powers of two.
    strides: [u32; 2],
    /// Programs that something may have to be told to.
    due: VecDeque<u32>,
    /// Programs that there was no room for.
    stalled: Vec<u32>,
    /// Who is served first.
    first: usize,
    /// A predecessor may have carried out calls that it is asked for again.
    is_successor: bool,
    /// Who would hear of programs that spoil their channels is there.
    pub is_supervised: bool,
    /// Programs that have spoilt their channels, and their processes, for whoever takes them.
    pub spoilt: Vec<(u32, u32)>,
    /// Those that aren't served any more, for whoever takes them: their bells may have to be forgotten.
    pub gone: Vec<Program>,
}

impl Front {
    /// Without programs, and without `syscall`.
    pub fn new(stack: Serving, strides: [u32; 2], counters: Counters) -> Front {
        Front {
            stack,
            call_ends: [None, None],
            syscall: None,
            counters,
            programs: Programs::default(),
            holders: Holders::default(),
            sharing: Default::default(),
            departed: HashSet::new(),
            tags: HashMap::new(),
            strides,
            due: VecDeque::new(),
            stalled: Vec::new(),
            first: 0,
            is_successor: false,
            is_supervised: true,
            spoilt: Vec::new(),
            gone: Vec::new(),
        }
    }

    /// A predecessor may have served the programs that come.
    pub fn set_successor(&mut self, is_successor: bool) {
        self.is_successor = is_successor;
        self.sharing = [(); 2].map(|()| Sharing::new(is_successor));
    }

    /// Puts `syscall` in.
    pub fn set_syscall(&mut self, syscall: SyscallHost) {
        self.syscall = Some(syscall);
    }

    /// Puts a transport in, and its end towards `syscall`.
    pub fn set_transport(
        &mut self,
        protocol: Protocol,
        end: CallEnd,
        set: impl FnOnce(&mut Apart),
    ) {
        if let Some(apart) = self.stack.apart() {
            set(apart);
        }
        if let Some(place) = self.call_ends.get_mut(protocol.index()) {
            *place = Some(end);
        }
    }

    /// Serves a portion of what programs, `syscall` and the transports' neighbours want.
    pub fn turn(&mut self, now: Instant) -> Turn {
        let mut busy = self.stack.is_ready();
        self.clear_spent();
        busy |= self.serve_requests(now);
        busy |= self.poll_syscall(now);
        busy |= self.serve_calls(now);
        let transports = self.stack.transports();
        let more = transports.poll(now) == Progress::More;
        busy |= transports.received() > 0;
        busy |= self.tell_programs(now);
        Turn { busy, more }
    }

    fn broken(&self) -> Option<Neighbour> {
        let mut calls = self.call_ends.iter().flatten();
        let by_syscall = calls.any(|end| end.exchange.is_broken());
        let by_ip = self.stack.is_broken().then_some(Neighbour::Ip);
        let by_syscall = by_syscall.then_some(Neighbour::Syscall);
        let syscall = self.syscall.as_ref();
        by_ip
            .or(by_syscall)
            .or_else(|| syscall.and_then(SyscallHost::broken))
    }

    /// What was dropped at its ends.
    pub fn dropped(&mut self) -> EndCounters {
        let ends = self.call_ends.iter().flatten();
        let mut all = ends.fold(EndCounters::default(), |sum, end| {
            sum.plus(end.exchange.counters)
        });
        if let Some(apart) = self.stack.apart() {
            all = all.plus(apart.dropped());
        }
        if let Some(syscall) = &self.syscall {
            all = all.plus(syscall.dropped());
        }
        all
    }

    /// A transport was replaced.
    pub fn transport_restarted(&mut self, protocol: Protocol, incarnation: Incarnation) {
        if let Some(syscall) = &mut self.syscall {
            syscall.transport_restarted(protocol, incarnation);
        }
    }

    /// `store` was replaced.
    pub fn store_restarted(&mut self, incarnation: Incarnation) {
        if let Some(syscall) = &mut self.syscall {
            syscall.store_restarted(incarnation);
        }
    }

    /// `syscall` was replaced.
    pub fn syscall_restarted(&mut self, incarnation: Incarnation) {
        for end in self.call_ends.iter_mut().flatten() {
            end.exchange.restarted(incarnation);
        }
    }

    /// The neighbours of `syscall` know of it. A `successor` asks first for what was stored.
    pub fn syscall_goes(&mut self, successor: bool) {
        if let Some(syscall) = &mut self.syscall {
            syscall.go(successor);
        }
    }

    /// A successor begins: takes in what programs have told a predecessor, and wakes them. It may have died
    /// before it did.
    pub fn greet_programs(&mut self, now: Instant) {
        if !self.is_successor {
            return;
        }
        for program in self.programs.numbers.clone() {
            self.serve_direct(now, program);
            if let Some(attached) = self.programs.get_mut(program) {
                attached.server.ring();
            }
            self.make_due(program);
        }
    }

    /// A program has rung, and is heard.
    pub fn hush(&mut self, program: u32) {
        if let Some(attached) = self.programs.get_mut(program) {
            attached.server.hush();
        }
    }

    /// The tag of a program whose sockets are here.
    pub fn tag(&self, program: u32) -> Option<u32> {
        self.tags.get(&program).copied()
    }

    /// Serves one more program, whose number is free here. Its sockets may have been a predecessor's.
    ///
    /// # Errors
    /// As [`SocketTable::can_insert`](skink_memory::SocketTable::can_insert).
    pub fn attach(&mut self, now: Instant, arrival: Arrival) -> Result<Adopted, TableError> {
        let Arrival {
            program,
            pid,
            uid,
            secret,
            server,
            regions: [tcp, udp],
        } = arrival;
        let transports = self.stack.transports();
        let adopted = match transports.adopt_program(now, program, tcp, udp) {
            Ok(adopted) => adopted,
            Err(error) => {
                self.gone.push(Program::new(server, pid));
                return Err(error);
            }
        };
        if let Some(syscall) = &mut self.syscall {
            syscall.attach(program, uid, secret);
        }
        let tag = skink_messages::attachment_tag(secret);
        self.tags.insert(program, tag);
        self.programs.insert(program, Program::new(server, pid));
        self.find_listeners(program);
        self.counters.count(Counter::SocketsPrograms);
        Ok(adopted)
    }

    /// The program is here no more. Nothing is said of its sockets.
    fn remove_program(&mut self, program: u32) {
        self.gone.extend(self.programs.remove(program));
    }

    /// A program has ended.
    pub fn program_ended(&mut self, now: Instant, program: u32) {
        self.serve_last(now, program);
        self.remove_program(program);
        if let Some(syscall) = &mut self.syscall {
            syscall.detach(program);
            return self.run_syscall(now);
        }
        for protocol in Protocol::ALL {
            if self.stack.has(protocol) {
                self.end_program_if_known(now, protocol, program);
            }
        }
    }

    /// A program has spoilt its channel. The supervisor looks whether that is so: if it is, `syscall` hears from
    /// there that the program has ended, and tells all transports.
    fn spoilt(&mut self, now: Instant, program: u32) {
        let pid = self.programs.get(program).map_or(0, |it| it.pid);
        self.counters.count(Counter::SocketsSpoilt);
        match self.is_supervised {
            true => self.remove_program(program),
            false => self.program_ended(now, program),
        }
        self.spoilt.push((program, pid));
    }

    /// The stack is about to stop: all programs lose their sockets, as if they had ended. Whoever else holds a socket
    /// loses it as well, so `syscall` isn't asked. What had been written is still delivered for as long as there are turns.
    pub fn end(&mut self, now: Instant) {
        let mut all: Vec<_> = std::mem::take(&mut self.departed).into_iter().collect();
        for program in self.programs.numbers.clone() {
            self.serve_last(now, program);
            self.remove_program(program);
            all.extend(Protocol::ALL.map(|protocol| (protocol, program)));
        }
        let transports = self.stack.transports();
        for (protocol, program) in all {
            transports.abandon(now, protocol, program);
        }
    }

    /// Resets connections that have still something to deliver. `More` if not all could be.
    pub fn reset_unfinished(&mut self, now: Instant) -> Progress {
        let transports = self.stack.transports();
        let progress = transports.reset_unfinished(now);
        transports.poll(now);
        progress
    }

    /// A program whose last socket here is gone.
    pub fn take_finished(&mut self) -> Option<u32> {
        let program = self.stack.transports().take_finished()?;
        // A supervisor that doesn't know that it had finished here has it attached once more: then it is finished at
        // once, before its end is told of.
        self.remove_program(program);
        self.tags.remove(&program);
        Some(program)
    }

    /// Something may have to be told to a program.
    pub(crate) fn make_due(&mut self, program: u32) {
        if let Some(attached) = self.programs.get_mut(program)
            && !attached.due
        {
            attached.due = true;
            self.due.push_back(program);
        }
    }
}

impl Host for Front {
    fn poll(&mut self, now: Instant) -> Progress {
        match self.turn(now).more {
            true => Progress::More,
            false => Progress::Idle,
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.stack.next_deadline()
    }

    fn is_ready(&self) -> bool {
        self.programs.iter().any(Program::asks)
            || self.can_go_on()
            || self.stack.is_ready()
            || self.is_called()
            || self.syscall.as_ref().is_some_and(SyscallHost::is_ready)
    }

    fn broken(&self) -> Option<Neighbour> {
        self.broken()
    }
}
