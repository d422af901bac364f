//! The processes of the stack, where there are several.
use super::{Served, Stack};
use crate::up::component::Component;
use crate::up::layout::Places;
use crate::up::split::PlaceOrder;
use skink_control::{Order, Part, QueueInfo, Report};
use std::os::fd::OwnedFd;
use std::time::Instant;

/// Who fills the programs' channels, in what tools are told.
const PROGRAMS: &str = "programs";
/// Who takes what waits for a program, in what tools are told.
const PROGRAM: &str = "program";

impl Served {
    pub(super) fn process(&mut self, part: Part) -> &mut Component {
        let place = self.stack.plant.layout.place(part);
        &mut self.stack.processes[place]
    }

    /// The process that programs speak to first.
    pub fn front(&self) -> &Component {
        &self.stack.processes[self.stack.plant.layout.place(Part::Syscall)]
    }

    /// The process that has the packet filter.
    pub(super) fn filtering(&mut self) -> &mut Component {
        self.process(Part::Filter)
    }

    pub(super) fn give(&mut self, orders: Vec<PlaceOrder>) {
        for (place, order, with) in orders {
            if let Some(process) = self.stack.processes.get_mut(place) {
                process.order(order, with);
            }
        }
    }

    /// Whether programs can attach.
    pub(super) fn serves(&self) -> bool {
        let Stack { plant, processes } = &self.stack;
        let mut front = plant.layout.front().iter();
        let mut parts = Part::ALL.into_iter().filter(|part| part.serves_programs());
        let split = plant.split.as_ref();
        front.all(|place| processes.get(place).is_some_and(Component::serves))
            && parts.all(|part| split.is_none_or(|split| split.is_going(part)))
    }

    pub(super) fn on_process_started(&mut self, place: usize) {
        let Some(split) = &mut self.stack.plant.split else {
            self.ready = true;
            self.attach_all(place);
            self.process(Part::Tcp)
                .order(Order::Go { part: Part::Tcp }, Vec::new());
            return self.on_started();
        };
        match split.started(place) {
            Ok(orders) => self.give(orders),
            Err(error) => {
                tracing::error!("the processes can't be told of each other: {error}");
                self.stack.processes[place].kill();
            }
        }
        if self.running_readers().contains(place) {
            self.map_all(place);
        }
        self.attach_all(place);
        let split = self.stack.plant.split.as_mut();
        let question = split.and_then(|split| split.ask_flows(place));
        self.give(question.into_iter().collect());
        self.go_on();
    }

    /// Tells a successor of the programs that its predecessor had. It begins after that.
    fn attach_all(&mut self, place: usize) {
        let layout = &self.stack.plant.layout;
        if !layout.front().contains(place) {
            return;
        }
        let only: Places = [place].into_iter().collect();
        let mut orders = Vec::new();
        for (number, program) in &mut self.programs {
            if !program.holders.introduced {
                continue;
            }
            match program.attach(layout, only) {
                Ok(order) => {
                    program.introduce_again(place);
                    orders.extend(order);
                }
                Err(error) => tracing::error!("program {number} can't be served on: {error}"),
            }
        }
        self.give(orders);
    }

    /// Those that nobody has to be told of any more begin.
    fn go_on(&mut self) {
        while let Some(split) = &mut self.stack.plant.split
            && let Some(part) = split.take_going()
        {
            let all = Part::ALL.into_iter().all(|part| split.is_going(part));
            self.process(part).order(Order::Go { part }, Vec::new());
            self.ready |= all;
            if part.serves_programs() && self.serves() {
                self.on_started();
            }
        }
    }

    pub(super) fn on_part_report(&mut self, place: usize, report: Report, with: Vec<OwnedFd>) {
        let Some(split) = &mut self.stack.plant.split else {
            return;
        };
        match report {
            Report::Link(sizes) => split.set_sizes(sizes),
            Report::Pool { part, sizes } => {
                if let Some(memory) = with.into_iter().next() {
                    split.set_pool(place, part, sizes, memory);
                }
            }
            Report::Knows { part, incarnation } => split.knows(place, part, incarnation),
            Report::Flows { flows, last } => {
                if last {
                    split.flows_told(place);
                }
                if !flows.is_empty() {
                    self.filtering().order(Order::Flows { flows }, Vec::new());
                }
            }
            Report::Born(_)
            | Report::Started { .. }
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
        let process = self.stack.processes.get(place);
        let pause = process.and_then(|process| process.pause(Instant::now()));
        let soon = pause.is_some_and(|pause| !pause.is_zero());
        self.stack.plant.ended(place, soon);
        if self.stack.plant.layout.hosts(place, Part::Filter) {
            self.dismiss_questions();
        }
        self.wait_no_more_for(place);
        self.go_on();
    }

    /// Programs that wait for an answer from there get none: its successor is told of them before it
    /// begins.
    fn wait_no_more_for(&mut self, place: usize) {
        let all: Vec<u16> = self.programs.keys().copied().collect();
        for number in all {
            if let Some(program) = self.programs.get_mut(&number)
                && program.holders.mapping.remove(place)
            {
                self.advance(number);
            }
        }
    }

    /// Takes queues for spoilt if messages wait there and nobody takes them: no restart of one process helps.
    pub(super) fn check_queues(&mut self, now: Instant) {
        let Stack { plant, processes } = &mut self.stack;
        let goes_on = |place| processes.get(place).is_some_and(Component::goes_on);
        let split = plant.split.as_mut();
        if let Some(stuck) = split.and_then(|split| split.stuck(now, goes_on)) {
            let (from, to) = (stuck.from.name(), stuck.to.name());
            tracing::error!(
                "{} messages of {from} wait for {to}, which has taken none for seconds though it runs",
                stuck.waiting
            );
            self.renew();
        }
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
        if let Some(split) = &mut self.stack.plant.split {
            let orders = split.new_rules();
            self.give(orders);
        }
        self.go_on();
    }

    /// The processes that read what programs send where it lies, and run.
    pub(super) fn running_readers(&self) -> Places {
        let plant = &self.stack.plant;
        let Some(split) = &plant.split else {
            return Places::default();
        };
        let runs = |part| split.runs(part);
        plant.layout.readers().both(plant.layout.hosting(runs))
    }

    /// Hands all programs' sockets to a process that reads what is sent.
    fn map_all(&mut self, place: usize) {
        let all = self.programs.iter();
        let known = all.filter(|(_, program)| program.holders.introduced);
        let mut orders = Vec::new();
        for (number, program) in known {
            match program.map() {
                Ok((order, with)) => orders.push((place, order, with)),
                Err(error) => tracing::error!("program {number} can't send any more: {error}"),
            }
        }
        self.give(orders);
    }

    /// A program's sockets are gone.
    pub(super) fn unmap(&mut self, program: u32) {
        if self.stack.plant.split.is_some() {
            for place in self.stack.plant.layout.readers().iter() {
                self.give(vec![(place, Order::Unmap { program }, Vec::new())]);
            }
        }
    }

    /// How much waits for the process at this place.
    pub(super) fn waiting(&self, place: usize) -> Vec<QueueInfo> {
        let plant = &self.stack.plant;
        let split = plant.split.as_ref();
        let mut all = split.map_or_else(Vec::new, |split| split.waiting(place));
        let channels = plant.layout.channels();
        let Some(channel) = channels.iter().position(|other| *other == place) else {
            return all;
        };
        let programs = self.programs.values();
        let requests = programs.map(|program| program.requests(channel));
        let (waiting, capacity) = requests.fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
        all.push(QueueInfo {
            from: PROGRAMS.to_owned(),
            to: self.serving(place),
            waiting,
            capacity,
        });
        all
    }

    /// How much waits for a program, in each of its channels.
    pub(super) fn waiting_for_program(&self, number: u16) -> Vec<QueueInfo> {
        let Some(program) = self.programs.get(&number) else {
            return Vec::new();
        };
        let channels = self.stack.plant.layout.channels().into_iter().enumerate();
        channels
            .map(|(channel, place)| {
                let (waiting, capacity) = program.notices(channel);
                QueueInfo {
                    from: self.serving(place),
                    to: PROGRAM.to_owned(),
                    waiting,
                    capacity,
                }
            })
            .collect()
    }

    /// The parts in the process at this place that programs have a channel to.
    fn serving(&self, place: usize) -> String {
        let parts = self.stack.plant.layout.parts(place).iter();
        let parts = parts.filter(|part| part.serves_programs());
        let names: Vec<&str> = parts.map(|part| part.name()).collect();
        names.join("+")
    }
}
