//! The processes of the stack, where there are several.
use super::{Served, Stack};
use crate::up::component::Component;
use skink_control::{Order, Part, Report};
use std::os::fd::OwnedFd;

impl Stack {
    fn place(&self, part: Part) -> usize {
        let split = self.plant.split.as_ref();
        split.map_or(0, |split| split.place(part))
    }
}

impl Served {
    /// What the process at this place hosts; of a whole stack what matters to programs.
    pub(super) fn part(&self, place: usize) -> Part {
        let split = self.stack.plant.split.as_ref();
        split.map_or(Part::Transport, |split| split.part(place))
    }

    fn process(&mut self, part: Part) -> &mut Component {
        let place = self.stack.place(part);
        &mut self.stack.processes[place]
    }

    /// The process that serves programs.
    pub fn front(&self) -> &Component {
        &self.stack.processes[self.stack.place(Part::Transport)]
    }

    pub(super) fn front_mut(&mut self) -> &mut Component {
        self.process(Part::Transport)
    }

    /// The process that has the packet filter.
    pub(super) fn filtering(&mut self) -> &mut Component {
        self.process(Part::Filter)
    }

    /// Whether programs can attach.
    pub(super) fn serves(&self) -> bool {
        let split = self.stack.plant.split.as_ref();
        self.front().serves() && split.is_none_or(|split| split.is_going(Part::Transport))
    }

    pub(super) fn hurry_all_but_front(&mut self) {
        let front = self.stack.place(Part::Transport);
        let processes = self.stack.processes.iter_mut().enumerate();
        let rest = processes.filter(|(place, _)| *place != front);
        rest.for_each(|(_, process)| process.hurry());
    }

    /// Whether connections end with the process at this place.
    pub fn is_front(&self, place: usize) -> bool {
        place == self.stack.place(Part::Transport)
    }

    pub(super) fn on_process_started(&mut self, place: usize) {
        let part = self.part(place);
        let Some(split) = &mut self.stack.plant.split else {
            self.ready = true;
            return self.on_started();
        };
        match split.started(part) {
            Ok(orders) => orders
                .into_iter()
                .for_each(|(to, order, with)| self.process(to).order(order, with)),
            Err(error) => {
                tracing::error!("the processes can't be told of each other: {error}");
                self.process(part).kill();
            }
        }
        if matches!(part, Part::Link | Part::Ip) {
            let all: Vec<u16> = self.programs.keys().copied().collect();
            for number in all {
                if self.programs.get(&number).is_some_and(|it| it.introduced)
                    && let Err(why) = self.map_at(part, number)
                {
                    tracing::error!("program {number} can't send any more: {why}");
                }
            }
        }
        self.go_on();
    }

    /// Those that nobody has to be told of any more begin.
    fn go_on(&mut self) {
        while let Some(split) = &mut self.stack.plant.split
            && let Some(part) = split.take_going()
        {
            let all = Part::ALL.into_iter().all(|part| split.is_going(part));
            self.process(part).order(Order::Go {}, Vec::new());
            self.ready |= all;
            if part == Part::Transport {
                self.on_started();
            }
        }
    }

    pub(super) fn on_part_report(&mut self, place: usize, report: Report, with: Vec<OwnedFd>) {
        let by = self.part(place);
        let Some(split) = &mut self.stack.plant.split else {
            return;
        };
        match report {
            Report::Link(sizes) => split.set_sizes(sizes),
            Report::Pool(sizes) => {
                if let Some(memory) = with.into_iter().next() {
                    split.set_pool(by, sizes, memory);
                }
            }
            Report::Knows { part, incarnation } => split.knows(by, part, incarnation),
            Report::Flows { flows, last } => {
                if last {
                    split.flows_told();
                }
                if !flows.is_empty() {
                    self.filtering().order(Order::Flows { flows }, Vec::new());
                }
            }
            Report::Started { .. }
            | Report::Broken {}
            | Report::Mapped { .. }
            | Report::Attached { .. }
            | Report::Finished { .. }
            | Report::Filter { .. }
            | Report::Spoilt { .. } => {}
        }
        self.go_on();
    }

    pub(super) fn on_process_end(&mut self, place: usize) {
        let part = self.part(place);
        if self.is_front(place) {
            self.on_end();
        } else {
            // They have nobody to wait for.
            let all: Vec<u16> = self.programs.keys().copied().collect();
            for number in all {
                let waits = self.programs.get(&number);
                if waits.is_some_and(|it| it.awaited & 1 << part.index() != 0) {
                    self.on_attached(number.into(), part);
                }
            }
            if part == Part::Filter {
                self.dismiss_questions();
            }
        }
        self.go_on();
    }

    /// Queues between processes are spoilt: all begin again, with new ones.
    pub(super) fn renew(&mut self) {
        tracing::error!("queues between processes are spoilt: all of them begin again");
        if let Some(split) = &mut self.stack.plant.split {
            split.give_up();
            self.stack.processes.iter_mut().for_each(Component::kill);
        }
    }

    /// After [`Served::renew`], once the last process has ended.
    pub(super) fn go_on_anew(&mut self) {
        let Stack { plant, processes } = &mut self.stack;
        if processes.iter().all(|process| process.pid().is_none())
            && let Err(error) = plant.renew()
        {
            tracing::error!("{}", error.message);
        }
    }

    pub(super) fn on_new_rules(&mut self) {
        let split = self.stack.plant.split.as_mut();
        if let Some((to, order, with)) = split.and_then(|split| split.new_rules()) {
            self.process(to).order(order, with);
        }
        self.go_on();
    }

    /// Hands a program's TCP sockets to those who read what is sent.
    pub(super) fn map(&mut self, number: u16) -> Result<(), String> {
        for part in [Part::Link, Part::Ip] {
            let split = self.stack.plant.split.as_ref();
            if split.is_some_and(|split| split.runs(part)) {
                self.map_at(part, number)?;
                if let Some(program) = self.programs.get_mut(&number) {
                    program.awaited |= 1 << part.index();
                }
            }
        }
        Ok(())
    }

    fn map_at(&mut self, part: Part, number: u16) -> Result<(), String> {
        let program = self.programs.get(&number);
        let order = program.map(|program| program.map()).transpose();
        let order = order.map_err(|error| format!("its sockets can't be handed over: {error}"))?;
        if let Some((order, with)) = order {
            self.process(part).order(order, with);
        }
        Ok(())
    }

    /// A program's sockets are gone.
    pub(super) fn unmap(&mut self, program: u32) {
        if self.stack.plant.split.is_some() {
            for part in [Part::Link, Part::Ip] {
                self.process(part)
                    .order(Order::Unmap { program }, Vec::new());
            }
        }
    }
}
