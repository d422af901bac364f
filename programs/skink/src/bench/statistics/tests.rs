use super::super::results::Latency;
use super::*;

/// A round of variants and their cost per request in microseconds.
pub fn round(costs: &[(&str, f64)], discarded: Option<&str>) -> Round {
    let measurements = costs.iter().map(|(variant, cost)| Measurement {
        variant: (*variant).to_owned(),
        tuning: "sendfile".to_owned(),
        requests: 1000,
        requests_per_second: 1e6 / cost,
        server_cpu_us_per_request: *cost,
        server_busy: 1.0,
        client_busy: 0.5,
        latency: Latency {
            p50_us: 10.0 * cost,
            p99_us: 50.0 * cost,
            ..Latency::default()
        },
        ..Measurement::default()
    });
    Round {
        discarded: discarded.map(str::to_owned),
        measurements: measurements.collect(),
    }
}

/// Three rounds that count and one that doesn't.
pub fn workload() -> WorkloadResults {
    let costs = |on, off, skink| {
        [
            ("kernel-gso-on", on),
            ("kernel-gso-off", off),
            ("skink-packet", skink),
        ]
    };
    WorkloadResults {
        name: "20B".to_owned(),
        rounds: vec![
            round(&costs(10.0, 20.0, 10.0), None),
            round(
                &costs(900.0, 1.0, 1.0),
                Some("during skink-packet, it thundered"),
            ),
            // All are slower: the ratio stays.
            round(&costs(20.0, 40.0, 20.0), None),
            round(&costs(12.0, 20.0, 8.0), None),
        ],
        ..WorkloadResults::default()
    }
}

#[test]
fn median_and_ends() {
    for (figures, expected) in [
        (&[][..], None),
        (&[3.0], Some((3.0, 3.0, 3.0))),
        (&[3.0, 1.0], Some((2.0, 1.0, 3.0))),
        (&[9.0, 1.0, 4.0], Some((4.0, 1.0, 9.0))),
        (
            &[4.0, f64::NAN, 4.0, 1.0, 8.0, f64::INFINITY],
            Some((4.0, 1.0, 8.0)),
        ),
    ] {
        let spread = Spread::of(figures.iter().copied());
        let found = spread.map(|spread| (spread.median, spread.lowest, spread.highest));
        assert_eq!(found, expected, "{figures:?}");
    }
    let spread = Spread {
        median: 4.0,
        lowest: 3.0,
        highest: 5.0,
    };
    assert_eq!(spread.relative(), 0.5);
}

#[test]
fn ratios_are_within_undisturbed_rounds() {
    let found = ratios(&workload());
    let expected = |kernel: &str, median, lowest, highest| Ratio {
        workload: "20B".to_owned(),
        variant: "skink-packet".to_owned(),
        kernel: kernel.to_owned(),
        work_per_cpu: Spread {
            median,
            lowest,
            highest,
        },
        rounds: 3,
        disturbed: false,
    };
    // Not 12 / 10, which the medians' ratio would be.
    let expected = [
        expected("kernel-gso-on", 1.0, 1.0, 1.5),
        expected("kernel-gso-off", 2.0, 2.0, 2.5),
    ];
    assert_eq!(found, expected);
}

#[test]
fn disturbed_rounds_count_only_if_there_are_no_others() {
    let mut results = workload();
    results.rounds.retain(|round| round.discarded.is_some());
    let found = ratios(&results);
    let first = found.first().expect("a ratio");
    assert!(first.disturbed && first.rounds == 1 && first.work_per_cpu.median == 900.0);
    results.rounds.clear();
    assert_eq!(ratios(&results), []);
}

#[test]
fn a_variant_without_figures_has_no_ratio() {
    let mut results = workload();
    for round in &mut results.rounds {
        round
            .measurements
            .retain(|one| one.variant != "kernel-gso-off");
    }
    let kernels: Vec<String> = ratios(&results)
        .into_iter()
        .map(|ratio| ratio.kernel)
        .collect();
    assert_eq!(kernels, ["kernel-gso-on"]);
}
