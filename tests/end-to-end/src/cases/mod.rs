//! What must hold.

mod aside;
mod bench;
mod beside;
mod bulk;
mod calls;
mod choice;
mod clients;
mod datagrams;
mod epoll;
mod exec;
mod filter;
mod forwarding;
mod halves;
mod held;
mod hostile;
mod impaired;
mod interrupts;
mod listening;
mod load;
mod neighbours;
mod parts;
mod passing;
mod python;
mod sendfile;
mod servers;
mod ssh;
mod streams;
mod threads;
mod tools;
mod topologies;
mod users;
mod workers;

pub use servers::children;
pub use ssh::Sshd;

use crate::network::Plan;
use crate::{BackEnd, Case, Network, Outcome, Topology};

/// Every case, the quick ones first; but the longest not last, when nothing is left to do beside it.
pub fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    cases.extend(tools::cases());
    cases.extend(choice::cases());
    cases.extend(servers::cases());
    cases.extend(passing::cases());
    cases.extend(exec::cases());
    cases.extend(ssh::cases());
    cases.extend(clients::cases());
    cases.extend(datagrams::cases());
    cases.extend(sendfile::cases());
    cases.extend(streams::cases());
    cases.extend(threads::cases());
    cases.extend(epoll::cases());
    cases.extend(halves::cases());
    cases.extend(held::cases());
    cases.extend(listening::cases());
    cases.extend(interrupts::cases());
    cases.extend(aside::cases());
    cases.extend(filter::cases());
    cases.extend(forwarding::cases());
    cases.extend(impaired::cases());
    cases.extend(hostile::cases());
    cases.extend(neighbours::cases());
    cases.extend(users::cases());
    cases.extend(beside::cases());
    cases.extend(topologies::cases());
    cases.extend(load::cases());
    cases.extend(parts::cases());
    cases.extend(workers::cases());
    cases.extend(bench::cases());
    cases.extend(bulk::cases());
    cases.extend(calls::cases());
    cases
}

/// Every topology; the stack in the programs on each back end, and apart from them on the one that is
/// most used.
const PLACES: [(Topology, BackEnd); 5] = [
    (Topology::Library, BackEnd::Packet),
    (Topology::Library, BackEnd::Xdp),
    (Topology::Library, BackEnd::Tap),
    (Topology::Single, BackEnd::Packet),
    (Topology::Split, BackEnd::Packet),
];

/// Each topology, for what takes long and isn't about back ends.
const LONG_PLACES: [(Topology, BackEnd); 3] = [
    (Topology::Library, BackEnd::Packet),
    (Topology::Single, BackEnd::Packet),
    (Topology::Split, BackEnd::Packet),
];

/// The rest of them, for what is quick and shows whether it works at all.
const MORE_PLACES: [(Topology, BackEnd); 4] = [
    (Topology::Single, BackEnd::Xdp),
    (Topology::Single, BackEnd::Tap),
    (Topology::Split, BackEnd::Xdp),
    (Topology::Split, BackEnd::Tap),
];

/// One case for each of [`PLACES`], on a plain wire.
fn on_each_back_end(name: &str, run: fn(&Network) -> Outcome) -> Vec<Case> {
    cases_in(&PLACES, name, run)
}

/// One case for each of [`LONG_PLACES`], on a plain wire.
fn in_each_topology(name: &str, run: fn(&Network) -> Outcome) -> Vec<Case> {
    cases_in(&LONG_PLACES, name, run)
}

/// One case for each topology and back end, on a plain wire.
fn everywhere(name: &str, run: fn(&Network) -> Outcome) -> Vec<Case> {
    let mut cases = cases_in(&PLACES, name, run);
    cases.extend(cases_in(&MORE_PLACES, name, run));
    cases
}

fn cases_in(places: &[(Topology, BackEnd)], name: &str, run: fn(&Network) -> Outcome) -> Vec<Case> {
    let case = |(topology, back_end): &(Topology, BackEnd)| {
        let plan = Plan {
            topology: *topology,
            back_end: *back_end,
            mtu: 1_500,
            impairments: None,
            rules: None,
            queues: 1,
        };
        on(plan, &plan.prefixed(name), run)
    };
    places.iter().map(case).collect()
}

/// A case on a network of that plan.
fn on(plan: Plan, name: &str, run: fn(&Network) -> Outcome) -> Case {
    Case::new(name, move || {
        let network = Network::new(plan)?;
        run(&network)?;
        network.stop()
    })
}
