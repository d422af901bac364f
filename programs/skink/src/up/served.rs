//! What the supervisor does for programs and tools, and hears from the stack about them.
mod heir;
mod owners;
mod parts;
mod spoilt;
mod succession;
mod upgrading;

use super::component::{Component, Event};
use super::config::Allow;
use super::heart;
use super::plant::Plant;
use super::programs::{Program, Stage, Step};
use serde::{Deserialize, Serialize};
use skink_control::{Grant, Order, Part, Question, Report, Server, SignalDescriptor, TableSize};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use upgrading::Upgrading;

/// How often it is looked whether the interface has changed.
const NIC_INTERVAL: Duration = Duration::from_secs(2);

/// Who may have how much.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Limits {
    /// Programs at a time.
    pub programs: u16,
    /// Of one user.
    pub per_user: u16,
    /// None: everybody may attach.
    pub allow: Option<Allow>,
    /// Sizes of the regions for TCP and UDP sockets.
    pub tables: (TableSize, TableSize),
}

/// What is to be done with the broker, after it has called.
enum Errand {
    Grant(u16, Result<Grant, String>),
    Answer(Question, Result<String, String>),
    Dismiss(u16, String),
}

/// The end of a process of the stack.
pub struct End {
    pub place: usize,
    /// In words.
    pub why: String,
}

/// The processes of a stack, and what they are made of.
#[derive(Serialize, Deserialize)]
pub struct Stack {
    pub plant: Plant,
    pub processes: Vec<Component>,
}

/// The stack and its programs.
#[derive(Serialize, Deserialize)]
pub struct Served {
    name: String,
    pub stack: Stack,
    limits: Limits,
    programs: BTreeMap<u16, Program>,
    questions: VecDeque<Question>,
    #[serde(skip)]
    errands: Vec<Errand>,
    rules: usize,
    #[serde(skip)]
    trusted: spoilt::Trusted,
    upgrading: Option<Upgrading>,
    /// When to look whether the processes go on.
    #[serde(with = "skink_inherit::moments")]
    next_look: Instant,
    /// When the interface was last looked at.
    #[serde(skip)]
    nic_look: Option<Instant>,
    /// Something has happened that the supervisor's standby must know of before it has consequences.
    unsaved: bool,
    /// Programs that have come, of which it must know before they are introduced to the stack.
    newcomers: Vec<u16>,
    /// The stack has served before.
    pub ready: bool,
    /// Process id of the supervisor's standby.
    #[serde(skip)]
    pub standby: Option<u32>,
}

impl Served {
    pub fn new(name: &str, stack: Stack, limits: Limits, rules: usize) -> Served {
        Served {
            name: name.to_owned(),
            stack,
            limits,
            programs: BTreeMap::new(),
            questions: VecDeque::new(),
            errands: Vec::new(),
            rules,
            trusted: spoilt::Trusted::default(),
            upgrading: None,
            next_look: Instant::now(),
            nic_look: None,
            unsaved: false,
            newcomers: Vec::new(),
            ready: false,
            standby: None,
        }
    }

    /// Programs that are served.
    pub fn live(&self) -> usize {
        self.programs
            .values()
            .filter(|program| program.lives())
            .count()
    }

    /// Does what is due. Answers when to call again at the latest; an error says which process can't be
    /// started, and why.
    pub fn drive(
        &mut self,
        now: Instant,
        signals: &SignalDescriptor,
    ) -> (Option<Instant>, Option<(String, String)>) {
        let (mut next, mut failure) = (self.drive_upgrade(now, signals), None);
        let Stack { plant, processes } = &mut self.stack;
        for place in 0..processes.len() {
            let due = processes.get(place).is_some_and(|it| it.is_due(now));
            let prepared = match due {
                true => plant.prepare(place, processes),
                false => None,
            };
            let Some(process) = processes.get_mut(place) else {
                continue;
            };
            let again = match process.drive(now, signals, prepared) {
                Ok(next) => next,
                Err(why) => {
                    failure = Some((process.name().to_owned(), why));
                    Some(now + Duration::from_millis(100))
                }
            };
            next = [next, again].into_iter().flatten().min();
        }
        if now >= self.next_look {
            for (place, process) in processes.iter_mut().enumerate() {
                let mut holders = self.programs.values().map(|program| &program.holders);
                process.check_heart(
                    now,
                    holders.any(|holders| holders.attaching.contains(place)),
                );
            }
            let is_quiet = processes.iter().all(Component::is_quiet);
            self.next_look = now
                + match is_quiet {
                    true => heart::QUIET_INTERVAL,
                    false => heart::INTERVAL,
                };
            let link = processes.get(plant.layout.place(Part::Link));
            plant.adapt(link.map(Component::load).unwrap_or_default());
            self.follow_interface(now);
            self.check_queues(now);
            // If that couldn't be done before.
            self.go_on_anew();
        }
        next = Some(next.map_or(self.next_look, |next| next.min(self.next_look)));
        (next, failure)
    }

    /// If the interface has changed, who has it is replaced: its successor sees the interface as it is.
    fn follow_interface(&mut self, now: Instant) {
        let is_due = self.nic_look.is_none_or(|last| now >= last + NIC_INTERVAL);
        if !is_due || self.upgrading.is_some() {
            return;
        }
        self.nic_look = Some(now);
        let Stack { plant, processes } = &mut self.stack;
        if plant.has_nic_changed()
            && let Some(process) = processes.get_mut(plant.layout.place(Part::Link))
        {
            process.give_up(
                "the interface has another MTU or address now, or is another one of that name",
            );
        }
    }

    /// Hears the processes. Answers which ended.
    pub fn hear(&mut self, now: Instant) -> Vec<End> {
        let mut ended = Vec::new();
        for place in 0..self.stack.processes.len() {
            let process = self.stack.processes.get_mut(place);
            for event in process.map(|it| it.look(now)).unwrap_or_default() {
                match event {
                    Event::Started => self.on_process_started(place),
                    Event::Said(report, with) => self.on_report(place, report, with),
                    Event::Ended(why) => {
                        self.on_process_end(place);
                        self.go_on_anew();
                        // That one was told to: it makes room for another build.
                        if !self.stack.processes[place].is_replaced() {
                            ended.push(End { place, why });
                        }
                    }
                }
            }
        }
        ended
    }

    /// Programs can attach: those that came before can too, if the standby knows of them.
    fn on_started(&mut self) {
        if self.unsaved || !self.newcomers.is_empty() {
            return;
        }
        let waiting = self.programs.iter().filter(|(_, program)| {
            matches!(program.stage, Stage::Attaching(_)) && !program.holders.introduced
        });
        let waiting: Vec<u16> = waiting.map(|(number, _)| *number).collect();
        for number in waiting {
            if let Err(why) = self.introduce(number) {
                self.programs.remove(&number);
                self.errands.push(Errand::Grant(number, Err(why)));
            }
        }
    }

    fn on_report(&mut self, place: usize, report: Report, with: Vec<OwnedFd>) {
        match report {
            Report::Attached { program, refused } => {
                let Stack { plant, processes } = &mut self.stack;
                if let (Some(why), true) = (&refused, processes[place].is_on_trial()) {
                    // Its predecessor's build can serve the program.
                    processes[place]
                        .give_up(&format!("it can't take over program {program}: {why}"));
                    return;
                }
                if let Some((number, entry)) = find(&mut self.programs, program) {
                    entry.attached(&plant.layout, place, refused);
                    self.advance(number);
                }
            }
            Report::Mapped { program } => {
                if let Some((number, entry)) = find(&mut self.programs, program) {
                    entry.holders.mapping.remove(place);
                    self.advance(number);
                }
            }
            Report::Finished { program } => {
                if let Some((number, entry)) = find(&mut self.programs, program) {
                    entry.holders.holding.remove(place);
                    self.advance(number);
                }
            }
            Report::Spoilt { program } => self.on_spoilt(place, program),
            Report::Filter { shown } => {
                if let Some(question) = self.questions.pop_front() {
                    self.errands.push(Errand::Answer(question, Ok(shown)));
                }
            }
            // Another build may have another idea of queues: it ends, and its predecessor's goes on.
            Report::Broken {} if self.stack.processes[place].is_on_trial() => {}
            Report::Broken {} => self.renew(),
            Report::Link(..)
            | Report::Pool { .. }
            | Report::Knows { .. }
            | Report::Flows { .. } => self.on_part_report(place, report, with),
            // Told by the component itself.
            Report::Born(_) | Report::Started { .. } => {}
        }
    }

    /// Does for a program what can be done now.
    fn advance(&mut self, number: u16) {
        while let Some(program) = self.programs.get_mut(&number) {
            match program.step() {
                Step::Wait => return,
                Step::Grant => {
                    if let Stage::Attaching(parts) =
                        std::mem::replace(&mut program.stage, Stage::Served)
                    {
                        let grant = Ok(Grant::Served(*parts));
                        self.errands.push(Errand::Grant(number, grant));
                    }
                }
                Step::Refuse(why) => {
                    program.stage = Stage::Ending;
                    self.errands.push(Errand::Grant(number, Err(why)));
                }
                Step::Lose(why) => {
                    program.stage = Stage::Ending;
                    self.errands.push(Errand::Dismiss(number, why));
                }
                Step::Detach => {
                    let program = number.into();
                    self.process(Part::Syscall)
                        .order(Order::Detach { program }, Vec::new());
                }
                Step::Forget => {
                    self.programs.remove(&number);
                    self.unmap(number.into());
                }
            }
        }
    }

    /// Nobody is left who could answer.
    fn dismiss_questions(&mut self) {
        for question in std::mem::take(&mut self.questions) {
            let why = "the stack has ended, and is being started again: ask later".to_owned();
            self.errands.push(Errand::Answer(question, Err(why)));
        }
    }

    /// Tells the stack of a program.
    fn introduce(&mut self, number: u16) -> Result<(), String> {
        let readers = self.running_readers();
        let program = self.programs.get_mut(&number);
        let program = program.ok_or_else(|| "the program is gone".to_owned())?;
        let orders = program
            .attach(&self.stack.plant.layout, self.stack.plant.layout.front())
            .and_then(|mut orders| {
                for place in readers.iter() {
                    let (order, with) = program.map()?;
                    orders.push((place, order, with));
                }
                Ok(orders)
            });
        let orders = orders.map_err(|error| {
            format!("the stack can't be handed what it shares with the program: {error}")
        })?;
        program.holders.introduced = true;
        program.holders.attaching = self.stack.plant.layout.front();
        program.holders.mapping = readers;
        self.give(orders);
        Ok(())
    }
}

/// Does with the broker what has become due.
pub fn run_errands(server: &mut Server<Served>) {
    // An errand may lead to others, which are done in the next round; they come to an end, since each
    // takes a program a stage further.
    loop {
        let errands = std::mem::take(&mut server.owners_mut().errands);
        if errands.is_empty() {
            return;
        }
        for errand in errands {
            match errand {
                Errand::Grant(number, grant) => server.grant(number, grant),
                Errand::Answer(question, answer) => server.answer(question, answer),
                Errand::Dismiss(number, why) => server.dismiss(number, &why),
            }
        }
    }
}

fn find(programs: &mut BTreeMap<u16, Program>, program: u32) -> Option<(u16, &mut Program)> {
    let number = u16::try_from(program).ok()?;
    Some((number, programs.get_mut(&number)?))
}
