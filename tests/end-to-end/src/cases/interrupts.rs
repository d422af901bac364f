//! A NIC's interrupts are put off while programs are busy, and only then; and its segmentation while they send small
//! packets. Whoever can adapt the NIC undoes that, however it goes on.

use super::cases_in;
use crate::network::Network;
use crate::site::{Nginx, PATIENCE, Site};
use crate::{BackEnd, Case, Failure, Outcome, Topology};
use rustix::process::Signal;
use skink_testbed::{Offload, Process, signal, wait_until_ended};
use std::process::Command;

pub fn cases() -> Vec<Case> {
    let places = |topology| [BackEnd::Packet, BackEnd::Xdp].map(|back_end| (topology, back_end));
    let mut cases = cases_in(&places(Topology::Library), "interrupts", by_the_broker);
    for topology in [Topology::Single, Topology::Split] {
        cases.extend(cases_in(&places(topology), "interrupts", by_the_supervisor));
    }
    cases.into_iter().map(Case::alone).collect()
}

fn interrupts(network: &Network) -> bool {
    network.skink.interrupts_put_off("wire").unwrap_or(0) == 0
}

fn segments(network: &Network) -> bool {
    let segments = network.skink.has_offload("wire", Offload::TcpSegmentation);
    segments.unwrap_or(true)
}

fn is_as_before(network: &Network) -> bool {
    interrupts(network) && segments(network)
}

/// Nginx, and the NIC that it uses.
struct Served<'a> {
    network: &'a Network,
    nginx: Nginx,
    _site: Site,
}

impl Served<'_> {
    fn new(network: &Network) -> Result<Served<'_>, Failure> {
        let site = Site::new()?;
        let served = Served {
            network,
            nginx: Nginx::on_skink(network, &site)?,
            _site: site,
        };
        match is_as_before(network) {
            true => Ok(served),
            false => Err(Failure::Wrong("nobody is busy yet".to_owned())),
        }
    }

    /// Clients that ask for small answers.
    fn requests(&self) -> Result<Process, Failure> {
        let mut wrk = self.network.kernel.command("wrk");
        let page = format!("http://{}:80/tiny", Network::SKINK[0]);
        wrk.args(["-t1", "-c64", "-d60s", &page]);
        self.load(wrk)
    }

    /// Echoes, 128 under way at a time. A stack of several processes on a slow machine, or beside others, needn't be so
    /// quick at requests that it counts as busy.
    fn echoes(&self) -> Result<Process, Failure> {
        let mut ping = self.network.kernel.command("ping");
        ping.args(["-q", "-f", "-l128", Network::SKINK[0]]);
        self.load(ping)
    }

    /// Runs what makes both put off.
    fn load(&self, command: Command) -> Result<Process, Failure> {
        let load = Process::spawn(command, "load")?;
        load.wait_until("interrupts and segmentation are put off", || {
            !interrupts(self.network) && !segments(self.network)
        })?;
        Ok(load)
    }

    fn calms_down(&self) -> Outcome {
        let process = &self.nginx.process;
        Ok(
            process.wait_until("all is as before when the load ends", || {
                is_as_before(self.network)
            })?,
        )
    }
}

fn by_the_broker(network: &Network) -> Outcome {
    let served = Served::new(network)?;
    served.requests()?.stop()?;
    served.calms_down()?;
    // A program that ends in the middle of it leaves nothing behind.
    let load = served.requests()?;
    let (_, said) = served.nginx.process.stop()?;
    load.stop()?;
    match is_as_before(network) {
        true => Ok(()),
        false => Err(Failure::Wrong(format!(
            "interrupts or segmentation are still put off; nginx on Skink printed:\n{said}"
        ))),
    }
}

fn by_the_supervisor(network: &Network) -> Outcome {
    let served = Served::new(network)?;
    served.echoes()?.stop()?;
    served.calms_down()?;
    network.up_is_dead.set(true);
    // Its standby knows less than it did, but undoes it.
    let load = served.echoes()?;
    let killed = supervisor(network)?;
    signal(killed, Signal::KILL)?;
    served
        .nginx
        .process
        .wait_until("another one is there", || {
            supervisor(network).is_ok_and(|now| now != killed)
        })?;
    load.stop()?;
    served.calms_down()?;
    // So does another build.
    let load = served.echoes()?;
    let own = std::fs::canonicalize(Network::tool()?)?;
    let upgrade = network.upgrade(&["supervisor"], &own)?;
    if upgrade.code != Some(0) {
        return Err(upgrade.wrong("the supervisor can't be upgraded"));
    }
    load.stop()?;
    served.calms_down()?;
    // One that ends in the middle of it leaves nothing behind.
    let load = served.echoes()?;
    let last = supervisor(network)?;
    signal(last, Signal::TERM)?;
    wait_until_ended(&[last], PATIENCE)?;
    let as_before = is_as_before(network);
    load.stop()?;
    match as_before {
        true => Ok(()),
        false => Err(Failure::Wrong(format!(
            "interrupts or segmentation are still put off; skink up printed:\n{}",
            network.log()
        ))),
    }
}

fn supervisor(network: &Network) -> Result<u32, Failure> {
    let supervisor = network.supervisor()?;
    supervisor.ok_or_else(|| Failure::Wrong("there is no supervisor".to_owned()))
}
