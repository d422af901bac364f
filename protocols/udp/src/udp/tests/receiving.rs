//! What arrives, and errors about what was sent.
use super::*;
use crate::socket::unspecified;

#[test]
fn the_most_particular_socket_gets_the_datagram() {
    let mut world = world(&[A, A6]);
    let mut udp = new_udp(1, 8192);
    let any = bound(&mut udp, &mut world, at(ANY, 53), REUSE);
    let exact = bound(&mut udp, &mut world, at(A, 53), REUSE);
    let connected = bound(&mut udp, &mut world, at(A, 53), REUSE);
    udp.connect(connected, Some(at(B, 99)), &mut world)
        .expect("a route");
    let any6 = bound(&mut udp, &mut world, at(ANY6, 53), ALONE);
    let ids = [any, exact, connected, any6];
    let other: IpAddr = [10, 0, 0, 77].into();
    for (from, to, expected) in [
        (at(B, 99), at(A, 53), Some(2)),
        (at(B, 98), at(A, 53), Some(1)),
        (at(B, 99), at(other, 53), Some(0)),
        (at(B, 0), at(A, 53), Some(1)),
        (at(B6, 99), at(A6, 53), Some(3)),
        (at(B, 99), at(A, 54), None),
        (at(B6, 99), at(A6, 54), None),
        (at(B, 99), at(A, 0), None),
        (at(B, 99), at(IpAddr::V4(Ipv4Addr::BROADCAST), 54), None),
    ] {
        arrive(&mut udp, &mut world, from, to, b"hello");
        let found: Vec<usize> = (0..4).map(|i| usize::from(expected == Some(i))).collect();
        assert_eq!(counts(&udp, &ids), found, "{from} {to}");
        let answered = expected.is_none() && to.addr != IpAddr::V4(Ipv4Addr::BROADCAST);
        assert_eq!(udp.take_unreachable(), answered, "{from} {to}");
        assert!(!udp.take_unreachable());
    }
    assert_eq!(udp.counters.get(Counter::UdpIn), 5);
    assert_eq!(udp.counters.get(Counter::UdpDropNoSocket), 4);
}

#[test]
fn datagrams_to_many_reach_all_who_listen() {
    let group: IpAddr = [224, 0, 0, 251].into();
    let mut world = world(&[A, A6]);
    let mut udp = new_udp(1, 8192);
    let any = bound(&mut udp, &mut world, at(ANY, 5353), REUSE);
    let in_group = bound(&mut udp, &mut world, at(group, 5353), REUSE);
    let ours = bound(&mut udp, &mut world, at(A, 5353), REUSE);
    let six = bound(&mut udp, &mut world, at(ANY6, 5353), REUSE);
    let ids = [any, in_group, ours, six];
    arrive(&mut udp, &mut world, at(B, 1), at(group, 5353), b"x");
    assert_eq!(counts(&udp, &ids), [1, 1, 0, 0]);
    for to_all in [IpAddr::V4(Ipv4Addr::BROADCAST), ALL] {
        arrive(&mut udp, &mut world, at(B, 1), at(to_all, 5353), b"x");
        assert_eq!(counts(&udp, &ids), [1, 0, 0, 0]);
    }
    let group6: IpAddr = [0xff02, 0, 0, 0, 0, 0, 0, 0xfb].into();
    arrive(&mut udp, &mut world, at(B6, 1), at(group6, 5353), b"x");
    assert_eq!(counts(&udp, &ids), [0, 0, 0, 1]);
}

/// Also to the broadcast address of our network alone, and not to one that another network has.
#[test]
fn a_broadcast_reaches_all_sockets_that_share_a_port() {
    // It ends as a broadcast address does.
    let ours: IpAddr = [10, 0, 1, 255].into();
    let mut world = world(&[A, ours]);
    let mut udp = new_udp(1, 8192);
    let [first, second] = [0; 2].map(|_| bound(&mut udp, &mut world, at(ANY, 67), REUSE));
    let to_all = bound(&mut udp, &mut world, at(ALL, 67), REUSE);
    let [third, fourth] = [0; 2].map(|_| bound(&mut udp, &mut world, at(ours, 67), REUSE));
    let ids = [first, second, to_all, third, fourth];
    for port in 1..20 {
        arrive(&mut udp, &mut world, at(B, port), at(ALL, 67), b"x");
        assert_eq!(counts(&udp, &ids), [1, 1, 1, 0, 0]);
        assert!(!udp.take_unreachable());
        arrive(&mut udp, &mut world, at(B, port), at(ours, 67), b"x");
        assert_eq!(counts(&udp, &ids).iter().sum::<usize>(), 1);
    }
    arrive(&mut udp, &mut world, at(B, 1), at(ALL, 68), b"x");
    assert!(!udp.take_unreachable(), "a broadcast isn't answered");
}

/// As in Linux: `connect` leaves where the socket listens as it was bound, and says whom it hears.
#[test]
fn a_socket_bound_to_a_group_and_connected_hears_the_group_from_its_peer() {
    let group: IpAddr = [224, 0, 0, 251].into();
    let group6: IpAddr = [0xff02, 0, 0, 0, 0, 0, 0, 0xfb].into();
    let broadcast = IpAddr::V4(Ipv4Addr::BROADCAST);
    for (many, ours, peer) in [
        (group, A, B),
        (broadcast, A, B),
        (ALL, A, B),
        (group6, A6, B6),
    ] {
        let mut world = world(&[A, A6]);
        let mut udp = new_udp(1, 8192);
        let id = bound(&mut udp, &mut world, at(many, 53), REUSE);
        let beside = bound(&mut udp, &mut world, at(many, 53), REUSE);
        let ids = [id, beside];
        for port in [8, 9] {
            let local = udp.connect(id, Some(at(peer, port)), &mut world);
            assert_eq!(local, Ok(at(many, 53)));
        }
        let counters = udp.counters.clone();
        let (mut udp, adopted) = adopt(udp.table(), counters, &mut world);
        assert_eq!((adopted.sockets, adopted.given_up), (2, 0));
        for (port, to, expected) in [(9, many, [1, 1]), (8, many, [0, 1]), (9, ours, [0, 0])] {
            arrive(&mut udp, &mut world, at(peer, port), at(to, 53), b"x");
            assert_eq!(counts(&udp, &ids), expected, "{port} to {to}");
        }
        // What it sends is from us; `World` looks that its source is an address of ours.
        for to in [at(unspecified(peer), 0), at(peer, 9), at(peer, 10)] {
            send(&udp, id, to, b"y");
            request(&mut udp, &mut world, UdpRequest::Sent(id));
            udp.poll(NOW, &mut world);
            let wire = world.sent.pop().expect("sent");
            let port = if to.port == 10 { 10 } else { 9 };
            let ends = (wire.to.source, wire.to.destination, wire.bytes[3]);
            assert_eq!(ends, (ours, peer, port));
        }
        assert_eq!(udp.connect(id, None, &mut world), Ok(at(many, 53)));
        arrive(&mut udp, &mut world, at(peer, 8), at(many, 53), b"x");
        assert_eq!(counts(&udp, &ids), [1, 1]);
    }
}

#[test]
fn sockets_that_share_a_port_share_the_flows() {
    let mut world = world(&[A]);
    let mut udp = new_udp(5, 16_384);
    let ids: Vec<_> = (0..3)
        .map(|_| bound(&mut udp, &mut world, at(ANY, 80), REUSE))
        .collect();
    for round in 0..2 {
        let mut totals = [0; 3];
        let mut chosen = Vec::new();
        for port in 1000..1090 {
            arrive(&mut udp, &mut world, at(B, port), at(A, 80), b"x");
            let counts = counts(&udp, &ids);
            assert_eq!(counts.iter().sum::<usize>(), 1);
            let index = counts.iter().position(|count| *count == 1).expect("one");
            arrive(&mut udp, &mut world, at(B, port), at(A, 80), b"y");
            assert_eq!(received(&udp, ids[index]).len(), 1, "a flow stays");
            chosen.push(index);
            totals[index] += 1;
        }
        assert!(totals.iter().all(|total| *total > 10), "{round} {totals:?}");
    }
    assert_eq!(world.port(80), (3, 3));
}

#[test]
fn what_is_wrong_with_a_datagram_is_counted() {
    let good = datagram(at(B, 9), at(A, 53), b"hello");
    let good6 = datagram(at(B6, 9), at(A6, 53), b"hello");
    let with = |bytes: &[u8], index: usize, value: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes[index..index + value.len()].copy_from_slice(value);
        bytes
    };
    let padded = [&good[..], &[1, 2, 3]].concat();
    let malformed = Some(Counter::UdpDropMalformed);
    let checksum = Some(Counter::UdpDropChecksum);
    let none = RxChecksum::Unverified;
    let trusted = RxChecksum::Verified;
    for (name, bytes, is_v4, known, dropped) in [
        ("good", good.clone(), true, none, None),
        ("good over IPv6", good6.clone(), false, none, None),
        ("padded", padded, true, none, None),
        ("short", good[..7].to_vec(), true, none, malformed),
        ("cut off", good[..12].to_vec(), true, none, malformed),
        ("length 7", with(&good, 4, &[0, 7]), true, none, malformed),
        ("spoilt", with(&good, 9, b"x"), true, none, checksum),
        ("spoilt, trusted", with(&good, 9, b"e"), true, trusted, None),
        ("partial", with(&good, 6, &[1, 1]), true, trusted, None),
        ("none", with(&good, 6, &[0, 0]), true, none, None),
        (
            "none over IPv6",
            with(&good6, 6, &[0, 0]),
            false,
            none,
            checksum,
        ),
        (
            "none, trusted",
            with(&good6, 6, &[0, 0]),
            false,
            trusted,
            checksum,
        ),
    ] {
        let mut world = world(&[A, A6]);
        let mut udp = new_udp(1, 4096);
        let v4 = bound(&mut udp, &mut world, at(ANY, 53), ALONE);
        let v6 = bound(&mut udp, &mut world, at(ANY6, 53), ALONE);
        let (from, to, id) = if is_v4 { (B, A, v4) } else { (B6, A6, v6) };
        let mut packet = packet(from, to, &bytes);
        packet.checksum = known;
        handle(&mut udp, &mut world, UdpInput::Packet(packet));
        let expected = DatagramHeader {
            remote: at(from, 9),
            local: to,
            traffic_class: 3,
            hop_limit: 61,
            segment_bytes: 0,
            dont_fragment: false,
        };
        let expected = match dropped {
            None => vec![(expected, b"hello".to_vec())],
            Some(_) => Vec::new(),
        };
        assert_eq!(received(&udp, id), expected, "{name}");
        for counter in [Counter::UdpDropMalformed, Counter::UdpDropChecksum] {
            let count = u64::from(dropped == Some(counter));
            assert_eq!(udp.counters.get(counter), count, "{name}");
        }
        assert!(!udp.take_unreachable(), "{name}");
    }
}

#[test]
fn a_full_ring_drops_and_one_event_announces_a_batch() {
    let mut world = world(&[A]);
    let mut udp = new_udp(1, 4096);
    let id = bound(&mut udp, &mut world, at(A, 53), ALONE);
    for _ in 0..5 {
        arrive(&mut udp, &mut world, at(B, 1), at(A, 53), &[7; 952]);
    }
    assert_eq!(udp.counters.get(Counter::UdpIn), 4);
    assert_eq!(udp.counters.get(Counter::UdpDropBufferFull), 1);
    let next = |udp: &Udp| Component::<World>::next_deadline(udp);
    assert_eq!(next(&udp), Some(Instant::ZERO));
    world.event_room = 0;
    assert_eq!(udp.poll(NOW, &mut world), Progress::More);
    assert!(world.events.is_empty());
    assert_eq!(next(&udp), Some(NOW + RETRY), "kept for later");
    world.event_room = 1;
    assert_eq!(udp.poll(NOW, &mut world), Progress::Idle);
    let event = SocketEvent {
        socket: id,
        events: Events::READABLE,
    };
    assert_eq!(world.events, [event]);
    assert_eq!(next(&udp), None);
}

#[test]
fn datagrams_that_a_nic_joined_are_told_apart() {
    let mut world = world(&[A]);
    let mut udp = new_udp(1, 4096);
    let id = bound(&mut udp, &mut world, at(A, 53), ALONE);
    let bytes = datagram(at(B, 1), at(A, 53), b"aaabbbcc");
    let mut packet = packet(B, A, &bytes);
    packet.segment_bytes = 3;
    handle(&mut udp, &mut world, UdpInput::Packet(packet));
    let payloads: Vec<_> = received(&udp, id).into_iter().map(|(_, p)| p).collect();
    assert_eq!(payloads, [&b"aaa"[..], b"bbb", b"cc"]);
}

#[test]
fn icmp_errors_reach_the_connected_socket() {
    for (kind, remote_port, error) in [
        (ErrorKind::PortUnreachable, 9, Some(SocketError::Refused)),
        (
            ErrorKind::ProtocolUnreachable,
            9,
            Some(SocketError::Refused),
        ),
        (ErrorKind::Prohibited, 9, Some(SocketError::Prohibited)),
        (ErrorKind::HostUnreachable, 9, None),
        (ErrorKind::TimeExceeded, 9, None),
        (ErrorKind::PacketTooBig { mtu: 1280 }, 9, None),
        (ErrorKind::PortUnreachable, 10, None),
    ] {
        let mut world = world(&[A]);
        let mut udp = new_udp(1, 4096);
        let other = bound(&mut udp, &mut world, at(ANY, 53), REUSE);
        let id = bound(&mut udp, &mut world, at(ANY, 53), REUSE);
        udp.connect(id, Some(at(B, 9)), &mut world)
            .expect("a route");
        let report = NetworkError {
            kind,
            protocol: 17,
            local: at(A, 53),
            remote: at(B, remote_port),
            sequence: 0,
        };
        handle(&mut udp, &mut world, UdpInput::Error(report));
        udp.poll(NOW, &mut world);
        let number = |id| {
            let record = udp.table().find(id).expect("open");
            record.error.load(std::sync::atomic::Ordering::Relaxed)
        };
        let expected = error.map_or(0, |error| error as u32);
        assert_eq!((number(id), number(other)), (expected, 0), "{kind:?}");
        let events = match error {
            Some(_) => vec![(id.slot, Events::ERROR)],
            None => Vec::new(),
        };
        assert_eq!(world.take_events(), events, "{kind:?}");
    }
}

/// Of an address that could be a network's broadcast, too, it is known at once whether it is.
#[test]
fn no_datagram_costs_a_question_for_the_way() {
    for last in [1, 3, 7, 255] {
        let address = IpAddr::from([10, 1, 0, last]);
        let mut world = world(&[address]);
        let mut udp = new_udp(1, 65_536);
        let id = bound(&mut udp, &mut world, at(address, 53), ALONE);
        let connected = udp.connect(id, Some(at(B, 7)), &mut world);
        connected.expect("a way");
        let before = world.asked.get();
        for _ in 0..3 {
            arrive(&mut udp, &mut world, at(B, 7), at(address, 53), b"x");
            send(&udp, id, at(ANY, 0), b"y");
            request(&mut udp, &mut world, UdpRequest::Sent(id));
            udp.poll(NOW, &mut world);
        }
        assert_eq!((received(&udp, id).len(), world.sent.len()), (3, 3));
        assert_eq!(world.asked.get(), before, "{address}");
    }
}
