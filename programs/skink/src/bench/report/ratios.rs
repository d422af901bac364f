//! A table of ratios for each figure that is compared.

use super::super::statistics::{Metric, Ratio};
use super::{extremes, row};
use crate::tools::table;

/// All of them.
pub fn tables(ratios: &[Ratio]) -> String {
    if ratios.is_empty() {
        return "Ratios\n  none: nothing was measured on both\n\n".to_owned();
    }
    let tables = Metric::ALL.into_iter().map(|metric| {
        let of: Vec<&Ratio> = ratios.iter().filter(|one| one.metric == metric).collect();
        match of.is_empty() {
            true => String::new(),
            false => format!("{}\n\n{}\n", title(metric), table_of(&of)),
        }
    });
    "Median of the ratios within each round (lowest–highest).\n\n".to_owned()
        + &tables.collect::<String>()
}

/// What a ratio of it is, and which are good.
pub fn title(metric: Metric) -> &'static str {
    match metric {
        Metric::WorkPerCpu => {
            "Work per server CPU second (above 1: more than what it is divided by)"
        }
        Metric::WorkPerSecond => {
            "Work per second (above 1: more; the client may be the bottleneck of both)"
        }
        Metric::P50 => "Median latency (below 1: better)",
        Metric::P99 => "99th percentile of latency (below 1: better)",
        Metric::P99Moments => {
            "99th percentile of what was due within 50 ms, median of all such moments: pauses of the machine reach few (below 1: better)"
        }
        Metric::P999 => "99.9th percentile of latency (below 1: better)",
    }
}

fn table_of(ratios: &[&Ratio]) -> String {
    let mut columns: Vec<&str> = Vec::new();
    for ratio in ratios {
        let against = ratio.comparison.against.as_str();
        if !columns.contains(&against) {
            columns.push(against);
        }
    }
    let mut rows = vec![row(["workload", "variant"])];
    if let Some(head) = rows.first_mut() {
        head.extend(columns.iter().map(|column| format!("÷ {column}")));
        head.push("rounds".to_owned());
    }
    for ratio in ratios {
        let variant = &ratio.comparison.variant;
        let same = rows.last().is_some_and(|last| {
            last.first() == Some(&ratio.workload) && last.get(1) == Some(variant)
        });
        if !same {
            let mut cells = vec![ratio.workload.clone(), variant.clone()];
            cells.resize(2 + columns.len(), "-".to_owned());
            cells.push(match ratio.disturbed {
                true => format!("{}, all DISTURBED", ratio.rounds),
                false => ratio.rounds.to_string(),
            });
            rows.push(cells);
        }
        let column = columns
            .iter()
            .position(|column| *column == ratio.comparison.against);
        let cell = rows
            .last_mut()
            .zip(column)
            .and_then(|(last, column)| last.get_mut(2 + column));
        if let Some(cell) = cell {
            *cell = extremes(&ratio.ratio, 2);
        }
    }
    table(&rows, &[])
}
