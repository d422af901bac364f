use super::*;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn timeouts_follow_rfc_6298() {
    // (samples, backoff, expected timeout)
    let table: [(&[u64], u32, Duration); 7] = [
        (&[], 0, ms(1_000)),
        (&[], 1, ms(2_000)),
        (&[], 30, ms(120_000)),
        (&[100], 0, ms(300)),
        (&[1_000], 0, ms(3_000)),
        (&[1_000], 2, ms(12_000)),
        (&[1, 1, 1, 1], 0, ms(201)),
    ];
    for (samples, backoff, expected) in table {
        let mut rtt = RttEstimator::new();
        samples.iter().for_each(|sample| rtt.sample(ms(*sample)));
        assert_eq!(rtt.timeout(backoff), expected, "{samples:?} {backoff}");
    }
}

#[test]
fn a_steady_path_converges_and_absurd_samples_do_no_harm() {
    let mut rtt = RttEstimator::new();
    rtt.sample(Duration::MAX);
    for _ in 0..400 {
        rtt.sample(ms(50));
    }
    let smoothed = rtt.smoothed().expect("sampled");
    assert!(smoothed.abs_diff(ms(50)) < ms(1), "{smoothed:?}");
    assert!(rtt.timeout(0) < ms(260));
}
