use super::*;

fn at(micros: u64) -> Instant {
    Instant::ZERO + Duration::from_micros(micros)
}

#[test]
fn a_thread_counts_in_periods_in_which_it_falls_asleep_or_wakes() {
    let mut periods = Periods::new();
    let mut thread = Thread::new();
    let ended = |periods: &mut Periods, micros| {
        let period = periods.end(at(micros), Traffic::NONE, || None).unwrap();
        (period.slept.as_micros(), period.sleeps, period.alone)
    };
    assert_eq!(ended(&mut periods, 1_000), (0, 0, 0));
    periods.falls_asleep(&mut thread, at(1_900));
    assert_eq!(ended(&mut periods, 2_000), (100, 1, 1));
    periods.wakes(&mut thread, 0, at(2_200));
    periods.falls_asleep(&mut thread, at(2_700));
    periods.wakes(&mut thread, 0, at(2_800));
    assert_eq!(ended(&mut periods, 3_000), (300, 1, 1));
    // (It may have gone on, or wait for something else.)
    assert_eq!(ended(&mut periods, 4_000), (0, 0, 0));
    periods.falls_asleep(&mut thread, at(4_600));
    assert_eq!(ended(&mut periods, 5_000), (400, 1, 1));
}

#[test]
fn threads_share_the_processors_on_which_they_are() {
    let slept = |threads: usize, processors: u32| {
        let mut periods = Periods::new();
        let mut threads = vec![Thread::new(); threads];
        let mut waiting = Thread::new();
        periods.falls_asleep(&mut waiting, at(100));
        periods.end(at(1_000), Traffic::NONE, || None).unwrap();
        // Each for 200 us, one after the other, and the last one isn't done with it.
        for (index, thread) in (0..).zip(&mut threads) {
            periods.wakes(
                thread,
                index % processors,
                at(1_000 + u64::from(index) * 200),
            );
            if index < 3 {
                periods.falls_asleep(thread, at(1_200 + u64::from(index) * 200));
            }
        }
        let period = periods.end(at(2_000), Traffic::NONE, || None).unwrap();
        period.slept.as_micros()
    };
    assert_eq!(slept(1, 1), 800);
    assert_eq!(slept(3, 1), 400);
    assert_eq!(slept(4, 1), 0, "the last one 400 us so far");
    assert_eq!(slept(3, 3), 800, "as much as each of them");
    assert_eq!(slept(4, 2), 500);
}

#[test]
fn one_of_two_falls_asleep_alone() {
    let mut periods = Periods::new();
    let mut threads = [Thread::new(); 2];
    for time in 0..10 {
        for (index, thread) in (0..).zip(&mut threads) {
            periods.falls_asleep(thread, at(100 * time + 10 * index));
        }
        for (index, thread) in (0..).zip(&mut threads) {
            periods.wakes(thread, 0, at(100 * time + 50 + 10 * index));
        }
    }
    let period = periods.end(at(1_000), Traffic::NONE, || None).unwrap();
    assert_eq!((period.sleeps, period.alone), (20, 10));
    assert_eq!(
        period.slept.as_micros(),
        0,
        "both work for half of the time"
    );
}

#[test]
fn one_that_is_too_short_goes_on() {
    let mut periods = Periods::new();
    let mut traffic = Traffic::NONE;
    assert!(periods.end(at(10_000), traffic, || None).is_some());
    traffic.frames_in = 10;
    assert!(periods.end(at(10_499), traffic, || None).is_none());
    traffic.frames_in = 30;
    let period = periods.end(at(10_500), traffic, || None).unwrap();
    assert_eq!(period.traffic.frames_in, 30);
    assert_eq!(period.rate(30), 60_000);
    assert_eq!(period.rate(u64::MAX), u64::MAX);
}
