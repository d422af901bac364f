use super::*;
use crate::{Holder, TableConfig};
use std::sync::atomic::Ordering::Relaxed;

fn region(sockets: u32) -> Region {
    let config = TableConfig {
        sockets,
        send_bytes: 4096,
        receive_bytes: 8192,
    };
    Region::create("test", config).expect("a region")
}

#[test]
fn a_table_of_one_region_has_its_numbers() {
    let config = region(5).config();
    let table = SocketTable::create("test", config).expect("a table");
    assert_eq!((table.stride(), table.used()), (8, 0));
    let id = table.open_slot(3, SocketKind::Tcp);
    assert_eq!((id.slot, table.used()), (3, 4));
    assert_eq!(table.slots().collect::<Vec<_>>(), [0, 1, 2, 3]);
    table.send_ring(3).write(b"abc");
    let region = table.region(0).expect("the region");
    assert_eq!(region.send_ring(3).len(), 3);
    assert!(region.find(id).is_some());
    let [send, receive] = table.find_rings(id).expect("its rings");
    assert_eq!((send.len(), receive.len()), (3, 0));
    assert_eq!((send.capacity(), receive.capacity()), (4096, 8192));
    assert_eq!((table.region_of(3), table.slot_of(0, 3)), (0, 3), "index 0");
}

#[test]
fn slots_of_several_regions_are_numbered_throughout() {
    let mut table = SocketTable::new(6);
    assert_eq!((table.stride(), table.used()), (8, 0));
    for index in 0..3 {
        table.insert(index, region(6)).expect("room");
    }
    // (region, slot in it)
    for (index, local) in [(0, 1), (1, 0), (2, 5)] {
        let slot = table.slot_of(index, local);
        assert_eq!((slot, table.region_of(slot)), (index * 8 + local, index));
        let id = table.open_slot(slot, SocketKind::Udp);
        assert_eq!(id.slot, slot);
        table.receive_ring(slot).write(&[index as u8]);
        let owner = table.region(index).expect("a region");
        let mut byte = [9];
        assert_eq!(owner.receive_ring(local).read(&mut byte), 1);
        assert_eq!(byte, [index as u8]);
        assert!(table.find(id).is_some());
        let in_region = SocketId { slot: local, ..id };
        assert!(owner.find(in_region).is_some());
    }
    assert_eq!(table.used(), 22);
    let slots: Vec<u32> = table.slots().collect();
    assert_eq!(slots, [0, 1, 8, 16, 17, 18, 19, 20, 21]);

    // A region goes; the others keep their numbers, and the next one takes its index.
    let gone = table.remove(1).expect("a region");
    assert!(table.remove(1).is_none() && table.region(1).is_none());
    let id = SocketId {
        slot: 8,
        generation: 1,
    };
    assert!(table.find(id).is_none());
    assert!(table.find_rings(id).is_none());
    assert!(gone.find(SocketId { slot: 0, ..id }).is_some());
    assert_eq!(table.slots().count(), 8);
    table.insert(1, region(8)).expect("room");
    assert!(table.find(id).is_none());
    let mut slots = RegionSlots::new(&table);
    assert!(slots.claim(15));
    assert_eq!(table.open_slot(15, SocketKind::Tcp).slot, 15);
    table.close_slot(15, &mut slots);
    assert!(!slots.is_taken(15));
    assert_eq!(table.record(15).kind(), SocketKind::Free);
}

#[test]
fn ids_beyond_the_table_find_nothing_and_too_much_is_refused() {
    let mut table = SocketTable::new(4);
    assert!(matches!(
        table.insert(0, region(5)),
        Err(TableError::BadSocketCount)
    ));
    table.insert(0, region(3)).expect("room");
    for slot in [3, 4, 1 << 20, u32::MAX] {
        let id = SocketId {
            slot,
            generation: 0,
        };
        assert!(table.find(id).is_none(), "slot {slot}");
    }
    assert!(matches!(
        table.insert(0, region(3)),
        Err(TableError::IndexTaken)
    ));
    table.insert(5, region(3)).expect("free");
    assert_eq!(table.open_slot(22, SocketKind::Udp).slot, 22);
    assert_eq!((table.used(), table.slots().count()), (23, 3));
    table.insert(1, region(1)).expect("between them");
    let mut narrow = SocketTable::new(1 << 30);
    for index in 0..3 {
        narrow.insert(index, region(1)).expect("room");
    }
    let refused = narrow.insert(3, region(1));
    assert!(matches!(refused, Err(TableError::TooManyRegions)));
}

#[test]
#[should_panic(expected = "slot 4 is in no region")]
fn a_slot_that_is_not_there_is_the_owners_mistake() {
    let table = SocketTable::from(region(4));
    table.record(4);
}

#[test]
fn a_connection_is_copied_with_what_it_has_received() {
    let mut table = SocketTable::new(6);
    table.insert(0, region(6)).expect("room");
    table.insert(1, region(6)).expect("room");
    let (from, to) = (table.slot_of(0, 2), table.slot_of(1, 4));
    table.open_slot(from, SocketKind::Tcp);
    let bytes: Vec<u8> = (0..8192u32)
        .map(|byte| byte as u8 ^ (byte >> 8) as u8)
        .collect();
    assert_eq!(table.receive_ring(from).write(&bytes), 8192);
    let record = table.record(from);
    record.iss.store(77, Relaxed);
    record.local_address[3].store(5, Relaxed);
    record.listener.store(3, Relaxed);
    record.set_holder(Holder::Awaited);
    record.seal.store(record.seal(), Relaxed);
    let parcel = table.copy_untouched(from).expect("nobody has touched it");
    let bytes_of = parcel.to_bytes();
    assert_eq!((bytes_of.len(), parcel.len()), (196 + 8192, 196 + 8192));
    assert_eq!(parcel.iss(), 77);
    assert_eq!(Parcel::from_bytes(&bytes_of), Some(parcel.clone()));
    assert_eq!(parcel.four_tuple(), record.four_tuple());
    let id = table.put_in(&parcel, to).expect("rings of the same size");
    let copy = table.find(id).expect("it is open");
    assert_eq!(
        (copy.iss.load(Relaxed), copy.local_address[3].load(Relaxed)),
        (77, 5)
    );
    assert_eq!((copy.holder(), copy.listener.load(Relaxed)), (None, 0));
    assert_eq!(copy.seal.load(Relaxed), copy.seal());
    let ring = table.receive_ring(to);
    let mut copied = vec![0; 9000];
    assert_eq!(
        (ring.head(), ring.tail(), ring.read(&mut copied)),
        (0, 8192, 8192)
    );
    assert_eq!(copied[..8192], bytes);
}

/// What is read and acknowledged is gone, the rest has the same places in the stream, in rings that have grown as well.
#[test]
fn a_connection_in_use_is_copied_with_what_its_rings_hold() {
    let config = TableConfig {
        sockets: 2,
        send_bytes: 1 << 18,
        receive_bytes: 1 << 18,
    };
    let bytes: Vec<u8> = (0..200_000u32).map(|byte| (byte % 251) as u8).collect();
    for (passed, held) in [(0, 0), (70_000, 10), (30_000, 65_000), (100_000, 200_000)] {
        let table = SocketTable::from(Region::create("one", config).expect("a region"));
        table.open_slot(0, SocketKind::Tcp);
        let rings = |slot| [table.send_ring(slot), table.receive_ring(slot)];
        for ring in rings(0) {
            let mut left = passed;
            while left > 0 {
                let count = ring.write(&bytes[..left.min(50_000)]);
                ring.advance_head(count);
                left -= count;
            }
            if held > 65_536 {
                ring.restart();
                assert!(ring.grow(0));
            }
            assert_eq!(ring.write(&bytes[..held]), held);
        }
        let parcel = table.copy_out(0).expect("nothing is spoilt");
        assert_eq!(parcel.len(), 196 + 2 * held);
        let parcel = Parcel::from_bytes(&parcel.to_bytes()).expect("well formed");
        table.put_in(&parcel, 1).expect("rings of the same size");
        for (ring, original) in rings(1).into_iter().zip(rings(0)) {
            let positions = [ring.head(), ring.tail()];
            assert_eq!(positions, [passed, passed + held].map(|at| at as u64));
            assert_eq!(ring.size(), original.size());
            let mut copied = vec![0; held];
            assert_eq!(
                (ring.read(&mut copied), &copied[..]),
                (held, &bytes[..held])
            );
        }
        assert_eq!(table.copy_untouched(0).is_some(), (passed, held) == (0, 0));
    }
}

/// Whoever finds both slots after a death finds the connection in one of them at least, and never one that is half there.
#[test]
fn a_copy_counts_once_it_is_complete() {
    let mut table = SocketTable::new(6);
    table.insert(0, region(6)).expect("room");
    table.open_slot(2, SocketKind::Tcp);
    let [from, to] = [2, 3].map(|slot| table.record(slot));
    from.state.store(4, Relaxed);
    from.fin.store(3, Relaxed);
    from.set_holder(Holder::Awaited);
    let said = |record: &Record| {
        let [state, fin] = [&record.state, &record.fin].map(|it| it.load(Relaxed));
        (state, fin, record.holder())
    };
    let parcel = table.copy_untouched(2).expect("nobody has touched it");
    table.put_in(&parcel, 3).expect("rings of the same size");
    assert_eq!(said(to), (0, 0, None));
    assert_eq!(said(from), (4, 3, Some(Holder::Awaited)));
    table.finish_copy(&parcel, 3, Some(5));
    assert_eq!(said(to), (4, 3, Some(Holder::Awaited)));
    assert_eq!(to.listener.load(Relaxed), 5);
    assert_eq!(said(from), (4, 3, Some(Holder::Awaited)));
    table.leave_copied(2);
    assert_eq!(said(from), (0, 0, Some(Holder::Awaited)));
}

#[test]
fn what_a_program_has_touched_is_not_copied() {
    for touched in ["read", "written", "spoilt"] {
        let mut table = SocketTable::new(6);
        table.insert(0, region(6)).expect("room");
        table.open_slot(2, SocketKind::Tcp);
        table.receive_ring(2).write(b"abc");
        match touched {
            "read" => table.receive_ring(2).advance_head(1),
            "written" => drop(table.send_ring(2).write(b"x")),
            _ => table.receive_ring(2).advance_tail(8192),
        }
        assert_eq!(table.copy_untouched(2), None, "{touched}");
    }
    // Nor to rings of another size.
    let mut table = SocketTable::new(6);
    table.insert(0, region(6)).expect("room");
    let config = TableConfig {
        receive_bytes: 4096,
        ..region(6).config()
    };
    let other = Region::create("other", config).expect("a region");
    table.insert(1, other).expect("room");
    table.open_slot(2, SocketKind::Tcp);
    let parcel = table.copy_untouched(2).expect("nobody has touched it");
    assert_eq!(table.put_in(&parcel, table.slot_of(1, 0)), None);
    assert_eq!(table.record(table.slot_of(1, 0)).kind(), SocketKind::Free);
}

#[test]
fn a_parcel_that_is_something_else_is_refused() {
    let mut table = SocketTable::new(6);
    table.insert(0, region(6)).expect("room");
    table.open_slot(2, SocketKind::Tcp);
    table.receive_ring(2).write(b"abc");
    let good = table
        .copy_untouched(2)
        .expect("nobody has touched it")
        .to_bytes();
    assert!(Parcel::from_bytes(&good).is_some());
    for length in 0..good.len() {
        assert_eq!(Parcel::from_bytes(&good[..length]), None, "{length} bytes");
    }
    let longer = [&good[..], b"d"].concat();
    assert_eq!(Parcel::from_bytes(&longer), None);
    let mut other = good.clone();
    other[0] ^= 1;
    assert_eq!(Parcel::from_bytes(&other), None, "another layout");
    // More than a ring takes at first.
    let mut long = good;
    long.resize(196 + 8193, 0);
    long[20..24].copy_from_slice(&8193u32.to_le_bytes());
    let long = Parcel::from_bytes(&long).expect("well formed");
    assert_eq!(table.put_in(&long, 3), None);
}
