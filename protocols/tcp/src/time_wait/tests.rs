use super::*;
use crate::harness::{Net, OFFER};
use crate::state::State;
use skink_messages::{Counter, Events};

/// We close first; what is left waits.
fn waiting(options: &str) -> (Net, skink_memory::SocketId) {
    let mut net = Net::new();
    let id = net.accepted_with_stamps(options);
    net.shutdown(id);
    net.expect("F. 1 ack 1");
    let stamp = if options.contains("ts") {
        " ts 2000 *"
    } else {
        ""
    };
    net.inject(&format!("F. 1 ack 2 win 1000{stamp}"));
    net.expect(". 2 ack 2");
    assert_eq!(net.state(id), State::TimeWait);
    assert!(
        net.events(id)
            .contains(Events::READ_CLOSED | Events::CLOSED)
    );
    (net, id)
}

#[test]
fn late_segments_are_acknowledged_for_a_minute() {
    // (segment, answer)
    let table = [
        // Not the peer's FIN.
        ("F. 0 ack 2", Some(". 2 ack 2")),
        (". 1:11 ack 2", Some(". 2 ack 2")),
        (". 2 ack 2", None),
        ("R 2", None),
        ("R. 2 ack 2", None),
        ("S 1 win 10", Some(". 2 ack 2")),
        ("S. 0 ack 1", Some(". 2 ack 2")),
    ];
    for (segment, answer) in table {
        let (mut net, _) = waiting("mss 1000");
        for wait in [0, 30_000, 29_000] {
            net.advance(wait);
            net.inject(segment);
            match answer {
                Some(answer) => drop(net.expect(answer)),
                None => net.expect_nothing(),
            }
        }
        // RFC 1337: no reset has ended it early; a minute does.
        net.advance(1_100);
        net.inject("F. 1 ack 2");
        net.expect("R 2");
    }
}

#[test]
fn a_minute_begins_anew_with_the_peers_fin() {
    let (mut net, _) = waiting("mss 1000");
    for wait in [0, 59_000, 59_000, 500, 200] {
        net.advance(wait);
        net.inject("F. 1 ack 2");
        net.expect(". 2 ack 2");
    }
    // The last two came too soon after the one before.
    net.advance(59_500);
    net.inject("F. 1 ack 2");
    net.expect("R 2");
}

#[test]
fn the_socket_may_be_closed_before_or_after() {
    let (mut net, id) = waiting("mss 1000");
    net.close(id);
    assert!(!net.exists(id));
    net.inject("F. 1 ack 2");
    net.expect(". 2 ack 2");
    assert_eq!(
        net.out.uses.get(&80).copied(),
        Some(2),
        "the listener and TIME-WAIT"
    );
    net.advance(61_000);
    assert_eq!(net.out.uses.get(&80).copied(), Some(1));

    let (mut net, id) = waiting("mss 1000");
    net.advance(61_000);
    assert_eq!(net.state(id), State::TimeWait);
    net.close(id);
    assert!(!net.exists(id));
    assert_eq!(net.out.uses.get(&80).copied(), Some(1));
}

#[test]
fn a_new_request_takes_its_place_if_it_is_newer() {
    // (options of the old connection, request, whether it is taken): RFC 6191.
    let table = [
        ("mss 1000", "S 0 win 9 isn 5000", true),
        ("mss 1000", "S 0 win 9 isn 0", false),
        ("mss 1000", "S 0 win 9 isn -5000", false),
        (OFFER, "S 0 win 9 ts 2001 0 isn -5000", true),
        (OFFER, "S 0 win 9 ts 2000 0 isn 5000", true),
        (OFFER, "S 0 win 9 ts 2000 0 isn -5000", false),
        (OFFER, "S 0 win 9 ts 1999 0 isn 5000", false),
        (OFFER, "S 0 win 9 isn 5000", true),
        (OFFER, "S 0 win 9 isn -5000", false),
    ];
    for (options, request, taken) in table {
        let (mut net, _) = waiting(options);
        let old = net.iss();
        net.advance(10);
        net.inject(request);
        if taken {
            net.expect("S. 0 ack 1");
            // RFC 6191: our numbers lie beyond those of the old connection too.
            assert!(old.distance_to(net.iss()) > 65_000, "{request}");
            assert_eq!(net.count(Counter::TcpTimeWaitReused), 1);
        } else {
            let sent = net.next().expect("an answer");
            assert_eq!(sent.header.flags, skink_wire::tcp::Flags::ACK, "{request}");
        }
    }
}

/// It calls from the same port, and resets what it doesn't know: else it would be answered so until the minute is over.
#[test]
fn a_peer_that_knows_nothing_of_it_is_heard_when_it_asks_again() {
    for (reset, heard) in [("R 2", true), ("R 1", false), ("R 3", false)] {
        let (mut net, _) = waiting("mss 1000");
        for _ in 0..2 {
            net.inject("S 1 win 10");
            net.expect(". 2 ack 2");
        }
        net.inject(reset);
        net.expect_nothing();
        net.inject("S 1 win 10");
        let answer = net.next().expect("an answer").header.flags;
        let taken = skink_wire::tcp::Flags::SYN | skink_wire::tcp::Flags::ACK;
        assert_eq!(answer == taken, heard, "{reset}");
    }
}

#[test]
fn entries_expire_in_order_and_are_found_at_once() {
    let end = |port| {
        let addr = core::net::Ipv4Addr::new(10, 0, 0, 9).into();
        skink_wire::Endpoint::new(addr, port)
    };
    let entry = |port| {
        let tuple = FourTuple::new(end(80), end(port));
        TimeWaits::entry(tuple, SeqNum(1), SeqNum(2), None, 0)
    };
    let mut waits = TimeWaits::default();
    let at = Instant::from_millis;
    let indices: Vec<u32> = (0..10)
        .map(|port| waits.insert(at(u64::from(port)), entry(port)))
        .collect();
    // The first ones go early, and so does one in the middle; a new one takes an old index.
    for port in [1, 0, 5] {
        assert!(waits.remove(indices[port]).is_some());
        assert!(waits.remove(indices[port]).is_none());
    }
    assert_eq!(waits.next_deadline(), Some(at(60_002)));
    waits.insert(at(10), entry(10));
    assert!(waits.pop_expired(at(60_001)).is_none());
    let ports: Vec<u16> = core::iter::from_fn(|| waits.pop_expired(at(60_009)))
        .map(|(_, entry)| entry.tuple.remote.port)
        .collect();
    assert_eq!(ports, [2, 3, 4, 6, 7, 8, 9]);
    assert_eq!((waits.len(), waits.next_deadline()), (1, Some(at(60_010))));
    assert_eq!(
        waits.pop_oldest().map(|(_, entry)| entry.tuple.remote.port),
        Some(10)
    );
    assert_eq!(waits.next_deadline(), None);
}
