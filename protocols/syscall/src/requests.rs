//! What programs ask for.
use crate::shares::Released;
use crate::syscall::{Stage, Syscall, SyscallOutput, Unfinished, ask, tell};
use skink_memory::SocketId;
use skink_messages::{Answer, CallBody, Counter, Holder, Protocol, SocketCall, SocketError};
use skink_wire::Endpoint;

/// What a call came to that a transport has carried out.
pub(crate) type Outcome = (SocketId, Option<Endpoint>);

impl Syscall {
    /// Takes a program's request, which may ask ([`Syscall::may_ask`]).
    pub fn request(
        &mut self,
        program: u32,
        serial: u32,
        call: SocketCall,
        out: &mut impl SyscallOutput,
    ) {
        self.resume(out);
        if !self.may_ask(program) {
            self.counters.count(Counter::SocketsDropMalformed);
            return;
        }
        let protocol = match call {
            SocketCall::Close(protocol, socket) => {
                return self.close(program, protocol, socket, out);
            }
            SocketCall::Relieve(protocol, socket, holder) => {
                return self.relieve(program, protocol, socket, holder, out);
            }
            SocketCall::Open(protocol)
            | SocketCall::Bind(protocol, ..)
            | SocketCall::Connect(protocol, ..)
            | SocketCall::Share(protocol, ..) => protocol,
            SocketCall::Rest(_) | SocketCall::Listen(..) => Protocol::Tcp,
        };
        let unfinished = Unfinished {
            serial,
            call,
            protocol,
            stage: Stage::Asked,
        };
        let Some(known) = self.programs.get_mut(&program) else {
            return;
        };
        known.unfinished = Some(unfinished);
        let begun = if serial == 0 {
            // No transport would say what came of it.
            self.counters.count(Counter::SocketsDropMalformed);
            Err(SocketError::Invalid)
        } else {
            self.begin(program, &unfinished, out)
        };
        match begun {
            Ok(Stage::Queued) => {
                self.set_stage(program, Stage::Queued);
                self.queue(program, protocol, out);
            }
            Ok(stage) => {
                self.set_stage(program, stage);
                ask(program, unfinished, out);
            }
            Err(error) => self.finish(program, Err(error), out),
        }
    }

    fn set_stage(&mut self, program: u32, stage: Stage) {
        let known = self.programs.get_mut(&program);
        if let Some(unfinished) = known.and_then(|it| it.unfinished.as_mut()) {
            unfinished.stage = stage;
        }
    }

    /// Checks a call whose answer is awaited, and says what comes next.
    fn begin(
        &mut self,
        program: u32,
        unfinished: &Unfinished,
        out: &mut impl SyscallOutput,
    ) -> Result<Stage, SocketError> {
        let protocol = unfinished.protocol;
        match unfinished.call {
            SocketCall::Open(_) => Ok(Stage::Asked),
            SocketCall::Bind(_, socket, ..) => {
                self.named(program, protocol, socket)?;
                Ok(Stage::Queued)
            }
            SocketCall::Listen(socket, _) => {
                // A listening socket isn't shared: each program has its own on the port.
                if self.owner_of(protocol, socket) != program {
                    return Err(self.foreign());
                }
                match self.ports.is_bound(protocol, socket) {
                    true => Ok(Stage::Asked),
                    // It will be given a port.
                    false => Ok(Stage::Queued),
                }
            }
            SocketCall::Connect(_, socket, remote) => {
                self.named(program, protocol, socket)?;
                match (protocol, remote) {
                    // Only UDP has a connection to dissolve.
                    (Protocol::Tcp, None) => Err(SocketError::Invalid),
                    (Protocol::Tcp, Some(_)) | (Protocol::Udp, _) => Ok(Stage::Asked),
                }
            }
            SocketCall::Share(_, socket, secret) => {
                self.share(program, protocol, socket, secret, out)
            }
            SocketCall::Rest(socket) => {
                self.named(program, protocol, socket)?;
                Ok(Stage::Asked)
            }
            SocketCall::Relieve(..) | SocketCall::Close(..) => Err(SocketError::Invalid),
        }
    }

    /// A transport has carried out a call that took no port.
    pub(crate) fn conclude(
        &mut self,
        program: u32,
        unfinished: Unfinished,
        result: Result<Outcome, SocketError>,
        out: &mut impl SyscallOutput,
    ) {
        let protocol = unfinished.protocol;
        let result = result.and_then(|(socket, local)| {
            let fits = match unfinished.call {
                SocketCall::Open(_) => self.owner_of(protocol, socket) == program,
                SocketCall::Bind(_, asked, ..)
                | SocketCall::Listen(asked, _)
                | SocketCall::Connect(_, asked, _)
                | SocketCall::Share(_, asked, _)
                | SocketCall::Rest(asked)
                | SocketCall::Relieve(_, asked, _)
                | SocketCall::Close(_, asked) => asked == socket,
            };
            if !fits {
                self.ignored += 1;
                return Err(SocketError::Invalid);
            }
            Ok(Answer {
                socket: Some(socket),
                local,
                value: 0,
            })
        });
        if let SocketCall::Share(_, socket, _) = unfinished.call {
            match result {
                Ok(_) => self.shares.confirm((protocol, socket), program, out),
                Err(_) if unfinished.stage == Stage::Sharing => {
                    self.unshare(program, protocol, socket, out);
                }
                Err(_) => {}
            }
        }
        self.finish(program, result, out);
    }

    /// Whether the program may name the socket: its own, or one that it shares.
    fn may_name(&self, program: u32, protocol: Protocol, socket: SocketId) -> bool {
        self.owner_of(protocol, socket) == program || self.shares.holds((protocol, socket), program)
    }

    pub(crate) fn named(
        &self,
        program: u32,
        protocol: Protocol,
        socket: SocketId,
    ) -> Result<(), SocketError> {
        match self.may_name(program, protocol, socket) {
            true => Ok(()),
            false => Err(self.foreign()),
        }
    }

    fn foreign(&self) -> SocketError {
        self.counters.count(Counter::SocketsDropForeign);
        SocketError::Invalid
    }

    /// A program wants to hold a socket of another's, or its own again.
    fn share(
        &mut self,
        program: u32,
        protocol: Protocol,
        socket: SocketId,
        secret: u64,
        out: &mut impl SyscallOutput,
    ) -> Result<Stage, SocketError> {
        let owner = self.owner_of(protocol, socket);
        let agreed = self.programs.get(&owner).map(|it| it.secret);
        if agreed != Some(secret) {
            return Err(self.foreign());
        }
        let key = (protocol, socket);
        if self.has_departed(owner) && !self.shares.is_shared(key) {
            // It went with its program.
            return Err(SocketError::Invalid);
        }
        let changes = if owner == program {
            // If it isn't shared, the transport knows whether it was closed, or the last other holder has let go since
            // this was asked of a predecessor.
            self.shares.regain(key, out)
        } else {
            let added = self.shares.add(key, owner, program, out);
            added.ok_or(SocketError::NoBuffers)?
        };
        Ok(match changes {
            true => Stage::Sharing,
            false => Stage::Asked,
        })
    }

    /// A socket couldn't be shared after all.
    fn unshare(
        &mut self,
        program: u32,
        protocol: Protocol,
        socket: SocketId,
        out: &mut impl SyscallOutput,
    ) {
        match self.let_go(program, protocol, socket, out) {
            // All others have let go of what was the program's own.
            Released::NotShared => self.close_socket(program, protocol, socket, out),
            // It may have been told of the program all the same, when one of us began.
            Released::Held => tell(protocol, program, CallBody::Release(socket), out),
            Released::Last => {}
        }
    }

    /// A program holds a socket that was passed to it: who has held it meanwhile lets go of it.
    fn relieve(
        &mut self,
        program: u32,
        protocol: Protocol,
        socket: SocketId,
        holder: Holder,
        out: &mut impl SyscallOutput,
    ) {
        let Some(known) = self.programs.get(&holder.program) else {
            // It has ended, and with that let go.
            return;
        };
        let may = known.secret == holder.secret && self.may_name(program, protocol, socket);
        if !may {
            let _ = self.foreign();
        } else if self.shares.holds((protocol, socket), holder.program) {
            self.close(holder.program, protocol, socket, out);
        }
    }

    /// A program lets go of a socket.
    fn close(
        &mut self,
        program: u32,
        protocol: Protocol,
        socket: SocketId,
        out: &mut impl SyscallOutput,
    ) {
        if self.named(program, protocol, socket).is_err() {
            return;
        }
        match self.let_go(program, protocol, socket, out) {
            Released::NotShared => self.close_socket(program, protocol, socket, out),
            Released::Held => tell(protocol, program, CallBody::Release(socket), out),
            Released::Last => {}
        }
    }
}
