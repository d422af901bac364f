#![allow(unsafe_code, reason = "raw pointers into shared memory")]
use crate::mapping::{Atomics, Mapping};
use crate::record::{LAYOUT_VERSION, ProgramPositions, Record, SocketKind};
use crate::ring::{self, Ring};
use crate::table::{SocketId, TableConfig, TableError};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

pub(super) const MAGIC: u32 = 0x534b_4e4b;
const HEADER_BYTES: usize = 4096;
pub(super) const PAGE: usize = 4096;

#[repr(C)]
pub(super) struct Header {
    pub(super) magic: AtomicU32,
    pub(super) version: AtomicU32,
    pub(super) sockets: AtomicU32,
    pub(super) send_bytes: AtomicU32,
    pub(super) receive_bytes: AtomicU32,
    /// One past the highest slot ever used: readers need look no further.
    pub(super) used: AtomicU32,
    /// 1 if the program is gone.
    pub(super) abandoned: AtomicU32,
    /// The generation before the first one of each slot.
    pub(super) generations: AtomicU32,
}

// SAFETY: only atomics.
unsafe impl Atomics for Header {}

/// A [`Region`](super::Region) without its receive rings: what `ip` and `link` read from where it lies, on its way out, and whether it still
/// lies there. Nor do tools need more. What a program has received is none of theirs.
#[derive(Clone)]
pub struct SendRegion {
    records: Arc<Mapping>,
    pub(super) send_rings: Arc<Mapping>,
    pub(super) config: TableConfig,
    first_record: NonNull<Record>,
    first_positions: NonNull<ProgramPositions>,
    pub(super) first_send_ring: NonNull<u8>,
}

// SAFETY: the pointers lead into the two mappings, which live as long as the region and are only
// reached through atomics and raw copies, whatever the thread.
unsafe impl Send for SendRegion {}
// SAFETY: as above.
unsafe impl Sync for SendRegion {}

/// What a region's memfds must measure, and where the rings begin in the second, in bytes.
pub(super) struct Sizes {
    pub(super) records: usize,
    send_offset: usize,
    pub(super) send_rings: usize,
    pub(super) receive_rings: usize,
}

impl Sizes {
    /// `None` if no address space holds them, or there is nothing to hold.
    pub(super) fn of(config: &TableConfig) -> Option<Sizes> {
        let sockets = usize::try_from(config.sockets).ok()?;
        let records = sockets.checked_mul(size_of::<Record>())?;
        let positions = sockets.checked_mul(size_of::<ProgramPositions>())?;
        let send_offset = positions.checked_next_multiple_of(PAGE)?;
        let send_rings = sockets.checked_mul(config.send_bytes as usize)?;
        let send_rings = send_rings.checked_add(send_offset)?;
        let receive_rings = sockets.checked_mul(config.receive_bytes as usize)?;
        let records = records
            .checked_next_multiple_of(PAGE)?
            .checked_add(HEADER_BYTES)?;
        let rings = send_rings.checked_add(receive_rings)?;
        (sockets > 0 && i64::try_from(rings).is_ok()).then_some(Sizes {
            records,
            send_offset,
            send_rings,
            receive_rings,
        })
    }
}

impl SendRegion {
    /// Maps records and send rings for reading only.
    ///
    /// # Errors
    /// As [`Region::open`](super::Region::open).
    pub fn open_read_only([records, send_rings]: [OwnedFd; 2]) -> Result<SendRegion, TableError> {
        Self::check(
            Mapping::from_fd_read_only(records),
            Mapping::from_fd_read_only(send_rings),
        )
    }

    pub(super) fn check(
        records: io::Result<Mapping>,
        send_rings: io::Result<Mapping>,
    ) -> Result<SendRegion, TableError> {
        let records = records.map_err(TableError::Memory)?;
        let send_rings = send_rings.map_err(TableError::Memory)?;
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
            && (records.len(), send_rings.len()) == (sizes.records, sizes.send_rings);
        if !good {
            return Err(TableError::NotATable);
        }
        Ok(Self::over(records, send_rings, config, &sizes))
    }

    /// # Panics
    /// If the mappings don't have these sizes: callers have checked it.
    pub(super) fn over(
        records: Mapping,
        send_rings: Mapping,
        config: TableConfig,
        sizes: &Sizes,
    ) -> SendRegion {
        let expected = (sizes.records, sizes.send_rings);
        assert_eq!((records.len(), send_rings.len()), expected);
        let records_bytes = sizes.records - HEADER_BYTES;
        let rings_bytes = sizes.send_rings - sizes.send_offset;
        let first_record = records.span(HEADER_BYTES, records_bytes).cast();
        let first_positions = send_rings.span(0, sizes.send_offset).cast();
        assert!(first_record.is_aligned() && first_positions.is_aligned());
        SendRegion {
            first_record,
            first_positions,
            first_send_ring: send_rings.span(sizes.send_offset, rings_bytes),
            records: Arc::new(records),
            send_rings: Arc::new(send_rings),
            config,
        }
    }

    /// The memfds of records and send rings.
    pub fn files(&self) -> [BorrowedFd<'_>; 2] {
        [self.records.fd(), self.send_rings.fd()]
    }

    pub(super) fn header(&self) -> &Header {
        self.records.atomics::<Header>(0)
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
    /// If there is no such slot; take slots from [`SendRegion::find`] or the owner.
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
    pub(super) fn program_positions(&self, slot: u32) -> &ProgramPositions {
        assert!(slot < self.config.sockets);
        // SAFETY: as for the records.
        unsafe { self.first_positions.add(slot as usize).as_ref() }
    }

    /// The ring of `slot` that the program fills and the component sends from.
    ///
    /// # Panics
    /// As [`SendRegion::record`].
    #[inline]
    pub fn send_ring(&self, slot: u32) -> Ring<'_> {
        let head = &self.record(slot).send_head;
        let tail = &self.program_positions(slot).send_tail;
        let bytes = self.config.send_bytes as usize;
        // SAFETY: there is such a slot, or the record had not been found; so many bytes from there on
        // are in a mapping that lives as long as `self`, and are this ring's own.
        unsafe {
            let at = self.first_send_ring.add(slot as usize * bytes);
            Ring::growing(head, tail, at, bytes)
        }
    }

    /// Where the first send ring begins in its memfd.
    pub(super) fn rings_offset(&self) -> usize {
        self.send_rings.len() - self.config.sockets as usize * self.config.send_bytes as usize
    }

    /// Bytes that wait in the receive ring of `slot`, as its two ends say.
    ///
    /// # Panics
    /// As [`SendRegion::record`].
    pub fn unread(&self, slot: u32) -> usize {
        let head = &self.program_positions(slot).receive_head;
        let tail = &self.record(slot).receive_tail;
        ring::fill(head, tail, self.config.receive_bytes as usize)
    }
}
