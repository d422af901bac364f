//! `link`, `ip`, `filter` and the transports in a thread each; the test is their supervisor, a program,
//! and the peer.

mod common;

use common::split::Split;
use common::{connect, exchange};
use skink_control::{Part, PartStart};
use skink_messages::Counter;
use skink_process::{Ended, PartProcess};

/// A filter that forgets a connection resets it.
const STATEFUL: &str = "
set block-policy return
block proto tcp all
pass in proto tcp to port 8080 flags S/SA keep state
";

#[test]
fn a_connection_outlives_ip_and_filter() {
    for rules in ["", STATEFUL] {
        let (mut world, mut split) = Split::world(rules);
        let mut program = split.attach(&mut world, 3);
        let listener = program.listen(8080);
        let (theirs, ours) = connect(&mut world, &mut program, listener, 8080);
        exchange(&mut world, &mut program, theirs, ours, 100_000);
        for part in [Part::Ip, Part::Filter, Part::Ip, Part::Filter] {
            split.replace(part, &mut world);
            exchange(&mut world, &mut program, theirs, ours, 50_000);
        }
        // Who comes now is let in by the same rules.
        let (theirs, ours) = connect(&mut world, &mut program, listener, 8080);
        exchange(&mut world, &mut program, theirs, ours, 10_000);
        assert_eq!(world.stop(), Ended::Stopped);
        for part in [Part::Link, Part::Ip, Part::Filter] {
            assert_eq!(split.stop(part), Ended::Stopped);
        }
    }
}

#[test]
fn new_rules_leave_connections_alone_and_hold_for_the_next() {
    let (mut world, mut split) = Split::world("");
    let mut program = split.attach(&mut world, 0);
    let listener = program.listen(8080);
    let (theirs, ours) = connect(&mut world, &mut program, listener, 8080);
    split.load("set block-policy return\nblock proto tcp all\n", &mut world);
    exchange(&mut world, &mut program, theirs, ours, 50_000);
    let refused = world.peer.connect(8080);
    world.until("a reset", |peer| peer.is_closed(refused));
    split.load("", &mut world);
    let (theirs, ours) = connect(&mut world, &mut program, listener, 8080);
    exchange(&mut world, &mut program, theirs, ours, 10_000);
    assert!(world.count(Counter::FilterReturned) > 0);
    world.stop();
}

#[test]
fn parts_end_when_nobody_needs_them() {
    let (world, split) = Split::world("");
    let inner = split.desert();
    // The transports hold the stack together until they end.
    assert_eq!(world.stop(), Ended::Stopped);
    for thread in inner {
        assert_eq!(thread.join().expect("no panic"), Ended::Deserted);
    }
}

#[test]
fn a_part_of_other_descriptors_is_refused() {
    for part in Part::ALL {
        let start = PartStart {
            part,
            stack: common::start(""),
            pool: 1,
            incarnations: [1; 4],
            link: None,
        };
        assert!(PartProcess::new(start, Vec::new()).is_err(), "{part:?}");
    }
}
