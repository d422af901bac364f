use super::*;
use crate::Replica;
use crate::addresses::ALL_NODES;
use crate::neighbours::State;
use skink_messages::ErrorKind;
use skink_wire::ChecksumPolicy;
use skink_wire::icmpv6::{NeighbourSolicitation, RouterAdvertisement};

#[test]
fn packets_wait_for_the_neighbour_and_leave_in_order() {
    for (us, peer) in FAMILIES {
        let mut host = Host::new();
        for number in 0..3u8 {
            host.send(us, peer, &[number; 12], false).expect("room");
        }
        let group = match peer {
            IpAddr::V4(_) => MacAddr::BROADCAST,
            IpAddr::V6(peer) => solicited_mac(peer),
        };
        assert_eq!(host.sent_to(group).len(), 1, "one question for {peer}");
        host.answer(peer, PEER_MAC);
        let sent = host.sent_to(PEER_MAC);
        let last: Vec<_> = sent.iter().filter_map(|packet| packet.last()).collect();
        assert_eq!(last, [&0, &1, &2], "to {peer}");
        // From now on they leave at once.
        host.send(us, peer, &[3; 12], false).expect("room");
        assert_eq!(host.sent_to(PEER_MAC).len(), 1);
    }
}

#[test]
fn a_silent_neighbour_is_given_up() {
    for (us, peer) in FAMILIES {
        let mut host = Host::new();
        host.send(us, peer, &[0, 1, 0, 2, 0, 0, 0, 9], true)
            .expect("room");
        for second in 1..=2 {
            host.poll(second * 1000);
            assert!(host.ip.take_error().is_none());
        }
        assert_eq!(host.wire.frames.len(), 3, "questions for {peer}");
        host.poll(3000);
        let error = host.ip.take_error().expect("an error");
        assert_eq!(error.kind, ErrorKind::HostUnreachable);
        assert_eq!((error.local.addr, error.local.port), (us, 1));
        assert_eq!((error.remote.addr, error.remote.port), (peer, 2));
        assert_eq!(error.sequence, 9);
        assert_eq!(host.count(Counter::IpDropUnresolved), 1);
        assert_eq!(host.ip.next_deadline(), None);
    }
}

#[test]
fn a_neighbour_in_use_is_asked_again_and_forgotten_if_silent() {
    for (us, peer) in FAMILIES {
        let mut host = Host::acquainted();
        assert!(matches!(
            host.ip.neighbours.state(peer),
            Some(State::Reachable { .. })
        ));
        // Longer than any neighbour counts as reachable.
        host.poll(50_000);
        host.send(us, peer, b"12345678", false).expect("room");
        assert!(matches!(
            host.ip.neighbours.state(peer),
            Some(State::Delay { .. })
        ));
        assert_eq!(host.sent_to(PEER_MAC).len(), 1, "sent though stale");
        host.poll(55_000);
        assert_eq!(host.sent_to(PEER_MAC).len(), 1, "asked directly");
        host.answer(peer, PEER_MAC);
        assert!(matches!(
            host.ip.neighbours.state(peer),
            Some(State::Reachable { .. })
        ));
        host.poll(110_000);
        host.send(us, peer, b"12345678", false).expect("room");
        for ms in [115_000, 116_000, 117_000, 118_000] {
            host.poll(ms);
        }
        assert_eq!(host.ip.neighbours.state(peer), None);
    }
}

/// A link that is full for some seconds is no neighbour that doesn't answer.
#[test]
fn questions_that_the_link_has_no_room_for_are_asked_again() {
    for (us, peer) in FAMILIES {
        let mut host = Host::new();
        host.wire.room = 0;
        host.send(us, peer, b"12345678", false).expect("room");
        for ms in (0..4000).step_by(50) {
            host.poll(ms);
        }
        host.wire.room = usize::MAX;
        host.poll(4100);
        host.wire.frames.clear();
        host.answer(peer, PEER_MAC);
        assert_eq!(host.sent_to(PEER_MAC).len(), 1);
        // For ever it isn't tried.
        host.poll(100_000);
        host.wire.room = 0;
        host.send(us, peer, b"12345678", false)
            .expect_err("no room");
        for ms in (100_000..120_000).step_by(50) {
            host.poll(ms);
        }
        assert_eq!(host.ip.neighbours.state(peer), None);
    }
}

#[test]
fn queues_and_the_table_are_bounded() {
    let mut host = Host::new();
    let (us, peer) = FAMILIES[0];
    // The first packets of many connections wait, and a flight of large ones, but not without end.
    for _ in 0..500 {
        host.send(us, peer, &[0; 40], false).expect("room");
    }
    assert_eq!(host.count(Counter::IpDropQueueFull), 0);
    for _ in 0..1000 {
        host.send(us, peer, &[0; 1000], false).expect("room");
    }
    let dropped = host.count(Counter::IpDropQueueFull);
    assert!((1300..1420).contains(&dropped), "{dropped}");
    for number in 0..8000u32 {
        let peer = Ipv6Addr::from(u128::from(US6) + 100 + u128::from(number));
        host.send(US6.into(), peer.into(), &[0; 1400], false)
            .expect("room");
        assert!(host.ip.neighbours.len() <= 1024);
        assert!(host.ip.neighbours.held_bytes() <= 4 << 20);
    }
    let failed = host.count(Counter::IpDropUnresolved) + host.count(Counter::IpDropQueueFull);
    assert!(failed >= 8000 + dropped - 1024);
}

#[test]
fn a_scan_of_addresses_that_nobody_has_leaves_the_gateway_known() {
    let us = US4.into();
    let gateway: IpAddr = "10.0.0.254".parse().expect("an address");
    let far: IpAddr = "192.0.2.1".parse().expect("an address");
    let first = u128::from(US6) + 0x100;
    // Whether the gateway is in use, and others ask for us meanwhile; or it is idle.
    for in_use in [true, false] {
        let mut host = Host::new();
        host.send(us, far, b"12345678", false).expect("room");
        host.answer(gateway, OTHER_MAC);
        host.poll(if in_use { 0 } else { 100_000 });
        for number in 0..3000 {
            let nobody = Ipv6Addr::from(first + number);
            host.send(US6.into(), nobody.into(), b"12345678", false)
                .expect("room");
            let asking = Ipv6Addr::from(first + 10_000 + number);
            let question = icmpv6::Message::NeighbourSolicitation(NeighbourSolicitation {
                target: US6,
                source_link_layer: Some(PEER_MAC),
            });
            if in_use {
                host.receive(&icmpv6_frame(asking, solicited_node(US6), &question));
            }
        }
        host.wire.frames.clear();
        host.send(us, far, b"12345678", false).expect("room");
        assert_eq!(host.sent_to(OTHER_MAC).len(), 1, "in use: {in_use}");
    }
}

#[test]
fn where_all_neighbours_are_known_new_ones_do_not_displace_each_other() {
    let mut host = Host::new();
    let neighbour = |number: u128| Ipv6Addr::from(u128::from(US6) + 0x100 + number);
    let send = |host: &mut Host, number| {
        host.send(US6.into(), neighbour(number).into(), b"12345678", false)
            .expect("room");
    };
    for number in 0..1024 {
        send(&mut host, number);
        host.answer(neighbour(number).into(), PEER_MAC);
    }
    host.poll(100_000);
    for number in 1024..1034 {
        send(&mut host, number);
    }
    host.wire.frames.clear();
    for number in 1024..1034 {
        host.answer(neighbour(number).into(), OTHER_MAC);
    }
    assert_eq!(host.sent_to(OTHER_MAC).len(), 10);
}

#[test]
fn questions_for_us_are_answered_if_that_is_our_task() {
    for answers in [true, false] {
        let mut host = Host::with(|config| config.answers = answers);
        let question = arp_frame(Operation::Request, PEER_MAC, PEER4, US4, MacAddr::BROADCAST);
        host.receive(&question);
        let replies = host.sent_to(PEER_MAC);
        assert_eq!(replies.len(), usize::from(answers));
        for reply in replies {
            let reply = Packet::parse(&reply).expect("ARP");
            assert_eq!(reply.operation, Operation::Reply);
            assert_eq!((reply.sender_mac, reply.sender_ip), (MAC, US4));
        }
        let question = icmpv6::Message::NeighbourSolicitation(NeighbourSolicitation {
            target: US6,
            source_link_layer: Some(PEER_MAC),
        });
        host.receive(&icmpv6_frame(PEER6, solicited_node(US6), &question));
        let replies = host.sent_to(PEER_MAC);
        assert_eq!(replies.len(), usize::from(answers));
        for reply in replies {
            let (header, message) = ipv6::Header::parse(&reply).expect("IPv6");
            assert_eq!(header.hop_limit, 255);
            let verify = ChecksumPolicy::Verify;
            let message = icmpv6::Message::parse(US6, PEER6, message, verify).expect("NDP");
            let icmpv6::Message::NeighbourAdvertisement(reply) = message else {
                panic!("{message:?}");
            };
            assert!(reply.solicited && reply.replace && !reply.router);
            assert_eq!(reply.target_link_layer, Some(MAC));
        }
    }
}

#[test]
fn advertisements_follow_the_rules_of_rfc_4861() {
    // solicited, replace, another address: the state and the address after it.
    let cases = [
        (false, false, false, "reachable", PEER_MAC),
        (false, false, true, "stale", PEER_MAC),
        (false, true, true, "stale", OTHER_MAC),
        (true, true, true, "reachable", OTHER_MAC),
        (true, false, false, "reachable", PEER_MAC),
        (true, false, true, "stale", PEER_MAC),
    ];
    for (solicited, replace, other, state, mac) in cases {
        let mut host = Host::acquainted();
        let message = NeighbourAdvertisement {
            router: false,
            solicited,
            replace,
            target: PEER6,
            target_link_layer: Some(if other { OTHER_MAC } else { PEER_MAC }),
        };
        host.receive(&advertisement(PEER6, US6, &message));
        let found = match host.ip.neighbours.state(PEER6.into()) {
            Some(State::Reachable { .. }) => "reachable",
            Some(State::Stale) => "stale",
            _ => "another",
        };
        assert_eq!(found, state, "{message:?}");
        host.send(US6.into(), PEER6.into(), b"12345678", false)
            .expect("room");
        assert_eq!(host.sent_to(mac).len(), 1, "{message:?}");
    }
}

#[test]
fn bad_neighbour_messages_are_dropped() {
    let good = NeighbourAdvertisement {
        router: false,
        solicited: true,
        replace: true,
        target: PEER6,
        target_link_layer: Some(OTHER_MAC),
    };
    let mut from_afar = advertisement(PEER6, US6, &good);
    // The hop limit isn't in the checksum.
    from_afar[14 + 7] = 254;
    let all_nodes = "ff02::1".parse().expect("an address");
    let probe = icmpv6::Message::NeighbourSolicitation(NeighbourSolicitation {
        target: US6,
        source_link_layer: Some(PEER_MAC),
    });
    let unspecified = Ipv6Addr::UNSPECIFIED;
    let cases = [
        from_afar,
        advertisement(PEER6, all_nodes, &good),
        icmpv6_frame(unspecified, solicited_node(US6), &probe),
    ];
    for (index, frame) in cases.iter().enumerate() {
        let mut host = Host::acquainted();
        host.receive(frame);
        assert_eq!(host.count(Counter::IpDropNdp), 1, "case {index}");
        host.send(US6.into(), PEER6.into(), b"12345678", false)
            .expect("room");
        assert_eq!(host.sent_to(PEER_MAC).len(), 1, "case {index}");
    }
    let elsewhere = Ipv4Addr::new(192, 0, 2, 1);
    let bad = [
        (MacAddr::BROADCAST, PEER4),
        (PEER_MAC, Ipv4Addr::new(10, 0, 0, 255)),
        (PEER_MAC, US4),
    ];
    for (mac, sender) in bad {
        let mut host = Host::new();
        host.receive(&arp_frame(Operation::Request, mac, sender, US4, MAC));
        assert_eq!(host.count(Counter::IpDropArp), 1, "{sender} at {mac}");
        assert_eq!(host.ip.neighbours.len(), 0);
        assert!(host.wire.frames.is_empty(), "{sender} at {mac}");
    }
    let mut host = Host::new();
    host.receive(&arp_frame(Operation::Reply, PEER_MAC, elsewhere, US4, MAC));
    assert_eq!(host.count(Counter::IpDropArp), 1);
    assert_eq!(host.ip.neighbours.len(), 0);
}

/// A router may ask from an address on none of our networks, as where ours is a /32.
#[test]
fn who_asks_for_us_from_elsewhere_is_answered_and_not_remembered() {
    let mut host = Host::new();
    let elsewhere = Ipv4Addr::new(192, 0, 2, 1);
    host.receive(&arp_frame(
        Operation::Request,
        PEER_MAC,
        elsewhere,
        US4,
        MAC,
    ));
    assert_eq!(host.sent_to(PEER_MAC).len(), 1);
    assert_eq!(host.ip.neighbours.len(), 0);
    assert_eq!(host.count(Counter::IpDropArp), 0);
}

#[test]
fn conflicts_are_reported_once() {
    let mut host = Host::new();
    for _ in 0..2 {
        host.receive(&arp_frame(Operation::Reply, OTHER_MAC, US4, US4, MAC));
        let claim = NeighbourAdvertisement {
            router: false,
            solicited: false,
            replace: true,
            target: US6,
            target_link_layer: Some(OTHER_MAC),
        };
        let all_nodes = "ff02::1".parse().expect("an address");
        host.receive(&advertisement(US6, all_nodes, &claim));
    }
    assert_eq!(host.ip.take_conflict(), Some((US4.into(), OTHER_MAC)));
    assert_eq!(host.count(Counter::IpConflicts), 2);
    assert_eq!(host.ip.take_conflict(), None);
    // Others that claim it say nothing new either, for a minute.
    let claim = arp_frame(Operation::Reply, PEER_MAC, US4, US4, MAC);
    for (ms, expected) in [(59_900, None), (60_100, Some((US4.into(), PEER_MAC)))] {
        host.poll(ms);
        host.receive(&claim);
        assert_eq!(host.ip.take_conflict(), expected, "after {ms} ms");
    }
}

#[test]
fn who_asks_from_a_network_that_we_dont_know_is_answered() {
    let stranger: Ipv6Addr = "2001:db8:9::7".parse().expect("an address");
    for known in [true, false] {
        let mut host = Host::new();
        let solicitation = icmpv6::Message::NeighbourSolicitation(NeighbourSolicitation {
            target: US6,
            source_link_layer: known.then_some(OTHER_MAC),
        });
        host.receive(&icmpv6_frame(stranger, solicited_node(US6), &solicitation));
        assert_eq!(host.sent_to(OTHER_MAC).len(), usize::from(known));
        assert_eq!(host.ip.neighbours.len(), usize::from(!known), "{known}");
    }
}

#[test]
fn who_probes_for_our_address_is_told_that_it_is_ours() {
    let solicitation = icmpv6::Message::NeighbourSolicitation(NeighbourSolicitation {
        target: US6,
        source_link_layer: None,
    });
    let all_nodes: Ipv6Addr = "ff02::1".parse().expect("an address");
    let cases = [
        (
            arp_frame(
                Operation::Request,
                OTHER_MAC,
                Ipv4Addr::UNSPECIFIED,
                US4,
                MAC,
            ),
            OTHER_MAC,
        ),
        (
            icmpv6_frame(Ipv6Addr::UNSPECIFIED, solicited_node(US6), &solicitation),
            MacAddr::multicast_for_ipv6(all_nodes),
        ),
    ];
    for (index, (frame, answered)) in cases.iter().enumerate() {
        let mut host = Host::new();
        host.receive(frame);
        assert_eq!(host.sent_to(*answered).len(), 1, "case {index}");
        assert_eq!(host.ip.neighbours.len(), 0, "case {index}");
        assert_eq!(host.ip.take_conflict(), None, "case {index}");
    }
}

#[test]
fn addresses_are_announced_twice() {
    let mut host = Host::new();
    host.ip.announce(host.now);
    for ms in (0..10_000).step_by(500) {
        host.poll(ms);
    }
    let frames = core::mem::take(&mut host.wire.frames);
    // IPv4, IPv6, link-local, and the group of the latter two.
    assert_eq!(frames.len(), 8);
    assert_eq!(host.ip.next_deadline(), None);
}

/// What the router `source` says of itself.
fn router_advertisement(source: Ipv6Addr, mac: Option<MacAddr>, lifetime_secs: u16) -> Vec<u8> {
    let message = icmpv6::Message::RouterAdvertisement(RouterAdvertisement {
        hop_limit: 0,
        managed: false,
        other: false,
        lifetime_secs,
        reachable_ms: 0,
        retransmit_ms: 0,
        source_link_layer: mac,
        mtu: None,
        prefixes: icmpv6::Prefixes::default(),
    });
    icmpv6_frame(source, ALL_NODES, &message)
}

/// What a router that lets all else be says of the link.
fn parameters(hop_limit: u8, mtu: Option<u32>, times_ms: [u32; 2]) -> Vec<u8> {
    let router = "fe80::99".parse().expect("an address");
    let message = icmpv6::Message::RouterAdvertisement(RouterAdvertisement {
        hop_limit,
        managed: false,
        other: false,
        lifetime_secs: 0,
        reachable_ms: times_ms[0],
        retransmit_ms: times_ms[1],
        source_link_layer: None,
        mtu,
        prefixes: icmpv6::Prefixes::default(),
    });
    icmpv6_frame(router, ALL_NODES, &message)
}

/// A VLAN or a virtual network may take less than its hosts think (RFC 4861 section 6.3.4).
#[test]
fn a_router_tells_what_the_link_takes_of_ipv6() {
    let mut host = Host::acquainted();
    let limits = host.wire.limits();
    let cases = [
        (Some(1400), 1400),
        (None, 1400),
        // Less than any link of IPv6 takes, or more than ours.
        (Some(1279), 1400),
        (Some(9000), 1400),
        (Some(1300), 1300),
        (Some(1500), 1500),
    ];
    for (told, expected) in cases {
        let before = (host.ip.view_revision(), host.ip.view());
        host.receive(&parameters(0, told, [0; 2]));
        let replica = Replica::new(host.ip.view(), None, 9);
        for (us, them) in FAMILIES {
            let expected = if us.is_ipv6() { expected } else { MTU };
            let path = host.ip.path(None, them, &limits);
            assert_eq!(path.expect("a path").mtu, expected, "{told:?} to {them}");
            assert_eq!(replica.path(None, them, &limits), path);
        }
        let after = (host.ip.view_revision(), host.ip.view());
        assert_eq!(before.0 == after.0, before.1 == after.1, "{told:?}");
        host.wire.frames.clear();
        host.send(US6.into(), PEER6.into(), &[0; 1450], false)
            .expect("room");
        let most = host.wire.frames.iter().map(|frame| frame.len() - 14).max();
        assert!(most <= Some(expected as usize), "{told:?}: {most:?}");
    }
}

/// A connection keeps the size that it was told, unless it sees that there is a larger one.
#[test]
fn flows_that_stand_can_see_that_the_link_takes_more() {
    let mut host = Host::acquainted();
    let mut replica = Replica::new(host.ip.view(), None, 9);
    let cases = [
        (1500, false),
        (1400, false),
        (1400, false),
        (1300, false),
        (1400, true),
        // No link takes so little, ours not so much.
        (1279, false),
        (9000, false),
        (1500, true),
        (1500, false),
    ];
    for (told, raised) in cases {
        let before = (host.ip.raises(), replica.raises());
        host.receive(&parameters(0, Some(told), [0; 2]));
        replica = Replica::new(host.ip.view(), Some(&replica), 9);
        let after = (host.ip.raises(), replica.raises());
        assert_eq!(before.0 != after.0, raised, "{told}");
        assert_eq!(before.1 != after.1, raised, "{told}, elsewhere");
    }
    // A successor of `ip` has heard of no router yet. The link is none the larger for it.
    host.receive(&parameters(0, Some(1400), [0; 2]));
    let replica = Replica::new(host.ip.view(), Some(&replica), 9);
    let mut successor = Host::acquainted();
    let unknown = Replica::new(successor.ip.view(), Some(&replica), 9);
    assert_eq!(unknown.raises(), replica.raises());
    successor.receive(&parameters(0, Some(1500), [0; 2]));
    let raised = Replica::new(successor.ip.view(), Some(&unknown), 9);
    assert_ne!(raised.raises(), replica.raises());
}

/// TCP asks but once how large a connection's packets may be, and hears of it as if a router further on had complained.
#[test]
fn flows_that_stand_are_told_when_the_link_takes_less() {
    // In pieces of so many bytes of data, with 20 bytes of TCP's header; whether they pass.
    let cases = [
        (false, 1320, true),
        (false, 1321, false),
        (false, 1440, false),
        (true, 1460, true),
    ];
    for (is_v4, piece, passes) in cases {
        for whole in [3 * piece, piece] {
            let mut host = Host::acquainted();
            let (us, peer) = FAMILIES[usize::from(!is_v4)];
            let to = Outbound {
                protocol: protocol::TCP,
                ..outbound(us, peer, true)
            };
            let payload = vec![0; usize::from(whole)];
            let send = |host: &mut Host| {
                let mut packet = TxPacket::new([Bytes::from(payload.as_slice()), Bytes::EMPTY]);
                packet.segment_bytes = piece;
                let header = packet.prepend(20);
                header[..8].copy_from_slice(&[0, 80, 1, 0, 0, 0, 0, 5]);
                let sent = host.ip.send(host.now, &to, &mut packet, &mut host.wire);
                assert_eq!(sent, Ok(()));
                (
                    core::mem::take(&mut host.wire.frames).len(),
                    host.ip.take_error(),
                )
            };
            assert_eq!(send(&mut host), (1, None));
            host.receive(&parameters(0, Some(1380), [0; 2]));
            // The first time its neighbour is the last one that was sent to.
            for _ in 0..2 {
                let (frames, error) = send(&mut host);
                assert_eq!(frames, usize::from(passes), "{is_v4}, {piece}, {whole}");
                let kind = error.map(|error| error.kind);
                let told = (!passes).then_some(ErrorKind::PacketTooBig { mtu: 1380 });
                assert_eq!(kind, told, "{is_v4}, {piece}, {whole}");
                let ends = error.map(|it| (it.local.port, it.remote.port, it.sequence));
                assert_eq!(ends, (!passes).then_some((80, 256, 5)));
            }
            host.receive(&parameters(0, Some(1500), [0; 2]));
            assert_eq!(send(&mut host), (1, None));
        }
    }
}

#[test]
fn a_router_tells_the_hop_limit_but_none_too_small() {
    let mut host = Host::acquainted();
    for (told, expected) in [(255, 255), (0, 255), (1, 64), (100, 100)] {
        host.receive(&parameters(told, None, [0; 2]));
        for bytes in [8, 2000] {
            host.send(US6.into(), PEER6.into(), &vec![0; bytes], false)
                .expect("room");
            for packet in host.sent_to(PEER_MAC) {
                let (header, _) = ipv6::Header::parse(&packet).expect("IPv6");
                assert_eq!(header.hop_limit, expected, "{told}");
            }
        }
        host.send(US4.into(), PEER4.into(), b"12345678", false)
            .expect("room");
        let packet = host.sent_to(PEER_MAC).pop().expect("a packet");
        assert_eq!(packet[8], 64, "that is IPv6's alone");
    }
}

#[test]
fn a_router_tells_how_often_neighbours_are_asked_and_how_long_they_count_as_there() {
    // What it tells; how many queries leave in three seconds, and whether the peer is trusted for 100 s.
    let cases = [
        ([0, 0], 3, false),
        ([1_000_000, 2_000], 2, true),
        // It would keep us from finding anybody, or from finding out that somebody is gone.
        ([u32::MAX, u32::MAX], 3, false),
        ([1, 1], 3, false),
    ];
    for (times_ms, queries, trusted) in cases {
        let mut host = Host::new();
        host.receive(&parameters(0, None, times_ms));
        let unknown: Ipv6Addr = "2001:db8::77".parse().expect("an address");
        host.send(US6.into(), unknown.into(), b"12345678", false)
            .expect("room");
        for ms in (0..3_000).step_by(100) {
            host.poll(ms);
        }
        let asked = host.sent_to(solicited_mac(unknown)).len();
        assert_eq!(asked, queries, "{times_ms:?}");
        for (us, peer) in FAMILIES {
            host.send(us, peer, b"12345678", false).expect("room");
            host.answer(peer, PEER_MAC);
            host.now = at(103_000);
            host.send(us, peer, b"12345678", false).expect("room");
            let state = host.ip.neighbours.state(peer);
            let still = matches!(state, Some(State::Reachable { .. }));
            assert_eq!(still, trusted && peer.is_ipv6(), "{times_ms:?}");
            host.now = at(3_000);
        }
    }
}

/// The next one may be there already, and may not speak by itself for half an hour.
#[test]
fn when_the_last_router_is_lost_others_are_asked_for() {
    let group = MacAddr::multicast_for_ipv6("ff02::2".parse().expect("an address"));
    let router: Ipv6Addr = "fe80::99".parse().expect("an address");
    let none_any_more = NeighbourAdvertisement {
        router: false,
        solicited: false,
        replace: true,
        target: router,
        target_link_layer: Some(OTHER_MAC),
    };
    let resigns = router_advertisement(router, Some(OTHER_MAC), 0);
    let is_host = advertisement(router, ALL_NODES, &none_any_more);
    for ends in [None, Some(&resigns), Some(&is_host)] {
        let mut host = Host::with(|config| config.gateways.clear());
        host.poll(0);
        assert_eq!(host.sent_to(group).len(), 1);
        for heard in [900, 9] {
            host.receive(&router_advertisement(router, Some(OTHER_MAC), heard));
        }
        for ms in (1_000..9_000).step_by(500) {
            host.poll(ms);
        }
        assert_eq!(host.sent_to(group).len(), 0, "there is one");
        let mut asked = Vec::new();
        for ms in (9_000..60_000).step_by(500) {
            // That many resign doesn't make us ask more often.
            if let Some(ends) = ends.filter(|_| ms <= 20_000) {
                host.receive(&router_advertisement(router, Some(OTHER_MAC), 1));
                host.receive(ends);
            }
            host.poll(ms);
            asked.extend(host.sent_to(group).iter().map(|_| ms));
        }
        if ends.is_some() {
            assert_eq!(asked[..4], [9_000, 13_000, 17_000, 21_000]);
            asked.drain(..3);
        }
        // 4, 8 and 16 seconds later, more or less.
        assert_eq!(asked.len(), 4, "{asked:?}");
        host.receive(&router_advertisement(router, Some(OTHER_MAC), 900));
        assert!(
            host.ip
                .has_route("2001:db8:9::9".parse().expect("an address"))
        );
    }
    // Who answers for an address in another's place asks, too.
    let mut host = Host::with(|config| {
        config.gateways.clear();
        config.answers = false;
    });
    host.poll(0);
    assert_eq!(host.sent_to(group).len(), 0);
    host.ip.set_answers(true);
    host.poll(1);
    assert_eq!(host.sent_to(group).len(), 1);
}

/// RFC 7559: the only router may come up later than we, and everything on a link with us.
#[test]
fn routers_are_asked_for_until_one_answers_ever_less_often() {
    let group = MacAddr::multicast_for_ipv6("ff02::2".parse().expect("an address"));
    let router: Ipv6Addr = "fe80::99".parse().expect("an address");
    let mut all = Vec::new();
    for seed in 0..8 {
        let mut host = Host::with(|config| {
            config.gateways.clear();
            config.seed = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed + 1);
        });
        // Sleeps until there is something to do; answers when it asked, or `None` if it needn't wake any more.
        let ask = |host: &mut Host| loop {
            host.now = host.now.max(host.ip.next_deadline()?);
            host.ip.poll(host.now, &mut host.wire);
            if !host.sent_to(group).is_empty() {
                return Some(host.now);
            }
        };
        let mut last = ask(&mut host).expect("asked");
        assert_eq!(last, at(0));
        let mut before = 0;
        for round in 0..16 {
            let asked = ask(&mut host).expect("asked");
            let interval = asked.since(last).as_millis() as u64;
            let (least, most) = match before {
                0 => (3_600, 4_400),
                before => (
                    (before * 19 / 10).min(3_240_000),
                    (before * 21 / 10 + 1).min(3_960_000),
                ),
            };
            assert!((least..=most).contains(&interval), "{round}: {interval}");
            // One that isn't a default router doesn't end the search (section 2.1).
            host.receive(&router_advertisement(router, None, 0));
            (last, before) = (asked, interval);
            all.push(interval);
        }
        assert!(before >= 3_240_000);
        host.receive(&router_advertisement(router, None, 9_000));
        let asked = ask(&mut host).expect("it is lost again");
        assert_eq!(asked.since(host.now).as_millis(), 0);
        assert!(asked.since(last).as_millis() >= 9_000_000);
        // Another search begins as the first one did.
        let again = ask(&mut host).expect("asked").since(asked).as_millis();
        assert!((3_600..=4_400).contains(&again), "{again}");
    }
    all.sort_unstable();
    all.dedup();
    assert!(all.len() > 100, "hosts don't ask at the same time");
}

#[test]
fn a_router_is_learned_and_forgotten() {
    let mut host = Host::with(|config| config.gateways.clear());
    let far: IpAddr = "2001:db8:9::9".parse().expect("an address");
    let router: Ipv6Addr = "fe80::99".parse().expect("an address");
    assert!(!host.ip.has_route(far));
    host.poll(0);
    assert_eq!(host.count(Counter::IpNdpOut), 1, "a router solicitation");
    host.receive(&router_advertisement(PEER6, Some(OTHER_MAC), 10));
    assert!(!host.ip.has_route(far), "not from a link-local address");
    host.receive(&router_advertisement(router, Some(OTHER_MAC), 10));
    host.send(US6.into(), far, b"12345678", false)
        .expect("room");
    assert_eq!(host.sent_to(OTHER_MAC).len(), 1);
    host.poll(9_999);
    assert!(host.ip.has_route(far));
    host.poll(10_000);
    assert!(!host.ip.has_route(far));
    host.receive(&router_advertisement(router, Some(OTHER_MAC), 10));
    host.receive(&router_advertisement(router, Some(OTHER_MAC), 0));
    assert!(!host.ip.has_route(far));
}

#[test]
fn another_router_is_used_when_the_default_one_is_silent() {
    let far: IpAddr = "2001:db8:9::9".parse().expect("an address");
    let [first, second]: [Ipv6Addr; 2] =
        ["fe80::a", "fe80::b"].map(|text| text.parse().expect("an address"));
    let mut host = Host::with(|config| config.gateways.clear());
    host.receive(&router_advertisement(first, Some(OTHER_MAC), 9000));
    host.receive(&router_advertisement(second, Some(PEER_MAC), 9000));
    let mut second_of_time = 0;
    // The router by which a packet leaves, and the default one ten seconds later, if nobody answers.
    let mut send = |host: &mut Host| {
        host.wire.frames.clear();
        host.send(US6.into(), far, b"12345678", false)
            .expect("room");
        let by = host.wire.frames.last().map(|frame| frame[..6].to_vec());
        for _ in 0..10 {
            second_of_time += 1;
            host.poll(second_of_time * 1000);
        }
        let known = [(OTHER_MAC, first), (PEER_MAC, second)];
        let by = known.iter().find(|it| by == Some(it.0.0.to_vec()));
        (by.map(|it| it.1), host.ip.routers.router())
    };
    assert_eq!(send(&mut host), (Some(first), Some(second)));
    // Now none answers: each is asked for in turn (RFC 4861 section 6.3.6).
    assert_eq!(send(&mut host), (Some(second), Some(first)));
    assert_eq!(send(&mut host), (None, Some(second)));
    assert!(host.ip.take_error().is_some());
    assert_eq!(send(&mut host), (None, Some(first)));
    // The one that is heard is used, by whichever message.
    host.receive(&router_advertisement(second, Some(PEER_MAC), 9000));
    assert_eq!(send(&mut host), (Some(second), Some(first)));
    host.send(US6.into(), far, b"12345678", false)
        .expect("room");
    let answer = NeighbourAdvertisement {
        router: true,
        solicited: true,
        replace: true,
        target: first,
        target_link_layer: Some(OTHER_MAC),
    };
    host.receive(&advertisement(first, US6, &answer));
    host.receive(&router_advertisement(second, Some(PEER_MAC), 9000));
    assert_eq!(send(&mut host), (Some(first), Some(first)));
    // It is none any more.
    host.receive(&router_advertisement(first, Some(OTHER_MAC), 0));
    assert_eq!(host.ip.routers.router(), Some(second));
}

#[test]
fn what_waits_for_a_silent_router_leaves_by_another() {
    let far: IpAddr = "2001:db8:9::9".parse().expect("an address");
    let silent: Ipv6Addr = "fe80::a".parse().expect("an address");
    let mut host = Host::with(|config| config.gateways.clear());
    host.receive(&router_advertisement(silent, None, 9000));
    let other = "fe80::b".parse().expect("an address");
    host.receive(&router_advertisement(other, Some(OTHER_MAC), 9000));
    host.send(US6.into(), far, b"12345678", false)
        .expect("room");
    host.send(US6.into(), silent.into(), b"12345678", false)
        .expect("room");
    for second in 1..=3 {
        host.poll(second * 1000);
    }
    assert_eq!(host.sent_to(OTHER_MAC).len(), 1);
    let error = host.ip.take_error().expect("an error");
    assert_eq!(error.remote.addr, IpAddr::from(silent));
    assert!(host.ip.take_error().is_none());
}
