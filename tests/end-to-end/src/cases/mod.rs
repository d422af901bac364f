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

/// Where the stack is, and what carries its frames.
type Place = (Topology, BackEnd);

/// The stack in the programs.
const IN_PROGRAMS: [Place; 3] = [
    (Topology::Library, BackEnd::Packet),
    (Topology::Library, BackEnd::Xdp),
    (Topology::Library, BackEnd::Tap),
];

/// The stack apart from them, on what `skink up` chooses from for an interface.
const APART: [Place; 4] = [
    (Topology::Single, BackEnd::Packet),
    (Topology::Single, BackEnd::Xdp),
    (Topology::Split, BackEnd::Packet),
    (Topology::Split, BackEnd::Xdp),
];

/// Each of those topologies once, and each of those back ends: for what takes more than about ten seconds, or isn't about
/// both of them.
const APART_ONCE: [Place; 2] = [
    (Topology::Single, BackEnd::Packet),
    (Topology::Split, BackEnd::Xdp),
];

/// The stack apart on the third back end, for what is quick and shows whether it works at all.
const APART_ON_TAP: [Place; 2] = [
    (Topology::Single, BackEnd::Tap),
    (Topology::Split, BackEnd::Tap),
];

/// One case for each back end with the stack in the programs, and for each topology with it apart.
fn on_each_back_end(name: &str, run: fn(&Network) -> Outcome) -> Vec<Case> {
    cases_in(&[&IN_PROGRAMS[..], &APART_ONCE].concat(), name, run)
}

/// One case for each topology, for what isn't about back ends.
fn in_each_topology(name: &str, run: fn(&Network) -> Outcome) -> Vec<Case> {
    cases_in(&once_in_each_topology(), name, run)
}

/// The places of [`in_each_topology`].
fn once_in_each_topology() -> Vec<Place> {
    [&IN_PROGRAMS[..1], &APART_ONCE].concat()
}

/// One case for each topology and each back end that it is mostly used on.
fn widely(name: &str, run: fn(&Network) -> Outcome) -> Vec<Case> {
    cases_in(&[&IN_PROGRAMS[..], &APART].concat(), name, run)
}

/// One case for each topology and back end.
fn everywhere(name: &str, run: fn(&Network) -> Outcome) -> Vec<Case> {
    let all = [&IN_PROGRAMS[..], &APART, &APART_ON_TAP].concat();
    cases_in(&all, name, run)
}

/// One case for each of these places, on a plain wire.
fn cases_in(places: &[Place], name: &str, run: fn(&Network) -> Outcome) -> Vec<Case> {
    let case = |(topology, back_end): &Place| {
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
