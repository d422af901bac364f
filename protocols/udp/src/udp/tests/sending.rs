//! What leaves.
use super::*;

/// A datagram to send: what the header says, and what becomes of it.
#[derive(Clone, Copy)]
struct Outgoing {
    name: &'static str,
    socket: usize,
    header: DatagramHeader,
    len: usize,
    /// The ends and the hop limit it leaves with, or the counter of its drop.
    expected: Result<(IpAddr, IpAddr, Option<u8>), Counter>,
}

fn outgoing() -> Vec<Outgoing> {
    let unreachable: IpAddr = [203, 0, 113, 1].into();
    let group: IpAddr = [224, 0, 0, 251].into();
    let broadcast = IpAddr::V4(Ipv4Addr::BROADCAST);
    let bad = Err(Counter::UdpDropBadRequest);
    let to = |addr, port| DatagramHeader::new(at(addr, port), ANY);
    let from = |local| DatagramHeader { local, ..to(B, 9) };
    let hops = |hop_limit, header| DatagramHeader {
        hop_limit,
        ..header
    };
    let cut = |segment_bytes| DatagramHeader {
        segment_bytes,
        ..to(B, 9)
    };
    let whole = DatagramHeader {
        dont_fragment: true,
        ..to(B, 9)
    };
    let ok = Ok((A, B, None));
    let second: IpAddr = [10, 0, 0, 3].into();
    let row = |name, socket, header, len, expected| Outgoing {
        name,
        socket,
        header,
        len,
        expected,
    };
    // Socket 0 is bound to all, 1 to the second address, 2 is connected, 3 is IPv6.
    vec![
        row("plain", 0, to(B, 9), 100, ok),
        row("empty", 0, to(B, 9), 0, ok),
        row("to nobody", 0, to(B, 0), 10, bad),
        row(
            "without a route",
            0,
            to(unreachable, 9),
            10,
            Err(Counter::UdpDropNoRoute),
        ),
        row("other family", 0, to(B6, 9), 10, bad),
        row("in 64 pieces", 0, cut(100), 6_400, ok),
        row("in 65 pieces", 0, cut(100), 6_401, bad),
        row(
            "from the second",
            0,
            from(second),
            10,
            Ok((second, B, None)),
        ),
        row(
            "from elsewhere",
            0,
            from(B),
            10,
            Err(Counter::UdpDropNoRoute),
        ),
        row(
            "bound to the second",
            1,
            to(B, 9),
            10,
            Ok((second, B, None)),
        ),
        row("bound comes first", 1, from(A), 10, Ok((second, B, None))),
        row("hops", 0, hops(7, to(B, 9)), 10, Ok((A, B, Some(7)))),
        row("group", 0, to(group, 9), 10, Ok((A, group, Some(1)))),
        row(
            "group, far",
            0,
            hops(7, to(group, 9)),
            10,
            Ok((A, group, Some(7))),
        ),
        row(
            "broadcast",
            0,
            to(broadcast, 9),
            10,
            Ok((A, broadcast, None)),
        ),
        row("to the peer", 2, to(ANY, 0), 10, ok),
        row("to another", 2, to(second, 9), 10, Ok((A, second, None))),
        row("IPv6", 3, to(B6, 9), 10, Ok((A6, B6, None))),
        row("largest", 0, to(B, 9), 65_507, ok),
        row("too large", 0, to(B, 9), 65_508, bad),
        row("largest IPv6", 3, to(B6, 9), 65_527, Ok((A6, B6, None))),
        row("too large IPv6", 3, to(B6, 9), 65_528, bad),
        row("cut", 0, cut(1472), 60_000, ok),
        row("cut, too large for the path", 0, cut(1473), 60_000, bad),
        row("cut to one", 0, cut(2000), 2000, ok),
        row("whole", 0, whole, 1472, ok),
        row("too large to be whole", 0, whole, 1473, bad),
        row("too large to be whole for the peer", 2, whole, 1473, bad),
    ]
}

#[test]
fn outgoing_datagrams() {
    for row in outgoing() {
        let second: IpAddr = [10, 0, 0, 3].into();
        let mut world = world(&[A, second, A6]);
        let mut udp = new_udp(1, 131_072);
        let ids = [
            bound(&mut udp, &mut world, at(ANY, 100), ALONE),
            bound(&mut udp, &mut world, at(second, 101), ALONE),
            bound(&mut udp, &mut world, at(ANY, 102), ALONE),
            bound(&mut udp, &mut world, at(ANY6, 103), ALONE),
        ];
        udp.connect(ids[2], Some(at(B, 9)), &mut world)
            .expect("a route");
        let id = ids[row.socket];
        let header = DatagramHeader {
            traffic_class: 0xb8,
            ..row.header
        };
        let payload = vec![5; row.len];
        let ring = DatagramRing::new(udp.table().send_ring(id.slot));
        ring.push_with(&header, &[&payload]).expect("room");
        request(&mut udp, &mut world, UdpRequest::Sent(id));
        assert!(udp.table().send_ring(id.slot).is_empty(), "{}", row.name);
        match row.expected {
            Ok((source, destination, hop_limit)) => {
                let [wire] = &world.sent[..] else {
                    panic!("{}: not sent", row.name);
                };
                assert_eq!(
                    (wire.to.source, wire.to.destination, wire.to.hop_limit),
                    (source, destination, hop_limit),
                    "{}",
                    row.name
                );
                assert_eq!((wire.to.protocol, wire.to.traffic_class), (17, 0xb8));
                assert_eq!(wire.to.dont_fragment, header.dont_fragment);
                let (sent, data) = udp::Header::parse(&wire.bytes).expect("a datagram");
                let port = match header.remote.port {
                    0 => 9,
                    port => port,
                };
                assert_eq!(sent.source_port, 100 + row.socket as u16);
                assert_eq!((sent.destination_port, data), (port, &payload[..]));
                let cut = match header.segment_bytes {
                    segment if row.len > usize::from(segment) => segment,
                    _ => 0,
                };
                assert_eq!(wire.segment_bytes, cut, "{}", row.name);
                assert_eq!(udp.counters.get(Counter::UdpOut), 1);
            }
            Err(counter) => {
                assert!(world.sent.is_empty(), "{}", row.name);
                assert_eq!(udp.counters.get(counter), 1, "{}", row.name);
                let record = udp.table().find(id).expect("open");
                let told = record.error.load(std::sync::atomic::Ordering::Relaxed);
                let is_told = header.dont_fragment && row.socket == 2;
                let expected = is_told.then_some(SocketError::MessageSize as u32);
                assert_eq!(told, expected.unwrap_or(0), "{}", row.name);
            }
        }
    }
}

#[test]
fn a_full_output_loses_nothing_and_room_is_announced() {
    let mut world = world(&[A]);
    let mut udp = new_udp(1, 16_384);
    let id = udp.open().expect("a slot");
    for index in 0..200u8 {
        send(&udp, id, at(B, 9), &[index]);
    }
    world.room = 10;
    request(&mut udp, &mut world, UdpRequest::Sent(id));
    request(&mut udp, &mut world, UdpRequest::Sent(id));
    assert_eq!(world.sent.len(), 10);
    assert_eq!(udp.poll(NOW, &mut world), Progress::More);
    assert_eq!(
        Component::<World>::next_deadline(&udp),
        Some(NOW + RETRY),
        "waits instead of spinning"
    );
    assert_eq!(world.take_events(), [(0, Events::WRITABLE)]);
    world.room = usize::MAX;
    let mut polls = 0;
    while udp.poll(NOW, &mut world) == Progress::More {
        polls += 1;
    }
    assert_eq!(polls, 190 / 64, "in turns");
    let order: Vec<u8> = world.sent.iter().map(|wire| wire.bytes[8]).collect();
    assert_eq!(order, (0..200).collect::<Vec<u8>>());
    assert_eq!(Component::<World>::next_deadline(&udp), None);
    let local = udp.table().find(id).expect("open").four_tuple().local;
    assert_eq!(local.addr, ANY);
    assert_eq!(world.port(local.port), (1, 1), "bound by sending");
    // Answers find the socket that was never bound.
    arrive(&mut udp, &mut world, at(B, 9), at(A, local.port), b"yes");
    assert_eq!(received(&udp, id).len(), 1);
}

#[test]
fn without_a_port_to_send_from_the_program_is_told() {
    let mut world = world(&[A]);
    world.foreign = (32_768..=60_999).collect();
    let mut udp = new_udp(1, 4096);
    let id = udp.open().expect("a slot");
    send(&udp, id, at(B, 9), b"x");
    request(&mut udp, &mut world, UdpRequest::Sent(id));
    udp.poll(NOW, &mut world);
    assert_eq!(world.take_events(), [(0, Events::ERROR)]);
    let error = &udp.table().find(id).expect("open").error;
    let error = error.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(error, SocketError::NoBuffers as u32);
    assert!(udp.table().send_ring(id.slot).is_empty());
}
