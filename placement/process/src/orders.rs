//! What the supervisor orders.
use crate::clock;
use crate::host::{Host, PROGRAMS, about};
use crate::inner::summary;
use crate::neighbours::map_pool;
use rustix::event::epoll::{self, EventData, EventFlags};
use skink_control::{Order, Part, PoolSizes, Report};
use skink_lanes::Transport;
use skink_memory::{Adopted, Region, SendRegion};
use skink_messages::{Protocol, attachment_tag};
use skink_sockets::{Attachment, Server};
use skink_split::Arrival;
use skink_time::Instant;
use std::os::fd::OwnedFd;

/// Connections in one report.
const FLOWS: usize = 512;

/// The part that has the sockets of a protocol.
pub(crate) fn part(protocol: Protocol) -> Part {
    match protocol {
        Protocol::Tcp => Part::Tcp,
        Protocol::Udp => Part::Udp,
    }
}

impl Host {
    /// Carries an order out; `false` if it was to stop.
    pub(crate) fn order(&mut self, now: Instant, order: Order, descriptors: Vec<OwnedFd>) -> bool {
        let done = match order {
            Order::Start(_) | Order::StartPart(_) | Order::EndOrphans(_) => {
                Err("this process has started already".to_owned())
            }
            Order::Neighbour {
                part,
                incarnation,
                pool,
            } => {
                let met = self.meet(part, incarnation, pool, descriptors);
                self.reports.push_back(Report::Knows { part, incarnation });
                met
            }
            Order::Go { part } => {
                self.go(part);
                Ok(())
            }
            Order::Map { program } => {
                let mapped = self.map(program, descriptors);
                self.reports.push_back(Report::Mapped { program });
                mapped
            }
            Order::Unmap { program } => {
                self.inner.unmap(program);
                Ok(())
            }
            Order::ShowFlows {} => {
                self.show_flows();
                Ok(())
            }
            Order::Flows { flows } => {
                self.inner.enter_flows(now, flows);
                Ok(())
            }
            Order::Attach {
                attachment,
                pid,
                uid,
            } => {
                let refused = self.attach(attachment, pid, uid, descriptors).err();
                if refused.is_some() {
                    let tag = attachment_tag(attachment.secret);
                    self.refused.insert(attachment.program, tag);
                }
                self.reports.push_back(Report::Attached {
                    program: attachment.program,
                    refused: refused.clone(),
                });
                let number = attachment.program;
                refused.map_or(Ok(()), |why| {
                    Err(format!("program {number} (pid {pid}): {why}"))
                })
            }
            Order::Detach { program } => {
                match self.refused.remove(&program) {
                    Some(tag) => self.front.end_in_transports(now, program, tag),
                    None => self.front.program_ended(now, program),
                }
                Ok(())
            }
            Order::Filter { rules } => self.load_rules(&rules),
            Order::AskFilter {} => {
                self.inner.ask_filter();
                Ok(())
            }
            Order::ShowFilter {} => {
                let shown = self.show_filter();
                self.reports.push_back(Report::Filter { shown });
                Ok(())
            }
            Order::Stop {} => return false,
        };
        if let Err(why) = done {
            tracing::warn!("an order isn't carried out: {why}");
        }
        true
    }

    /// Another part of the stack runs.
    fn meet(
        &mut self,
        part: Part,
        incarnation: u32,
        pool: Option<PoolSizes>,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), String> {
        let Some(neighbours) = &mut self.neighbours else {
            return Err("all of the stack is in this process".to_owned());
        };
        let met = neighbours.meet(part, incarnation, pool.map(|pool| pool.id));
        let mut mapped = Ok(());
        if let (Some(sizes), Some(memory)) = (pool, descriptors.into_iter().next()) {
            mapped = self.inner.add_pool(&|| {
                let memory = memory.try_clone().map_err(|error| error.to_string())?;
                map_pool(sizes, memory)
            });
            if let Some(apart) = self.front.stack.apart() {
                mapped = mapped.and(apart.add_pool(|| {
                    let memory = memory.try_clone().map_err(|error| error.to_string())?;
                    map_pool(sizes, memory)
                }));
            }
        }
        if met.restarted {
            self.neighbour_restarted(part, incarnation);
        }
        if let Some(old) = met.old_pool {
            self.inner.remove_pool(old);
            if let Some(apart) = self.front.stack.apart() {
                apart.remove_pool(old);
            }
        }
        mapped.map_err(|why| format!("what {} sends can't be read: {why}", part.name()))
    }

    fn neighbour_restarted(&mut self, part: Part, incarnation: u32) {
        let now = clock::now();
        self.inner.restarted(now, part, incarnation);
        let transport = Protocol::ALL.into_iter().find(|it| self::part(*it) == part);
        if let Some(protocol) = transport {
            self.front.transport_restarted(protocol, incarnation);
        }
        if let (Part::Ip | Part::Link, Some(apart)) = (part, self.front.stack.apart()) {
            if part == Part::Ip {
                apart.ip_restarted(incarnation);
            }
            apart.network_restarted(now);
        }
        match part {
            Part::Store => self.front.store_restarted(incarnation),
            Part::Syscall => self.front.syscall_restarted(incarnation),
            Part::Link | Part::Ip | Part::Filter | Part::Tcp | Part::Udp => {}
        }
    }

    /// The neighbours of a part know of it.
    pub(crate) fn go(&mut self, part: Part) {
        let now = clock::now();
        if std::mem::take(&mut self.is_held) {
            self.front.take_over(now);
        }
        self.inner.set_going(part, true);
        match (part, self.front.stack.apart()) {
            (Part::Tcp, Some(apart)) => {
                apart.go(Protocol::Tcp);
                self.lasting.begin(now);
            }
            (Part::Udp, Some(apart)) => apart.go(Protocol::Udp),
            (Part::Syscall, _) => {
                let own = self.neighbours.as_ref().map(|it| it.incarnation(part));
                self.front.syscall_goes(own.is_some_and(|own| own > 1));
            }
            _ => {}
        }
        if part.serves_programs() {
            self.front.greet_programs(now);
        }
    }

    /// A program's sockets, to be read.
    fn map(&mut self, program: u32, descriptors: Vec<OwnedFd>) -> Result<(), String> {
        let files: [OwnedFd; 4] = descriptors
            .try_into()
            .map_err(|_| "not all files of what it sends came along".to_owned())?;
        let [tcp_records, tcp_rings, udp_records, udp_rings] = files;
        for (transport, files) in [
            (Transport::Tcp, [tcp_records, tcp_rings]),
            (Transport::Udp, [udp_records, udp_rings]),
        ] {
            let region = SendRegion::open_read_only(files).map_err(|error| error.to_string())?;
            self.inner.map(transport, program, &region);
        }
        Ok(())
    }

    /// Tells the supervisor which connections there are, in pieces.
    fn show_flows(&mut self) {
        let apart = self.front.stack.apart();
        let flows = apart.into_iter().flat_map(|it| it.flows()).map(summary);
        for piece in flows.collect::<Vec<_>>().chunks(FLOWS) {
            self.reports.push_back(Report::Flows {
                flows: piece.to_vec(),
                last: false,
            });
        }
        self.reports.push_back(Report::Flows {
            flows: Vec::new(),
            last: true,
        });
    }

    fn attach(
        &mut self,
        attachment: Attachment,
        pid: u32,
        uid: u32,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), String> {
        let program = attachment.program;
        if program >= PROGRAMS {
            return Err(format!(
                "its number is {program}, and must be below {PROGRAMS}"
            ));
        }
        let tag = attachment_tag(attachment.secret);
        if self.front.programs.get(program).is_some() {
            // A supervisor that went on in another's place asks again.
            return match self.front.tag(program) == Some(tag) {
                true => Ok(()),
                false => Err("its number is another program's".into()),
            };
        }
        if [attachment.tcp_stride, attachment.udp_stride] != self.strides {
            return Err("its regions were made for a stack of another size".into());
        }
        let mut rest = descriptors.into_iter();
        let mut regions = [None, None];
        for protocol in Protocol::ALL {
            if self.front.stack.has(protocol)
                && let Some(place) = regions.get_mut(protocol.index())
            {
                *place = Some(region(&mut rest)?);
            }
        }
        let server = Server::attach(rest.collect()).map_err(|error| error.to_string())?;
        let data = EventData::new_u64(program.into());
        // First what can fail for want of room.
        epoll::add(&self.set, server.bell(), data, EventFlags::IN)
            .map_err(|error| format!("its bell can't be watched: {error}"))?;
        let arrival = Arrival {
            program,
            pid,
            uid,
            secret: attachment.secret,
            server,
            regions,
        };
        match self.front.attach(clock::now(), arrival) {
            Ok(adopted) if adopted == Adopted::default() => {}
            Ok(adopted) => tracing::info!(
                "program {program} (pid {pid}): {} sockets go on, {} are given up",
                adopted.sockets,
                adopted.given_up
            ),
            Err(error) => {
                self.clear_programs();
                return Err(error.to_string());
            }
        }
        self.refused.remove(&program);
        Ok(())
    }

    /// Nobody else tells when a program ends any more: its channel's other end does, which nobody
    /// but the program holds then.
    pub(crate) fn watch_programs(&self) {
        for number in &self.front.programs.numbers {
            if let Some(program) = self.front.programs.get(*number) {
                let data = EventData::new_u64(about::GONE + u64::from(*number));
                let _ = epoll::add(&self.set, program.server.rope(), data, EventFlags::empty());
            }
        }
    }

    /// Tells the supervisor of programs whose last socket is gone.
    pub(crate) fn report_finished(&mut self) {
        while let Some(program) = self.front.take_finished() {
            self.reports.push_back(Report::Finished { program });
        }
    }
}

const INCOMPLETE: &str = "other descriptors than needed came along";

fn region(rest: &mut std::vec::IntoIter<OwnedFd>) -> Result<Region, String> {
    let files: Vec<OwnedFd> = rest.by_ref().take(3).collect();
    let files = files.try_into().map_err(|_| INCOMPLETE.to_owned())?;
    Region::open(files).map_err(|error| error.to_string())
}
