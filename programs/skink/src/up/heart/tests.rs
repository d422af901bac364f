use super::*;
use skink_channel::SleeperDescriptors;

fn heart() -> Heart {
    let sleeper = SleeperDescriptors::create("test").expect("memory");
    Heart::new(sleeper.pulse().expect("a descriptor"))
}

/// What is found at a time: milliseconds, the count, asleep, sleeps on without being rung, state,
/// milliseconds of processor time; and whether it hangs.
type Look = (u64, u64, bool, bool, char, u64, bool);

fn check(what: &str, looks: &[Look]) {
    let mut heart = heart();
    let start = Instant::now();
    for &(at, count, asleep, sleeps, state, used, hangs) in looks {
        let beat = Beat { asleep, count };
        let condition = Condition {
            state,
            used: Duration::from_millis(used),
        };
        let now = start + Duration::from_millis(at);
        let found = heart.judge(now, beat, (sleeps, heart.patience.busy), || Some(condition));
        assert_eq!(found.is_some(), hangs, "{what}, at {at}: {found:?}");
    }
}

#[test]
fn who_goes_on_or_sleeps_is_well() {
    check(
        "goes on",
        &[
            (0, 1, false, false, 'R', 0, false),
            (500, 2, false, false, 'R', 500, false),
            (1000, 3, false, false, 'S', 900, false),
        ],
    );
    check(
        "sleeps",
        &[
            (0, 1, true, true, 'S', 0, false),
            (5000, 1, true, true, 'S', 0, false),
        ],
    );
    check(
        "wakes just when it is looked at",
        &[
            (0, 1, true, true, 'S', 0, false),
            (5000, 1, true, false, 'S', 0, false),
            (5050, 2, false, false, 'S', 0, false),
        ],
    );
}

#[test]
fn who_gets_no_processor_is_well() {
    check(
        "starves",
        &[
            (0, 1, false, false, 'R', 0, false),
            (1000, 1, false, false, 'R', 20, false),
            (2000, 1, false, false, 'R', 70, false),
            (2100, 2, false, false, 'R', 90, false),
        ],
    );
    check(
        "is being debugged",
        &[
            (0, 1, false, false, 't', 0, false),
            (9000, 1, false, false, 't', 0, false),
        ],
    );
}

#[test]
fn who_hangs_is_found() {
    for (what, asleep, sleeps, state, used) in [
        ("runs in circles", false, false, 'R', 100),
        ("waits", false, false, 'S', 0),
        ("is stopped", false, false, 'T', 0),
        ("is stopped in its sleep", true, true, 'T', 0),
        ("doesn't hear", true, false, 'S', 0),
    ] {
        check(
            what,
            &[
                (0, 7, asleep, sleeps, state, 0, false),
                (120, 7, asleep, sleeps, state, used, true),
            ],
        );
    }
    check(
        "waits for a disk",
        &[
            (0, 1, false, false, 'D', 0, false),
            (1000, 1, false, false, 'D', 0, false),
            (2100, 1, false, false, 'D', 0, true),
        ],
    );
}

#[test]
fn who_takes_over_programs_may_take_longer() {
    let mut heart = heart();
    let start = Instant::now();
    let mut look = |milliseconds, adopts| {
        let time = Duration::from_millis(milliseconds);
        let condition = || {
            Some(Condition {
                state: 'R',
                used: time,
            })
        };
        heart.check(start + time, adopts, condition).is_some()
    };
    assert!(!look(0, true) && !look(1000, true));
    assert!(look(1050, false));
    assert!(look(3100, true));
}

#[test]
fn the_kernel_is_understood() {
    let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 150 50 0 0 20 0 1 0 90000 5 6";
    let expected = Condition {
        state: 'S',
        used: Duration::from_secs(2),
    };
    assert_eq!(parse(stat), Some(expected));
    assert_eq!(parse("7 (a) S 1"), None);
    assert_eq!(condition(0), None);
}
