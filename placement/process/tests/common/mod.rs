//! A stack that serves programs, in threads or driven by hand; the programs and a peer on the other end
//! of its link are the test's own.
#![allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "not every test needs all of it"
)]

mod peer;
pub mod program;
pub mod raw;
pub mod split;
mod supervisor;

pub use peer::Peer;
pub use program::{Files, Program, connect, exchange};
pub use raw::Raw;
pub use split::Split;

use rustix::event::{PollFd, PollFlags, Timespec};
use skink_control::{
    ComponentLink, LinkError, Order, Part, Report, StackStart, SupervisorLink, TableSize,
};
use skink_messages::{Counter, Counters};
use skink_process::{Ended, Host};
use skink_wire::Endpoint;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::JoinHandle;
use std::time::{Duration, Instant as Clock};

pub const OURS: &str = "10.9.0.1";
pub const PEERS: &str = "10.9.0.2";
pub const PATIENCE: Duration = Duration::from_secs(60);

pub const TABLE: TableSize = TableSize {
    sockets: 64,
    send_bytes: 16 * 1024,
    receive_bytes: 16 * 1024,
};

/// Which parts are in which process.
pub type Grouping = &'static [&'static [Part]];

/// All of the stack in one process.
pub const WHOLE: Grouping = &[&Part::ALL];
/// A process for each part.
pub const APART: Grouping = &[
    &[Part::Link],
    &[Part::Ip],
    &[Part::Filter],
    &[Part::Udp],
    &[Part::Tcp],
    &[Part::Syscall],
    &[Part::Store],
];
/// What programs have a channel to, and the rest.
pub const HALVES: Grouping = &[
    &[Part::Link, Part::Ip, Part::Filter, Part::Store],
    &[Part::Udp, Part::Tcp, Part::Syscall],
];
/// Neighbours apart, and strangers together.
pub const MIXED: Grouping = &[
    &[Part::Link, Part::Tcp],
    &[Part::Ip, Part::Store],
    &[Part::Filter],
    &[Part::Udp, Part::Syscall],
];

pub fn end(address: &str, port: u16) -> Endpoint {
    Endpoint::new(address.parse::<IpAddr>().expect("an address"), port)
}

pub fn start(rules: &str) -> StackStart {
    StackStart {
        process: "stack".into(),
        user: None,
        addresses: vec![format!("{OURS}/24").parse().expect("an address")],
        gateways: Vec::new(),
        seed: 7,
        nic: String::new(),
        nic_descriptors: 0,
        owner: None,
        tcp_table: TABLE,
        udp_table: TABLE,
        socket_memory: u64::MAX,
        processors: 2,
        interface: "eth0".into(),
        rules: rules.into(),
        listens: Vec::new(),
        tethers: Vec::new(),
        successor: false,
        stateless: false,
    }
}

/// How a round of a process that is driven by hand went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    Busy,
    Idle,
    Over(Ended),
}

/// A process that is driven by hand. Dropping it is its sudden death.
pub trait ByHand {
    fn round(&mut self) -> Step;
    /// Whether it would sleep now, until somebody else wakes it or a timer is due.
    fn would_sleep(&self) -> bool;
    /// Whether something has happened that wakes it.
    fn is_woken(&self) -> bool;
}

/// What runs a process.
pub enum Runner {
    Thread(JoinHandle<Ended>),
    ByHand(Box<dyn ByHand>),
}

/// How a process begins to run.
pub type Begin = fn(Host, ComponentLink) -> Runner;

/// In a thread of its own.
pub fn in_thread(host: Host, link: ComponentLink) -> Runner {
    Runner::Thread(std::thread::spawn(move || skink_process::serve(host, link)))
}

/// The stack under test, with what its supervisor has, and a peer.
pub struct World {
    pub peer: Peer,
    pub counters: Counters,
    pub split: Split,
    /// What was reported and not asked for yet, and by whom.
    reports: VecDeque<(usize, Report)>,
}

impl World {
    pub fn new(grouping: Grouping) -> World {
        World::with_rules(grouping, "")
    }

    pub fn with_rules(grouping: Grouping, rules: &str) -> World {
        World::run_by(grouping, rules, in_thread)
    }

    pub fn run_by(grouping: Grouping, rules: &str, begin: Begin) -> World {
        let pair = skink_nic::pair(skink_nic::MemoryConfig::default());
        let (ours, theirs) = pair.expect("a link in memory");
        let split = Split::new(grouping, rules, begin);
        let mut world = World {
            peer: Peer::new(theirs),
            counters: split.counters.clone(),
            split,
            reports: VecDeque::new(),
        };
        world.begin_all(ours);
        world
    }

    /// Sends an order to the process that has this part.
    pub fn order(&self, part: Part, order: &Order, with: &[OwnedFd]) {
        self.order_place(self.split.place(part), order, with);
    }

    pub fn order_place(&self, place: usize, order: &Order, with: &[OwnedFd]) {
        let with: Vec<BorrowedFd<'_>> = with.iter().map(AsFd::as_fd).collect();
        self.split.link(place).send(order, &with).expect("sent");
    }

    /// One round of each process that is driven by hand. Answers whether one of them was busy.
    pub fn run(&mut self) -> bool {
        let mut busy = false;
        for runner in self.split.runners() {
            if let Runner::ByHand(process) = runner {
                busy |= process.round() == Step::Busy;
            }
        }
        busy
    }

    fn receive(&mut self) -> bool {
        let mut any = false;
        for (place, link) in self.split.links() {
            match link.receive() {
                Ok(Some((report, _))) => {
                    self.reports.push_back((place, report));
                    any = true;
                }
                Ok(None) => {}
                Err(LinkError::Closed) => panic!("process {place} is gone"),
                Err(LinkError::Failed(what)) => panic!("{what}"),
            }
        }
        any
    }

    /// Waits for a report of the process at this place, or of any.
    pub fn await_report(
        &mut self,
        place: Option<usize>,
        what: &str,
        fits: impl Fn(&Report) -> bool,
    ) -> Report {
        let begin = Clock::now();
        loop {
            let mut all = self.reports.iter();
            let found =
                all.position(|(by, report)| place.is_none_or(|it| it == *by) && fits(report));
            if let Some((_, report)) = found.and_then(|at| self.reports.remove(at)) {
                return report;
            }
            assert!(begin.elapsed() < PATIENCE, "no report of {what}");
            if self.receive() || self.run() {
                continue;
            }
            let links = self.split.links();
            let mut fds: Vec<_> = links
                .map(|(_, link)| PollFd::from_borrowed_fd(link.as_fd(), PollFlags::IN))
                .collect();
            let _ = rustix::event::poll(&mut fds, Some(&limit(Duration::from_millis(1))));
        }
    }

    /// Whether the process at this place has said so by now.
    pub fn has_reported(&mut self, report: &Report) -> bool {
        self.receive();
        self.reports.iter().any(|(_, other)| other == report)
    }

    /// The program has ended.
    pub fn detach(&mut self, program: u32) {
        self.order(Part::Syscall, &Order::Detach { program }, &[]);
    }

    /// Waits until nothing is left of a program in any transport, each of which says so once.
    pub fn finished(&mut self, program: u32) {
        for place in self.split.transports() {
            self.await_report(Some(place), "the end of a program", |report| {
                *report == Report::Finished { program }
            });
        }
        assert!(
            !self.has_reported(&Report::Finished { program }),
            "said twice"
        );
        self.split.forget(program);
        for place in self.split.readers() {
            self.order_place(place, &Order::Unmap { program }, &[]);
        }
    }

    /// Drives the peer until `done` says so.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Peer) -> bool) {
        let start = Clock::now();
        loop {
            let busy = self.run();
            self.peer.drive();
            if done(&mut self.peer) {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
            if !busy {
                self.peer.rest();
            }
        }
    }

    /// Waits until something was counted so often.
    pub fn until_counted(&mut self, counter: Counter, count: u64) {
        let counters = self.counters.clone();
        self.until("a count", |_| counters.get(counter) >= count);
    }

    pub fn count(&self, counter: Counter) -> u64 {
        self.counters.get(counter)
    }

    /// Stops all processes that run.
    pub fn stop(mut self) {
        for place in self.split.running() {
            assert_eq!(self.split.stop(place), Ended::Stopped);
        }
    }
}

pub fn limit(time: Duration) -> Timespec {
    time.try_into().expect("a short time")
}

/// Runs each of these tests, which take a [`Grouping`], on stacks of several groupings.
#[macro_export]
macro_rules! on_all_groupings {
    ($($test:ident),* $(,)?) => {
        $(mod $test {
            #[test]
            fn whole() { super::$test(super::common::WHOLE); }
            #[test]
            fn apart() { super::$test(super::common::APART); }
            #[test]
            fn halves() { super::$test(super::common::HALVES); }
            #[test]
            fn mixed() { super::$test(super::common::MIXED); }
        })*
    };
}

pub type Links<'a> = Box<dyn Iterator<Item = (usize, &'a SupervisorLink)> + 'a>;
