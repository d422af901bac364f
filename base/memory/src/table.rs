#![allow(unsafe_code, reason = "raw pointers into shared memory")]
use crate::mapping::{Atomics, Mapping};
use crate::record::{LAYOUT_VERSION, Record, SocketKind};
use crate::ring::Ring;
use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const MAGIC: u32 = 0x534b_4e4b;
const HEADER_BYTES: usize = 4096;
const PAGE: usize = 4096;

/// Names one socket of one component: a slot of its table, and how often that had been given out.
/// An id that outlived its socket is noticed by its generation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct SocketId {
    /// Index into the table.
    pub slot: u32,
    /// The slot's generation when the socket was opened.
    pub generation: u32,
}

/// How large a table is.
#[derive(Clone, Copy, Debug)]
pub struct TableConfig {
    /// Number of slots.
    pub sockets: u32,
    /// Size of each send ring in bytes: a power of two, at least a page.
    pub send_bytes: u32,
    /// Size of each receive ring in bytes, likewise.
    pub receive_bytes: u32,
}

/// Why a table can't be made or opened.
#[derive(Debug)]
pub enum TableError {
    /// Ring sizes must be powers of two and at least a page (4096 bytes).
    BadRingSize,
    /// The memory isn't a socket table, or not of this version.
    NotATable,
    /// The system refused the memory.
    Memory(io::Error),
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TableError::BadRingSize => {
                write!(
                    f,
                    "ring sizes must be powers of two of at least {PAGE} bytes"
                )
            }
            TableError::NotATable => write!(
                f,
                "the memory is not a socket table of layout version {LAYOUT_VERSION}"
            ),
            TableError::Memory(error) => write!(f, "no memory for a socket table: {error}"),
        }
    }
}

impl std::error::Error for TableError {}

#[repr(C)]
struct Header {
    magic: AtomicU32,
    version: AtomicU32,
    sockets: AtomicU32,
    send_bytes: AtomicU32,
    receive_bytes: AtomicU32,
    /// One past the highest slot ever used: readers need look no further.
    used: AtomicU32,
    _reserved: AtomicU64,
}

// SAFETY: only atomics.
unsafe impl Atomics for Header {}

/// The sockets of one component in shared memory: a header page, the records, then for each slot a
/// send ring and a receive ring. Pages are taken as they are touched.
///
/// The owner (one `tcp` or `udp` instance) gives slots out and takes them back; it must be the only
/// one that does. The other side of a socket uses [`SocketTable::send_ring`] as producer and
/// [`SocketTable::receive_ring`] as consumer.
#[derive(Clone)]
pub struct SocketTable {
    mapping: Arc<Mapping>,
    config: TableConfig,
}

impl SocketTable {
    /// Makes an empty table.
    pub fn create(name: &str, config: TableConfig) -> Result<SocketTable, TableError> {
        let good = |bytes: u32| bytes.is_power_of_two() && bytes as usize >= PAGE;
        if !good(config.send_bytes) || !good(config.receive_bytes) {
            return Err(TableError::BadRingSize);
        }
        let mapping =
            Mapping::create(name, Self::total_bytes(&config)).map_err(TableError::Memory)?;
        let table = SocketTable {
            mapping: Arc::new(mapping),
            config,
        };
        let header = table.header();
        header.version.store(LAYOUT_VERSION, Ordering::Relaxed);
        header.sockets.store(config.sockets, Ordering::Relaxed);
        header
            .send_bytes
            .store(config.send_bytes, Ordering::Relaxed);
        header
            .receive_bytes
            .store(config.receive_bytes, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        Ok(table)
    }

    /// Opens a table that another process made, for reading.
    pub fn open_read_only(fd: OwnedFd) -> Result<SocketTable, TableError> {
        Self::check(Mapping::from_fd_read_only(fd).map_err(TableError::Memory)?)
    }

    /// Opens a table that another process made.
    pub fn open(fd: OwnedFd) -> Result<SocketTable, TableError> {
        Self::check(Mapping::from_fd(fd).map_err(TableError::Memory)?)
    }

    fn check(mapping: Mapping) -> Result<SocketTable, TableError> {
        if mapping.len() < HEADER_BYTES {
            return Err(TableError::NotATable);
        }
        let header = mapping.atomics::<Header>(0);
        let config = TableConfig {
            sockets: header.sockets.load(Ordering::Relaxed),
            send_bytes: header.send_bytes.load(Ordering::Relaxed),
            receive_bytes: header.receive_bytes.load(Ordering::Relaxed),
        };
        let good = header.magic.load(Ordering::Acquire) == MAGIC
            && header.version.load(Ordering::Relaxed) == LAYOUT_VERSION
            && config.send_bytes.is_power_of_two()
            && config.receive_bytes.is_power_of_two()
            && mapping.len() == Self::total_bytes(&config);
        if !good {
            return Err(TableError::NotATable);
        }
        Ok(SocketTable {
            mapping: Arc::new(mapping),
            config,
        })
    }

    fn records_bytes(config: &TableConfig) -> usize {
        (config.sockets as usize * size_of::<Record>()).next_multiple_of(PAGE)
    }

    fn total_bytes(config: &TableConfig) -> usize {
        let rings = config.send_bytes as usize + config.receive_bytes as usize;
        HEADER_BYTES + Self::records_bytes(config) + config.sockets as usize * rings
    }

    fn header(&self) -> &Header {
        self.mapping.atomics::<Header>(0)
    }

    /// The memfd, to be handed to another process.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.mapping.fd()
    }

    /// How large the table is.
    pub fn config(&self) -> TableConfig {
        self.config
    }

    /// One past the highest slot that was ever in use.
    pub fn used(&self) -> u32 {
        let used = self.header().used.load(Ordering::Acquire);
        used.min(self.config.sockets)
    }

    /// The record in `slot`.
    ///
    /// # Panics
    /// If there is no such slot; take slots from [`SocketTable::find`] or the owner.
    #[inline]
    pub fn record(&self, slot: u32) -> &Record {
        assert!(slot < self.config.sockets);
        self.mapping
            .atomics(HEADER_BYTES + slot as usize * size_of::<Record>())
    }

    /// The record that `id` names, unless its socket is gone.
    pub fn find(&self, id: SocketId) -> Option<&Record> {
        if id.slot >= self.config.sockets {
            return None;
        }
        let record = self.record(id.slot);
        let current = record.generation.load(Ordering::Acquire) == id.generation;
        (current && record.kind() != SocketKind::Free).then_some(record)
    }

    /// The ring of `slot` that the program fills and the component sends from.
    #[inline]
    pub fn send_ring(&self, slot: u32) -> Ring<'_> {
        let bytes = self.config.send_bytes as usize;
        let at = self.mapping.span(self.rings_offset(slot), bytes);
        // SAFETY: the span was checked, is this slot's own, and lives as long as `self`.
        unsafe { Ring::new(&self.record(slot).send, at, bytes) }
    }

    /// The ring of `slot` that the component fills and the program reads from.
    #[inline]
    pub fn receive_ring(&self, slot: u32) -> Ring<'_> {
        let bytes = self.config.receive_bytes as usize;
        let offset = self.rings_offset(slot) + self.config.send_bytes as usize;
        let at = self.mapping.span(offset, bytes);
        // SAFETY: as above.
        unsafe { Ring::new(&self.record(slot).receive, at, bytes) }
    }

    fn rings_offset(&self, slot: u32) -> usize {
        let each = self.config.send_bytes as usize + self.config.receive_bytes as usize;
        HEADER_BYTES + Self::records_bytes(&self.config) + slot as usize * each
    }

    /// Owner: begins a socket's life in `slot` with empty rings.
    pub fn open_slot(&self, slot: u32, kind: SocketKind) -> SocketId {
        let record = self.record(slot);
        record.clear();
        let rings = self.rings_offset(slot) as u64;
        let send_bytes = u64::from(self.config.send_bytes);
        record.send_offset.store(rings, Ordering::Relaxed);
        record
            .receive_offset
            .store(rings + send_bytes, Ordering::Relaxed);
        let generation = record.generation.load(Ordering::Relaxed).wrapping_add(1);
        record.generation.store(generation, Ordering::Release);
        record.set_kind(kind);
        let used = self.used().max(slot + 1);
        self.header().used.store(used, Ordering::Release);
        SocketId { slot, generation }
    }

    /// Owner: ends the socket's life, and gives back the memory of rings that had grown.
    pub fn close_slot(&self, slot: u32) {
        let record = self.record(slot);
        record.set_kind(SocketKind::Free);
        let touched = |tail: u64, bytes: u32| tail.min(u64::from(bytes)) as usize;
        let rings = self.rings_offset(slot);
        let sent = touched(self.send_ring(slot).tail(), self.config.send_bytes);
        let received = touched(self.receive_ring(slot).tail(), self.config.receive_bytes);
        if sent > KEEP_BYTES {
            self.mapping.discard(rings, sent.next_multiple_of(PAGE));
        }
        if received > KEEP_BYTES {
            let offset = rings + self.config.send_bytes as usize;
            self.mapping
                .discard(offset, received.next_multiple_of(PAGE));
        }
    }
}

/// A closed socket's ring keeps up to this many bytes of memory for the slot's next socket.
const KEEP_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests;
