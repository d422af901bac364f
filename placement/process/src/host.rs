//! The components of a process, and the programs that they serve.
use crate::inner::Inner;
use crate::lasting::Lasting;
use crate::neighbours::Neighbours;
use crate::nic_use::NicUse;
use crate::random::random;
use crate::start::{Parts, StartError, config};
use rustix::event::PollFlags;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use skink_channel::{Sleeper, SpinBudget};
use skink_control::Report;
use skink_lanes::EndCounters;
use skink_library::Stack;
use skink_messages::{Counter, Counters};
use skink_nic::Room;
use skink_split::{Front, Host as _, Serving, StoreWay, SyscallHost, TransportWay};
use skink_store::Store;
use skink_syscall::{Syscall, SyscallConfig};
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

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

/// What is handed to every process.
pub(crate) struct Common {
    pub counters: Counters,
    /// The page that says that the process sleeps, and the pipe that wakes it.
    pub sleeper: (OwnedFd, OwnedFd),
    /// Slots of each program's regions, by [`Protocol::index`]: powers of two.
    pub strides: [u32; 2],
    /// What `on` in filter rules means.
    pub interface: String,
    pub spin: SpinBudget,
}

/// The pipe that tells whether the stack is needed.
pub(crate) struct Life {
    pub reading: OwnedFd,
    /// Open while programs may need this process.
    pub writing: Option<OwnedFd>,
}

/// A stack, or components of one, with the programs that it serves. [`serve`](crate::serve) runs it.
pub struct Host {
    /// What programs have a channel to.
    pub(crate) front: Front,
    /// Components that are apart from `tcp` and `udp`.
    pub(crate) inner: Inner,
    pub(crate) neighbours: Option<Neighbours>,
    /// `None` where all of the stack is here.
    pub(crate) life: Option<Life>,
    pub(crate) counters: Counters,
    /// Programs that couldn't be attached here, and their tags. Other processes may have them, until they
    /// are detached.
    pub(crate) refused: HashMap<u32, u32>,
    pub(crate) sleeper: Sleeper,
    pub(crate) spin: SpinBudget,
    pub(crate) nic_use: NicUse,
    /// What the process sleeps on.
    pub(crate) set: OwnedFd,
    /// The NIC's descriptors in sets of their own, which are in the other one while they are waited for:
    /// what can be read, and what says when there is room again.
    pub(crate) arrival_set: OwnedFd,
    pub(crate) blocked_set: OwnedFd,
    /// The first of the two is.
    pub(crate) watches_arrivals: bool,
    pub(crate) strides: [u32; 2],
    pub(crate) interface: String,
    /// Reports that wait to be sent.
    pub(crate) reports: VecDeque<Report>,
    /// What is told of connections unasked.
    pub(crate) lasting: Lasting,
    /// What was dropped at the ends of lanes, as far as it is counted.
    pub(crate) dropped: EndCounters,
    /// All of the stack is here and waits until it knows the programs of its predecessor.
    pub(crate) is_held: bool,
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
            stored,
            flows,
            first_unprivileged_port,
        } = parts;
        let mut stack = Stack::for_programs(config(&start, counters.clone()), nic, ports);
        stack.set_capture(capture);
        stack.set_stateless(start.stateless);
        stack.keep_flows(flows);
        let strides = [stack.tcp_table().stride(), stack.udp_table().stride()];
        let config = SyscallConfig {
            first_unprivileged_port,
            strides,
        };
        let syscall = SyscallHost::new(
            Syscall::new(config, counters.clone()),
            [TransportWay::Here, TransportWay::Here],
            StoreWay::Here(Store::over(stored)),
            Box::new(random),
        );
        let common = Common {
            counters,
            sleeper,
            strides,
            interface: start.interface,
            spin: SpinBudget::for_processors(start.processors),
        };
        let mut host = Host::around(Serving::Whole(Box::new(stack)), common)?;
        host.front.set_syscall(syscall);
        host.front.set_successor(start.successor);
        host.is_held = start.successor;
        host.load_rules(&start.rules).map_err(StartError::Parts)?;
        Ok(host)
    }

    /// What serves programs, without any yet.
    pub(crate) fn around(stack: Serving, common: Common) -> Result<Host, StartError> {
        let Common {
            counters,
            sleeper,
            strides,
            interface,
            spin,
        } = common;
        // The sleeper's own spinning isn't used: what is waited for is more than its queues.
        let sleeper = Sleeper::attach(sleeper, SpinBudget::new(0))
            .map_err(|error| StartError::Parts(format!("the sleeper: {error}")))?;
        let make = || epoll::create(CreateFlags::CLOEXEC);
        let set = make().map_err(StartError::doing("making an epoll set"))?;
        let arrival_set = make().map_err(StartError::doing("making an epoll set"))?;
        let blocked_set = make().map_err(StartError::doing("making an epoll set"))?;
        let mut host = Host {
            front: Front::new(stack, strides, counters.clone()),
            inner: Inner::default(),
            neighbours: None,
            life: None,
            counters,
            refused: HashMap::new(),
            sleeper,
            spin,
            nic_use: NicUse::new(),
            set,
            arrival_set,
            blocked_set,
            watches_arrivals: true,
            strides,
            interface,
            reports: VecDeque::new(),
            lasting: Lasting::default(),
            dropped: EndCounters::default(),
            is_held: false,
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
        add(self.blocked_set.as_fd(), about::BLOCKED)?;
        add(self.arrival_set.as_fd(), about::NIC)?;
        let mut result = Ok(());
        if let Serving::Whole(stack) = &self.front.stack {
            stack.receive_descriptors(&mut |fd| result = result.and(self.watch_arrivals(fd)));
        }
        result.map_err(failed)
    }

    /// As [`Host::watch_own`], for the NIC of a `link` that is apart.
    pub(crate) fn watch_link(&self) -> Result<(), StartError> {
        let mut result = Ok(());
        if let Some(link) = &self.inner.link {
            link.descriptors(&mut |fd, _| result = result.and(self.watch_arrivals(fd)));
        }
        result.map_err(StartError::doing("watching the NIC"))
    }

    fn watch_arrivals(&self, fd: BorrowedFd<'_>) -> rustix::io::Result<()> {
        let data = EventData::new_u64(about::NIC);
        epoll::add(&self.arrival_set, fd, data, EventFlags::IN)
    }

    /// Whether to be woken by what the NIC receives, and what says when it has room again, if it has none.
    pub(crate) fn nic_wants(&self) -> (bool, Option<Room<'_>>) {
        match (&self.front.stack, &self.inner.link) {
            _ if self.is_held => (false, None),
            (Serving::Whole(stack), _) => (true, stack.send_blocked_on()),
            (Serving::Apart(_), None) => (true, None),
            (Serving::Apart(_), Some(link)) => {
                let (mut reads, mut room) = (false, None);
                link.descriptors(&mut |fd, flags| match flags.contains(PollFlags::OUT) {
                    true => room = Some(Room::At(fd)),
                    false => reads = true,
                });
                (reads, room)
            }
        }
    }

    /// Counts what was dropped at the ends of lanes since the last time.
    pub(crate) fn count_dropped(&mut self) {
        let now = self.front.dropped().plus(self.inner.dropped());
        if now == self.dropped {
            return;
        }
        let before = std::mem::replace(&mut self.dropped, now);
        for (counter, now, before) in [
            (Counter::LanesDropMalformed, now.malformed, before.malformed),
            (Counter::LanesDropForeign, now.foreign, before.foreign),
            (Counter::LanesDropUnasked, now.unasked, before.unasked),
            (Counter::LanesDropStale, now.stale, before.stale),
            (Counter::LanesDropFull, now.full, before.full),
        ] {
            self.counters.add(counter, now.wrapping_sub(before));
        }
    }

    /// Forgets the bells of programs that aren't served any more, and tells the supervisor of those that have
    /// spoilt their channels.
    pub(crate) fn clear_programs(&mut self) {
        for gone in self.front.gone.drain(..) {
            // Else the set would keep the bell as long as the program's own descriptor is open anywhere.
            let _ = epoll::delete(&self.set, gone.server.bell());
            let _ = epoll::delete(&self.set, gone.server.rope());
        }
        for (program, pid) in self.front.spoilt.drain(..) {
            tracing::warn!(
                "program {program} (pid {pid}) spoilt its channel, and isn't heard any more"
            );
            self.reports.push_back(Report::Spoilt { program });
        }
    }
}
