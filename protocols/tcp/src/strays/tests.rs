use super::*;
use crate::demux::Place;
use crate::harness::Net;
use skink_messages::Counter;

/// The harness finds the flaw, if it may look.
#[test]
fn a_connection_that_the_table_has_lost_is_not_reset() {
    let mut net = Net::new();
    let id = net.accepted("mss 1000", 1_000);
    let (tuple, place) = (net.connection(id).tuple, Place::Connection(id.slot));
    net.tcp.demux.remove(&tuple, place);
    net.inject_without_run(". 1:11 ack 1 win 1000");
    assert!(net.out.sent.is_empty());
    assert_eq!(net.count(Counter::TcpDropLost), 1);
    // Who looks for somebody else is told that there is nobody.
    net.remote_port = 5_001;
    net.inject_without_run(". 1:11 ack 7 win 1000");
    assert_eq!(net.count(Counter::TcpDropLost), 1);
    assert_eq!(net.count(Counter::TcpResetsOut), 1);
    net.tcp.demux.insert(tuple, place);
    let reset = net.out.sent.pop_front().expect("an answer");
    assert!(reset.to_string().starts_with("R 7"), "{reset}");
    net.remote_port = 5_000;
    net.inject(". 1:11 ack 1 win 1000");
    assert_eq!(net.read(id, 100), 10);
}

#[test]
fn strays_cost_no_more_than_they_may() {
    let mut strays = Strays::default();
    let start = Instant::from_millis(5);
    // (milliseconds, slots, whether they are looked at)
    let table = [
        (0, MOST / 2, true),
        (10, MOST / 2, true),
        (199, 1, false),
        (200, MOST, true),
        (300, 1, false),
        (400, MOST + 1, false),
        (401, 1, true),
    ];
    for (at, slots, expected) in table {
        let now = start + Duration::from_millis(at);
        assert_eq!(strays.may_look_at(now, slots), expected, "{at} ms");
    }
}
