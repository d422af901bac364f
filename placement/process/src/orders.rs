//! What the supervisor orders.
use crate::host::{Host, PROGRAMS, about};
use crate::program::Program;
use crate::shares::Released;
use rustix::event::epoll::{self, EventData, EventFlags};
use skink_control::{FlowSummary, Order, Part, PoolSizes, Report};
use skink_memory::{Region, SocketId, SocketKind};
use skink_messages::{Counter, TcpRequest, UdpRequest};
use skink_sockets::{Attachment, Protocol, Server};
use skink_time::Instant;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

/// What comes with [`Order::Attach`]: two regions of two memfds, and a channel of seven.
const ATTACH_DESCRIPTORS: usize = 11;
/// Connections in one report.
const FLOWS: usize = 512;

impl Host {
    /// Carries an order out; `false` if it was to stop.
    pub(crate) fn order(&mut self, now: Instant, order: Order, descriptors: Vec<OwnedFd>) -> bool {
        match order {
            Order::Start(_) | Order::StartPart(_) => {
                tracing::warn!("ordered to start again, which isn't possible; ignored");
            }
            Order::Neighbour {
                part,
                incarnation,
                pool,
            } => {
                self.meet(part, incarnation, pool, descriptors);
                self.reports.push_back(Report::Knows { part, incarnation });
            }
            Order::Go {} => {
                if let Some(transports) = self.stack.transports() {
                    transports.go();
                }
            }
            Order::ShowFlows {} => self.show_flows(),
            Order::Map { .. } | Order::Unmap { .. } | Order::Flows { .. } => {
                tracing::warn!("ordered what is another process's to do; ignored");
            }
            Order::Attach {
                attachment,
                pid,
                uid,
            } => {
                let refused = self.attach(attachment, pid, uid, descriptors).err();
                if let Some(reason) = &refused {
                    tracing::warn!(
                        "program {} (pid {pid}) is refused: {reason}",
                        attachment.program
                    );
                }
                self.reports.push_back(Report::Attached {
                    program: attachment.program,
                    refused,
                });
            }
            Order::Detach { program } => self.detach(now, program),
            Order::Filter { rules } => {
                if let Err(reason) = self.load_rules(&rules) {
                    tracing::warn!("the packet filter goes on with its old rules: {reason}");
                }
            }
            Order::ShowFilter {} => {
                let shown = self.show_filter();
                self.reports.push_back(Report::Filter { shown });
            }
            Order::Stop {} => return false,
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
    ) {
        let memory = descriptors.into_iter().next();
        let met = self
            .stack
            .transports()
            .map(|transports| transports.meet(part, incarnation, pool.zip(memory)));
        if let Some(Err(why)) = met {
            tracing::warn!("what {part:?} sends can't be read: {why}");
        }
    }

    /// Tells the supervisor which connections there are, in pieces.
    fn show_flows(&mut self) {
        let flows: Vec<FlowSummary> = match self.stack.transports() {
            Some(transports) => transports.flows().collect(),
            None => Vec::new(),
        };
        for piece in flows.chunks(FLOWS) {
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
        let Attachment {
            program,
            tcp_stride,
            udp_stride,
            secret,
        } = attachment;
        if program >= PROGRAMS {
            return Err(format!(
                "its number is {program}, and must be below {PROGRAMS}"
            ));
        }
        if (tcp_stride, udp_stride) != self.strides {
            return Err("its regions were made for a stack of another size".into());
        }
        let descriptors: [OwnedFd; ATTACH_DESCRIPTORS] = descriptors
            .try_into()
            .map_err(|_| "not all of its descriptors came along".to_owned())?;
        let [tcp0, tcp1, udp0, udp1, channel @ ..] = descriptors;
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let tcp = Region::open(tcp0, tcp1).map_err(|error| text(&error))?;
        let udp = Region::open(udp0, udp1).map_err(|error| text(&error))?;
        let server = Server::attach(channel).map_err(|error| text(&error))?;
        let data = EventData::new_u64(program.into());
        // First what can fail for want of room.
        epoll::add(&self.set, server.bell(), data, EventFlags::IN)
            .map_err(|error| format!("its bell can't be watched: {error}"))?;
        if let Err(error) = self.stack.add_program(program, tcp, udp) {
            let _ = epoll::delete(&self.set, server.bell());
            return Err(error.to_string());
        }
        let attached = Program::new(server, pid, uid, secret);
        self.programs.insert(program, attached);
        self.counters.count(Counter::SocketsPrograms);
        Ok(())
    }

    /// A program has spoilt its channel.
    pub(crate) fn spoilt(&mut self, now: Instant, program: u32) {
        let pid = self.programs.get(program).map_or(0, |it| it.pid);
        tracing::warn!(
            "program {program} (pid {pid}) spoilt its channel, and is treated as one that ended"
        );
        self.counters.count(Counter::SocketsSpoilt);
        self.detach(now, program);
        self.reports.push_back(Report::Spoilt { program });
    }

    /// Nobody else tells when a program ends any more: its channel's other end does, which nobody
    /// but the program holds then.
    pub(crate) fn watch_programs(&self) {
        for number in &self.programs.numbers {
            if let Some(program) = self.programs.get(*number) {
                let data = EventData::new_u64(about::GONE + u64::from(*number));
                let _ = epoll::add(&self.set, program.server.rope(), data, EventFlags::empty());
            }
        }
    }

    /// A program has ended. Sockets that others hold as well stay.
    pub(crate) fn detach(&mut self, now: Instant, program: u32) {
        let Some(gone) = self.programs.remove(program) else {
            return;
        };
        // Else the set would keep the bell as long as the program's own descriptor is open anywhere.
        let _ = epoll::delete(&self.set, gone.server.bell());
        let _ = epoll::delete(&self.set, gone.server.rope());
        for (protocol, socket) in &gone.shares {
            self.let_go(now, program, *protocol, *socket);
        }
        let held: Vec<_> = self.shares.of(program);
        let mut stays = false;
        for key in &held {
            stays |= self.shares.release(*key, program) == Released::Held;
        }
        let shifts = (
            self.strides.0.trailing_zeros(),
            self.strides.1.trailing_zeros(),
        );
        self.ports.release_all(|protocol, id| {
            let shift = match protocol {
                Protocol::Tcp => shifts.0,
                Protocol::Udp => shifts.1,
            };
            id.slot >> shift == program && !held.contains(&(protocol, id))
        });
        if stays {
            self.departed.insert(program, gone.secret);
            self.close_all_but(now, program, &held);
        } else {
            self.stack.abandon(now, program);
        }
    }

    /// All programs lose their sockets; peers are told as far as that takes one batch of packets.
    pub(crate) fn end(&mut self, now: Instant) {
        for program in self.programs.numbers.clone() {
            self.detach(now, program);
        }
        self.stack.poll(now);
    }

    /// Closes the sockets of a program that are nobody else's.
    fn close_all_but(&mut self, now: Instant, program: u32, held: &[(Protocol, SocketId)]) {
        for listeners in [true, false] {
            for id in self.sockets_of(Protocol::Tcp, program, listeners) {
                if !held.contains(&(Protocol::Tcp, id)) {
                    self.stack.tcp_request(now, TcpRequest::Close(id));
                }
            }
        }
        for id in self.sockets_of(Protocol::Udp, program, false) {
            if !held.contains(&(Protocol::Udp, id)) {
                self.stack.udp_request(now, UdpRequest::Close(id));
            }
        }
    }

    /// A program's open sockets: those that listen, or the others.
    fn sockets_of(&self, protocol: Protocol, program: u32, listeners: bool) -> Vec<SocketId> {
        let table = match protocol {
            Protocol::Tcp => self.stack.tcp_table(),
            Protocol::Udp => self.stack.udp_table(),
        };
        let used = table.region(program).map_or(0, Region::used);
        let slots = (0..used).map(|slot| table.slot_of(program, slot));
        let open = slots.filter_map(|slot| {
            let record = table.record(slot);
            let listens = match record.kind() {
                SocketKind::Free => return None,
                SocketKind::TcpListener => true,
                SocketKind::Tcp | SocketKind::Udp => false,
            };
            let generation = record.generation.load(Ordering::Relaxed);
            (listens == listeners).then_some(SocketId { slot, generation })
        });
        open.collect()
    }

    /// One holder of a shared socket less; the last one's is closed.
    pub(crate) fn let_go(
        &mut self,
        now: Instant,
        program: u32,
        protocol: Protocol,
        socket: SocketId,
    ) -> Released {
        let released = self.shares.release((protocol, socket), program);
        if released == Released::Last {
            self.close_socket(now, protocol, socket);
            let owner = self.owner_of(protocol, socket);
            if self.departed.contains_key(&owner) && self.shares.of(owner).is_empty() {
                self.departed.remove(&owner);
                self.stack.abandon(now, owner);
            }
        }
        released
    }

    /// Closes a socket for good.
    pub(crate) fn close_socket(&mut self, now: Instant, protocol: Protocol, socket: SocketId) {
        self.ports.release(protocol, socket);
        match protocol {
            Protocol::Tcp => self.stack.tcp_request(now, TcpRequest::Close(socket)),
            Protocol::Udp => self.stack.udp_request(now, UdpRequest::Close(socket)),
        }
    }

    /// The program in whose region a socket is.
    pub(crate) fn owner_of(&self, protocol: Protocol, socket: SocketId) -> u32 {
        let stride = match protocol {
            Protocol::Tcp => self.strides.0,
            Protocol::Udp => self.strides.1,
        };
        socket.slot >> stride.trailing_zeros()
    }

    /// Tells the supervisor of programs whose last socket is gone.
    pub(crate) fn report_finished(&mut self) {
        while let Some(program) = self.stack.take_finished() {
            self.reports.push_back(Report::Finished { program });
        }
    }
}
