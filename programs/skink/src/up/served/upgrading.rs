//! Live update: another build takes the place of processes, one after the other, while the stack works.
use super::heir::{Inheriting, Next};
use super::{Errand, Served};
use crate::component::SUPERVISOR;
use crate::up::component::{Component, Upgraded};
use serde::{Deserialize, Serialize};
use skink_control::{Answered, Executable, Part, Question, SignalDescriptor};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long to wait for a process that is just being restarted.
const PATIENCE: Duration = Duration::from_secs(10);
const OWN_RELEASE: &str = env!("CARGO_PKG_VERSION");

/// What `skink upgrade` is told.
#[derive(Serialize)]
struct Report {
    /// All processes are of the other build.
    ok: bool,
    executable: String,
    processes: Vec<ProcessReport>,
}

/// A process that changed its build, or was to.
#[derive(Serialize)]
struct ProcessReport {
    name: String,
    /// The release that runs now.
    release: String,
    /// What it was to execute.
    executable: String,
    /// How long nobody served, in milliseconds, if it does.
    away_ms: Option<f64>,
    /// Why it doesn't.
    failure: Option<String>,
}

/// A process that is to become another build, or has tried.
#[derive(Serialize, Deserialize)]
struct Step {
    /// Of the supervisor itself if none.
    place: Option<usize>,
    to: Executable,
    before: Executable,
}

/// Where the step is that is under way.
#[derive(Serialize, Deserialize)]
enum Begun {
    /// Its process must run first, and may take until then.
    No(#[serde(with = "skink_inherit::moments")] Instant),
    Yes,
    /// It is the supervisor's.
    Own(Inheriting),
}

/// What comes next of a step.
enum Course {
    On(Begun, Instant),
    Over(Result<Duration, String>),
}

/// One live update.
#[derive(Serialize, Deserialize)]
pub struct Upgrading {
    question: Question,
    executable: Executable,
    left: VecDeque<Step>,
    current: Option<(Step, Begun)>,
    done: Vec<(Step, Result<Duration, String>)>,
    /// The build is no good: those that have it get back the one before.
    takes_back: bool,
}

impl Upgrading {
    fn next(&mut self, now: Instant) -> Option<(Step, Begun)> {
        self.current.take().or_else(|| {
            let next = self.left.pop_front()?;
            Some((next, Begun::No(now + PATIENCE)))
        })
    }

    /// A step is over.
    fn ended(&mut self, step: Step, outcome: Result<Duration, String>) {
        if outcome.is_err() && !self.takes_back {
            self.takes_back = true;
            let back = self.done.iter().rev().map(|(done, _)| Step {
                place: done.place,
                to: done.before.clone(),
                before: done.to.clone(),
            });
            self.left = back.collect();
        }
        self.done.push((step, outcome));
    }

    /// Where the step of the supervisor is, if it is under way.
    pub fn inheriting(&self) -> Option<(&Executable, &Inheriting)> {
        match &self.current {
            Some((step, Begun::Own(inheriting))) => Some((&step.to, inheriting)),
            Some((_, Begun::No(_) | Begun::Yes)) | None => None,
        }
    }

    /// It has come further.
    pub fn set_inheriting(&mut self, inheriting: Inheriting) {
        if let Some((_, Begun::Own(before))) = &mut self.current {
            *before = inheriting;
        }
    }

    /// It has failed.
    pub fn not_inherited(&mut self, why: &str) {
        if let Some((step, _)) = self.current.take() {
            self.ended(step, Err(why.to_owned()));
        }
    }

    /// What became of it, as JSON.
    fn report(&self, processes: &[Component]) -> Result<String, String> {
        let told = self.done.iter().map(|(step, outcome)| {
            let process = step.place.and_then(|place| processes.get(place));
            let (name, release) = process.map_or((SUPERVISOR, OWN_RELEASE), |process| {
                (process.name(), process.release())
            });
            ProcessReport {
                name: name.to_owned(),
                release: release.to_owned(),
                executable: step.to.name().display().to_string(),
                away_ms: outcome.as_ref().ok().map(|away| away.as_secs_f64() * 1e3),
                failure: outcome.as_ref().err().cloned(),
            }
        });
        let report = Report {
            ok: !self.takes_back,
            executable: self.executable.name().display().to_string(),
            processes: told.collect(),
        };
        serde_json::to_string(&report).map_err(|error| error.to_string())
    }
}

impl Served {
    /// Begins a live update of the processes that host `component`, or of all.
    pub(super) fn begin_upgrade(
        &mut self,
        question: Question,
        component: Option<&str>,
        file: OwnedFd,
    ) -> Answered {
        if self.upgrading.is_some() {
            return Err("another upgrade is under way: wait for its end".to_owned());
        }
        let executable = Executable::new(file)
            .map_err(|error| format!("what is to be executed can't be used: {error}"))?;
        let own = Executable::own()
            .map_err(|error| format!("the supervisor's own executable can't be read: {error}"))?;
        let places = self.places_of(component)?.into_iter();
        let processes = &self.stack.processes;
        let left = places.map(|place| {
            let process = place.and_then(|place| processes.get(place));
            let before = process.map_or(&own, |process| process.executable());
            Step {
                place,
                to: executable.clone(),
                before: before.clone(),
            }
        });
        self.upgrading = Some(Upgrading {
            question,
            left: left.collect(),
            executable,
            current: None,
            done: Vec::new(),
            takes_back: false,
        });
        Ok(None)
    }

    fn places_of(&self, component: Option<&str>) -> Result<Vec<Option<usize>>, String> {
        let processes = &self.stack.processes;
        let Some(wanted) = component else {
            // The supervisor last: should it fail, it is the one before that takes the others back.
            return Ok((0..processes.len()).map(Some).chain([None]).collect());
        };
        if wanted == SUPERVISOR {
            return Ok(vec![None]);
        }
        let layout = &self.stack.plant.layout;
        let parts = Part::ALL.into_iter();
        let hosts = parts.filter(|part| part.name() == wanted);
        let named = processes.iter().position(|it| it.name() == wanted);
        let place = hosts.map(|part| layout.place(part)).next().or(named);
        let names: Vec<&str> = processes.iter().map(Component::name).collect();
        place.map(|place| vec![Some(place)]).ok_or_else(|| {
            format!(
                "nothing called {wanted} runs: the processes are {} and {SUPERVISOR}",
                names.join(", ")
            )
        })
    }

    /// Goes on with it. Answers when to call again at the latest.
    pub(super) fn drive_upgrade(
        &mut self,
        now: Instant,
        signals: &SignalDescriptor,
    ) -> Option<Instant> {
        let upgrading = self.upgrading.as_mut()?;
        let processes = &mut self.stack.processes;
        while let Some((step, begun)) = upgrading.next(now) {
            let course = match step.place {
                Some(place) => drive(processes.get_mut(place)?, &step, begun, now, signals),
                None => drive_own(&step, begun, now, signals),
            };
            match course {
                Course::On(begun, until) => {
                    upgrading.current = Some((step, begun));
                    if until > now {
                        return Some(until);
                    }
                }
                Course::Over(outcome) => upgrading.ended(step, outcome),
            }
        }
        let upgrading = self.upgrading.take()?;
        let answer = upgrading.report(&self.stack.processes);
        self.errands
            .push(Errand::Answer(upgrading.question, answer));
        None
    }
}

fn drive(
    process: &mut Component,
    step: &Step,
    begun: Begun,
    now: Instant,
    signals: &SignalDescriptor,
) -> Course {
    match begun {
        Begun::No(_) if process.serves() => match process.upgrade(now, signals, &step.to) {
            Ok(()) => Course::On(Begun::Yes, now),
            Err(why) => Course::Over(Err(why)),
        },
        Begun::No(until) if now < until => Course::On(begun, until),
        Begun::No(_) | Begun::Own(_) => Course::Over(Err("it doesn't run".to_owned())),
        Begun::Yes => match process.drive_upgrade(now) {
            Upgraded::Wait(until) => Course::On(Begun::Yes, until),
            Upgraded::Kept(away) => Course::Over(Ok(away)),
            Upgraded::Refused(why) => Course::Over(Err(why)),
        },
    }
}

fn drive_own(step: &Step, begun: Begun, now: Instant, signals: &SignalDescriptor) -> Course {
    let inheriting = match begun {
        Begun::Own(inheriting) => inheriting,
        Begun::No(_) | Begun::Yes => match Inheriting::begin(now, &step.to, signals) {
            Ok(inheriting) => inheriting,
            Err(why) => return Course::Over(Err(why)),
        },
    };
    match inheriting.drive(now) {
        Next::Wait(inheriting, until) => Course::On(Begun::Own(inheriting), until),
        Next::Over(outcome) => Course::Over(outcome),
    }
}
