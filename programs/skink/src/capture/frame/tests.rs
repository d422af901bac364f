use super::*;
use skink_wire::MacAddr;

/// An Ethernet frame around `payload`.
pub fn ethernet(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    let header = ethernet::Header {
        destination: MacAddr([2, 0, 0, 0, 0, 1]),
        source: MacAddr([2, 0, 0, 0, 0, 2]),
        ethertype: ether_type,
    };
    [&header.to_bytes(), payload].concat()
}

/// An IPv4 or IPv6 packet around `payload`, whose length it states as `stated`.
pub fn ip(source: &str, destination: &str, protocol: u8, payload: &[u8], stated: usize) -> Vec<u8> {
    let source: IpAddr = source.parse().expect("an address");
    match (source, destination.parse().expect("an address")) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let header = ipv4::Header {
                dscp_ecn: 0,
                total_len: (20 + stated) as u16,
                identification: 1,
                dont_fragment: true,
                more_fragments: false,
                fragment_offset: 0,
                ttl: 64,
                protocol,
                source,
                destination,
                header_len: 20,
            };
            ethernet(ethernet::IPV4, &[&header.to_bytes(), payload].concat())
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let header = ipv6::Header {
                traffic_class: 0,
                flow_label: 0,
                payload_len: stated as u16,
                next_header: protocol,
                hop_limit: 64,
                source,
                destination,
            };
            ethernet(ethernet::IPV6, &[&header.to_bytes(), payload].concat())
        }
        _ => panic!("two families"),
    }
}

/// A TCP header, PSH and ACK set.
pub fn tcp(source: u16, destination: u16) -> Vec<u8> {
    let mut header = vec![0; 20];
    header[..2].copy_from_slice(&source.to_be_bytes());
    header[2..4].copy_from_slice(&destination.to_be_bytes());
    header[7] = 9;
    header[11] = 8;
    header[12] = 0x50;
    header[13] = 0x18;
    header[15] = 100;
    header
}

#[test]
fn frames_are_summed_up_in_a_line() {
    let mut fragment = ip("10.0.0.1", "10.0.0.2", 17, &[0; 8], 1000);
    fragment[20] = 0x20;
    fragment[21] = 1;
    let cases = [
        (
            ip("10.0.0.1", "10.0.0.2", 6, &tcp(80, 5000), 60_020),
            "TCP 10.0.0.1:80 > 10.0.0.2:5000 [P.] seq 9 ack 8 win 100 length 60000",
        ),
        (
            ip("fd77::1", "fd77::2", 17, &[0, 53, 1, 0, 0, 12, 0, 0], 12),
            "UDP [fd77::1]:53 > [fd77::2]:256 length 4",
        ),
        (
            ip("10.0.0.1", "10.0.0.2", 1, &[8, 0, 0, 0], 64),
            "ICMP 10.0.0.1 > 10.0.0.2 echo request (type 8, code 0), length 64",
        ),
        (
            ip("fe80::1", "ff02::1", 58, &[136, 0], 2),
            "ICMPv6 fe80::1 > ff02::1 neighbour advertisement (type 136, code 0), length 2",
        ),
        (
            fragment,
            "UDP 10.0.0.1 > 10.0.0.2 fragment 1 at 8, 1000 bytes",
        ),
        (
            ip("10.0.0.1", "10.0.0.2", 6, &tcp(80, 5000)[..10], 20),
            "TCP 10.0.0.1:80 > 10.0.0.2:5000 malformed or cut",
        ),
        (
            ip("10.0.0.1", "10.0.0.2", 89, &[], 0),
            "protocol 89 10.0.0.1 > 10.0.0.2",
        ),
        (
            ethernet(0x88cc, &[]),
            "EtherType 0x88cc from 02:00:00:00:00:02",
        ),
        (ethernet(ethernet::IPV4, &[0x45]), "malformed"),
        (vec![1, 2, 3], "too short for an Ethernet header"),
    ];
    for (bytes, expected) in cases {
        assert_eq!(Frame::read(&bytes).summary(), expected);
    }
    let request = arp::Packet {
        operation: arp::Operation::Request,
        sender_mac: MacAddr::default(),
        sender_ip: "10.0.0.1".parse().expect("an address"),
        target_mac: MacAddr::default(),
        target_ip: "10.0.0.2".parse().expect("an address"),
    };
    let mut bytes = [0; arp::LEN];
    assert_eq!(request.emit(&mut bytes), arp::LEN);
    let summary = Frame::read(&ethernet(ethernet::ARP, &bytes)).summary();
    assert_eq!(summary, "ARP who has 10.0.0.2? tell 10.0.0.1");
}

#[test]
fn no_bytes_whatever_make_it_fail() {
    let good = [
        ip("10.0.0.1", "10.0.0.2", 6, &tcp(1, 2), 20),
        ip("fd77::1", "fd77::2", 0, &[6, 0, 1, 4, 0, 0, 0, 0, 1, 2], 10),
        ip(
            "fd77::1",
            "fd77::2",
            44,
            &[6, 0, 0, 1, 0, 0, 0, 1, 1, 2],
            10,
        ),
    ];
    for frame in good {
        for at in 0..frame.len() {
            Frame::read(&frame[..at]).summary();
            for value in [0, 1, 0x7f, 0xff] {
                let mut spoilt = frame.clone();
                spoilt[at] = value;
                Frame::read(&spoilt).summary();
            }
        }
    }
}

#[test]
fn the_json_form_has_no_empty_fields() {
    let frame = Frame::read(&ip("10.0.0.1", "10.0.0.2", 6, &tcp(80, 5000), 20));
    let text = serde_json::to_string(&frame).expect("JSON");
    let expected = concat!(
        r#"{"ether_type":2048,"source":"10.0.0.1","destination":"10.0.0.2","protocol":6,"#,
        r#""source_port":80,"destination_port":5000,"payload_bytes":0}"#,
    );
    assert_eq!(text, expected);
    let text = serde_json::to_string(&Frame::read(&[])).expect("JSON");
    assert_eq!(text, r#"{"ether_type":0,"payload_bytes":0}"#);
}
