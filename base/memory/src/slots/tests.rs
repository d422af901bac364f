use crate::Slots;
use std::collections::BTreeSet;

/// The obviously right oracle: a set of what is taken.
#[test]
fn random_use_never_gives_a_slot_out_twice() {
    let mut slots = Slots::new(100);
    let mut oracle = BTreeSet::new();
    let mut random = 1u32;
    for _ in 0..20_000 {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let slot = (random >> 8) % 110;
        match (random >> 24) % 8 {
            0..4 => match slots.take() {
                Some(slot) => assert!(slot < 100 && oracle.insert(slot)),
                None => assert_eq!(oracle.len(), 100),
            },
            4..7 => {
                slots.give(slot);
                oracle.remove(&slot);
            }
            _ => assert_eq!(slots.claim(slot), slot < 100 && oracle.insert(slot)),
        }
        assert_eq!(slots.is_taken(slot), oracle.contains(&slot));
    }
}

#[test]
fn the_last_given_back_is_the_first_taken() {
    let mut slots = Slots::new(4);
    assert_eq!([slots.take(), slots.take()], [Some(0), Some(1)]);
    slots.give(0);
    slots.give(0);
    assert_eq!([slots.take(), slots.take()], [Some(0), Some(2)]);
    assert!(slots.claim(3) && !slots.claim(3) && !slots.claim(4));
    assert_eq!(slots.take(), None);
}
