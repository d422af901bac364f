//! What the supervisor does for programs and tools, and hears from the stack about them.
use super::component::{Component, Event};
use super::config::Allow;
use super::programs::{GRACE, Program, Stage};
use skink_control::{
    Answered, ComponentInfo, FIRST_COMPONENT, Grant, Order, Owners, Peer, Question, RegionKind,
    Report, Server, SignalDescriptor, TableSize,
};
use skink_filter::RuleSet;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Longest order in bytes, as text: the packet it travels in has a limit.
const LONGEST_ORDER: usize = 180 * 1024;

/// Who may have how much.
#[derive(Clone, Debug)]
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
    Release(u16),
}

/// The stack and its programs.
pub struct Served {
    name: String,
    pub stack: Component,
    limits: Limits,
    programs: BTreeMap<u16, Program>,
    questions: VecDeque<Question>,
    errands: Vec<Errand>,
    rules: usize,
    /// The stack has served before.
    pub ready: bool,
}

impl Served {
    pub fn new(name: &str, stack: Component, limits: Limits, rules: usize) -> Served {
        Served {
            name: name.to_owned(),
            stack,
            limits,
            programs: BTreeMap::new(),
            questions: VecDeque::new(),
            errands: Vec::new(),
            rules,
            ready: false,
        }
    }

    /// Programs that are served.
    pub fn live(&self) -> usize {
        self.programs
            .values()
            .filter(|program| program.lives())
            .count()
    }

    /// Does what is due. Answers when to call again at the latest; an error says why the stack can't be
    /// started.
    pub fn drive(
        &mut self,
        now: Instant,
        signals: &SignalDescriptor,
    ) -> (Option<Instant>, Option<String>) {
        let (mut next, failure) = match self.stack.drive(now, signals) {
            Ok(next) => (next, None),
            Err(why) => (Some(now + Duration::from_millis(100)), Some(why)),
        };
        let mut due = Vec::new();
        for (number, program) in &self.programs {
            match program.stage {
                Stage::HungUp(since) if since + GRACE <= now => due.push(*number),
                Stage::HungUp(since) => {
                    let end = since + GRACE;
                    next = Some(next.map_or(end, |next| next.min(end)));
                }
                Stage::Attaching(_) | Stage::Served | Stage::Ending => {}
            }
        }
        self.errands.extend(due.into_iter().map(Errand::Release));
        (next, failure)
    }

    /// Hears the stack. Answers why it ended, if it did.
    pub fn hear(&mut self, now: Instant) -> Option<String> {
        let mut ended = None;
        for event in self.stack.look(now) {
            match event {
                Event::Started => self.on_started(),
                Event::Said(report) => self.on_report(report),
                Event::Ended(why) => {
                    self.on_end();
                    ended = Some(why);
                }
            }
        }
        ended
    }

    fn on_started(&mut self) {
        self.ready = true;
        // Those that came while there was no stack.
        let waiting = self.programs.iter();
        let waiting = waiting.filter(|(_, program)| matches!(program.stage, Stage::Attaching(_)));
        let waiting: Vec<u16> = waiting.map(|(number, _)| *number).collect();
        for number in waiting {
            if let Err(why) = self.introduce(number) {
                self.refuse(number, why);
            }
        }
    }

    fn on_report(&mut self, report: Report) {
        match report {
            Report::Attached {
                program,
                refused: Some(why),
            } => self.refuse_unless_gone(program, why),
            Report::Attached {
                program,
                refused: None,
            } => self.on_attached(program),
            Report::Finished { program } => self.on_finished(program),
            Report::Spoilt { program } => self.on_spoilt(program),
            Report::Filter { shown } => {
                if let Some(question) = self.questions.pop_front() {
                    self.errands.push(Errand::Answer(question, Ok(shown)));
                }
            }
            // Told by the component itself.
            Report::Started { .. } => {}
        }
    }

    fn on_attached(&mut self, program: u32) {
        let Some((number, entry)) = find(&mut self.programs, program) else {
            return;
        };
        // It may have hung up meanwhile.
        if matches!(entry.stage, Stage::Attaching(_))
            && let Stage::Attaching(parts) = std::mem::replace(&mut entry.stage, Stage::Served)
        {
            let grant = Ok(Grant::Served(*parts));
            self.errands.push(Errand::Grant(number, grant));
        }
    }

    fn refuse_unless_gone(&mut self, program: u32, why: String) {
        if let Some((number, _)) = find(&mut self.programs, program) {
            self.refuse(number, why);
        }
    }

    /// A program that the stack doesn't have.
    fn refuse(&mut self, number: u16, why: String) {
        self.programs.remove(&number);
        self.errands.push(Errand::Grant(number, Err(why)));
    }

    fn on_finished(&mut self, program: u32) {
        if let Some((number, entry)) = find(&mut self.programs, program)
            && matches!(entry.stage, Stage::Ending)
        {
            self.programs.remove(&number);
        }
    }

    fn on_spoilt(&mut self, program: u32) {
        if let Some((number, entry)) = find(&mut self.programs, program) {
            entry.stage = Stage::Ending;
            let why = "it spoilt its channel to the stack, and lost its sockets".to_owned();
            self.errands.push(Errand::Dismiss(number, why));
            self.errands.push(Errand::Release(number));
        }
    }

    /// Nothing that the programs had is left in the next stack.
    fn on_end(&mut self) {
        let programs = std::mem::take(&mut self.programs);
        for (number, mut program) in programs {
            match program.stage {
                // It hasn't got anything yet, so it can wait for the next stack.
                Stage::Attaching(_) => {
                    program.introduced = false;
                    self.programs.insert(number, program);
                    continue;
                }
                Stage::Served => {
                    let why = "the stack that served it has ended".to_owned();
                    self.errands.push(Errand::Dismiss(number, why));
                }
                Stage::HungUp(_) | Stage::Ending => {}
            }
            self.errands.push(Errand::Release(number));
        }
        for question in std::mem::take(&mut self.questions) {
            let why = "the stack has ended, and is being started again: ask later".to_owned();
            self.errands.push(Errand::Answer(question, Err(why)));
        }
    }

    /// Tells the stack of a program.
    fn introduce(&mut self, number: u16) -> Result<(), String> {
        let program = self.programs.get_mut(&number);
        let program = program.ok_or_else(|| "the program is gone".to_owned())?;
        let order = program.order();
        let (order, descriptors) = order.map_err(|error| {
            format!("the stack can't be handed what it shares with the program: {error}")
        })?;
        program.introduced = true;
        self.stack.order(order, descriptors);
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
                Errand::Release(number) => server.release_owner(number),
            }
        }
    }
}

fn find(programs: &mut BTreeMap<u16, Program>, program: u32) -> Option<(u16, &mut Program)> {
    let number = u16::try_from(program).ok()?;
    Some((number, programs.get_mut(&number)?))
}

impl Owners for Served {
    fn grant(&mut self, owner: u16, peer: &Peer) -> Result<Grant, String> {
        let others = self.programs.values();
        let others = others.filter(|program| program.uid == peer.uid).count();
        if others >= usize::from(self.limits.per_user) {
            return Err(format!(
                "user {} has {others} programs on {} already, the most that one user may have: end some, or \
                 raise `programs-per-user` in its configuration",
                peer.uid, self.name
            ));
        }
        let program = Program::make(owner, peer, self.limits.tables, &self.stack.sleeper)?;
        self.programs.insert(owner, program);
        if self.stack.serves()
            && let Err(why) = self.introduce(owner)
        {
            self.programs.remove(&owner);
            return Err(why);
        }
        Ok(Grant::Later)
    }

    fn retire(&mut self, owner: u16) {
        if let Some(program) = self.programs.get_mut(&owner)
            && program.lives()
        {
            program.stage = Stage::HungUp(Instant::now());
        }
    }

    fn release(&mut self, owner: u16) {
        let Some(program) = self.programs.get_mut(&owner) else {
            return;
        };
        if matches!(program.stage, Stage::Ending) {
            return;
        }
        program.stage = Stage::Ending;
        if program.introduced && self.stack.serves() {
            let program = owner.into();
            self.stack.order(Order::Detach { program }, Vec::new());
        } else {
            // No stack knows it.
            self.programs.remove(&owner);
        }
    }

    fn answering(&mut self, _owner: u16) {}

    fn capacity(&self) -> u16 {
        self.limits.programs
    }

    fn is_free(&self, owner: u16) -> bool {
        !self.programs.contains_key(&owner)
    }

    fn outlives_exec(&self) -> bool {
        true
    }

    fn admit(&self, peer: &Peer) -> Result<(), String> {
        let Some(allow) = &self.limits.allow else {
            return Ok(());
        };
        let own = rustix::process::geteuid().as_raw();
        let member = || peer.groups.iter().any(|group| allow.groups.contains(group));
        if peer.uid == 0 || peer.uid == own || allow.users.contains(&peer.uid) || member() {
            return Ok(());
        }
        Err(format!(
            "user {} may not use {}: its configuration names those who may in `allow`",
            peer.uid, self.name
        ))
    }

    fn region(&self, program: u32, secret: u64) -> Result<[OwnedFd; 4], String> {
        let number = u16::try_from(program).ok();
        let program = number.and_then(|number| self.programs.get(&number));
        let program =
            program.ok_or_else(|| "the program whose socket it is has ended".to_owned())?;
        program.regions(secret)
    }

    fn memory(&self, owner: u16, kind: RegionKind) -> Option<BorrowedFd<'_>> {
        if owner == FIRST_COMPONENT {
            let (counters, capture) = self.stack.memory();
            return match kind {
                RegionKind::Counters => Some(counters),
                RegionKind::Capture => Some(capture),
                RegionKind::TcpTable
                | RegionKind::TcpRings
                | RegionKind::UdpTable
                | RegionKind::UdpRings
                | RegionKind::Fallbacks => None,
            };
        }
        let [tcp_records, tcp_rings, udp_records, udp_rings] = self.programs.get(&owner)?.files();
        match kind {
            RegionKind::TcpTable => Some(tcp_records),
            RegionKind::TcpRings => Some(tcp_rings),
            RegionKind::UdpTable => Some(udp_records),
            RegionKind::UdpRings => Some(udp_rings),
            RegionKind::Counters | RegionKind::Fallbacks | RegionKind::Capture => None,
        }
    }

    fn components(&self) -> Vec<ComponentInfo> {
        vec![self.stack.info()]
    }

    fn load_filter(&mut self, rules: &str) -> Result<String, String> {
        let set = RuleSet::parse(rules).map_err(|mistakes| {
            let lines: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
            format!(
                "the old rules stay, since there are mistakes: {}",
                lines.join("; ")
            )
        })?;
        let order = Order::Filter {
            rules: rules.to_owned(),
        };
        let length = serde_json::to_vec(&order).map_or(usize::MAX, |text| text.len());
        if length > LONGEST_ORDER {
            return Err(format!(
                "the old rules stay, since the new ones are too long: make them shorter than {} KiB",
                LONGEST_ORDER / 1024
            ));
        }
        self.rules = set.rules.len();
        self.stack.set_rules(rules);
        self.stack.order(order, Vec::new());
        Ok(match self.rules {
            1 => "1 rule is in force".to_owned(),
            count => format!("{count} rules are in force"),
        })
    }

    fn show_filter(&mut self, question: Question) -> Answered {
        if !self.stack.serves() {
            return Err("the stack is being started: ask later".to_owned());
        }
        self.questions.push_back(question);
        self.stack.order(Order::ShowFilter {}, Vec::new());
        Ok(None)
    }
}
