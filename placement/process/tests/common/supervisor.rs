//! What a supervisor says to the processes of a stack.

use super::program::{Files, Program};
use super::split::{Kept, clone};
use super::{Runner, TABLE, World};
use skink_control::{Order, Part, Report};
use skink_memory::{Region, TableConfig};
use skink_nic::Nic;
use skink_process::Ended;
use skink_sockets::{Attachment, ChannelParts, Routes};
use std::os::fd::OwnedFd;

impl World {
    pub(super) fn begin_all(&mut self, nic: Nic) {
        let mut nic = Some(nic);
        for place in self.split.places() {
            let hosts = self.split.place(Part::Link) == place;
            self.split.start(place, nic.take_if(|_| hosts));
        }
        if !self.split.is_whole() {
            for place in self.split.places() {
                self.introduce(place, false);
            }
            self.split.places().for_each(|place| self.go(place));
        }
    }

    /// Tells the processes of the parts at this place, and this of the other parts if those ran before.
    fn introduce(&mut self, place: usize, others_run: bool) {
        for part in self.split.grouping[place] {
            for other in self.split.running() {
                if self.split.grouping[other] != [*part] {
                    self.introduce_part(*part, other);
                }
                if other != place && others_run && part == &self.split.grouping[place][0] {
                    for part in self.split.grouping[other] {
                        self.introduce_part(*part, place);
                    }
                }
            }
        }
    }

    fn introduce_part(&mut self, part: Part, to: usize) {
        let pool = self.split.pools[part.index()].as_ref();
        let incarnation = self.split.incarnations[part.index()];
        let order = Order::Neighbour {
            part,
            incarnation,
            pool: pool.map(|(sizes, _)| *sizes),
        };
        let with: Vec<OwnedFd> = pool.map(|(_, memory)| clone(memory)).into_iter().collect();
        self.order_place(to, &order, &with);
        let knows = Report::Knows { part, incarnation };
        self.await_report(Some(to), "an introduction", |report| *report == knows);
    }

    /// Lets the parts at this place begin, whom all others know by now.
    fn go(&mut self, place: usize) {
        for part in self.split.grouping[place] {
            if *part == Part::Filter {
                self.tell_flows();
            }
            self.order_place(place, &Order::Go { part: *part }, &[]);
        }
    }

    fn tell_flows(&mut self) {
        for place in self.split.transports() {
            self.order_place(place, &Order::ShowFlows {}, &[]);
            loop {
                let told = self.await_report(Some(place), "connections", |report| {
                    matches!(report, Report::Flows { .. })
                });
                let Report::Flows { flows, last } = told else {
                    continue;
                };
                self.order(Part::Filter, &Order::Flows { flows }, &[]);
                if last {
                    break;
                }
            }
        }
    }

    /// Waits until all processes have carried out what they were ordered.
    pub fn settle(&mut self) {
        for place in self.split.places() {
            self.order_place(place, &Order::ShowFlows {}, &[]);
            self.await_report(Some(place), "connections", |report| {
                matches!(report, Report::Flows { last: true, .. })
            });
        }
    }

    /// Puts rules in force.
    pub fn load(&mut self, rules: &str) {
        self.split.rules = rules.into();
        let order = Order::Filter {
            rules: rules.into(),
        };
        self.order(Part::Filter, &order, &[]);
        if !self.split.is_whole() {
            self.tell_flows();
            self.order(Part::Filter, &Order::Go { part: Part::Filter }, &[]);
        }
        self.settle();
    }

    /// Starts a successor of a process that is dead, which knows the others, and they it. It begins with
    /// [`World::let_go`].
    pub fn succeed(&mut self, part: Part) {
        let place = self.split.place(part);
        for part in self.split.grouping[place] {
            self.split.incarnations[part.index()] += 1;
            self.split.pools[part.index()] = None;
        }
        self.split.start(place, None);
        self.introduce(place, true);
        for program in 0..self.split.programs.len() {
            self.map(place, program);
            self.attach_to(place, program);
        }
    }

    pub fn let_go(&mut self, part: Part) {
        self.go(self.split.place(part));
    }

    /// Ends the process that has this part, and starts a successor.
    pub fn replace(&mut self, part: Part) {
        let place = self.split.place(part);
        match self.split.runners[place] {
            Some(Runner::ByHand(_)) => self.split.kill(place),
            _ => assert_eq!(self.split.stop(place), Ended::Stopped),
        }
        self.succeed(part);
        self.let_go(part);
    }

    /// The processes that have these parts die at once, and their successors start together, with new queues
    /// where both ends died: nobody tells one of them that another was replaced. What was in the old ones is lost
    /// unless they are `readable`.
    pub fn replace_together(&mut self, parts: &[Part], readable: bool) {
        let places: Vec<usize> = parts.iter().map(|part| self.split.place(*part)).collect();
        for place in &places {
            self.split.kill(*place);
            for part in self.split.grouping[*place] {
                self.split.incarnations[part.index()] += 1;
                self.split.pools[part.index()] = None;
            }
        }
        self.split.renew_lanes(parts, readable);
        places
            .iter()
            .for_each(|place| self.split.start(*place, None));
        for place in &places {
            self.introduce(*place, true);
            for program in 0..self.split.programs.len() {
                self.map(*place, program);
                self.attach_to(*place, program);
            }
        }
        places.iter().for_each(|place| self.go(*place));
    }

    fn map(&mut self, place: usize, at: usize) {
        if !self.split.readers().contains(&place) {
            return;
        }
        let kept = &self.split.programs[at];
        let program = kept.attachment.program;
        let regions = [&kept.tcp, &kept.udp];
        let files = regions.map(|it| it.sending().files());
        let with: Vec<_> = files.into_iter().flatten().map(clone).collect();
        self.order_place(place, &Order::Map { program }, &with);
        let mapped = Report::Mapped { program };
        self.await_report(Some(place), "a mapping", |report| *report == mapped);
    }

    /// Answers why not.
    fn attach_to(&mut self, place: usize, at: usize) -> Option<String> {
        let routes = <[u8; 3]>::from(self.split.programs[at].attachment.routes);
        let route = self.split.hosts().iter().position(|it| *it == place)?;
        let channel = usize::from(routes[route]);
        let kept = &self.split.programs[at];
        let mut with = Vec::new();
        for (part, region) in [(Part::Tcp, &kept.tcp), (Part::Udp, &kept.udp)] {
            if self.split.place(part) == place {
                with.extend(region.files().map(clone));
            }
        }
        with.extend(kept.channel.for_stack(channel).expect("descriptors"));
        let order = Order::Attach {
            attachment: kept.attachment,
            pid: std::process::id(),
            uid: kept.uid,
        };
        self.order_place(place, &order, &with);
        let attached = self.await_report(Some(place), "an attachment", |report| {
            matches!(report, Report::Attached { .. })
        });
        match attached {
            Report::Attached { refused, .. } => refused,
            _ => None,
        }
    }

    /// Attaches a program. Answers which processes refused.
    pub fn try_attach(&mut self, program: u32, uid: u32) -> (usize, Files) {
        let config = TableConfig::from(TABLE);
        let routes = Routes::to_hosts(&self.split.hosts());
        self.split.attached += 1;
        let kept = Kept {
            attachment: Attachment {
                program,
                tcp_stride: config.sockets,
                udp_stride: config.sockets,
                secret: self.split.attached << 32 | 0x5ec7_e700,
                routes,
            },
            uid,
            tcp: Region::create("tcp", config).expect("memory"),
            udp: Region::create("udp", config).expect("memory"),
            channel: ChannelParts::create(routes.channels()).expect("memory"),
        };
        let files = self.split.files(&kept);
        self.split.programs.push(kept);
        let at = self.split.programs.len() - 1;
        for place in self.split.readers() {
            self.map(place, at);
        }
        let front = self.split.front().into_iter();
        let refused = front.filter_map(|place| self.attach_to(place, at)).count();
        if refused > 0 {
            self.split.programs.pop();
        }
        (refused, files)
    }

    pub fn files(&mut self, program: u32, uid: u32) -> Files {
        let (refused, files) = self.try_attach(program, uid);
        assert_eq!(refused, 0, "program {program} is refused");
        files
    }

    pub fn attach(&mut self, program: u32, uid: u32) -> Program {
        Program::new(self.files(program, uid))
    }
}
