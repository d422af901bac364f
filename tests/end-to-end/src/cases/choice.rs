//! `--nic INTERFACE`: Skink chooses the back end, says which and why, and the program works on it.

use super::cases_in;
use crate::network::Network;
use crate::site::{Nginx, PATIENCE, Site};
use crate::{BackEnd, Case, Failure, Outcome, Topology};
use skink_testbed::Process;
use std::process::Command;

pub fn cases() -> Vec<Case> {
    let library = [(Topology::Library, BackEnd::Chosen)];
    let single = [(Topology::Single, BackEnd::Chosen)];
    let mut cases = cases_in(&library, "choice/one-after-the-other", one_after_the_other);
    cases.extend(cases_in(
        &library,
        "choice/without-a-capability",
        unprivileged,
    ));
    cases.extend(cases_in(&single, "choice/apart", apart));
    cases.extend(cases_in(
        &library,
        "choice/at-the-same-moment",
        at_the_same_moment,
    ));
    cases
}

/// The first on a veth gets AF_XDP; the next can't, since the first one's program is there, and is told so.
fn one_after_the_other(network: &Network) -> Outcome {
    needs_root()?;
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    holds(&nginx.process.log(), "xdp:wire chosen: on a veth")?;
    holds(&nginx.process.log(), "on xdp:wire")?;
    let mut tool = network.skink.command(&Network::tool()?.to_string_lossy());
    tool.args(["ps", "--json"]);
    let listed = Network::finish(tool, "skink ps", PATIENCE)?;
    let listed: serde_json::Value = serde_json::from_str(&listed)?;
    if listed["instances"][0]["nic"] != "xdp:wire" {
        return Err(Failure::Wrong(format!("ps names another NIC: {listed}")));
    }
    let mut shell = network.kernel.command("bash");
    shell.args([
        "-c",
        &site.fetch_and_compare(Network::SKINK[0], Nginx::PORT, "large"),
    ]);
    Network::finish(shell, "fetching from Skink", PATIENCE)?;

    let _kernel = Nginx::on_kernel(network, &site)?;
    let run = network.skink.command(&Network::tool()?.to_string_lossy());
    let said = fetch_beside(run, &site)?;
    holds(
        &said,
        "packet:wire chosen: another XDP program is in front of wire",
    )?;
    nginx.stop()
}

/// Of several with one address that start at the same moment one runs, and the others are told of it.
fn at_the_same_moment(network: &Network) -> Outcome {
    const RUNS: usize = 4;
    let mut runs = Vec::new();
    for number in 0..RUNS {
        let address = format!("{}/24", Network::SKINK[0]);
        let mut run = network.skink.command(&Network::tool()?.to_string_lossy());
        run.args([
            "run",
            "--no-probe",
            "--nic",
            "packet:wire",
            "--addr",
            &address,
        ]);
        run.args(["--", "sleep", "1000"]);
        runs.push(Process::spawn(run, &format!("run {number}"))?);
    }
    let refused = "is in use by `skink run` of sleep";
    let runs_here = "sleep has 10.9.0.2/24 on packet:wire";
    for run in &runs {
        run.wait_until("it runs, or is refused", || {
            let log = run.log();
            log.contains(runs_here) || log.contains(refused)
        })?;
    }
    let count = |word: &str| runs.iter().filter(|run| run.log().contains(word)).count();
    match (count(runs_here), count(refused)) {
        (1, others) if others == RUNS - 1 => Ok(()),
        (all, others) => Err(Failure::Wrong(format!(
            "{all} run, and {others} were refused"
        ))),
    }
}

/// Who may open packet sockets, and load no programs, gets AF_PACKET.
fn unprivileged(network: &Network) -> Outcome {
    needs_root()?;
    let site = Site::new()?;
    let _kernel = Nginx::on_kernel(network, &site)?;
    let mut run = network.skink.command("setpriv");
    run.args([
        "--bounding-set=-bpf,-sys_admin",
        "--inh-caps=-bpf,-sys_admin",
    ]);
    run.arg(Network::tool()?);
    let said = fetch_beside(run, &site)?;
    holds(&said, "packet:wire chosen: AF_XDP needs CAP_BPF")?;
    holds(
        &said,
        "one process at a time can have a stack on packet:wire",
    )
}

/// `skink up` chooses too.
fn apart(network: &Network) -> Outcome {
    needs_root()?;
    let site = Site::new()?;
    let _kernel = Nginx::on_kernel(network, &site)?;
    let said = network.up.as_ref().map(Process::log).unwrap_or_default();
    holds(&said, "xdp:wire chosen: on a veth")?;
    let url = format!("http://{}/tiny", Network::KERNEL[0]);
    let curl = network.skink_run("curl", ["-sS", "--fail", "--max-time", "60", &url])?;
    Network::finish(curl, "curl", PATIENCE).map(drop)
}

/// `run … curl` beside other programs, with an address of its own: fetches a file of the kernel's nginx and answers
/// what it said.
fn fetch_beside(mut run: Command, site: &Site) -> Result<String, Failure> {
    let to = site.path("fetched");
    run.args(["run", "--nic", "wire", "--addr", "10.9.0.3/24", "--"]);
    run.args(["curl", "-sS", "--fail", "--max-time", "60"]);
    run.arg("-o").arg(&to);
    run.arg(format!("http://{}/large", Network::KERNEL[0]));
    run.env("SKINK_REQUIRE", "1");
    let said = Network::finish(run, "curl beside others", PATIENCE)?;
    if std::fs::read(&to)? != std::fs::read(site.path("large"))? {
        return Err(Failure::Wrong(format!("the file arrived changed:\n{said}")));
    }
    Ok(said)
}

fn needs_root() -> Outcome {
    match skink_testbed::is_root() {
        true => Ok(()),
        false => Err(Failure::Skip(
            "loading an XDP program needs root".to_owned(),
        )),
    }
}

fn holds(said: &str, words: &str) -> Outcome {
    match said.contains(words) {
        true => Ok(()),
        false => Err(Failure::Wrong(format!("expected {words:?} in:\n{said}"))),
    }
}
