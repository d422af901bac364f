use super::*;

fn id(slot: u32, generation: u32) -> SocketId {
    SocketId { slot, generation }
}

#[test]
fn a_slot_belongs_to_one_socket_at_a_time() {
    let mut slots = Slots::new(16);
    let (old, new) = (id(3, 1), id(3, 2));
    assert_eq!(slots.own(old, 7, Events::empty()), Events::empty());
    assert_eq!(slots.note(old, Events::READABLE | Events::CLOSED), Some(7));
    assert_eq!(slots.lasting(old), Events::CLOSED);
    assert_eq!(slots.note(new, Events::READABLE), None, "nobody's so far");
    assert_eq!(slots.lasting(old), Events::empty());
    assert_eq!(slots.own(new, 8, Events::READ_CLOSED), Events::READ_CLOSED);
    slots.disown(new);
    assert_eq!(slots.note(new, Events::ERROR), None);
    assert_eq!(slots.lasting(new), Events::READ_CLOSED | Events::ERROR);
}

#[test]
fn late_words_about_an_old_socket_touch_no_newer_one() {
    for generation in [1, u32::MAX] {
        let mut slots = Slots::new(16);
        let (old, new) = (id(3, generation), id(3, generation.wrapping_add(1)));
        slots.own(old, 7, Events::empty());
        slots.disown(old);
        slots.own(new, 8, Events::empty());
        assert_eq!(slots.note(old, Events::CLOSED), None);
        slots.disown(old);
        assert_eq!(slots.note(new, Events::WRITABLE), Some(8));
        assert_eq!(slots.lasting(new), Events::empty());
    }
}

#[test]
fn regions_far_apart_take_no_room_between_them() {
    let mut slots = Slots::new(1 << 14);
    for (owner, region) in [(1, 0), (2, 4095), (3, 77)] {
        slots.own(id(region << 14 | 5, 1), owner, Events::empty());
    }
    let kept: usize = slots.regions.iter().map(|(_, slots)| slots.len()).sum();
    assert_eq!((slots.regions.len(), kept), (3, 18));
    let mut struck = slots.strike(Events::CLOSED | Events::WRITABLE);
    struck.sort_unstable();
    assert_eq!(struck, [1, 2, 3]);
    assert_eq!(slots.lasting(id(77 << 14 | 5, 1)), Events::CLOSED);
}

#[test]
fn what_happened_in_a_region_is_forgotten_with_it() {
    let mut slots = Slots::new(4);
    let (kept, gone) = (
        SocketId {
            slot: 5,
            generation: 1,
        },
        SocketId {
            slot: 9,
            generation: 1,
        },
    );
    for id in [kept, gone] {
        slots.own(id, 7, Events::CLOSED);
    }
    slots.retain(|region| region == 1);
    assert_eq!(slots.lasting(kept), Events::CLOSED);
    assert_eq!(slots.lasting(gone), Events::empty());
    assert_eq!(slots.note(gone, Events::READABLE), None);
}
