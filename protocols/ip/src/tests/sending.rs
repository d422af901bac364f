use super::*;
use skink_wire::ChecksumPolicy;

fn limits() -> LinkLimits {
    LinkLimits {
        mac: MAC,
        mtu: MTU,
        cut_bytes: 65_535,
        cuts: true,
    }
}

#[test]
fn paths_and_sources() {
    let host = Host::with(|config| {
        config
            .addresses
            .push("10.9.0.1/16".parse().expect("a network"));
        config
            .addresses
            .push("2001:db8:9::1/64".parse().expect("a network"));
    });
    let link_local = LINK_LOCAL.to_string();
    let cases = [
        (None, "10.0.0.9", Some("10.0.0.1")),
        (None, "10.9.3.3", Some("10.9.0.1")),
        (None, "192.0.2.1", Some("10.0.0.1")),
        (None, "255.255.255.255", Some("10.0.0.1")),
        (None, "10.0.0.1", Some("10.0.0.1")),
        (Some("10.9.0.1"), "10.0.0.9", Some("10.9.0.1")),
        (Some("10.0.0.77"), "10.0.0.9", None),
        (Some("10.0.0.1"), "2001:db8::9", None),
        (None, "127.0.0.1", None),
        (None, "0.0.0.0", None),
        (None, "2001:db8::9", Some("2001:db8::1")),
        (None, "2001:db8:9::9", Some("2001:db8:9::1")),
        (None, "fe80::9", Some(&link_local)),
        (None, "ff02::1", Some(&link_local)),
        (None, "::1", None),
        (None, "::", None),
    ];
    for (source, destination, expected) in cases {
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        let path = host
            .ip
            .path(source.map(address), address(destination), &limits());
        let found = path.map(|path| path.source);
        assert_eq!(found, expected.map(address), "{source:?} to {destination}");
    }
}

/// The kernel has the interface's EUI-64 as an address, and programs beside Skink use it; those on Skink have the kernel's.
#[test]
fn the_link_local_address_is_not_the_kernels_and_not_for_programs() {
    let mut host = Host::new();
    let mut header = v6_header(protocol::TCP, 20);
    header.destination = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0xff, 0xfe00, 1);
    assert!(host.receive(&v6_frame(&header, &[0; 20])).is_none());
    header.destination = LINK_LOCAL;
    assert!(host.receive(&v6_frame(&header, &[0; 20])).is_some());
    let left = |host: &Host, address: Ipv6Addr| host.ip.is_left_to_kernel(address.into());
    assert!(left(&host, LINK_LOCAL) && left(&host, "fe80::9".parse().expect("an address")));
    assert!(!left(&host, US6) && !left(&host, PEER6));
    // Another stack on the interface has another one, and one that is given counts as any.
    let other = Host::with(|config| config.addresses.retain(|cidr| cidr.addr != IpAddr::V6(US6)));
    let beside = Host::with(|config| {
        let first = config
            .addresses
            .iter_mut()
            .find(|cidr| cidr.addr == IpAddr::V6(US6));
        first.expect("there").addr = PEER6.into();
    });
    for host in [&other, &beside] {
        assert!(!host.ip.is_local(LINK_LOCAL.into()));
    }
    let given = Host::with(|config| {
        let address = "fe80::7/64".parse().expect("a network");
        config.addresses.push(address);
    });
    assert!(!given.ip.is_local(LINK_LOCAL.into()));
    assert!(!left(&given, "fe80::9".parse().expect("an address")));
}

#[test]
fn without_a_route_packets_are_dropped() {
    let mut host = Host::with(|config| config.gateways.clear());
    let far = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    assert!(!host.ip.has_route(far));
    host.send(US4.into(), far, b"12345678", false)
        .expect("taken");
    host.send(US4.into(), PEER6.into(), b"12345678", false)
        .expect("taken");
    host.send(US4.into(), PEER6.into(), &[0; 3000], false)
        .expect("taken");
    assert_eq!(host.count(Counter::IpDropNoRoute), 3);
}

#[test]
fn groups_need_no_resolution() {
    let cases: [(IpAddr, &str, [u8; 6]); 4] = [
        (US4.into(), "255.255.255.255", [0xff; 6]),
        (US4.into(), "10.0.0.255", [0xff; 6]),
        (US4.into(), "239.129.2.3", [1, 0, 0x5e, 1, 2, 3]),
        (US6.into(), "ff02::1:2", [0x33, 0x33, 0, 1, 0, 2]),
    ];
    for (source, group, mac) in cases {
        let mut host = Host::new();
        let group = group.parse().expect("an address");
        host.send(source, group, b"12345678", false).expect("room");
        assert_eq!(host.sent_to(MacAddr(mac)).len(), 1, "{group}");
    }
}

#[test]
fn a_refused_packet_is_unchanged() {
    for (us, peer) in FAMILIES {
        for payload in [100, 3000] {
            let mut host = Host::acquainted();
            host.wire.room = 0;
            let payload = vec![7; payload];
            let mut packet = TxPacket::new([Bytes::from(payload.as_slice()), Bytes::EMPTY]);
            packet.transport_bytes = 8;
            packet.prepend(8).copy_from_slice(b"headers!");
            let to = outbound(us, peer, false);
            let sent = host.ip.send(host.now, &to, &mut packet, &mut host.wire);
            assert_eq!(sent, Err(Full));
            assert_eq!(packet.headers(), b"headers!");
            assert_eq!(packet.network_bytes, 0);
            host.wire.room = 100;
            let sent = host.ip.send(host.now, &to, &mut packet, &mut host.wire);
            assert_eq!(sent, Ok(()));
            assert!(!host.sent_to(PEER_MAC).is_empty());
        }
    }
}

#[test]
fn what_waited_leaves_before_anything_else_when_the_link_was_full() {
    let (us, peer) = FAMILIES[0];
    let mut host = Host::new();
    for number in 0..3u8 {
        host.send(us, peer, &[number; 9], false).expect("room");
    }
    host.wire.room = 1;
    host.answer(peer, PEER_MAC);
    assert_eq!(host.send(us, peer, &[3; 9], false), Err(Full));
    host.wire.room = 10;
    host.send(us, peer, &[3; 9], false).expect("room");
    let sent = host.sent_to(PEER_MAC);
    let last: Vec<_> = sent.iter().filter_map(|packet| packet.last()).collect();
    assert_eq!(last, [&0, &1, &2, &3]);
}

#[test]
fn large_packets_to_be_cut_have_the_length_of_all() {
    for (us, peer) in FAMILIES {
        let mut host = Host::acquainted();
        let payload = vec![1; 60_000];
        let mut packet = TxPacket::new([Bytes::from(payload.as_slice()), Bytes::EMPTY]);
        packet.transport_bytes = 20;
        packet.segment_bytes = 1400;
        packet.prepend(20);
        let mut to = outbound(us, peer, true);
        to.protocol = protocol::TCP;
        let sent = host.ip.send(host.now, &to, &mut packet, &mut host.wire);
        assert_eq!(sent, Ok(()));
        assert_eq!(host.wire.segment_bytes, [1400]);
        let sent = host.sent_to(PEER_MAC).pop().expect("a frame");
        let payload = match us {
            IpAddr::V4(_) => ipv4::Header::parse(&sent, ChecksumPolicy::Verify).map(|it| it.1),
            IpAddr::V6(_) => ipv6::Header::parse(&sent).map(|it| it.1),
        };
        assert_eq!(payload.expect("a header").len(), 60_020);
    }
}

#[test]
fn packets_to_ourselves_come_back_whole() {
    for (us, _) in FAMILIES {
        let mut host = Host::new();
        let payload = vec![5; 40_000];
        let mut packet = TxPacket::new([Bytes::from(payload.as_slice()), Bytes::EMPTY]);
        packet.segment_bytes = 1000;
        packet.checksum_offset = Some(6);
        packet.prepend(8).copy_from_slice(b"headers!");
        let to = outbound(us, us, false);
        let sent = host.ip.send(host.now, &to, &mut packet, &mut host.wire);
        assert_eq!(sent, Ok(()));
        let whole = host.ip.take_whole().expect("the packet");
        assert_eq!(whole.protocol(), protocol::UDP);
        let packet = whole.as_packet();
        assert_eq!((packet.source, packet.destination), (us, us));
        assert_eq!(packet.checksum, RxChecksum::Verified);
        assert_eq!(packet.segment_bytes, 1000);
        assert_eq!(packet.payload, [b"headers!".as_slice(), &payload].concat());
        host.ip.recycle(whole);
        // Bounded in packets and in bytes.
        let mut taken = 0;
        while host.send(us, us, &[0; 100], false).is_ok() {
            taken += 1;
        }
        assert_eq!(taken, 256);
        while host.ip.take_whole().is_some() {}
        assert!(host.send(us, us, &[0; 100], false).is_ok());
        assert!(host.wire.frames.is_empty());
    }
}
