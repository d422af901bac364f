//! When a host's stack dies in the midst of its work, and what a successor then finds: the records as
//! they were at that moment, and what was in the rings. What the stack does between its death and its
//! caller's return, since it can't be stopped, is seen by nobody.

use skink_memory::{Mapping, Region, SocketKind};
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
    /// Dead, and so the memory was.
    found: Option<Vec<Found>>,
    memory: Vec<Memory>,
}

/// A region, and all of it as words.
struct Memory {
    region: Region,
    records: Mapping,
    rings: Mapping,
}

/// What a successor finds in a region.
struct Found {
    records: Vec<u64>,
    /// The words of the rings that matter, by their places: a slot that the stack frees after its death
    /// may lose its bytes, or be given out again.
    rings: Vec<(usize, u64)>,
}

/// The programs' ends of a slot's rings, before all rings.
const POSITION_WORDS: usize = 128 / 8;

impl Memory {
    fn of(region: &Region) -> Memory {
        let rings = region.rings_fd().try_clone_to_owned();
        Memory {
            region: region.clone(),
            records: map(region),
            rings: Mapping::from_fd(rings.expect("a descriptor")).expect("memory that is there"),
        }
    }

    fn copy(&self) -> Found {
        let words = self.records.words().iter();
        let places = self.places();
        let ring_words = self.rings.words();
        Found {
            records: words.map(|word| word.load(Relaxed)).collect(),
            rings: places
                .into_iter()
                .map(|place| (place, ring_words[place].load(Relaxed)))
                .collect(),
        }
    }

    /// Where the words are that hold the ends of rings in use, or what is in them.
    fn places(&self) -> Vec<usize> {
        let mut places = Vec::new();
        let config = self.region.config();
        let slot_words = (config.send_bytes + config.receive_bytes) as usize / 8;
        // From the end, since a record that was spoilt doesn't say.
        let rings_end = self.rings.words().len();
        for slot in 0..self.region.used() {
            let record = self.region.record(slot);
            if record.kind() == SocketKind::Free {
                continue;
            }
            let first = slot as usize * POSITION_WORDS;
            places.extend(first..first + POSITION_WORDS);
            let send_first = rings_end - (config.sockets - slot) as usize * slot_words;
            let receive_first = send_first + config.send_bytes as usize / 8;
            let send = (self.region.send_ring(slot), send_first);
            let receive = (self.region.receive_ring(slot), receive_first);
            for (ring, first) in [send, receive] {
                let words = ring.capacity() / 8;
                let start = ring.head() as usize % ring.capacity();
                let kept = start / 8..(start + ring.len()).div_ceil(8);
                places.extend(kept.map(|word| first + word % words));
            }
        }
        places
    }

    fn restore(&self, found: Found) {
        for (place, word) in self.records.words().iter().zip(found.records) {
            place.store(word, Relaxed);
        }
        for (place, word) in found.rings {
            self.rings.words()[place].store(word, Relaxed);
        }
    }
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
        self.lock().memory = regions.map(Memory::of).collect();
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
        let found = state.memory.iter().map(Memory::copy).collect();
        state.found = Some(found);
        true
    }

    /// Whether the stack is dead.
    pub fn is_dead(&self) -> bool {
        self.lock().found.is_some()
    }

    /// Makes the memory what it was when the stack died, for its successor. Answers whether it had.
    pub fn settle(&self) -> bool {
        let mut state = self.lock();
        let Some(found) = state.found.take() else {
            return false;
        };
        for (memory, found) in state.memory.iter().zip(found) {
            memory.restore(found);
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
