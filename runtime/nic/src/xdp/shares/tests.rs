use super::*;

fn owner(number: u8) -> Owner {
    Owner::new(number).expect("less than 64")
}

/// Each queue's owner, with a capital letter where it is the owner's first.
fn words(shares: &[Option<Share>]) -> String {
    let letter = |share: &Option<Share>| match share {
        None => '-',
        Some(Share { owner, first: true }) => (b'A' + owner.number()) as char,
        Some(Share { owner, .. }) => (b'a' + owner.number()) as char,
    };
    shares.iter().map(letter).collect()
}

#[test]
fn queues_are_shared_evenly_and_firsts_are_kept() {
    for (queues, steps) in [
        // Who is there, and whose the queues are then.
        (1, &[("", "-"), ("a", "A"), ("ab", "A"), ("b", "B")][..]),
        (
            2,
            &[
                ("a", "Aa"),
                ("ab", "AB"),
                ("abc", "AB"),
                ("bc", "CB"),
                ("c", "Cc"),
            ],
        ),
        (
            4,
            &[
                ("a", "Aaaa"),
                ("ab", "AabB"),
                ("abc", "AaCB"),
                ("abcd", "ADCB"),
            ],
        ),
        (
            8,
            &[("a", "Aaaaaaaa"), ("ab", "AaaabbbB"), ("b", "bbbbbbbB")],
        ),
        // A reload: the next two come before the two before them go.
        (
            2,
            &[("ab", "AB"), ("abcd", "AB"), ("acd", "AC"), ("cd", "DC")],
        ),
    ] {
        let mut shares = vec![None; queues];
        for (there, expected) in steps {
            let owners = there.bytes().map(|letter| owner(letter - b'a')).collect();
            share_out(&mut shares, &owners);
            assert_eq!(words(&shares), *expected, "{there} of {queues}");
        }
    }
}

#[test]
fn a_queue_is_taken_once_and_free_after_its_owners_end() {
    let opener = OwnShares::create().expect("memory");
    let mine = Shares::map(opener.memory().expect("a duplicate")).expect("mapped");
    let before = mine.changes();
    opener.give(&[Some(Share {
        owner: owner(1),
        first: true,
    })]);
    assert_ne!(mine.changes(), before);
    assert_eq!(mine.is_given(0, owner(1)), Some(true));
    assert_eq!(mine.is_given(0, owner(2)), None);
    assert!(mine.take(0, owner(1)) && mine.is_held(0, owner(1)));
    assert!(!mine.take(0, owner(2)));
    mine.release(0, owner(2));
    assert!(!mine.take(0, owner(2)), "it isn't the other's to release");
    opener.forget(owner(1));
    assert!(mine.take(0, owner(2)));
    mine.release(0, owner(2));
    assert!(mine.take(0, owner(1)));
    assert_eq!(mine.is_given(QUEUES as usize, owner(1)), None);
    assert!(!mine.take(QUEUES as usize, owner(1)));
}
