//! `syscall`, if it is here, on its way to programs and transports.
use crate::front::Front;
use skink_messages::{Answer, SocketError};
use skink_sockets::Notice;
use skink_time::Instant;

impl Front {
    /// What the calls of turns before leave behind goes.
    pub(crate) fn clear_spent(&mut self) {
        if let Some(syscall) = &mut self.syscall
            && syscall.clear_spent()
        {
            // Programs whose requests had to stay meanwhile are due.
            syscall.has_refused = true;
        }
    }

    /// Hears `syscall`'s neighbours. Answers whether they had something to say.
    pub(crate) fn poll_syscall(&mut self, now: Instant) -> bool {
        let Some(syscall) = self.syscall.as_mut().filter(|it| !it.held) else {
            return false;
        };
        let any = syscall.take_in();
        self.run_syscall(now);
        if let Some(syscall) = &mut self.syscall
            && !syscall.is_busy()
            && std::mem::take(&mut syscall.has_refused)
        {
            for number in self.programs.numbers.clone() {
                if let Some(program) = self.programs.get_mut(number) {
                    program.blocked = false;
                }
                self.make_due(number);
            }
        }
        any
    }

    /// A whole stack goes on where its predecessor died: its programs are attached.
    pub fn take_over(&mut self, now: Instant) {
        if let Some(stack) = self.stack.whole() {
            stack.rebuild_filter(now);
        }
        if let Some(syscall) = &mut self.syscall {
            syscall.take_over();
            self.run_syscall(now);
        }
    }

    /// Does what `syscall` has said: tells programs, and asks transports and `store`.
    pub(crate) fn run_syscall(&mut self, now: Instant) {
        while let Some(syscall) = &mut self.syscall
            && syscall.store_all()
        {
            if let Some((program, serial, answer)) = syscall.out.answers.pop_front() {
                self.answer(program, serial, answer);
            } else if let Some((protocol, call)) = syscall.take_call_here() {
                let outcome = self.carry_out(now, protocol, call);
                if let (Some(outcome), Some(syscall)) = (outcome, &mut self.syscall) {
                    syscall
                        .component
                        .outcome(protocol, outcome, &mut syscall.out);
                }
            } else {
                return syscall.call_all();
            }
        }
    }

    /// A program has ended that this process refused and others may have.
    pub fn end_in_transports(&mut self, now: Instant, program: u32, tag: u32) {
        if let Some(syscall) = &mut self.syscall {
            syscall.detach_stranger(program, tag);
            self.run_syscall(now);
        }
    }

    fn answer(&mut self, program: u32, serial: u32, answer: Result<Answer, SocketError>) {
        let Some(attached) = self.programs.get_mut(program) else {
            return;
        };
        attached.tell(Notice::Answer(serial, answer));
        if std::mem::take(&mut attached.in_hand) {
            attached.server.advance();
        }
        self.make_due(program);
    }
}
