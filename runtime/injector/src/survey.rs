//! What a process executes under its load: breakpoints at a sample of its instructions, each taken out when
//! it is hit.
use crate::breakpoints::Breakpoints;
use crate::error::InjectError;
use crate::image::Image;
use crate::mutate::boundaries;
use crate::random::Random;
use crate::trace::{Ending, Stop, Subject};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long the process is watched for the functions that it comes through.
const FUNCTIONS: Duration = Duration::from_millis(400);
/// How long for the instructions of those.
const INSTRUCTIONS: Duration = Duration::from_millis(800);
/// Bytes of a function for which one more instruction is watched at first.
const STEP: usize = 512;
/// Instructions that are watched then.
const SAMPLE: usize = 4_000;
/// Stops at hits take time: no more of them in a row, so that nobody takes the process for hung.
const BURST: usize = 64;
/// What it runs undisturbed then.
const REST: Duration = Duration::from_millis(2);

/// An instruction: which function, and how many bytes from its start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Place {
    pub(crate) function: usize,
    pub(crate) offset: usize,
}

pub(crate) struct Survey<'a> {
    image: &'a Image,
    /// In order, each once.
    pub(crate) executed: Vec<Place>,
}

impl<'a> Survey<'a> {
    pub(crate) fn new(image: &'a Image) -> Survey<'a> {
        Survey {
            image,
            executed: Vec::new(),
        }
    }

    /// Watches a process that runs; it runs afterwards too. Answers how it ended, if it did.
    pub(crate) fn explore(
        &mut self,
        subject: &Subject,
        seed: u64,
    ) -> Result<Option<Ending>, InjectError> {
        let mut random = Random::new(seed ^ 0x5eed);
        let first = self.everywhere(&mut random);
        let mut found = BTreeSet::new();
        if let Some(ending) = self.watch(subject, first, FUNCTIONS, &mut found)? {
            return Ok(Some(ending));
        }
        let functions: BTreeSet<usize> = found.iter().map(|place| place.function).collect();
        let second = self.within(&functions, &mut random);
        let ending = self.watch(subject, second, INSTRUCTIONS, &mut found)?;
        self.executed = found.into_iter().collect();
        Ok(ending)
    }

    /// The start of each function, and some instructions in it, more in a long one.
    fn everywhere(&self, random: &mut Random) -> Vec<Place> {
        let mut places = Vec::new();
        for (function, it) in self.image.functions.iter().enumerate() {
            places.push(Place {
                function,
                offset: 0,
            });
            let all = boundaries(&it.code);
            for _ in 0..=it.code.bytes.len() / STEP {
                let offset = random.pick(&all).copied().unwrap_or(0);
                places.push(Place { function, offset });
            }
        }
        places
    }

    /// A sample of the instructions of some functions, each as likely.
    fn within(&self, functions: &BTreeSet<usize>, random: &mut Random) -> Vec<Place> {
        let mut places = Vec::new();
        for &function in functions {
            if let Some(it) = self.image.functions.get(function) {
                let all = boundaries(&it.code).into_iter();
                places.extend(all.map(|offset| Place { function, offset }));
            }
        }
        while places.len() > SAMPLE {
            let at = random.below(places.len());
            places.swap_remove(at);
        }
        places
    }

    fn watch(
        &self,
        subject: &Subject,
        places: Vec<Place>,
        time: Duration,
        found: &mut BTreeSet<Place>,
    ) -> Result<Option<Ending>, InjectError> {
        let mut probes = Breakpoints::new();
        let places = places.into_iter().filter_map(|place| {
            let function = self.image.functions.get(place.function)?;
            let address = subject.address(function.code.address) + place.offset as u64;
            Some((address, place))
        });
        let mut stop = subject.stop()?;
        if !matches!(stop, Stop::Ended(_)) {
            probes.plant(subject, places.collect())?;
        }
        let until = Instant::now() + time;
        let mut is_last = false;
        for round in 1_usize.. {
            match stop {
                Stop::Ended(ending) => return Ok(Some(ending)),
                Stop::Asked if is_last => break,
                Stop::Asked => subject.go_on(None)?,
                Stop::Signal(signal, _) => subject.go_on(Some(signal))?,
                Stop::Trap(address) => {
                    // All traps are probes: there are no faults yet.
                    found.extend(probes.hit(subject, address)?);
                    subject.go_to(address, None)?;
                    subject.go_on(None)?;
                }
            }
            if round.is_multiple_of(BURST) {
                std::thread::sleep(REST);
            }
            // Once the time is over, whatever it stops for before it has stopped as asked is still heard of.
            stop = match subject.wait(until)? {
                Some(stop) => stop,
                None => {
                    is_last = true;
                    subject.stop()?
                }
            };
        }
        probes.clear(subject)?;
        subject.go_on(None)?;
        Ok(None)
    }
}
