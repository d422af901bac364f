use crate::harness::{LOCAL, Net, REMOTE};
use crate::state::State;
use skink_messages::{Counter, RxChecksum, RxPacket};

/// A segment of the peer's, which a filter refuses.
fn refuse(net: &mut Net, text: &str) {
    let payload = net.segment(text);
    let packet = RxPacket {
        arrived: net.now,
        source: REMOTE,
        destination: LOCAL,
        traffic_class: 0,
        hop_limit: 64,
        checksum: RxChecksum::Unverified,
        segment_bytes: 0,
        payload: &payload,
    };
    net.tcp.reject(net.now, &packet, &mut net.out);
    net.run();
}

#[test]
fn what_is_no_connection_is_refused_with_a_reset() {
    // (segment, answer)
    let table = [
        ("S 0 win 10", Some("R. 0 ack 1")),
        (". 5 ack 7", Some("R 7")),
        (". 5:15 ack 7", Some("R 7")),
        ("R 5", None),
    ];
    for (segment, answer) in table {
        let mut net = Net::new();
        net.listen(80, 5);
        refuse(&mut net, segment);
        match answer {
            Some(answer) => drop(net.expect(answer)),
            None => net.expect_nothing(),
        }
        assert_eq!(net.count(Counter::TcpDropRejected), 0, "{segment}");
    }
    // Nor is one that we ask for, before the peer has said anything that is let in.
    let mut net = Net::new();
    net.connect(80);
    net.expect("S 0");
    refuse(&mut net, "S. 0 ack 1 win 10");
    net.expect("R 1");
}

/// A filter that is out of its mind must not cost connections: what it refuses comes again.
#[test]
fn a_connection_outlives_a_filter_that_refuses_it() {
    for segment in [". 1:11 ack 1 win 1000", "F. 1 ack 1 win 1000", "S 0 win 10"] {
        let mut net = Net::new();
        let id = net.accepted("mss 1000", 1_000);
        refuse(&mut net, segment);
        net.expect_nothing();
        assert_eq!(net.count(Counter::TcpDropRejected), 1, "{segment}");
        assert_eq!(net.state(id), State::Established, "{segment}");
        net.inject(". 1:11 ack 1 win 1000");
        assert_eq!(net.read(id, 100), 10);
    }
    // The peer holds it for established once it has our SYN.
    let mut net = Net::new();
    net.listen(80, 5);
    net.inject("S 0 win 10");
    net.expect("S. 0 ack 1");
    refuse(&mut net, ". 1 ack 1 win 10");
    net.expect_nothing();
    // And when all has been said, it may not have heard it.
    let mut net = Net::new();
    let id = net.accepted("mss 1000", 1_000);
    net.shutdown(id);
    net.expect("F. 1 ack 1");
    net.inject("F. 1 ack 2 win 1000");
    net.expect(". 2 ack 2");
    refuse(&mut net, "F. 1 ack 2 win 1000");
    net.expect_nothing();
    assert_eq!(net.count(Counter::TcpDropRejected), 1);
}

/// A filter that is new must let in a FIN that is sent again, also when the program has closed.
#[test]
fn a_filter_is_told_of_what_has_ended_too() {
    let mut net = Net::new();
    let id = net.accepted("mss 1000", 1_000);
    let states = |net: &Net| net.tcp.flows().map(|flow| flow.1).collect::<Vec<_>>();
    assert_eq!(states(&net), [State::Established]);
    net.close(id);
    net.expect("F. 1 ack 1");
    net.inject("F. 1 ack 2 win 1000");
    net.expect(". 2 ack 2");
    assert_eq!(states(&net), [State::TimeWait]);
}

/// For who looks at a few at a time.
#[test]
fn connections_are_found_from_any_slot_on() {
    let mut net = Net::new();
    net.add_region(8);
    net.listen(80, 100);
    for port in [1, 2, 3] {
        net.remote_port = port;
        net.inject("S 0 win 10");
        net.expect("S. 0 ack 1");
        net.inject(". 1 ack 1 win 10");
    }
    let far = net.listen_in(1, 81, 5, skink_messages::BindOptions::default());
    net.local_port = 81;
    net.remote_port = 4;
    net.inject("S 0 win 10");
    net.expect("S. 0 ack 1");
    let all: Vec<_> = net.tcp.flows_from(0).collect();
    let found = |first| {
        let flows = net.tcp.flows_from(first);
        let ports = flows.filter_map(|(_, flow)| Some(flow?.0.remote.port));
        ports.collect::<Vec<_>>()
    };
    assert_eq!(found(0), [1, 2, 3, 4]);
    assert_eq!(all.len(), 6, "two listeners");
    for (at, (slot, _)) in all.iter().enumerate() {
        assert_eq!(net.tcp.flows_from(*slot).count(), all.len() - at);
    }
    assert_eq!(found(3), [3, 4]);
    // Between the regions, and behind them.
    assert_eq!(found(far.slot - 1), [4]);
    assert_eq!(found(far.slot + 2), []);
    assert_eq!(found(u32::MAX), []);
}
