//! AF_XDP steps aside while a program receives in bulk on a virtual cable, and comes back; no byte is lost or changed.

use super::cases_in;
use crate::network::Network;
use crate::site::{Nginx, Site};
use crate::{BackEnd, Case, Outcome, Topology};
use skink_testbed::Process;

pub fn cases() -> Vec<Case> {
    let places = [Topology::Library, Topology::Single, Topology::Split]
        .map(|topology| (topology, BackEnd::Xdp));
    let cases = cases_in(&places, "aside", while_in_bulk);
    cases.into_iter().map(Case::alone).collect()
}

fn while_in_bulk(network: &Network) -> Outcome {
    let site = Site::new()?;
    site.add("gibibyte", 1 << 30)?;
    let _nginx = Nginx::on_kernel(network, &site)?;
    let address = Network::KERNEL[0];
    let fetch = site.fetch_and_compare(address, Nginx::PORT, "gibibyte");
    let look = format!(
        "curl -sS --fail -o /dev/null http://{address}:{}/tiny",
        Nginx::PORT
    );
    let script = format!("{fetch} && {fetch} && while {look}; do :; done");
    let is_there = || network.xdp_program().is_ok_and(|program| program.is_some());
    let programs = network.skink_run("bash", ["-c", &script])?;
    let programs = Process::spawn(programs, "a shell that fetches a gibibyte twice")?;
    programs.wait_until("the XDP program is off", || !is_there())?;
    programs.wait_until("it is there again", is_there)?;
    programs.stop()?;
    Ok(())
}
