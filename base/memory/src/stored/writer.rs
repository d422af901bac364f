use super::*;

/// Where something is stored in a [`StoredTable`]. Good until it is removed or changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoredPlace(u32);

/// The one that writes a [`StoredTable`], with what it needs to know of it in memory of its own.
pub struct StoredWriter {
    table: StoredTable,
    /// Entries below `used` that are free.
    free: Vec<u32>,
    /// As in the header.
    used: u32,
    nonsense: u64,
    /// How many stores are left until the process is killed.
    #[cfg(test)]
    pub(super) stores_left: std::cell::Cell<Option<u32>>,
}

impl StoredWriter {
    /// Looks through the table, brings it in order and answers what is stored, in no order. What makes no
    /// sense is freed and counted.
    ///
    /// No other writer may be at the table: its last one has ended.
    pub fn new(table: StoredTable) -> (StoredWriter, Vec<(StoredKey, StoredPlace)>) {
        let Scan {
            found,
            stale,
            nonsense,
            free,
            used,
        } = Scan::of(&table);
        let mut writer = StoredWriter {
            table,
            free,
            used,
            nonsense,
            #[cfg(test)]
            stores_left: std::cell::Cell::new(None),
        };
        for place in stale {
            writer.clear(place);
            writer.free.push(place);
        }
        writer.set_used(used);
        let found = found.into_iter();
        let found = found.map(|(key, place)| (key, StoredPlace(place)));
        (writer, found.collect())
    }

    /// Stores a value under a key, for which something is stored at `old` or nothing is; answers where. `None`
    /// if there is no room: then nothing has changed. A new key leaves one entry free, so that those that are
    /// there can be changed.
    #[must_use]
    pub fn put(
        &mut self,
        key: StoredKey,
        value: &StoredValue,
        old: Option<StoredPlace>,
    ) -> Option<StoredPlace> {
        let needed = if old.is_some() { 1 } else { 2 };
        if self.room() < needed {
            return None;
        }
        let sequence = match old {
            Some(StoredPlace(old)) => self.table.entry(old).sequence().unwrap_or(0),
            None => 0,
        };
        let place = self.free.pop().unwrap_or(self.used);
        self.fill(place, key, value);
        if place >= self.used {
            self.used = place + 1;
            self.set_used(self.used);
        }
        let state = LIVE | u64::from(sequence.wrapping_add(1));
        self.store(&self.table.entry(place).state, state, Ordering::Release);
        if let Some(old) = old {
            self.remove(old);
        }
        Some(StoredPlace(place))
    }

    /// Nothing is stored there any more.
    pub fn remove(&mut self, StoredPlace(place): StoredPlace) {
        // Only what is there goes to the free ones: twice there would be two keys in one entry.
        if self.table.entry(place).state.load(Ordering::Relaxed) != 0 {
            self.clear(place);
            self.free.push(place);
        }
    }

    /// What is stored there.
    pub fn value(&self, StoredPlace(place): StoredPlace) -> StoredValue {
        self.table.entry(place).value()
    }

    /// How many entries made no sense when the table was opened.
    pub fn nonsense(&self) -> u64 {
        self.nonsense
    }

    /// How many entries are free.
    fn room(&self) -> usize {
        self.free.len() + (self.table.entries - self.used) as usize
    }

    /// Writes what an entry says while it isn't there.
    fn fill(&self, place: u32, key: StoredKey, value: &StoredValue) {
        let entry = self.table.entry(place);
        // Above the high-water mark, if somebody forged that.
        if entry.state.load(Ordering::Relaxed) != 0 {
            self.clear(place);
        }
        // It is free before anything in it changes; and whatever made it free, too.
        fence(Ordering::Release);
        let relaxed = Ordering::Relaxed;
        let what = u64::from(key.client) | u64::from(key.kind) << 8;
        self.store(&entry.what, what, relaxed);
        let [high, low] = &entry.id;
        self.store(high, (key.id >> 64) as u64, relaxed);
        self.store(low, key.id as u64, relaxed);
        for (bytes, word) in value.chunks_exact(8).zip(&entry.value) {
            let mut eight = [0; 8];
            eight.copy_from_slice(bytes);
            self.store(word, u64::from_ne_bytes(eight), relaxed);
        }
    }

    fn clear(&self, place: u32) {
        self.store(&self.table.entry(place).state, 0, Ordering::Release);
    }

    fn set_used(&self, used: u32) {
        if self.lives() {
            self.table.header().used.store(used, Ordering::Release);
        }
    }

    /// Every store to an entry goes through here.
    fn store(&self, word: &AtomicU64, value: u64, ordering: Ordering) {
        if self.lives() {
            word.store(value, ordering);
        }
    }

    /// Whether the process hasn't been killed yet, as tests have it: what it stores after that doesn't happen.
    #[cfg(test)]
    fn lives(&self) -> bool {
        let left = self.stores_left.get();
        self.stores_left
            .set(left.map(|left| left.saturating_sub(1)));
        left != Some(0)
    }

    #[cfg(not(test))]
    #[inline]
    fn lives(&self) -> bool {
        true
    }
}
