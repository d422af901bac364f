use crate::ports::PortRegister;
use crate::shares::Shares;
use crate::stored::{Item, Known, keep};
use crate::turns::Turns;
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
    /// For `store`: removes what is stored under the key, but only when all calls so far are on their way. What is
    /// stored there in between stays.
    fn store_last(&mut self, key: StoreKey);
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
    pub(crate) resumed: bool,
    /// Programs that were stored, and whose numbers are others' by now.
    pub(crate) superseded: Vec<u32>,
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
            superseded: Vec::new(),
        }
    }

    /// A program is there, whose user this is. Who knows the secret may share its sockets. After a restart
    /// of this component the programs attach again, before or after [`Syscall::restore`]; one that has ended does
    /// while others hold sockets of its, and that changes nothing.
    pub fn attach(&mut self, program: u32, uid: u32, secret: u64, out: &mut impl SyscallOutput) {
        let attached = Program {
            uid,
            secret,
            presence: Presence::Attached,
            unfinished: None,
        };
        let before = self.programs.get(&program);
        let same = before.is_none_or(|before| before.secret == secret);
        if same && self.has_departed(program) {
            // Its sockets are handed on, and so it is.
            return;
        }
        // What was stored of it isn't overwritten before it is known.
        if self.resumed {
            keep(out, &attached.item(program));
        }
        self.programs.insert(program, attached);
        self.leave_turns(program);
        if !same {
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

    pub(crate) fn has_departed(&self, program: u32) -> bool {
        let program = self.programs.get(&program);
        program.is_some_and(|it| it.presence == Presence::Departed)
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

/// Removes what is stored under the item's key, once it is said what ends it: who comes after this process ends it
/// again if that didn't come to pass.
pub(crate) fn forget_last(out: &mut impl SyscallOutput, item: &Item) {
    out.store_last(item.key());
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
        SocketCall::Rest(socket) => CallBody::Rest(socket),
        // The first has its turn, and the others have no outcome.
        SocketCall::Bind(..) | SocketCall::Relieve(..) | SocketCall::Close(..) => return,
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
