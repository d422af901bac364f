use crate::parcel::{Contents, Parcel};
use crate::record::{Holder, LAYOUT_VERSION, Record, SocketKind};
use crate::region::Region;
use crate::region_slots::RegionSlots;
use crate::ring::{Ring, first_part};
use std::fmt;
use std::io;
use std::sync::atomic::Ordering;

/// Names one socket of one component: a slot of its table, and how often that had been given out.
/// An id that outlived its socket is noticed by its generation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct SocketId {
    /// Index into a [`SocketTable`], or into one [`Region`] of it.
    pub slot: u32,
    /// The slot's generation when the socket was opened.
    pub generation: u32,
}

/// How large a region is.
#[derive(Clone, Copy, Debug)]
pub struct TableConfig {
    /// Number of slots.
    pub sockets: u32,
    /// Size of each send ring in bytes: a power of two, at least a page.
    pub send_bytes: u32,
    /// Size of each receive ring in bytes, likewise.
    pub receive_bytes: u32,
}

/// Why a region can't be made, opened or added to a table.
#[derive(Debug)]
pub enum TableError {
    /// Ring sizes must be powers of two and at least a page (4096 bytes).
    BadRingSize,
    /// It has no slots, or more than fit: into memory, or into its part of the table's numbers.
    BadSocketCount,
    /// The table has no number left for one more region.
    TooManyRegions,
    /// A region with this index is there already.
    IndexTaken,
    /// The memory isn't a region.
    NotATable,
    /// It is a region whose layout has another version, namely this one.
    OtherVersion(u32),
    /// The system refused the memory.
    Memory(io::Error),
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TableError::BadRingSize => {
                write!(f, "ring sizes must be powers of two of at least 4096 bytes")
            }
            TableError::BadSocketCount => write!(
                f,
                "a region of a socket table has at least one slot, and no more than the table has numbers for: give it fewer sockets"
            ),
            TableError::TooManyRegions => write!(
                f,
                "the socket table has no number left for one more region: give regions fewer sockets"
            ),
            TableError::IndexTaken => write!(
                f,
                "the socket table has a region with this number already: its program must be finished first"
            ),
            TableError::NotATable => write!(
                f,
                "the memory is not a socket table of layout version {LAYOUT_VERSION}"
            ),
            TableError::OtherVersion(found) => write!(
                f,
                "the socket table has layout version {found}, and this build knows version {LAYOUT_VERSION} only: use a build with the same one, or end the programs first"
            ),
            TableError::Memory(error) => write!(f, "no memory for a socket table: {error}"),
        }
    }
}

impl std::error::Error for TableError {}

/// What a transport found in a region that it adopted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Adopted {
    /// Sockets that go on.
    pub sockets: u32,
    /// Sockets whose record failed its check. Each was given up alone, and is counted by reason.
    pub given_up: u32,
}

impl core::ops::Add for Adopted {
    type Output = Adopted;
    fn add(self, other: Adopted) -> Adopted {
        Adopted {
            sockets: self.sockets.saturating_add(other.sockets),
            given_up: self.given_up.saturating_add(other.given_up),
        }
    }
}

/// All sockets of one component: its [`Region`]s, one for each program that it serves.
///
/// Slots are numbered throughout: a region's first has the region's index times the table's stride.
/// A table of one region, with index 0, has the numbers of that region.
#[derive(Clone)]
pub struct SocketTable {
    regions: Vec<Option<Region>>,
    /// How many there are.
    count: usize,
    /// Logarithm of the stride.
    shift: u32,
}

#[cold]
#[inline(never)]
fn no_such_slot(slot: u32) -> ! {
    panic!("slot {slot} is in no region of the table");
}

impl SocketTable {
    /// A table without regions, each of which will have up to `sockets_per_region` slots (rounded up
    /// to a power of two, the stride).
    pub fn new(sockets_per_region: u32) -> SocketTable {
        let stride = sockets_per_region.clamp(1, 1 << 31).next_power_of_two();
        SocketTable {
            regions: Vec::new(),
            count: 0,
            shift: stride.trailing_zeros(),
        }
    }

    /// A table of one new region.
    ///
    /// # Errors
    /// As [`Region::create`].
    pub fn create(name: &str, config: TableConfig) -> Result<SocketTable, TableError> {
        Region::create(name, config).map(SocketTable::from)
    }

    /// Adds a region with an index that was agreed on.
    ///
    /// # Errors
    /// [`TableError::BadSocketCount`] if it is larger than the stride, [`TableError::TooManyRegions`]
    /// if no slot has a number with this index, [`TableError::IndexTaken`].
    pub fn insert(&mut self, index: u32, region: Region) -> Result<(), TableError> {
        self.can_insert(index, &region)?;
        let at = index as usize;
        if at >= self.regions.len() {
            self.regions.resize_with(at + 1, || None);
        }
        match self.regions.get_mut(at) {
            Some(place @ None) => *place = Some(region),
            Some(Some(_)) | None => return Err(TableError::IndexTaken),
        }
        self.count += 1;
        Ok(())
    }

    /// Whether [`SocketTable::insert`] would take it.
    ///
    /// # Errors
    /// As [`SocketTable::insert`].
    pub fn can_insert(&self, index: u32, region: &Region) -> Result<(), TableError> {
        if region.config().sockets > 1 << self.shift {
            return Err(TableError::BadSocketCount);
        }
        // The highest number of all stands for none in places.
        if index >= u32::MAX >> self.shift {
            return Err(TableError::TooManyRegions);
        }
        match self.region(index) {
            Some(_) => Err(TableError::IndexTaken),
            None => Ok(()),
        }
    }

    /// Takes a region out. Its slots are gone, and its index will be given out again.
    pub fn remove(&mut self, index: u32) -> Option<Region> {
        let region = self.regions.get_mut(index as usize)?.take()?;
        self.count -= 1;
        Some(region)
    }

    /// Whether there are several regions: several programs are served.
    pub(crate) fn is_shared(&self) -> bool {
        self.count > 1
    }

    /// A region by its index.
    pub fn region(&self, index: u32) -> Option<&Region> {
        self.regions.get(index as usize)?.as_ref()
    }

    /// All regions with their indices.
    pub fn regions(&self) -> impl Iterator<Item = (u32, &Region)> {
        let indices = 0u32..;
        indices
            .zip(&self.regions)
            .filter_map(|(index, region)| region.as_ref().map(|region| (index, region)))
    }

    /// How many slots a region has at most: a power of two.
    pub fn stride(&self) -> u32 {
        1 << self.shift
    }

    /// The index of the region that `slot` is in.
    #[inline]
    pub fn region_of(&self, slot: u32) -> u32 {
        slot >> self.shift
    }

    /// The table's number of a region's `slot`.
    #[inline]
    pub fn slot_of(&self, region: u32, slot: u32) -> u32 {
        region << self.shift | slot
    }

    #[inline]
    fn place(&self, slot: u32) -> Option<(&Region, u32)> {
        let region = self.regions.get((slot >> self.shift) as usize)?.as_ref()?;
        Some((region, slot & ((1 << self.shift) - 1)))
    }

    #[inline]
    fn known(&self, slot: u32) -> (&Region, u32) {
        match self.place(slot) {
            Some(place) => place,
            None => no_such_slot(slot),
        }
    }

    /// All slots that were ever in use in the regions there are, in ascending order.
    pub fn slots(&self) -> impl Iterator<Item = u32> {
        self.slots_from(0)
    }

    /// As [`SocketTable::slots`], those from `first` on.
    pub fn slots_from(&self, first: u32) -> impl Iterator<Item = u32> {
        let regions = (0u32..).zip(&self.regions);
        let regions = regions.skip(self.region_of(first) as usize);
        regions.flat_map(move |(index, region)| {
            let used = region.as_ref().map_or(0, Region::used);
            // Of the first of them only the rest.
            let begin = first.saturating_sub(self.slot_of(index, 0));
            (begin..used).map(move |slot| self.slot_of(index, slot))
        })
    }

    /// One past the highest slot that was ever in use. In a table of several regions not every slot
    /// below exists; see [`SocketTable::slots`].
    pub fn used(&self) -> u32 {
        self.slots_end().unwrap_or(0)
    }

    fn slots_end(&self) -> Option<u32> {
        let ends = self.regions().filter_map(|(index, region)| {
            let last = region.used().checked_sub(1)?;
            self.slot_of(index, last).checked_add(1)
        });
        ends.max()
    }

    /// The record in `slot`.
    ///
    /// # Panics
    /// If there is no such slot; take slots from [`SocketTable::find`] or the owner.
    #[inline]
    pub fn record(&self, slot: u32) -> &Record {
        let (region, slot) = self.known(slot);
        region.record(slot)
    }

    /// The record that `id` names, unless its socket is gone.
    #[inline]
    pub fn find(&self, id: SocketId) -> Option<&Record> {
        let (region, slot) = self.place(id.slot)?;
        region.find(SocketId { slot, ..id })
    }

    /// The rings of the socket that `id` names, unless it is gone: the one to send from, and the one that the
    /// program reads from.
    #[inline]
    pub fn find_rings(&self, id: SocketId) -> Option<[Ring<'_>; 2]> {
        let (region, slot) = self.place(id.slot)?;
        region.find(SocketId { slot, ..id })?;
        Some([region.send_ring(slot), region.receive_ring(slot)])
    }

    /// The ring of `slot` that the program fills and the component sends from.
    ///
    /// # Panics
    /// As [`SocketTable::record`].
    #[inline]
    pub fn send_ring(&self, slot: u32) -> Ring<'_> {
        let (region, slot) = self.known(slot);
        region.send_ring(slot)
    }

    /// The ring of `slot` that the component fills and the program reads from.
    ///
    /// # Panics
    /// As [`SocketTable::record`].
    #[inline]
    pub fn receive_ring(&self, slot: u32) -> Ring<'_> {
        let (region, slot) = self.known(slot);
        region.receive_ring(slot)
    }

    /// Owner: begins a socket's life in `slot` with empty rings.
    ///
    /// # Panics
    /// As [`SocketTable::record`].
    pub fn open_slot(&self, slot: u32, kind: SocketKind) -> SocketId {
        let (region, local) = self.known(slot);
        let SocketId { generation, .. } = region.open_slot(local, kind);
        SocketId { slot, generation }
    }

    /// Owner: the connection in `from` and what is in its rings, to be put in another slot. `None` if no rings can hold what these
    /// say.
    ///
    /// # Panics
    /// As [`SocketTable::record`].
    pub fn copy_out(&self, from: u32) -> Option<Parcel> {
        let config = self.known(from).0.config();
        let record = self.record(from);
        Some(Parcel {
            rings: [config.send_bytes, config.receive_bytes],
            state: record.state.load(Ordering::Relaxed),
            fin: record.fin.load(Ordering::Relaxed),
            words: record.connection_words(),
            sent: Contents::of(&self.send_ring(from))?,
            received: Contents::of(&self.receive_ring(from))?,
        })
    }

    /// As [`SocketTable::copy_out`]; `None`, too, if a program has read or written anything there, or if it is more than a ring takes
    /// that nobody has read from.
    ///
    /// # Panics
    /// As [`SocketTable::record`].
    pub fn copy_untouched(&self, from: u32) -> Option<Parcel> {
        let untouched = |parcel: &Parcel| {
            let Parcel { sent, received, .. } = parcel;
            sent.is_untouched()
                && sent.bytes.is_empty()
                && received.is_untouched()
                && received.bytes.len() <= first_part(self.receive_ring(from).capacity())
        };
        self.copy_out(from).filter(untouched)
    }

    /// Owner: begins a socket's life in `to`, a free slot, with the connection of a parcel. As with
    /// [`SocketTable::open_slot`] it has no holder yet, and no state: [`SocketTable::finish_copy`] follows. `None`, and nothing
    /// is in the slot, if the rings differ in size from those where it was, or can't hold what is said to have been in those.
    ///
    /// # Panics
    /// As [`SocketTable::record`].
    pub fn put_in(&self, parcel: &Parcel, to: u32) -> Option<SocketId> {
        let config = self.known(to).0.config();
        let fits = |contents: &Contents, bytes: u32| contents.bytes.len() <= bytes as usize;
        if [config.send_bytes, config.receive_bytes] != parcel.rings
            || !fits(&parcel.sent, config.send_bytes)
            || !fits(&parcel.received, config.receive_bytes)
        {
            return None;
        }
        let id = self.open_slot(to, SocketKind::Tcp);
        self.record(to).set_connection_words(&parcel.words);
        let rings = [
            (&parcel.sent, self.send_ring(to)),
            (&parcel.received, self.receive_ring(to)),
        ];
        if rings.iter().all(|(contents, ring)| contents.put_in(ring)) {
            return Some(id);
        }
        self.record(to).set_kind(SocketKind::Free);
        None
    }

    /// Owner: the connection of a parcel that was put in `to` is a program's, or waits to be accepted there, at the listener in the slot
    /// `listener` of that region.
    ///
    /// # Panics
    /// As [`SocketTable::record`].
    pub fn finish_copy(&self, parcel: &Parcel, to: u32, listener: Option<u32>) {
        let to = self.record(to);
        match listener {
            Some(listener) => {
                to.listener.store(listener, Ordering::Relaxed);
                to.set_holder(Holder::Awaited);
            }
            None => to.set_holder(Holder::Attached),
        }
        to.fin.store(parcel.fin, Ordering::Release);
        to.state.store(parcel.state, Ordering::Release);
    }

    /// Owner: what was copied out of `from` is there no longer.
    ///
    /// # Panics
    /// As [`SocketTable::record`].
    pub fn leave_copied(&self, from: u32) {
        let from = self.record(from);
        // CLOSED, and never anything else: whoever finds it forgets it.
        from.state.store(0, Ordering::Release);
        from.fin.store(0, Ordering::Release);
    }

    /// As [`Region::offer`].
    ///
    /// # Panics
    /// As [`SocketTable::record`].
    pub fn offer(&self, id: SocketId) {
        let (region, slot) = self.known(id.slot);
        region.offer(SocketId { slot, ..id });
    }

    /// As [`Region::is_taken`].
    ///
    /// # Panics
    /// As [`SocketTable::record`].
    pub fn is_taken(&self, id: SocketId) -> bool {
        let (region, slot) = self.known(id.slot);
        region.is_taken(SocketId { slot, ..id })
    }

    /// As [`Region::withdraw`].
    ///
    /// # Panics
    /// As [`SocketTable::record`].
    pub fn withdraw(&self, id: SocketId) -> bool {
        let (region, slot) = self.known(id.slot);
        region.withdraw(SocketId { slot, ..id })
    }

    /// As [`Region::take_offer`]; `false` if the socket is gone.
    pub fn take_offer(&self, id: SocketId) -> bool {
        self.place(id.slot).is_some_and(|(region, slot)| {
            let id = SocketId { slot, ..id };
            region.find(id).is_some() && region.take_offer(id)
        })
    }

    /// As [`Region::set_waiting`]; nothing happens if the socket is gone.
    pub fn set_waiting(&self, id: SocketId, waits: bool) {
        if let Some((region, slot)) = self.place(id.slot) {
            let id = SocketId { slot, ..id };
            if !waits || region.find(id).is_some() {
                region.set_waiting(id, waits);
            }
        }
    }

    /// As [`Region::waits`].
    ///
    /// # Panics
    /// As [`SocketTable::record`].
    pub fn waits(&self, id: SocketId) -> Option<bool> {
        let (region, slot) = self.known(id.slot);
        region.waits(SocketId { slot, ..id })
    }

    /// Owner: ends the socket's life, and gives its slot, which is taken, back to `slots`: at once, unless many rings had grown whose memory is to
    /// be given back first ([`SocketTable::shrink`]).
    ///
    /// # Panics
    /// As [`SocketTable::record`].
    pub fn close_slot(&self, slot: u32, slots: &mut RegionSlots) {
        let (region, local) = self.known(slot);
        if !region.close_slot(local) {
            slots.give(slot);
        } else if slots.may_shrink() {
            slots.note_shrunk(region.shrink(local));
            slots.give(slot);
        } else {
            slots.set_aside(slot);
        }
    }

    /// As [`Region::give_back_received`].
    ///
    /// # Panics
    /// As [`SocketTable::record`].
    pub fn give_back_received(&self, slot: u32) -> bool {
        let (region, slot) = self.known(slot);
        region.give_back_received(slot)
    }

    /// As [`Region::give_back_sent`].
    ///
    /// # Panics
    /// As [`SocketTable::record`].
    pub fn give_back_sent(&self, slot: u32) -> bool {
        let (region, slot) = self.known(slot);
        region.give_back_sent(slot)
    }

    /// As [`Region::strip_received`].
    ///
    /// # Panics
    /// As [`SocketTable::record`].
    pub fn strip_received(&self, slot: u32, ahead: usize) {
        let (region, slot) = self.known(slot);
        region.strip_received(slot, ahead);
    }

    /// As [`Region::strip_sent`].
    ///
    /// # Panics
    /// As [`SocketTable::record`].
    pub fn strip_sent(&self, slot: u32) {
        let (region, slot) = self.known(slot);
        region.strip_sent(slot);
    }

    /// As [`Region::strip_free`].
    ///
    /// # Panics
    /// As [`SocketTable::record`].
    pub fn strip_free(&self, slot: u32) {
        let (region, slot) = self.known(slot);
        region.strip_free(slot);
    }

    /// Owner, once in each turn: gives back the memory of some of the sockets that were closed. Answers whether there are more.
    pub fn shrink(&self, slots: &mut RegionSlots) -> bool {
        slots.begin_turn();
        while let Some(slot) = slots.take_set_aside() {
            let (region, local) = self.known(slot);
            slots.note_shrunk(region.shrink(local));
            slots.give(slot);
        }
        slots.has_set_aside()
    }
}

/// A table of this region alone.
impl From<Region> for SocketTable {
    fn from(region: Region) -> SocketTable {
        let mut table = SocketTable::new(region.config().sockets);
        table.regions.push(Some(region));
        table.count = 1;
        table
    }
}

#[cfg(test)]
mod tests;
