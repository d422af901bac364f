use super::*;

#[test]
fn whole_packets_come_up() {
    for is_v4 in [true, false] {
        for kind in [protocol::TCP, protocol::UDP] {
            let mut host = Host::new();
            let mut frame = packet_frame(is_v4, kind, b"segment");
            frame.extend([0; 20]);
            let taken = host.receive(&frame);
            assert_eq!(taken, Some((kind, b"segment".to_vec())));
            assert_eq!(host.count(Counter::IpIn), 1);
        }
    }
}

#[test]
fn bad_packets_are_counted() {
    let v4 = |change: &dyn Fn(&mut ipv4::Header)| {
        let mut header = v4_header(protocol::UDP, 8);
        change(&mut header);
        v4_frame(&header, &[0; 8])
    };
    let v6 = |change: &dyn Fn(&mut ipv6::Header)| {
        let mut header = v6_header(protocol::UDP, 8);
        change(&mut header);
        v6_frame(&header, &[0; 8])
    };
    let flipped = |at: usize, mut frame: Vec<u8>| {
        frame[at] ^= 1;
        frame
    };
    let address = |text: &str| text.parse().expect("an address");
    let address6 = |text: &str| text.parse().expect("an address");
    let to_all = |mut frame: Vec<u8>| {
        frame[..6].fill(0xff);
        frame
    };
    use Counter::*;
    let cases: Vec<(&str, Vec<u8>, Counter)> = vec![
        ("short", vec![0; 13], IpDropMalformed),
        (
            "vlan",
            ethernet_frame(MAC, 0x8100, &[0; 46]),
            IpDropEtherType,
        ),
        ("v4 checksum", flipped(14 + 8, v4(&|_| {})), IpDropChecksum),
        (
            "v4 version",
            flipped(14, v6(&|_| {}))[..34].to_vec(),
            IpDropMalformed,
        ),
        (
            "v4 length",
            v4(&|header| header.total_len = 29),
            IpDropMalformed,
        ),
        (
            "v6 length",
            v6(&|header| header.payload_len = 9),
            IpDropMalformed,
        ),
        (
            "v4 other",
            v4(&|header| header.destination = PEER4),
            IpDropNotOurs,
        ),
        (
            "v4 group",
            v4(&|h| h.destination = address("224.0.0.9")),
            IpDropNotOurs,
        ),
        (
            "v6 other",
            v6(&|header| header.destination = PEER6),
            IpDropNotOurs,
        ),
        (
            "v6 group",
            v6(&|h| h.destination = address6("ff02::9")),
            IpDropNotOurs,
        ),
        ("v4 in broadcast", to_all(v4(&|_| {})), IpDropNotOurs),
        (
            "v4 from us",
            v4(&|header| header.source = US4),
            IpDropBadSource,
        ),
        (
            "v4 from 127",
            v4(&|h| h.source = address("127.0.0.1")),
            IpDropBadSource,
        ),
        (
            "v4 from 0",
            v4(&|h| h.source = address("0.0.0.0")),
            IpDropBadSource,
        ),
        (
            "v4 from a group",
            v4(&|h| h.source = address("224.0.0.1")),
            IpDropBadSource,
        ),
        (
            "v4 from all",
            v4(&|h| h.source = address("255.255.255.255")),
            IpDropBadSource,
        ),
        (
            "v4 from all here",
            v4(&|h| h.source = address("10.0.0.255")),
            IpDropBadSource,
        ),
        (
            "v6 from us",
            v6(&|header| header.source = US6),
            IpDropBadSource,
        ),
        (
            "v6 from ::1",
            v6(&|h| h.source = address6("::1")),
            IpDropBadSource,
        ),
        (
            "v6 from ::",
            v6(&|h| h.source = address6("::")),
            IpDropBadSource,
        ),
        (
            "v6 from a group",
            v6(&|h| h.source = address6("ff02::1")),
            IpDropBadSource,
        ),
        (
            "v4 protocol",
            v4(&|header| header.protocol = 132),
            IpDropProtocol,
        ),
        (
            "v6 protocol",
            v6(&|header| header.next_header = 132),
            IpDropProtocol,
        ),
        (
            "v6 in ICMP",
            v4(&|header| header.protocol = 58),
            IpDropProtocol,
        ),
        (
            "v6 extension",
            packet_frame(false, 0, &[17, 0, 0x80, 4, 0, 0, 0, 0]),
            IpDropMartian,
        ),
        (
            "ICMP",
            packet_frame(true, 1, &[8, 0, 0, 0, 0, 0, 0, 0]),
            IpDropChecksum,
        ),
        (
            "ICMPv6",
            packet_frame(false, 58, &[128, 0, 0, 0, 0, 0, 0, 0]),
            IpDropChecksum,
        ),
        ("short ICMP", packet_frame(true, 1, &[8, 0, 0]), IpDropIcmp),
        (
            "ARP",
            ethernet_frame(MAC, ethernet::ARP, &[0; 28]),
            IpDropArp,
        ),
    ];
    for (name, frame, counter) in cases {
        let mut host = Host::new();
        assert_eq!(host.receive(&frame), None, "{name}");
        assert_eq!(host.count(counter), 1, "{name}");
        let drops = Counter::ALL
            .iter()
            .filter(|it| it.label().contains(".drop."));
        let all: u64 = drops.map(|it| host.count(*it)).sum();
        assert_eq!(all, 1, "{name} is dropped once");
    }
}

#[test]
fn groups_that_every_host_is_in() {
    for group in ["255.255.255.255", "10.0.0.255", "224.0.0.1"] {
        let mut host = Host::new();
        let mut header = v4_header(protocol::UDP, 8);
        header.destination = group.parse().expect("an address");
        let mut frame = v4_frame(&header, &[0; 8]);
        frame[..6].fill(0xff);
        assert!(host.receive(&frame).is_some(), "{group}");
        assert!(host.ip.is_local(header.destination.into()));
    }
    let node = solicited_node(LINK_LOCAL).to_string();
    for group in ["ff02::1", &node] {
        let mut host = Host::new();
        let mut header = v6_header(protocol::UDP, 8);
        header.destination = group.parse().expect("an address");
        assert!(
            host.receive(&v6_frame(&header, &[0; 8])).is_some(),
            "{group}"
        );
    }
}
