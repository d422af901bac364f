//! Medians, extremes, and ratios within rounds.

use super::results::{Measurement, Round, WorkloadResults};
use serde::Serialize;

/// The kernel's two variants, and the prefix of Skink's.
pub const KERNEL: [&str; 2] = ["kernel-gso-on", "kernel-gso-off"];

/// The middle and the ends of some figures.
#[derive(Serialize, Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub lowest: f64,
    pub highest: f64,
}

impl Spread {
    /// `None` if there are no figures.
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut sorted: Vec<f64> = figures
            .into_iter()
            .filter(|figure| figure.is_finite())
            .collect();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let upper = *sorted.get(middle)?;
        let median = match sorted.len() % 2 {
            1 => upper,
            _ => f64::midpoint(upper, *sorted.get(middle.checked_sub(1)?)?),
        };
        Some(Spread {
            median,
            lowest: *sorted.first()?,
            highest: *sorted.last()?,
        })
    }

    /// Distance of the ends, as a part of the median.
    pub fn relative(&self) -> f64 {
        if self.median == 0.0 {
            return 0.0;
        }
        (self.highest - self.lowest) / self.median
    }
}

/// Work per server processor second of a Skink variant, divided by a kernel variant's.
#[derive(Serialize, Clone, Debug, PartialEq)]
pub struct Ratio {
    pub workload: String,
    pub variant: String,
    pub kernel: String,
    /// Of the ratios within each round.
    pub work_per_cpu: Spread,
    pub rounds: usize,
    /// There was no undisturbed round, so these are of disturbed ones.
    pub disturbed: bool,
}

/// The rounds that count: the undisturbed ones, or all if there are none (and then `true`).
pub fn counting(results: &WorkloadResults) -> (Vec<&Round>, bool) {
    let undisturbed = |round: &&Round| round.discarded.is_none();
    let kept: Vec<&Round> = results.rounds.iter().filter(undisturbed).collect();
    match kept.is_empty() {
        true => (results.rounds.iter().collect(), !results.rounds.is_empty()),
        false => (kept, false),
    }
}

/// A figure of one variant over rounds.
pub fn spread(
    rounds: &[&Round],
    variant: &str,
    figure: impl Fn(&Measurement) -> f64,
) -> Option<Spread> {
    Spread::of(
        rounds
            .iter()
            .filter_map(|round| round.of(variant))
            .map(figure),
    )
}

/// Names of the variants that were measured, in the order in which they were.
pub fn variants(rounds: &[&Round]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for measurement in rounds.iter().flat_map(|round| &round.measurements) {
        if !names.contains(&measurement.variant) {
            names.push(measurement.variant.clone());
        }
    }
    names
}

/// Every Skink variant beside each of the kernel's.
pub fn ratios(results: &WorkloadResults) -> Vec<Ratio> {
    let (rounds, disturbed) = counting(results);
    let mut ratios = Vec::new();
    for variant in variants(&rounds) {
        if KERNEL.contains(&variant.as_str()) {
            continue;
        }
        for kernel in KERNEL {
            let within = rounds.iter().filter_map(|round| {
                let cost = |name: &str| Some(round.of(name)?.server_cpu_us_per_request);
                Some(cost(kernel)? / cost(&variant)?)
            });
            let within: Vec<f64> = within.collect();
            let rounds = within.len();
            if let Some(work_per_cpu) = Spread::of(within) {
                ratios.push(Ratio {
                    workload: results.name.clone(),
                    variant: variant.clone(),
                    kernel: kernel.to_owned(),
                    work_per_cpu,
                    rounds,
                    disturbed,
                });
            }
        }
    }
    ratios
}

#[cfg(test)]
pub mod tests;
