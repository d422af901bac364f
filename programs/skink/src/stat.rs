//! `skink stat`: counters.
mod calls;

use crate::cli::StatOptions;
use crate::failure::Failure;
use crate::tools::{self, Found};
use calls::Calls;
use serde::Serialize;
use skink_control::{FIRST_COMPONENT, InstanceInfo, RegionKind};
use skink_messages::{Counter, Counters};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// What `skink stat --json` writes.
#[derive(Serialize, Clone)]
struct Report {
    instances: Vec<InstanceReport>,
}

#[derive(Serialize, Clone)]
struct InstanceReport {
    pid: u32,
    name: String,
    command: Vec<String>,
    nic: String,
    addresses: Vec<String>,
    started_ms: u64,
    /// Sums over all processes, those that have ended too, by label.
    counters: BTreeMap<String, u64>,
    /// Of the programs that a `skink up` serves; None for a `skink run`, where all are resolved in the program.
    calls: Option<Calls>,
    processes: Vec<ProcessReport>,
}

#[derive(Serialize, Clone)]
struct ProcessReport {
    owner: u16,
    pid: u32,
    program: String,
    counters: BTreeMap<String, u64>,
    /// Of a program that is served.
    #[serde(skip)]
    calls: Option<Calls>,
}

/// Shows counters.
pub fn stat(options: &StatOptions) -> Result<(), Failure> {
    let Some(seconds) = options.watch else {
        let report = gather(options)?;
        return show(&report, options, None);
    };
    let interval = Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|interval| *interval >= Duration::from_millis(10))
        .ok_or_else(|| Failure::tool("--watch takes a number of seconds, 0.01 or more"))?;
    let mut before = gather(options)?;
    loop {
        std::thread::sleep(interval);
        let report = gather(options)?;
        let change = difference(&report, &before);
        show(&change, options, Some(interval))?;
        before = report;
    }
}

fn gather(options: &StatOptions) -> Result<Report, Failure> {
    let found = tools::find(options.instance.as_deref())?;
    Ok(Report {
        instances: found
            .iter()
            .map(|found| report(&found.info, &process_counters(found), options.all))
            .collect(),
    })
}

/// Sums over all processes of an instance that aren't zero, by label.
pub fn sums(found: &Found) -> BTreeMap<String, u64> {
    report(&found.info, &process_counters(found), false).counters
}

/// The counters of each process that has registered some, in the order of `info.processes`.
fn process_counters(found: &Found) -> Vec<Vec<u64>> {
    let read = |process| {
        let memory = found.open(process, RegionKind::Counters)?;
        let counters = Counters::open_read_only(memory).ok()?;
        Some(
            Counter::ALL
                .iter()
                .map(|counter| counters.get(*counter))
                .collect(),
        )
    };
    let processes = found.info.processes.iter();
    processes
        .map(|process| read(process).unwrap_or_default())
        .collect()
}

fn report(info: &InstanceInfo, counters: &[Vec<u64>], all: bool) -> InstanceReport {
    let by_label = |values: &dyn Fn(usize, Counter) -> u64| {
        let values = Counter::ALL
            .iter()
            .enumerate()
            .map(|(at, counter)| (counter.label(), values(at, *counter)));
        let kept = values.filter(|(_, value)| all || *value != 0);
        kept.map(|(label, value)| (label.to_owned(), value))
            .collect::<BTreeMap<_, _>>()
    };
    let of = |process: &[u64], at: usize| process.get(at).copied().unwrap_or(0);
    let sum = |at: usize, counter: Counter| {
        let ended = info.finished.get(counter.label()).copied().unwrap_or(0);
        // Programs that are served count for themselves: the sums are the stack's.
        let processes = info.processes.iter().zip(counters);
        let counts = processes
            .filter(|(process, _)| info.topology.is_none() || process.owner >= FIRST_COMPONENT);
        counts.fold(ended, |sum, (_, counters)| {
            sum.saturating_add(of(counters, at))
        })
    };
    let calls = |owner: u16, counters: &[u64]| {
        let is_served = info.topology.is_some() && owner < FIRST_COMPONENT;
        is_served.then(|| Calls::counted(|counter| of(counters, counter as usize)))
    };
    let processes = info.processes.iter().zip(counters);
    let processes: Vec<_> = processes
        .map(|(process, counters)| ProcessReport {
            owner: process.owner,
            pid: process.pid,
            program: process.program.clone(),
            counters: by_label(&|at, _| of(counters, at)),
            calls: calls(process.owner, counters),
        })
        .collect();
    InstanceReport {
        pid: info.pid,
        name: info.name.clone(),
        command: info.command.clone(),
        nic: info.nic.clone(),
        addresses: info.addresses.iter().map(ToString::to_string).collect(),
        started_ms: info.started_ms,
        counters: by_label(&sum),
        calls: info.topology.as_ref().map(|_| sum_of_calls(&processes)),
        processes,
    }
}

fn sum_of_calls(processes: &[ProcessReport]) -> Calls {
    Calls::sum(processes.iter().filter_map(|it| it.calls.as_ref()))
}

/// The same report with what was counted since `before`.
fn difference(now: &Report, before: &Report) -> Report {
    let mut change = now.clone();
    let subtract = |counters: &mut BTreeMap<String, u64>, before: &BTreeMap<String, u64>| {
        for (label, value) in counters.iter_mut() {
            *value = value.saturating_sub(before.get(label).copied().unwrap_or(0));
        }
    };
    for instance in &mut change.instances {
        let Some(earlier) = before
            .instances
            .iter()
            .find(|earlier| earlier.pid == instance.pid)
        else {
            continue;
        };
        subtract(&mut instance.counters, &earlier.counters);
        for process in &mut instance.processes {
            let mut processes = earlier.processes.iter();
            if let Some(earlier) = processes.find(|earlier| earlier.pid == process.pid) {
                subtract(&mut process.counters, &earlier.counters);
                if let (Some(calls), Some(before)) = (&mut process.calls, &earlier.calls) {
                    *calls = calls.since(before);
                }
            }
        }
        if let Some(calls) = &mut instance.calls {
            *calls = sum_of_calls(&instance.processes);
        }
    }
    change
}

fn show(report: &Report, options: &StatOptions, interval: Option<Duration>) -> Result<(), Failure> {
    if options.json {
        return tools::print_json(report, interval.is_none());
    }
    if report.instances.is_empty() {
        tools::say_nothing_runs();
    }
    let texts = report
        .instances
        .iter()
        .map(|instance| describe(instance, options.all, interval));
    tools::print(&texts.collect::<Vec<_>>().join("\n"))
}

fn describe(instance: &InstanceReport, all: bool, interval: Option<Duration>) -> String {
    let mut text = format!(
        "{} (process id {}, {}, {})",
        instance.name,
        instance.pid,
        instance.nic,
        instance.addresses.join(", ")
    );
    let _ = match interval {
        Some(interval) => writeln!(text, ": in {} s", interval.as_secs_f64()),
        None => writeln!(text, ": {}", processes(instance)),
    };
    if let Some(said) = instance.calls.as_ref().and_then(Calls::describe) {
        let _ = writeln!(text, "  {said}");
    }
    let value = |counter: &Counter| instance.counters.get(counter.label()).copied().unwrap_or(0);
    let shown = || {
        Counter::ALL
            .iter()
            .filter(|counter| all || value(counter) != 0)
    };
    let is_drop = |counter: &Counter| counter.label().contains(".drop.");
    let cells = |counter: &Counter| {
        vec![
            format!("  {}", counter.label()),
            value(counter).to_string(),
            counter.help().to_owned(),
        ]
    };
    let counted: Vec<Vec<String>> = shown()
        .filter(|counter| !is_drop(counter))
        .map(cells)
        .collect();
    let dropped: Vec<Vec<String>> = shown()
        .filter(|counter| is_drop(counter))
        .map(cells)
        .collect();
    if counted.is_empty() && dropped.is_empty() {
        text.push_str("  nothing counted\n");
    }
    text.push_str(&tools::table(&counted, &[1]));
    if !dropped.is_empty() {
        text.push_str("  dropped, and why:\n");
        text.push_str(&tools::table(&dropped, &[1]));
    }
    text
}

fn processes(instance: &InstanceReport) -> String {
    let names = instance
        .processes
        .iter()
        .map(|process| format!("{} {}", process.program, process.pid));
    let names: Vec<String> = names.collect();
    match names.len() {
        0 => "no process uses the stack".to_owned(),
        1 => format!("1 process, {}", names.join(", ")),
        count => format!("{count} processes, {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests;
