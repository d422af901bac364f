//! What must hold.

mod bulk;
mod clients;
mod datagrams;
mod hostile;
mod impaired;
mod load;
mod servers;
mod tools;

use crate::network::Plan;
use crate::{BackEnd, Case, Network, Outcome};

/// Every case, the quick ones first.
pub fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    cases.extend(tools::cases());
    cases.extend(servers::cases());
    cases.extend(clients::cases());
    cases.extend(datagrams::cases());
    cases.extend(impaired::cases());
    cases.extend(hostile::cases());
    cases.extend(bulk::cases());
    cases.extend(load::cases());
    cases
}

/// One case for each back end, on a plain wire.
fn on_each_back_end(name: &str, run: fn(&Network) -> Outcome) -> Vec<Case> {
    let case = |back_end: BackEnd| {
        let plan = Plan {
            back_end,
            mtu: 1_500,
            impairments: None,
        };
        Case::new(format!("{back_end}/{name}"), move || {
            run(&Network::new(plan)?)
        })
    };
    BackEnd::ALL.into_iter().map(case).collect()
}
