//! `skink bench`: what Skink costs beside the kernel's own stack, on this machine, in one run.

mod ipc;
mod lab;
mod measure;
mod outside;
mod report;
mod results;
mod rounds;
mod statistics;
mod web;

use crate::failure::Failure;
use clap::{Args, Subcommand};
use lab::BackEnd;
use outside::Outside;
use results::Results;
use std::path::{Path, PathBuf};
use web::Workload;

/// Set in the environment of the inner half (see [`outside`]).
const INNER: &str = "SKINK_BENCH_INNER";

/// Measure Skink beside what the kernel has
#[derive(Args, Debug)]
pub struct BenchOptions {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    Web(WebOptions),
    Ipc(ipc::IpcOptions),
}

/// Measure what a request costs nginx's side: on Skink, and on the kernel with and without GSO
///
/// Everything runs in private namespaces on this machine, the server's side on CPU 1 and the client's on
/// CPU 0. Variants take turns, and are compared within each round; a round in which other processes
/// used more than 5% of a CPU is discarded and repeated. So leave the machine alone meanwhile.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Needs root, two CPUs, nginx and wrk. With everything at its default it takes about a quarter of an hour.

Examples:
  sudo skink bench web
  sudo skink bench web --nic packet --workload 20B --workload 22KB
  sudo skink bench web --rounds 1 --seconds 1          a quick look
  sudo skink bench web --json | jq .ratios")]
pub struct WebOptions {
    /// What carries Skink's frames; can be repeated [default: all]
    #[arg(long = "nic", value_name = "BACK END")]
    nics: Vec<BackEnd>,
    /// Undisturbed rounds to measure; at least 5 for figures to be quoted
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// How long each measurement takes, after a second of warming up
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Connections of the client
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4000))]
    connections: u32,
    /// What is asked for; can be repeated [default: all]
    #[arg(long = "workload", value_name = "NAME")]
    workloads: Vec<Workload>,
    /// Write JSON, with every raw figure
    #[arg(long)]
    json: bool,
    /// Write web.txt and web.json to this directory too
    #[arg(long, value_name = "DIRECTORY")]
    output: Option<PathBuf>,
}

/// Runs a benchmark.
pub fn bench(options: &BenchOptions) -> Result<(), Failure> {
    match &options.what {
        What::Web(options) => match std::env::var_os(INNER) {
            Some(_) => inner(options),
            None => outer(options),
        },
        What::Ipc(options) => ipc::bench(options),
    }
}

fn outer(options: &WebOptions) -> Result<(), Failure> {
    check_machine()?;
    if let Some(directory) = &options.output {
        // Better now than after a quarter of an hour.
        std::fs::create_dir_all(directory).map_err(|error| unwritable(directory, &error))?;
    }
    let results = outside::run_inner_half()?;
    let (text, json) = (report::text(&results), report::json(&results)?);
    if let Some(directory) = &options.output {
        for (name, content) in [("web.txt", &text), ("web.json", &json)] {
            let path = directory.join(name);
            std::fs::write(&path, content).map_err(|error| unwritable(&path, &error))?;
        }
    }
    crate::tools::print(if options.json { &json } else { &text })?;
    let failures: usize = results.workloads.iter().map(|one| one.failures.len()).sum();
    match failures {
        0 => Ok(()),
        _ => Err(Failure::tool(format!(
            "{failures} of the measurements failed: the end of the report says why"
        ))),
    }
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::tool(format!("can't write {}: {error}", path.display()))
}

fn check_machine() -> Result<(), Failure> {
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::tool(
            "pinning kernel threads and loading XDP programs needs root: run `sudo skink bench web`",
        ));
    }
    let programs = ["nginx", "wrk", "ip", "unshare", "taskset"];
    let missing = skink_testbed::missing_programs(&programs);
    if !missing.is_empty() {
        return Err(Failure::tool(format!(
            "these programs are missing: {}. Install them first; on Debian: \
             apt-get install nginx wrk iproute2 util-linux",
            missing.join(", ")
        )));
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    if processors < 2 {
        return Err(Failure::tool(
            "the server and the client each need a processor of their own, and this process may use \
             one only: run it on a machine with two, and not under taskset",
        ));
    }
    Ok(())
}

/// Inside the private namespaces.
fn inner(options: &WebOptions) -> Result<(), Failure> {
    skink_testbed::enter()
        .map_err(|error| Failure::tool(format!("can't make private namespaces: {error}")))?;
    let outside = Outside::connect().map_err(measure::failed)?;
    outside.finish(run(options, &outside))
}

fn run(options: &WebOptions, outside: &Outside) -> Result<Results, Failure> {
    // Whatever this program and its helpers do is the client's work.
    outside::pin(None, lab::CLIENT_CPU).map_err(measure::failed)?;
    rounds::run(options, outside)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: BenchOptions,
    }

    #[test]
    fn options_have_bounds_and_defaults() {
        let parse = |words: &[&str]| Line::try_parse_from([&["bench", "web"], words].concat());
        let web = |words: &[&str]| match parse(words).expect("good").options.what {
            What::Web(options) => options,
            What::Ipc(_) => panic!("another benchmark"),
        };
        let options = web(&[]);
        assert_eq!(
            (options.rounds, options.seconds, options.connections),
            (5, 3, 64)
        );
        let words = [
            "--nic",
            "xdp",
            "--nic",
            "tap",
            "--workload",
            "22KB-close",
            "--json",
        ];
        let options = web(&words);
        assert_eq!(options.nics, [BackEnd::Xdp, BackEnd::Tap]);
        assert_eq!(options.workloads, [Workload::PageClose]);
        for bad in [
            ["--rounds", "0"],
            ["--seconds", "0"],
            ["--nic", "wifi"],
            ["--workload", "1B"],
        ] {
            assert!(parse(&bad).is_err(), "{bad:?}");
        }
        for workload in Workload::ALL {
            assert!(
                parse(&["--workload", &workload.to_string()]).is_ok(),
                "{workload}"
            );
        }
    }
}
