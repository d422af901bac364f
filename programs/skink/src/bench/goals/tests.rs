use super::super::plan::LIBRARY;
use super::super::results::Comparison;
use super::super::statistics::Spread;
use super::super::task::Task;
use super::super::variant::{BackEnd, Place, Variant, comparisons};
use super::*;

fn ratio(workload: &str, metric: Metric, comparison: &Comparison, median: f64) -> Ratio {
    Ratio {
        metric,
        workload: workload.to_owned(),
        comparison: comparison.clone(),
        ratio: Spread {
            median,
            lowest: 0.0,
            highest: 9.0,
        },
        rounds: 1,
        disturbed: false,
    }
}

fn compared() -> Vec<Comparison> {
    let mut variants = Variant::kernels().to_vec();
    variants.extend(Variant::of_skink(
        &Place::all()[..2],
        &[BackEnd::Packet],
        true,
    ));
    comparisons(&variants)
}

#[test]
fn only_the_library_beside_the_kernel_on_the_same_cable_has_a_goal() {
    let all = compared();
    let with = all.iter().filter_map(|comparison| {
        let goal = of(&ratio("20B", Metric::WorkPerCpu, comparison, 1.0))?;
        Some((comparison.variant.as_str(), goal))
    });
    assert_eq!(
        with.collect::<Vec<_>>(),
        [
            ("library-packet-gso-on", 1.8),
            ("library-packet-gso-off", 2.5)
        ]
    );
}

#[test]
fn more_work_and_less_latency_reach_a_goal() {
    let all = compared();
    let first = all.first().expect("the library and the kernel");
    for (workload, metric, median, expected) in [
        ("20B", Metric::WorkPerCpu, 1.79, Some(false)),
        ("20B", Metric::WorkPerCpu, 1.8, Some(true)),
        ("20B", Metric::WorkPerSecond, 1.8, None),
        ("rr-1", Metric::P50, 0.71, Some(false)),
        ("rr-1", Metric::P99, 0.7, Some(true)),
        ("rr-1", Metric::WorkPerCpu, 9.0, None),
        ("1MB", Metric::WorkPerCpu, 9.0, None),
    ] {
        let found = reached(&ratio(workload, metric, first, median));
        assert_eq!(found, expected, "{workload} {metric:?} {median}");
    }
}

#[test]
fn every_workload_of_the_verb_has_a_goal_but_pairs() {
    let all = compared();
    let first = all.first().expect("the library and the kernel");
    for task in LIBRARY {
        let of = |metric| of(&ratio(&task.to_string(), metric, first, 1.0));
        let has = Metric::ALL.into_iter().any(|metric| of(metric).is_some());
        assert_eq!(has, !matches!(task, Task::Pairs(..)), "{task}");
    }
}
