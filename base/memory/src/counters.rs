use crate::Mapping;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An array of counters in shared memory: one process adds, others read while it does.
#[derive(Clone)]
pub struct CounterBlock {
    mapping: Arc<Mapping>,
    count: usize,
}

impl CounterBlock {
    /// `count` counters, all zero.
    pub fn create(count: usize) -> io::Result<CounterBlock> {
        let mapping = Arc::new(Mapping::create("skink-counters", count * 8)?);
        Ok(CounterBlock { mapping, count })
    }

    /// Counters that another process made, to go on counting with.
    pub fn open(fd: OwnedFd) -> io::Result<CounterBlock> {
        let mapping = Arc::new(Mapping::from_fd(fd)?);
        let count = mapping.len() / 8;
        Ok(CounterBlock { mapping, count })
    }

    /// Counters of another process, for reading.
    pub fn open_read_only(fd: OwnedFd) -> io::Result<CounterBlock> {
        let mapping = Arc::new(Mapping::from_fd_read_only(fd)?);
        let count = mapping.len() / 8;
        Ok(CounterBlock { mapping, count })
    }

    /// The memfd, to be handed to a reader.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.mapping.fd()
    }

    /// How many counters there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds to counter `index`; an index out of range is ignored. Only one thread at a time may
    /// add (there is no locked instruction here): the owner of the component that counts.
    #[inline]
    pub fn add(&self, index: usize, amount: u64) {
        if index < self.count {
            let counter = self.mapping.atomics::<AtomicU64>(index * 8);
            let value = counter.load(Ordering::Relaxed);
            counter.store(value.wrapping_add(amount), Ordering::Relaxed);
        }
    }

    /// Counter `index` as it is now, zero if there is no such counter.
    pub fn get(&self, index: usize) -> u64 {
        if index < self.count {
            let counter = self.mapping.atomics::<AtomicU64>(index * 8);
            counter.load(Ordering::Relaxed)
        } else {
            0
        }
    }
}
