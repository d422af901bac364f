use super::*;
use crate::test_support::Recorder;

fn key(slot: u32) -> Key {
    let generation = 1;
    (Protocol::Tcp, SocketId { slot, generation })
}

#[test]
fn the_last_holder_closes() {
    use Released::*;
    // Who shares, who lets go in which order, and what that comes to each time. 0 is the owner.
    type Row<'a> = (&'a [u32], &'a [(u32, Released)]);
    let table: [Row<'_>; 6] = [
        (&[], &[(0, NotShared)]),
        (&[1], &[(0, Held), (1, Last)]),
        (&[1], &[(1, Held), (0, NotShared)]),
        (&[1, 2], &[(1, Held), (0, Held), (2, Last)]),
        (&[1, 1], &[(0, Held), (0, Held), (1, Last), (1, NotShared)]),
        (&[1], &[(0, Held), (7, Held), (1, Last)]),
    ];
    for (holders, steps) in table {
        let mut out = Recorder::default();
        let mut shares = Shares::default();
        for holder in holders {
            assert!(shares.add(key(5), 0, *holder, &mut out).is_some());
        }
        for (program, expected) in steps {
            assert_eq!(
                shares.release(key(5), *program, &mut out),
                *expected,
                "{holders:?} {steps:?}"
            );
        }
        assert!(!shares.is_shared(key(5)), "{holders:?} {steps:?}");
        assert_eq!((shares.total, shares.held.len()), (0, 0));
        assert!(out.stored.is_empty(), "{holders:?} {steps:?}");
    }
}

#[test]
fn holders_are_limited() {
    let mut out = Recorder::default();
    let mut shares = Shares::default();
    for holder in 1..=HOLDERS as u32 {
        assert_eq!(shares.add(key(1), 0, holder, &mut out), Some(true));
    }
    assert_eq!(shares.add(key(1), 0, 5000, &mut out), None, "of a socket");
    assert_eq!(shares.add(key(1), 0, 7, &mut out), Some(true), "has it");
    for slot in 0..SHARES as u32 {
        assert!(shares.add(key(10 + slot), 0, 6000, &mut out).is_some());
    }
    assert_eq!(shares.add(key(2), 0, 6000, &mut out), None, "of a program");
    assert_eq!(shares.held_by(6000).len(), SHARES);
    assert_eq!(out.stored.len(), HOLDERS + SHARES);
}

#[test]
fn a_holder_may_use_what_is_confirmed() {
    let mut out = Recorder::default();
    let mut shares = Shares::default();
    shares.add(key(5), 0, 1, &mut out);
    assert!(!shares.holds(key(5), 1));
    // It isn't lost in the meantime.
    assert_eq!(shares.release(key(5), 0, &mut out), Released::Held);
    shares.confirm(key(5), 1, &mut out);
    assert!(shares.holds(key(5), 1) && !shares.holds(key(5), 0));
    assert_eq!(shares.add(key(5), 0, 1, &mut out), Some(false));
    shares.confirm(key(6), 1, &mut out);
    shares.confirm(key(5), 2, &mut out);
    assert_eq!(out.stored.len(), 2, "nobody else holds anything");
}

#[test]
fn an_owner_regains_what_another_holds() {
    let mut out = Recorder::default();
    let mut shares = Shares::default();
    assert!(!shares.regain(key(5), &mut out), "nobody else holds it");
    assert!(shares.add(key(5), 0, 1, &mut out).is_some());
    assert_eq!(shares.release(key(5), 0, &mut out), Released::Held);
    assert!(shares.regain(key(5), &mut out));
    assert!(!shares.regain(key(5), &mut out));
    // The other's end leaves the owner with it, alone.
    assert_eq!(shares.release(key(5), 1, &mut out), Released::Held);
    assert_eq!(shares.release(key(5), 0, &mut out), Released::NotShared);
    assert!(out.stored.is_empty());
}
