//! One process that gets faults, and what became of it.
use crate::failure::Failure;
use crate::tools::Found;
use serde::{Deserialize, Serialize};
use skink_control::ComponentInfo;
use skink_injector::{Class, End, Ending, Image, InjectError, Injection, Outcome, Plan};
use skink_injector::{inject, is_of_crates};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a component may take to come back.
const RETURN: Duration = Duration::from_secs(20);
/// How often the supervisor is asked.
const INTERVAL: Duration = Duration::from_millis(5);

/// What faults did to a process.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// It ended.
    Crash,
    /// It didn't go on, and the supervisor killed it.
    Hang,
    /// It went on.
    Survived,
}

/// What was done to a process and what became of it.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Strike {
    pub component: String,
    pub pid: u32,
    pub class: Class,
    pub seed: u64,
    pub injections: Vec<Injection>,
    /// Instructions that the load executes, of those that were looked at.
    pub executed: usize,
    pub effect: Effect,
    pub end: Option<End>,
    /// What the supervisor says of its end.
    pub why: Option<String>,
    /// How long after its end a successor served, in milliseconds; none if there wasn't one.
    pub back_ms: Option<u64>,
}

impl Strike {
    /// Injects into the process of a running stack that is called `component`.
    pub fn new(
        stack: &mut Found,
        component: &str,
        plan: &Plan,
        watch: &mut dyn FnMut(&Injection),
    ) -> Result<Strike, Failure> {
        refresh(stack)?;
        let before = process(stack, component)?.clone();
        let pid = before.pid.ok_or_else(|| {
            Failure::tool(format!(
                "{component} doesn't run now: it is {}",
                before.state
            ))
        })?;
        let executable = format!("/proc/{pid}/exe");
        let image = Image::read(Path::new(&executable), |name| is_of_crates(name, "skink_"))
            .map_err(|error| {
                Failure::tool(format!("can't read what {component} executes: {error}"))
            })?;
        let outcome = match inject(pid, &image, plan, watch) {
            // Nothing fits: no fault was activated, which is an outcome too.
            Err(InjectError::Idle(..)) => Outcome {
                injections: Vec::new(),
                executed: 0,
                end: None,
            },
            outcome => outcome.map_err(|error| Failure::tool(format!("{component}: {error}")))?,
        };
        let mut strike = Strike {
            component: component.to_owned(),
            pid,
            class: plan.class,
            seed: plan.seed,
            injections: outcome.injections,
            executed: outcome.executed,
            effect: Effect::Survived,
            end: outcome.end,
            why: None,
            back_ms: None,
        };
        if strike.end.is_some() {
            strike.follow(stack, &before)?;
        }
        Ok(strike)
    }

    /// Waits until it is back.
    fn follow(&mut self, stack: &mut Found, before: &ComponentInfo) -> Result<(), Failure> {
        let start = Instant::now();
        self.effect = Effect::Crash;
        while start.elapsed() < RETURN {
            refresh(stack)?;
            let now = process(stack, &self.component)?;
            if now.restarts > before.restarts {
                self.why.clone_from(&now.last_end);
                if now.state == "running" {
                    let took = start.elapsed().as_millis();
                    self.back_ms = Some(u64::try_from(took).unwrap_or(u64::MAX));
                    break;
                }
            }
            std::thread::sleep(INTERVAL);
        }
        if self
            .why
            .as_ref()
            .is_some_and(|why| why.starts_with("it hung"))
        {
            self.effect = Effect::Hang;
        }
        Ok(())
    }

    /// How many faults the process came to.
    pub fn activated(&self) -> usize {
        let active = self
            .injections
            .iter()
            .filter(|it| it.activated_ms.is_some());
        active.count()
    }

    /// What happened.
    pub fn in_words(&self) -> String {
        let Some(end) = &self.end else {
            return match self.activated() {
                0 => format!(
                    "{} went on: it came to no fault; put load on the stack first",
                    self.component
                ),
                _ => format!(
                    "{} went on, with faults in it: replace it with `kill -9 {}`",
                    self.component, self.pid
                ),
            };
        };
        let how = match (&self.why, end.ending) {
            (Some(why), _) => why.clone(),
            (None, Ending::Exit(code)) => format!("it ended with exit code {code}"),
            (None, Ending::Signal(signal)) => format!("signal {signal} killed it"),
            (None, Ending::Unseen) => "it ended".to_owned(),
        };
        let place = end.place.as_ref();
        let place = place.map_or(String::new(), |place| format!(", in {place}"));
        let back = match self.back_ms {
            Some(ms) => format!("its successor served {ms} ms later"),
            None => format!("it had no successor after {} s", RETURN.as_secs()),
        };
        format!("after {} ms {how}{place}; {back}", end.after_ms)
    }
}

/// Asks the supervisor again.
pub fn refresh(stack: &mut Found) -> Result<(), Failure> {
    let asked = stack.refresh();
    asked.map_err(|error| Failure::tool(format!("the supervisor doesn't answer: {error}")))
}

/// A process of the stack by its name.
pub fn process<'a>(stack: &'a Found, name: &str) -> Result<&'a ComponentInfo, Failure> {
    let all = &stack.info.components;
    all.iter().find(|it| it.name == name).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|it| &*it.name).collect();
        Failure::tool(format!(
            "the stack has no process called {name}; it has {}",
            names.join(", ")
        ))
    })
}
