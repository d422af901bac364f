//! Runs scenarios by the thousand, or one to look at.

use skink_simulator::{CrashPlan, NAMED, PartDeath, Report, SHORT, Scenario};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const USAGE: &str = "\
Usage: skink-simulator [--seeds N] [--first N] [--threads N] [--name SCENARIO]
       skink-simulator --seed N [--name SCENARIO] [--verbose]
       skink-simulator --short NAME [--crash HOST,STEP,ACTS,DEATHS,LOSES] [--verbose]
       skink-simulator --short NAME --split [--death DEATH]... [--lost-bells N] [--verbose]
       skink-simulator --short NAME --split --all [--every N]

Runs whole stacks on virtual time and checks every byte. Each seed is a scenario of its own.

  --seeds N      run this many seeds (1000)
  --first N      begin with this seed (0)
  --threads N    on this many threads (2)
  --seed N       run one seed and say how it went
  --name NAME    a scenario for one thing instead of the seed's own mixture
  --short NAME   one of the short scenarios that are gone through step by step
  --crash ...    kill the stack of this host before this step, or (if ACTS isn't 0) at its so-manieth
                 act after it, then so many successors while they adopt; LOSES 1: with its frames
  --split        with --short: the components of each host are on their own, as in topology split
  --death DEATH  one of them dies: HOST,COMPONENT,TURN,MANNER,ACTS,SHOWN,DOWN,DEATHS,LOSES. In its
                 so-manieth turn (kill, hang or upgrade), at its so-manieth act in that turn if ACTS isn't
                 0; its neighbours see all, nothing, taken, answers, or all as far as the first,
                 second or third of them; it has a successor after DOWN microseconds, and
                 DEATHS others before that die while they adopt; LOSES 1: with the NIC's frames
  --lost-bells N so many of a thousand bells that wake components aren't heard
  --all          each component dies in each turn in each manner (every Nth of them, with --every)
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
    /// The components are on their own, and these die.
    split: Option<Vec<PartDeath>>,
    lost_bells: u32,
    /// All deaths of components, every so-manieth of them.
    all: bool,
    every: u64,
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
        split: None,
        lost_bells: 0,
        all: false,
        every: 1,
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
            "--split" => {
                arguments.split.get_or_insert_default();
            }
            "--death" => {
                let death = value()?.parse()?;
                arguments.split.get_or_insert_default().push(death);
            }
            "--lost-bells" => arguments.lost_bells = number(value()?)? as u32,
            "--all" => arguments.all = true,
            "--every" => arguments.every = number(value()?)?.max(1),
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
    if let (Some(name), Some(deaths)) = (&arguments.short, &arguments.split) {
        return short_apart(name, deaths.clone(), arguments.lost_bells);
    }
    if let Some(mut scenario) = arguments.short.as_deref().and_then(Scenario::short) {
        scenario.crashes.extend(arguments.crash);
        return scenario;
    }
    let named = arguments.name.as_deref();
    named
        .and_then(|name| Scenario::named(name, seed))
        .unwrap_or_else(|| Scenario::from_seed(seed))
}

/// A short scenario, whose name is known to be one.
fn short_apart(name: &str, deaths: Vec<PartDeath>, lost_bells: u32) -> Scenario {
    let mut scenario =
        Scenario::short_apart(name, deaths).unwrap_or_else(|| Scenario::from_seed(0));
    if let Some(apart) = &mut scenario.apart {
        apart.lost_bells = lost_bells;
    }
    scenario
}

/// Runs one seed; a panic counts as a failure.
fn attempt(arguments: &Arguments, seed: u64) -> Report {
    run_safely(scenario(arguments, seed), arguments.verbose)
}

fn run_safely(scenario: Scenario, verbose: bool) -> Report {
    let seed = scenario.seed;
    let run = || skink_simulator::run(scenario, verbose);
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
    match (&arguments.short, arguments.seed) {
        (Some(name), _) if arguments.all => run_all_deaths(&arguments, name),
        (_, Some(seed)) => run_one(&arguments, seed),
        (_, None) => run_many(&arguments),
    }
}

/// Every death of a component in a short scenario, beside those that are given.
fn run_all_deaths(arguments: &Arguments, name: &str) -> ExitCode {
    let given = arguments.split.clone().unwrap_or_default();
    let whole = run_safely(short_apart(name, given.clone(), 0), false);
    let all = PartDeath::all(&whole.turns);
    let next = AtomicU64::new(0);
    let totals = Mutex::new((0usize, 0u64, 0u64, 0u64));
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(arguments.every, Ordering::Relaxed);
                    let Some(death) = all.get(index as usize) else {
                        return;
                    };
                    let mut deaths = given.clone();
                    deaths.push(*death);
                    let report = run_safely(short_apart(name, deaths, arguments.lost_bells), false);
                    let mut totals = totals.lock().unwrap_or_else(|poison| poison.into_inner());
                    totals.0 += report.deaths;
                    totals.1 += report.foreign;
                    totals.2 += 1;
                    let incomplete = report.complete < report.connections;
                    let failure = report.failures.first().cloned().or_else(|| {
                        incomplete.then(|| format!("connections are lost: {:?}", report.others))
                    });
                    if let Some(failure) = failure {
                        totals.3 += 1;
                        println!("FAILED: {failure}");
                        let given: String = given.iter().map(|it| format!(" --death {it}")).collect();
                        println!(
                            "    replay with: cargo run --release -p skink-simulator -- --short {name} --split{given} --death {death}"
                        );
                    }
                }
            });
        }
    });
    let (deaths, foreign, runs, failed) = totals
        .into_inner()
        .unwrap_or_else(|poison| poison.into_inner());
    println!(
        "{name}: {runs} runs, {failed} failed; {deaths} deaths, {foreign} messages of the dead refused"
    );
    ExitCode::from(u8::from(failed > 0))
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
