use crate::Mapping;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// An array of counters in shared memory: one process adds, others read while it does.
#[derive(Clone)]
pub struct CounterBlock {
    mapping: Arc<Mapping>,
}

impl CounterBlock {
    /// `count` counters, all zero.
    pub fn create(count: usize) -> io::Result<CounterBlock> {
        let mapping = Arc::new(Mapping::create("skink-counters", count * 8)?);
        Ok(CounterBlock { mapping })
    }

    /// Counters that another process made, to go on counting with.
    pub fn open(fd: OwnedFd) -> io::Result<CounterBlock> {
        let mapping = Arc::new(Mapping::from_fd(fd)?);
        Ok(CounterBlock { mapping })
    }

    /// Counters of another process, for reading.
    pub fn open_read_only(fd: OwnedFd) -> io::Result<CounterBlock> {
        let mapping = Arc::new(Mapping::from_fd_read_only(fd)?);
        Ok(CounterBlock { mapping })
    }

    /// The memfd, to be handed to a reader.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.mapping.fd()
    }

    /// How many counters there are.
    pub fn len(&self) -> usize {
        self.mapping.words().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds to counter `index`; an index out of range is ignored. Only one thread at a time may
    /// add (there is no locked instruction here): the owner of the component that counts.
    #[inline]
    pub fn add(&self, index: usize, amount: u64) {
        if let Some(counter) = self.mapping.words().get(index) {
            let value = counter.load(Ordering::Relaxed);
            counter.store(value.wrapping_add(amount), Ordering::Relaxed);
        }
    }

    /// Counter `index` as it is now, zero if there is no such counter.
    pub fn get(&self, index: usize) -> u64 {
        let counter = self.mapping.words().get(index);
        counter.map_or(0, |counter| counter.load(Ordering::Relaxed))
    }
}
