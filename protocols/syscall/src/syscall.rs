use crate::ports::PortRegister;
use crate::shares::Shares;
use crate::stored::{Item, Known, keep};
use crate::turns::{Taken, Turns};
use skink_memory::SocketId;
use skink_messages::{
    Answer, CallBody, CallOutcome, Counter, Counters, Protocol, SocketCall, SocketError, StoreKey,
    StoreValue, TransportCall,
};
use std::collections::BTreeMap;

/// What [`Syscall`] must know to begin.
#[derive(Clone, Copy, Debug)]
pub struct SyscallConfig {
    /// Ports below it are root's.
    pub first_unprivileged_port: u16,
    /// How many slots each program's region has in the tables of the transports, by
    /// [`Protocol::index`]: powers of two.
    pub strides: [u32; 2],
}

/// What [`Syscall`] says to others. Nothing is refused: the host keeps what finds no room, and hands in no more
/// requests meanwhile.
pub trait SyscallOutput {
    /// For `tcp` or `udp`.
    fn call(&mut self, protocol: Protocol, call: TransportCall);
    /// For a program: what its request of this number came to.
    fn answer(&mut self, program: u32, serial: u32, result: Result<Answer, SocketError>);
    /// For `store`; `None` removes what is stored under the key.
    fn store(&mut self, key: StoreKey, value: Option<StoreValue>);
    /// A number that can't be guessed, and isn't 0.
    fn random(&mut self) -> u64;
}

/// How far an unfinished call has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// It waits until it may take a port.
    Queued,
    /// The transport has been asked.
    Asked,
    /// The transport has been asked whether the socket can be shared. The program holds it meanwhile,
    /// but not if it turns out that it can't.
    Sharing,
}

/// A call that a program waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unfinished {
    pub serial: u32,
    pub call: SocketCall,
    pub protocol: Protocol,
    pub stage: Stage,
}

/// Whether a program is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Presence {
    Attached,
    /// It was, when this component was last running.
    Remembered,
    /// It has ended, and others hold sockets of its.
    Departed,
}

#[derive(Debug)]
pub(crate) struct Program {
    pub uid: u32,
    /// Who knows it may share this program's sockets.
    pub secret: u64,
    pub presence: Presence,
    pub unfinished: Option<Unfinished>,
}

impl Program {
    pub fn item(&self, number: u32) -> Item {
        let known = Known {
            uid: self.uid,
            secret: self.secret,
            departed: self.presence == Presence::Departed,
        };
        Item::Program(number, known)
    }
}

/// The `syscall` component; see the crate's description.
///
/// Bounded: by the sockets that there are, by the programs that are attached, and by the limits of
/// `ports.rs` and `shares.rs`.
pub struct Syscall {
    pub(crate) config: SyscallConfig,
    pub(crate) counters: Counters,
    pub(crate) programs: BTreeMap<u32, Program>,
    pub(crate) ports: PortRegister,
    pub(crate) shares: Shares,
    turns: [Turns; 2],
    /// See [`Syscall::ignored`].
    pub(crate) ignored: u64,
    /// What was stored is all there.
    resumed: bool,
    /// Transports that restarted before that.
    restarted: [bool; 2],
    /// Programs that were stored, and whose numbers are others' by now.
    superseded: Vec<u32>,
}

impl Syscall {
    /// Without programs and sockets.
    pub fn new(config: SyscallConfig, counters: Counters) -> Syscall {
        Syscall {
            config,
            counters,
            programs: BTreeMap::new(),
            ports: PortRegister::new(config.first_unprivileged_port),
            shares: Shares::default(),
            turns: Default::default(),
            ignored: 0,
            resumed: false,
            restarted: [false; 2],
            superseded: Vec::new(),
        }
    }

    /// A program is there, whose user this is. Who knows the secret may share its sockets. After a restart
    /// of this component the programs attach again, before or after [`Syscall::restore`].
    pub fn attach(&mut self, program: u32, uid: u32, secret: u64, out: &mut impl SyscallOutput) {
        let attached = Program {
            uid,
            secret,
            presence: Presence::Attached,
            unfinished: None,
        };
        keep(out, &attached.item(program));
        let before = self.programs.insert(program, attached);
        self.leave_turns(program);
        let same = |it: &Program| it.presence != Presence::Departed && it.secret == secret;
        if before.is_some_and(|before| !same(&before)) {
            self.supersede(program, out);
        }
    }

    /// Whether the next request of this program can be taken: it is attached, and has no unfinished call.
    pub fn may_ask(&self, program: u32) -> bool {
        let program = self.programs.get(&program);
        program.is_some_and(|it| it.presence == Presence::Attached && it.unfinished.is_none())
    }

    /// How many calls programs wait for.
    pub fn unfinished(&self) -> usize {
        let programs = self.programs.values();
        programs.filter(|it| it.unfinished.is_some()).count()
    }

    /// How much made no sense: outcomes that nobody waits for or that don't fit the call (of programs that
    /// have ended, among others), and stored things that couldn't be understood.
    pub fn ignored(&self) -> u64 {
        self.ignored
    }

    /// A transport has carried out a call.
    pub fn outcome(
        &mut self,
        protocol: Protocol,
        outcome: CallOutcome,
        out: &mut impl SyscallOutput,
    ) {
        self.resume(out);
        let CallOutcome {
            program,
            serial,
            result,
        } = outcome;
        if self.is_turn_of(protocol, program, serial) {
            return self.end_turn(protocol, result, out);
        }
        let known = self.programs.get(&program);
        let unfinished = known.and_then(|it| it.unfinished);
        let unfinished = unfinished.filter(|it| {
            it.serial == serial && it.protocol == protocol && it.stage != Stage::Queued
        });
        match unfinished {
            Some(unfinished) => self.conclude(program, unfinished, result, out),
            None => self.ignored += 1,
        }
    }

    /// A transport has a successor. It is told who holds which shared socket, and asked again for what is
    /// unfinished.
    pub fn transport_restarted(&mut self, protocol: Protocol, out: &mut impl SyscallOutput) {
        if !self.resumed {
            if let Some(restarted) = self.restarted.get_mut(protocol.index()) {
                *restarted = true;
            }
            return;
        }
        self.tell_shares(protocol, out);
        self.ask_turn_again(protocol, out);
        for (program, known) in &self.programs {
            let Some(unfinished) = known.unfinished else {
                continue;
            };
            let turn = self.is_turn_of(protocol, *program, unfinished.serial);
            let asked = unfinished.stage != Stage::Queued && !turn;
            if unfinished.protocol == protocol && asked {
                ask(*program, unfinished, out);
            }
        }
    }

    /// Tells a transport what it was told before, of sockets that are shared.
    fn tell_shares(&self, protocol: Protocol, out: &mut impl SyscallOutput) {
        let tell = |program, body, out: &mut _| tell(protocol, program, body, out);
        for (socket, owner, owner_holds, others) in self.shares.of(protocol) {
            for holder in others {
                tell(holder, CallBody::Share(socket), out);
            }
            if !owner_holds && !self.has_departed(owner) {
                tell(owner, CallBody::Release(socket), out);
            }
        }
        for program in self.programs.keys() {
            if self.has_departed(*program) {
                tell(*program, CallBody::Detach, out);
            }
        }
    }

    pub(crate) fn has_departed(&self, program: u32) -> bool {
        let program = self.programs.get(&program);
        program.is_some_and(|it| it.presence == Presence::Departed)
    }

    /// `store` has a successor, and has forgotten everything: everything is stored again.
    pub fn store_restarted(&mut self, out: &mut impl SyscallOutput) {
        for item in self.items() {
            keep(out, &item);
        }
    }

    /// All that is stored.
    pub(crate) fn items(&self) -> impl Iterator<Item = Item> {
        let programs = self.programs.iter();
        let programs = programs.map(|(number, program)| program.item(*number));
        let turns = Protocol::ALL.into_iter().filter_map(|protocol| {
            let current = self.turns(protocol).current.as_ref();
            current.map(|taken| Item::Turn(protocol, taken.turn))
        });
        let sockets = self.ports.items().chain(self.shares.items());
        programs.chain(sockets).chain(turns)
    }

    /// After this component's own restart, before all but [`Syscall::attach`]: something that `store` had,
    /// in any order. What makes no sense is counted and dropped.
    pub fn restore(&mut self, key: StoreKey, value: StoreValue) {
        let item = Item::decode(key, &value).filter(|_| !self.resumed);
        let taken = item.is_some_and(|item| self.take_back(item));
        self.ignored += u64::from(!taken);
    }

    fn take_back(&mut self, item: Item) -> bool {
        match item {
            Item::Port(protocol, bound) => return self.ports.restore_bound(protocol, bound),
            Item::Retired(number, retired) => return self.ports.restore_retired(number, retired),
            Item::Share(protocol, socket, holder, confirmed) => {
                let owner = self.owner_of(protocol, socket);
                let key = (protocol, socket);
                return self.shares.restore_share(key, owner, holder, confirmed);
            }
            Item::OwnerGone(protocol, socket) => {
                let owner = self.owner_of(protocol, socket);
                self.shares.restore_owner_gone((protocol, socket), owner);
            }
            Item::Program(number, known) => {
                // One that has attached again by now is better known.
                let now = self.programs.get(&number);
                if now.is_some_and(|now| known.departed || now.secret != known.secret) {
                    self.superseded.push(number);
                }
                self.programs.entry(number).or_insert(Program {
                    uid: known.uid,
                    secret: known.secret,
                    presence: match known.departed {
                        true => Presence::Departed,
                        false => Presence::Remembered,
                    },
                    unfinished: None,
                });
            }
            Item::Turn(protocol, turn) => {
                self.turns_mut(protocol).current = Some(Taken {
                    turn,
                    awaited: false,
                    closed: false,
                });
            }
        }
        true
    }

    /// All that `store` had has been handed in: goes on with what a predecessor had begun. At the latest
    /// the first request, outcome or detachment means that too.
    pub fn resume(&mut self, out: &mut impl SyscallOutput) {
        if self.resumed {
            return;
        }
        self.resumed = true;
        for program in std::mem::take(&mut self.superseded) {
            self.supersede(program, out);
        }
        self.tidy(out);
        for protocol in Protocol::ALL {
            let restarted = self.restarted.get(protocol.index());
            if restarted.is_some_and(|restarted| *restarted) {
                self.tell_shares(protocol, out);
            }
            self.ask_turn_again(protocol, out);
        }
    }

    /// The program's unfinished call is finished.
    pub(crate) fn finish(
        &mut self,
        program: u32,
        result: Result<Answer, SocketError>,
        out: &mut impl SyscallOutput,
    ) {
        let known = self.programs.get_mut(&program);
        if let Some(unfinished) = known.and_then(|it| it.unfinished.take()) {
            self.counters.count(Counter::SocketsAnswers);
            out.answer(program, unfinished.serial, result);
        }
    }

    /// The program in whose region a socket is.
    pub(crate) fn owner_of(&self, protocol: Protocol, socket: SocketId) -> u32 {
        let stride = self.stride(protocol);
        socket.slot.checked_div(stride).unwrap_or(u32::MAX)
    }

    fn stride(&self, protocol: Protocol) -> u32 {
        let stride = self.config.strides.get(protocol.index());
        stride.copied().unwrap_or(0)
    }

    /// First and last slot of a program's region; `None` if there can be no such region.
    pub(crate) fn slots_of(&self, protocol: Protocol, program: u32) -> Option<(u32, u32)> {
        let stride = self.stride(protocol);
        let first = program.checked_mul(stride)?;
        Some((first, first.checked_add(stride.checked_sub(1)?)?))
    }

    pub(crate) fn turns(&self, protocol: Protocol) -> &Turns {
        let [tcp, udp] = &self.turns;
        match protocol {
            Protocol::Tcp => tcp,
            Protocol::Udp => udp,
        }
    }

    pub(crate) fn turns_mut(&mut self, protocol: Protocol) -> &mut Turns {
        let [tcp, udp] = &mut self.turns;
        match protocol {
            Protocol::Tcp => tcp,
            Protocol::Udp => udp,
        }
    }
}

/// Tells a transport something that it doesn't answer.
pub(crate) fn tell(protocol: Protocol, program: u32, body: CallBody, out: &mut impl SyscallOutput) {
    let serial = 0;
    let call = TransportCall {
        program,
        serial,
        body,
    };
    out.call(protocol, call);
}

/// Asks a transport for an unfinished call that takes no port, or not for the first time.
pub(crate) fn ask(program: u32, unfinished: Unfinished, out: &mut impl SyscallOutput) {
    let body = match unfinished.call {
        SocketCall::Open(_) => CallBody::Open,
        SocketCall::Listen(socket, backlog) => CallBody::Listen(socket, backlog),
        SocketCall::Connect(_, socket, remote) => CallBody::Connect(socket, remote),
        SocketCall::Share(_, socket, _) => CallBody::Share(socket),
        // The first has its turn, and the others have no outcome.
        SocketCall::Bind(..) | SocketCall::Rest(_) | SocketCall::Close(..) => return,
    };
    let call = TransportCall {
        program,
        serial: unfinished.serial,
        body,
    };
    out.call(unfinished.protocol, call);
}

#[cfg(test)]
mod tests;
