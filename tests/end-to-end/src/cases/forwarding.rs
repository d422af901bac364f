//! A host that forwards, as those of containers do, doesn't pass on what comes for Skink, nor refuses it.

use super::cases_in;
use crate::network::Network;
use crate::site::{Nginx, PATIENCE, Site};
use crate::{BackEnd, Case, Failure, Outcome, Topology};
use rustix::process::Signal;
use skink_testbed::signal;

pub fn cases() -> Vec<Case> {
    let places = [
        (Topology::Library, BackEnd::Packet),
        (Topology::Library, BackEnd::Xdp),
        (Topology::Single, BackEnd::Packet),
        (Topology::Split, BackEnd::Packet),
    ];
    cases_in(&places, "forwarding", whats_ours)
}

fn whats_ours(network: &Network) -> Outcome {
    let on = "for it in ipv4 ipv6; do echo 1 > /proc/sys/net/$it/conf/all/forwarding; done";
    on_skinks_host(network, on)?;
    for own in ["10.9.0.3/24", "fd09::3/64"] {
        network.skink.address("wire", own)?;
    }
    let mut trial = network
        .skink
        .command(&Network::tool()?.display().to_string());
    trial.args(["run", "--nic", "packet:wire", "--addr", "10.9.0.77/24"]);
    trial.args(["--no-probe", "--", "true"]);
    let said = Network::finish(trial, "skink run", PATIENCE)?;
    if said.contains("the kernel forwards") {
        return Err(Failure::Skip(said));
    }
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    fetch(network, &site)?;
    if network.plan.topology != Topology::Library {
        // What its standby takes over, another build inherits.
        network.up_is_dead.set(true);
        let killed = network.supervisor()?;
        killed.map_or(Ok(()), |killed| signal(killed, Signal::KILL))?;
        nginx.process.wait_until("another one is there", || {
            network.supervisor().is_ok_and(|now| now != killed)
        })?;
        fetch(network, &site)?;
        let own = std::fs::canonicalize(Network::tool()?)?;
        let upgrade = network.upgrade(&["supervisor"], &own)?;
        if upgrade.code != Some(0) {
            return Err(upgrade.wrong("the supervisor can't be upgraded"));
        }
        fetch(network, &site)?;
    }
    match forwarded(network)? {
        0 => Ok(()),
        packets => Err(Failure::Wrong(format!(
            "the kernel forwarded {packets} of Skink's packets"
        ))),
    }
}

fn fetch(network: &Network, site: &Site) -> Outcome {
    for address in Network::SKINK {
        let mut shell = network.kernel.command("bash");
        let script = site.fetch_and_compare(address, Nginx::PORT, "large");
        shell.args(["-c", &script]);
        Network::finish(shell, "curl", PATIENCE)?;
    }
    Ok(())
}

/// So many packets in all, by the kernel's own count.
fn forwarded(network: &Network) -> Result<u64, Failure> {
    let counts = on_skinks_host(network, "nstat -asz IpForwDatagrams Ip6OutForwDatagrams")?;
    let counts = counts.lines().filter(|line| line.starts_with("Ip"));
    let counts: Vec<u64> = counts
        .filter_map(|line| line.split_whitespace().nth(1)?.parse().ok())
        .collect();
    match counts.len() {
        2 => Ok(counts.iter().sum()),
        _ => Err(Failure::Wrong("nstat doesn't tell".to_owned())),
    }
}

fn on_skinks_host(network: &Network, script: &str) -> Result<String, Failure> {
    let mut shell = network.skink.command("sh");
    shell.args(["-c", script]);
    Network::finish(shell, "a shell", PATIENCE)
}
