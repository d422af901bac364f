use crate::SocketTable;
use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, VecDeque};

/// Sockets of a [`SocketTable`] that have something to send, in an order that is fair to programs, whatever number of sockets
/// each has: next is the first socket of the program that has been given least. Private to the owner of the table.
///
/// This is start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996), with regions for flows and all weights equal: a program
/// that sends seldom is next at once, and one that was idle has saved up nothing. Constant time for one program; for each of
/// several the logarithm of their number.
#[derive(Debug)]
pub struct FairQueue {
    /// Logarithm of the table's stride.
    shift: u32,
    /// By the region's index.
    programs: Vec<Program>,
    /// Regions whose sockets wait, with what they had been given when they were entered. One may be here that has none left.
    order: BinaryHeap<Reverse<(u64, u32)>>,
    /// What the program that is served had been given before.
    now: u64,
    len: usize,
}

#[derive(Clone, Debug, Default)]
struct Program {
    waiting: VecDeque<u32>,
    given: u64,
    is_entered: bool,
}

impl FairQueue {
    /// For the sockets of `table`, none of which waits.
    pub fn new(table: &SocketTable) -> FairQueue {
        FairQueue {
            shift: table.stride().trailing_zeros(),
            programs: Vec::new(),
            order: BinaryHeap::new(),
            now: 0,
            len: 0,
        }
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether this one waits. Looks at all.
    pub fn contains(&self, slot: u32) -> bool {
        let program = self.programs.get((slot >> self.shift) as usize);
        program.is_some_and(|program| program.waiting.contains(&slot))
    }

    /// Puts a socket behind all others of its program.
    #[inline]
    pub fn push(&mut self, slot: u32) {
        self.enter(slot).waiting.push_back(slot);
    }

    /// Puts a socket that was taken, and couldn't be served, before all others of its program.
    pub fn put_back(&mut self, slot: u32) {
        self.enter(slot).waiting.push_front(slot);
    }

    fn enter(&mut self, slot: u32) -> &mut Program {
        let region = slot >> self.shift;
        let index = region as usize;
        if index >= self.programs.len() {
            self.programs.resize_with(index + 1, Program::default);
        }
        self.len += 1;
        let program = &mut self.programs[index];
        if !program.is_entered {
            program.is_entered = true;
            program.given = program.given.max(self.now);
            self.order.push(Reverse((program.given, region)));
        }
        program
    }

    /// Takes the next socket. What it then costs is to be told with [`FairQueue::charge`].
    #[inline]
    pub fn take(&mut self) -> Option<u32> {
        loop {
            let mut first = self.order.peek_mut()?;
            let Reverse((given, region)) = *first;
            let program = self.programs.get_mut(region as usize)?;
            if program.given > given {
                // Its place is further behind by now.
                *first = Reverse((program.given, region));
            } else if let Some(slot) = program.waiting.pop_front() {
                self.now = given;
                self.len -= 1;
                return Some(slot);
            } else {
                program.is_entered = false;
                PeekMut::pop(first);
            }
        }
    }

    /// Its program was given so much through this socket, in any unit that is the same for all.
    #[inline]
    pub fn charge(&mut self, slot: u32, cost: u64) {
        if let Some(program) = self.programs.get_mut((slot >> self.shift) as usize) {
            program.given = program.given.saturating_add(cost);
        }
    }
}

#[cfg(test)]
mod tests;
