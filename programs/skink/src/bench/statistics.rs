//! Medians, extremes, and ratios within rounds.

use super::results::{Comparison, Latency, Measurement, Round, Unit, WorkloadResults};
use serde::Serialize;

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

/// What is compared.
#[derive(Serialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    WorkPerCpu,
    WorkPerSecond,
    P50,
    P99,
    P99Moments,
    P999,
}

impl Metric {
    pub const ALL: [Metric; 6] = [
        Metric::WorkPerCpu,
        Metric::WorkPerSecond,
        Metric::P50,
        Metric::P99,
        Metric::P99Moments,
        Metric::P999,
    ];

    /// Latencies are of use only where the load doesn't saturate the server.
    fn is_of_use(self, results: &WorkloadResults) -> bool {
        match self {
            Metric::WorkPerCpu => true,
            // At a rate it is the client that decides.
            Metric::WorkPerSecond => results.rate.is_none(),
            Metric::P50 | Metric::P99 | Metric::P99Moments | Metric::P999 => {
                matches!(results.unit, Unit::RoundTrip | Unit::Pair) || results.rate.is_some()
            }
        }
    }

    /// The variant's, divided by the base's.
    fn ratio(self, variant: &Measurement, base: &Measurement) -> Option<f64> {
        let latency = |of: fn(&Latency) -> Option<f64>| {
            Some(of(variant.latency.as_ref()?)? / of(base.latency.as_ref()?)?)
        };
        match self {
            Metric::WorkPerCpu => {
                Some(base.server_cpu_us_per_unit / variant.server_cpu_us_per_unit)
            }
            Metric::WorkPerSecond => Some(variant.units_per_second / base.units_per_second),
            Metric::P50 => latency(|one| Some(one.p50_us)),
            Metric::P99 => latency(|one| Some(one.p99_us)),
            Metric::P99Moments => latency(|one| one.p99_moments_us),
            Metric::P999 => latency(|one| one.p999_us),
        }
    }
}

/// A figure of one variant, divided by another's.
#[derive(Serialize, Clone, Debug, PartialEq)]
pub struct Ratio {
    pub metric: Metric,
    pub workload: String,
    #[serde(flatten)]
    pub comparison: Comparison,
    /// Of the ratios within each round.
    pub ratio: Spread,
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

/// One workload's ratios of the variants that were measured.
pub fn ratios(results: &WorkloadResults, comparisons: &[Comparison]) -> Vec<Ratio> {
    let (rounds, disturbed) = counting(results);
    let mut ratios = Vec::new();
    let metrics = Metric::ALL.into_iter();
    for metric in metrics.filter(|metric| metric.is_of_use(results)) {
        for comparison in comparisons {
            let within = rounds.iter().filter_map(|round| {
                metric.ratio(round.of(&comparison.variant)?, round.of(&comparison.base)?)
            });
            let within: Vec<f64> = within.collect();
            let rounds = within.len();
            if let Some(ratio) = Spread::of(within) {
                ratios.push(Ratio {
                    metric,
                    workload: results.name.clone(),
                    comparison: comparison.clone(),
                    ratio,
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
