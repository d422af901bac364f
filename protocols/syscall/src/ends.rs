//! How sockets and programs end.
use crate::shares::{Key, Released};
use crate::stored::keep;
use crate::syscall::{Presence, Syscall, SyscallOutput, forget_last, tell};
use skink_memory::SocketId;
use skink_messages::{CallBody, Protocol, attachment_tag};

impl Syscall {
    /// A program has ended. Sockets that others hold as well stay. One that isn't known has nothing to
    /// end.
    pub fn detach(&mut self, program: u32, out: &mut impl SyscallOutput) {
        self.resume(out);
        let Some(known) = self.programs.get_mut(&program) else {
            return;
        };
        if known.presence == Presence::Departed {
            return;
        }
        known.unfinished = None;
        // Whoever comes after this process goes on with what follows, if it dies in the midst of it.
        known.presence = Presence::Departed;
        keep(out, &known.item(program));
        let tag = attachment_tag(known.secret);
        self.leave_turns(program);
        self.let_go_of_others(program, out);
        let mut stays = false;
        for key in self.shared_of(program) {
            stays |= self.shares.release(key, program, out) == Released::Held;
        }
        for protocol in Protocol::ALL {
            self.release_ports(program, protocol, out);
            self.close_turn_of(program, protocol);
            // Only the first is said again to a transport's successor, which may have put it off.
            let body = match stays {
                true => CallBody::Detach(tag),
                false => CallBody::Abandon(tag),
            };
            tell(protocol, program, body, out);
        }
        // It is remembered while others hold sockets of its.
        if !stays && let Some(gone) = self.programs.remove(&program) {
            forget_last(out, &gone.item(program));
        }
    }

    /// A program doesn't wait for a turn any more, nor for what comes of the one that it has: if
    /// the socket outlives the program, the port that it takes must be known all the same.
    pub(crate) fn leave_turns(&mut self, program: u32) {
        for protocol in Protocol::ALL {
            let turns = self.turns_mut(protocol);
            turns.waiting.retain(|other| *other != program);
            if let Some(taken) = &mut turns.current {
                taken.awaited &= taken.turn.program != program;
            }
        }
    }

    /// The sockets of a program that others hold too, of both transports.
    fn shared_of(&self, program: u32) -> Vec<Key> {
        let of = |protocol| {
            let slots = self.slots_of(protocol, program).into_iter();
            slots.flat_map(move |(first, last)| self.shares.in_slots(protocol, first, last))
        };
        Protocol::ALL.into_iter().flat_map(of).collect()
    }

    /// A program's sockets that nobody else holds have no ports any more.
    fn release_ports(&mut self, program: u32, protocol: Protocol, out: &mut impl SyscallOutput) {
        let Some((first, last)) = self.slots_of(protocol, program) else {
            return;
        };
        let shares = &self.shares;
        let is_gone = |socket| !shares.is_shared((protocol, socket));
        self.ports
            .release_slots(protocol, first, last, is_gone, out);
    }

    /// A socket of the program that is taking a port doesn't outlive it.
    fn close_turn_of(&mut self, program: u32, protocol: Protocol) {
        let Some(taken) = &self.turns(protocol).current else {
            return;
        };
        let socket = taken.turn.socket;
        let ends = self.owner_of(protocol, socket) == program
            && !self.shares.is_shared((protocol, socket));
        if let Some(taken) = &mut self.turns_mut(protocol).current {
            taken.closed |= ends;
        }
    }

    /// The number is another program's now: nothing of the old one's is left, or the ids of its sockets
    /// would name the new one's.
    pub(crate) fn supersede(&mut self, program: u32, out: &mut impl SyscallOutput) {
        for key in self.shared_of(program) {
            self.shares.remove(key, out);
        }
        for (protocol, socket) in self.shares.held_by(program) {
            self.let_go(program, protocol, socket, out);
        }
        for protocol in Protocol::ALL {
            self.release_ports(program, protocol, out);
            self.close_turn_of(program, protocol);
        }
    }

    /// One holder of a shared socket less; the last one's is closed.
    pub(crate) fn let_go(
        &mut self,
        program: u32,
        protocol: Protocol,
        socket: SocketId,
        out: &mut impl SyscallOutput,
    ) -> Released {
        let released = self.shares.release((protocol, socket), program, out);
        if released == Released::Last {
            self.close_socket(program, protocol, socket, out);
            let owner = self.owner_of(protocol, socket);
            self.abandon_if_unheld(owner, out);
        }
        released
    }

    /// A program that has ended lets go of what it held of others. The transport hears of each, since it takes in
    /// first what the program had said of that.
    fn let_go_of_others(&mut self, program: u32, out: &mut impl SyscallOutput) {
        for (protocol, socket) in self.shares.held_by(program) {
            if self.let_go(program, protocol, socket, out) == Released::Held {
                tell(protocol, program, CallBody::Release(socket), out);
            }
        }
    }

    /// Forgets a program that has ended, with the last of the sockets that outlived it.
    fn abandon_if_unheld(&mut self, program: u32, out: &mut impl SyscallOutput) {
        if !self.has_departed(program) || !self.shared_of(program).is_empty() {
            return;
        }
        if let Some(gone) = self.programs.remove(&program) {
            let tag = attachment_tag(gone.secret);
            for protocol in Protocol::ALL {
                tell(protocol, program, CallBody::Abandon(tag), out);
            }
            forget_last(out, &gone.item(program));
        }
    }

    /// Closes a socket for good.
    pub(crate) fn close_socket(
        &mut self,
        program: u32,
        protocol: Protocol,
        socket: SocketId,
        out: &mut impl SyscallOutput,
    ) {
        self.ports.release(protocol, socket, out);
        if let Some(taken) = &mut self.turns_mut(protocol).current {
            // The transport closes it after it has bound it.
            taken.closed |= taken.turn.socket == socket;
        }
        tell(protocol, program, CallBody::Close(socket), out);
    }

    /// Ends what a predecessor was about to end when it died.
    pub(crate) fn tidy(&mut self, out: &mut impl SyscallOutput) {
        for ((protocol, socket), owner) in self.shares.unheld() {
            self.let_go(owner, protocol, socket, out);
        }
        let departed = self.programs.iter();
        let departed = departed.filter(|(_, it)| it.presence == Presence::Departed);
        let departed: Vec<_> = departed.map(|(number, _)| *number).collect();
        for program in departed {
            self.let_go_of_others(program, out);
            for key in self.shared_of(program) {
                self.shares.release(key, program, out);
            }
            for protocol in Protocol::ALL {
                self.release_ports(program, protocol, out);
                self.close_turn_of(program, protocol);
            }
            self.abandon_if_unheld(program, out);
        }
    }
}
