//! `skink bench`: each verb measures what it says, on all that it compares. What the figures are doesn't matter
//! here: the machine does other things meanwhile.

use super::children;
use crate::network::Network;
use crate::{Case, Failure, Outcome};
use rustix::process::Signal;
use serde_json::Value;
use skink_testbed::{Process, Scratch, wait_until_ended};
use std::process::Command;
use std::time::Duration;

/// How long a verb may take.
const PATIENCE: Duration = Duration::from_secs(180);

/// What `skink bench` is told besides how long to measure, and the workloads and variants that it measures then: all the
/// same ones, or those of each workload.
const VERBS: [(&str, &str, &str); 11] = [
    (
        "web --nic packet --workload 20B --rate 500 --connections 4",
        "20B",
        "kernel-gso-on kernel-gso-off library-packet-gso-on library-packet-gso-off",
    ),
    (
        "rr --topology library --connections 2",
        "rr-2",
        "kernel-gso-on kernel-gso-off library-packet-gso-on library-packet-gso-off",
    ),
    (
        "conn --nic xdp",
        "conn",
        "kernel-gso-on kernel-gso-off library-xdp-gso-on library-xdp-gso-off",
    ),
    (
        "kv --nic xdp --workload redis-set --workload memcached-get",
        "redis-set memcached-get",
        "kernel-gso-on kernel-gso-off library-xdp-gso-on library-xdp-gso-off",
    ),
    (
        "idle --idle 500",
        "echo-64B",
        "kernel-gso-on kernel-gso-on-idle-500 library-packet-gso-on library-packet-gso-on-idle-500",
    ),
    (
        "pps --bytes 64 --rate 1000",
        "64B 64B-1000/s 64B-1",
        "kernel-gso-on raw-packet raw-xdp raw-tap library-packet-gso-on library-xdp-gso-on library-tap-gso-on",
    ),
    (
        "local --operation epoll",
        "epoll",
        "kernel-gso-on library-packet-gso-on",
    ),
    (
        "library --nic xdp --workload conn --workload 64B",
        "conn 64B",
        "kernel-gso-on kernel-gso-off library-xdp-gso-on library-xdp-gso-off; \
         kernel-gso-on kernel-gso-off library-xdp-gso-on library-xdp-gso-off raw-xdp raw-xdp-gso-off",
    ),
    (
        "bulk --direction receive --topology single --nic xdp",
        "bulk-receive",
        "kernel-gso-on kernel-gso-off single-xdp-gso-on single-xdp-gso-off",
    ),
    (
        "topologies --workload rr-1 --topology library --topology split --nic xdp",
        "rr-1",
        "kernel-gso-on kernel-gso-off library-xdp-gso-on library-xdp-gso-off split-xdp-gso-on split-xdp-gso-off",
    ),
    (
        "filter --filter-rules 10 --topology split --nic packet",
        "bulk-send bulk-receive 20B rr-1",
        "split-packet-gso-on split-packet-gso-on-rules-10",
    ),
];

pub fn cases() -> Vec<Case> {
    let case = |(line, workloads, variants): &'static (&str, &str, &str)| {
        let verb = line.split_whitespace().next().unwrap_or_default();
        Case::new(format!("bench/{verb}"), move || {
            measured(line, workloads, variants)
        })
    };
    let mut cases: Vec<Case> = VERBS.iter().map(case).collect();
    cases.push(Case::new("bench/interrupted".to_owned(), interrupted));
    // It measures nothing while others use a processor.
    cases.push(Case::new("bench/ipc", channels).alone());
    cases
}

/// A process and all that it has started, by name.
fn family(pid: u32) -> Vec<(u32, String)> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let children = children(pid).unwrap_or_default().into_iter();
    let mut all = vec![(pid, name.trim().to_owned())];
    all.extend(children.flat_map(family));
    all
}

/// One that is ended in the middle leaves nothing: no process, and no file.
fn interrupted() -> Outcome {
    can_be_measured()?;
    for by in [Signal::INT, Signal::TERM, Signal::KILL] {
        let scratch = Scratch::new("interrupted")?;
        let mut command = Command::new(Network::tool()?);
        command.env_remove(skink_testbed::INSIDE);
        command.env("TMPDIR", scratch.path());
        command.args(["bench", "web", "--workload", "20B", "--seconds", "30"]);
        let process = Process::spawn(command, "skink bench web")?;
        let mut all = Vec::new();
        process.wait_until("it measures", || {
            all = family(process.id());
            all.iter().any(|(_, name)| name == "wrk")
        })?;
        process.signal(by);
        process.wait(PATIENCE)?;
        let others: Vec<u32> = all.iter().skip(1).map(|(pid, _)| *pid).collect();
        wait_until_ended(&others, PATIENCE)?;
        let left: Vec<_> = std::fs::read_dir(scratch.path())?.collect::<Result<_, _>>()?;
        if !left.is_empty() {
            return Err(Failure::Wrong(format!("{by:?}: there is left {left:?}")));
        }
    }
    Ok(())
}

fn measured(line: &str, workloads: &str, variants: &str) -> Outcome {
    can_be_measured()?;
    // In namespaces of its own, which this process isn't inside of.
    let mut command = Command::new(Network::tool()?);
    command.env_remove(skink_testbed::INSIDE);
    command.arg("bench").args(line.split_whitespace());
    command.args(["--rounds", "1", "--seconds", "1", "--json"]);
    let process = Process::spawn(command, &format!("skink bench {line}"))?;
    let (status, said) = process.wait(PATIENCE)?;
    let wrong = |why: &str| Failure::Wrong(format!("skink bench {line}: {why}: {said}"));
    if !status.success() {
        return Err(wrong(&format!("it ended with {status}")));
    }
    // Before it, the rounds are told of as they pass.
    let json = said.find("\n{").map(|at| said.split_at(at).1);
    let results: Value = serde_json::from_str(json.unwrap_or_default())
        .map_err(|error| wrong(&format!("no results, {error}")))?;
    let names = |list: &Value, key: &str| {
        let items = list.as_array().map_or(&[][..], Vec::as_slice).iter();
        let names: Vec<&str> = items.filter_map(|one| one[key].as_str()).collect();
        names.join(" ")
    };
    if names(&results["workloads"], "name") != workloads {
        return Err(wrong("these aren't the workloads"));
    }
    let all = results["workloads"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    for (one, variants) in all.iter().zip(variants.split("; ").cycle()) {
        let rounds = one["rounds"]
            .as_array()
            .map_or(&[][..], Vec::as_slice)
            .iter();
        // Where other cases leave a variant no processor, it is measured in another round.
        let mut measured: Vec<String> = Vec::new();
        for round in rounds {
            let names = names(&round["measurements"], "variant");
            measured.extend(names.split(' ').map(str::to_owned));
        }
        measured.sort();
        measured.dedup();
        let mut wanted: Vec<&str> = variants.split(' ').collect();
        wanted.sort_unstable();
        if measured != wanted {
            return Err(wrong("these aren't the variants"));
        }
    }
    // Where back ends are measured without a stack, but not beside the same workloads only.
    let floors = results["floors"].as_array().map_or(&[][..], Vec::as_slice);
    let told =
        |one: &&Value| one["floor_us_per_unit"].as_f64() > one["program_us_per_unit"].as_f64();
    if line.starts_with("library") && floors.iter().filter(told).count() != 2 {
        return Err(wrong("not every variant has a floor"));
    }
    match results["ratios"].as_array().is_none_or(Vec::is_empty) {
        true => Err(wrong("nothing was compared")),
        false => Ok(()),
    }
}

/// Channels beside what the kernel has, and beside bare cache lines.
fn channels() -> Outcome {
    can_be_measured()?;
    let mut command = Command::new(Network::tool()?);
    command.args(["bench", "ipc", "--rounds", "1", "--json"]);
    let said = Network::finish(command, "skink bench ipc", PATIENCE)?;
    let results: Value = serde_json::from_str(&said)?;
    let ratios = results["ratios"].as_array().map_or(&[][..], Vec::as_slice);
    let of_channels = |one: &&Value| {
        one["name"] == "round-trip-queues" && one["ratio"]["median"].as_f64() > Some(0.0)
    };
    match ratios.iter().filter(of_channels).count() {
        2 => Ok(()),
        _ => Err(Failure::Wrong(format!("a round trip is missing: {said}"))),
    }
}

/// It needs two processors, and root's power over the machine: in a user namespace nobody has that.
fn can_be_measured() -> Outcome {
    if !skink_testbed::is_root() {
        return Err(Failure::Skip("only root can measure".to_owned()));
    }
    match std::thread::available_parallelism()?.get() {
        1 => Err(Failure::Skip("measuring needs two processors".to_owned())),
        _ => Ok(()),
    }
}
