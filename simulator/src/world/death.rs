//! One of a host's programs is killed; the others go on.

use super::opening::Opening;
use super::{Host, Program, World};
use crate::connection::{Outcome, Side};
use skink_memory::SocketId;
use skink_messages::Protocol;

impl World {
    /// Kills the program that the scenario names: it closes nothing, and its rings stay as they are. The
    /// stack is told.
    pub(super) fn kill(&mut self) {
        let Some(death) = self.board.scenario.death else {
            return;
        };
        for number in 0..self.programs.len() {
            let resident = &self.programs[number];
            let there = resident.program.as_ref();
            let Some(key) = there
                .filter(|_| resident.host == death.host)
                .map(|program| (program.is_udp(), program.socket()))
                .filter(|key| self.hosts[death.host].program_of(*key) == death.program)
            else {
                continue;
            };
            self.hosts[death.host].sockets.remove(&key);
            let program = self.programs[number].program.take();
            if let Some(Program::Connection(connection)) = program {
                let midst = connection.die(&mut self.context(death.host));
                self.report.killed += usize::from(midst);
            }
        }
        self.forget_openings(death.host, death.program);
        let there = &mut self.hosts[death.host];
        // What it had been told, and not looked at.
        while there.stack.take_event_of(death.program).is_some() {}
        for protocol in Protocol::ALL {
            there.stack.abandon(self.now, protocol, death.program);
        }
        there.dead = Some(death.program);
        self.board.killed = true;
        self.settle(death.host);
    }

    /// Nobody waits for the sockets any more that the program was about to have.
    fn forget_openings(&mut self, host: usize, program: u32) {
        for number in 0..self.programs.len() {
            let resident = &self.programs[number];
            let scenario = &self.board.scenario;
            let owner = match resident.opening.filter(|_| resident.host == host) {
                Some(Opening::Connection(plan)) => scenario.connections[plan].program,
                Some(Opening::Listener(plan)) => scenario.listeners[plan].program,
                Some(Opening::DatagramServer(_) | Opening::DatagramClient(_)) | None => continue,
            };
            if owner != program {
                continue;
            }
            if let Some(Opening::Connection(plan)) = self.programs[number].opening.take() {
                let context = &mut self.context(host);
                context.conclude(plan, Side::Client, Outcome::Left);
            }
        }
    }

    pub(super) fn take_finished(&mut self, host: usize) {
        let there = &mut self.hosts[host];
        while let Some(program) = there.stack.take_finished() {
            there.regions.retain(|(other, _, _)| *other != program);
            if there.dead != Some(program) || std::mem::replace(&mut there.finished, true) {
                let what = format!("host {host}: program {program} is finished, though it isn't");
                self.board.failures.push(what);
            }
        }
    }
}

impl Host {
    /// The number of the program that a socket of UDP (`true`) or TCP belongs to.
    pub(super) fn program_of(&self, (udp, socket): (bool, SocketId)) -> u32 {
        let table = if udp {
            self.stack.udp_table()
        } else {
            self.stack.tcp_table()
        };
        table.region_of(socket.slot)
    }
}
