use super::*;

fn at(microseconds: u64) -> Instant {
    Instant::ZERO + Duration::from_micros(microseconds)
}

/// A program that has something to do whenever it looks, and a helper that looks after it.
fn busy() -> Pace {
    let mut pace = Pace::new();
    for _ in 0..=WORTH {
        assert!(!pace.holds(at(0), 1, 0), "nothing is known of it yet");
        pace.left();
    }
    assert!(!pace.look(at(1)));
    pace
}

#[test]
fn answers_of_a_busy_program_gather() {
    let mut pace = busy();
    assert!((0..10).all(|call| pace.holds(at(2 + call), 100, 0)));
    assert!(pace.is_holding(at(101)) && pace.has_held());
    assert!(!pace.is_holding(at(102)), "but not for long");
    assert!(!pace.holds(at(103), 100, 0));
    pace.left();
    assert!(!pace.has_held());
    assert!(pace.holds(at(104), 100, 0));
}

#[test]
fn the_first_answer_after_a_sleep_leaves_at_once() {
    let mut pace = busy();
    assert!(!pace.sleeps(), "it did two things");
    assert!(!pace.holds(at(2), 100, 0));
    pace.left();
    assert!(pace.sleeps(), "one small one");
    assert!(!pace.sleeps(), "none");
    assert!(!pace.holds(at(3), 100, 0));
}

#[test]
fn a_large_answer_is_not_one_that_is_soon_asked_for_more() {
    let mut pace = Pace::new();
    pace.holds(at(0), SMALL + 1, 0);
    assert!(!pace.sleeps());
}

#[test]
fn no_more_is_held_than_keeps_the_other_side_busy() {
    let mut pace = busy();
    pace.left();
    let held = (0..100).take_while(|_| pace.holds(at(2), 1, 0)).count();
    assert_eq!(held, CALLS as usize - 1);
    pace.left();
    assert!(pace.holds(at(200), BYTES - 1, 0));
    assert!(!pace.holds(at(201), 1, 0));
}

#[test]
fn nothing_is_held_unless_the_helper_looks() {
    let mut pace = busy();
    pace.unwatched();
    assert!(!pace.holds(at(2), 1, 0));
    pace.left();
    pace.look(at(3));
    assert!(pace.holds(at(4), 1, 0));
    pace.left();
    for look in 0..u64::from(QUIET_LOOKS) {
        pace.look(at(1000 * (1 + look)));
    }
    assert!(
        !pace.holds(at(90_000), 1, 0),
        "it has gone to look less often"
    );
    pace.unwatched();
    assert!(!pace.is_watched());
}

#[test]
fn a_program_that_answers_twice_now_and_then_is_not_looked_after() {
    let mut pace = Pace::new();
    for look in 1..100 {
        for _ in 0..WORTH {
            assert!(!pace.holds(at(1000 * look), 1, 0));
            pace.left();
        }
        pace.sleeps();
        pace.look(at(1000 * look + 100));
        assert!(!pace.is_watched());
    }
}

#[test]
fn the_helper_looks_as_long_as_something_is_held() {
    let mut pace = busy();
    for look in 1..u64::from(QUIET_LOOKS) {
        pace.look(at(1000 * look));
    }
    let last = 1000 * u64::from(QUIET_LOOKS);
    assert!(pace.holds(at(last - 10), 1, 0));
    assert!(!pace.look(at(last)) && pace.is_watched());
    assert!(pace.look(at(last + 1000)) && !pace.is_watched());
}

/// Leaves something held until the helper finds it, and answers when that was.
fn neglect(pace: &mut Pace, now: Instant) -> Instant {
    assert!(pace.holds(now, 1, 0));
    assert!(pace.is_watched());
    assert!(!pace.look(now + HOLD / 2), "its time isn't up");
    assert!(pace.look(now + HOLD), "what it left must go");
    pace.left();
    now + HOLD
}

#[test]
fn a_program_that_does_not_come_back_is_trusted_less_and_less() {
    let mut pace = busy();
    let mut now = neglect(&mut pace, at(2));
    for times in [2, 4, 8] {
        assert!(!pace.holds(now, 1, 0));
        pace.left();
        now += DISTRUST[0] * times;
        assert!(!pace.holds(now - Duration::from_micros(1), 1, 0));
        pace.left();
        now = neglect(&mut pace, now);
    }
    now += DISTRUST[1];
    for _ in 0..REDEEMED {
        assert!(pace.holds(now, 1, 0));
        pace.left();
    }
    now = neglect(&mut pace, now);
    assert!(
        pace.holds(now + DISTRUST[0], 1, 0),
        "it may have been preempted"
    );
}

#[test]
fn what_one_thread_answers_is_not_held_for_another() {
    let mut pace = busy();
    assert!(!pace.holds(at(2), 1, 1));
    assert!(!pace.holds(at(2), 1, 2), "the first of another thread");
    assert!(pace.holds(at(2), 1, 2), "it has more to say");
    assert!(!pace.holds(at(2), 1, 1));
}
