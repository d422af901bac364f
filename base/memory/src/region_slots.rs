use crate::{Slots, SocketTable};
use std::collections::VecDeque;

/// Which slots of a [`SocketTable`] are free, region by region, and which regions have lost their
/// program. Private to the owner of the table, as [`Slots`] is.
///
/// The region of a program that is gone (it is *abandoned*) gives out no slots any more; it is
/// *finished* when its last one was given back.
#[derive(Clone, Debug)]
pub struct RegionSlots {
    /// Logarithm of the table's stride.
    shift: u32,
    regions: Vec<Option<Entry>>,
    finished: VecDeque<u32>,
    /// Regions that have slots set aside, one of which is next by turns: who has closed many holds up no other.
    aside: VecDeque<u32>,
    /// Bytes that were given back in this turn.
    shrunk: usize,
}

/// Once so many bytes of closed sockets' rings were given back in a turn, no further socket's are. A program that ends may have
/// gigabytes, and others wait meanwhile: a mebibyte takes the system a tenth of a millisecond, and up to three of them where
/// the processor and the memory are busy.
const MOST_SHRUNK: usize = 1 << 20;

#[derive(Clone, Debug)]
struct Entry {
    slots: Slots,
    /// How many slots there are, and how many of them are taken.
    count: u32,
    taken: u32,
    abandoned: bool,
    /// Taken still, and closed: the memory of their rings is to be given back first.
    aside: VecDeque<u32>,
}

impl RegionSlots {
    /// All slots of all regions of `table`, free.
    pub fn new(table: &SocketTable) -> RegionSlots {
        let mut slots = RegionSlots {
            shift: table.stride().trailing_zeros(),
            regions: Vec::new(),
            finished: VecDeque::new(),
            aside: VecDeque::new(),
            shrunk: 0,
        };
        for (index, region) in table.regions() {
            slots.add(index, region.config().sockets);
        }
        slots
    }

    /// A region of `count` slots, all free, was added to the table.
    pub fn add(&mut self, region: u32, count: u32) {
        let index = region as usize;
        if index >= self.regions.len() {
            self.regions.resize_with(index + 1, || None);
        }
        if let Some(place) = self.regions.get_mut(index) {
            *place = Some(Entry {
                slots: Slots::new(count),
                count,
                taken: 0,
                abandoned: false,
                aside: VecDeque::new(),
            });
        }
    }

    fn entry(&self, region: u32) -> Option<&Entry> {
        self.regions.get(region as usize)?.as_ref()
    }

    fn entry_mut(&mut self, region: u32) -> Option<&mut Entry> {
        self.regions.get_mut(region as usize)?.as_mut()
    }

    fn split(&self, slot: u32) -> (u32, u32) {
        (slot >> self.shift, slot & ((1 << self.shift) - 1))
    }

    /// Takes a free slot of a region; `None` if it has none, or has lost its program.
    pub fn take(&mut self, region: u32) -> Option<u32> {
        let shift = self.shift;
        let entry = self.entry_mut(region).filter(|entry| !entry.abandoned)?;
        let slot = entry.slots.take()?;
        entry.taken += 1;
        Some(region << shift | slot)
    }

    /// Whether [`RegionSlots::take`] would find one.
    pub fn has_free(&self, region: u32) -> bool {
        self.entry(region)
            .is_some_and(|entry| !entry.abandoned && entry.taken < entry.count)
    }

    /// Gives `slot` back. A slot that isn't taken is ignored.
    pub fn give(&mut self, slot: u32) {
        let (region, slot) = self.split(slot);
        let Some(entry) = self.entry_mut(region) else {
            return;
        };
        if !entry.slots.is_taken(slot) {
            return;
        }
        entry.slots.give(slot);
        entry.taken -= 1;
        if entry.abandoned && entry.taken == 0 {
            self.finished.push_back(region);
        }
    }

    /// Whether one more slot's memory may be given back in this turn.
    pub(crate) fn may_shrink(&self) -> bool {
        self.shrunk < MOST_SHRUNK
    }

    /// So many bytes more were given back.
    pub(crate) fn note_shrunk(&mut self, bytes: usize) {
        self.shrunk = self.shrunk.saturating_add(bytes);
    }

    /// Keeps a closed slot for later turns. It is taken still: who used it meanwhile would lose what is in its rings.
    pub(crate) fn set_aside(&mut self, slot: u32) {
        debug_assert!(self.is_taken(slot));
        let (region, _) = self.split(slot);
        let Some(entry) = self.entry_mut(region) else {
            return;
        };
        entry.aside.push_back(slot);
        if entry.aside.len() == 1 {
            self.aside.push_back(region);
        }
    }

    pub(crate) fn begin_turn(&mut self) {
        self.shrunk = 0;
    }

    /// A slot that was set aside, if its memory may be given back in this turn.
    pub(crate) fn take_set_aside(&mut self) -> Option<u32> {
        if !self.may_shrink() {
            return None;
        }
        let region = self.aside.pop_front()?;
        let entry = self.entry_mut(region)?;
        let slot = entry.aside.pop_front();
        if !entry.aside.is_empty() {
            self.aside.push_back(region);
        }
        slot
    }

    pub(crate) fn has_set_aside(&self) -> bool {
        !self.aside.is_empty()
    }

    /// Takes this very slot, when a table is adopted; `false` if it is taken already or doesn't
    /// exist. Constant time if slots are claimed in ascending order.
    pub fn claim(&mut self, slot: u32) -> bool {
        let (region, slot) = self.split(slot);
        let Some(entry) = self.entry_mut(region) else {
            return false;
        };
        let claimed = entry.slots.claim(slot);
        entry.taken += u32::from(claimed);
        claimed
    }

    /// Whether `slot` is taken.
    pub fn is_taken(&self, slot: u32) -> bool {
        let (region, slot) = self.split(slot);
        self.entry(region)
            .is_some_and(|entry| entry.slots.is_taken(slot))
    }

    /// The region has lost its program. `false` if there is no such region, or that is known.
    pub fn abandon(&mut self, region: u32) -> bool {
        let Some(entry) = self.entry_mut(region).filter(|entry| !entry.abandoned) else {
            return false;
        };
        entry.abandoned = true;
        if entry.taken == 0 {
            self.finished.push_back(region);
        }
        true
    }

    /// Whether the region has lost its program.
    pub fn is_abandoned(&self, region: u32) -> bool {
        self.entry(region).is_some_and(|entry| entry.abandoned)
    }

    /// Forgets an abandoned region whose slots are all free again, and answers its index.
    pub fn take_finished(&mut self) -> Option<u32> {
        let region = self.finished.pop_front()?;
        if let Some(place) = self.regions.get_mut(region as usize) {
            *place = None;
        }
        Some(region)
    }
}

#[cfg(test)]
mod tests;
