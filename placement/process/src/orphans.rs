//! Ends the connections of a program that had a stack of its own and was killed, or has become another program: as the kernel
//! does for its sockets, a FIN follows what was written, or a reset if something wasn't read. What nobody has accepted goes to another
//! process's stack, if one listens there. If none does, but somebody still has the socket on which the program listened (the kernel
//! knows), it goes on to listen until one does: who calls waits for that, as at the kernel's own socket. And connections that other
//! processes have, too, go on, until one of those asks for them ([`skink_control::tether`]), or all have closed them.

use crate::clock;
use crate::confine::confine_orphans;
use crate::filter::parse;
use crate::start::{StartError, config, network};
use core::mem::MaybeUninit;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use skink_control::{Broker, Notice, StackStart, tether};
use skink_library::{Farewell, Stack, StackConfig};
use skink_memory::{Parcel, Region, SocketId, TableConfig, TableError};
use skink_messages::{Counters, Ports, Progress, Protocol};
use skink_nic::Room;
use skink_sandbox::{Refusal, Report, SandboxError};
use skink_socket_diag::SocketDiag;
use skink_time::{Duration, Instant};
use skink_wire::{Endpoint, FourTuple};
use std::os::fd::{AsFd, OwnedFd};

/// Of the one program here.
const PROGRAM: u32 = 0;
/// While nobody tells when there is room to send.
const RETRY: Duration = Duration::from_millis(10);
/// For what nobody has accepted: the program that the process has become listens soon, or who is started in its place.
const HEIRS: Duration = Duration::from_millis(250);
/// How often it is looked whether somebody listens, or still has a socket.
const LOOK: Duration = Duration::from_millis(50);
/// As long as nothing comes, and nobody asks.
const LONG: Duration = Duration::from_secs(60);
/// So often, for the last words.
const PATIENCE: u32 = 100;
/// Its sockets of UDP, of which nothing is left to be done.
const NO_DATAGRAMS: TableConfig = TableConfig {
    sockets: 1,
    send_bytes: 4096,
    receive_bytes: 4096,
};

/// A stack for the connections, and what they are in.
pub struct Orphans {
    stack: Stack,
    nic: &'static str,
    /// Tells of frames.
    arrivals: OwnedFd,
    tcp: Region,
    udp: Region,
    /// Knows who else listens.
    broker: Broker,
    /// The packet filter's rules as text, and what `on` in them means.
    rules: (String, String),
    /// Where it listens for others, and the cookies of the kernel's sockets.
    listens: Vec<(Endpoint, u64)>,
    /// Knows whether they have the sockets.
    diag: Option<SocketDiag>,
    tethers: Vec<Tether>,
    /// The number of the last connection that was given.
    serial: u32,
}

/// A connection that others have, too.
struct Tether {
    flow: FourTuple,
    /// The stack's.
    end: OwnedFd,
    /// For its parcel, until that is in it.
    file: OwnedFd,
    /// By this number to who has asked.
    given: Option<u32>,
    /// Somebody has asked since.
    wanted: bool,
}

impl Orphans {
    /// With what came beside [`Order::EndOrphans`](skink_control::Order::EndOrphans). What the program left in its memory isn't
    /// looked at yet: [`Orphans::confine`] comes first.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn new(start: StackStart, descriptors: Vec<OwnedFd>) -> Result<Orphans, StartError> {
        let mut rest = descriptors.into_iter();
        let (nic, ports) = network(&start, &mut rest)?;
        let unannounced = || StartError::Parts("other descriptors than announced".to_owned());
        let mut next = || rest.next().ok_or_else(unannounced);
        let files = [next()?, next()?, next()?];
        let tethers = start.tethers.iter().map(|(local, remote)| {
            let [local, remote] = [local, remote].map(|end| Endpoint::new(end.ip(), end.port()));
            Ok(Tether {
                flow: FourTuple::new(local, remote),
                end: next()?,
                file: next()?,
                given: None,
                wanted: false,
            })
        });
        let tethers = tethers.collect::<Result<Vec<Tether>, StartError>>()?;
        let broker = next()?;
        if rest.next().is_some() {
            return Err(unannounced());
        }
        let tcp = Region::open(files).map_err(spoilt)?;
        let udp = Region::create("skink-udp", NO_DATAGRAMS).map_err(spoilt)?;
        let counters = Counters::create();
        let counters = counters.map_err(StartError::doing("making counters"))?;
        let kind = nic.capabilities.kind;
        let config = StackConfig {
            udp_table: NO_DATAGRAMS,
            ..config(&start, counters)
        };
        let listens = start.listens.iter();
        let listens: Vec<(Endpoint, u64)> = listens
            .map(|(end, cookie)| (Endpoint::new(end.ip(), end.port()), *cookie))
            .collect();
        let ports = Quiet {
            ports,
            heard: listens.iter().map(|(end, _)| end.port).collect(),
        };
        let mut stack = Stack::for_programs(config, nic, Box::new(ports));
        stack.set_hands_over();
        let arrivals = epoll::create(CreateFlags::CLOEXEC);
        let arrivals = arrivals.map_err(StartError::doing("making an epoll set"))?;
        let data = EventData::new_u64(0);
        let mut watched = epoll::add(&arrivals, &broker, data, EventFlags::IN);
        stack.receive_descriptors(&mut |fd| {
            let added = epoll::add(&arrivals, fd, data, EventFlags::IN);
            watched = watched.and(added);
        });
        for tether in &tethers {
            watched = watched.and(epoll::add(&arrivals, &tether.end, data, EventFlags::IN));
        }
        watched.map_err(StartError::doing(
            "watching the NIC, the broker and tethers",
        ))?;
        Ok(Orphans {
            stack,
            nic: kind,
            arrivals,
            tcp,
            udp,
            broker: Broker::resume(broker, ""),
            rules: (start.rules, start.interface),
            diag: (!listens.is_empty())
                .then(SocketDiag::open)
                .and_then(Result::ok),
            listens,
            tethers,
            serial: 0,
        })
    }

    /// As [`confine`](crate::confine()), before [`Orphans::end`].
    ///
    /// # Errors
    /// As there.
    pub fn confine(&self, refusal: Refusal) -> Result<Report, SandboxError> {
        confine_orphans(self.nic, refusal)
    }

    /// Adopts the connections, and treats their program as gone. Returns once peers have acknowledged everything, or have taken
    /// too long ([`Farewell`]) and are reset.
    ///
    /// # Errors
    /// [`StartError::Parts`].
    pub fn end(mut self) -> Result<(), StartError> {
        let now = clock::now();
        let (tcp, udp) = (self.tcp.clone(), self.udp.clone());
        let adopted = self.stack.adopt_program(now, PROGRAM, tcp, udp);
        let adopted = adopted.map_err(spoilt)?;
        tracing::debug!(sockets = adopted.sockets, given_up = adopted.given_up);
        let (rules, interface) = &self.rules;
        if !rules.is_empty() {
            let rules = parse(rules).map_err(StartError::Parts)?;
            // Connections that there are pass.
            self.stack.set_rules(now, interface, rules);
        }
        for at in (0..self.tethers.len()).rev() {
            let tcp = self.stack.tcp();
            let tether = &mut self.tethers[at];
            if tcp.has_away_flow(&tether.flow) {
                // The program had given it, by whatever number: it waits for who has asked.
                tether.given = Some(0);
            } else if tcp.find_held(PROGRAM, &tether.flow).is_none() {
                self.drop_tether(at);
            }
        }
        self.stack.expect_heirs(now + HEIRS);
        self.stack.abandon(now, Protocol::Udp, PROGRAM);
        self.close(now);
        let mut farewell = Farewell::new(now);
        let (mut looks_at, mut patience) = (now, PATIENCE);
        let mut looks_for_heirs = now;
        loop {
            let now = clock::now();
            self.hear(now);
            self.look_after_tethers(now);
            if !self.listens.is_empty() && now >= looks_for_heirs {
                looks_for_heirs = now + LOOK;
                self.look_for_heirs(now);
            }
            let progress = self.stack.poll(now);
            let broker = &self.broker;
            while let Some(flow) = self.stack.take_question(now) {
                broker.ask_whose(&flow);
            }
            while let Some((flow, request)) = self.stack.take_stray() {
                broker.tell_stray(&flow, request);
            }
            self.stack.hand_over(now, |flow, parcel, may_stay| {
                broker.hand_over(flow, parcel, may_stay)
            });
            let blocked = self.stack.send_blocked_on().is_some();
            if progress == Progress::More && !blocked && now < looks_at {
                continue;
            }
            looks_at = now + RETRY;
            let left = self.stack.tcp_left();
            match farewell.look(now, left) {
                Some(_) if progress == Progress::More && !blocked => {}
                Some(longest) if self.listens.is_empty() => self.wait(longest),
                Some(longest) => self.wait(longest.min(LOOK)),
                None if !self.tethers.is_empty() => {
                    farewell = Farewell::new(now);
                    self.wait(LONG);
                }
                None if !self.listens.is_empty() => {
                    if !left.is_nothing() && !self.stack.has_away() {
                        let _ = self.stack.tcp_reset_unfinished(now);
                    }
                    farewell = Farewell::new(now);
                    self.wait(LOOK);
                }
                // The last acknowledgement, or reset, is among what waits for room, or for its neighbour's address.
                None if left.connections == 0 && (blocked || self.stack.asks()) && patience > 0 => {
                    patience -= 1;
                    self.wait(RETRY);
                }
                None => {
                    tracing::info!(left.connections, left.bytes, "done");
                    break;
                }
            }
        }
        let _ = self.stack.tcp_reset_unfinished(clock::now());
        self.stack.flush();
        Ok(())
    }

    /// Closes everything but what it listens on for others.
    fn close(&mut self, now: Instant) {
        if self.listens.is_empty() && self.tethers.is_empty() {
            return self.stack.abandon(now, Protocol::Tcp, PROGRAM);
        }
        let ports: Vec<u16> = self.listens.iter().map(|(end, _)| end.port).collect();
        let kept: Vec<FourTuple> = self.tethers.iter().map(|it| it.flow).collect();
        self.stack.orphan(now, PROGRAM, &ports, &kept);
    }

    /// Connections go to who asks for them, and those that nobody has any more are closed.
    fn look_after_tethers(&mut self, now: Instant) {
        let before = self.tethers.len();
        for at in (0..before).rev() {
            let tether = &mut self.tethers[at];
            let heard = tether::hear(tether.end.as_fd());
            tether.wanted |= heard.asked;
            if heard.other {
                tracing::error!(flow = %tether.flow, "{}", tether::UNKNOWN_WRITER);
            }
            let Tether {
                flow,
                end,
                given,
                wanted,
                ..
            } = tether;
            let (flow, given, wanted) = (*flow, *given, *wanted);
            if tether::is_let_go(end.as_fd()) {
                match given {
                    Some(serial) if tether::is_lost(end.as_fd()) => {
                        let stack = &mut self.stack;
                        stack.on_handed_over(now, &flow, serial, None, |_, _| {});
                    }
                    // Who has taken it has closed it, and may not have been heard yet.
                    Some(serial) => self.stack.forget_passed(now, &flow, serial),
                    None => {}
                }
                self.drop_tether(at);
            } else if given.is_none() && wanted {
                self.give(now, at);
            }
        }
        if self.tethers.len() < before {
            self.close(now);
        }
    }

    fn give(&mut self, now: Instant, at: usize) {
        let tether = &mut self.tethers[at];
        let flow = tether.flow;
        tether.wanted = false;
        self.serial += 1;
        let (stack, serial) = (&mut self.stack, self.serial);
        let found: Option<SocketId> = stack.tcp().find_held(PROGRAM, &flow);
        let Some(parcel) = found.and_then(|id| stack.tcp_pass(now, id, serial)) else {
            // It has ended.
            return self.drop_tether(at);
        };
        let given = tether::fill(tether.file.as_fd(), &parcel.to_bytes());
        match given.and_then(|()| self.broker.give(&flow, serial)) {
            Ok(()) => tether.given = Some(serial),
            Err(error) => {
                tracing::warn!(%flow, "a connection that others have can't be given: {error}");
                stack.on_handed_over(now, &flow, serial, None, |_, _| {});
                self.drop_tether(at);
            }
        }
    }

    /// Who asks for it finds nobody.
    fn drop_tether(&mut self, at: usize) {
        let tether = self.tethers.swap_remove(at);
        let _ = epoll::delete(&self.arrivals, &tether.end);
        self.broker.tell_untethered(&tether.flow);
    }

    /// What has become of one that was given.
    fn settle_tether(&mut self, flow: &FourTuple, serial: u32, taken: bool) {
        let mut all = self.tethers.iter();
        let by = |given: u32| given == serial || given == 0;
        let is_it = |it: &Tether| it.flow == *flow && it.given.is_some_and(by);
        match all.position(is_it) {
            Some(at) if taken => {
                let tether = self.tethers.swap_remove(at);
                let _ = epoll::delete(&self.arrivals, &tether.end);
            }
            Some(at) => self.tethers[at].given = None,
            None => {}
        }
    }

    /// Where others listen, or nobody has the socket any more, it listens no longer.
    fn look_for_heirs(&mut self, now: Instant) {
        let before = self.listens.len();
        let (stack, diag) = (&mut self.stack, &mut self.diag);
        self.listens.retain(|(local, cookie)| {
            let is_held = |diag: &mut SocketDiag| diag.listens(*local, *cookie);
            !stack.is_relieved(local.port) && diag.as_mut().is_some_and(is_held)
        });
        if self.listens.len() < before {
            self.stack.expect_heirs(now + HEIRS);
            self.close(now);
        }
    }

    /// What the broker has said of those that were handed over.
    fn hear(&mut self, now: Instant) {
        loop {
            match self.broker.take_notice() {
                Ok(Some(Notice::HandedOver { flow, serial, heir })) => {
                    let broker = &self.broker;
                    self.stack
                        .on_handed_over(now, &flow, serial, heir, |heir, late| {
                            broker.tell_late(heir, &flow, late);
                        });
                    self.settle_tether(&flow, serial, heir.is_some());
                }
                Ok(Some(Notice::Late(flow, segment))) => self.stack.on_late(now, &flow, &segment),
                Ok(Some(Notice::TakeIn { from, parcel, late })) => {
                    if let Some(parcel) = Parcel::from_bytes(&parcel) {
                        let taken = !late && self.stack.take_in(now, &parcel);
                        let flow = parcel.four_tuple();
                        self.broker.tell_taken_in(from, 0, &flow, taken);
                    }
                }
                Ok(Some(_)) => {}
                Ok(None) => return,
                Err(_) => {
                    // There is no broker any more, or nobody to listen for. What is away is given up in time.
                    let _ = epoll::delete(&self.arrivals, &self.broker);
                    if !self.listens.is_empty() || !self.tethers.is_empty() {
                        self.listens.clear();
                        self.tethers.clear();
                        self.close(now);
                    }
                    return;
                }
            }
        }
    }

    /// Until a frame comes, the broker says something, or something is due, but no longer than this.
    fn wait(&self, longest: Duration) {
        let limit = match self.stack.send_blocked_on() {
            Some(Room::Untold(again)) => longest.min(again),
            Some(Room::At(_)) => longest.min(RETRY),
            None => {
                let due = self.stack.next_deadline();
                due.map_or(longest, |due| longest.min(due.since(clock::now())))
            }
        };
        let limit = Timespec {
            tv_sec: limit.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        };
        let mut events = [const { MaybeUninit::uninit() }; 4];
        let _ = epoll::wait(&self.arrivals, &mut events, Some(&limit));
    }
}

fn spoilt(error: TableError) -> StartError {
    StartError::of_part("the program's sockets", &error)
}

/// Nobody hears that a port is listened on, but for some: whoever begins to listen there meanwhile may.
struct Quiet {
    ports: Box<dyn Ports + Send>,
    heard: Vec<u16>,
}

impl Quiet {
    fn is_heard(&self, port: u16) -> bool {
        self.heard.contains(&port)
    }
}

impl Ports for Quiet {
    fn use_port(&mut self, protocol: u8, port: u16, exclusive: bool) -> bool {
        self.ports.use_port(protocol, port, exclusive)
    }

    fn release_port(&mut self, protocol: u8, port: u16) {
        self.ports.release_port(protocol, port);
    }

    fn listen(&mut self, protocol: u8, port: u16) {
        if self.is_heard(port) {
            self.ports.listen(protocol, port);
        }
    }

    fn unlisten(&mut self, protocol: u8, port: u16) {
        if self.is_heard(port) {
            self.ports.unlisten(protocol, port);
        }
    }

    fn keep_in_reserve(&mut self, protocol: u8, port: u16) {
        if self.is_heard(port) {
            self.ports.keep_in_reserve(protocol, port);
        }
    }

    fn is_relieved(&mut self, protocol: u8, port: u16) -> bool {
        self.ports.is_relieved(protocol, port)
    }

    fn others_wait(&mut self, protocol: u8, port: u16) -> bool {
        self.ports.others_wait(protocol, port)
    }

    fn moved(&mut self, protocol: u8, port: u16) -> bool {
        self.ports.moved(protocol, port)
    }

    fn others_listen(&mut self, protocol: u8, port: u16) -> bool {
        self.ports.others_listen(protocol, port)
    }
}
