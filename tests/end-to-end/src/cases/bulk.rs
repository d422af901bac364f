//! A gibibyte arrives as it was sent, at both usual sizes of packets.

use super::{on, once_in_each_topology};
use crate::network::{Network, Plan};
use crate::site::{Nginx, PATIENCE, Site};
use crate::{Case, Outcome};

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (topology, back_end) in once_in_each_topology() {
        for mtu in [1_500, 9_000] {
            let plan = Plan {
                mtu,
                ..Plan::plain(topology, back_end)
            };
            let name = plan.prefixed(&format!("gibibyte-at-{mtu}"));
            cases.push(on(plan, &name, gibibyte));
        }
    }
    cases
}

fn gibibyte(network: &Network) -> Outcome {
    let site = Site::new()?;
    site.add("gibibyte", 1 << 30)?;
    let nginx = Nginx::on_skink(network, &site)?;
    let mut shell = network.kernel.command("bash");
    let script = site.fetch_and_compare(Network::SKINK[0], Nginx::PORT, "gibibyte");
    shell.args(["-c", &script]);
    Network::finish(shell, "fetching a gibibyte", PATIENCE)?;
    nginx.stop()
}
