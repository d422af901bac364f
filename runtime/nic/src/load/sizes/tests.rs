use super::super::Traffic;
use super::*;
use skink_time::Duration;

/// What passes the NIC in a millisecond: received bytes, packets sent, and their bytes; and how often the program sleeps.
type Millisecond = (u64, u64, u64, u64);

const ANSWERS: Millisecond = (6_000, 60, 60 * 300, 20);
const DOWNLOADS: Millisecond = (6_000, 40, 40 * 22_000, 20);
const UPLOAD: Millisecond = (1_000_000, 16, 16 * 66, 16);
const ROUND_TRIPS: Millisecond = (1_000, 15, 15 * 67, 15);
const OPEN_LOOP: Millisecond = (1_200, 12, 12 * 300, 9);
const NOTHING: Millisecond = (0, 0, 0, 1);

/// Answers whether they are small after `count` milliseconds, and whether that has changed.
fn go_on(sizes: &mut Sizes, count: u32, each: Millisecond) -> (bool, bool) {
    let period = Period {
        length: Duration::from_millis(1),
        slept: Duration::ZERO,
        sleeps: each.3,
        throughout: false,
        traffic: Traffic {
            bytes_in: each.0,
            frames_out: each.1,
            bytes_out: each.2,
            ..Traffic::NONE
        },
    };
    let changes = (0..count).filter(|_| sizes.take(&period)).count();
    (sizes.are_small(), changes > 0)
}

#[test]
fn small_packets_are_noticed_and_large_ones_too() {
    let mut sizes = Sizes::new();
    assert_eq!(go_on(&mut sizes, ENOUGH - 1, ANSWERS), (false, false));
    assert_eq!(go_on(&mut sizes, 1, DOWNLOADS), (false, false));
    assert_eq!(go_on(&mut sizes, 2, ANSWERS), (true, true));
    assert_eq!(go_on(&mut sizes, 100, ANSWERS), (true, false));
    assert_eq!(go_on(&mut sizes, ENOUGH, DOWNLOADS), (false, true));
}

#[test]
fn acknowledgements_of_large_packets_are_small() {
    assert_eq!(go_on(&mut Sizes::new(), ENOUGH, UPLOAD), (true, true));
}

#[test]
fn who_waits_for_each_answer_is_left_alone() {
    assert_eq!(go_on(&mut Sizes::new(), 100, ROUND_TRIPS), (false, false));
    let mut sizes = Sizes::new();
    go_on(&mut sizes, ENOUGH, ANSWERS);
    assert_eq!(go_on(&mut sizes, ENOUGH, ROUND_TRIPS), (false, true));
    go_on(&mut sizes, ENOUGH, ANSWERS);
    assert_eq!(go_on(&mut sizes, ENOUGH, NOTHING), (false, true));
}

#[test]
fn answers_of_which_some_come_together_are_not_waited_for_one_by_one() {
    assert_eq!(go_on(&mut Sizes::new(), ENOUGH, OPEN_LOOP), (true, true));
}

#[test]
fn a_load_near_the_limits_doesnt_change_it_to_and_fro() {
    let mut sizes = Sizes::new();
    let between = (6_000, 20, 20 * (SMALL + LARGE) / 2, 5);
    assert_eq!(go_on(&mut sizes, 100, between), (false, false));
    go_on(&mut sizes, ENOUGH, ANSWERS);
    assert_eq!(go_on(&mut sizes, 100, between), (true, false));
}

#[test]
fn nothing_is_known_of_who_isnt_looked_at() {
    let mut sizes = Sizes::new();
    assert!(!sizes.rest());
    go_on(&mut sizes, ENOUGH, ANSWERS);
    assert!(sizes.rest() && !sizes.are_small());
}
