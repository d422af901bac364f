use super::super::Traffic;
use super::*;

/// What passes the NIC in a millisecond: received frames, their bytes, and bytes sent.
type Millisecond = (u64, u64, u64);

const FRAMES: Millisecond = (200, 200 * 1_514, 50 * 66);
const LARGE_ONES: Millisecond = (20, 20 * 60_000, 20 * 66);
const REQUESTS: Millisecond = (60, 60 * 100, 60 * 300);
const PROXY: Millisecond = (200, 200 * 1_514, 200 * 1_514);
/// Of two that send to each other without end, the one that sends most.
const BOTH_WAYS: Millisecond = (200, 200 * 1_514, 50 * 60_000);
const SENDER: Millisecond = (200, 200 * 1_200, 60 * 65_000);
const TRICKLE: Millisecond = (10, 10 * 1_514, 66);
const NOTHING: Millisecond = (0, 0, 0);

const BEGINS: u64 = BECOMES.as_millis() as u64;
const ENDS: u64 = CEASES.as_millis() as u64;

fn period(millis: u64, passed: Millisecond) -> Period {
    Period {
        length: Duration::from_millis(millis),
        slept: Duration::ZERO,
        sleeps: 0,
        throughout: false,
        traffic: Traffic {
            frames_in: passed.0,
            bytes_in: passed.1,
            frames_out: 0,
            bytes_out: passed.2,
        },
    }
}

/// Answers whether it is bulk after `count` milliseconds, and whether that has changed.
fn go_on(inflow: &mut Inflow, count: u64, each: Millisecond) -> (bool, bool) {
    let changes = (0..count).filter(|_| inflow.take(&period(1, each))).count();
    (inflow.is_bulk(), changes > 0)
}

#[test]
fn who_receives_much_receives_in_bulk_whatever_the_frames_size_and_sends_much_or_not() {
    for bulk in [FRAMES, LARGE_ONES, PROXY, BOTH_WAYS] {
        let mut inflow = Inflow::new();
        assert_eq!(go_on(&mut inflow, BEGINS - 1, bulk), (false, false));
        assert_eq!(go_on(&mut inflow, 1, bulk), (true, true));
        assert_eq!(go_on(&mut inflow, 1_000, bulk), (true, false));
    }
}

#[test]
fn who_answers_or_has_time_doesnt() {
    for other in [REQUESTS, SENDER, TRICKLE, NOTHING] {
        assert_eq!(go_on(&mut Inflow::new(), 10_000, other), (false, false));
    }
}

#[test]
fn pauses_dont_end_it_but_its_end_does() {
    let mut inflow = Inflow::new();
    go_on(&mut inflow, BEGINS, LARGE_ONES);
    for _ in 0..10 {
        assert_eq!(go_on(&mut inflow, ENDS - 1, NOTHING), (true, false));
        assert_eq!(go_on(&mut inflow, ENDS, LARGE_ONES), (true, false));
    }
    assert_eq!(go_on(&mut inflow, ENDS, REQUESTS), (false, true));
}

#[test]
fn the_first_look_after_a_pause_ends_it() {
    let mut inflow = Inflow::new();
    go_on(&mut inflow, BEGINS, FRAMES);
    assert!(inflow.take(&period(ENDS, REQUESTS)) && !inflow.is_bulk());
}

#[test]
fn one_look_in_a_while_is_enough() {
    let bytes = |millis: u64| LEAST / 1_000 * millis;
    let mut inflow = Inflow::new();
    assert!(!inflow.take(&period(BEGINS, (1_000, bytes(BEGINS) - 1, 0))));
    assert!(inflow.take(&period(BEGINS, (1_000, bytes(BEGINS), 0))));
}
