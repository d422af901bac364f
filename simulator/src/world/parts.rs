//! Components on their own have their turns: when somebody has rung, a frame has come, or a timer is due.
//! In between they sleep, as their processes do, so that a bell that isn't rung shows as a run that hangs.

use super::{Action, Host, World};
use crate::machine::{Rewind, Shown, Who};
use crate::scenario::{Manner, PartDeath};
use rustix::event::PollFlags;
use skink_messages::Progress;
use skink_time::{Duration, Instant};

/// A bell that isn't heard is made good for after this long: a supervisor finds messages that nobody takes.
const STANDSTILL: Duration = Duration::from_millis(200);
/// A successor that can't start yet tries again.
const RETRY: Duration = Duration::from_millis(1);

/// The turns of a host's components. Arrays are in the order of [`Who::ALL`].
#[derive(Default)]
pub(super) struct Turns {
    next: [Option<Instant>; Who::COUNT],
    /// Somebody rang, and it gets up.
    woken: [bool; Who::COUNT],
    /// How often each had acted in each of its turns.
    acts: [Vec<u64>; Who::COUNT],
    /// Deaths that come with the component's next turn, as indices into the scenario's.
    doomed: [Option<usize>; Who::COUNT],
}

impl World {
    pub(super) fn plan_first_turns(&mut self, host: usize) {
        for who in Who::ALL {
            self.turn_by(host, who, self.now);
        }
    }

    /// Those that have a time; those that have a turn come with it.
    pub(super) fn plan_strikes(&mut self) {
        let count = self.part_deaths().len();
        for index in 0..count {
            let death = self.part_deaths()[index];
            if death.turn == 0 {
                self.schedule(death.at.max(self.now), Action::Strike(index));
            }
        }
    }

    fn part_deaths(&self) -> &[PartDeath] {
        let apart = self.board.scenario.apart.as_ref();
        apart.map_or(&[], |apart| &apart.deaths)
    }

    pub(super) fn turn_by(&mut self, host: usize, who: Who, at: Instant) {
        let there = &mut self.hosts[host];
        let Some(apart) = there.stack.apart() else {
            return;
        };
        let next = &mut there.parts.next[who as usize];
        if apart.machine.has(who) && next.is_none_or(|planned| at < planned) {
            *next = Some(at);
            self.schedule(at, Action::Turn(host, who));
        }
    }

    fn turn_soon(&mut self, host: usize, who: Who) {
        let lag = Duration::from_micros(self.random.range(1, 20));
        self.turn_by(host, who, self.now + lag);
    }

    /// The time of a death has come: it is that of the component's next turn.
    pub(super) fn strike(&mut self, plan: usize) {
        let death = self.part_deaths()[plan];
        self.hosts[death.host].parts.doomed[death.who as usize] = Some(plan);
        self.turn_soon(death.host, death.who);
    }

    /// A component has its turn.
    pub(super) fn turn(&mut self, host: usize, who: Who) {
        let there = &mut self.hosts[host];
        if there.parts.next[who as usize] != Some(self.now) {
            // Another time was set since.
            return;
        }
        there.parts.next[who as usize] = None;
        let Some(apart) = there.stack.apart() else {
            return;
        };
        if apart.machine.is_dead(who) {
            return;
        }
        apart.get_up(who);
        there.parts.woken[who as usize] = false;
        match self.death_due(host, who) {
            None => {
                self.work(host, who);
                self.rest(host, who);
            }
            Some(plan) => self.die(plan),
        }
        self.settle(host);
    }

    /// The death that comes with the turn that begins now.
    fn death_due(&mut self, host: usize, who: Who) -> Option<usize> {
        let turns = &mut self.hosts[host].parts;
        let turn = turns.acts[who as usize].len() as u64 + 1;
        let doomed = turns.doomed[who as usize].take();
        let mut deaths = self.part_deaths().iter();
        let here = |death: &PartDeath| (death.host, death.who, death.turn) == (host, who, turn);
        doomed.or_else(|| deaths.position(here))
    }

    fn work(&mut self, host: usize, who: Who) {
        let there = &mut self.hosts[host];
        let Some(apart) = there.stack.apart() else {
            return;
        };
        let before = there.doom.acts();
        there.doom.set_works(true);
        if let Some(part) = apart.machine.host(who) {
            let _: Progress = part.poll(self.now);
        }
        there.doom.set_works(false);
        let acts = there.doom.acts() - before;
        there.parts.acts[who as usize].push(acts);
    }

    /// Its turn is over: it lies down, or has more to do.
    fn rest(&mut self, host: usize, who: Who) {
        let Some(apart) = self.hosts[host].stack.apart() else {
            return;
        };
        if apart.lie_down(who) {
            self.turn_soon(host, who);
        }
        if let Some(neighbour) = self.hosts[host].broken(who) {
            let what = format!("host {host}: {} finds {neighbour} broken", who.name());
            self.board.failures.push(what);
        }
    }

    /// A component dies in its turn, or has none any more.
    fn die(&mut self, plan: usize) {
        let death = self.part_deaths()[plan];
        let PartDeath {
            host,
            who,
            mut shown,
            ..
        } = death;
        let before = self.rewind_point(host, who);
        match death.manner {
            Manner::Kill => {
                if death.acts > 0 {
                    self.hosts[host].doom.arm(death.acts);
                }
                self.work(host, who);
                let doom = &self.hosts[host].doom;
                doom.disarm();
                if doom.settle() {
                    // In the midst of it, when nobody had been shown anything.
                    shown = match shown {
                        Shown::Taken => Shown::PacketsTaken,
                        _ => Shown::Nothing,
                    };
                }
            }
            Manner::Hang => self.hosts[host].parts.acts[who as usize].push(0),
            Manner::Upgrade => {
                self.work(host, who);
                shown = Shown::All;
            }
        }
        if self.verbose {
            println!("{:?} dies: host {host}, {death:?}", self.now);
        }
        self.bury(death, shown, before);
        let down = match death.manner {
            Manner::Kill | Manner::Hang => death.down,
            Manner::Upgrade => Duration::ZERO,
        };
        let falls_back = death.manner == Manner::Upgrade;
        self.schedule(self.now + down, Action::Succeed(plan, falls_back));
    }

    fn rewind_point(&mut self, host: usize, who: Who) -> Vec<Rewind> {
        let apart = self.hosts[host].stack.apart();
        apart.map_or_else(Vec::new, |apart| apart.machine.rewind_point(who))
    }

    fn bury(&mut self, death: PartDeath, shown: Shown, before: Vec<Rewind>) {
        let PartDeath { host, who, .. } = death;
        self.report.deaths += 1;
        let there = &mut self.hosts[host];
        let Some(apart) = there.stack.apart() else {
            return;
        };
        apart.machine.kill_as(who, shown, before);
        if who == Who::Link {
            there.nic.crash(death.loses, self.now);
        }
    }

    /// A component that died gets a successor. One of an upgrade is replaced later on if it `falls_back`.
    pub(super) fn succeed(&mut self, plan: usize, falls_back: bool) {
        let death = self.part_deaths()[plan];
        let PartDeath { host, who, .. } = death;
        let Some(apart) = self.hosts[host].stack.apart() else {
            return;
        };
        if !apart.machine.is_dead(who) {
            if death.manner == Manner::Upgrade && !falls_back {
                // Its successor is replaced by the build before.
                self.bury(death, Shown::All, Vec::new());
                self.schedule(self.now, Action::Succeed(plan, false));
            }
            return;
        }
        if !self.hosts[host].succeed_part(death, self.now) {
            return self.schedule(self.now + RETRY, Action::Succeed(plan, falls_back));
        }
        self.report.deaths += death.deaths as usize;
        for other in Who::ALL {
            self.turn_soon(host, other);
        }
        if falls_back {
            let then = self.now + death.down.max(RETRY);
            self.schedule(then, Action::Succeed(plan, false));
        }
        self.settle(host);
    }

    /// Who has been rung for, has a timer, or has been asked for something, gets a turn.
    pub(super) fn plan_turns(&mut self, host: usize) {
        let lost = self.board.scenario.apart.as_ref();
        let lost = lost.map_or(0, |apart| apart.lost_bells);
        for who in Who::ALL {
            let there = &mut self.hosts[host];
            let Some(apart) = there.stack.apart() else {
                return;
            };
            let Some(part) = apart.machine.host(who) else {
                continue;
            };
            if let Some(deadline) = part.next_deadline() {
                let lag = Duration::from_micros(self.random.range(1, 20));
                self.turn_by(host, who, deadline.max(self.now + lag));
            }
            self.hear(host, who, lost);
        }
        let apart = self.hosts[host].stack.apart();
        if apart.is_some_and(|apart| apart.take_ordered()) {
            self.turn_soon(host, Who::Syscall);
        }
        if self.hosts[host].frames_wait() {
            self.turn_soon(host, Who::Link);
        }
    }

    fn hear(&mut self, host: usize, who: Who, lost: u32) {
        let there = &mut self.hosts[host];
        let Some(apart) = there.stack.apart() else {
            return;
        };
        if there.parts.woken[who as usize] || !apart.is_rung(who) {
            return;
        }
        if self.random.chance(lost) {
            apart.lose_bell(who);
            self.report.lost_bells += 1;
            return self.turn_by(host, who, self.now + STANDSTILL);
        }
        there.parts.woken[who as usize] = true;
        self.turn_soon(host, who);
    }

    pub(super) fn report_turns(&mut self) {
        for host in &mut self.hosts {
            if let Some(apart) = host.stack.apart() {
                let dropped = apart.machine.dropped();
                for (sum, count) in self.report.shared.iter_mut().zip(apart.shared()) {
                    *sum += count;
                }
                self.report.foreign += dropped.foreign + dropped.unasked + dropped.stale;
                self.report.full += dropped.full;
                if dropped.malformed > 0 {
                    let what = format!("{} messages made no sense", dropped.malformed);
                    self.board.failures.push(what);
                }
            }
            self.report.turns.push(std::mem::take(&mut host.parts.acts));
        }
    }
}

impl Host {
    /// What of the pools hasn't come back.
    pub(super) fn leaks(&mut self) -> Vec<String> {
        let apart = self.stack.apart();
        apart.map_or_else(Vec::new, |apart| apart.machine.leaks())
    }

    /// A neighbour that a component takes for mad.
    fn broken(&mut self, who: Who) -> Option<String> {
        let part = self.stack.apart()?.machine.host(who)?;
        part.broken().map(|neighbour| format!("{neighbour:?}"))
    }

    /// Whether frames wait that `link` would be woken for.
    fn frames_wait(&mut self) -> bool {
        let Some(apart) = self.stack.apart() else {
            return false;
        };
        let mut reads = false;
        if let Some(link) = apart.machine.host(Who::Link) {
            link.descriptors(&mut |_, flags| reads |= flags.contains(PollFlags::IN));
        }
        reads && self.nic.has_inbound()
    }

    /// Successors that die while they adopt, or are made known, and then one that doesn't. `false` if none
    /// can start yet.
    fn succeed_part(&mut self, death: PartDeath, now: Instant) -> bool {
        let PartDeath { who, deaths, .. } = death;
        let Some(apart) = self.stack.apart() else {
            return true;
        };
        self.doom.set_works(true);
        for step in 0..deaths {
            // Of those that adopt, each other dies in the midst of that.
            if step % 2 == 0 {
                self.doom.arm(u64::from(step) * 3 + 1);
            }
            apart.machine.restart_and_die(who, now, step);
            self.doom.disarm();
            self.doom.settle();
        }
        let starts = apart.machine.restart(who, now);
        self.doom.set_works(false);
        starts
    }
}
