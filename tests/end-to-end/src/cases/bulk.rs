//! A gibibyte arrives as it was sent, at both usual sizes of packets.

use crate::network::{Network, Plan};
use crate::site::{Nginx, PATIENCE, Site};
use crate::{BackEnd, Case, Outcome};

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for back_end in BackEnd::ALL {
        for mtu in [1_500, 9_000] {
            let plan = Plan {
                back_end,
                mtu,
                impairments: None,
            };
            let name = format!("{back_end}/gibibyte-at-{mtu}");
            cases.push(Case::new(name, move || gibibyte(&Network::new(plan)?)));
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
