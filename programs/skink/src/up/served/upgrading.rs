//! Live update: another build takes the place of processes, one after the other, while the stack works.
use super::{Errand, Served};
use crate::up::component::{Component, Upgraded};
use serde::Serialize;
use skink_control::{Answered, Executable, Part, Question, SignalDescriptor};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long to wait for a process that is just being restarted.
const PATIENCE: Duration = Duration::from_secs(10);

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
struct Step {
    place: usize,
    to: Executable,
    before: Executable,
}

/// Where the step is that is under way.
enum Begun {
    /// Its process must run first, and may take until then.
    No(Instant),
    Yes,
}

/// One live update.
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

    /// What became of it, as JSON.
    fn report(&self, processes: &[Component]) -> Result<String, String> {
        let told = self.done.iter().map(|(step, outcome)| {
            let process = processes.get(step.place);
            ProcessReport {
                name: process.map_or(String::new(), |it| it.name().to_owned()),
                release: process.map_or(String::new(), |it| it.release().to_owned()),
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
        let places = self.places_of(component)?.into_iter();
        let left = places.filter_map(|place| {
            Some(Step {
                place,
                to: executable.clone(),
                before: self.stack.processes.get(place)?.executable().clone(),
            })
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

    fn places_of(&self, component: Option<&str>) -> Result<Vec<usize>, String> {
        let processes = &self.stack.processes;
        let Some(wanted) = component else {
            return Ok((0..processes.len()).collect());
        };
        let layout = &self.stack.plant.layout;
        let parts = Part::ALL.into_iter();
        let hosts = parts.filter(|part| part.name() == wanted);
        let named = processes.iter().position(|it| it.name() == wanted);
        let place = hosts.map(|part| layout.place(part)).next().or(named);
        let names: Vec<&str> = processes.iter().map(Component::name).collect();
        place.map(|place| vec![place]).ok_or_else(|| {
            format!(
                "nothing called {wanted} runs: the processes are {}",
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
            let process = processes.get_mut(step.place)?;
            let until = match begun {
                Begun::No(_) if process.serves() => {
                    match process.upgrade(now, signals, &step.to) {
                        Ok(()) => upgrading.current = Some((step, Begun::Yes)),
                        Err(why) => upgrading.ended(step, Err(why)),
                    }
                    continue;
                }
                Begun::No(until) if until <= now => {
                    upgrading.ended(step, Err("it doesn't run".to_owned()));
                    continue;
                }
                Begun::No(until) => until,
                Begun::Yes => match process.drive_upgrade(now) {
                    Upgraded::Wait(until) => until,
                    Upgraded::Kept(away) => {
                        upgrading.ended(step, Ok(away));
                        continue;
                    }
                    Upgraded::Refused(why) => {
                        upgrading.ended(step, Err(why));
                        continue;
                    }
                },
            };
            upgrading.current = Some((step, begun));
            return Some(until);
        }
        let upgrading = self.upgrading.take()?;
        let answer = upgrading.report(&self.stack.processes);
        self.errands
            .push(Errand::Answer(upgrading.question, answer));
        None
    }
}
