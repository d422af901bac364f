//! The stack and the programs it serves.
use crate::ports::PortRegister;
use crate::program::Program;
use crate::serving::Serving;
use crate::shares::Shares;
use crate::start::{Parts, StartError};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use skink_channel::{Sleeper, SpinBudget};
use skink_control::Report;
use skink_library::{Stack, StackConfig};
use skink_messages::Counters;
use skink_sockets::Request;
use std::collections::{HashMap, VecDeque};
use std::os::fd::{BorrowedFd, OwnedFd};

/// Numbers of programs are below this.
pub(crate) const PROGRAMS: u32 = 4096;

/// What an epoll event is about.
pub(crate) mod about {
    pub const LINK: u64 = 1 << 32;
    pub const NIC: u64 = 2 << 32;
    pub const BELL: u64 = 3 << 32;
    pub const BLOCKED: u64 = 4 << 32;
    /// With a program's number: it is gone.
    pub const GONE: u64 = 5 << 32;
    pub const END: u64 = 6 << 32;
    /// Numbers below are those of programs.
    pub const PROGRAMS: u64 = 1 << 32;
}

/// The attached programs, by number.
#[derive(Default)]
pub(crate) struct Programs {
    all: Vec<Option<Program>>,
    /// Numbers of those there are.
    pub numbers: Vec<u32>,
}

impl Programs {
    pub fn get(&self, program: u32) -> Option<&Program> {
        self.all.get(program as usize)?.as_ref()
    }

    pub fn get_mut(&mut self, program: u32) -> Option<&mut Program> {
        self.all.get_mut(program as usize)?.as_mut()
    }

    pub fn insert(&mut self, number: u32, program: Program) {
        let index = number as usize;
        if index >= self.all.len() {
            self.all.resize_with(index + 1, || None);
        }
        if let Some(place) = self.all.get_mut(index) {
            *place = Some(program);
            self.numbers.push(number);
        }
    }

    pub fn remove(&mut self, number: u32) -> Option<Program> {
        let program = self.all.get_mut(number as usize)?.take()?;
        self.numbers.retain(|other| *other != number);
        Some(program)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Program> {
        self.numbers.iter().filter_map(|number| self.get(*number))
    }
}

/// A stack with the programs that it serves. [`serve`](crate::serve) runs it.
pub struct Host {
    pub(crate) stack: Serving,
    pub(crate) counters: Counters,
    pub(crate) programs: Programs,
    pub(crate) shares: Shares,
    /// Programs that have ended while others held sockets of theirs, with their secrets.
    pub(crate) departed: HashMap<u32, u64>,
    pub(crate) ports: PortRegister,
    pub(crate) sleeper: Sleeper,
    pub(crate) spin: SpinBudget,
    /// What the process sleeps on.
    pub(crate) set: OwnedFd,
    /// The NIC's descriptor that says when there is room again, in a set of its own: it may be in the
    /// other one already.
    pub(crate) blocked_set: OwnedFd,
    /// Strides of the tables, as the supervisor was told.
    pub(crate) strides: (u32, u32),
    /// What `on` in filter rules means.
    pub(crate) interface: String,
    /// Requests taken from a queue and not served yet; empty between programs.
    pub(crate) inbox: Vec<Request>,
    /// Programs that something may have to be told to.
    pub(crate) due: VecDeque<u32>,
    /// Programs that there was no room for.
    pub(crate) stalled: Vec<u32>,
    /// Who is served first.
    pub(crate) turn: usize,
    /// Reports that wait to be sent.
    pub(crate) reports: VecDeque<Report>,
}

impl Host {
    /// A stack without programs. Loads the packet filter's rules.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn new(parts: Parts) -> Result<Host, StartError> {
        let Parts {
            start,
            nic,
            ports,
            counters,
            capture,
            sleeper,
            first_unprivileged_port,
        } = parts;
        let config = StackConfig {
            addresses: start.addresses,
            gateways: start.gateways,
            seed: start.seed,
            answers: true,
            tcp_table: start.tcp_table.into(),
            udp_table: start.udp_table.into(),
            counters: counters.clone(),
        };
        let mut stack = Stack::for_programs(config, nic, ports);
        stack.set_capture(capture);
        let stack = Serving::Whole(Box::new(stack));
        let mut host = Host::around(
            stack,
            counters,
            sleeper,
            first_unprivileged_port,
            start.interface,
        )?;
        host.load_rules(&start.rules).map_err(StartError::Parts)?;
        Ok(host)
    }

    /// What serves programs, without any yet.
    pub(crate) fn around(
        stack: Serving,
        counters: Counters,
        sleeper: (OwnedFd, OwnedFd),
        first_unprivileged_port: u16,
        interface: String,
    ) -> Result<Host, StartError> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        // The sleeper's own spinning isn't used: what is waited for is more than its queues.
        let sleeper = Sleeper::attach(sleeper, SpinBudget::new(0))
            .map_err(|error| StartError::Parts(format!("the sleeper: {error}")))?;
        let make = || epoll::create(CreateFlags::CLOEXEC);
        let set = make().map_err(StartError::doing("making an epoll set"))?;
        let blocked_set = make().map_err(StartError::doing("making an epoll set"))?;
        let strides = (stack.tcp_table().stride(), stack.udp_table().stride());
        let mut host = Host {
            stack,
            counters,
            programs: Programs::default(),
            shares: Shares::default(),
            departed: HashMap::new(),
            ports: PortRegister::new(first_unprivileged_port),
            sleeper,
            spin: SpinBudget::for_processors(processors),
            set,
            blocked_set,
            strides,
            interface,
            inbox: Vec::new(),
            due: VecDeque::new(),
            stalled: Vec::new(),
            turn: 0,
            reports: VecDeque::new(),
        };
        host.watch_own()?;
        Ok(host)
    }

    /// Puts the descriptors that never change into the set.
    fn watch_own(&mut self) -> Result<(), StartError> {
        let failed = StartError::doing("watching a descriptor");
        let add = |fd: BorrowedFd<'_>, about| {
            epoll::add(&self.set, fd, EventData::new_u64(about), EventFlags::IN).map_err(&failed)
        };
        add(self.sleeper.bell(), about::BELL)?;
        let blocked = std::os::fd::AsFd::as_fd(&self.blocked_set);
        add(blocked, about::BLOCKED)?;
        let mut result = Ok(());
        self.stack.receive_descriptors(&mut |fd| {
            let added = add(fd, about::NIC);
            if result.is_ok() {
                result = added;
            }
        });
        result
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
