use super::*;
use std::collections::BTreeMap;

type Model = BTreeMap<u128, StoredValue>;

fn key(id: u128) -> StoredKey {
    let kind = (id % 5) as u8;
    StoredKey {
        client: 1,
        kind,
        // Both halves of it.
        id: id | id << 100,
    }
}

/// A value that is torn if its bytes differ.
fn value(byte: u8) -> StoredValue {
    [byte; VALUE_BYTES]
}

fn table(entries: u32) -> StoredTable {
    StoredTable::create("stored", entries).expect("memory")
}

fn again(table: &StoredTable) -> StoredTable {
    let fd = table.fd().try_clone_to_owned().expect("a descriptor");
    StoredTable::open(fd).expect("the same table")
}

/// A writer with its index, as `store` has one.
struct Index {
    writer: StoredWriter,
    places: HashMap<StoredKey, StoredPlace>,
}

impl Index {
    fn over(table: StoredTable) -> Index {
        let (writer, found) = StoredWriter::new(table);
        let count = found.len();
        let places: HashMap<_, _> = found.into_iter().collect();
        assert_eq!(places.len(), count, "each key once");
        Index { writer, places }
    }

    fn change(&mut self, change: Change) -> bool {
        match change {
            Change::Put(id, byte) => {
                let key = key(id);
                let old = self.places.get(&key).copied();
                let place = self.writer.put(key, &value(byte), old);
                if let Some(place) = place {
                    self.places.insert(key, place);
                }
                place.is_some()
            }
            Change::Remove(id) => {
                if let Some(place) = self.places.remove(&key(id)) {
                    self.writer.remove(place);
                }
                true
            }
        }
    }

    /// What is stored, by the lower half of the key's id.
    fn contents(&self) -> Model {
        let stored = self.places.iter().map(|(found, place)| {
            let id = found.id & u128::from(u64::MAX);
            assert_eq!(*found, key(id), "a whole key");
            (id, self.writer.value(*place))
        });
        stored.collect()
    }
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Put(u128, u8),
    Remove(u128),
}

impl Change {
    fn random(random: &mut u64) -> Change {
        let id = (next(random) % 12).into();
        match next(random).is_multiple_of(3) {
            true => Change::Remove(id),
            false => Change::Put(id, next(random) as u8),
        }
    }

    fn apply(self, model: &mut Model) {
        match self {
            Change::Put(id, byte) => model.insert(id, value(byte)),
            Change::Remove(id) => model.remove(&id),
        };
    }
}

/// A sequence that looks random (xorshift).
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn a_successor_finds_what_was_stored() {
    for seed in 1..40u64 {
        let mut random = seed * 0x9e37_79b9;
        let table = table(16);
        let mut model = Model::new();
        let mut index = Index::over(table.clone());
        for _ in 0..200 {
            let change = Change::random(&mut random);
            assert!(index.change(change), "12 keys have room in 16 entries");
            change.apply(&mut model);
            if next(&mut random).is_multiple_of(20) {
                drop(index);
                index = Index::over(again(&table));
            }
            assert_eq!(index.contents(), model, "seed {seed}");
        }
        assert_eq!(index.writer.nonsense(), 0);
    }
}

/// More stores than one change takes: three for the key, six for the value, the mark, the state, and that of
/// the old entry.
const ENOUGH_STORES: u32 = 13;

#[test]
fn whoever_is_killed_leaves_the_old_or_the_new() {
    let mut twice = 0;
    for seed in 1..60u64 {
        let mut outcomes = Vec::new();
        for stores in 0..=ENOUGH_STORES {
            let mut random = seed * 0x9e37_79b9;
            let table = table(16);
            let mut before = Model::new();
            let mut index = Index::over(table.clone());
            for _ in 0..next(&mut random) % 40 {
                let change = Change::random(&mut random);
                index.change(change);
                change.apply(&mut before);
            }
            let change = Change::random(&mut random);
            let mut after = before.clone();
            change.apply(&mut after);

            index.writer.stores_left.set(Some(stores));
            index.change(change);
            drop(index);

            let successor = again(&table);
            twice += Scan::of(&successor).stale.len();
            let mut index = Index::over(successor);
            assert!(Scan::of(&table).stale.is_empty(), "all in order");
            let mut model = index.contents();
            assert!(
                model == before || model == after,
                "seed {seed}, {change:?} after {stores} stores"
            );
            outcomes.push(model == after);
            assert_eq!(index.writer.nonsense(), 0);
            // And it goes on from there.
            for _ in 0..20 {
                let change = Change::random(&mut random);
                assert!(index.change(change));
                change.apply(&mut model);
            }
            assert_eq!(Index::over(again(&table)).contents(), model);
        }
        assert!(outcomes.is_sorted(), "seed {seed}: once done, it stays");
        assert_eq!(outcomes.last(), Some(&true), "seed {seed}");
    }
    assert!(twice > 0, "some died with both the old and the new there");
}

#[test]
fn a_full_table_takes_changes_but_no_new_keys() {
    let mut index = Index::over(table(4));
    for id in 0..3 {
        assert!(index.change(Change::Put(id, 1)));
    }
    assert!(!index.change(Change::Put(3, 1)));
    for byte in 0..10 {
        assert!(index.change(Change::Put(2, byte)));
    }
    assert!(index.change(Change::Remove(0)));
    assert!(index.change(Change::Put(3, 7)));
    assert!(!index.change(Change::Put(0, 7)));
    let expected = [(1, value(1)), (2, value(9)), (3, value(7))];
    assert_eq!(index.contents(), Model::from(expected));
}

#[test]
fn the_newer_of_two_is_taken_also_when_their_numbers_wrap() {
    for (one, other, newer) in [(1, 2, 2), (2, 1, 2), (u32::MAX, 0, 0), (0, u32::MAX, 0)] {
        let table = table(8);
        let mut index = Index::over(table.clone());
        // Of two keys, of which the second is then made to be the first.
        index.change(Change::Put(0, one as u8));
        index.change(Change::Put(5, other as u8));
        let second = table.entry(1);
        second.id[0].store(0, Ordering::Relaxed);
        second.id[1].store(0, Ordering::Relaxed);
        for (place, sequence) in [(0, one), (1, other)] {
            let state = LIVE | u64::from(sequence);
            table.entry(place).state.store(state, Ordering::Relaxed);
        }
        let mut index = Index::over(again(&table));
        let expected = Model::from([(0, value(newer as u8))]);
        assert_eq!(index.contents(), expected, "{one} {other}");
        // The next one wraps as well.
        index.change(Change::Put(0, 77));
        let expected = Model::from([(0, value(77))]);
        assert_eq!(Index::over(again(&table)).contents(), expected);
    }
}

#[test]
fn freed_entries_are_used_again_and_the_mark_goes_down() {
    let table = table(1024);
    let mut index = Index::over(table.clone());
    let used = || table.header().used.load(Ordering::Relaxed);
    for id in 0..100 {
        index.change(Change::Put(id, 1));
    }
    for _ in 0..1000 {
        index.change(Change::Put(50, 2));
    }
    assert_eq!(used(), 101, "one more for changes");
    for id in 3..100 {
        index.change(Change::Remove(id));
    }
    drop(index);
    let mut index = Index::over(again(&table));
    assert_eq!(used(), 3);
    index.change(Change::Put(9, 9));
    assert_eq!((index.contents().len(), used()), (4, 4));
}

#[test]
fn nonsense_is_dropped_and_counted() {
    for seed in 1..200u64 {
        let mut random = seed * 0x9e37_79b9;
        let table = table(8);
        let mut index = Index::over(table.clone());
        for id in 0..5 {
            index.change(Change::Put(id, id as u8));
        }
        // Any word of the memory but the header's first three, with anything in it.
        let words = table.mapping.words();
        let first = HEADER_BYTES / 8;
        for _ in 0..next(&mut random) % 30 {
            let at = first + (next(&mut random) as usize) % (words.len() - first);
            words[at].store(next(&mut random), Ordering::Relaxed);
        }
        let mark = next(&mut random) as u32;
        table.header().used.store(mark, Ordering::Relaxed);
        let (mut writer, found) = StoredWriter::new(again(&table));
        assert!(found.len() <= 8);
        let mut entry = found.first().copied();
        for (at, (found, place)) in found.into_iter().enumerate() {
            let _ = writer.value(place);
            if at > 0 {
                writer.remove(place);
                writer.remove(place);
            } else {
                let new = writer.put(found, &value(8), Some(place));
                entry = new.map(|place| (found, place));
            }
        }
        let left = Index::over(again(&table));
        assert_eq!(left.writer.nonsense(), 0);
        assert_eq!(left.places.len(), usize::from(entry.is_some()), "{seed}");
    }
    let table = table(8);
    Index::over(table.clone()).change(Change::Put(0, 0));
    table.header().used.store(4, Ordering::Relaxed);
    // Neither free nor there; a key with more in it than a key has.
    table.entry(1).state.store(1, Ordering::Relaxed);
    table.entry(2).state.store(LIVE | 1, Ordering::Relaxed);
    table.entry(2).what.store(1 << 16, Ordering::Relaxed);
    let index = Index::over(again(&table));
    assert_eq!((index.writer.nonsense(), index.places.len()), (2, 1));
}

#[test]
fn other_memory_is_refused() {
    let open = |memory: &Mapping| {
        let fd = memory.fd().try_clone_to_owned().expect("a descriptor");
        StoredTable::open(fd).map(drop)
    };
    for bytes in [0x10, HEADER_BYTES, table_bytes(8)] {
        let foreign = Mapping::create("test", bytes).expect("memory");
        assert!(matches!(open(&foreign), Err(StoredError::NotATable)));
    }
    let good = table(8);
    assert_eq!(good.entries(), 8);
    for entries in [0, 1, 7, 9, u32::MAX] {
        good.header().entries.store(entries, Ordering::Relaxed);
        assert!(matches!(open(&good.mapping), Err(StoredError::NotATable)));
    }
    good.header().entries.store(8, Ordering::Relaxed);
    assert!(open(&good.mapping).is_ok());
    good.header().version.store(9, Ordering::Relaxed);
    assert!(matches!(
        open(&good.mapping),
        Err(StoredError::OtherLayout(9))
    ));
}
