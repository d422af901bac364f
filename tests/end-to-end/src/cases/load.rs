//! Long load without an error or a leak, and no processor time when there is none.

use super::servers::{children, no_wrk_errors};
use super::{in_each_topology, widely};
use crate::network::Network;
use crate::site::{Nginx, PATIENCE, Site};
use crate::{Case, Failure, Outcome, Topology};
use std::time::{Duration, Instant};

pub fn cases() -> Vec<Case> {
    in_each_topology("lasting-load-of-256-connections", lasting_load)
}

pub fn idle_cases() -> Vec<Case> {
    widely("idle", idle)
}

fn wrk(network: &Network, seconds: u32, extra: &[&str]) -> Outcome {
    let mut wrk = network.kernel.command("wrk");
    wrk.args(["-t2", "-c256", &format!("-d{seconds}s"), "--timeout", "10s"]);
    wrk.args(extra);
    wrk.arg(format!("http://{}:80/tiny", Network::SKINK[0]));
    no_wrk_errors(&Network::finish(wrk, "wrk", PATIENCE)?)
}

/// Memory that all processes below `pid` hold, in KiB.
fn resident_kib(pid: u32) -> Result<u64, Failure> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let own: u64 = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or(0);
    let below: Result<Vec<u64>, Failure> = children(pid)?.into_iter().map(resident_kib).collect();
    Ok(own + below?.into_iter().sum::<u64>())
}

fn lasting_load(network: &Network) -> Outcome {
    // What grows in a minute grows wherever the components are.
    let seconds = match network.plan.topology {
        Topology::Library => 60,
        Topology::Single | Topology::Split => 15,
    };
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    // Warm up with both kinds of load, so that only growth is left to see.
    wrk(network, 5, &[])?;
    wrk(network, 5, &["-H", "Connection: close"])?;
    let resident = || -> Result<u64, Failure> {
        let all = network.processes(&nginx.process).into_iter();
        all.map(resident_kib).sum()
    };
    let before = resident()?;
    wrk(network, seconds, &[])?;
    wrk(network, 10, &["-H", "Connection: close"])?;
    let after = resident()?;
    if after > before + before / 4 + 8_192 {
        let text = format!("memory grew from {before} KiB to {after} KiB");
        return Err(Failure::Wrong(text));
    }
    nginx.stop()
}

/// An nginx without anything to do takes under 1% of a processor. The time is measured over a span,
/// but it is the span's share that must hold, however long it takes.
fn idle(network: &Network) -> Outcome {
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    wrk(network, 1, &[])?;
    let share = idle_share(&network.processes(&nginx.process), Duration::from_secs(10))?;
    if share >= 0.01 {
        return Err(Failure::Wrong(format!(
            "idle, it takes {:.1}% of a processor",
            share * 100.0
        )));
    }
    nginx.stop()
}

/// The share of a processor that the processes `pids` and all below them take over `span`.
pub fn idle_share(pids: &[u32], span: Duration) -> Result<f64, Failure> {
    let mut all = Vec::new();
    for pid in pids {
        all.extend(descendants(*pid)?);
    }
    let used = |all: &[u32]| -> Result<f64, Failure> {
        let mut sum = 0.0;
        for pid in all {
            sum += skink_testbed::cpu_seconds(*pid)?;
        }
        Ok(sum)
    };
    // What a load left behind (lingering timers, the program's own) may settle first.
    wait(Duration::from_secs(2));
    let before = used(&all)?;
    wait(span);
    Ok((used(&all)? - before) / span.as_secs_f64())
}

fn descendants(pid: u32) -> Result<Vec<u32>, Failure> {
    let mut all = vec![pid];
    for child in children(pid)? {
        all.extend(descendants(child)?);
    }
    Ok(all)
}

pub fn wait(span: Duration) {
    let end = Instant::now() + span;
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        std::thread::park_timeout(left);
    }
}
