use super::*;
use skink_messages::ErrorKind;
use skink_wire::{ChecksumPolicy, icmpv4, udp};

const VERIFY: ChecksumPolicy = ChecksumPolicy::Verify;

fn v4_message(message: &icmpv4::Message<'_>) -> Vec<u8> {
    let mut bytes = vec![0; message.emitted_len()];
    assert_ne!(message.emit(&mut bytes), 0);
    bytes
}

/// An error from the peer about a packet that we sent to it.
fn error_frame(is_v4: bool, v4: icmpv4::Message<'_>, v6: &icmpv6::Message<'_>) -> Vec<u8> {
    match is_v4 {
        true => packet_frame(true, protocol::ICMP, &v4_message(&v4)),
        false => icmpv6_frame(PEER6, US6, v6),
    }
}

/// A packet of `bytes` bytes from us to the peer, cut after its first 8 bytes of TCP.
fn quoted(is_v4: bool, bytes: u16) -> Vec<u8> {
    let transport = [0, 80, 1, 0, 0, 0, 0, 5];
    match is_v4 {
        true => {
            let mut header = v4_header(protocol::TCP, usize::from(bytes) - 20);
            (header.source, header.destination) = (US4, PEER4);
            [header.to_bytes().as_slice(), &transport].concat()
        }
        false => {
            let mut header = v6_header(protocol::TCP, usize::from(bytes) - 40);
            (header.source, header.destination) = (US6, PEER6);
            [header.to_bytes().as_slice(), &transport].concat()
        }
    }
}

#[test]
fn pings_are_answered() {
    for data in [0, 56, 1472] {
        let data = vec![7; data];
        let (ident, seq) = (3, 4);
        let mut host = Host::acquainted();
        let request = icmpv4::Message::EchoRequest {
            ident,
            seq,
            data: &data,
        };
        host.receive(&packet_frame(true, protocol::ICMP, &v4_message(&request)));
        let sent = host.sent_to(PEER_MAC).pop().expect("a reply");
        let (header, payload) = ipv4::Header::parse(&sent, VERIFY).expect("IPv4");
        assert_eq!((header.source, header.destination), (US4, PEER4));
        let reply = icmpv4::Message::EchoReply {
            ident,
            seq,
            data: &data,
        };
        assert_eq!(icmpv4::Message::parse(payload, VERIFY), Ok(reply));

        let data = data.get(..1452).unwrap_or(&data);
        let request = icmpv6::Message::EchoRequest { ident, seq, data };
        host.receive(&icmpv6_frame(PEER6, US6, &request));
        let sent = host.sent_to(PEER_MAC).pop().expect("a reply");
        let (_, payload) = ipv6::Header::parse(&sent).expect("IPv6");
        let reply = icmpv6::Message::EchoReply { ident, seq, data };
        assert_eq!(
            icmpv6::Message::parse(US6, PEER6, payload, VERIFY),
            Ok(reply)
        );
        assert_eq!(host.count(Counter::IpEchoAnswered), 2);
    }
}

#[test]
fn a_large_ping_comes_and_goes_in_fragments() {
    let data: Vec<u8> = (0..30_000u32).map(|index| index as u8).collect();
    let (ident, seq) = (1, 2);
    let mut host = Host::acquainted();
    let request = v4_message(&icmpv4::Message::EchoRequest {
        ident,
        seq,
        data: &data,
    });
    for (index, piece) in request.chunks(1480).enumerate() {
        let mut header = v4_header(protocol::ICMP, piece.len());
        header.fragment_offset = (index * 1480) as u16;
        header.more_fragments = (index + 1) * 1480 < request.len();
        host.receive(&v4_frame(&header, piece));
    }
    let mut reply = Vec::new();
    for packet in host.sent_to(PEER_MAC) {
        let (header, payload) = ipv4::Header::parse(&packet, VERIFY).expect("IPv4");
        assert_eq!(usize::from(header.fragment_offset), reply.len());
        assert!(packet.len() <= MTU as usize);
        reply.extend(payload);
    }
    let expected = icmpv4::Message::EchoReply {
        ident,
        seq,
        data: &data,
    };
    assert_eq!(icmpv4::Message::parse(&reply, VERIFY), Ok(expected));
}

#[test]
fn a_vouched_for_checksum_is_not_verified() {
    let mut host = Host::acquainted();
    let request = icmpv6::Message::EchoRequest {
        ident: 1,
        seq: 1,
        data: b"x",
    };
    let mut frame = icmpv6_frame(PEER6, US6, &request);
    frame[14 + 40 + 2] ^= 0x55;
    host.receive(&frame);
    assert_eq!(host.count(Counter::IpDropChecksum), 1);
    host.receive_as(&frame, RxChecksum::Verified);
    assert_eq!(host.count(Counter::IpEchoAnswered), 1);
}

#[test]
fn pings_are_not_answered_for_all_or_for_others() {
    let request = v4_message(&icmpv4::Message::EchoRequest {
        ident: 1,
        seq: 1,
        data: b"x",
    });
    let mut header = v4_header(protocol::ICMP, request.len());
    header.destination = Ipv4Addr::new(10, 0, 0, 255);
    let mut to_all = v4_frame(&header, &request);
    to_all[..6].fill(0xff);
    let mut host = Host::acquainted();
    host.receive(&to_all);
    assert!(host.wire.frames.is_empty());
}

/// Of several owners of an address the NIC shows each request to one, whichever answers ARP.
#[test]
fn a_ping_is_answered_by_whoever_gets_it() {
    let request = v4_message(&icmpv4::Message::EchoRequest {
        ident: 1,
        seq: 1,
        data: b"x",
    });
    let mut host = Host::with(|config| config.answers = false);
    host.receive(&packet_frame(true, protocol::ICMP, &request));
    assert_eq!(host.count(Counter::IpEchoAnswered), 1);
}

#[test]
fn errors_reach_the_transport() {
    use ErrorKind::*;
    for is_v4 in [true, false] {
        let quoted = quoted(is_v4, 1500);
        let quoted = quoted.as_slice();
        let v4 = |code, next_hop_mtu| icmpv4::Message::DestinationUnreachable {
            code,
            next_hop_mtu,
            quoted,
        };
        let v6 = |code| icmpv6::Message::DestinationUnreachable { code, quoted };
        let time = icmpv4::Message::TimeExceeded { code: 0, quoted };
        let time6 = icmpv6::Message::TimeExceeded { code: 0, quoted };
        let protocol6 = icmpv6::Message::ParameterProblem {
            code: 1,
            pointer: 6,
            quoted,
        };
        let cases = [
            (v4(0, 0), v6(0), HostUnreachable),
            (v4(1, 0), v6(3), HostUnreachable),
            (v4(2, 0), protocol6, ProtocolUnreachable),
            (v4(3, 0), v6(4), PortUnreachable),
            (v4(13, 0), v6(1), Prohibited),
            (time, time6, TimeExceeded),
            (
                v4(4, 1400),
                icmpv6::Message::PacketTooBig { mtu: 1400, quoted },
                PacketTooBig { mtu: 1400 },
            ),
        ];
        for (v4, v6, kind) in cases {
            let mut host = Host::new();
            host.receive(&error_frame(is_v4, v4, &v6));
            let error = host.ip.take_error().expect("an error");
            assert_eq!(error.kind, kind);
            assert_eq!((error.local.port, error.remote.port), (80, 256));
            assert_eq!(error.protocol, protocol::TCP);
            assert_eq!(error.sequence, 5);
        }
        // About a packet that isn't ours.
        let mut host = Host::with(|config| config.addresses.truncate(0));
        host.receive(&error_frame(is_v4, v4(3, 0), &v6(4)));
        assert_eq!(host.ip.take_error(), None);
    }
}

#[test]
fn a_small_path_is_remembered_for_ten_minutes() {
    // What the router tells, how large the packet was, what the path takes from then on.
    let cases = [
        (true, 1400, 1500, Some(1400)),
        (true, 100, 1500, Some(552)),
        (true, 0, 1500, Some(1492)),
        (true, 1500, 1500, None),
        (true, 1400, 600, None),
        (false, 1400, 1500, Some(1400)),
        (false, 0, 1500, Some(1280)),
        (false, 1000, 1280, None),
        (false, 1500, 1500, None),
    ];
    for (is_v4, mtu, bytes, expected) in cases {
        let mut host = Host::acquainted();
        let quoted = quoted(is_v4, bytes);
        let quoted = quoted.as_slice();
        let v4 = icmpv4::Message::DestinationUnreachable {
            code: 4,
            next_hop_mtu: mtu,
            quoted,
        };
        let v6 = icmpv6::Message::PacketTooBig {
            mtu: u32::from(mtu),
            quoted,
        };
        host.receive(&error_frame(is_v4, v4, &v6));
        let peer = FAMILIES[usize::from(!is_v4)].1;
        let limits = host.wire.limits();
        let path = |host: &Host| host.ip.path(None, peer, &limits).expect("a path").mtu;
        assert_eq!(path(&host), expected.unwrap_or(MTU), "{mtu} of {bytes}");
        assert_eq!(host.ip.take_error().is_some(), expected.is_some());
        host.poll(599_999);
        assert_eq!(path(&host), expected.unwrap_or(MTU));
        host.poll(600_000);
        assert_eq!(path(&host), MTU);
    }
}

#[test]
fn an_unwanted_datagram_is_answered_with_what_it_was() {
    let datagram = [0, 7, 0, 9, 0, 8, 0, 0];
    for is_v4 in [true, false] {
        let mut host = Host::acquainted();
        let frame = packet_frame(is_v4, protocol::UDP, &datagram);
        let frame = RxFrame {
            arrived: host.now,
            bytes: &frame,
            checksum: RxChecksum::Unverified,
            segment_bytes: 0,
        };
        let (kind, packet) = host
            .ip
            .receive(host.now, &frame, &mut host.wire)
            .expect("UDP");
        let (ip, wire) = (&mut host.ip, &mut host.wire);
        ip.port_unreachable(host.now, kind, &packet, wire);
        let sent = host.sent_to(PEER_MAC).pop().expect("an error");
        let quoted = if is_v4 {
            let (_, payload) = ipv4::Header::parse(&sent, VERIFY).expect("IPv4");
            match icmpv4::Message::parse(payload, VERIFY) {
                Ok(icmpv4::Message::DestinationUnreachable {
                    code: 3, quoted, ..
                }) => ipv4::Header::parse(quoted, VERIFY).expect("quoted").1,
                other => panic!("{other:?}"),
            }
        } else {
            let (_, payload) = ipv6::Header::parse(&sent).expect("IPv6");
            match icmpv6::Message::parse(US6, PEER6, payload, VERIFY) {
                Ok(icmpv6::Message::DestinationUnreachable { code: 4, quoted }) => {
                    ipv6::Header::parse(quoted).expect("quoted").1
                }
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(quoted, datagram);
        assert!(udp::Header::parse(quoted).is_ok());
    }
}

#[test]
fn errors_are_limited_in_rate_and_never_about_errors() {
    let mut host = Host::acquainted();
    let frame = packet_frame(true, 132, b"unknown");
    for _ in 0..60 {
        host.receive(&frame);
    }
    assert_eq!(host.sent_to(PEER_MAC).len(), 50);
    assert_eq!(host.count(Counter::IpDropRateLimited), 10);
    host.poll(5);
    for _ in 0..60 {
        host.receive(&frame);
    }
    assert_eq!(host.sent_to(PEER_MAC).len(), 5, "one each millisecond");
    host.poll(1000);
    let mut to_all = v4_header(132, 4);
    to_all.destination = Ipv4Addr::BROADCAST;
    let mut to_all = v4_frame(&to_all, b"none");
    to_all[..6].fill(0xff);
    host.receive(&to_all);
    assert!(host.wire.frames.is_empty());
    let packet = skink_messages::RxPacket {
        arrived: host.now,
        source: PEER4.into(),
        destination: US4.into(),
        traffic_class: 0,
        hop_limit: 1,
        checksum: RxChecksum::Unverified,
        segment_bytes: 0,
        payload: &[3, 0, 0, 0],
    };
    let (ip, wire) = (&mut host.ip, &mut host.wire);
    ip.port_unreachable(host.now, protocol::ICMP, &packet, wire);
    assert!(host.wire.frames.is_empty());
}
