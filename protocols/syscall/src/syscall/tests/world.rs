//! Transports, programs and a supervisor as they are around `syscall`, for random tests.
use super::*;
use crate::test_support::Dice;
use skink_messages::{BindOptions, TransportCall};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub(super) const PROGRAMS: u32 = 6;

/// A socket of a transport.
#[derive(Default)]
struct Socket {
    bound: Option<(Endpoint, bool)>,
    listens: bool,
    owner_gone: bool,
    others: BTreeSet<u32>,
}

/// A transport: carries calls out, each number of a program once in a row.
#[derive(Default)]
pub(super) struct Transport {
    stride: u32,
    sockets: BTreeMap<SocketId, Socket>,
    generations: BTreeMap<u32, u32>,
    attached: BTreeSet<u32>,
    detached: BTreeSet<u32>,
    last: BTreeMap<u32, CallOutcome>,
    pub outcomes: VecDeque<CallOutcome>,
}

fn user(program: u32) -> u32 {
    1 + program % 2
}

impl Transport {
    pub fn attach(&mut self, program: u32) {
        assert!(self.is_finished(program));
        self.detached.remove(&program);
        self.attached.insert(program);
        // The region is new, and its ids are the old ones'.
        let stride = self.stride;
        self.generations.retain(|slot, _| slot / stride != program);
    }

    /// The region may be given to another program.
    pub fn is_finished(&self, program: u32) -> bool {
        let mut open = self.sockets.keys().map(|id| id.slot / self.stride);
        !self.attached.contains(&program) && open.all(|owner| owner != program)
    }

    pub fn carry_out(&mut self, call: TransportCall, hostile: bool, dice: &mut Dice) {
        let TransportCall {
            program,
            serial,
            body,
        } = call;
        if serial == 0 {
            return self.hear(program, body);
        }
        let last = self.last.get(&program).filter(|it| it.serial == serial);
        let outcome = last.copied().unwrap_or_else(|| CallOutcome {
            program,
            serial,
            result: match self.attached.contains(&program) {
                true => self.result(program, body, hostile, dice),
                false => Err(SocketError::Invalid),
            },
        });
        self.last.insert(program, outcome);
        self.outcomes.push_back(outcome);
    }

    fn result(
        &mut self,
        program: u32,
        body: CallBody,
        hostile: bool,
        dice: &mut Dice,
    ) -> Result<(SocketId, Option<Endpoint>), SocketError> {
        let (CallBody::Bind(id, ..)
        | CallBody::Listen(id, _)
        | CallBody::Connect(id, _)
        | CallBody::Share(id)) = body
        else {
            return self.open(program);
        };
        let socket = self.sockets.get(&id).ok_or(SocketError::Invalid)?;
        let mine = id.slot / self.stride == program;
        // Who uses a number again may have been told of what never happened.
        assert!(
            hostile
                || mine
                || socket.others.contains(&program)
                || matches!(body, CallBody::Share(_)),
            "{program} may not name {id:?}: {body:?}"
        );
        match body {
            CallBody::Bind(_, local, sharing) => self.bind(id, local, sharing, dice),
            CallBody::Listen(..) => {
                if socket.bound.is_none() {
                    let sharing = BindOptions::default();
                    self.bind(id, end(0), sharing, dice)?;
                }
                let socket = self.sockets.get_mut(&id).expect("there");
                socket.listens = true;
                Ok((id, socket.bound.map(|bound| bound.0)))
            }
            CallBody::Share(_) if socket.listens => Err(SocketError::Invalid),
            CallBody::Share(_) => {
                self.hear(program, body);
                Ok((id, None))
            }
            _ => Ok((id, Some(end(60000)))),
        }
    }

    fn open(&mut self, program: u32) -> Result<(SocketId, Option<Endpoint>), SocketError> {
        let slots = program * self.stride..(program + 1) * self.stride;
        let used: BTreeSet<_> = self.sockets.keys().map(|id| id.slot).collect();
        let free = slots.into_iter().find(|slot| !used.contains(slot));
        let slot = free.ok_or(SocketError::NoBuffers)?;
        let generation = self.generations.entry(slot).or_default();
        *generation += 1;
        let id = SocketId {
            slot,
            generation: *generation,
        };
        self.sockets.insert(id, Socket::default());
        Ok((id, None))
    }

    /// As `tcp` does it; and sees that users keep apart.
    fn bind(
        &mut self,
        id: SocketId,
        mut local: Endpoint,
        sharing: BindOptions,
        dice: &mut Dice,
    ) -> Result<(SocketId, Option<Endpoint>), SocketError> {
        if self.sockets[&id].bound.is_some() {
            return Err(SocketError::Invalid);
        }
        let on = |port| {
            let others = self
                .sockets
                .iter()
                .filter_map(|(id, it)| Some((id, it.bound?)));
            others.filter(move |(_, (end, _))| end.port == port)
        };
        if local.port == 0 {
            let mut ports = std::iter::repeat_with(|| 5000 + dice.roll(40) as u16).take(200);
            let free = ports.find(|port| on(*port).next().is_none());
            local.port = free.ok_or(SocketError::NoBuffers)?;
        }
        if on(local.port).any(|(_, (_, shared))| !shared || !sharing.shared) {
            return Err(SocketError::AddressInUse);
        }
        for (other, _) in on(local.port) {
            let users = [id, *other].map(|id| user(id.slot / self.stride));
            assert_eq!(users[0], users[1], "{id:?} and {other:?} share {local}");
        }
        self.sockets.get_mut(&id).expect("there").bound = Some((local, sharing.shared));
        Ok((id, Some(local)))
    }

    /// Takes what isn't answered.
    fn hear(&mut self, program: u32, body: CallBody) {
        let stride = self.stride;
        match body {
            CallBody::Share(id) => {
                // A listening socket isn't shared.
                if let Some(socket) = self.sockets.get_mut(&id).filter(|it| !it.listens) {
                    match id.slot / stride == program {
                        true => socket.owner_gone = false,
                        false => _ = socket.others.insert(program),
                    }
                }
            }
            CallBody::Release(id) => {
                if let Some(socket) = self.sockets.get_mut(&id) {
                    socket.others.remove(&program);
                    socket.owner_gone |= id.slot / stride == program;
                }
            }
            CallBody::Close(id) => _ = self.sockets.remove(&id),
            CallBody::Detach(_) => {
                self.attached.remove(&program);
                self.detached.insert(program);
                self.last.remove(&program);
                self.sockets.retain(|id, socket| {
                    socket.others.remove(&program);
                    id.slot / stride != program || !socket.others.is_empty()
                });
            }
            CallBody::Sharing | CallBody::AllShared => {}
            CallBody::Abandon(_) => {
                self.attached.remove(&program);
                self.detached.insert(program);
                self.last.remove(&program);
                self.sockets.retain(|id, socket| {
                    socket.others.remove(&program);
                    id.slot / stride != program
                });
            }
            CallBody::Rest(_) => {}
            CallBody::Open | CallBody::Bind(..) | CallBody::Listen(..) | CallBody::Connect(..) => {
                panic!("{body:?} without a number")
            }
        }
    }

    /// Who holds what, as far as it is shared: owner gone, and others.
    pub fn shared(&self) -> BTreeMap<SocketId, (bool, Vec<u32>)> {
        let sockets = self.sockets.iter();
        let shared = sockets.filter(|(_, socket)| !socket.others.is_empty());
        let holders = |it: &Socket| it.others.iter().copied().collect();
        shared
            .map(|(id, it)| {
                let owner = id.slot / self.stride;
                let gone = it.owner_gone || !self.attached.contains(&owner);
                (*id, (gone, holders(it)))
            })
            .collect()
    }

    pub fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }
}

/// Everything around `syscall`.
pub(super) struct World {
    pub syscall: Syscall,
    pub out: Recorder,
    pub transports: [Transport; 2],
    pub dice: Dice,
    /// Attached programs: their secrets.
    pub programs: BTreeMap<u32, u64>,
    /// Requests that wait for an answer, which stay in the programs' queues.
    pub asked: BTreeMap<u32, (u32, SocketCall)>,
    /// What programs have seen of sockets, tickets and secrets, by user and all together.
    pub sockets: Vec<(Protocol, SocketId)>,
    pub tickets: BTreeMap<u32, Vec<u64>>,
    pub secrets: BTreeMap<u32, Vec<(u32, u64)>>,
    serials: BTreeMap<u32, u32>,
    /// Now and then a program uses a number again.
    pub hostile: bool,
}

impl World {
    pub fn new(seed: u64, hostile: bool) -> World {
        let counters = Counters::create().expect("memory");
        let transports = CONFIG.strides.map(|stride| Transport {
            stride,
            ..Transport::default()
        });
        let mut world = World {
            syscall: Syscall::new(CONFIG, counters),
            out: Recorder::default(),
            transports,
            dice: Dice(seed),
            programs: BTreeMap::new(),
            asked: BTreeMap::new(),
            sockets: Vec::new(),
            tickets: BTreeMap::new(),
            secrets: BTreeMap::new(),
            serials: BTreeMap::new(),
            hostile,
        };
        for program in 0..PROGRAMS {
            world.attach(program);
        }
        world.syscall.resume(&mut world.out);
        world
    }

    /// A program attaches, if its number is free.
    pub fn attach(&mut self, program: u32) {
        let queued = self.out.calls.iter().flatten();
        let mut queued = queued.filter(|call| call.program == program);
        let finished = self.transports.iter().all(|it| it.is_finished(program));
        let detaches =
            queued.any(|call| matches!(call.body, CallBody::Detach(_) | CallBody::Abandon(_)));
        if self.programs.contains_key(&program) || !finished || detaches {
            return;
        }
        let secret = 1 + u64::from(self.dice.roll(u32::MAX - 1));
        self.programs.insert(program, secret);
        let secrets = self.secrets.entry(user(program)).or_default();
        secrets.push((program, secret));
        for transport in &mut self.transports {
            transport.attach(program);
        }
        let uid = user(program);
        self.syscall.attach(program, uid, secret, &mut self.out);
    }

    pub fn detach(&mut self, program: u32) {
        if self.programs.remove(&program).is_some() {
            self.asked.remove(&program);
            self.syscall.detach(program, &mut self.out);
        }
    }

    /// A program asks for something, if it may.
    pub fn ask(&mut self, program: u32) {
        assert_eq!(
            self.syscall.may_ask(program),
            self.programs.contains_key(&program) && !self.asked.contains_key(&program),
            "{program}"
        );
        if !self.syscall.may_ask(program) {
            return;
        }
        let again = self.hostile && self.dice.roll(8) == 0;
        let serial = self.serials.entry(program).or_default();
        *serial += u32::from(!again || *serial == 0);
        let serial = *serial;
        let call = self.some_call(program);
        if call.is_answered() {
            self.asked.insert(program, (serial, call));
        }
        self.syscall.request(program, serial, call, &mut self.out);
        self.take_answers();
    }

    fn some_call(&mut self, program: u32) -> SocketCall {
        let protocol = Protocol::ALL[self.dice.roll(2) as usize];
        let (protocol, socket) = match self.sockets.len() {
            0 => (protocol, id(self.dice.roll(PROGRAMS), 0)),
            // Rather the latest.
            known => self.sockets[known - 1 - self.dice.roll(known.min(25) as u32) as usize],
        };
        let remote = (self.dice.roll(5) != 0).then_some(end(80));
        match self.dice.roll(20) {
            0..5 => SocketCall::Open(protocol),
            5..10 => {
                let tickets = self.tickets.get(&user(program)).map_or(0, Vec::len);
                let ticket = match self.dice.roll(4) {
                    0 if tickets > 0 => {
                        self.tickets[&user(program)][self.dice.roll(tickets as u32) as usize]
                    }
                    1 => u64::from(self.dice.roll(100)),
                    _ => 0,
                };
                let options = PortOptions {
                    reuse_address: false,
                    reuse_port: self.dice.roll(3) != 0,
                    ticket,
                };
                let port = match self.dice.roll(5) {
                    0 => 0,
                    1 => 80,
                    _ => 5000 + self.dice.roll(6) as u16,
                };
                SocketCall::Bind(protocol, socket, end(port), options)
            }
            10..12 => SocketCall::Listen(socket, 5),
            12 => SocketCall::Connect(protocol, socket, remote),
            13..16 => {
                let known = &self.secrets[&user(program)];
                let owner = socket.slot / CONFIG.strides[protocol.index()];
                let known = known.iter().rev().find(|(of, _)| *of == owner);
                let secret = known.map_or(u64::from(self.dice.roll(5)), |(_, secret)| *secret);
                SocketCall::Share(protocol, socket, secret)
            }
            16 => SocketCall::Rest(socket),
            _ => SocketCall::Close(protocol, socket),
        }
    }

    /// Each answer is to a request that waits for it.
    pub fn take_answers(&mut self) {
        for (program, serial, result) in std::mem::take(&mut self.out.answers) {
            let asked = self.asked.remove(&program);
            let (number, call) = asked.unwrap_or_else(|| panic!("{program} didn't ask"));
            assert_eq!(number, serial, "{program}");
            let Ok(answer) = result else {
                continue;
            };
            match call {
                SocketCall::Open(protocol) => {
                    let socket = answer.socket.expect("a socket");
                    self.sockets.push((protocol, socket));
                }
                SocketCall::Bind(..) => {
                    assert_ne!(answer.value, 0);
                    let tickets = self.tickets.entry(user(program)).or_default();
                    tickets.push(answer.value);
                }
                _ => {}
            }
        }
    }

    /// A transport carries out one call, or an outcome arrives.
    pub fn move_on(&mut self, protocol: Protocol, carry_out: bool) -> bool {
        let at = protocol.index();
        if carry_out {
            let mut calls = std::iter::from_fn(|| self.out.calls[at].pop_front());
            let is_mark = |body| matches!(body, CallBody::Sharing | CallBody::AllShared);
            // A mark takes no time.
            let call = calls.find(|call| !is_mark(call.body));
            let (hostile, dice) = (self.hostile, &mut self.dice);
            call.map(|call| self.transports[at].carry_out(call, hostile, dice))
                .is_some()
        } else {
            let outcome = self.transports[at].outcomes.pop_front();
            outcome
                .map(|outcome| self.hand_in(protocol, outcome))
                .is_some()
        }
    }

    pub fn hand_in(&mut self, protocol: Protocol, outcome: CallOutcome) {
        self.syscall.outcome(protocol, outcome, &mut self.out);
        self.take_answers();
    }

    /// Until nothing happens any more.
    pub fn settle(&mut self) {
        let mut moved = true;
        while moved {
            moved = false;
            for protocol in Protocol::ALL {
                moved |= self.move_on(protocol, true) | self.move_on(protocol, false);
            }
        }
    }

    /// `syscall` dies, and has a successor that asks are repeated to.
    pub fn restart(&mut self) {
        self.syscall = self.successor();
        for (program, secret) in self.programs.clone() {
            self.syscall
                .attach(program, user(program), secret, &mut self.out);
        }
        self.syscall.resume(&mut self.out);
        for (program, (serial, call)) in self.asked.clone() {
            self.syscall.request(program, serial, call, &mut self.out);
            self.take_answers();
        }
    }

    /// Another `syscall` with what is stored.
    pub fn successor(&self) -> Syscall {
        let counters = Counters::create().expect("memory");
        let mut syscall = Syscall::new(CONFIG, counters);
        for (key, value) in &self.out.stored {
            syscall.restore(*key, *value);
        }
        assert_eq!(syscall.ignored(), 0, "all of it is understood");
        syscall
    }
}
