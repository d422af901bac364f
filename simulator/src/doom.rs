//! When a host's stack dies in the midst of its work, and what a successor then finds: the records as
//! they were at that moment. What the stack does between its death and its caller's return, since it
//! can't be stopped, is seen by nobody.

use skink_memory::{Mapping, Region};
use skink_messages::Ports;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard};

#[derive(Default)]
struct State {
    /// Frames sent, and ports used or given back, until death.
    countdown: Option<u64>,
    /// How many there were in all.
    acts: u64,
    /// The stack works on its own: in the midst of a program's call it doesn't die, since nobody here
    /// would repeat the call.
    works: bool,
    /// Dead, and so the records were.
    found: Option<Vec<Vec<u64>>>,
    records: Vec<Mapping>,
}

/// A host's fate, shared by all that its stack acts on.
#[derive(Clone, Default)]
pub struct Doom(Arc<Mutex<State>>);

impl Doom {
    fn lock(&self) -> MutexGuard<'_, State> {
        // One thread only; a poisoned lock means that a panic is on its way up already.
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The memory that outlives the stack.
    pub fn watch<'a>(&self, regions: impl Iterator<Item = &'a Region>) {
        self.lock().records = regions.map(map).collect();
    }

    /// The stack dies at its `acts`th act from now on.
    pub fn arm(&self, acts: u64) {
        self.lock().countdown = Some(acts.max(1));
    }

    /// It doesn't any more.
    pub fn disarm(&self) {
        self.lock().countdown = None;
    }

    /// The stack begins to work on its own, or has ended it.
    pub fn set_works(&self, works: bool) {
        self.lock().works = works;
    }

    /// How many acts there were.
    pub fn acts(&self) -> u64 {
        self.lock().acts
    }

    /// The stack has done something that others can see. Answers whether it died of that.
    pub fn act(&self) -> bool {
        let mut state = self.lock();
        if state.found.is_some() || !state.works {
            return false;
        }
        state.acts += 1;
        let Some(left) = state.countdown.as_mut() else {
            return false;
        };
        *left -= 1;
        if *left > 0 {
            return false;
        }
        state.countdown = None;
        let records = state.records.iter();
        let found = records.map(|records| {
            let words = records.words().iter();
            words.map(|word| word.load(Relaxed)).collect()
        });
        state.found = Some(found.collect());
        true
    }

    /// Whether the stack is dead.
    pub fn is_dead(&self) -> bool {
        self.lock().found.is_some()
    }

    /// Makes the records what they were when the stack died, for its successor. Answers whether it had.
    pub fn settle(&self) -> bool {
        let mut state = self.lock();
        let Some(found) = state.found.take() else {
            return false;
        };
        for (records, words) in state.records.iter().zip(found) {
            for (place, word) in records.words().iter().zip(words) {
                place.store(word, Relaxed);
            }
        }
        true
    }
}

/// A region's records, for writing what no stack would write.
pub fn map(region: &Region) -> Mapping {
    let fd = region.records_fd().try_clone_to_owned();
    Mapping::from_fd(fd.expect("a descriptor")).expect("memory that is there")
}

/// A port table of which each use is an act.
pub struct DoomedPorts(pub Doom);

impl Ports for DoomedPorts {
    fn use_port(&mut self, _protocol: u8, _port: u16, _exclusive: bool) -> bool {
        self.0.act();
        true
    }
    fn release_port(&mut self, _protocol: u8, _port: u16) {
        self.0.act();
    }
    fn listen(&mut self, _protocol: u8, _port: u16) {
        self.0.act();
    }
    fn unlisten(&mut self, _protocol: u8, _port: u16) {
        self.0.act();
    }
}
