//! One process, one fault after the other.
use crate::breakpoints::Breakpoints;
use crate::class::{Class, Means};
use crate::edits::Counter;
use crate::error::InjectError;
use crate::image::Image;
use crate::mutate::{Change, Mutation, mutate};
use crate::random::Random;
use crate::survey::{Place, Survey};
use crate::trace::{Ending, Stop, Subject};
use crate::{memory, whole};
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::time::{Duration, Instant};

/// How long a fault waits to be activated until the next one is put in too.
const WAIT: Duration = Duration::from_millis(250);
/// How long after one was activated the next one is put in.
const PACE: Duration = Duration::from_millis(50);
/// Draws until a class or a place is given up.
const DRAWS: usize = 200;
/// Longest encoding of an instruction, in bytes: what was changed is kept clear by so much.
const LONGEST: usize = 15;

/// What is to be injected.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Of which class.
    pub class: Class,
    /// Decides all that is drawn.
    pub seed: u64,
    /// So many faults at most.
    pub most: usize,
    /// How long the process may go on from the first one.
    pub patience: Duration,
}

/// A fault that was put in.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Injection {
    /// Which; never [`Class::Random`].
    pub class: Class,
    /// The function, or the memory.
    pub place: String,
    /// What was done, as a sentence.
    pub what: String,
    /// The instruction before; empty if it wasn't one.
    pub before: String,
    /// What is executed instead.
    pub after: String,
    /// When, in milliseconds from the first.
    pub injected_ms: u64,
    /// When the process came to it.
    pub activated_ms: Option<u64>,
}

/// What came of it.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Outcome {
    /// In order.
    pub injections: Vec<Injection>,
    /// Instructions that the load executes, of those that were looked at.
    pub executed: usize,
    /// How the process ended, if it did.
    pub end: Option<End>,
}

/// How a process ended.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct End {
    /// When, in milliseconds from the first fault.
    pub after_ms: u64,
    /// By what.
    pub ending: Ending,
    /// The function in which it got the signal that ended it, if that can be told.
    pub place: Option<String>,
}

/// Injects faults into a process that executes `image`, until it ends or the plan is done. `watch` hears of
/// each as soon as it is activated, or given up.
///
/// # Errors
/// If the process can't be traced, or executes nothing that fits. Then nothing was injected.
pub fn inject(
    pid: u32,
    image: &Image,
    plan: &Plan,
    watch: &mut dyn FnMut(&Injection),
) -> Result<Outcome, InjectError> {
    if !cfg!(target_arch = "x86_64") {
        return Err(InjectError::Unsupported);
    }
    if plan.class.means() == Means::Process {
        return whole::inject(pid, plan, watch);
    }
    let subject = Subject::seize(pid, image)?;
    let mut survey = Survey::new(image);
    if plan.class.means() == Means::Code
        && let Some(ending) = survey.explore(&subject, plan.seed)?
    {
        return Ok(Outcome {
            injections: Vec::new(),
            executed: 0,
            end: Some(End {
                after_ms: 0,
                ending,
                place: None,
            }),
        });
    }
    let mut session = Session {
        subject,
        image,
        random: Random::new(plan.seed),
        executed: survey.executed,
        armed: Breakpoints::new(),
        touched: Vec::new(),
        injections: Vec::new(),
        start: Instant::now(),
        last_signal: None,
    };
    let end = session.run(plan, watch)?;
    Ok(Outcome {
        injections: session.injections,
        executed: session.executed.len(),
        end,
    })
}

struct Session<'a> {
    subject: Subject,
    image: &'a Image,
    random: Random,
    executed: Vec<Place>,
    /// Faults that wait for the process to come to them: the places in `injections`.
    armed: Breakpoints<(usize, Place, Mutation)>,
    /// Bytes that were changed, by function.
    touched: Vec<(usize, Range<usize>)>,
    injections: Vec<Injection>,
    start: Instant,
    last_signal: Option<String>,
}

impl Session<'_> {
    fn run(
        &mut self,
        plan: &Plan,
        watch: &mut dyn FnMut(&Injection),
    ) -> Result<Option<End>, InjectError> {
        let deadline = self.start + plan.patience;
        while Instant::now() < deadline {
            let mut next = deadline;
            if self.injections.len() < plan.most {
                if let Some(end) = self.put_in(plan)? {
                    return Ok(Some(end));
                }
                next = (Instant::now() + WAIT).min(deadline);
            }
            let end = self.go_through(next)?;
            if let Some(injection) = self.injections.last() {
                watch(injection);
            }
            if end.is_some() {
                return Ok(end);
            }
        }
        self.leave()
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Stops the process, puts one more fault in, and lets it go on.
    fn put_in(&mut self, plan: &Plan) -> Result<Option<End>, InjectError> {
        let drawn = match plan.class.means() {
            Means::Memory => None,
            Means::Code | Means::Process => match self.draw(plan.class) {
                None if self.injections.is_empty() => {
                    return Err(InjectError::Idle(self.subject.id(), plan.class));
                }
                // Each place that fits has its fault already.
                None => return Ok(None),
                drawn => drawn,
            },
        };
        let stop = self.subject.stop()?;
        if let Stop::Ended(ending) = stop {
            return Ok(Some(self.end(ending)));
        }
        let now = self.elapsed_ms();
        match drawn {
            Some((place, mutation)) => {
                let function = self.image.functions.get(place.function);
                self.injections.push(Injection {
                    class: mutation.class,
                    place: function.map_or(String::new(), |it| it.name.clone()),
                    what: mutation.what.clone(),
                    before: mutation.before.clone(),
                    after: mutation.after.clone(),
                    injected_ms: now,
                    activated_ms: None,
                });
                let address = self.address(place);
                self.touched
                    .push((place.function, place.offset..place.offset + 1));
                self.touched.push((place.function, mutation.range()));
                let number = self.injections.len() - 1;
                self.armed
                    .plant(&self.subject, vec![(address, (number, place, mutation))])?;
            }
            None => {
                let spoilt = memory::spoil(&self.subject, plan.class, &mut self.random)?;
                self.injections.push(Injection {
                    class: plan.class,
                    place: spoilt.place,
                    what: spoilt.what,
                    before: String::new(),
                    after: String::new(),
                    injected_ms: now,
                    // Whether anybody reads it can't be told.
                    activated_ms: Some(now),
                });
            }
        }
        self.react(stop)
    }

    /// A fault that fits where the process comes by, and where none is yet.
    fn draw(&mut self, class: Class) -> Option<(Place, Mutation)> {
        for _ in 0..DRAWS {
            // Each class is as likely, however seldom what it fits may be.
            let class = match class {
                Class::Random => *self.random.pick(Class::CODE)?,
                class => class,
            };
            for _ in 0..DRAWS {
                let place = *self.random.pick(&self.executed)?;
                let seed = self.random.draw();
                let function = self.image.functions.get(place.function)?;
                let landmarks = &self.image.landmarks;
                let drawn = mutate(&function.code, landmarks, place.offset, class, seed);
                if let Some(mutation) = drawn.filter(|it| self.is_clear(place, it)) {
                    return Some((place, mutation));
                }
            }
        }
        None
    }

    /// Whether no other fault is so close that what was decoded doesn't hold any more.
    fn is_clear(&self, place: Place, mutation: &Mutation) -> bool {
        let end = mutation.range().end.max(place.offset + 1);
        self.touched.iter().all(|(function, range)| {
            *function != place.function
                || end + LONGEST <= range.start
                || range.end + LONGEST <= place.offset
        })
    }

    fn address(&self, place: Place) -> u64 {
        let function = self.image.functions.get(place.function);
        let start = function.map_or(0, |function| function.code.address);
        self.subject.address(start) + place.offset as u64
    }

    /// Lets the process go on until the time comes, or soon after the newest fault was activated.
    fn go_through(&mut self, mut until: Instant) -> Result<Option<End>, InjectError> {
        let newest = self.injections.len().checked_sub(1);
        let is_active = |session: &Self| {
            let newest = newest.and_then(|at| session.injections.get(at));
            newest.is_some_and(|it| it.activated_ms.is_some())
        };
        let mut was_active = false;
        loop {
            if !was_active && is_active(self) {
                was_active = true;
                until = until.min(Instant::now() + PACE);
            }
            let Some(stop) = self.subject.wait(until)? else {
                return Ok(None);
            };
            if let Some(end) = self.react(stop)? {
                return Ok(Some(end));
            }
        }
    }

    /// Does what is to be done when the process has stopped, and lets it go on.
    fn react(&mut self, stop: Stop) -> Result<Option<End>, InjectError> {
        match stop {
            Stop::Ended(ending) => return Ok(Some(self.end(ending))),
            Stop::Asked => self.subject.go_on(None)?,
            Stop::Signal(signal, address) => {
                self.note(address);
                self.subject.go_on(Some(signal))?;
            }
            Stop::Trap(address) => match self.armed.hit(&self.subject, address)? {
                Some((number, place, mutation)) => {
                    self.activate(number, place, &mutation)?;
                    self.subject.go_on(None)?;
                }
                // A fault's own.
                None => {
                    self.note(address);
                    self.subject.go_on(Some(Signal::SIGTRAP))?;
                }
            },
        }
        Ok(None)
    }

    fn activate(
        &mut self,
        number: usize,
        place: Place,
        mutation: &Mutation,
    ) -> Result<(), InjectError> {
        let overrun: Option<(Counter, u64)> = match &mutation.change {
            Change::Bytes { offset, bytes } => {
                let address = self.address(Place {
                    offset: *offset,
                    ..place
                });
                self.armed.write(&self.subject, address, bytes)?;
                None
            }
            Change::Overrun { register, by } => Some((*register, *by)),
        };
        self.subject.go_to(self.address(place), overrun)?;
        let now = self.elapsed_ms();
        if let Some(injection) = self.injections.get_mut(number) {
            injection.activated_ms = Some(now);
        }
        Ok(())
    }

    /// Keeps where a signal came.
    fn note(&mut self, address: u64) {
        let name = self.image.name_at(self.subject.linked(address));
        self.last_signal = name.map(str::to_owned);
    }

    fn end(&mut self, ending: Ending) -> End {
        End {
            after_ms: self.elapsed_ms(),
            ending,
            place: match ending {
                Ending::Signal(_) => self.last_signal.take(),
                Ending::Exit(_) | Ending::Unseen => None,
            },
        }
    }

    /// Lets go of the process, with the faults that were activated in it.
    fn leave(&mut self) -> Result<Option<End>, InjectError> {
        loop {
            match self.subject.stop()? {
                Stop::Ended(ending) => return Ok(Some(self.end(ending))),
                Stop::Asked => {
                    self.armed.clear(&self.subject)?;
                    self.subject.release()?;
                    return Ok(None);
                }
                other => {
                    if let Some(end) = self.react(other)? {
                        return Ok(Some(end));
                    }
                }
            }
        }
    }
}
