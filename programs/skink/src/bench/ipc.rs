//! `skink bench ipc`: what channels cost, beside what the hardware and the kernel ask for the same.

mod cycles;
mod exchange;
mod report;

use super::measure::{DISTURBANCE_LIMIT, failed};
use super::outside;
use super::statistics::Spread;
use crate::failure::Failure;
use clap::Args;
use exchange::{Exchange, Sample};
use serde::Serialize;
use skink_testbed::CpuTime;
use std::time::Instant;

/// Where the producer, or who asks, runs; and where the consumer, or who answers, runs.
const CPUS: [usize; 2] = [1, 0];
/// How many rounds are tried for each that is wanted.
const ATTEMPTS: u32 = 5;
/// By so much a bare cache line's round trips may differ between which something is compared with them.
const MOVED_LIMIT: f64 = 0.1;
/// By so much those of a round may differ from those of most rounds.
const ELSEWHERE_LIMIT: f64 = 0.25;
/// A bare cache line that takes less than this, in nanoseconds, doesn't go from core to core: two threads of one core have
/// its caches in common (30 ns on an EPYC 7003, where the nearest core takes 65 to 75).
const CROSSES_NS: f64 = 40.0;

/// Measure what a message between two processors costs: by a channel, and by the kernel
///
/// One side runs on CPU 1 and the other on CPU 0. Everything is measured in each round, and compared
/// within it. A round in which other processes used more than 5% of a CPU is discarded and repeated; so
/// is one in which the hypervisor seems to have moved a CPU: a bare cache line, measured between all
/// that is compared with it, took another time than before, or another one than in most rounds; and one
/// in which both CPUs were threads of one core. So leave the machine alone meanwhile.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Needs two CPUs, and no privileges. With everything at its default it takes some seconds.

Examples:
  skink bench ipc
  skink bench ipc --rounds 1           a quick look
  skink bench ipc --json | jq .ratios")]
pub struct IpcOptions {
    /// Undisturbed rounds to measure; at least 5 for figures to be quoted
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Write JSON, with every raw figure
    #[arg(long)]
    json: bool,
}

/// Everything, once.
#[derive(Serialize, Clone, Debug, Default)]
struct Round {
    /// Why it doesn't count, if it doesn't.
    discarded: Option<String>,
    /// How much of a processor the hypervisor took. It takes milliseconds at a time, and what doesn't sleep is measured in
    /// thousands of blocks of microseconds: so it is in the wake-ups, and in what is rare.
    stolen: f64,
    /// Cycles of a core in a tick of the time-stamp counter, by how long a chain of additions takes.
    cycles_per_tick: f64,
    samples: Vec<Sample>,
}

impl Round {
    fn of(&self, name: &str) -> Option<&Sample> {
        self.samples.iter().find(|sample| sample.name == name)
    }

    /// A bare cache line's round trip, in ticks.
    fn line(&self) -> Option<f64> {
        Some(self.of(Exchange::BareRoundTrip.name())?.p50)
    }

    fn is_elsewhere(&self, usual: f64) -> bool {
        let line = self.line().unwrap_or_default();
        (line - usual).abs() > usual * ELSEWHERE_LIMIT
    }
}

/// All figures of one run.
#[derive(Serialize, Clone, Debug, Default)]
struct Results {
    kernel: String,
    processor: String,
    /// `release`, or `debug`, whose figures mean nothing.
    build: &'static str,
    /// Ticks of the time-stamp counter in a nanosecond.
    ticks_per_ns: f64,
    rounds: Vec<Round>,
}

impl Results {
    /// The bare cache line's round trip, in ticks, in most of the rounds that aren't discarded.
    fn usual_line(&self) -> f64 {
        let kept = self.rounds.iter().filter(|round| round.discarded.is_none());
        Spread::of(kept.filter_map(Round::line)).map_or(0.0, |lines| lines.median)
    }

    /// Those of them in which the processors seem to have been where they mostly were.
    fn alike(&self) -> impl Iterator<Item = &Round> {
        let usual = self.usual_line();
        let kept = self.rounds.iter().filter(|round| round.discarded.is_none());
        kept.filter(move |round| !round.is_elsewhere(usual))
    }

    /// Discards the others.
    fn discard_others(&mut self) {
        let usual = self.usual_line();
        for round in &mut self.rounds {
            if round.discarded.is_none() && round.is_elsewhere(usual) {
                let line = round.line().unwrap_or_default();
                round.discarded = Some(format!(
                    "a bare cache line took {line:.0} ticks, and {usual:.0} in most rounds: a processor was elsewhere"
                ));
            }
        }
    }

    /// The rounds that count: the undisturbed ones, or all if there are none (and then `true`).
    fn counting(&self) -> (Vec<&Round>, bool) {
        let kept: Vec<&Round> = self
            .rounds
            .iter()
            .filter(|round| round.discarded.is_none())
            .collect();
        match kept.is_empty() {
            true => (self.rounds.iter().collect(), !self.rounds.is_empty()),
            false => (kept, false),
        }
    }
}

/// Measures, and prints the results.
pub fn bench(options: &IpcOptions) -> Result<(), Failure> {
    check_machine()?;
    let results = measure(options.rounds)?;
    match options.json {
        true => crate::tools::print(&report::json(&results)?),
        false => crate::tools::print(&report::text(&results)),
    }
}

fn check_machine() -> Result<(), Failure> {
    for cpu in CPUS {
        let pinned = std::thread::spawn(move || outside::pin(None, cpu)).join();
        if !matches!(pinned, Ok(Ok(()))) {
            return Err(Failure::tool(format!(
                "this process may not use CPU {cpu}, and each side needs one of its own: run it on a \
                 machine with two CPUs, and not under taskset"
            )));
        }
    }
    Ok(())
}

fn measure(wanted: u32) -> Result<Results, Failure> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let processor = read("/proc/cpuinfo");
    let model = processor
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let rate = TickRate::begin();
    let mut results = Results {
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        processor: model
            .map_or("unknown", |line| line.trim_start_matches([' ', '\t', ':']))
            .to_owned(),
        build: match cfg!(debug_assertions) {
            true => "debug",
            false => "release",
        },
        ..Results::default()
    };
    for _ in 0..wanted.saturating_mul(ATTEMPTS) {
        results.rounds.push(round(&rate)?);
        if results.alike().count() == wanted as usize {
            break;
        }
    }
    results.discard_others();
    results.ticks_per_ns = rate.per_ns();
    Ok(results)
}

/// Since when ticks are counted, and what the counter said then.
struct TickRate(Instant, u64);

impl TickRate {
    fn begin() -> TickRate {
        TickRate(Instant::now(), skink_channel::time_stamp())
    }

    fn per_ns(&self) -> f64 {
        let ticks = skink_channel::time_stamp().wrapping_sub(self.1);
        ticks as f64 / self.0.elapsed().as_nanos() as f64
    }
}

fn round(rate: &TickRate) -> Result<Round, Failure> {
    let stolen = || -> Result<f64, Failure> {
        let of = |cpu| CpuTime::of_processor(cpu).map_err(failed);
        Ok(of(CPUS[0])?.stolen + of(CPUS[1])?.stolen)
    };
    let (start, others, taken) = (Instant::now(), outside::others_seconds(), stolen()?);
    let measured = |exchange: Exchange| {
        let failed = |error| Failure::tool(format!("{}: {error}", exchange.name()));
        exchange.measure(CPUS).map_err(failed)
    };
    let mut round = Round::default();
    // Of a bare cache line, before and after each exchange that is compared with it.
    let mut lines = Vec::new();
    for exchange in Exchange::ALL {
        let sample = measured(exchange)?;
        if exchange == Exchange::BareRoundTrip {
            lines.push(sample.p50);
        } else if exchange.is_beside_line() {
            lines.push(measured(Exchange::BareRoundTrip)?.p50);
        }
        round.samples.push(sample);
    }
    round.cycles_per_tick = cycles::per_tick(CPUS[0]).map_err(failed)?;
    round.discarded = misplaced(&lines, rate.per_ns());
    let share = |seconds: f64| seconds.max(0.0) / start.elapsed().as_secs_f64();
    round.stolen = share(stolen()? - taken);
    let others = share(outside::others_seconds() - others);
    if others > DISTURBANCE_LIMIT {
        let why = format!("other processes used {:.0}% of a processor", others * 100.0);
        round.discarded = Some(why);
    }
    Ok(round)
}

/// Why a round doesn't count whose bare cache line took so many ticks each time, if it doesn't.
fn misplaced(lines: &[f64], ticks_per_ns: f64) -> Option<String> {
    let least = lines.iter().copied().fold(f64::INFINITY, f64::min);
    let most = lines.iter().copied().fold(0.0, f64::max);
    if most > least * (1.0 + MOVED_LIMIT) {
        return Some(format!(
            "a bare cache line took {least:.0} to {most:.0} ticks: a processor was moved"
        ));
    }
    (least < CROSSES_NS * ticks_per_ns).then(|| {
        format!("a bare cache line took {least:.0} ticks: both processors are threads of one core")
    })
}

#[cfg(test)]
mod tests;
