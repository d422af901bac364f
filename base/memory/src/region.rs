#![allow(unsafe_code, reason = "raw pointers into shared memory")]
use crate::mapping::Mapping;
use crate::record::{LAYOUT_VERSION, Record, SocketKind};
use crate::ring::{KEEP_BYTES, Ring};
use crate::table::{SocketId, TableConfig, TableError};
use rustix::fs::{Mode, OFlags, SealFlags};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

mod offer;
mod sending;
mod span;

pub use sending::SendRegion;
use sending::{MAGIC, PAGE, Sizes};
pub use span::RingSpan;

/// The sockets of one program, in three memfds that differ in who may write and who may read them:
///
/// - *records*: a header page and the [`Record`]s, with the ends of the rings that the owner (one
///   `tcp` or `udp` instance) moves. The owner alone writes; programs and tools map it read-only.
///   Whatever an adopter reads is here, so no program can forge it.
/// - *send rings*: for each slot the ends of its rings that the program moves, then for each slot a send
///   ring. The program and the owner write. Each word has one writer, but for the opening of a socket, which
///   the program hasn't heard of yet: then the owner stores zeros; and for [the word](Region::take_offer) that says whose
///   a connection is that waits to be accepted.
/// - *receive rings*, one for each slot. The owner alone writes; of all others only the program has it.
///
/// Pages are taken as they are touched. The owner gives slots out and takes them back; it must be
/// the only one that does. The program uses [`Region::send_ring`] as producer and
/// [`Region::receive_ring`] as consumer; as the other it would store to memory that it can't write.
#[derive(Clone)]
pub struct Region {
    sending: SendRegion,
    receive_rings: Arc<Mapping>,
    /// Where the first of them begins in the mapping, so that finding a slot's costs little: it
    /// is done several times for each segment.
    first_receive_ring: NonNull<u8>,
}

// SAFETY: the pointer leads into a mapping that lives as long as the region and is only reached through
// atomics and raw copies, whatever the thread.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}
impl Region {
    /// Makes an empty region. Its memfds are called `name-records`, `name-send-rings` and `name-receive-rings` in
    /// `/proc/PID/maps`.
    ///
    /// # Errors
    /// [`TableError::BadRingSize`], [`TableError::BadSocketCount`], or what the system says.
    pub fn create(name: &str, config: TableConfig) -> Result<Region, TableError> {
        let good = |bytes: u32| bytes.is_power_of_two() && bytes as usize >= PAGE;
        if !good(config.send_bytes) || !good(config.receive_bytes) {
            return Err(TableError::BadRingSize);
        }
        let sizes = Sizes::of(&config).ok_or(TableError::BadSocketCount)?;
        let make = |what: &str, bytes| {
            let mapping = Mapping::create(&format!("{name}-{what}"), bytes)?;
            // Nor may a program seal the rings against writing: a successor couldn't map them.
            rustix::fs::fcntl_add_seals(mapping.fd(), SealFlags::SEAL)?;
            Ok(mapping)
        };
        let records = make("records", sizes.records).map_err(TableError::Memory)?;
        let send_rings = make("send-rings", sizes.send_rings).map_err(TableError::Memory)?;
        let receive_rings =
            make("receive-rings", sizes.receive_rings).map_err(TableError::Memory)?;
        let sending = SendRegion::over(records, send_rings, config, &sizes);
        let region = Self::over(sending, receive_rings);
        let header = region.sending.header();
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
        let header = self.sending.header();
        header.generations.store(before_first, Ordering::Relaxed);
    }

    /// For an owner that takes over from another, with the descriptors of [`Region::files`]: maps all for writing.
    ///
    /// # Errors
    /// [`TableError::NotATable`], [`TableError::OtherVersion`], or what the system says.
    pub fn open([records, send_rings, receive_rings]: [OwnedFd; 3]) -> Result<Region, TableError> {
        let sending = SendRegion::check(Mapping::from_fd(records), Mapping::from_fd(send_rings))?;
        Self::check(sending, Mapping::from_fd(receive_rings))
    }

    /// For the program whose sockets they are, with the descriptors of
    /// [`Region::program_files`]: maps the send rings for writing, the others for reading only.
    ///
    /// # Errors
    /// As [`Region::open`].
    pub fn open_for_program(
        [records, send_rings, receive_rings]: [OwnedFd; 3],
    ) -> Result<Region, TableError> {
        let records = Mapping::from_fd_read_only(records);
        let sending = SendRegion::check(records, Mapping::from_fd(send_rings))?;
        Self::check(sending, Mapping::from_fd_read_only(receive_rings))
    }

    fn check(
        sending: SendRegion,
        receive_rings: io::Result<Mapping>,
    ) -> Result<Region, TableError> {
        let receive_rings = receive_rings.map_err(TableError::Memory)?;
        let sizes = Sizes::of(&sending.config).ok_or(TableError::NotATable)?;
        match receive_rings.len() == sizes.receive_rings {
            true => Ok(Self::over(sending, receive_rings)),
            false => Err(TableError::NotATable),
        }
    }

    fn over(sending: SendRegion, receive_rings: Mapping) -> Region {
        Region {
            sending,
            first_receive_ring: receive_rings.span(0, receive_rings.len()),
            receive_rings: Arc::new(receive_rings),
        }
    }

    /// The memfds of records, send rings and receive rings, for a successor, who writes all of them.
    pub fn files(&self) -> [BorrowedFd<'_>; 3] {
        let [records, send_rings] = self.sending.files();
        [records, send_rings, self.receive_rings.fd()]
    }

    /// What the program is handed, for [`Region::open_for_program`]: records and receive rings in descriptors
    /// that can't be mapped for writing. Needs `/proc`.
    ///
    /// A program with the owner's user id could still open `/proc/self/fd/N` once more, for writing.
    /// So their mode is narrowed to that user: whoever runs as another one can't.
    ///
    /// # Errors
    /// What the system says.
    pub fn program_files(&self) -> io::Result<[OwnedFd; 3]> {
        let read_only = |file: BorrowedFd<'_>| {
            rustix::fs::fchmod(file, Mode::RUSR | Mode::WUSR)?;
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        };
        let [records, send_rings, receive_rings] = self.files();
        Ok([
            read_only(records)?,
            rustix::io::fcntl_dupfd_cloexec(send_rings, 3)?,
            read_only(receive_rings)?,
        ])
    }

    /// What of it is read on the way out. The same mappings.
    pub fn sending(&self) -> &SendRegion {
        &self.sending
    }

    /// How large it is.
    pub fn config(&self) -> TableConfig {
        self.sending.config
    }

    /// Owner: the program whose sockets they are is gone. A successor finds that here.
    pub fn abandon(&self) {
        let header = self.sending.header();
        header.abandoned.store(1, Ordering::Release);
    }

    /// Whether the program is gone.
    pub fn is_abandoned(&self) -> bool {
        self.sending.header().abandoned.load(Ordering::Relaxed) != 0
    }

    /// As [`SendRegion::used`].
    pub fn used(&self) -> u32 {
        self.sending.used()
    }

    /// As [`SendRegion::record`].
    ///
    /// # Panics
    /// If there is no such slot; take slots from [`Region::find`] or the owner.
    #[inline]
    pub fn record(&self, slot: u32) -> &Record {
        self.sending.record(slot)
    }

    /// As [`SendRegion::find`].
    #[inline]
    pub fn find(&self, id: SocketId) -> Option<&Record> {
        self.sending.find(id)
    }

    /// As [`SendRegion::send_ring`].
    ///
    /// # Panics
    /// As [`Region::record`].
    #[inline]
    pub fn send_ring(&self, slot: u32) -> Ring<'_> {
        self.sending.send_ring(slot)
    }

    /// The ring of `slot` that the component fills and the program reads from.
    ///
    /// # Panics
    /// As [`Region::record`].
    #[inline]
    pub fn receive_ring(&self, slot: u32) -> Ring<'_> {
        let head = &self.sending.program_positions(slot).receive_head;
        let tail = &self.record(slot).receive_tail;
        let bytes = self.config().receive_bytes as usize;
        // SAFETY: there is such a slot, or the record had not been found; so many bytes from there on
        // are in a mapping that lives as long as `self`, and are this ring's own.
        unsafe {
            let at = self.first_receive_ring.add(slot as usize * bytes);
            Ring::growing(head, tail, at, bytes)
        }
    }

    /// Owner: begins a socket's life in `slot` with empty rings. It has no holder yet: that is stored
    /// when its record is complete ([`Record::set_holder`]).
    ///
    /// # Panics
    /// As [`Region::record`].
    pub fn open_slot(&self, slot: u32, kind: SocketKind) -> SocketId {
        let record = self.record(slot);
        record.clear();
        let positions = self.sending.program_positions(slot);
        positions.send_tail.reset();
        positions.receive_head.reset();
        if kind == SocketKind::Udp {
            // A datagram may be as large as all of the ring.
            positions.send_tail.begin_grown();
            record.receive_tail.begin_grown();
        }
        let header = self.sending.header();
        let [send, receive] = self.ring_offsets(slot).map(|offset| offset as u64);
        record.send_offset.store(send, Ordering::Relaxed);
        record.receive_offset.store(receive, Ordering::Relaxed);
        let last = match record.generation.load(Ordering::Relaxed) {
            0 => header.generations.load(Ordering::Relaxed),
            last => last,
        };
        let generation = last.wrapping_add(1);
        record.generation.store(generation, Ordering::Release);
        // First, so that no successor overlooks the slot.
        let used = self.used().max(slot + 1);
        header.used.store(used, Ordering::Release);
        record.set_kind(kind);
        SocketId { slot, generation }
    }

    /// Where the slot's send ring and receive ring begin, each in its memfd.
    fn ring_offsets(&self, slot: u32) -> [usize; 2] {
        let TableConfig {
            send_bytes,
            receive_bytes,
            ..
        } = self.config();
        let [send, receive] = [send_bytes, receive_bytes].map(|it| slot as usize * it as usize);
        [self.sending.rings_offset() + send, receive]
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
        [self.send_ring(slot), self.receive_ring(slot)]
            .map(|ring| ring.tail().min(ring.size() as u64) as usize)
    }

    /// Owner: gives back the memory of a receive ring, but for its beginning, if the ring is empty. Answers whether it is. Nothing
    /// may be [written ahead](Ring::write_ahead): it would be lost.
    ///
    /// # Panics
    /// As [`Region::record`].
    pub fn give_back_received(&self, slot: u32) -> bool {
        let [_, offset] = self.ring_offsets(slot);
        give_back(&self.receive_rings, offset, &self.receive_ring(slot))
    }

    /// As [`Region::give_back_received`], of a send ring. The program must not write meanwhile.
    ///
    /// # Panics
    /// As [`Region::record`].
    pub fn give_back_sent(&self, slot: u32) -> bool {
        let [offset, _] = self.ring_offsets(slot);
        give_back(&self.sending.send_rings, offset, &self.send_ring(slot))
    }

    /// How many bytes of memory its send rings take.
    pub fn taken_to_send(&self) -> u64 {
        self.sending.send_rings.taken()
    }

    /// How many bytes of memory its receive rings take.
    pub fn taken_to_receive(&self) -> u64 {
        self.receive_rings.taken()
    }

    /// Owner: gives back all memory of a receive ring that holds nothing, also if the ring isn't empty. What is [written
    /// ahead](Ring::write_ahead), in the `ahead` bytes behind the tail, stays.
    ///
    /// # Panics
    /// As [`Region::record`].
    pub fn strip_received(&self, slot: u32, ahead: usize) {
        let [_, offset] = self.ring_offsets(slot);
        strip(&self.receive_rings, offset, &self.receive_ring(slot), ahead);
    }

    /// As [`Region::strip_received`], of a send ring. The program must not write meanwhile.
    ///
    /// # Panics
    /// As [`Region::record`].
    pub fn strip_sent(&self, slot: u32) {
        let [offset, _] = self.ring_offsets(slot);
        strip(&self.sending.send_rings, offset, &self.send_ring(slot), 0);
    }

    /// Owner: gives back all memory of the rings of a slot that is free.
    ///
    /// # Panics
    /// As [`Region::record`].
    pub fn strip_free(&self, slot: u32) {
        let config = self.config();
        let rings = [&self.sending.send_rings, &self.receive_rings];
        let places = rings.into_iter().zip(self.ring_offsets(slot));
        for ((rings, offset), bytes) in places.zip([config.send_bytes, config.receive_bytes]) {
            rings.discard(offset, bytes as usize);
        }
    }

    /// Owner: gives back the memory of a closed slot's rings, and answers how many bytes that were. It takes the system some
    /// time for each page.
    ///
    /// # Panics
    /// As [`Region::record`].
    pub fn shrink(&self, slot: u32) -> usize {
        let mut given_back = 0;
        let rings = [&self.sending.send_rings, &self.receive_rings];
        let places = rings.into_iter().zip(self.ring_offsets(slot));
        for ((rings, offset), bytes) in places.zip(self.grown(slot)) {
            if bytes > KEEP_BYTES {
                let bytes = bytes.next_multiple_of(PAGE);
                rings.discard(offset, bytes);
                given_back += bytes;
            }
        }
        given_back
    }
}

/// Of a ring that begins at `offset` in `rings`, in whole pages.
fn strip(rings: &Mapping, offset: usize, ring: &Ring<'_>, ahead: usize) {
    if ahead == 0 {
        ring.restart();
    }
    for (start, bytes) in ring.unused(ahead) {
        let end = (start + bytes) / PAGE * PAGE;
        let start = start.next_multiple_of(PAGE);
        if start < end {
            rings.discard(offset + start, end - start);
        }
    }
}

/// Of a ring that begins at `offset` in `rings`.
fn give_back(rings: &Mapping, offset: usize, ring: &Ring<'_>) -> bool {
    if !ring.is_empty() {
        return false;
    }
    ring.restart();
    let bytes = ring.size();
    if bytes > KEEP_BYTES {
        rings.discard(offset + KEEP_BYTES, bytes - KEEP_BYTES);
    }
    true
}

#[cfg(test)]
mod tests;
