use super::*;
use crate::{Region, TableConfig};
use std::collections::BTreeSet;

fn table(regions: u32) -> SocketTable {
    let mut table = SocketTable::new(4);
    for sockets in 1..=regions {
        let config = TableConfig {
            sockets,
            send_bytes: 4096,
            receive_bytes: 4096,
        };
        let region = Region::create("test", config).expect("a region");
        table.insert(sockets - 1, region).expect("room");
    }
    table
}

#[test]
fn each_region_gives_out_its_own() {
    let mut slots = RegionSlots::new(&table(3));
    for region in 0..3 {
        let count = region + 1;
        let taken: BTreeSet<u32> = std::iter::from_fn(|| slots.take(region)).collect();
        let own: BTreeSet<u32> = (region * 4..region * 4 + count).collect();
        assert_eq!(taken, own);
        assert!(!slots.has_free(region));
    }
    assert_eq!((slots.take(3), slots.take(u32::MAX)), (None, None));
    slots.give(5);
    slots.give(5);
    assert!(slots.has_free(1) && !slots.is_taken(5));
    assert_eq!((slots.take(1), slots.take(1)), (Some(5), None));
    // One that isn't there, in a region and beyond all.
    for slot in [7, 100, u32::MAX] {
        slots.give(slot);
        assert!(!slots.claim(slot) && !slots.is_taken(slot), "{slot}");
    }
    slots.add(3, 2);
    assert!(slots.claim(13) && !slots.claim(13));
    assert_eq!((slots.take(3), slots.take(3)), (Some(12), None));
}

#[test]
fn an_abandoned_region_is_finished_with_its_last_slot() {
    let mut slots = RegionSlots::new(&table(3));
    let [one, other] = [1, 1].map(|region| slots.take(region).expect("a slot"));
    slots.give(other);
    assert!(slots.abandon(1), "it has a slot taken");
    assert!(
        !slots.abandon(1) && !slots.abandon(9),
        "known, and not there"
    );
    assert!(slots.is_abandoned(1) && !slots.is_abandoned(2));
    assert_eq!(slots.take(1), None, "no new sockets");
    assert!(!slots.has_free(1));
    assert_eq!(slots.take_finished(), None);
    slots.give(one);
    slots.give(one);
    assert!(slots.abandon(2), "it is empty");
    let finished = [slots.take_finished(), slots.take_finished()];
    assert_eq!(
        (finished, slots.take_finished()),
        ([Some(1), Some(2)], None)
    );
    // The index serves another program, from the beginning.
    slots.add(1, 2);
    assert!(slots.take(1).is_some() && !slots.is_abandoned(1));
    assert!(slots.take(0).is_some());
}

/// Two regions of 100 sockets with rings that grew, and the bytes of memory that they hold.
#[test]
fn memory_of_many_sockets_is_given_back_in_several_turns() {
    const SOCKETS: u32 = 100;
    const BYTES: u32 = 1 << 18;
    let config = TableConfig {
        sockets: SOCKETS,
        send_bytes: BYTES,
        receive_bytes: BYTES,
    };
    let region = Region::create("test", config).expect("a region");
    let [_, _, rings] = region.files();
    let rings = rings.try_clone_to_owned().expect("a descriptor");
    let held = || rustix::fs::fstat(&rings).expect("its size").st_blocks as u64 * 512;
    let mut table = SocketTable::new(SOCKETS);
    table.insert(0, region).expect("room");
    let mut slots = RegionSlots::new(&table);
    let taken: Vec<u32> = std::iter::from_fn(|| slots.take(0)).collect();
    let before = held();
    for slot in &taken {
        table.open_slot(*slot, crate::SocketKind::Tcp);
        let data = vec![7; BYTES as usize];
        assert!(table.receive_ring(*slot).grow(0));
        assert_eq!(table.receive_ring(*slot).write(&data), data.len());
    }
    let grown = held();
    assert!(grown - before >= u64::from(SOCKETS * BYTES), "{grown}");
    // One that was as small as most are costs nothing.
    let small = taken[7];
    table.close_slot(small, &mut slots);
    table.open_slot(small, crate::SocketKind::Tcp);
    assert!(slots.claim(small));
    slots.abandon(0);
    for slot in &taken {
        table.close_slot(*slot, &mut slots);
    }
    let mut turns = 0;
    let mut last = held();
    assert!(last > grown / 2, "all at once");
    assert!(!slots.is_taken(small), "nothing had to be given back");
    while table.shrink(&mut slots) {
        let now = held();
        let freed = last - now;
        assert!(
            (1..MOST_SHRUNK as u64 + u64::from(BYTES)).contains(&freed),
            "{freed}"
        );
        assert_eq!(slots.take_finished(), None, "its memory isn't back");
        (last, turns) = (now, turns + 1);
    }
    assert!(turns >= 2, "{turns}");
    assert!(held() - before < u64::from(BYTES), "{} are left", held());
    assert_eq!(slots.take_finished(), Some(0));
}

#[test]
fn who_has_closed_many_holds_up_no_other() {
    let mut slots = RegionSlots::new(&table(3));
    let many: Vec<u32> = std::iter::from_fn(|| slots.take(2)).collect();
    let other = slots.take(1).expect("a slot");
    many.iter().for_each(|slot| slots.set_aside(*slot));
    slots.set_aside(other);
    let turns = std::iter::from_fn(|| {
        slots.begin_turn();
        let slot = slots.take_set_aside()?;
        slots.note_shrunk(MOST_SHRUNK);
        assert_eq!(slots.take_set_aside(), None, "not in this turn");
        Some(slot)
    });
    let turns: Vec<u32> = turns.collect();
    assert_eq!(turns, [many[0], other, many[1], many[2]]);
    assert!(!slots.has_set_aside());
}
