//! A host's stack dies without a word, and another one adopts its programs' regions.

use super::{Action, Host, Program, World};
use crate::doom;
use crate::place::Place;
use crate::random::Random;
use crate::scenario::CrashPlan;
use skink_memory::{Record, SocketId, SocketKind};
use std::sync::atomic::Ordering::Relaxed;

/// A record begins behind the header, which has a page.
const HEADER_WORDS: usize = 4096 / 8;
const RECORD_WORDS: usize = size_of::<Record>() / 8;

impl World {
    /// The time of a crash has come: now, or in the midst of what the stack does next.
    pub(super) fn crash(&mut self, plan: usize) {
        let CrashPlan { host, acts, .. } = self.board.scenario.crashes[plan];
        let there = &mut self.hosts[host];
        there.crash = Some(plan);
        match acts {
            0 => self.revive(host),
            acts => there.doom.arm(acts),
        }
    }

    /// After the stack has run: if it died of that, a successor takes over.
    /// Answers whether it did.
    pub(super) fn revive_if_dead(&mut self, host: usize) -> bool {
        self.hosts[host].doom.set_works(false);
        let died = self.hosts[host].doom.is_dead();
        if died {
            self.revive(host);
        }
        died
    }

    fn revive(&mut self, host: usize) {
        let there = &mut self.hosts[host];
        let Some(plan) = there.crash.take() else {
            return;
        };
        let plan = self.board.scenario.crashes[plan];
        self.report.crashes += 1;
        there.doom.disarm();
        there.doom.settle();
        there.nic.crash(plan.loses, self.now + plan.down);
        if let Some(seed) = plan.spoils {
            self.spoil(host, seed);
        }
        let there = &mut self.hosts[host];
        // Successors that die while they adopt, at an act further on each time; and one that dies as soon
        // as it has adopted all.
        let mut deaths = plan.deaths;
        loop {
            if deaths > 0 {
                there.doom.arm(u64::from(plan.deaths - deaths) * 3 + 1);
            }
            there.doom.set_works(true);
            there.succeed(self.now);
            there.doom.set_works(false);
            let died = there.doom.settle();
            there.doom.disarm();
            if deaths == 0 {
                break;
            }
            self.report.crashes += 1;
            deaths = if died { deaths - 1 } else { 0 };
        }
        self.next_poll_at_once(host);
    }

    fn next_poll_at_once(&mut self, host: usize) {
        self.hosts[host].next_poll = None;
        let at = self.hosts[host].nic.up_from().max(self.now);
        self.hosts[host].next_poll = Some(at);
        self.schedule(at, Action::Poll(host));
    }

    /// Writes over bytes in the record of one connection whose program knows which one it is.
    fn spoil(&mut self, host: usize, seed: u64) {
        let mut random = Random::new(seed);
        let there = &self.hosts[host];
        let known = there.sockets.iter().filter_map(|((udp, id), number)| {
            let program = self.programs[*number].program.as_ref()?;
            match program {
                Program::Connection(connection) if !udp => Some((*id, connection.plan()?)),
                _ => None,
            }
        });
        let known: Vec<(SocketId, usize)> = known.collect();
        if known.is_empty() {
            return;
        }
        let (victim, plan) = random.pick(&known);
        let table = there.stack.tcp_table();
        let index = table.region_of(victim.slot);
        let Some(region) = table.region(index) else {
            return;
        };
        let slot = (victim.slot & (table.stride() - 1)) as usize;
        let records = doom::map(region);
        for _ in 0..random.range(1, 8) {
            let word = random.range(0, RECORD_WORDS as u64 - 1) as usize;
            let place = &records.words()[HEADER_WORDS + slot * RECORD_WORDS + word];
            let shift = 8 * random.range(0, 7);
            let byte = random.range(0, 255) << shift;
            if self.verbose {
                println!(
                    "  byte {} becomes {:#x}",
                    word * 8 + shift as usize / 8,
                    byte >> shift
                );
            }
            place.store(place.load(Relaxed) & !(0xff << shift) | byte, Relaxed);
        }
        if self.verbose {
            println!(
                "{:?} spoilt: host {host}, {victim:?} of connection {plan}",
                self.now
            );
        }
        self.board.spoilt.push(plan);
        self.hosts[host].spoilt.push(victim.slot);
    }
}

impl Host {
    /// A successor adopts all.
    fn succeed(&mut self, now: skink_time::Instant) {
        let mut stack = self.new_stack();
        for (program, tcp, udp) in &self.regions {
            let adopted = stack.adopt_program(now, *program, tcp.clone(), udp.clone());
            adopted.expect("a number that is free");
        }
        self.stack = Place::Whole(Box::new(stack));
    }

    /// How many of the sockets that are left aren't just those whose record was spoilt.
    pub(super) fn sockets_left(&self) -> usize {
        let tcp = self.stack.tcp_table();
        let udp = self.stack.udp_table();
        let used = |table: &skink_memory::SocketTable, slot: u32| {
            table.record(slot).kind() != SocketKind::Free
        };
        let spoilt = |slot: &u32| self.spoilt.contains(slot);
        let tcp = tcp
            .slots()
            .filter(|slot| used(tcp, *slot) && !spoilt(slot))
            .count();
        tcp + udp.slots().filter(|slot| used(udp, *slot)).count()
    }
}
