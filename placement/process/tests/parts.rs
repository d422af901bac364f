//! Parts of a stack are replaced, and end when they aren't needed any more.

mod common;

use common::{APART, HALVES, MIXED, World, connect, end, exchange, start};
use skink_control::{Part, PartStart};
use skink_messages::{Counter, SocketError};
use skink_process::{Ended, Host};
use skink_sockets::{ClientError, PortOptions, Protocol};

/// A filter that forgets a connection resets it.
const STATEFUL: &str = "
set block-policy return
block proto tcp all
pass in proto tcp to port 8080 flags S/SA keep state
";

#[test]
fn a_connection_outlives_ip_and_filter() {
    for rules in ["", STATEFUL] {
        let mut world = World::with_rules(APART, rules);
        let mut program = world.attach(3, 1000);
        let listener = program.listen(8080);
        let (theirs, ours) = connect(&mut world, &mut program, listener, 8080);
        exchange(&mut world, &mut program, theirs, ours, 100_000);
        for part in [Part::Ip, Part::Filter, Part::Store, Part::Ip, Part::Filter] {
            world.replace(part);
            exchange(&mut world, &mut program, theirs, ours, 50_000);
        }
        // Who comes now is let in by the same rules.
        let (theirs, ours) = connect(&mut world, &mut program, listener, 8080);
        exchange(&mut world, &mut program, theirs, ours, 10_000);
        world.stop();
    }
}

#[test]
fn a_process_of_several_parts_is_replaced_as_one() {
    let mut world = World::with_rules(MIXED, STATEFUL);
    let mut program = world.attach(3, 1000);
    let listener = program.listen(8080);
    let (theirs, ours) = connect(&mut world, &mut program, listener, 8080);
    for part in [Part::Ip, Part::Filter, Part::Store] {
        world.replace(part);
        exchange(&mut world, &mut program, theirs, ours, 50_000);
    }
    let (theirs, ours) = connect(&mut world, &mut program, listener, 8080);
    exchange(&mut world, &mut program, theirs, ours, 10_000);
    world.stop();
}

#[test]
fn new_rules_leave_connections_alone_and_hold_for_the_next() {
    for grouping in [APART, HALVES, MIXED] {
        let mut world = World::new(grouping);
        let mut program = world.attach(0, 1000);
        let listener = program.listen(8080);
        let (theirs, ours) = connect(&mut world, &mut program, listener, 8080);
        world.load("set block-policy return\nblock proto tcp all\n");
        exchange(&mut world, &mut program, theirs, ours, 50_000);
        let refused = world.peer.connect(8080);
        world.until("a reset", |peer| peer.is_closed(refused));
        world.load("");
        let (theirs, ours) = connect(&mut world, &mut program, listener, 8080);
        exchange(&mut world, &mut program, theirs, ours, 10_000);
        assert!(world.count(Counter::FilterReturned) > 0);
        world.stop();
    }
}

#[test]
fn parts_end_when_nobody_needs_them() {
    for grouping in [APART, HALVES, MIXED] {
        let mut world = World::new(grouping);
        for thread in world.split.desert() {
            assert_eq!(thread.join().expect("no panic"), Ended::Deserted);
        }
    }
}

#[test]
fn a_part_of_other_descriptors_is_refused() {
    let all = Part::ALL.map(|part| vec![part]);
    for parts in all.into_iter().chain([Part::ALL.to_vec()]) {
        let start = PartStart {
            parts: parts.clone(),
            stack: start(""),
            pool: 1,
            incarnations: [1; Part::COUNT],
            link: None,
        };
        assert!(Host::of_parts(start, Vec::new()).is_err(), "{parts:?}");
    }
}

/// Nobody tells them any more that they may begin.
#[test]
fn what_waited_begins_when_the_supervisor_is_gone() {
    let mut world = World::new(APART);
    let mut program = world.attach(0, 1000);
    let local = end("0.0.0.0", 8080);
    world.split.stop(world.split.place(Part::Store));
    world.succeed(Part::Store);
    let threads = world.split.desert();
    let bound = program.bind(Protocol::Tcp, local, PortOptions::default());
    bound.expect("free");
    let again = program.bind(Protocol::Udp, end("0.0.0.0", 80), PortOptions::default());
    assert_eq!(again, Err(ClientError::Socket(SocketError::Prohibited)));
    drop(program);
    for thread in threads {
        assert_eq!(thread.join().expect("no panic"), Ended::Deserted);
    }
}

#[test]
fn a_number_that_is_taken_is_refused_by_all() {
    for grouping in [APART, HALVES, MIXED] {
        let mut world = World::new(grouping);
        let mut first = world.attach(0, 1000);
        let (refused, _) = world.try_attach(0, 0);
        assert_eq!(refused, world.split.front().len());
        // As for any program that was refused somewhere.
        world.detach(0);
        first.listen(8080);
        world.detach(0);
        world.finished(0);
        world.attach(0, 1000).listen(8080);
        world.stop();
    }
}
