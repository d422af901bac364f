//! Runs scenarios by the thousand, or one to look at.

use skink_simulator::{CrashPlan, NAMED, Report, SHORT, Scenario};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const USAGE: &str = "\
Usage: skink-simulator [--seeds N] [--first N] [--threads N] [--name SCENARIO]
       skink-simulator --seed N [--name SCENARIO] [--verbose]
       skink-simulator --short NAME [--crash HOST,STEP,ACTS,DEATHS,LOSES] [--verbose]

Runs whole stacks on virtual time and checks every byte. Each seed is a scenario of its own.

  --seeds N      run this many seeds (1000)
  --first N      begin with this seed (0)
  --threads N    on this many threads (2)
  --seed N       run one seed and say how it went
  --name NAME    a scenario for one thing instead of the seed's own mixture
  --short NAME   one of the short scenarios that are gone through step by step
  --crash ...    kill the stack of this host before this step, or (if ACTS isn't 0) at its so-manieth
                 act after it, then so many successors while they adopt; LOSES 1: with its frames
  --verbose      with --seed or --short: print the scenario and every frame";

struct Arguments {
    seeds: u64,
    first: u64,
    threads: u64,
    seed: Option<u64>,
    name: Option<String>,
    verbose: bool,
    short: Option<String>,
    crash: Option<CrashPlan>,
}

fn parse() -> Result<Arguments, String> {
    let mut arguments = Arguments {
        seeds: 1000,
        first: 0,
        threads: 2,
        seed: None,
        name: None,
        verbose: false,
        short: None,
        crash: None,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        let number = |text: String| {
            text.parse::<u64>()
                .map_err(|_| format!("{text} is not a number; write one such as 1000"))
        };
        match word.as_str() {
            "--seeds" => arguments.seeds = number(value()?)?,
            "--first" => arguments.first = number(value()?)?,
            "--threads" => arguments.threads = number(value()?)?.max(1),
            "--seed" => arguments.seed = Some(number(value()?)?),
            "--name" => arguments.name = Some(value()?),
            "--short" => arguments.short = Some(value()?),
            "--crash" => arguments.crash = Some(crash(&value()?)?),
            "--verbose" => arguments.verbose = true,
            "--help" | "-h" => return Err(USAGE.to_owned()),
            other => return Err(format!("{other} is not an option\n\n{USAGE}")),
        }
    }
    match &arguments.short {
        Some(name) if !SHORT.contains(&name.as_str()) => {
            return Err(format!(
                "there is no short scenario {name}; there are {}",
                SHORT.join(", ")
            ));
        }
        Some(_) => arguments.seed = Some(0),
        None => {}
    }
    match &arguments.name {
        Some(name) if !NAMED.contains(&name.as_str()) => Err(format!(
            "there is no scenario {name}; there are {}",
            NAMED.join(", ")
        )),
        _ => Ok(arguments),
    }
}

/// What `--crash` says.
fn crash(text: &str) -> Result<CrashPlan, String> {
    let numbers: Result<Vec<u64>, _> = text.split(',').map(str::parse).collect();
    match numbers.as_deref() {
        Ok([host, step, acts, deaths, loses]) => Ok(CrashPlan {
            host: *host as usize,
            step: *step,
            acts: *acts,
            deaths: *deaths as u32,
            loses: *loses != 0,
            ..CrashPlan::default()
        }),
        _ => Err(format!(
            "{text} is not a crash; write five numbers such as 1,20,0,0,0"
        )),
    }
}

fn scenario(arguments: &Arguments, seed: u64) -> Scenario {
    if let Some(mut scenario) = arguments.short.as_deref().and_then(Scenario::short) {
        scenario.crashes.extend(arguments.crash);
        return scenario;
    }
    let named = arguments.name.as_deref();
    named
        .and_then(|name| Scenario::named(name, seed))
        .unwrap_or_else(|| Scenario::from_seed(seed))
}

/// Runs one seed; a panic counts as a failure.
fn attempt(arguments: &Arguments, seed: u64) -> Report {
    let run = || skink_simulator::run(scenario(arguments, seed), arguments.verbose);
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        let mut report = Report::new(seed);
        report.failures.push("a panic (see above)".to_owned());
        report
    })
}

fn replay(arguments: &Arguments, seed: u64) -> String {
    let name = arguments.name.as_ref();
    let name = name.map_or(String::new(), |name| format!(" --name {name}"));
    format!("replay with: cargo run --release -p skink-simulator -- --seed {seed}{name}")
}

fn main() -> ExitCode {
    let arguments = match parse() {
        Ok(arguments) => arguments,
        Err(what) => {
            eprintln!("{what}");
            return ExitCode::from(2);
        }
    };
    match arguments.seed {
        Some(seed) => run_one(&arguments, seed),
        None => run_many(&arguments),
    }
}

fn run_one(arguments: &Arguments, seed: u64) -> ExitCode {
    if arguments.verbose {
        println!("{:#?}", scenario(arguments, seed));
    }
    let report = attempt(arguments, seed);
    for (label, count) in report.counted.iter().filter(|(_, count)| **count > 0) {
        println!("{label:32} {count}");
    }
    println!(
        "seed {seed}: {} of {} connections complete, {} frames, {} steps, ended at {:?}, trace {:016x}",
        report.complete,
        report.connections,
        report.frames,
        report.steps,
        report.ended,
        report.trace,
    );
    for failure in &report.failures {
        println!("FAILED {failure}");
    }
    ExitCode::from(u8::from(!report.failures.is_empty()))
}

fn run_many(arguments: &Arguments) -> ExitCode {
    let next = AtomicU64::new(0);
    let total = Mutex::new((
        0usize,
        0usize,
        0u64,
        Vec::new(),
        BTreeMap::new(),
        BTreeMap::new(),
    ));
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= arguments.seeds {
                        return;
                    }
                    let seed = arguments.first + index;
                    let report = attempt(arguments, seed);
                    let mut total = total.lock().unwrap_or_else(|poison| poison.into_inner());
                    total.0 += report.complete;
                    total.1 += report.connections;
                    total.2 += report.frames;
                    for (label, count) in report.counted {
                        *total.4.entry(label).or_insert(0u64) += count;
                    }
                    for (kind, count) in report.others {
                        *total.5.entry(kind).or_insert(0u64) += count;
                    }
                    if let Some(failure) = report.failures.first() {
                        println!("seed {seed} FAILED: {failure}");
                        println!("    {}", replay(arguments, seed));
                        total.3.push(seed);
                    }
                }
            });
        }
    });
    let total = total
        .into_inner()
        .unwrap_or_else(|poison| poison.into_inner());
    let (complete, connections, frames, failed, counted, others) = total;
    for (label, count) in counted.iter().filter(|(_, count)| **count > 0) {
        println!("{label:32} {count}");
    }
    for (kind, count) in others {
        println!("{count:8} {kind}");
    }
    println!(
        "{} seeds, {} failed; {complete} of {connections} connections complete, {frames} frames",
        arguments.seeds,
        failed.len()
    );
    ExitCode::from(u8::from(!failed.is_empty()))
}
