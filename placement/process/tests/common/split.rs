//! What a supervisor has and does for the processes of a stack, whichever parts are in which.

use super::program::Files;
use super::{Begin, Grouping, Links, Runner, start};
use rustix::pipe::PipeFlags;
use skink_channel::SleeperDescriptors;
use skink_control::{
    ComponentLink, LinkSizes, Order, Part, PartStart, PoolSizes, Report, SupervisorLink, link,
};
use skink_lanes::board::BoardDescriptors;
use skink_lanes::{
    Exchange, FromFilter, FromLink, FromTransport, Lane, ToFilter, ToLink, ToTransport,
};
use skink_memory::{CaptureRing, Region, SocketTable, StoredTable};
use skink_messages::{CallOutcome, Counters, SoleOwner, StoreReply, StoreRequest, TransportCall};
use skink_nic::Nic;
use skink_process::{Ended, Host, Parts, StartError};
use skink_sockets::{Attachment, ChannelParts};
use std::os::fd::{AsFd, OwnedFd};
use std::thread::JoinHandle;

/// Lower and upper end of each lane.
const PAIRS: [(Part, Part); 7] = [
    (Part::Link, Part::Ip),
    (Part::Filter, Part::Ip),
    (Part::Ip, Part::Tcp),
    (Part::Ip, Part::Udp),
    (Part::Tcp, Part::Syscall),
    (Part::Udp, Part::Syscall),
    (Part::Store, Part::Syscall),
];

/// What is kept of a program, so that processes can have successors.
pub struct Kept {
    pub attachment: Attachment,
    pub uid: u32,
    pub tcp: Region,
    pub udp: Region,
    pub channel: ChannelParts,
}

pub struct Split {
    pub(super) grouping: Grouping,
    begin: Begin,
    lanes: Vec<Lane>,
    sleepers: Vec<SleeperDescriptors>,
    board: BoardDescriptors,
    stored: StoredTable,
    flows: StoredTable,
    life: Option<(OwnedFd, OwnedFd)>,
    pub counters: Counters,
    pub(super) rules: String,
    pub incarnations: [u32; Part::COUNT],
    next_pool: u32,
    sizes: Option<LinkSizes>,
    pub(super) pools: [Option<(PoolSizes, OwnedFd)>; Part::COUNT],
    links: Vec<Option<SupervisorLink>>,
    pub(super) runners: Vec<Option<Runner>>,
    pub programs: Vec<Kept>,
    /// How many programs were attached: no two have the same secret.
    pub attached: u64,
}

pub(super) fn clone(fd: impl AsFd) -> OwnedFd {
    fd.as_fd().try_clone_to_owned().expect("a descriptor")
}

/// New ones, in the order of [`PAIRS`].
fn lanes() -> Vec<Lane> {
    let transport = |name| Lane::create::<FromTransport, ToTransport>(name);
    let call = |name| Lane::create::<TransportCall, CallOutcome>(name);
    let lanes = [
        Lane::create::<ToLink, FromLink>("link"),
        Lane::create::<ToFilter, FromFilter>("filter"),
        transport("tcp"),
        transport("udp"),
        call("tcp-syscall"),
        call("udp-syscall"),
        Lane::create::<StoreRequest, StoreReply>("store"),
    ];
    lanes.map(|lane| lane.expect("a lane")).into()
}

impl Split {
    pub fn new(grouping: Grouping, rules: &str, begin: Begin) -> Split {
        let sleeper = |_: &&[Part]| SleeperDescriptors::create("process").expect("memory");
        Split {
            grouping,
            begin,
            lanes: lanes(),
            sleepers: grouping.iter().map(sleeper).collect(),
            board: BoardDescriptors::create("board").expect("a board"),
            stored: StoredTable::create("stored", 1 << 12).expect("memory"),
            flows: StoredTable::create("flows", 1 << 12).expect("memory"),
            life: rustix::pipe::pipe_with(PipeFlags::CLOEXEC).ok(),
            counters: Counters::create().expect("memory"),
            rules: rules.into(),
            incarnations: [1; Part::COUNT],
            next_pool: 1,
            sizes: None,
            pools: [const { None }; Part::COUNT],
            links: grouping.iter().map(|_| None).collect(),
            runners: grouping.iter().map(|_| None).collect(),
            programs: Vec::new(),
            attached: 0,
        }
    }

    /// As when the supervisor is gone: whoever else could ring a process may still.
    pub fn lose_doorbells(&mut self) {
        self.sleepers.clear();
    }

    pub fn is_whole(&self) -> bool {
        self.grouping.len() == 1
    }

    pub fn place(&self, part: Part) -> usize {
        let place = self.grouping.iter().position(|parts| parts.contains(&part));
        place.expect("every part is somewhere")
    }

    pub fn places(&self) -> std::ops::Range<usize> {
        0..self.grouping.len()
    }

    fn hosting(&self, parts: &[Part]) -> Vec<usize> {
        let hosts = |place: &usize| parts.iter().any(|part| self.place(*part) == *place);
        self.places().filter(hosts).collect()
    }

    /// Where programs have a channel to.
    pub fn front(&self) -> Vec<usize> {
        self.hosting(&[Part::Syscall, Part::Tcp, Part::Udp])
    }

    pub fn transports(&self) -> Vec<usize> {
        self.hosting(&[Part::Tcp, Part::Udp])
    }

    /// Who maps what is sent.
    pub fn readers(&self) -> Vec<usize> {
        match self.is_whole() {
            true => Vec::new(),
            false => self.hosting(&[Part::Link, Part::Ip]),
        }
    }

    pub fn link(&self, place: usize) -> &SupervisorLink {
        self.links[place].as_ref().expect("runs")
    }

    pub fn links(&self) -> Links<'_> {
        let all = self.links.iter().enumerate();
        Box::new(all.filter_map(|(place, link)| Some((place, link.as_ref()?))))
    }

    pub fn running(&self) -> Vec<usize> {
        self.links().map(|(place, _)| place).collect()
    }

    pub fn runners(&mut self) -> impl Iterator<Item = &mut Runner> {
        self.runners.iter_mut().flatten()
    }

    pub fn runner(&mut self, part: Part) -> &mut Runner {
        let place = self.place(part);
        self.runners[place].as_mut().expect("runs")
    }

    pub fn lane(&self, one: Part, other: Part) -> &Lane {
        let pair =
            |(lower, upper)| (lower, upper) == (one, other) || (upper, lower) == (one, other);
        let at = PAIRS.into_iter().position(pair).expect("neighbours");
        &self.lanes[at]
    }

    /// Makes those anew that only these parts had ends of. What `syscall` had asked for is in them, unless
    /// the old ones can't be read any more.
    pub(super) fn renew_lanes(&mut self, ended: &[Part], readable: bool) {
        let old = self.lanes.iter_mut().zip(lanes());
        for ((lower, upper), (lane, new)) in PAIRS.into_iter().zip(old) {
            if !ended.contains(&lower) || !ended.contains(&upper) {
                continue;
            }
            let renewed = match (lower, upper) {
                _ if !readable => Ok(new),
                (Part::Store, Part::Syscall) => lane.renew::<StoreRequest, StoreReply>("store"),
                (_, Part::Syscall) => lane.renew::<TransportCall, CallOutcome>("calls"),
                _ => Ok(new),
            };
            *lane = renewed.expect("a lane");
        }
    }

    pub fn kept(&self, program: u32) -> &Kept {
        let mut all = self.programs.iter();
        let kept = all.find(|kept| kept.attachment.program == program);
        kept.expect("an attached program")
    }

    pub fn forget(&mut self, program: u32) {
        self.programs
            .retain(|kept| kept.attachment.program != program);
    }

    /// What its process begins with.
    pub fn host(&mut self, place: usize, nic: Option<Nic>) -> Result<Host, StartError> {
        if self.is_whole() {
            let parts = Parts {
                start: start(&self.rules),
                nic: nic.expect("a NIC"),
                ports: Box::new(SoleOwner),
                counters: self.counters.clone(),
                capture: None,
                sleeper: self.sleepers[place].sleeper().expect("descriptors"),
                stored: self.stored.clone(),
                flows: self.flows.clone(),
                first_unprivileged_port: 1024,
            };
            return Host::new(parts);
        }
        let order = PartStart {
            parts: self.grouping[place].to_vec(),
            stack: start(&self.rules),
            pool: self.next_pool,
            incarnations: self.incarnations,
            link: self.sizes,
        };
        self.next_pool += 8;
        Host::of_parts_on(order, self.descriptors(place), nic)
    }

    pub(super) fn start(&mut self, place: usize, nic: Option<Nic>) {
        let mut host = self.host(place, nic).expect("parts");
        for (report, with) in host.introduction().expect("descriptors") {
            match report {
                Report::Link(sizes) => self.sizes = Some(sizes),
                Report::Pool { part, sizes } => {
                    let memory = with.into_iter().next().expect("memory");
                    self.pools[part.index()] = Some((sizes, memory));
                }
                other => panic!("{other:?}"),
            }
        }
        let (supervisor, component) = link().expect("sockets");
        self.links[place] = Some(supervisor);
        self.runners[place] = Some((self.begin)(host, ComponentLink::new(component)));
    }

    fn descriptors(&self, place: usize) -> Vec<OwnedFd> {
        let (reading, writing) = self.life.as_ref().expect("a supervisor");
        let (page, bell) = self.sleepers[place].sleeper().expect("descriptors");
        let mut all = vec![clone(self.counters.fd()), page, bell];
        all.push(clone(reading));
        if self.front().contains(&place) {
            all.push(clone(writing));
        }
        for part in self.grouping[place] {
            for other in neighbours(*part) {
                let bell = &self.sleepers[self.place(*other)];
                let bell = bell.doorbell().expect("a bell");
                let lane = self.lane(*part, *other);
                let end = match PAIRS.contains(&(*part, *other)) {
                    true => lane.lower(1, 1, bell),
                    false => lane.upper(1, 1, bell),
                };
                all.extend(end.expect("parts").into_descriptors());
            }
            match part {
                Part::Ip => all.push(self.board.writer().expect("a board")),
                Part::Tcp | Part::Udp => all.push(self.board.reader().expect("a board")),
                Part::Store => all.push(clone(self.stored.fd())),
                Part::Filter => all.push(clone(self.flows.fd())),
                Part::Link => {
                    let capture = CaptureRing::create(4096).expect("memory");
                    all.push(clone(capture.fd()));
                }
                Part::Syscall => {}
            }
        }
        all
    }

    pub fn stop(&mut self, place: usize) -> Ended {
        let link = self.links[place].take().expect("runs");
        link.send(&Order::Stop {}, &[]).expect("sent");
        match self.runners[place].take().expect("runs") {
            Runner::Thread(thread) => thread.join().expect("no panic"),
            Runner::ByHand(mut process) => loop {
                if let super::Step::Over(ended) = process.round() {
                    return ended;
                }
            },
        }
    }

    /// The end of a part whose process is dead.
    pub fn attach_to_lane(&self, part: Part, other: Part) -> Exchange<CallOutcome, TransportCall> {
        let bell = self.sleepers[self.place(other)].doorbell().expect("a bell");
        let end = self.lane(part, other).upper(1, 1, bell);
        Exchange::attach(end.expect("parts")).expect("a lane")
    }

    pub fn runs(&self, part: Part) -> bool {
        self.runners[self.place(part)].is_some()
    }

    /// A process that is driven by hand dies where it is.
    pub fn kill(&mut self, place: usize) {
        let runner = self.runners[place].take();
        assert!(matches!(runner, Some(Runner::ByHand(_))));
        self.links[place] = None;
    }

    /// The supervisor is gone. Answers the processes' threads.
    pub fn desert(&mut self) -> Vec<JoinHandle<Ended>> {
        self.links.iter_mut().for_each(|link| *link = None);
        self.life = None;
        // It was the last but the program that held the channels' other ends.
        self.programs.clear();
        let all = self.runners.iter_mut().filter_map(Option::take);
        let threads = all.map(|runner| match runner {
            Runner::Thread(thread) => thread,
            Runner::ByHand(_) => panic!("it has no thread"),
        });
        threads.collect()
    }
}

/// To whom a part has lanes, in the order of [`PartStart`].
fn neighbours(part: Part) -> &'static [Part] {
    match part {
        Part::Link | Part::Filter => &[Part::Ip],
        Part::Ip => &[Part::Link, Part::Tcp, Part::Udp, Part::Filter],
        Part::Udp | Part::Tcp => &[Part::Ip, Part::Syscall],
        Part::Syscall => &[Part::Tcp, Part::Udp, Part::Store],
        Part::Store => &[Part::Syscall],
    }
}

impl Split {
    /// The places of syscall, tcp and udp, in the order of routes.
    pub(super) fn hosts(&self) -> [usize; 3] {
        [Part::Syscall, Part::Tcp, Part::Udp].map(|part| self.place(part))
    }

    /// What a program is handed.
    pub(super) fn files(&self, kept: &Kept) -> Files {
        let routes = kept.attachment.routes;
        let mut stacks = Vec::new();
        for channel in 0..routes.channels() {
            let mut all = <[u8; 3]>::from(routes).into_iter();
            let at = all.position(|it| usize::from(it) == channel);
            stacks.push(&self.sleepers[self.hosts()[at.expect("a route")]]);
        }
        let number = kept.attachment.program;
        let own = |region: &Region| {
            let files = region.program_files().expect("descriptors");
            let own = Region::open_for_program(files).expect("a region");
            let mut table = SocketTable::new(kept.attachment.tcp_stride);
            table.insert(number, own).expect("room");
            table
        };
        Files {
            number,
            secret: kept.attachment.secret,
            routes,
            channels: kept.channel.for_program(&stacks).expect("descriptors"),
            tcp: own(&kept.tcp),
            udp: own(&kept.udp),
        }
    }
}
