//! Everything at a glance: a line for each variant, a column for each workload.

use super::super::goals;
use super::super::results::{Results, Unit};
use super::super::statistics::{Metric, Ratio, counting, spread, variants};
use super::figures;
use super::ratios::title;
use crate::tools::table;

/// Each variant beside the kernel that sends segments as large, with the `goals` below; nothing if there is one workload only.
pub fn ratios(ratios: &[Ratio], goals: bool) -> String {
    let like: Vec<&Ratio> = ratios
        .iter()
        .filter(|one| one.comparison.like_for_like)
        .collect();
    if distinct(like.iter().map(|one| &one.workload)).len() < 2 {
        return String::new();
    }
    let mut text = "At a glance: like for like, ÷ the kernel with GSO on where the variant sends large segments,\n\
        ÷ the kernel with GSO off where it sends frames. Medians of the ratios within rounds.\n\n"
        .to_owned();
    for metric in [
        Metric::WorkPerCpu,
        Metric::WorkPerSecond,
        Metric::P50,
        Metric::P99,
    ] {
        let of: Vec<&Ratio> = like
            .iter()
            .copied()
            .filter(|one| one.metric == metric)
            .collect();
        if !of.is_empty() {
            text.push_str(&format!(
                "{}\n\n{}\n",
                title(metric),
                ratio_table(&of, goals)
            ));
        }
    }
    text
}

fn ratio_table(ratios: &[&Ratio], goals: bool) -> String {
    let workloads = distinct(ratios.iter().map(|one| &one.workload));
    let names = distinct(ratios.iter().map(|one| &one.comparison.variant));
    let mut rows = vec![head(&workloads)];
    rows.extend(names.iter().map(|name| {
        let cells = workloads.iter().map(|workload| {
            let found = ratios
                .iter()
                .find(|one| one.workload == *workload && one.comparison.variant == *name);
            found.map_or("-".to_owned(), |one| {
                let mark = if one.disturbed { " DISTURBED" } else { "" };
                format!("{:.2}{mark}", one.ratio.median)
            })
        });
        std::iter::once(name.clone()).chain(cells).collect()
    }));
    if goals {
        rows.extend(goal_rows(ratios, &workloads));
    }
    table(&rows, &flush_right(&workloads))
}

/// What is aimed at, beside each of the kernel's variants.
fn goal_rows(ratios: &[&Ratio], workloads: &[String]) -> Vec<Vec<String>> {
    let with = ratios.iter().filter(|one| goals::of(one).is_some());
    let bases = distinct(with.map(|one| &one.comparison.base));
    let row = |base: &String| {
        let cells = workloads.iter().map(|workload| {
            let mut of = ratios
                .iter()
                .filter(|one| one.workload == *workload && one.comparison.base == *base);
            let goal = of.find_map(|one| goals::of(one));
            goal.map_or("-".to_owned(), |goal| format!("{goal:.2}"))
        });
        let name = format!("goal ÷ {base}");
        std::iter::once(name).chain(cells).collect()
    };
    bases.iter().map(row).collect()
}

/// The most that each variant did in each workload; nothing if there is one workload only.
pub fn peak(results: &Results) -> String {
    if results.workloads.len() < 2 {
        return String::new();
    }
    let workloads: Vec<String> = results
        .workloads
        .iter()
        .map(|one| {
            let per_second = if one.unit == Unit::Gibibyte {
                "Gbit/s"
            } else {
                "/s"
            };
            format!("{} {per_second}", one.name)
        })
        .collect();
    let all = results.workloads.iter();
    let names: Vec<String> = all.flat_map(|one| variants(&counting(one).0)).collect();
    let names = distinct(names.iter());
    let mut rows = vec![head(&workloads)];
    rows.extend(names.iter().map(|name| {
        let cells = results.workloads.iter().map(|workload| {
            let (rounds, _) = counting(workload);
            let rate = spread(&rounds, name, |one| {
                figures::rate(workload.unit, one.units_per_second)
            });
            rate.map_or("-".to_owned(), |rate| {
                let digits = figures::rate_digits(workload.unit);
                format!("{:.digits$}", rate.median)
            })
        });
        std::iter::once(name.clone()).chain(cells).collect()
    }));
    let table = table(&rows, &flush_right(&workloads));
    format!("Peak of each: medians of what was done in a second\n\n{table}\n")
}

fn head(workloads: &[String]) -> Vec<String> {
    let first = std::iter::once("variant".to_owned());
    first.chain(workloads.iter().cloned()).collect()
}

fn flush_right(columns: &[String]) -> Vec<usize> {
    (1..=columns.len()).collect()
}

fn distinct<'a>(all: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in all {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}
