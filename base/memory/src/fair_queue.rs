use crate::SocketTable;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// What a program that is alone is given in its turn, in bytes: so much that nearly always each of its sockets has its turn, since it
/// holds up nobody else.
const LONG_TURN: u64 = 8 * 1024 * 1024;

/// Sockets of a [`SocketTable`] that have something to send, in an order that is fair to programs, whatever number of sockets
/// each has: next is the first socket of the program that has been given least. Private to the owner of the table.
///
/// This is start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996), with regions for flows and all weights equal: a program
/// that sends seldom is next at once, and one that was idle has saved up nothing. Constant time while one program is served,
/// and the logarithm of the number of programs that wait when it is another's turn.
#[derive(Debug)]
pub struct FairQueue {
    /// Logarithm of the table's stride.
    shift: u32,
    /// By the region's index.
    programs: Vec<Program>,
    /// The region that is served, if it is entered.
    served: Option<u32>,
    /// The others that are entered, with what they had been given when that was last looked at.
    order: BinaryHeap<Reverse<(u64, u32)>>,
    /// What the program that was served last had been given before.
    now: u64,
    len: usize,
}

#[derive(Clone, Debug, Default)]
struct Program {
    waiting: VecDeque<u32>,
    given: u64,
    /// It is served, or in the order; it may have no socket left.
    is_entered: bool,
}

impl FairQueue {
    /// For the sockets of `table`, none of which waits.
    pub fn new(table: &SocketTable) -> FairQueue {
        FairQueue {
            shift: table.stride().trailing_zeros(),
            programs: Vec::new(),
            served: None,
            order: BinaryHeap::new(),
            now: 0,
            len: 0,
        }
    }

    /// What an owner sends in one poll where there are several programs, in bytes, so that what arrives meanwhile doesn't wait for
    /// long: others' requests are answered, and who has more to send goes on with the next one. Two large packets of a connection, or a dozen
    /// datagrams.
    pub const TURN: u64 = 72 * 1024;

    /// What a packet costs besides its bytes, in bytes of a large packet: less than where the kernel passes it on while it is sent (11 KiB on
    /// a virtual link), and more than where it is put into a queue (docs/decisions/0026).
    pub const PACKET: u64 = 4 * 1024;

    /// What it costs to look at a socket, in bytes.
    pub const VISIT: u64 = 1024;

    /// How much the owner of `table` serves in one poll: once so much was charged, the rest waits for the next one.
    #[inline]
    pub fn turn(table: &SocketTable) -> u64 {
        match table.is_shared() {
            true => FairQueue::TURN,
            false => LONG_TURN,
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
        self.len += 1;
        let now = self.now;
        let served = self.served.is_some();
        let program = self.program(region as usize);
        if program.waiting.is_empty() {
            program.given = program.given.max(now);
        }
        let given = program.given;
        if !std::mem::replace(&mut program.is_entered, true) {
            match served {
                true => self.order.push(Reverse((given, region))),
                false => self.served = Some(region),
            }
        }
        &mut self.programs[region as usize]
    }

    fn program(&mut self, index: usize) -> &mut Program {
        if index >= self.programs.len() {
            self.programs.resize_with(index + 1, Program::default);
        }
        &mut self.programs[index]
    }

    /// Takes the next socket. What it then costs is to be told with [`FairQueue::charge`].
    #[inline]
    pub fn take(&mut self) -> Option<u32> {
        loop {
            let region = self.served.or_else(|| self.next())?;
            let next = self.order.peek();
            let program = self.programs.get_mut(region as usize)?;
            if next.is_some_and(|Reverse((given, _))| *given < program.given) {
                // The other's is read anew there.
                self.order.push(Reverse((program.given, region)));
                self.served = self.next();
            } else if let Some(slot) = program.waiting.pop_front() {
                self.served = Some(region);
                self.now = program.given;
                self.len -= 1;
                return Some(slot);
            } else {
                program.is_entered = false;
                self.served = None;
            }
        }
    }

    /// Takes the first program out of the order.
    fn next(&mut self) -> Option<u32> {
        loop {
            let Reverse((given, region)) = self.order.pop()?;
            let program = self.programs.get(region as usize)?;
            if program.given <= given {
                return Some(region);
            }
            // Its place is further behind by now.
            self.order.push(Reverse((program.given, region)));
        }
    }

    /// Its program was given so much through this socket, which was taken, or served without having waited. The unit is any that
    /// is the same for all.
    #[inline]
    pub fn charge(&mut self, slot: u32, cost: u64) {
        let now = self.now;
        let program = self.program((slot >> self.shift) as usize);
        let before = program.given.max(now);
        program.given = before.saturating_add(cost);
        if self.len == 0 {
            // Time passes also while none waits, or who never does would have to pay for all that once another one does.
            self.now = before;
        }
    }
}

#[cfg(test)]
mod tests;
