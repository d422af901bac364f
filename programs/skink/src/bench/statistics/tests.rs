use super::super::results::{Latency, ProcessCosts};
use super::*;

/// A round of variants and their cost per request in microseconds.
pub fn round(costs: &[(&str, f64)], discarded: Option<&str>) -> Round {
    let measurements = costs.iter().map(|(variant, cost)| Measurement {
        variant: (*variant).to_owned(),
        tuning: "sendfile".to_owned(),
        units: 1000.0,
        units_per_second: 1e6 / cost,
        server_cpu_us_per_unit: *cost,
        server_busy: 1.0,
        client_busy: 0.5,
        latency: Some(Latency {
            p50_us: 10.0 * cost,
            p99_us: 50.0 * cost,
            ..Latency::default()
        }),
        processes: vec![ProcessCosts {
            name: "program".to_owned(),
            user_seconds: 0.3e-3 * cost,
            system_seconds: 0.2e-3 * cost,
            voluntary_switches: 500,
            involuntary_switches: 20,
        }],
        ..Measurement::default()
    });
    Round {
        discarded: discarded.map(str::to_owned),
        measurements: measurements.collect(),
        ..Round::default()
    }
}

/// Skink beside the kernel with and without GSO.
pub fn comparisons() -> Vec<Comparison> {
    let one = |base: &str, like_for_like| Comparison {
        variant: "skink-packet".to_owned(),
        base: format!("kernel-{base}"),
        against: base.to_owned(),
        like_for_like,
    };
    vec![one("gso-on", true), one("gso-off", false)]
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

/// The ratios of work per processor second.
fn per_cpu(results: &WorkloadResults) -> Vec<Ratio> {
    let mut found = ratios(results, &comparisons());
    found.retain(|ratio| ratio.metric == Metric::WorkPerCpu);
    found
}

#[test]
fn ratios_are_within_undisturbed_rounds() {
    let expected = |comparison: &Comparison, median, lowest, highest| Ratio {
        metric: Metric::WorkPerCpu,
        workload: "20B".to_owned(),
        comparison: comparison.clone(),
        ratio: Spread {
            median,
            lowest,
            highest,
        },
        rounds: 3,
        disturbed: false,
    };
    let [on, off] = &comparisons()[..] else {
        panic!("two");
    };
    // Not 12 / 10, which the medians' ratio would be.
    let expected = [expected(on, 1.0, 1.0, 1.5), expected(off, 2.0, 2.0, 2.5)];
    assert_eq!(per_cpu(&workload()), expected);
}

#[test]
fn latencies_are_compared_where_they_are_of_use() {
    let mut results = workload();
    let of = |results: &WorkloadResults, metric| {
        let found = ratios(results, &comparisons()).into_iter();
        let found = found.filter(|ratio| ratio.metric == metric);
        found.map(|ratio| ratio.ratio.median).collect::<Vec<f64>>()
    };
    // Of work more is better, of latency less.
    assert_eq!(of(&results, Metric::WorkPerSecond), [1.0, 2.0]);
    assert!(of(&results, Metric::P50).is_empty());
    results.unit = Unit::RoundTrip;
    assert_eq!(of(&results, Metric::P50), [1.0, 0.5]);
    assert_eq!(of(&results, Metric::P99), [1.0, 0.5]);
    assert!(of(&results, Metric::P999).is_empty());
}

#[test]
fn disturbed_rounds_count_only_if_there_are_no_others() {
    let mut results = workload();
    results.rounds.retain(|round| round.discarded.is_some());
    let found = per_cpu(&results);
    let first = found.first().expect("a ratio");
    assert!(first.disturbed && first.rounds == 1 && first.ratio.median == 900.0);
    results.rounds.clear();
    assert_eq!(per_cpu(&results), []);
}

#[test]
fn a_variant_without_figures_has_no_ratio() {
    let mut results = workload();
    for round in &mut results.rounds {
        round
            .measurements
            .retain(|one| one.variant != "kernel-gso-off");
    }
    let found = per_cpu(&results).into_iter();
    let bases: Vec<String> = found.map(|ratio| ratio.comparison.base).collect();
    assert_eq!(bases, ["kernel-gso-on"]);
}
