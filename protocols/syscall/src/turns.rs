//! Calls that take a port: for each transport one at a time, in the order in which they came.
use crate::ports::{Bound, Permission};
use crate::stored::{Item, forget, keep};
use crate::syscall::{Presence, Stage, Syscall};
use crate::{SyscallOutput, requests::Outcome};
use skink_memory::SocketId;
use skink_messages::{
    Answer, BindOptions, CallBody, PortOptions, Protocol, SocketCall, SocketError, TransportCall,
};
use skink_wire::Endpoint;
use std::collections::VecDeque;

/// A call that takes a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Turn {
    pub program: u32,
    pub serial: u32,
    pub socket: SocketId,
    /// Whose port it will be.
    pub uid: u32,
    pub intent: Intent,
}

/// How it takes the port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Intent {
    Bind {
        asked: Endpoint,
        sharing: BindOptions,
        reuse_port: bool,
        /// The ticket to be handed out, if it isn't a new one.
        ticket: Option<u64>,
    },
    /// On a socket that isn't bound.
    Listen { backlog: u32 },
}

impl Turn {
    fn call(&self) -> TransportCall {
        let body = match self.intent {
            Intent::Bind { asked, sharing, .. } => CallBody::Bind(self.socket, asked, sharing),
            Intent::Listen { backlog } => CallBody::Listen(self.socket, backlog),
        };
        TransportCall {
            program: self.program,
            serial: self.serial,
            body,
        }
    }

    /// What to register when the socket has this end.
    fn bound(&self, local: Endpoint, random: u64) -> Bound {
        let (reuse_port, ticket) = match self.intent {
            Intent::Bind {
                reuse_port, ticket, ..
            } => (reuse_port, ticket),
            Intent::Listen { .. } => (false, None),
        };
        Bound {
            socket: self.socket,
            local,
            uid: self.uid,
            reuse_port,
            ticket: ticket.unwrap_or(random),
        }
    }

    /// The end that the socket has by now, if the outcome can be one of this call.
    fn end(&self, outcome: Outcome) -> Option<Endpoint> {
        let (socket, local) = outcome;
        let local = local.filter(|local| socket == self.socket && local.port != 0)?;
        let fits = match self.intent {
            Intent::Bind { asked, .. } => {
                local.addr == asked.addr && (asked.port == 0 || local.port == asked.port)
            }
            Intent::Listen { .. } => true,
        };
        fits.then_some(local)
    }
}

/// The call that is being carried out.
#[derive(Debug)]
pub(crate) struct Taken {
    pub turn: Turn,
    /// It is the unfinished call of its program. Otherwise that has ended, or the call was found
    /// in `store`: the program will ask again.
    pub awaited: bool,
    /// The socket was closed meanwhile.
    pub closed: bool,
}

/// Whose turn it is with one transport.
#[derive(Default, Debug)]
pub(crate) struct Turns {
    pub current: Option<Taken>,
    /// Programs whose unfinished call waits, each once.
    pub waiting: VecDeque<u32>,
}

impl Syscall {
    /// A program's unfinished call needs a turn.
    pub(crate) fn queue(&mut self, program: u32, protocol: Protocol, out: &mut impl SyscallOutput) {
        let Turns { waiting, .. } = self.turns_mut(protocol);
        if !waiting.contains(&program) {
            waiting.push_back(program);
        }
        self.advance(protocol, out);
    }

    /// Carries out what waits, unless something is being carried out.
    fn advance(&mut self, protocol: Protocol, out: &mut impl SyscallOutput) {
        loop {
            let turns = self.turns_mut(protocol);
            if turns.current.is_some() {
                return;
            }
            let Some(program) = turns.waiting.pop_front() else {
                return;
            };
            self.take_turn(program, protocol, out);
        }
    }

    fn take_turn(&mut self, program: u32, protocol: Protocol, out: &mut impl SyscallOutput) {
        let Some(known) = self.programs.get_mut(&program) else {
            return;
        };
        let uid = known.uid;
        let Some(unfinished) = known.unfinished.as_mut() else {
            return;
        };
        if unfinished.stage != Stage::Queued || unfinished.protocol != protocol {
            return;
        }
        unfinished.stage = Stage::Asked;
        let (call, serial) = (unfinished.call, unfinished.serial);
        let made = match call {
            SocketCall::Bind(_, socket, local, options) => self
                .named(program, protocol, socket)
                .and_then(|()| self.ports.permission(protocol, socket, local, uid, options))
                .map(|permission| (socket, bind(permission, local, options))),
            SocketCall::Listen(..) if self.ports.is_full() => Err(SocketError::NoBuffers),
            SocketCall::Listen(socket, backlog) => Ok((socket, (uid, Intent::Listen { backlog }))),
            SocketCall::Open(_)
            | SocketCall::Rest(_)
            | SocketCall::Connect(..)
            | SocketCall::Share(..)
            | SocketCall::Relieve(..)
            | SocketCall::Close(..) => Err(SocketError::Invalid),
        };
        let (socket, (uid, intent)) = match made {
            Ok(made) => made,
            Err(error) => return self.finish(program, Err(error), out),
        };
        let turn = Turn {
            program,
            serial,
            socket,
            uid,
            intent,
        };
        // Before it is asked for: whoever comes after this process must know that it may have been.
        keep(out, &Item::Turn(protocol, turn));
        out.call(protocol, turn.call());
        self.turns_mut(protocol).current = Some(Taken {
            turn,
            awaited: true,
            closed: false,
        });
    }

    /// Whether the call that is being carried out is this one.
    pub(crate) fn is_turn_of(&self, protocol: Protocol, program: u32, serial: u32) -> bool {
        let current = self.turns(protocol).current.as_ref();
        current.is_some_and(|it| (it.turn.program, it.turn.serial) == (program, serial))
    }

    /// The call that was being carried out came to this.
    pub(crate) fn end_turn(
        &mut self,
        protocol: Protocol,
        result: Result<Outcome, SocketError>,
        out: &mut impl SyscallOutput,
    ) {
        let Some(taken) = self.turns_mut(protocol).current.take() else {
            return;
        };
        let turn = taken.turn;
        let result = result.and_then(|outcome| self.enter(protocol, &taken, outcome, out));
        forget(out, &Item::Turn(protocol, turn));
        if taken.awaited {
            self.finish(turn.program, result, out);
        }
        self.advance(protocol, out);
    }

    /// Registers the port that a call took.
    fn enter(
        &mut self,
        protocol: Protocol,
        taken: &Taken,
        outcome: Outcome,
        out: &mut impl SyscallOutput,
    ) -> Result<Answer, SocketError> {
        let turn = &taken.turn;
        let Some(local) = turn.end(outcome) else {
            self.ignored += 1;
            return Err(SocketError::Invalid);
        };
        if taken.closed || !self.lives(protocol, turn.socket) {
            return Err(SocketError::Invalid);
        }
        let bound = turn.bound(local, out.random().max(1));
        let ticket = self.ports.bound(protocol, bound, out);
        Ok(Answer {
            socket: Some(turn.socket),
            local: Some(local),
            value: match turn.intent {
                Intent::Bind { .. } => ticket,
                Intent::Listen { .. } => 0,
            },
        })
    }

    /// Whether a socket may be open, for all that is known here.
    fn lives(&self, protocol: Protocol, socket: SocketId) -> bool {
        let owner = self.owner_of(protocol, socket);
        let owner = self.programs.get(&owner);
        owner.is_some_and(|owner| owner.presence != Presence::Departed)
            || self.shares.is_shared((protocol, socket))
    }

    /// Asks for the call in hand once more. A transport owes a program that has ended no outcome: then the port
    /// counts as taken. That can only refuse it to others.
    pub(crate) fn ask_turn_again(&mut self, protocol: Protocol, out: &mut impl SyscallOutput) {
        let Some(taken) = &self.turns(protocol).current else {
            return;
        };
        let turn = taken.turn;
        let program = self.programs.get(&turn.program);
        if program.is_some_and(|program| program.presence != Presence::Departed) {
            return out.call(protocol, turn.call());
        }
        let result = match turn.intent {
            Intent::Bind { asked, .. } if asked.port != 0 => Ok((turn.socket, Some(asked))),
            Intent::Bind { .. } | Intent::Listen { .. } => Err(SocketError::Invalid),
        };
        self.end_turn(protocol, result, out);
    }
}

fn bind(permission: Permission, asked: Endpoint, options: PortOptions) -> (u32, Intent) {
    let intent = Intent::Bind {
        asked,
        sharing: BindOptions {
            reuse_address: options.reuse_address,
            shared: permission.shared,
        },
        reuse_port: options.reuse_port,
        ticket: permission.ticket,
    };
    (permission.uid, intent)
}
