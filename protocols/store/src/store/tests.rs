use super::*;
use skink_messages::{STORED_BYTES, StoreValue};

const CLIENT: StoreClient = StoreClient::Syscall;

fn key(kind: u8, id: u128) -> StoreKey {
    StoreKey {
        client: CLIENT,
        kind,
        id,
    }
}

fn value(byte: u8) -> StoreValue {
    [byte; STORED_BYTES]
}

fn table(entries: u32) -> StoredTable {
    StoredTable::create("stored", entries).expect("memory")
}

fn listed(store: &mut Store) -> Vec<StoreReply> {
    std::iter::from_fn(|| store.take_reply()).collect()
}

/// A sequence that looks random (xorshift).
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn keeps_what_a_map_keeps() {
    for seed in 1..40u64 {
        let mut random = seed * 0x9e37_79b9;
        let table = table(128);
        let (mut store, mut model) = (Store::over(table.clone()), BTreeMap::new());
        for _ in 0..300 {
            let key = key(
                (next(&mut random) % 3) as u8,
                (next(&mut random) % 20).into(),
            );
            if next(&mut random).is_multiple_of(3) {
                store.request(StoreRequest::Remove(key));
                model.remove(&key);
            } else {
                let value = value(next(&mut random) as u8);
                store.request(StoreRequest::Put(key, value));
                model.insert(key, value);
            }
            if next(&mut random).is_multiple_of(50) {
                drop(store);
                store = Store::over(table.clone());
            }
        }
        assert_eq!(
            (store.len(), store.is_empty()),
            (model.len(), model.is_empty())
        );
        assert!(!store.has_replies());
        store.request(StoreRequest::List(CLIENT));
        assert!(store.has_replies());
        let mut expected: Vec<_> = model
            .iter()
            .map(|(k, v)| StoreReply::Item(*k, *v))
            .collect();
        expected.push(StoreReply::End(CLIENT, model.len() as u32));
        assert_eq!(listed(&mut store), expected, "{seed}");
        assert!(!store.has_replies());
    }
}

#[test]
fn a_listing_bears_changes() {
    for seed in 1..60u64 {
        let mut random = seed * 0x9e37_79b9;
        let mut store = Store::over(table(128));
        // Even ids stay, odd ones come and go.
        for id in 0..40 {
            store.request(StoreRequest::Put(key(1, id), value(id as u8)));
        }
        store.request(StoreRequest::List(CLIENT));
        let mut shown = Vec::new();
        let count = loop {
            let id = u128::from(next(&mut random) % 20) * 2 + 1;
            store.request(match next(&mut random).is_multiple_of(2) {
                true => StoreRequest::Remove(key(1, id)),
                false => StoreRequest::Put(key(1, id), value(id as u8)),
            });
            match store.take_reply().expect("a reply") {
                StoreReply::Item(key, what) => {
                    assert_eq!(what, value(key.id as u8));
                    shown.push(key.id);
                }
                StoreReply::End(client, count) => {
                    assert_eq!(client, CLIENT);
                    break count;
                }
            }
        };
        assert_eq!(count as usize, shown.len());
        assert!(shown.is_sorted_by(|one, other| one < other), "each once");
        let even = shown.iter().filter(|id| **id % 2 == 0).count();
        assert_eq!(even, 20, "all that stayed");
        assert_eq!(store.take_reply(), None);
    }
}

#[test]
fn who_asks_again_begins_at_the_beginning() {
    let mut store = Store::over(table(128));
    for id in 0..3 {
        store.request(StoreRequest::Put(key(1, id), value(1)));
    }
    store.request(StoreRequest::List(CLIENT));
    store.take_reply();
    store.request(StoreRequest::List(CLIENT));
    let replies = listed(&mut store);
    assert_eq!(replies.len(), 4);
    assert_eq!(replies.last(), Some(&StoreReply::End(CLIENT, 3)));
}

#[test]
fn what_has_no_room_is_dropped() {
    // One entry stays free for changes.
    let mut store = Store::over(table(3));
    for id in 0..3 {
        store.request(StoreRequest::Put(key(1, id), value(1)));
    }
    assert_eq!((store.len(), store.dropped()), (2, 1));
    // What is there can be changed, and what goes makes room.
    store.request(StoreRequest::Put(key(1, 0), value(9)));
    store.request(StoreRequest::Remove(key(1, 1)));
    store.request(StoreRequest::Remove(key(1, 1)));
    store.request(StoreRequest::Put(key(1, 5), value(5)));
    assert_eq!(store.dropped(), 1);
    store.request(StoreRequest::List(CLIENT));
    let expected = [
        StoreReply::Item(key(1, 0), value(9)),
        StoreReply::Item(key(1, 5), value(5)),
        StoreReply::End(CLIENT, 2),
    ];
    assert_eq!(listed(&mut store), expected);
}

#[test]
fn what_is_nobodys_is_dropped() {
    let table = table(8);
    Store::over(table.clone()).request(StoreRequest::Put(key(1, 7), value(7)));
    let (mut writer, _) = StoredWriter::new(table.clone());
    let nobodys = StoredKey {
        client: 99,
        kind: 1,
        id: 7,
    };
    assert!(writer.put(nobodys, &value(1), None).is_some());
    drop(writer);
    let mut store = Store::over(table.clone());
    assert_eq!((store.len(), store.dropped()), (1, 1));
    store.request(StoreRequest::List(CLIENT));
    let expected = [
        StoreReply::Item(key(1, 7), value(7)),
        StoreReply::End(CLIENT, 1),
    ];
    assert_eq!(listed(&mut store), expected);
    drop(store);
    assert_eq!(Store::over(table).dropped(), 0, "it is gone for good");
}
