//! The database of requests (NewtOS, section 2.4): what a component asked of its neighbours and has no
//! answer to. Private memory of the requester; it ends with it, and so do the answers it would match.

use std::fmt;

/// No entry.
const NONE: u32 = u32::MAX;
/// Bits of an id that say which entry it is; the others count.
const INDEX_BITS: u32 = 20;

/// Identifies one request. It isn't used again before its entry was used 2^32 times more, and entries
/// are used in turn.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RequestId(u64);

impl RequestId {
    /// What travels in the message.
    pub fn to_wire(self) -> u64 {
        self.0
    }

    /// From an answer: any number is an id, but perhaps of no request.
    pub fn from_wire(value: u64) -> RequestId {
        RequestId(value)
    }

    fn new(generation: u64, index: u32) -> RequestId {
        RequestId(generation << INDEX_BITS | u64::from(index))
    }

    fn index(self) -> usize {
        (self.0 & ((1 << INDEX_BITS) - 1)) as usize
    }
}

/// One of the component's neighbours, by a number that the component chose.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NeighbourId(pub u16);

/// A request that will get no answer: to be issued again under a new id, or given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Aborted<T> {
    /// Its id, which no answer matches any more.
    pub id: RequestId,
    /// Who was asked.
    pub neighbour: NeighbourId,
    /// What the component kept for this.
    pub abort: T,
}

/// There are as many requests as there may be; here is the data back. The component keeps the request
/// until an answer came, or refuses it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestsFull<T>(pub T);

impl<T> fmt::Display for RequestsFull<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("too many requests await an answer")
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    Awaited,
    Aborted,
}

struct Entry<T> {
    generation: u64,
    state: State,
    neighbour: NeighbourId,
    /// In the list that its state says: free entries, those of the neighbour, or aborted ones.
    next: u32,
    previous: u32,
    abort: Option<T>,
}

/// Both ends of a list of entries.
#[derive(Clone, Copy)]
struct List {
    first: u32,
    last: u32,
}

impl List {
    const EMPTY: List = List {
        first: NONE,
        last: NONE,
    };
}

/// What a component asked and awaits: for each request its id, whom it asked, and what to do if that
/// neighbour dies. Every operation takes constant time and no memory.
pub struct RequestDatabase<T> {
    entries: Vec<Entry<T>>,
    free: List,
    aborted: List,
    neighbours: Vec<List>,
    awaited: u32,
    ignored: u64,
}

impl<T> RequestDatabase<T> {
    /// Most requests that a database can hold.
    pub const MAXIMUM: u32 = 1 << INDEX_BITS;

    /// For at most `capacity` requests at a time (no more than [`RequestDatabase::MAXIMUM`]) to
    /// `neighbours` neighbours, numbered from 0. `incarnation` counts the restarts of the component, so
    /// that answers to its predecessor match nothing.
    pub fn new(capacity: u32, neighbours: u16, incarnation: u16) -> RequestDatabase<T> {
        let capacity = capacity.min(Self::MAXIMUM);
        let mut database = RequestDatabase {
            entries: Vec::with_capacity(capacity as usize),
            free: List::EMPTY,
            aborted: List::EMPTY,
            neighbours: vec![List::EMPTY; usize::from(neighbours)],
            awaited: 0,
            ignored: 0,
        };
        for index in 0..capacity {
            database.entries.push(Entry {
                // 12 bits of incarnation, 32 that count. Not 0: no id is all zeros.
                generation: u64::from(incarnation & 0xfff) << 32 | 1,
                state: State::Free,
                neighbour: NeighbourId(0),
                next: NONE,
                previous: NONE,
                abort: None,
            });
            append(&mut database.entries, &mut database.free, index);
        }
        database
    }

    /// Remembers a request to `neighbour`, and answers the id to send with it. `abort` comes back with
    /// the answer, or if the neighbour dies.
    ///
    /// # Errors
    /// [`RequestsFull`] with `abort`, also if there is no such neighbour.
    pub fn issue(
        &mut self,
        neighbour: NeighbourId,
        abort: T,
    ) -> Result<RequestId, RequestsFull<T>> {
        let index = self.free.first;
        let Some(list) = self.neighbours.get_mut(usize::from(neighbour.0)) else {
            return Err(RequestsFull(abort));
        };
        if index == NONE {
            return Err(RequestsFull(abort));
        }
        remove(&mut self.entries, &mut self.free, index);
        append(&mut self.entries, list, index);
        let entry = &mut self.entries[index as usize];
        entry.state = State::Awaited;
        entry.neighbour = neighbour;
        entry.abort = Some(abort);
        self.awaited += 1;
        Ok(RequestId::new(entry.generation, index))
    }

    /// Takes the request that `neighbour` answered. `None` if there is none: the answer is late, a
    /// repetition or made up, and is counted and to be ignored.
    pub fn complete(&mut self, id: RequestId, neighbour: NeighbourId) -> Option<T> {
        let entry = self.entries.get(id.index());
        let matches = entry.is_some_and(|entry| {
            entry.state == State::Awaited
                && entry.neighbour == neighbour
                && RequestId::new(entry.generation, id.index() as u32) == id
        });
        let list = self.neighbours.get_mut(usize::from(neighbour.0));
        let (true, Some(list)) = (matches, list) else {
            self.ignored = self.ignored.wrapping_add(1);
            return None;
        };
        let index = id.index() as u32;
        remove(&mut self.entries, list, index);
        self.awaited -= 1;
        self.release(index)
    }

    /// A neighbour died: no answer matches its requests any more, and [`RequestDatabase::poll_aborted`]
    /// hands them out, the oldest first. Answers how many there are. Takes constant time for each.
    pub fn abort_all(&mut self, neighbour: NeighbourId) -> u32 {
        self.abort_while(neighbour, |_| true)
    }

    /// As [`RequestDatabase::abort_all`], from the oldest request on up to the first that `is_lost` denies: that one and those after it
    /// are still awaited, of a successor of the neighbour.
    pub fn abort_while(&mut self, neighbour: NeighbourId, is_lost: impl Fn(&T) -> bool) -> u32 {
        let Some(list) = self.neighbours.get_mut(usize::from(neighbour.0)) else {
            return 0;
        };
        let mut count = 0;
        while let Some(entry) = self.entries.get(list.first as usize)
            && entry.abort.as_ref().is_none_or(&is_lost)
        {
            let index = list.first;
            remove(&mut self.entries, list, index);
            append(&mut self.entries, &mut self.aborted, index);
            self.entries[index as usize].state = State::Aborted;
            count += 1;
        }
        self.awaited -= count;
        count
    }

    /// The next aborted request. Its place is free at once, so it can be issued again under a new id,
    /// even to the same neighbour.
    pub fn poll_aborted(&mut self) -> Option<Aborted<T>> {
        let index = self.aborted.first;
        let entry = self.entries.get(index as usize)?;
        let (id, neighbour) = (RequestId::new(entry.generation, index), entry.neighbour);
        remove(&mut self.entries, &mut self.aborted, index);
        self.release(index).map(|abort| Aborted {
            id,
            neighbour,
            abort,
        })
    }

    /// Frees an entry that is in no list. It comes last, so that its place isn't used again soon.
    fn release(&mut self, index: u32) -> Option<T> {
        let entry = &mut self.entries[index as usize];
        // The upper bits are the incarnation's.
        let count = (entry.generation as u32).wrapping_add(1).max(1);
        entry.generation = entry.generation >> 32 << 32 | u64::from(count);
        entry.state = State::Free;
        let abort = entry.abort.take();
        append(&mut self.entries, &mut self.free, index);
        abort
    }

    /// How many requests await an answer.
    pub fn awaited(&self) -> u32 {
        self.awaited
    }

    /// How many answers matched no request.
    pub fn ignored(&self) -> u64 {
        self.ignored
    }
}

/// Puts an entry that is in no list at the end of one.
fn append<T>(entries: &mut [Entry<T>], list: &mut List, index: u32) {
    let last = list.last;
    let entry = &mut entries[index as usize];
    (entry.next, entry.previous) = (NONE, last);
    match last {
        NONE => list.first = index,
        last => entries[last as usize].next = index,
    }
    list.last = index;
}

/// Takes an entry out of the list that it is in.
fn remove<T>(entries: &mut [Entry<T>], list: &mut List, index: u32) {
    let (next, previous) = {
        let entry = &entries[index as usize];
        (entry.next, entry.previous)
    };
    match previous {
        NONE => list.first = next,
        previous => entries[previous as usize].next = next,
    }
    match next {
        NONE => list.last = previous,
        next => entries[next as usize].previous = previous,
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
