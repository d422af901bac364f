use super::*;

fn at(micros: u64) -> Instant {
    Instant::ZERO + Duration::from_micros(micros)
}

#[test]
fn a_sleep_that_goes_on_counts_in_each_period() {
    let mut periods = Periods::new();
    let slept = |periods: &mut Periods, micros| {
        let period = periods.end(at(micros), Traffic::NONE, || None).unwrap();
        (period.slept.as_micros(), period.sleeps)
    };
    assert_eq!(slept(&mut periods, 1_000), (0, 0));
    periods.falls_asleep(at(1_900));
    assert_eq!(slept(&mut periods, 2_000), (100, 1));
    // (The second thread to sleep isn't the beginning.)
    periods.falls_asleep(at(2_500));
    assert_eq!(slept(&mut periods, 3_000), (1_000, 0));
    periods.wakes(at(3_200));
    periods.falls_asleep(at(3_700));
    periods.wakes(at(3_800));
    assert_eq!(slept(&mut periods, 4_000), (300, 1));
    assert_eq!(slept(&mut periods, 5_000), (0, 0));
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
