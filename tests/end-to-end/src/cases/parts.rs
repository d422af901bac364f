//! Topology `split`: what the death of one of its processes stops, and what it doesn't.

use super::on;
use crate::network::{Network, Plan};
use crate::site::{Nginx, PATIENCE, Site};
use crate::{BackEnd, Case, Failure, Outcome, Topology};
use rustix::process::Signal;
use skink_testbed::{Process, signal, wait_until_ended};
use std::path::Path;
use std::time::Duration;

pub fn cases() -> Vec<Case> {
    let plan = |rules| Plan {
        topology: Topology::Split,
        back_end: BackEnd::Packet,
        mtu: 1_500,
        impairments: None,
        rules,
    };
    let (filtered, open) = (plan(Some(STATEFUL)), plan(None));
    vec![
        on(
            open,
            &open.prefixed("parts/killed-one-by-one"),
            killed_one_by_one,
        ),
        on(
            filtered,
            &filtered.prefixed("parts/killed-behind-rules"),
            killed_one_by_one,
        ),
        on(
            open,
            &open.prefixed("parts/killed-supervisor"),
            killed_supervisor,
        ),
    ]
}

/// A filter that forgets a connection resets it.
const STATEFUL: &str = "
set block-policy return
block proto tcp all
pass in proto tcp to port 80 flags S/SA keep state
";

/// The process that hosts this part, and how often it was started again.
fn find(network: &Network, name: &str) -> Result<(Option<u32>, u64), Failure> {
    let mut command = network.skink.command(&Network::tool()?.to_string_lossy());
    command.args(["ps", "--json"]);
    let text = Network::finish(command, "skink ps", PATIENCE)?;
    let missing = || Failure::Wrong(format!("no process {name} in what skink ps says:\n{text}"));
    let report: serde_json::Value = serde_json::from_str(&text)?;
    let processes = report["instances"][0]["processes"].as_array();
    let process = processes
        .into_iter()
        .flatten()
        .find(|it| it["name"] == name);
    let process = process.ok_or_else(missing)?;
    let pid = process["pid"].as_u64().and_then(|pid| pid.try_into().ok());
    let runs = process["state"] == "running";
    Ok((
        pid.filter(|_| runs),
        process["restarts"].as_u64().unwrap_or(0),
    ))
}

fn start_download(network: &Network, copy: &Path, original: &Path) -> Result<Process, Failure> {
    let script = format!(
        "curl -sS --fail --limit-rate 2M -o {copy} http://{address}:80/larger && cmp {copy} {original}",
        address = Network::SKINK[0],
        copy = copy.display(),
        original = original.display()
    );
    let mut shell = network.kernel.command("bash");
    shell.args(["-c", &script]);
    let download = Process::spawn(shell, "a download")?;
    download.wait_until("it has begun", || {
        copy.metadata().is_ok_and(|file| file.len() > 0)
    })?;
    Ok(download)
}

fn finished(download: Process) -> Outcome {
    let (status, said) = download.wait(PATIENCE)?;
    match status.success() {
        true => Ok(()),
        false => Err(Failure::Wrong(format!(
            "the download ended with {status}: {said}"
        ))),
    }
}

/// A download goes on through the death of each of them, and comes out whole.
fn killed_one_by_one(network: &Network) -> Outcome {
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    let download = start_download(network, &site.path("copy"), &site.path("larger"))?;
    for name in ["link", "ip", "filter", "store", "syscall"] {
        let (pid, restarts) = find(network, name)?;
        let pid = pid.ok_or_else(|| Failure::Wrong(format!("{name} doesn't run")))?;
        signal(pid, Signal::KILL)?;
        nginx.process.wait_until("it is started again", || {
            find(network, name).is_ok_and(|(pid, now)| pid.is_some() && now == restarts + 1)
        })?;
    }
    finished(download)?;
    // And new connections find it all in order.
    finished(start_download(
        network,
        &site.path("copy-2"),
        &site.path("larger"),
    )?)?;
    nginx.stop()
}

/// Programs are served on without a supervisor; once they have ended nothing is left.
fn killed_supervisor(network: &Network) -> Outcome {
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    let mut all = Vec::new();
    for name in ["link", "ip", "filter", "udp", "tcp", "syscall", "store"] {
        let (pid, _) = find(network, name)?;
        all.extend(pid);
    }
    if all.len() != 7 {
        return Err(Failure::Wrong(format!("only {all:?} run")));
    }
    let download = start_download(network, &site.path("copy"), &site.path("larger"))?;
    network.up_is_dead.set(true);
    if let Some(up) = &network.up {
        signal(up.id(), Signal::KILL)?;
    }
    finished(download)?;
    nginx.stop()?;
    Ok(wait_until_ended(&all, Duration::from_secs(10))?)
}
