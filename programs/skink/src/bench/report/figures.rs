//! What was measured, and what the processes of the server's side used for it.

use super::super::floor::{Frames, frames};
use super::super::results::{
    Latency, Measurement, ProcessCosts, Results, Round, Unit, WorkloadResults,
};
use super::super::statistics::{Spread, counting, spread, variants};
use super::{extremes, row};
use crate::tools::table;

/// Gigabits in a GiB.
const GIGABITS: f64 = 8.0 * 1.073_741_824;

/// Work per second as people count it: gigabits, or just how many.
pub fn rate(unit: Unit, units_per_second: f64) -> f64 {
    if unit == Unit::Gibibyte {
        units_per_second * GIGABITS
    } else {
        units_per_second
    }
}

/// Digits after the point.
pub fn rate_digits(unit: Unit) -> usize {
    if unit == Unit::Gibibyte { 2 } else { 0 }
}

/// Name and size, in microseconds, of the unit of processor time for a unit of work.
pub fn time_unit(unit: Unit) -> (String, f64) {
    if unit == Unit::Gibibyte {
        ("s/GiB".to_owned(), 1e6)
    } else {
        (format!("µs/{}", unit.word()), 1.0)
    }
}

const CLOSED: &str = "Clients are closed-loop: a connection asks again only when it has its answer, so latencies\n\
     are those at the rate that resulted, and a slower server is asked less.\n";
const OPEN: &str = "At a rate, clients ask at moments that don't depend on answers: a time begins when its request\n\
     was due, so a server that stalls is charged for all that wait meanwhile.\n";

/// Medians and extremes of each variant.
pub fn table_of(results: &Results) -> String {
    let mut rows = vec![row([
        "workload",
        "variant",
        "settings",
        "server CPU",
        "per second",
        "p50 µs",
        "p90 µs",
        "p99 µs",
        "of moments",
        "p99.9 µs",
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
    let has = |rated: bool| {
        results
            .workloads
            .iter()
            .any(|one| one.rate.is_some() == rated)
    };
    let closed = if has(false) { CLOSED } else { "" };
    let open = if has(true) { OPEN } else { "" };
    format!(
        "Medians over rounds (lowest–highest). MTU {}, {} s after {} s of warming up; where the workload doesn't say,\n\
         {} connections.\n{closed}{open}\n{}\n",
        settings.mtu,
        settings.seconds,
        settings.warm_up_seconds,
        settings.connections,
        table(&rows, &[5, 6, 7, 8, 9, 10, 11, 12])
    )
}

fn figures(workload: &WorkloadResults, variant: &str) -> Vec<String> {
    let (rounds, _) = counting(workload);
    let measured = || rounds.iter().filter_map(|round| round.of(variant));
    let tuning = measured().next().map_or("-", |one| one.tuning.as_str());
    let (unit, scale) = time_unit(workload.unit);
    let cost = spread(&rounds, variant, |one| one.server_cpu_us_per_unit / scale);
    let cost = cost.map_or("-".to_owned(), |cost| {
        format!("{} {unit}", extremes(&cost, digits(cost.median)))
    });
    let rate = spread(&rounds, variant, |one| {
        rate(workload.unit, one.units_per_second)
    });
    let rate = rate.map_or("-".to_owned(), |rate| {
        let gigabits = if workload.unit == Unit::Gibibyte {
            " Gbit/s"
        } else {
            ""
        };
        extremes(&rate, rate_digits(workload.unit)) + gigabits
    });
    let latency = |of: fn(&Latency) -> Option<f64>| {
        let figures = measured().filter_map(|one| of(one.latency.as_ref()?));
        let spread = Spread::of(figures);
        spread.map_or("-".to_owned(), |spread| format!("{:.0}", spread.median))
    };
    let percent = |of: fn(&Measurement) -> f64| {
        let spread = spread(&rounds, variant, of);
        spread.map_or("-".to_owned(), |spread| {
            format!("{:.0}%", spread.median * 100.0)
        })
    };
    let errors: u64 = measured()
        .map(|one| one.socket_errors.saturating_add(one.bad_responses))
        .fold(0, u64::saturating_add);
    vec![
        workload.name.clone(),
        variant.to_owned(),
        tuning.to_owned(),
        cost,
        rate,
        latency(|one| Some(one.p50_us)),
        latency(|one| Some(one.p90_us)),
        latency(|one| Some(one.p99_us)),
        latency(|one| one.p99_moments_us),
        latency(|one| one.p999_us),
        percent(|one| one.server_busy),
        percent(|one| one.client_busy),
        errors.to_string(),
    ]
}

/// Digits after the point that make sense.
pub fn digits(figure: f64) -> usize {
    match figure {
        figure if figure < 10.0 => 2,
        figure if figure < 100.0 => 1,
        _ => 0,
    }
}

/// Where the server's processor time went, process by process, and how often each gave it up.
pub fn costs(results: &Results) -> String {
    let mut rows = vec![row([
        "workload",
        "variant",
        "process",
        "user",
        "system",
        "waited",
        "was preempted",
        "frames in",
        "frames out",
        "for each",
    ])];
    for workload in &results.workloads {
        let (rounds, _) = counting(workload);
        for variant in variants(&rounds) {
            let times = if workload.unit == Unit::Gibibyte {
                "ms"
            } else {
                "µs"
            };
            let unit = format!("{} (times in {times})", workload.unit.word());
            for line in cost_lines(&rounds, workload.unit, &variant) {
                let [process, figures @ ..] = line;
                let place = [workload.name.clone(), variant.clone(), process];
                let line = place.into_iter().chain(figures);
                rows.push(line.chain([unit.clone()]).collect());
            }
        }
    }
    format!(
        "Where the server's CPU time went, and context switches, for each unit of work; medians over rounds.\n\
         \"Waited\": gave the CPU up by itself; \"was preempted\": another one's turn came. \"The rest\" is the\n\
         kernel's threads (NAPI) and interrupts: busy time of the CPU that no process of the server used. Frames are\n\
         counted at the server's end of the cable, and their size is the mean; a segment that passes uncut is one.\n\n{}\n",
        table(&rows, &[3, 4, 5, 6, 7, 8])
    )
}

fn cost_lines(rounds: &[&Round], unit: Unit, variant: &str) -> Vec<[String; 7]> {
    let mut names: Vec<&str> = Vec::new();
    let measured = || rounds.iter().filter_map(|round| round.of(variant));
    for process in measured().flat_map(|one| &one.processes) {
        if !names.contains(&process.name.as_str()) {
            names.push(&process.name);
        }
    }
    // Microseconds, or milliseconds.
    let scale = if unit == Unit::Gibibyte { 1e3 } else { 1e6 };
    let median = |figure: &dyn Fn(&Measurement) -> f64, digits: usize| {
        let spread = Spread::of(measured().map(figure));
        spread.map_or("-".to_owned(), |spread| {
            format!("{:.digits$}", spread.median)
        })
    };
    let digits = if unit == Unit::Gibibyte { 0 } else { 2 };
    // Under a thousandth of a processor isn't worth a line; the supervisor never is.
    let matters = |name: &&&str| {
        measured().any(|one| {
            let used = one.processes.iter().filter(|used| used.name == **name);
            let used: f64 = used.map(|one| one.user_seconds + one.system_seconds).sum();
            used * 1e6 > 0.001 * one.server_cpu_us_per_unit * one.units
        })
    };
    let lines = names.iter().filter(matters).map(|name| {
        let of = |one: &Measurement, figure: fn(&ProcessCosts) -> f64| {
            let process = one.processes.iter().find(|process| process.name == *name);
            process.map_or(0.0, figure) / one.units
        };
        [
            (*name).to_owned(),
            median(&|one| of(one, |used| used.user_seconds) * scale, digits),
            median(&|one| of(one, |used| used.system_seconds) * scale, digits),
            median(
                &|one| of(one, |used| used.voluntary_switches as f64),
                digits,
            ),
            median(
                &|one| of(one, |used| used.involuntary_switches as f64),
                digits,
            ),
            "-".to_owned(),
            "-".to_owned(),
        ]
    });
    let told = |frames: Option<Frames>| {
        frames.map_or("-".to_owned(), |Frames { per_unit, bytes }| {
            format!("{per_unit:.digits$} of {bytes:.0} B")
        })
    };
    let rest = |one: &Measurement| {
        let used = one.processes.iter();
        let used: f64 = used.map(|one| one.user_seconds + one.system_seconds).sum();
        (one.server_cpu_us_per_unit * 1e-6 - used / one.units).max(0.0) * scale
    };
    let rest = [
        "the rest".to_owned(),
        "-".to_owned(),
        median(&rest, digits),
        "-".to_owned(),
        "-".to_owned(),
        told(frames(rounds, variant, |one| (one.frames_in, one.bytes_in))),
        told(frames(rounds, variant, |one| {
            (one.frames_out, one.bytes_out)
        })),
    ];
    lines.chain([rest]).collect()
}
