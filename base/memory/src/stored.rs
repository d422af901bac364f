#![allow(unsafe_code, reason = "atomics in shared memory")]
use crate::mapping::{Atomics, Mapping};
use rustix::fs::SealFlags;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

mod writer;

pub use writer::{StoredPlace, StoredWriter};

const MAGIC: u32 = 0x534b_5354;
/// Version of the layout of what is stored.
// Layout digest: 2b58cab2f08e5de0
pub const STORED_LAYOUT_VERSION: u32 = 1;
const HEADER_BYTES: usize = 4096;

/// Size of what is stored under one key, in bytes.
const VALUE_BYTES: usize = 48;

/// What is stored under one key. Who stores it knows what it means.
pub type StoredValue = [u8; VALUE_BYTES];

/// What something is stored under, in plain numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StoredKey {
    /// Who stores it.
    pub client: u8,
    /// What it is, in the client's own terms.
    pub kind: u8,
    /// Which one.
    pub id: u128,
}

/// Why memory isn't a table of stored things.
#[derive(Debug)]
pub enum StoredError {
    /// It is something else, or its size isn't what its header says.
    NotATable,
    /// It was made by another release of Skink, with this layout version.
    OtherLayout(u32),
    /// The system refused.
    Memory(io::Error),
}

impl fmt::Display for StoredError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoredError::NotATable => write!(
                f,
                "the memory handed over for what is stored is not such a table: begin with a new one"
            ),
            StoredError::OtherLayout(version) => write!(
                f,
                "what is stored has layout {version} and this program knows layout {STORED_LAYOUT_VERSION}: begin with a new table"
            ),
            StoredError::Memory(error) => write!(f, "no memory for what is stored: {error}"),
        }
    }
}

impl std::error::Error for StoredError {}

#[repr(C)]
struct Header {
    magic: AtomicU32,
    version: AtomicU32,
    entries: AtomicU32,
    /// One past the highest entry that is or was in use: a scan needs to look no further.
    used: AtomicU32,
}

// SAFETY: only atomics.
unsafe impl Atomics for Header {}

/// One entry. `state` is stored last when it comes and first when it goes.
#[repr(C)]
struct Entry {
    /// 0 if it is free, else [`LIVE`] and in the lower half its sequence number.
    state: AtomicU64,
    /// The key's client in bits 0 to 7, its kind in bits 8 to 15; the others are 0.
    what: AtomicU64,
    /// The key's id, its upper half first.
    id: [AtomicU64; 2],
    value: [AtomicU64; VALUE_BYTES / 8],
}

// SAFETY: only atomics.
unsafe impl Atomics for Entry {}

const _: () = assert!(size_of::<Entry>() == 80 && HEADER_BYTES.is_multiple_of(align_of::<Entry>()));

/// The upper half of the state of an entry that is there.
const LIVE: u64 = 0x4c49_5645 << 32;

/// Keys and values that outlive the process that writes them, in a memfd.
///
/// The supervisor makes it and keeps it; the process that has `store` reads and writes it, one process at a
/// time ([`StoredWriter`]). It may be killed at any instruction: an entry is there whole or not at all, and
/// one that is written over has its old value or its new one. For that a change fills another entry before it
/// frees the old one, and a scan that finds two of one key takes the newer.
///
/// Pages are taken as they are touched. Cloning gives another handle to the same memory.
#[derive(Clone)]
pub struct StoredTable {
    mapping: Arc<Mapping>,
    entries: u32,
}

impl StoredTable {
    /// More than the clients of `store` limit themselves to. It takes 80 MiB of addresses, and of memory what is
    /// used.
    pub const ENTRIES: u32 = 1 << 20;

    /// An empty table of `entries` entries, 2 at least and 2^24 at most (any other number is brought in
    /// between). One of them must stay free for changes. Its memfd is called `name` in `/proc/PID/maps`.
    pub fn create(name: &str, entries: u32) -> io::Result<StoredTable> {
        let entries = entries.clamp(2, 1 << 24);
        let mapping = Mapping::create(name, table_bytes(entries))?;
        // Nor may anybody seal it against writing: a successor couldn't map it.
        rustix::fs::fcntl_add_seals(mapping.fd(), SealFlags::SEAL)?;
        let table = StoredTable {
            mapping: Arc::new(mapping),
            entries,
        };
        let header = table.header();
        header
            .version
            .store(STORED_LAYOUT_VERSION, Ordering::Relaxed);
        header.entries.store(entries, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        Ok(table)
    }

    /// Opens a table that another process made.
    ///
    /// # Errors
    /// If the memory isn't a table of this layout.
    pub fn open(fd: OwnedFd) -> Result<StoredTable, StoredError> {
        let mapping = Mapping::from_fd(fd).map_err(StoredError::Memory)?;
        if mapping.len() < HEADER_BYTES {
            return Err(StoredError::NotATable);
        }
        let header = mapping.atomics::<Header>(0);
        if header.magic.load(Ordering::Acquire) != MAGIC {
            return Err(StoredError::NotATable);
        }
        let version = header.version.load(Ordering::Relaxed);
        if version != STORED_LAYOUT_VERSION {
            return Err(StoredError::OtherLayout(version));
        }
        let entries = header.entries.load(Ordering::Relaxed);
        if !(2..=1 << 24).contains(&entries) || mapping.len() != table_bytes(entries) {
            return Err(StoredError::NotATable);
        }
        Ok(StoredTable {
            mapping: Arc::new(mapping),
            entries,
        })
    }

    /// The memfd, to be handed to another process.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.mapping.fd()
    }

    /// How many entries there are, used or not.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    fn header(&self) -> &Header {
        self.mapping.atomics::<Header>(0)
    }

    /// Entry `place`, which is less than `entries`.
    fn entry(&self, place: u32) -> &Entry {
        assert!(place < self.entries, "places are the table's own");
        let offset = HEADER_BYTES + place as usize * size_of::<Entry>();
        self.mapping.atomics::<Entry>(offset)
    }
}

fn table_bytes(entries: u32) -> usize {
    HEADER_BYTES + entries as usize * size_of::<Entry>()
}

impl Entry {
    /// Its sequence number, if it is there.
    fn sequence(&self) -> Option<u32> {
        let state = self.state.load(Ordering::Acquire);
        (state & LIVE_MASK == LIVE).then_some(state as u32)
    }

    /// Its key, if that makes sense.
    fn key(&self) -> Option<StoredKey> {
        let what = self.what.load(Ordering::Relaxed);
        let [high, low] = &self.id;
        let [high, low] = [high, low].map(|half| u128::from(half.load(Ordering::Relaxed)));
        (what >> 16 == 0).then_some(StoredKey {
            client: what as u8,
            kind: (what >> 8) as u8,
            id: high << 64 | low,
        })
    }

    fn value(&self) -> StoredValue {
        let mut value = [0; VALUE_BYTES];
        for (bytes, word) in value.chunks_exact_mut(8).zip(&self.value) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        value
    }
}

const LIVE_MASK: u64 = !0 << 32;

/// Whether sequence number `one` comes after `other`. They wrap around: entries of one key follow each other.
fn is_newer(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) > 0
}

/// What a scan of a table found.
struct Scan {
    /// Where each key is.
    found: HashMap<StoredKey, u32>,
    /// Entries that must be freed: an older one of a key, or nonsense.
    stale: Vec<u32>,
    /// How many of them are nonsense.
    nonsense: u64,
    /// Entries below the high-water mark that are free.
    free: Vec<u32>,
    /// One past the highest that is found or stale.
    used: u32,
}

impl Scan {
    fn of(table: &StoredTable) -> Scan {
        let mut scan = Scan {
            found: HashMap::new(),
            stale: Vec::new(),
            nonsense: 0,
            free: Vec::new(),
            used: 0,
        };
        let used = table.header().used.load(Ordering::Acquire);
        for place in 0..used.min(table.entries) {
            let entry = table.entry(place);
            if entry.state.load(Ordering::Acquire) == 0 {
                scan.free.push(place);
                continue;
            }
            scan.used = place + 1;
            match (entry.sequence(), entry.key()) {
                (Some(sequence), Some(key)) => scan.meet(table, place, sequence, key),
                (None, _) | (_, None) => {
                    scan.nonsense += 1;
                    scan.stale.push(place);
                }
            }
        }
        let used = scan.used;
        scan.free.retain(|place| *place < used);
        scan
    }

    fn meet(&mut self, table: &StoredTable, place: u32, sequence: u32, key: StoredKey) {
        let Some(other) = self.found.insert(key, place) else {
            return;
        };
        let newer = match table.entry(other).sequence() {
            Some(before) => is_newer(sequence, before),
            None => true,
        };
        if newer {
            self.stale.push(other);
        } else {
            self.found.insert(key, other);
            self.stale.push(place);
        }
    }
}

#[cfg(test)]
mod tests;
