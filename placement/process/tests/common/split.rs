//! What a supervisor does for a stack in four processes.

use super::{Peer, Program, World, start};
use rustix::event::{PollFd, PollFlags};
use rustix::pipe::PipeFlags;
use skink_channel::SleeperDescriptors;
use skink_control::{
    ComponentLink, LinkError, LinkSizes, Order, Part, PartStart, PoolSizes, Report, SupervisorLink,
    link,
};
use skink_lanes::board::BoardDescriptors;
use skink_lanes::{FromLink, FromTransport, Lane, Question, ToLink, ToTransport, Verdicts};
use skink_memory::{CaptureRing, Region};
use skink_messages::Counters;
use skink_nic::{MemoryConfig, Nic};
use skink_process::{Ended, PartProcess, serve, serve_part};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

/// `link`, `ip` and `filter`. The transports are the [`World`]'s.
pub struct Split {
    /// To link, filter, tcp, udp.
    lanes: [Lane; 4],
    sleepers: [Arc<SleeperDescriptors>; 4],
    board: BoardDescriptors,
    life: (OwnedFd, OwnedFd),
    counters: Counters,
    rules: String,
    incarnations: [u32; 4],
    next_pool: u32,
    sizes: Option<LinkSizes>,
    pools: [Option<(PoolSizes, OwnedFd)>; 4],
    links: [Option<SupervisorLink>; 3],
    threads: [Option<JoinHandle<Ended>>; 3],
}

const INNER: [Part; 3] = [Part::Link, Part::Ip, Part::Filter];

fn receive(link: &SupervisorLink) -> Report {
    loop {
        match link.receive() {
            Ok(Some((report, _))) => return report,
            Ok(None) => {
                let mut fds = [PollFd::from_borrowed_fd(link.as_fd(), PollFlags::IN)];
                let limit = super::limit(super::PATIENCE);
                let ready = rustix::event::poll(&mut fds, Some(&limit)).expect("poll");
                assert!(ready > 0, "no report came");
            }
            Err(LinkError::Closed) => panic!("the part is gone"),
            Err(LinkError::Failed(what)) => panic!("{what}"),
        }
    }
}

impl Split {
    /// All four, with a peer.
    pub fn world(rules: &str) -> (World, Split) {
        let (ours, theirs) = skink_nic::pair(MemoryConfig::default()).expect("a link in memory");
        let names = ["link", "ip", "filter", "transport"];
        let sleepers =
            names.map(|name| Arc::new(SleeperDescriptors::create(name).expect("memory")));
        let mut split = Split {
            lanes: [
                Lane::create::<ToLink, FromLink>("link").expect("a lane"),
                Lane::create::<Question, Verdicts>("filter").expect("a lane"),
                Lane::create::<FromTransport, ToTransport>("tcp").expect("a lane"),
                Lane::create::<FromTransport, ToTransport>("udp").expect("a lane"),
            ],
            sleepers,
            board: BoardDescriptors::create("board").expect("a board"),
            life: rustix::pipe::pipe_with(PipeFlags::CLOEXEC).expect("a pipe"),
            counters: Counters::create().expect("memory"),
            rules: rules.into(),
            incarnations: [1; 4],
            next_pool: 1,
            sizes: None,
            pools: [None, None, None, None],
            links: [None, None, None],
            threads: [None, None, None],
        };
        let mut nic = Some(ours);
        for part in INNER {
            let (link, thread) = split.begin(part, nic.take());
            split.links[part.index()] = Some(link);
            split.threads[part.index()] = Some(thread);
        }
        let (link, thread) = split.begin(Part::Transport, None);
        let sleeper = split.sleepers[Part::Transport.index()].clone();
        let mut world = World {
            link,
            peer: Peer::new(theirs),
            counters: split.counters.clone(),
            reports: Default::default(),
            sleeper,
            thread: Some(thread),
            mapped: Some(Vec::new()),
        };
        for part in Part::ALL {
            split.introduce(part, &mut world);
        }
        (world, split)
    }

    fn begin(&mut self, part: Part, nic: Option<Nic>) -> (SupervisorLink, JoinHandle<Ended>) {
        let order = PartStart {
            part,
            stack: start(&self.rules),
            pool: self.next_pool,
            incarnations: self.incarnations,
            link: self.sizes,
        };
        self.next_pool += 1;
        let descriptors = self.descriptors(part);
        let process = match nic {
            Some(nic) => PartProcess::on_nic(order, descriptors, nic),
            None => PartProcess::new(order, descriptors),
        };
        let mut process = process.expect("a part");
        for (report, with) in process.introduction().expect("descriptors") {
            match report {
                Report::Link(sizes) => self.sizes = Some(sizes),
                Report::Pool(sizes) => {
                    let memory = with.into_iter().next().expect("memory");
                    self.pools[part.index()] = Some((sizes, memory));
                }
                other => panic!("{other:?}"),
            }
        }
        let (supervisor, component) = link().expect("sockets");
        let thread = std::thread::spawn(move || {
            let link = ComponentLink::new(component);
            match process {
                PartProcess::Inner(inner) => serve_part(inner, link),
                PartProcess::Transport(host) => serve(*host, link),
            }
        });
        (supervisor, thread)
    }

    fn descriptors(&self, part: Part) -> Vec<OwnedFd> {
        let clone = |fd: &OwnedFd| fd.try_clone().expect("a descriptor");
        let capture = CaptureRing::create(4096).expect("memory");
        let (page, bell) = self.sleepers[part.index()].sleeper().expect("descriptors");
        let mut all = vec![
            self.counters.fd().try_clone_to_owned().expect("one"),
            capture.fd().try_clone_to_owned().expect("one"),
            page,
            bell,
            match part {
                Part::Transport => clone(&self.life.1),
                Part::Link | Part::Ip | Part::Filter => clone(&self.life.0),
            },
        ];
        let bell = |part: Part| self.sleepers[part.index()].doorbell().expect("a bell");
        let lower = |lane: usize, to: Part| {
            let parts = self.lanes[lane].lower(1, 1, bell(to)).expect("parts");
            parts.into_descriptors()
        };
        let upper = |lane: usize, to: Part| {
            let parts = self.lanes[lane].upper(1, 1, bell(to)).expect("parts");
            parts.into_descriptors()
        };
        match part {
            Part::Link => all.extend(lower(0, Part::Ip)),
            Part::Filter => all.extend(lower(1, Part::Ip)),
            Part::Ip => {
                all.extend(upper(0, Part::Link));
                all.extend(lower(2, Part::Transport));
                all.extend(lower(3, Part::Transport));
                all.extend(upper(1, Part::Filter));
                all.push(self.board.writer().expect("a board"));
            }
            Part::Transport => {
                all.extend(upper(2, Part::Ip));
                all.extend(upper(3, Part::Ip));
                all.push(self.board.reader().expect("a board"));
                all.push(self.board.reader().expect("a board"));
            }
        }
        all
    }

    fn tell(&self, to: Part, order: &Order, with: &[OwnedFd], world: &World) {
        let with: Vec<_> = with.iter().map(AsFd::as_fd).collect();
        match self.links.get(to.index()) {
            Some(link) => link.as_ref().expect("runs").send(order, &with),
            None => world.link.send(order, &with),
        }
        .expect("sent");
    }

    fn report(&self, by: Part, world: &mut World) -> Report {
        match self.links.get(by.index()) {
            Some(link) => receive(link.as_ref().expect("runs")),
            None => world.report(),
        }
    }

    /// Tells it and the others of each other, and lets it begin.
    fn introduce(&mut self, part: Part, world: &mut World) {
        for other in Part::ALL.into_iter().filter(|other| *other != part) {
            for (of, to) in [(part, other), (other, part)] {
                let pool = self.pools[of.index()].as_ref();
                let incarnation = self.incarnations[of.index()];
                let order = Order::Neighbour {
                    part: of,
                    incarnation,
                    pool: pool.map(|(sizes, _)| *sizes),
                };
                let with = pool.map(|(_, memory)| memory.try_clone().expect("one"));
                self.tell(to, &order, with.as_slice(), world);
                let knows = Report::Knows {
                    part: of,
                    incarnation,
                };
                assert_eq!(self.report(to, world), knows);
            }
        }
        if part == Part::Filter {
            self.tell_flows(world);
        }
        self.tell(part, &Order::Go {}, &[], world);
    }

    fn tell_flows(&self, world: &mut World) {
        self.tell(Part::Transport, &Order::ShowFlows {}, &[], world);
        loop {
            let Report::Flows { flows, last } = world.report() else {
                panic!("not the flows");
            };
            self.tell(Part::Filter, &Order::Flows { flows }, &[], world);
            if last {
                return;
            }
        }
    }

    /// Puts rules in force.
    pub fn load(&mut self, rules: &str, world: &mut World) {
        self.rules = rules.into();
        let order = Order::Filter {
            rules: rules.into(),
        };
        self.tell(Part::Filter, &order, &[], world);
        self.tell_flows(world);
        self.tell(Part::Filter, &Order::Go {}, &[], world);
    }

    /// Ends a part, and starts a successor.
    pub fn replace(&mut self, part: Part, world: &mut World) {
        self.stop(part);
        self.incarnations[part.index()] += 1;
        let (link, thread) = self.begin(part, None);
        self.links[part.index()] = Some(link);
        self.threads[part.index()] = Some(thread);
        let maps: Vec<_> = world.mapped.iter().flatten().cloned().collect();
        for (program, region) in maps {
            if part != Part::Filter {
                self.map(part, program, &region, world);
            }
        }
        self.introduce(part, world);
    }

    pub fn stop(&mut self, part: Part) -> Ended {
        let link = self.links[part.index()].take().expect("runs");
        link.send(&Order::Stop {}, &[]).expect("sent");
        let thread = self.threads[part.index()].take().expect("runs");
        thread.join().expect("no panic")
    }

    /// The supervisor is gone. Answers the parts' threads.
    pub fn desert(self) -> Vec<JoinHandle<Ended>> {
        self.threads.into_iter().flatten().collect()
    }

    fn map(&self, part: Part, program: u32, region: &Region, world: &mut World) {
        let clone = |fd: std::os::fd::BorrowedFd<'_>| fd.try_clone_to_owned().expect("one");
        let with = [clone(region.records_fd()), clone(region.rings_fd())];
        self.tell(part, &Order::Map { program }, &with, world);
        assert_eq!(self.report(part, world), Report::Mapped { program });
    }

    /// Attaches a program.
    pub fn attach(&mut self, world: &mut World, program: u32) -> Program {
        let attached = world.attach(program, 1000);
        let (_, region) = world
            .mapped
            .iter()
            .flatten()
            .last()
            .cloned()
            .expect("just attached");
        for part in [Part::Link, Part::Ip] {
            self.map(part, program, &region, world);
        }
        attached
    }
}
