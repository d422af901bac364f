//! The project's goals for the library: by how much it is to beat the kernel's stack under an unmodified program.

use super::statistics::{Metric, Ratio};

/// The verb whose workloads have goals. Others measure some of them too, but with other loads.
pub const VERB: &str = "library";

/// What the median of ratios to the kernel is to be: at least so much for work, at most for a latency.
struct Goal {
    workload: &'static str,
    metrics: &'static [Metric],
    /// On a cable with segmentation offload, where the kernel is at its best.
    gso_on: f64,
    /// On a cable without, where it sends frames as on a wire.
    gso_off: f64,
}

const WORK: &[Metric] = &[Metric::WorkPerCpu];
const LATENCY: &[Metric] = &[Metric::P50, Metric::P99];

/// With 64 connections where the workload doesn't say.
const GOALS: [Goal; 10] = [
    goal("20B", WORK, 1.8, 2.5),
    goal("20B-close", WORK, 2.0, 3.0),
    goal("22KB", WORK, 1.2, 2.5),
    goal("redis-get", WORK, 1.8, 2.5),
    goal("redis-set", WORK, 1.8, 2.5),
    goal("memcached-get", WORK, 1.8, 2.5),
    goal("bulk-send", WORK, 1.5, 2.5),
    goal("bulk-receive", WORK, 1.0, 1.5),
    goal("conn", WORK, 2.0, 3.0),
    goal("rr-1", LATENCY, 0.7, 0.7),
];

const fn goal(
    workload: &'static str,
    metrics: &'static [Metric],
    gso_on: f64,
    gso_off: f64,
) -> Goal {
    Goal {
        workload,
        metrics,
        gso_on,
        gso_off,
    }
}

/// What is aimed at with this ratio; `None` if it isn't the library's to the kernel on the same cable.
pub fn of(ratio: &Ratio) -> Option<f64> {
    let comparison = &ratio.comparison;
    if !comparison.like_for_like || !comparison.variant.starts_with("library-") {
        return None;
    }
    let mut goals = GOALS.iter();
    let found = goals
        .find(|goal| goal.workload == ratio.workload && goal.metrics.contains(&ratio.metric))?;
    match comparison.base.as_str() {
        "kernel-gso-on" => Some(found.gso_on),
        "kernel-gso-off" => Some(found.gso_off),
        _ => None,
    }
}

/// Whether it is what is aimed at; `None` if nothing is.
pub fn reached(ratio: &Ratio) -> Option<bool> {
    let (goal, median) = (of(ratio)?, ratio.ratio.median);
    Some(match ratio.metric {
        Metric::WorkPerCpu | Metric::WorkPerSecond => median >= goal,
        Metric::P50 | Metric::P99 | Metric::P99Moments | Metric::P999 => median <= goal,
    })
}

#[cfg(test)]
mod tests;
