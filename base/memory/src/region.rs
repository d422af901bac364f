#![allow(unsafe_code, reason = "raw pointers into shared memory")]
use crate::mapping::{Atomics, Mapping};
use crate::record::{LAYOUT_VERSION, ProgramPositions, Record, SocketKind};
use crate::ring::Ring;
use crate::table::{SocketId, TableConfig, TableError};
use rustix::fs::{Mode, OFlags, SealFlags};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

mod span;

pub use span::RingSpan;

const MAGIC: u32 = 0x534b_4e4b;
const HEADER_BYTES: usize = 4096;
const PAGE: usize = 4096;

#[repr(C)]
struct Header {
    magic: AtomicU32,
    version: AtomicU32,
    sockets: AtomicU32,
    send_bytes: AtomicU32,
    receive_bytes: AtomicU32,
    /// One past the highest slot ever used: readers need look no further.
    used: AtomicU32,
    /// 1 if the program is gone.
    abandoned: AtomicU32,
    /// The generation before the first one of each slot.
    generations: AtomicU32,
}

// SAFETY: only atomics.
unsafe impl Atomics for Header {}

/// The sockets of one program, in two memfds that differ in who may write them:
///
/// - *records*: a header page and the [`Record`]s, with the ends of the rings that the owner (one
///   `tcp` or `udp` instance) moves. The owner alone writes; programs and tools map it read-only.
///   Whatever an adopter reads is here, so no program can forge it.
/// - *rings*: for each slot the ends of its rings that the program moves, then for each slot a send
///   ring and a receive ring. The program and the owner write. Each word has one writer, but for
///   the opening of a socket, which the program hasn't heard of yet: then the owner stores zeros.
///
/// Pages are taken as they are touched. The owner gives slots out and takes them back; it must be
/// the only one that does. The program uses [`Region::send_ring`] as producer and
/// [`Region::receive_ring`] as consumer; as the other it would store to memory that it can't write.
#[derive(Clone)]
pub struct Region {
    records: Arc<Mapping>,
    rings: Arc<Mapping>,
    config: TableConfig,
    /// Where the first of each begins in the two mappings, so that finding a slot's costs little: it
    /// is done several times for each segment.
    first_record: NonNull<Record>,
    first_positions: NonNull<ProgramPositions>,
    first_ring: NonNull<u8>,
    /// Where it begins, from the beginning of `rings`.
    rings_offset: usize,
}

// SAFETY: the pointers lead into the two mappings, which live as long as the region and are only
// reached through atomics and raw copies, whatever the thread.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

/// What a region's two memfds must measure, and where the rings begin in the second, in bytes.
struct Sizes {
    records: usize,
    rings_offset: usize,
    rings: usize,
}

impl Sizes {
    /// `None` if no address space holds them, or there is nothing to hold.
    fn of(config: &TableConfig) -> Option<Sizes> {
        let sockets = usize::try_from(config.sockets).ok()?;
        let records = sockets.checked_mul(size_of::<Record>())?;
        let positions = sockets.checked_mul(size_of::<ProgramPositions>())?;
        let each = (config.send_bytes as usize).checked_add(config.receive_bytes as usize)?;
        let rings_offset = positions.checked_next_multiple_of(PAGE)?;
        let rings = sockets.checked_mul(each)?.checked_add(rings_offset)?;
        let records = records
            .checked_next_multiple_of(PAGE)?
            .checked_add(HEADER_BYTES)?;
        (sockets > 0 && i64::try_from(rings).is_ok()).then_some(Sizes {
            records,
            rings_offset,
            rings,
        })
    }
}

impl Region {
    /// Makes an empty region. Its memfds are called `name-records` and `name-rings` in `/proc/PID/maps`.
    ///
    /// # Errors
    /// [`TableError::BadRingSize`], [`TableError::BadSocketCount`], or what the system says.
    pub fn create(name: &str, config: TableConfig) -> Result<Region, TableError> {
        let good = |bytes: u32| bytes.is_power_of_two() && bytes as usize >= PAGE;
        if !good(config.send_bytes) || !good(config.receive_bytes) {
            return Err(TableError::BadRingSize);
        }
        let sizes = Sizes::of(&config).ok_or(TableError::BadSocketCount)?;
        let make = |name: &str, bytes| {
            let mapping = Mapping::create(name, bytes)?;
            // Nor may a program seal the rings against writing: a successor couldn't map them.
            rustix::fs::fcntl_add_seals(mapping.fd(), SealFlags::SEAL)?;
            Ok(mapping)
        };
        let records =
            make(&format!("{name}-records"), sizes.records).map_err(TableError::Memory)?;
        let rings = make(&format!("{name}-rings"), sizes.rings).map_err(TableError::Memory)?;
        let region = Self::over(records, rings, config, &sizes);
        let header = region.header();
        let fields = [
            (&header.version, LAYOUT_VERSION),
            (&header.sockets, config.sockets),
            (&header.send_bytes, config.send_bytes),
            (&header.receive_bytes, config.receive_bytes),
        ];
        for (field, value) in fields {
            field.store(value, Ordering::Relaxed);
        }
        header.magic.store(MAGIC, Ordering::Release);
        Ok(region)
    }

    /// Generations of its slots count on from here, and not from 0. For who gives a region the index of another one, before
    /// it has sockets: what names a socket of that one leads nowhere then.
    pub fn count_generations_from(&self, before_first: u32) {
        let header = self.header();
        header.generations.store(before_first, Ordering::Relaxed);
    }

    /// For an owner that takes over from another: maps both for writing.
    ///
    /// # Errors
    /// [`TableError::NotATable`], [`TableError::OtherVersion`], or what the system says.
    pub fn open(records: OwnedFd, rings: OwnedFd) -> Result<Region, TableError> {
        Self::check(Mapping::from_fd(records), Mapping::from_fd(rings))
    }

    /// For the program whose sockets they are, with the descriptors of
    /// [`Region::program_descriptors`]: maps the records for reading only.
    ///
    /// # Errors
    /// As [`Region::open`].
    pub fn open_for_program(records: OwnedFd, rings: OwnedFd) -> Result<Region, TableError> {
        Self::check(Mapping::from_fd_read_only(records), Mapping::from_fd(rings))
    }

    /// For tools: maps both for reading only.
    ///
    /// # Errors
    /// As [`Region::open`].
    pub fn open_read_only(records: OwnedFd, rings: OwnedFd) -> Result<Region, TableError> {
        Self::check(
            Mapping::from_fd_read_only(records),
            Mapping::from_fd_read_only(rings),
        )
    }

    fn check(
        records: io::Result<Mapping>,
        rings: io::Result<Mapping>,
    ) -> Result<Region, TableError> {
        let records = records.map_err(TableError::Memory)?;
        let rings = rings.map_err(TableError::Memory)?;
        if records.len() < HEADER_BYTES {
            return Err(TableError::NotATable);
        }
        let header = records.atomics::<Header>(0);
        let magic = header.magic.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let config = TableConfig {
            sockets: header.sockets.load(Ordering::Relaxed),
            send_bytes: header.send_bytes.load(Ordering::Relaxed),
            receive_bytes: header.receive_bytes.load(Ordering::Relaxed),
        };
        let version = header.version.load(Ordering::Relaxed);
        if magic == MAGIC && version != LAYOUT_VERSION {
            return Err(TableError::OtherVersion(version));
        }
        let sizes = Sizes::of(&config).ok_or(TableError::NotATable)?;
        let good = magic == MAGIC
            && config.send_bytes.is_power_of_two()
            && config.receive_bytes.is_power_of_two()
            && (records.len(), rings.len()) == (sizes.records, sizes.rings);
        if !good {
            return Err(TableError::NotATable);
        }
        Ok(Self::over(records, rings, config, &sizes))
    }

    /// # Panics
    /// If the mappings don't have these sizes: callers have checked it.
    fn over(records: Mapping, rings: Mapping, config: TableConfig, sizes: &Sizes) -> Region {
        assert_eq!((records.len(), rings.len()), (sizes.records, sizes.rings));
        let records_bytes = sizes.records - HEADER_BYTES;
        let rings_bytes = sizes.rings - sizes.rings_offset;
        let first_record = records.span(HEADER_BYTES, records_bytes).cast();
        let first_positions = rings.span(0, sizes.rings_offset).cast();
        assert!(first_record.is_aligned() && first_positions.is_aligned());
        Region {
            first_record,
            first_positions,
            first_ring: rings.span(sizes.rings_offset, rings_bytes),
            rings_offset: sizes.rings_offset,
            records: Arc::new(records),
            rings: Arc::new(rings),
            config,
        }
    }

    /// The memfd of the records, for a successor (who writes it) or to be opened again for tools.
    pub fn records_fd(&self) -> BorrowedFd<'_> {
        self.records.fd()
    }

    /// The memfd of the rings.
    pub fn rings_fd(&self) -> BorrowedFd<'_> {
        self.rings.fd()
    }

    /// What the program is handed, for [`Region::open_for_program`]: the records in a descriptor
    /// that can't be mapped for writing, and the rings. Needs `/proc`.
    ///
    /// A program with the owner's user id could still open `/proc/self/fd/N` once more, for writing.
    /// So the records' mode is narrowed to that user: whoever runs as another one can't.
    ///
    /// # Errors
    /// What the system says.
    pub fn program_descriptors(&self) -> io::Result<[OwnedFd; 2]> {
        let records = self.records.fd();
        rustix::fs::fchmod(records, Mode::RUSR | Mode::WUSR)?;
        let path = format!("/proc/self/fd/{}", records.as_raw_fd());
        let read_only = OFlags::RDONLY | OFlags::CLOEXEC;
        let records = rustix::fs::open(path, read_only, Mode::empty())?;
        let rings = rustix::io::fcntl_dupfd_cloexec(self.rings.fd(), 3)?;
        Ok([records, rings])
    }

    fn header(&self) -> &Header {
        self.records.atomics::<Header>(0)
    }

    /// How large it is.
    pub fn config(&self) -> TableConfig {
        self.config
    }

    /// Owner: the program whose sockets they are is gone. A successor finds that here.
    pub fn abandon(&self) {
        self.header().abandoned.store(1, Ordering::Release);
    }

    /// Whether the program is gone.
    pub fn is_abandoned(&self) -> bool {
        self.header().abandoned.load(Ordering::Relaxed) != 0
    }

    /// One past the highest slot that was ever in use.
    pub fn used(&self) -> u32 {
        let used = self.header().used.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        used.min(self.config.sockets)
    }

    /// The record in `slot`.
    ///
    /// # Panics
    /// If there is no such slot; take slots from [`Region::find`] or the owner.
    #[inline]
    pub fn record(&self, slot: u32) -> &Record {
        assert!(slot < self.config.sockets);
        // SAFETY: there are so many records, aligned, in a mapping that `self` holds. A record is
        // made of atomics only, so every bit pattern is valid and others may write it.
        unsafe { self.first_record.add(slot as usize).as_ref() }
    }

    /// The record that `id` names, unless its socket is gone.
    #[inline]
    pub fn find(&self, id: SocketId) -> Option<&Record> {
        if id.slot >= self.config.sockets {
            return None;
        }
        let record = self.record(id.slot);
        let current = record.generation.load(Ordering::Relaxed) == id.generation;
        fence(Ordering::Acquire);
        (current && record.kind() != SocketKind::Free).then_some(record)
    }

    #[inline]
    fn program_positions(&self, slot: u32) -> &ProgramPositions {
        assert!(slot < self.config.sockets);
        // SAFETY: as for the records.
        unsafe { self.first_positions.add(slot as usize).as_ref() }
    }

    /// The ring of `slot` that the program fills and the component sends from.
    ///
    /// # Panics
    /// As [`Region::record`].
    #[inline]
    pub fn send_ring(&self, slot: u32) -> Ring<'_> {
        let head = &self.record(slot).send_head;
        let tail = &self.program_positions(slot).send_tail;
        // SAFETY: there is such a slot, or the record had not been found; so many bytes from there on
        // are in a mapping that lives as long as `self`, and are this ring's own.
        unsafe {
            let at = self.first_ring.add(self.ring_offset(slot));
            Ring::new(head, tail, at, self.config.send_bytes as usize)
        }
    }

    /// The ring of `slot` that the component fills and the program reads from.
    ///
    /// # Panics
    /// As [`Region::record`].
    #[inline]
    pub fn receive_ring(&self, slot: u32) -> Ring<'_> {
        let head = &self.program_positions(slot).receive_head;
        let tail = &self.record(slot).receive_tail;
        let offset = self.ring_offset(slot) + self.config.send_bytes as usize;
        // SAFETY: as above.
        unsafe {
            let at = self.first_ring.add(offset);
            Ring::new(head, tail, at, self.config.receive_bytes as usize)
        }
    }

    /// Where the slot's send ring begins, from the first ring on; its receive ring follows.
    #[inline]
    fn ring_offset(&self, slot: u32) -> usize {
        slot as usize * (self.config.send_bytes as usize + self.config.receive_bytes as usize)
    }

    /// Owner: begins a socket's life in `slot` with empty rings. It has no holder yet: that is stored
    /// when its record is complete ([`Record::set_holder`]).
    ///
    /// # Panics
    /// As [`Region::record`].
    pub fn open_slot(&self, slot: u32, kind: SocketKind) -> SocketId {
        let record = self.record(slot);
        record.clear();
        let positions = self.program_positions(slot);
        positions.send_tail.reset();
        positions.receive_head.reset();
        let ring = (self.rings_offset + self.ring_offset(slot)) as u64;
        let send_bytes = u64::from(self.config.send_bytes);
        record.send_offset.store(ring, Ordering::Relaxed);
        record
            .receive_offset
            .store(ring + send_bytes, Ordering::Relaxed);
        let last = match record.generation.load(Ordering::Relaxed) {
            0 => self.header().generations.load(Ordering::Relaxed),
            last => last,
        };
        let generation = last.wrapping_add(1);
        record.generation.store(generation, Ordering::Release);
        // First, so that no successor overlooks the slot.
        let used = self.used().max(slot + 1);
        self.header().used.store(used, Ordering::Release);
        record.set_kind(kind);
        SocketId { slot, generation }
    }

    /// Owner: ends the socket's life. Answers whether its rings had grown: [`Region::shrink`] then gives back their memory,
    /// before the slot is used again.
    ///
    /// # Panics
    /// As [`Region::record`].
    #[must_use]
    pub fn close_slot(&self, slot: u32) -> bool {
        // A free slot has no holder: one that has was damaged.
        self.record(slot).holder.store(0, Ordering::Release);
        self.record(slot).set_kind(SocketKind::Free);
        self.grown(slot).iter().any(|bytes| *bytes > KEEP_BYTES)
    }

    /// How many bytes of its send and receive ring a socket has touched.
    fn grown(&self, slot: u32) -> [usize; 2] {
        let touched = |tail: u64, bytes: u32| tail.min(u64::from(bytes)) as usize;
        [
            touched(self.send_ring(slot).tail(), self.config.send_bytes),
            touched(self.receive_ring(slot).tail(), self.config.receive_bytes),
        ]
    }

    /// Owner: gives back the memory of a closed slot's rings. It takes the system some time for each page.
    ///
    /// # Panics
    /// As [`Region::record`].
    pub fn shrink(&self, slot: u32) {
        let send = self.rings_offset + self.ring_offset(slot);
        let receive = send + self.config.send_bytes as usize;
        for (offset, bytes) in [send, receive].into_iter().zip(self.grown(slot)) {
            if bytes > KEEP_BYTES {
                self.rings.discard(offset, bytes.next_multiple_of(PAGE));
            }
        }
    }
}

/// A closed socket's ring keeps up to this many bytes of memory for the slot's next socket.
const KEEP_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests;
