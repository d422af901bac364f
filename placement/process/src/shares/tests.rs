use super::*;

fn key(slot: u32) -> (Protocol, SocketId) {
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
        let mut shares = Shares::default();
        for holder in holders {
            assert!(shares.add(key(5), 0, *holder));
        }
        for (program, expected) in steps {
            assert_eq!(
                shares.release(key(5), *program),
                *expected,
                "{holders:?} {steps:?}"
            );
        }
        assert!(shares.is_empty(), "{holders:?} {steps:?}");
    }
}

#[test]
fn holders_are_told_and_limited() {
    let mut shares = Shares::default();
    for holder in 1..=HOLDERS as u32 {
        assert!(shares.add(key(1), 0, holder));
    }
    assert!(!shares.add(key(1), 0, 5000), "a limit");
    shares.add(key(2), 3, 1);
    shares.release(key(2), 3);
    assert_eq!(shares.holders(&key(2)), Some((false, &[1][..])));
    assert_eq!(shares.holders(&key(3)), None);
    assert_eq!((shares.of(3), shares.of(1)), (vec![key(2)], vec![]));
}

#[test]
fn an_owner_regains_what_another_holds() {
    let mut shares = Shares::default();
    assert!(!shares.regain(key(5)), "nobody holds it");
    assert!(shares.add(key(5), 0, 1));
    assert_eq!(shares.release(key(5), 0), Released::Held);
    assert!(shares.regain(key(5)));
    assert_eq!(shares.holders(&key(5)), Some((true, &[1][..])));
    // The other's end leaves the owner with it, alone.
    assert_eq!(shares.release(key(5), 1), Released::Held);
    assert_eq!(shares.release(key(5), 0), Released::NotShared);
}
