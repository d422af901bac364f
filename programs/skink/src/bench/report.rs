//! The results for a person to read, and for a program.

mod figures;
mod floor;
mod memory;
mod overview;
mod ratios;

use super::floor::{Floor, floors};
use super::goals;
use super::results::{Results, VariantFailure};
use super::statistics::{self, Ratio, Spread, counting, spread, variants};
use crate::failure::Failure;
use crate::tools::table;
use serde::Serialize;
use std::fmt::Write;

#[derive(Serialize)]
struct Whole<'a> {
    ratios: Vec<Ratio>,
    floors: Vec<Floor>,
    #[serde(flatten)]
    results: &'a Results,
}

/// One JSON object: the ratios and floors, then every raw figure.
pub fn json(results: &Results) -> Result<String, Failure> {
    let whole = Whole {
        ratios: all_ratios(results),
        floors: floors(results),
        results,
    };
    let text = serde_json::to_string_pretty(&whole);
    text.map(|text| text + "\n")
        .map_err(|error| Failure::tool(error.to_string()))
}

fn all_ratios(results: &Results) -> Vec<Ratio> {
    let workloads = results.workloads.iter();
    workloads
        .flat_map(|one| statistics::ratios(one, &results.comparisons))
        .collect()
}

/// Ratios first, then the figures, then what they are worth.
pub fn text(results: &Results) -> String {
    let mut text = String::new();
    if results.machine.build == "debug" {
        text.push_str("A DEBUG BUILD: these figures of Skink mean nothing.\n\n");
    }
    let ratios = all_ratios(results);
    let goals = results.settings.verb == goals::VERB;
    text.push_str(&overview::ratios(&ratios, goals));
    text.push_str(&floor::table_of(&floors(results)));
    text.push_str(&overview::peak(results));
    text.push_str(&ratios::tables(&ratios));
    text.push_str(&memory::memory(results));
    text.push_str(&figures::table_of(results));
    text.push_str(&figures::costs(results));
    text.push_str(&worth(results));
    text.push_str(&failures(results));
    text
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

fn extremes(spread: &Spread, digits: usize) -> String {
    format!(
        "{:.digits$} ({:.digits$}–{:.digits$})",
        spread.median, spread.lowest, spread.highest
    )
}

/// Noise, discarded rounds, calibration, pinning, machine.
fn worth(results: &Results) -> String {
    let mut text = "What the figures are worth\n".to_owned();
    text.push_str(&disturbances(results));
    text.push_str(&calibration(results));
    text.push_str("\nPinned\n");
    results.pinned.iter().for_each(|line| {
        let _ = writeln!(text, "  {line}");
    });
    results.not_pinned.iter().for_each(|line| {
        let _ = writeln!(
            text,
            "  NOT PINNED: {line}; its work may be charged to either side"
        );
    });
    let machine = &results.machine;
    let _ = writeln!(
        text,
        "\nMachine\n  {} CPUs, {}; Linux {}\n  skink {} ({})",
        machine.processors, machine.processor, machine.kernel, machine.skink, machine.build,
    );
    for program in &machine.programs {
        let _ = writeln!(text, "  {program}");
    }
    text
}

fn disturbances(results: &Results) -> String {
    let mut text = String::new();
    for workload in &results.workloads {
        let (rounds, disturbed) = counting(workload);
        let discarded = workload
            .rounds
            .iter()
            .filter(|round| round.discarded.is_some())
            .count();
        let _ = write!(
            text,
            "  {}: {discarded} of {} rounds discarded",
            workload.name,
            workload.rounds.len()
        );
        if disturbed {
            text.push_str(", but shown, for want of others: DON'T QUOTE THEM");
        }
        let bases = variants(&rounds).into_iter();
        for base in bases.filter(|name| is_base(results, name)) {
            if let Some(cost) = spread(&rounds, &base, |one| one.server_cpu_us_per_unit) {
                let _ = write!(
                    text,
                    "; {base}'s own cost spread over {:.0}%",
                    cost.relative() * 100.0
                );
            }
        }
        text.push('\n');
        if let Some(why) = workload
            .rounds
            .iter()
            .find_map(|round| round.discarded.as_ref())
        {
            let _ = writeln!(text, "    discarded, for instance: {why}");
        }
        for silent in workload.rounds.iter().flat_map(|round| &round.silent) {
            let VariantFailure { variant, why } = silent;
            let _ = writeln!(
                text,
                "    while others used the machine, on {variant} {why}"
            );
        }
    }
    let limit = results.settings.disturbance_limit * 100.0;
    let _ = writeln!(
        text,
        "  A round is discarded if, during any of its measurements, processes outside the benchmark used\n  \
         more than {limit:.0}% of a CPU (on either: which one can't be told), or the hypervisor took that much\n  \
         from one of the two. Kernel threads other than processes' own can't be told apart and don't count."
    );
    text
}

/// Whether others are held against it.
fn is_base(results: &Results, name: &str) -> bool {
    results.comparisons.iter().any(|one| one.base == name)
}

fn calibration(results: &Results) -> String {
    if results
        .workloads
        .iter()
        .all(|one| one.calibration.is_empty())
    {
        return String::new();
    }
    let mut text =
        "\nSettings tried beforehand, server CPU µs/request (the best is used)\n".to_owned();
    let mut rows = Vec::new();
    for workload in &results.workloads {
        for one in &workload.calibration {
            let tried = one
                .tried
                .iter()
                .map(|(tuning, cost)| format!("{tuning} {cost:.1}"));
            let mut cells = vec![format!("  {}", workload.name), one.variant.clone()];
            cells.extend(tried);
            let mark = if one.disturbed { " (DISTURBED)" } else { "" };
            cells.push(format!("→ {}{mark}", one.chosen));
            rows.push(cells);
        }
    }
    text.push_str(&table(&rows, &[]));
    text
}

fn failures(results: &Results) -> String {
    let mut text = String::new();
    for workload in &results.workloads {
        for failure in &workload.failures {
            let _ = writeln!(
                text,
                "\nFAILED: {} on {}: {}",
                workload.name,
                failure.variant,
                failure.why.trim()
            );
        }
    }
    text
}

#[cfg(test)]
mod tests;
