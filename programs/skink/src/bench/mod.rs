//! `skink bench`: what Skink costs beside the kernel's own stack, on this machine, in one run.

mod costs;
mod floor;
mod goals;
mod held;
mod ipc;
mod kv;
mod lab;
mod measure;
mod options;
mod outside;
mod peer;
mod plan;
mod report;
mod results;
mod rounds;
mod rules;
mod server;
mod silence;
mod statistics;
mod task;
mod variant;
mod web;

use crate::failure::Failure;
use clap::{Args, Subcommand};
use options::{
    BulkOptions, Common, ConnOptions, FilterOptions, IdleOptions, KvOptions, LibraryOptions,
    LocalOptions, PpsOptions, RrOptions, TopologiesOptions, WebOptions,
};
use outside::Outside;
use plan::Plan;
use results::Results;
use std::path::Path;

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
    Bulk(BulkOptions),
    Rr(RrOptions),
    Conn(ConnOptions),
    Kv(KvOptions),
    Idle(IdleOptions),
    Pps(PpsOptions),
    Local(LocalOptions),
    Library(LibraryOptions),
    Topologies(TopologiesOptions),
    Filter(FilterOptions),
    Ipc(ipc::IpcOptions),
    #[command(hide = true)]
    Peer(peer::PeerOptions),
}

impl What {
    /// What is to be measured between two hosts, and how; `None` if it is something else.
    fn plan(&self) -> Option<(&Common, Plan)> {
        Some(match self {
            What::Web(options) => (&options.common, options.plan()),
            What::Bulk(options) => (&options.common, options.plan()),
            What::Rr(options) => (&options.common, options.plan()),
            What::Conn(options) => (&options.common, options.plan()),
            What::Kv(options) => (&options.common, options.plan()),
            What::Idle(options) => (&options.common, options.plan()),
            What::Pps(options) => (&options.common, options.plan()),
            What::Local(options) => (&options.common, options.plan()),
            What::Library(options) => (&options.common, options.plan()),
            What::Topologies(options) => (&options.common, options.plan()),
            What::Filter(options) => (&options.common, options.plan()),
            What::Ipc(_) | What::Peer(_) => return None,
        })
    }
}

/// Runs a benchmark.
pub fn bench(options: &BenchOptions) -> Result<(), Failure> {
    match (&options.what, options.what.plan()) {
        (What::Ipc(options), _) => ipc::bench(options),
        (What::Peer(options), _) => peer::peer(options),
        (_, Some((common, plan))) => match std::env::var_os(INNER) {
            Some(_) => inner(&plan),
            None => outer(&plan, common),
        },
        (_, None) => Err(Failure::tool("there is nothing to measure")),
    }
}

fn outer(plan: &Plan, options: &Common) -> Result<(), Failure> {
    check_machine(plan)?;
    if let Some(directory) = &options.output {
        // Better now than after a quarter of an hour.
        std::fs::create_dir_all(directory).map_err(|error| unwritable(directory, &error))?;
    }
    let results = outside::run_inner_half()?;
    let (text, json) = (report::text(&results), report::json(&results)?);
    if let Some(directory) = &options.output {
        for (ending, content) in [("txt", &text), ("json", &json)] {
            let path = directory.join(format!("{}.{ending}", plan.verb));
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

fn check_machine(plan: &Plan) -> Result<(), Failure> {
    if let Some(mistake) = plan.mistake() {
        return Err(Failure::tool(mistake));
    }
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::tool(format!(
            "pinning kernel threads and loading XDP programs needs root: run `sudo skink bench {}`",
            plan.verb
        )));
    }
    let missing = skink_testbed::missing_programs(&plan.programs());
    if !missing.is_empty() {
        return Err(Failure::tool(format!(
            "these programs are missing: {}. Install them first; on Debian: \
             apt-get install nginx wrk redis-server memcached iproute2 util-linux",
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
fn inner(plan: &Plan) -> Result<(), Failure> {
    skink_testbed::enter()
        .map_err(|error| Failure::tool(format!("can't make private namespaces: {error}")))?;
    let outside = Outside::connect().map_err(measure::failed)?;
    outside.finish(run(plan, &outside))
}

fn run(plan: &Plan, outside: &Outside) -> Result<Results, Failure> {
    // Whatever this program and its helpers do is the client's work.
    outside::pin(None, lab::CLIENT_CPU).map_err(measure::failed)?;
    if plan.variants.iter().any(|variant| variant.idle > 0) {
        held::allow_descriptors();
    }
    rounds::run(plan, outside)
}

#[cfg(test)]
mod tests;
