//! What must hold.

mod alike;
mod aside;
mod bench;
mod beside;
mod bulk;
mod calls;
mod choice;
mod clients;
mod datagrams;
mod ended;
mod epoll;
mod exec;
mod far;
mod filter;
mod forwarding;
mod halves;
mod held;
mod hostile;
mod impaired;
mod inherited;
mod interrupts;
mod listening;
mod load;
mod memory;
mod neighbours;
mod parts;
mod passing;
mod python;
mod seldom;
mod sendfile;
mod servers;
mod sharing;
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

/// Every case, the quick ones first. Of the others those that mostly wait, for a wire with delays or for what an idle stack
/// takes, run beside those that keep the processors busy.
pub fn all() -> Vec<Case> {
    let quick = [
        tools::cases(),
        choice::cases(),
        servers::cases(),
        passing::cases(),
        exec::cases(),
        inherited::cases(),
        far::cases(),
        ended::cases(),
        clients::cases(),
        datagrams::cases(),
        seldom::cases(),
        sendfile::cases(),
        streams::cases(),
        threads::cases(),
        epoll::cases(),
    ];
    let waiting = [
        halves::cases(),
        held::cases(),
        listening::cases(),
        sharing::cases(),
        interrupts::cases(),
        alike::cases(),
        aside::cases(),
        filter::cases(),
        forwarding::cases(),
        impaired::cases(),
        hostile::cases(),
        neighbours::cases(),
        memory::cases(),
        users::cases(),
        beside::cases(),
        topologies::cases(),
        load::idle_cases(),
    ];
    let busy = [
        bench::cases(),
        load::cases(),
        ssh::cases(),
        parts::cases(),
        workers::cases(),
        bulk::cases(),
        calls::cases(),
    ];
    let mut cases: Vec<Case> = quick.into_iter().flatten().collect();
    cases.extend(mixed(
        waiting.into_iter().flatten().collect(),
        busy.into_iter().flatten().collect(),
    ));
    cases
}

/// All of both, each evenly spread over the whole, in their orders.
fn mixed(one: Vec<Case>, other: Vec<Case>) -> Vec<Case> {
    let (ones, others) = (one.len(), other.len());
    let (mut one, mut other) = (one.into_iter(), other.into_iter());
    let mut all = Vec::new();
    while all.len() < ones + others {
        // Next is of the one that has given the smaller part of its own.
        let behind = (ones - one.len()) * others <= (others - other.len()) * ones;
        let next = if behind { one.next() } else { other.next() };
        all.extend(next);
    }
    all
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
    let case = |&(topology, back_end): &Place| {
        let plan = Plan::plain(topology, back_end);
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
