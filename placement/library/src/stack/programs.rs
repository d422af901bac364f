//! Programs come and go.
use super::{Protocol, Stack};
use crate::below::{Below, Tap};
use crate::guard::{Guard, Guarded};
use skink_link::LinkOutput;
use skink_memory::{Adopted, Region, TableError};
use skink_messages::SocketEvent;
use skink_time::Instant;
use skink_wire::FourTuple;
use std::collections::VecDeque;

/// Programs that are gone, on their way to being forgotten.
#[derive(Default)]
pub(super) struct Ending {
    /// One of the two regions is finished.
    halves: Vec<u32>,
    /// Both are.
    finished: VecDeque<u32>,
}

impl Ending {
    fn half(&mut self, program: u32) {
        match self.halves.iter().position(|other| *other == program) {
            Some(at) => {
                self.halves.swap_remove(at);
                self.finished.push_back(program);
            }
            None => self.halves.push(program),
        }
    }
}

impl Stack {
    /// Serves one more program, whose sockets are in two empty regions. `program` becomes their index:
    /// a number that no program has which isn't finished.
    ///
    /// # Errors
    /// As [`skink_memory::SocketTable::insert`].
    pub fn add_program(
        &mut self,
        program: u32,
        tcp: Region,
        udp: Region,
    ) -> Result<(), TableError> {
        self.tcp.add_region(program, tcp)?;
        if let Err(error) = self.udp.add_region(program, udp) {
            let now = self.now;
            split!(self, now, |tcp, udp, below| tcp
                .abandon_region(now, program, below));
            self.collect_finished();
            self.programs.halves.retain(|other| *other != program);
            return Err(error);
        }
        self.events.add(program);
        Ok(())
    }

    /// Serves one more program, whose two regions were a predecessor's: its connections go on. `program`
    /// is the number that it had there. See [`skink_tcp::Tcp::adopt_region`].
    ///
    /// # Errors
    /// As [`skink_memory::SocketTable::insert`]. The regions are as they were, but for sockets of one
    /// protocol that were reset alone.
    pub fn adopt_program(
        &mut self,
        now: Instant,
        program: u32,
        tcp_region: Region,
        udp_region: Region,
    ) -> Result<Adopted, TableError> {
        // Looked at first, since nothing is undone.
        for (table, region) in [
            (self.tcp.table(), &tcp_region),
            (self.udp.table(), &udp_region),
        ] {
            table.can_insert(program, region)?;
        }
        self.asked(now);
        self.events.add(program);
        let tcp = split!(self, now, |tcp, udp, below| tcp
            .adopt_region(now, program, tcp_region, below))?;
        let udp = split!(self, now, |tcp, udp, below| udp
            .adopt_region(now, program, udp_region, below))?;
        Ok(tcp + udp)
    }

    /// A program has ended: its sockets of this protocol end as those of a process that dies.
    pub fn abandon(&mut self, now: Instant, protocol: Protocol, program: u32) {
        self.asked(now);
        split!(self, now, |tcp, udp, below| match protocol {
            Protocol::Tcp => tcp.abandon_region(now, program, below),
            Protocol::Udp => udp.abandon_region(now, program, below),
        });
    }

    /// See [`skink_tcp::Tcp::orphan_region`].
    pub fn orphan(&mut self, now: Instant, program: u32, ports: &[u16], kept: &[FourTuple]) {
        self.asked(now);
        split!(self, now, |tcp, udp, below| tcp
            .orphan_region(now, program, ports, kept, below));
    }

    /// Takes a program that was abandoned, with both protocols, and whose last socket is gone: its number
    /// can be given to another one, and its memory isn't used any more.
    pub fn take_finished(&mut self) -> Option<u32> {
        self.collect_finished();
        let program = self.programs.finished.pop_front()?;
        self.events.remove(program);
        Some(program)
    }

    fn collect_finished(&mut self) {
        while let Some(program) = self.tcp.take_finished_region() {
            self.programs.half(program);
        }
        while let Some(program) = self.udp.take_finished_region() {
            self.programs.half(program);
        }
    }

    /// Takes a program that has got events since it was last taken here.
    pub fn take_eventful(&mut self) -> Option<u32> {
        self.events.take_eventful()
    }

    /// Takes the next event of a program.
    pub fn take_event_of(&mut self, program: u32) -> Option<(Protocol, SocketEvent)> {
        self.events.pop(program)
    }
}
