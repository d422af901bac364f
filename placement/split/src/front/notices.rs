//! What programs are told.
use crate::front::Front;
use crate::syscall_host::SyscallHost;
use skink_messages::{Counter, Protocol, SocketEvent};
use skink_sockets::Notice;
use skink_time::Instant;

impl Front {
    /// Tells programs what happened to their sockets, and wakes those that sleep. Answers whether
    /// there was anything.
    pub(crate) fn tell_programs(&mut self, now: Instant) -> bool {
        while let Some(program) = self.stack.transports().take_eventful() {
            match self.programs.get(program) {
                Some(_) => self.make_due(program),
                None => self.route(program),
            }
        }
        for program in std::mem::take(&mut self.stalled) {
            self.make_due(program);
        }
        let mut any = false;
        // Those that become due meanwhile (they share sockets with others) have their turn as well.
        while let Some(program) = self.due.pop_front() {
            any |= self.tell_program(program);
            self.show(now, program);
        }
        any
    }

    /// Tells one program what there is room for.
    fn tell_program(&mut self, program: u32) -> bool {
        let Some(attached) = self.programs.get_mut(program) else {
            return false;
        };
        attached.due = false;
        if !attached.catch_up() {
            self.stall(program);
            return attached_told(self, program);
        }
        if attached.must_offer {
            self.offer_all(program);
        }
        loop {
            let Some(attached) = self.programs.get_mut(program) else {
                return true;
            };
            if !attached.has_room() {
                self.stall(program);
                break;
            }
            if let Some((protocol, event)) = attached.pop_foreign() {
                attached.tell(Notice::Event(protocol, event));
                self.counters.count(Counter::SocketsNotices);
                continue;
            }
            match self.stack.transports().take_event_of(program) {
                Some((protocol, event)) => self.on_event(program, protocol, event),
                None => break,
            }
        }
        if self.programs.get(program).is_some_and(|it| it.must_offer) {
            self.stall(program);
        }
        attached_told(self, program)
    }

    /// Something happened to a socket in the program's region.
    fn on_event(&mut self, program: u32, protocol: Protocol, event: SocketEvent) {
        let mut is_theirs = true;
        if !self.holders.is_empty() {
            is_theirs = self.tell_holders(protocol, event);
        }
        let Some(attached) = self.programs.get_mut(program).filter(|_| is_theirs) else {
            return;
        };
        if protocol == Protocol::Tcp
            && let Some(listener) = attached.listeners.get(&event.socket.slot)
            && listener.id == event.socket
        {
            return self.offer(program, event.socket.slot);
        }
        attached.tell(Notice::Event(protocol, event));
        self.counters.count(Counter::SocketsNotices);
    }

    /// The others that hold a socket hear of it. Answers whether its owner holds it as well.
    fn tell_holders(&mut self, protocol: Protocol, event: SocketEvent) -> bool {
        let Some((owner_holds, others)) = self.holders.of((protocol, event.socket)) else {
            return true;
        };
        for other in others {
            let Some(attached) = self.programs.get_mut(*other) else {
                continue;
            };
            attached.push_foreign(protocol, event);
            if !std::mem::replace(&mut attached.due, true) {
                self.due.push_back(*other);
            }
        }
        owner_holds
    }

    /// Events of a program that has ended: others may share its sockets.
    fn route(&mut self, program: u32) {
        while let Some((protocol, event)) = self.stack.transports().take_event_of(program) {
            self.tell_holders(protocol, event);
        }
    }

    fn stall(&mut self, program: u32) {
        if !self.stalled.contains(&program) {
            self.stalled.push(program);
            self.counters.count(Counter::SocketsFull);
        }
    }

    /// Publishes what a program was told, and rings. What it asked for leaves its queue only now: who
    /// dies before has answered nothing, and a successor sees it again.
    fn show(&mut self, now: Instant, program: u32) {
        let Some(attached) = self.programs.get_mut(program) else {
            return;
        };
        if std::mem::take(&mut attached.told) && attached.server.flush().is_err() {
            return self.spoilt(now, program);
        }
        // A successor would see again what isn't released: what has had no effect yet stays.
        let waits = self.syscall.as_ref().is_some_and(SyscallHost::has_waiting);
        if !attached.is_stuck() && !waits {
            attached.server.release();
        }
    }

    /// Whether a program for which there was no room has some now.
    pub(crate) fn can_go_on(&self) -> bool {
        let stalled = self.stalled.iter();
        let mut stalled = stalled.filter_map(|program| self.programs.get(*program));
        stalled.any(|program| program.server.has_room())
    }
}

fn attached_told(host: &Front, program: u32) -> bool {
    host.programs.get(program).is_some_and(|it| it.told)
}
