use super::*;
use skink_messages::ErrorKind;
use skink_wire::{ChecksumPolicy, icmpv4, udp};

/// Another host with the peer's addresses.
fn peer() -> Host {
    Host::with(|config| {
        config.mac = PEER_MAC;
        for address in &mut config.addresses {
            address.addr = match address.addr {
                IpAddr::V4(_) => PEER4.into(),
                IpAddr::V6(_) => PEER6.into(),
            };
        }
    })
}

#[test]
fn fragments_of_any_order_make_the_packet_again() {
    for (us, them) in FAMILIES {
        let mut seed = 0x1234_5678;
        let most = if us.is_ipv4() { 65_507 } else { 65_527 };
        for bytes in [1473, 1481, 2952, 20_000, most] {
            let mut host = Host::acquainted();
            let payload: Vec<u8> = (0..bytes).map(|_| random(&mut seed) as u8).collect();
            let header = udp::Header::new(1, 2, payload.len()).expect("a datagram");
            let (front, back) = payload.split_at(payload.len() / 3);
            let mut packet = TxPacket::new([Bytes::from(front), Bytes::from(back)]);
            packet.checksum_offset = Some(6);
            let head = packet.prepend(udp::LEN);
            let _ = header.emit(head);
            udp::set_partial_checksum(us, them, head, u32::from(header.length));
            let to = outbound(us, them, false);
            let sent = host.ip.send(host.now, &to, &mut packet, &mut host.wire);
            assert_eq!(sent, Ok(()));
            let mut frames = core::mem::take(&mut host.wire.frames);
            assert!(frames.iter().all(|frame| frame.len() <= 14 + MTU as usize));
            let count = frames.len() as u64;
            assert_eq!(host.count(Counter::IpFragmentsOut), count);
            for index in (1..frames.len()).rev() {
                frames.swap(index, random(&mut seed) as usize % (index + 1));
            }
            // Repetitions do no harm.
            frames.insert(0, frames[0].clone());
            let mut peer = peer();
            for frame in &frames {
                assert!(peer.ip.take_whole().is_none());
                assert!(peer.receive(frame).is_none());
            }
            let whole = peer.ip.take_whole().expect("the packet");
            let packet = whole.as_packet();
            assert_eq!((packet.source, packet.destination), (us, them));
            assert!(udp::checksum_is_valid(us, them, packet.payload));
            assert_eq!(packet.payload[8..], payload);
            assert_eq!(peer.count(Counter::IpReassembled), 1);
        }
    }
}

#[test]
fn fragments_wait_for_room_and_for_neighbours() {
    for (us, them) in FAMILIES {
        let mut host = Host::acquainted();
        host.wire.room = 2;
        host.send(us, them, &[9; 9000], false).expect("room");
        assert_eq!(host.wire.frames.len(), 2);
        assert_eq!(host.send(us, them, &[9; 10], false), Err(Full));
        host.wire.room = 100;
        host.poll(1);
        assert_eq!(host.wire.frames.len(), 7);

        let mut host = Host::new();
        host.send(us, them, &[9; 9000], false).expect("room");
        host.answer(them, PEER_MAC);
        assert_eq!(host.sent_to(PEER_MAC).len(), 7);
    }
}

#[test]
fn what_must_not_be_fragmented_comes_back_as_an_error() {
    for (us, them) in FAMILIES {
        let mut host = Host::acquainted();
        host.send(us, them, &[1; 1500], true).expect("taken");
        assert!(host.wire.frames.is_empty());
        assert_eq!(host.count(Counter::IpDropTooBig), 1);
        // The ports lie in the payload here, where `ip` doesn't look.
        assert_eq!(host.ip.take_error(), None);
        let payload = vec![0; 1500];
        let mut packet = TxPacket::new([Bytes::from(payload.as_slice()), Bytes::EMPTY]);
        packet.prepend(8).copy_from_slice(&[0, 1, 0, 2, 0, 0, 0, 3]);
        let to = outbound(us, them, true);
        assert_eq!(
            host.ip.send(host.now, &to, &mut packet, &mut host.wire),
            Ok(())
        );
        let error = host.ip.take_error().expect("an error");
        assert_eq!(error.kind, ErrorKind::PacketTooBig { mtu: MTU });
        assert_eq!(
            (error.local.port, error.remote.port, error.sequence),
            (1, 2, 3)
        );
    }
}

fn fragment(offset: u16, more: bool, data: &[u8]) -> Vec<u8> {
    let mut header = v4_header(protocol::UDP, data.len());
    header.fragment_offset = offset;
    header.more_fragments = more;
    v4_frame(&header, data)
}

/// `frame`, an IPv6 packet, in pieces whose payloads begin at these places.
fn fragments_v6(frame: &[u8], starts: &[usize]) -> Vec<Vec<u8>> {
    let (header, payload) = ipv6::Header::parse(&frame[14..]).expect("a packet");
    let ends = starts.iter().skip(1).copied().chain([payload.len()]);
    let pieces = starts.iter().zip(ends).map(|(start, end)| {
        let part = ipv6::FragmentHeader {
            next_header: header.next_header,
            offset: *start as u16,
            more: end < payload.len(),
            identification: 7,
        };
        let mut bytes = vec![0; ipv6::FRAGMENT_LEN];
        let _ = part.emit(&mut bytes);
        bytes.extend_from_slice(&payload[*start..end]);
        let header = ipv6::Header {
            next_header: protocol::FRAGMENT,
            payload_len: bytes.len() as u16,
            ..header
        };
        v6_frame(&header, &bytes)
    });
    pieces.collect()
}

/// RFC 6980 section 5: a switch that keeps forged messages away sees whole ones only.
#[test]
fn neighbours_that_come_in_fragments_are_not_believed() {
    let forged = NeighbourAdvertisement {
        router: false,
        solicited: true,
        replace: true,
        target: PEER6,
        target_link_layer: Some(OTHER_MAC),
    };
    let echo = icmpv6::Message::EchoRequest {
        ident: 1,
        seq: 2,
        data: b"12345678",
    };
    for starts in [&[0][..], &[0, 8]] {
        let mut host = Host::acquainted();
        for frame in fragments_v6(&advertisement(PEER6, US6, &forged), starts) {
            host.receive(&frame);
        }
        assert_eq!(host.count(Counter::IpDropNdp), 1, "{starts:?}");
        // Others of that protocol are answered.
        for frame in fragments_v6(&icmpv6_frame(PEER6, US6, &echo), starts) {
            host.receive(&frame);
        }
        assert_eq!(host.sent_to(PEER_MAC).len(), 1, "{starts:?}");
        assert_eq!(host.sent_to(OTHER_MAC).len(), 0, "{starts:?}");
    }
}

#[test]
fn overlapping_fragments_spoil_the_packet() {
    let mut host = Host::new();
    host.receive(&fragment(0, true, &[0; 16]));
    host.receive(&fragment(8, true, &[1; 16]));
    // What still comes of it is dropped too, though it would be complete without the first.
    host.receive(&fragment(0, true, &[0; 24]));
    host.receive(&fragment(24, false, &[0; 8]));
    assert!(host.ip.take_whole().is_none());
    assert_eq!(host.count(Counter::IpDropFragment), 3);
    host.poll(30_000);
    assert!(host.wire.frames.is_empty(), "no error about a spoilt one");
    assert_eq!(host.ip.next_deadline(), None);
}

#[test]
fn unfinished_packets_are_given_up_and_reported() {
    for (with_first, errors) in [(true, 1), (false, 0)] {
        let mut host = Host::acquainted();
        let offset = if with_first { 0 } else { 8 };
        host.receive(&fragment(offset, true, &[0; 16]));
        host.poll(29_999);
        assert_eq!(host.count(Counter::IpDropReassemblyTimeout), 0);
        host.poll(30_000);
        assert_eq!(host.count(Counter::IpDropReassemblyTimeout), 1);
        let sent = host.sent_to(PEER_MAC);
        assert_eq!(sent.len(), errors);
        for packet in sent {
            let verify = ChecksumPolicy::Verify;
            let (_, payload) = ipv4::Header::parse(&packet, verify).expect("IPv4");
            let message = icmpv4::Message::parse(payload, verify);
            assert!(matches!(
                message,
                Ok(icmpv4::Message::TimeExceeded { code: 1, .. })
            ));
        }
    }
}

#[test]
fn a_path_with_a_small_mtu_gets_small_fragments() {
    let mut host = Host::acquainted();
    let far = PEER6.into();
    let shrunk = host.ip.path_mtus.shrink(host.now, far, 1300);
    assert_eq!(shrunk, 1300);
    host.send(US6.into(), far, &[0; 1400], false).expect("room");
    let sizes: Vec<_> = host.sent_to(PEER_MAC).iter().map(Vec::len).collect();
    assert_eq!(sizes, [48 + 1248, 48 + 152]);
}
