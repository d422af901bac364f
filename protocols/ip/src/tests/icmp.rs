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
            (
                v4(13, 0),
                v6(1),
                if is_v4 { HostUnreachable } else { Prohibited },
            ),
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

/// A router says that a packet of `bytes` bytes from us to the peer doesn't fit its link of `mtu` bytes.
fn too_big_frame(is_v4: bool, protocol: u8, bytes: u16, mtu: u16) -> Vec<u8> {
    let mut quoted = quoted(is_v4, bytes);
    quoted[if is_v4 { 9 } else { 6 }] = protocol;
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
    error_frame(is_v4, v4, &v6)
}

impl Host {
    /// Sends the segment that `quoted` is about, from `sequence` on, in pieces of `data` bytes.
    fn send_segment(&mut self, is_v4: bool, sequence: u32, data: usize) {
        let (us, peer) = FAMILIES[usize::from(!is_v4)];
        let to = Outbound {
            protocol: protocol::TCP,
            ..outbound(us, peer, true)
        };
        let payload = vec![0; 4_000];
        let mut packet = TxPacket::new([Bytes::from(payload.as_slice()), Bytes::EMPTY]);
        packet.segment_bytes = data as u16;
        let header = packet.prepend(20);
        header[..4].copy_from_slice(&[0, 80, 1, 0]);
        header[4..8].copy_from_slice(&sequence.to_be_bytes());
        let sent = self.ip.send(self.now, &to, &mut packet, &mut self.wire);
        assert_eq!(sent, Ok(()));
    }

    /// Sends a datagram of 1,400 bytes from `port`.
    fn send_datagram(&mut self, us: IpAddr, port: u8, to: IpAddr) {
        let to = outbound(us, to, false);
        let mut packet = TxPacket::new([Bytes::from([0; 1400].as_slice()), Bytes::EMPTY]);
        packet.prepend(8)[..4].copy_from_slice(&[0, port, 0, 9]);
        let sent = self.ip.send(self.now, &to, &mut packet, &mut self.wire);
        assert_eq!(sent, Ok(()));
    }

    fn path_mtu(&self, is_v4: bool) -> u32 {
        let peer = FAMILIES[usize::from(!is_v4)].1;
        let limits = self.wire.limits();
        self.ip.path(None, peer, &limits).expect("a path").mtu
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
        host.receive(&too_big_frame(is_v4, protocol::TCP, bytes, mtu));
        let error = host.ip.take_error().map(|error| error.kind);
        let told = expected.map(|mtu| ErrorKind::PacketTooBig { mtu });
        assert_eq!(error, told, "{mtu} of {bytes}");
        // TCP sends again what was lost.
        host.send_segment(is_v4, 5, 500);
        assert_eq!(host.path_mtu(is_v4), expected.unwrap_or(MTU));
        host.poll(599_999);
        assert_eq!(host.path_mtu(is_v4), expected.unwrap_or(MTU));
        host.poll(600_000);
        assert_eq!(host.path_mtu(is_v4), MTU);
    }
}

/// RFC 5927 section 7: whoever knows two addresses, and guesses ports, can say that a packet was too big.
#[test]
fn of_a_small_path_only_what_tcp_believes_is_remembered() {
    for is_v4 in [true, false] {
        let headers = if is_v4 { 40 } else { 60 };
        let forged = too_big_frame(is_v4, protocol::TCP, 1500, 1300);
        // Where TCP's next segment begins, how large its pieces are, when it leaves, what the path takes then.
        let cases = [
            (5, 1300 - headers, 0, 1300),
            (u32::MAX, 1300 - headers, 1999, 1300),
            // Not what was quoted, no smaller, or too late to be an answer.
            (6, 1300 - headers, 0, MTU),
            (5, 1301 - headers, 0, MTU),
            (5, 1300 - headers, 2000, MTU),
        ];
        for (sequence, data, ms, expected) in cases {
            let mut host = Host::acquainted();
            host.receive(&forged);
            assert_eq!(host.path_mtu(is_v4), MTU, "nobody believes it yet");
            assert!(host.ip.take_error().is_some(), "TCP is told");
            host.poll(ms);
            host.send_segment(is_v4, sequence, data);
            assert_eq!(host.path_mtu(is_v4), expected, "{sequence}, {data}, {ms}");
        }
        let mut host = Host::acquainted();
        for _ in 0..1000 {
            host.receive(&forged);
            while host.ip.take_error().is_some() {}
        }
        // All it costs is a longer way for what is sent within two seconds, or until TCP has acted.
        let mut believed = Host::acquainted();
        for _ in 0..3 {
            believed.receive(&forged);
        }
        believed.send_segment(is_v4, 5, 500);
        host.poll(2_000);
        host.send_segment(is_v4, 6, 500);
        for host in [host, believed] {
            assert!(host.ip.claims.is_empty() && host.ip.last.is_some());
        }
    }
}

#[test]
fn a_datagram_is_too_big_only_where_no_router_may_cut_it() {
    for (is_v4, expected) in [(true, MTU), (false, 1300)] {
        let mut host = Host::acquainted();
        host.receive(&too_big_frame(is_v4, protocol::UDP, 1500, 1300));
        let (us, peer) = FAMILIES[usize::from(!is_v4)];
        host.send_datagram(us, 80, peer);
        assert_eq!(host.path_mtu(is_v4), expected);
    }
}

/// RFC 8201 section 4: what is said of a packet that we can't have sent is ignored.
#[test]
fn of_a_small_path_only_what_a_sender_of_datagrams_shows_is_remembered() {
    let too_big = |mtu| too_big_frame(false, protocol::UDP, 1500, mtu);
    let (us, peer) = FAMILIES[1];
    let other: IpAddr = "2001:db8::5".parse().expect("an address");
    // From which port and to whom a datagram leaves, and when; what the peer's path takes then.
    let cases = [
        (80, peer, 0, 1300),
        (80, peer, 9_999, 1300),
        (80, peer, 10_000, MTU),
        (81, peer, 0, MTU),
        (80, other, 0, MTU),
    ];
    for (port, to, ms, expected) in cases {
        let mut host = Host::acquainted();
        // Routers say it of each, and a second one further on.
        for mtu in [1400, 1400, 1300, 1300, 1400] {
            host.receive(&too_big(mtu));
        }
        assert_eq!(host.path_mtu(false), MTU, "nobody shows it yet");
        host.poll(ms);
        host.send(us, peer, b"to be seen apart from the rest", false)
            .expect("room");
        host.send_segment(false, 5, 500);
        host.wire.frames.clear();
        host.send_datagram(us, port, to);
        host.send_datagram(us, port, to);
        assert_eq!(host.path_mtu(false), expected, "{port}, {to}, {ms}");
        let most = host.sent_to(PEER_MAC).iter().map(Vec::len).max();
        if to == peer {
            // Already the one that showed it, and none of another port's.
            assert!(most.is_some_and(|most| (most <= 1300) == (expected == 1300)));
        }
    }
    // Claims about datagrams that nobody sends don't fill the place of others.
    let mut host = Host::acquainted();
    host.receive(&too_big_frame(false, protocol::TCP, 1500, 1300));
    for more in 0..100 {
        host.receive(&too_big(1300 + more));
    }
    host.send_segment(false, 5, 500);
    assert_eq!(host.path_mtu(false), 1300);
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
