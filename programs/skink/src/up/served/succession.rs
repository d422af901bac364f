//! What a supervisor does so that another can go on in its place, and what that one does then.
//!
//! The standby knows what the supervisor knew when it was made. Two things would be lost if it were older
//! than they are: a program that the stack has been told of (nobody would hear of its end), and a process that works
//! (a second one would be started beside it). So both wait for a new standby. What the processes say
//! meanwhile is consumed by whoever hears it; a successor can't know, and asks again.
use super::{Served, Stack};
use crate::up::component::Component;
use crate::up::programs::Program;

const UNKNOWN: &str = "the supervisor died while it was being started, and it was killed";

impl Served {
    /// Whether something waits until the standby knows of it.
    pub fn awaits_standby(&self) -> bool {
        !self.newcomers.is_empty() || self.awaits_copy()
    }

    /// Whether that is more than programs that have come.
    fn awaits_copy(&self) -> bool {
        self.unsaved || self.stack.processes.iter().any(Component::is_held)
    }

    /// The programs that have come, if nothing else waits until the standby knows of it.
    pub fn newcomers(&self) -> impl Iterator<Item = (u16, &Program)> {
        let all = self.newcomers.iter().filter(|_| !self.awaits_copy());
        all.filter_map(|number| Some((*number, self.programs.get(number)?)))
    }

    /// In a standby that goes on: a program had come after it was made. Who had that number before is gone.
    pub fn remember(&mut self, number: u16, program: Program) {
        self.programs.insert(number, program);
        self.newcomers.push(number);
    }

    /// The standby knows everything, or there is none: what waited for it is done. Answers whether anything
    /// did.
    pub fn go_ahead(&mut self) -> bool {
        if !self.awaits_standby() || self.is_on_trial() {
            return false;
        }
        self.unsaved = false;
        self.newcomers.clear();
        let held = self.stack.processes.iter_mut().filter(|it| it.is_held());
        held.for_each(Component::go_ahead);
        if self.serves() {
            self.on_started();
        }
        true
    }

    /// This process goes on in the place of a supervisor that has died since it was made; why, if it hung.
    pub fn take_over(&mut self, verdict: Option<&str>) {
        self.not_executed(verdict.unwrap_or("it ended soon after it had been executed"));
        self.dismiss_questions();
        let Stack { plant, processes } = &mut self.stack;
        plant.adapt_anew();
        for (place, process) in processes.iter_mut().enumerate() {
            let mut parts = plant.layout.parts(place).iter();
            let split = plant.split.as_ref();
            let is_going = split.is_none_or(|split| parts.all(|part| split.is_going(*part)));
            if !(process.serves() && is_going) {
                process.give_up(UNKNOWN);
            }
        }
        let known = self.programs.iter();
        let known = known.filter(|(_, program)| program.holders.introduced);
        let known: Vec<u16> = known.map(|(number, _)| *number).collect();
        for number in known {
            self.introduce_once_more(number);
        }
    }

    /// Whoever has the program says so again; whoever said that it was gone gets it, and is told that it
    /// has ended.
    fn introduce_once_more(&mut self, number: u16) {
        match self.introduce(number) {
            Ok(()) => {
                if let Some(program) = self.programs.get_mut(&number) {
                    program.holders.detached = false;
                }
            }
            Err(why) => tracing::error!("program {number} may not be served on: {why}"),
        }
    }
}
