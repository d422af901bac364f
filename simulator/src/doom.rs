//! When a host's stack dies in the midst of its work, and what a successor then finds: the records as
//! they were at that moment, and what was in the rings. What the stack does between its death and its
//! caller's return, since it can't be stopped, is seen by nobody.

use skink_memory::{Mapping, Region, SocketKind};
use skink_messages::Ports;
use std::os::fd::BorrowedFd;
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
    send_rings: Mapping,
    receive_rings: Mapping,
}

/// What a successor finds in a region.
struct Found {
    records: Vec<u64>,
    /// The words of the send rings that matter, and of the receive rings, by their places: a slot that the stack frees
    /// after its death may lose its bytes, or be given out again.
    rings: [Vec<(usize, u64)>; 2],
}

/// The program's ends of a slot's rings, before all send rings.
const POSITION_WORDS: usize = 128 / 8;

impl Memory {
    fn of(region: &Region) -> Memory {
        let [records, send_rings, receive_rings] = region.files().map(map_file);
        Memory {
            region: region.clone(),
            records,
            send_rings,
            receive_rings,
        }
    }

    fn copy(&self) -> Found {
        let words = self.records.words().iter();
        let [send, receive] = self.places();
        let copy = |rings: &Mapping, places: Vec<usize>| {
            let words = rings.words();
            let places = places.into_iter();
            places
                .map(|place| (place, words[place].load(Relaxed)))
                .collect()
        };
        Found {
            records: words.map(|word| word.load(Relaxed)).collect(),
            rings: [
                copy(&self.send_rings, send),
                copy(&self.receive_rings, receive),
            ],
        }
    }

    /// Where the words are that hold the ends of rings in use, or what is in them: in the memory of send rings, and in that of
    /// receive rings.
    fn places(&self) -> [Vec<usize>; 2] {
        let (mut send, mut receive) = (Vec::new(), Vec::new());
        let sockets = self.region.config().sockets as usize;
        for slot in 0..self.region.used() {
            let record = self.region.record(slot);
            if record.kind() == SocketKind::Free {
                continue;
            }
            let first = slot as usize * POSITION_WORDS;
            send.extend(first..first + POSITION_WORDS);
            for (ring, memory, places) in [
                (self.region.send_ring(slot), &self.send_rings, &mut send),
                (
                    self.region.receive_ring(slot),
                    &self.receive_rings,
                    &mut receive,
                ),
            ] {
                // From the end, since a record that was spoilt doesn't say.
                let first =
                    memory.words().len() - (sockets - slot as usize) * (ring.capacity() / 8);
                let start = ring.index(ring.head());
                let kept = start / 8..(start + ring.len()).div_ceil(8);
                places.extend(kept.map(|word| first + word % (ring.size() / 8)));
            }
        }
        [send, receive]
    }

    fn restore(&self, found: Found) {
        for (place, word) in self.records.words().iter().zip(found.records) {
            place.store(word, Relaxed);
        }
        for (memory, words) in [&self.send_rings, &self.receive_rings]
            .into_iter()
            .zip(found.rings)
        {
            for (place, word) in words {
                memory.words()[place].store(word, Relaxed);
            }
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
    let [records, _, _] = region.files();
    map_file(records)
}

fn map_file(file: BorrowedFd<'_>) -> Mapping {
    let fd = file.try_clone_to_owned().expect("a descriptor");
    Mapping::from_fd(fd).expect("memory that is there")
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
