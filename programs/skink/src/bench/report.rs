//! The results for a person to read, and for a program.

use super::results::{Results, WorkloadResults};
use super::statistics::{self, KERNEL, Ratio, Spread, counting, spread, variants};
use crate::failure::Failure;
use crate::tools::table;
use serde::Serialize;
use std::fmt::Write;

#[derive(Serialize)]
struct Whole<'a> {
    ratios: Vec<Ratio>,
    #[serde(flatten)]
    results: &'a Results,
}

/// One JSON object: the ratios, then every raw figure.
pub fn json(results: &Results) -> Result<String, Failure> {
    let whole = Whole {
        ratios: ratios(results),
        results,
    };
    let text = serde_json::to_string_pretty(&whole);
    text.map(|text| text + "\n")
        .map_err(|error| Failure::tool(error.to_string()))
}

fn ratios(results: &Results) -> Vec<Ratio> {
    results
        .workloads
        .iter()
        .flat_map(statistics::ratios)
        .collect()
}

/// Ratios first, then the figures, then what they are worth.
pub fn text(results: &Results) -> String {
    let mut text = String::new();
    if results.machine.build == "debug" {
        text.push_str("A DEBUG BUILD: these figures of Skink mean nothing.\n\n");
    }
    text.push_str(&ratio_table(&ratios(results)));
    text.push('\n');
    text.push_str(&figure_table(results));
    text.push('\n');
    text.push_str(&worth(results));
    text.push_str(&failures(results));
    text
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

fn ratio_table(ratios: &[Ratio]) -> String {
    let mut rows = vec![row([
        "workload",
        "variant",
        "÷ kernel, GSO on",
        "÷ kernel, GSO off",
        "rounds",
    ])];
    for ratio in ratios {
        let [on, _] = KERNEL;
        let column = if ratio.kernel == on { 2 } else { 3 };
        let same = rows.last().is_some_and(|last| {
            last.first() == Some(&ratio.workload) && last.get(1) == Some(&ratio.variant)
        });
        if !same {
            let rounds = match ratio.disturbed {
                true => format!("{}, all DISTURBED", ratio.rounds),
                false => ratio.rounds.to_string(),
            };
            rows.push(row([&ratio.workload, &ratio.variant, "-", "-", &rounds]));
        }
        let cell = rows.last_mut().and_then(|last| last.get_mut(column));
        if let Some(cell) = cell {
            *cell = extremes(&ratio.work_per_cpu, 2);
        }
    }
    let mut text = "Work per server CPU second, Skink ÷ kernel (above 1: Skink does more).\n\
        Median of the ratios within each round (lowest–highest).\n\n"
        .to_owned();
    match ratios {
        [] => text.push_str("  none: nothing was measured on both\n"),
        _ => text.push_str(&table(&rows, &[])),
    }
    text
}

fn extremes(spread: &Spread, digits: usize) -> String {
    format!(
        "{:.digits$} ({:.digits$}–{:.digits$})",
        spread.median, spread.lowest, spread.highest
    )
}

/// Digits after the point that make sense for microseconds.
fn microseconds(spread: &Spread) -> String {
    extremes(spread, if spread.median < 100.0 { 1 } else { 0 })
}

fn figure_table(results: &Results) -> String {
    let mut rows = vec![row([
        "workload",
        "variant",
        "nginx's settings",
        "server CPU µs/request",
        "requests/s",
        "p50 µs",
        "p90 µs",
        "p99 µs",
        "server busy",
        "client busy",
        "errors",
    ])];
    for workload in &results.workloads {
        let (rounds, _) = counting(workload);
        for variant in variants(&rounds) {
            rows.push(figures(workload, &variant));
        }
    }
    let settings = &results.settings;
    format!(
        "Medians over rounds (lowest–highest). {} connections, MTU {}, {} s after {} s of warming up.\n\
         wrk is closed-loop: a connection asks again only when it has its answer, so these latencies are\n\
         those at saturation, and a slower server is asked less.\n\n{}",
        settings.connections,
        settings.mtu,
        settings.seconds,
        settings.warm_up_seconds,
        table(&rows, &[5, 6, 7, 8, 9, 10])
    )
}

fn figures(workload: &WorkloadResults, variant: &str) -> Vec<String> {
    let (rounds, _) = counting(workload);
    let measured = || rounds.iter().filter_map(|round| round.of(variant));
    let tuning = measured().next().map_or("-", |one| one.tuning.as_str());
    let cost = spread(&rounds, variant, |one| one.server_cpu_us_per_request);
    let rate = spread(&rounds, variant, |one| one.requests_per_second);
    let median = |figure: &dyn Fn(&super::results::Measurement) -> f64| {
        spread(&rounds, variant, figure).map_or(0.0, |spread| spread.median)
    };
    let errors: u64 = measured()
        .map(|one| one.socket_errors.saturating_add(one.bad_responses))
        .fold(0, u64::saturating_add);
    vec![
        workload.name.clone(),
        variant.to_owned(),
        tuning.to_owned(),
        cost.as_ref().map_or("-".to_owned(), microseconds),
        rate.as_ref()
            .map_or("-".to_owned(), |rate| extremes(rate, 0)),
        format!("{:.0}", median(&|one| one.latency.p50_us)),
        format!("{:.0}", median(&|one| one.latency.p90_us)),
        format!("{:.0}", median(&|one| one.latency.p99_us)),
        format!("{:.0}%", median(&|one| one.server_busy * 100.0)),
        format!("{:.0}%", median(&|one| one.client_busy * 100.0)),
        errors.to_string(),
    ]
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
        "\nMachine\n  {} CPUs, {}; Linux {}\n  skink {} ({}), {}, {}",
        machine.processors,
        machine.processor,
        machine.kernel,
        machine.skink,
        machine.build,
        machine.nginx,
        machine.wrk
    );
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
        for kernel in KERNEL {
            if let Some(cost) = spread(&rounds, kernel, |one| one.server_cpu_us_per_request) {
                let _ = write!(
                    text,
                    "; {kernel}'s own cost spread over {:.0}%",
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

fn calibration(results: &Results) -> String {
    let mut text =
        "\nnginx's settings tried beforehand, server CPU µs/request (the best is used)\n"
            .to_owned();
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
