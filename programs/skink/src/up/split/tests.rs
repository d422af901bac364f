use super::Split;
use skink_control::{Order, Part};
use std::collections::BTreeSet;

fn split() -> Split {
    Split::new(Part::ALL).expect("memory")
}

fn start(split: &mut Split, part: Part) -> Vec<(Part, Order)> {
    let orders = split.started(part).expect("descriptors");
    orders
        .into_iter()
        .map(|(to, order, _)| (to, order))
        .collect()
}

/// Everybody says that it knows of `part`.
fn all_know(split: &mut Split, part: Part) {
    for by in Part::ALL {
        split.knows(by, part, split.incarnations[part.index()]);
    }
}

fn going(split: &mut Split) -> Vec<Part> {
    std::iter::from_fn(|| split.take_going()).collect()
}

#[test]
fn a_part_begins_when_all_that_run_know_of_it() {
    let mut split = split();
    assert_eq!(start(&mut split, Part::Link), []);
    assert_eq!(going(&mut split), [Part::Link]);
    let told: BTreeSet<usize> = start(&mut split, Part::Ip)
        .iter()
        .map(|(to, _)| to.index())
        .collect();
    assert_eq!(told, BTreeSet::from([Part::Link.index(), Part::Ip.index()]));
    assert_eq!(going(&mut split), []);
    split.knows(Part::Link, Part::Ip, 2);
    assert_eq!(going(&mut split), [], "that was of another one");
    split.knows(Part::Link, Part::Ip, 1);
    assert_eq!(going(&mut split), [Part::Ip]);
    start(&mut split, Part::Transport);
    split.knows(Part::Ip, Part::Transport, 1);
    assert_eq!(going(&mut split), [], "link hasn't said so");
    split.ended(Part::Link.index());
    assert_eq!(going(&mut split), [Part::Transport], "it never will");
}

#[test]
fn the_filter_waits_for_the_connections_that_there_are() {
    let mut split = split();
    start(&mut split, Part::Transport);
    let orders = start(&mut split, Part::Filter);
    assert!(orders.contains(&(Part::Transport, Order::ShowFlows {})));
    all_know(&mut split, Part::Filter);
    assert_eq!(going(&mut split), [Part::Transport]);
    split.flows_told();
    assert_eq!(going(&mut split), [Part::Filter]);
    // And for each change of rules, or until there is nobody to ask.
    assert!(split.new_rules().is_some());
    assert!(split.new_rules().is_some());
    split.flows_told();
    assert_eq!(going(&mut split), []);
    split.ended(Part::Transport.index());
    assert_eq!(going(&mut split), [Part::Filter]);
    assert!(split.new_rules().is_none());
    assert_eq!(going(&mut split), [Part::Filter]);
}
