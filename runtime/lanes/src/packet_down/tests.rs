use super::*;
use crate::Transport;
use skink_memory::RingSpan;
use std::collections::VecDeque;

fn packet(header_bytes: usize) -> TxPacket<'static> {
    let mut packet = TxPacket::new([Bytes::EMPTY; 2]);
    packet.prepend(header_bytes).fill(0xa5);
    packet.transport_bytes = 20;
    packet.checksum_offset = Some(16);
    packet.segment_bytes = 1448;
    packet
}

fn payloads() -> [Payload; 4] {
    let span = RingSpan {
        slot: 1,
        generation: 2,
        position: u64::MAX - 5,
        bytes: 4,
    };
    let pointer = RichPointer {
        pool: 5,
        offset: 6,
        length: 7,
        generation: 8,
    };
    [
        Payload::Empty,
        Payload::Ring(Transport::Tcp, 9, span),
        Payload::Ring(Transport::Udp, 9, span),
        Payload::Pool(pointer),
    ]
}

#[test]
fn frames_are_decoded_as_they_were() {
    for payload in payloads() {
        for header_bytes in [20, 54, 128] {
            let original = packet(header_bytes);
            let frame = FrameDown {
                id: 3,
                awaited: header_bytes == 54,
                pressing: header_bytes == 20,
                payload,
                headers: Headers::of(&original).expect("short enough"),
            };
            let decoded = ToLink::decode(&ToLink::Frame(frame).encode(1));
            let Some(ToLink::Frame(decoded)) = decoded else {
                panic!("a frame");
            };
            assert_eq!(decoded, frame);
            let again = decoded.headers.packet([Bytes::EMPTY; 2]);
            assert_eq!(again.headers(), original.headers());
            assert_eq!(again.checksum_offset, original.checksum_offset);
            assert_eq!(again.transport_bytes, original.transport_bytes);
            assert_eq!(again.segment_bytes, original.segment_bytes);
        }
    }
}

#[test]
fn packets_are_decoded_as_they_were() {
    for (hop_limit, dont_fragment, refuses) in [
        (None, true, false),
        (Some(0), false, false),
        (Some(255), false, true),
    ] {
        for payload in payloads() {
            let to = Outbound {
                source: "192.0.2.1".parse().expect("an address"),
                destination: "192.0.2.2".parse().expect("an address"),
                protocol: 6,
                hop_limit,
                traffic_class: 2,
                dont_fragment,
            };
            let down = PacketDown {
                id: 4,
                awaited: refuses,
                pressing: !refuses,
                payload,
                to,
                refuses,
                headers: Headers::of(&packet(32)).expect("short enough"),
            };
            let wire = FromTransport::Packet(down).encode(1);
            let Some(FromTransport::Packet(decoded)) = FromTransport::decode(&wire) else {
                panic!("a packet");
            };
            assert_eq!((decoded.payload, decoded.headers), (payload, down.headers));
            assert_eq!((decoded.awaited, decoded.pressing), (refuses, !refuses));
            assert_eq!(FromTransport::is_pressing(&wire), !refuses);
            assert_eq!(
                (
                    decoded.to.source,
                    decoded.to.destination,
                    decoded.to.hop_limit
                ),
                (to.source, to.destination, hop_limit)
            );
            assert_eq!(
                (decoded.to.dont_fragment, decoded.refuses, decoded.id),
                (dont_fragment, refuses, 4)
            );
        }
    }
}

/// What is to be given back may be overwritten once the one that lent it has died; what `ip` was lent, once that has died, too.
#[test]
fn what_is_lent_is_for_one_neighbour() {
    for (id, is_lent) in [(0, false), (3, true)] {
        let headers = Headers::of(&packet(54)).expect("short enough");
        let frame = FrameDown {
            id,
            awaited: false,
            pressing: false,
            payload: Payload::Empty,
            headers,
        };
        let address = "192.0.2.1".parse().expect("an address");
        let down = PacketDown {
            id,
            awaited: false,
            pressing: false,
            payload: Payload::Empty,
            to: Outbound {
                source: address,
                destination: address,
                protocol: 17,
                hop_limit: None,
                traffic_class: 0,
                dont_fragment: true,
            },
            refuses: false,
            headers: Headers::of(&packet(32)).expect("short enough"),
        };
        let wire = ToLink::Frame(frame).encode_for(7, 9);
        assert!(ToLink::is_for(&wire, 10));
        let decoded = ToLink::decode(&wire).expect("a frame");
        assert_eq!(decoded.is_between(), is_lent);
        let wire = FromTransport::Packet(down).encode_for(7, 9);
        assert!(FromTransport::is_for(&wire, 9));
        assert_eq!(FromTransport::is_for(&wire, 10), !is_lent);
        let decoded = FromTransport::decode(&wire).expect("a packet");
        assert_eq!(decoded.is_between(), is_lent);
    }
}

#[test]
fn headers_that_are_too_long_or_contradict_themselves_are_refused() {
    assert!(Headers::<60>::of(&packet(61)).is_none());
    let body = |header_bytes, network_bytes, transport_bytes, checksum_offset| HeadersBody {
        segment_bytes: 0,
        header_bytes,
        transport_bytes,
        network_bytes,
        checksum_offset,
        _reserved: [0; 2],
    };
    let cases = [
        (body(54, 20, 20, 16), true),
        (body(54, 20, 20, 18), true),
        (body(54, 20, 20, 19), false),
        (body(54, 20, 20, NO_CHECKSUM), true),
        (body(54, 40, 20, 16), false),
        (body(128, 0, 20, 16), true),
        (body(129, 0, 20, 16), false),
        (body(255, 255, 255, 0), false),
        (body(0, 0, 0, 0), false),
    ];
    for (index, (body, good)) in cases.iter().enumerate() {
        let decoded = Headers::<128>::decode(body, [0; 128]);
        assert_eq!(decoded.is_some(), *good, "case {index}");
    }
}

#[test]
fn answers_are_counted_and_say_which_were_unreachable() {
    let mut waiting: VecDeque<u64> = (10..40).collect();
    let ids = Few::take(&mut waiting, 0);
    let wire = FromTransport::Done(ids, 0b101).encode(1);
    let Some(FromTransport::Done(ids, unreachable)) = FromTransport::decode(&wire) else {
        panic!("answers");
    };
    assert_eq!(
        (ids.as_slice().len(), ids.as_slice()[19], unreachable),
        (20, 29, 5)
    );
    for kind in [0, 3, u32::MAX] {
        assert!(FromTransport::decode(&LargeMessage::new(kind, 1, &[0u8; 176])).is_none());
        assert!(ToLink::decode(&LargeMessage::new(kind, 1, &[0u8; 176])).is_none());
    }
    for kind in [PACKET, RETURNED] {
        assert!(FromTransport::decode(&LargeMessage::new(kind, 1, &[0xffu8; 176])).is_none());
        assert!(ToLink::decode(&LargeMessage::new(kind, 1, &[0xffu8; 176])).is_none());
    }
}
