use super::*;
use Action::{Close, CloseFrom, Duplicate};

#[test]
fn actions_say_what_a_child_has_open() {
    // Descriptor 5 is closed by `exec`, 6 isn't.
    let all = vec![(5, 50), (6, 60)];
    for (actions, expected) in [
        (&[][..], vec![(6, 60)]),
        (&[Duplicate(5, 0)], vec![(6, 60), (0, 50)]),
        (&[Duplicate(5, 5)], vec![(6, 60), (5, 50)]),
        (&[Duplicate(5, 0), Close(6)], vec![(0, 50)]),
        (&[Duplicate(5, 0), Duplicate(0, 6)], vec![(0, 50), (6, 50)]),
        (&[Duplicate(9, 6)], vec![]),
        (&[Duplicate(5, 0), CloseFrom(3)], vec![]),
    ] {
        assert_eq!(
            apply(actions, all.clone(), |fd| fd == 6),
            expected,
            "{actions:?}"
        );
    }
}

#[test]
fn a_list_is_forgotten_when_it_is_gone() {
    let mut spawning = Spawning::new();
    spawning.add(1, Close(3));
    spawning.add(2, Close(4));
    spawning.add(1, Close(5));
    assert_eq!(spawning.of(1), [Close(3), Close(5)]);
    spawning.forget(1);
    assert_eq!(spawning.of(1), []);
    assert_eq!(spawning.of(2), [Close(4)]);
}
