use super::*;
use crate::Incarnation;
use std::net::Ipv6Addr;

const POINTER: RichPointer = RichPointer {
    pool: 3,
    offset: 4096,
    length: 60,
    generation: 9,
};
const FROM: Incarnation = 5;

fn packet(address: IpAddr) -> PacketUp {
    PacketUp {
        id: u64::MAX - 1,
        pointer: POINTER,
        arrived: Instant::from_nanos(77),
        source: address,
        destination: address,
        protocol: 17,
        traffic_class: 3,
        hop_limit: 64,
        checksum: RxChecksum::Verified,
        segment_bytes: 1460,
        fate: Fate::Reject,
        first: 3,
    }
}

#[test]
fn what_is_encoded_is_decoded() {
    let frame = FrameUp {
        pointer: POINTER,
        arrived: Instant::from_nanos(u64::MAX),
        segment_bytes: 1448,
        checksum: RxChecksum::Unverified,
        again: true,
        first: 7,
    };
    let wire = FromLink::Frame(frame).encode(FROM);
    assert_eq!(wire.incarnation(), FROM);
    let decoded = FromLink::decode(&wire);
    assert!(matches!(decoded, Some(FromLink::Frame(other)) if other == frame));

    let mut waiting = (1..=7).collect();
    let ids = Few::take(&mut waiting, 0);
    let Some(FromLink::Sent(ids)) = FromLink::decode(&FromLink::Sent(ids).encode(FROM)) else {
        panic!("ids");
    };
    assert_eq!((ids.as_slice(), waiting.len()), (&[1, 2, 3, 4, 5][..], 2));

    for address in ["192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1"] {
        let packet = packet(address.parse().expect("an address"));
        let wire = ToTransport::Packet(packet).encode(FROM);
        let decoded = ToTransport::decode(&wire);
        assert!(matches!(decoded, Some(ToTransport::Packet(other)) if other == packet));
    }
}

#[test]
fn every_error_is_decoded() {
    let kinds = [
        ErrorKind::HostUnreachable,
        ErrorKind::PortUnreachable,
        ErrorKind::ProtocolUnreachable,
        ErrorKind::Prohibited,
        ErrorKind::PacketTooBig { mtu: 1280 },
        ErrorKind::TimeExceeded,
    ];
    for kind in kinds {
        let error = NetworkError {
            kind,
            protocol: 6,
            local: Endpoint::new(Ipv6Addr::LOCALHOST.into(), 80),
            remote: Endpoint::new(Ipv6Addr::UNSPECIFIED.into(), 81),
            sequence: 7,
        };
        let decoded = ToTransport::decode(&ToTransport::Error(error).encode(FROM));
        assert!(matches!(decoded, Some(ToTransport::Error(other)) if other == error));
    }
}

#[test]
fn link_may_not_take_less_than_a_header_or_more_than_a_packet() {
    let cases = [
        (1500, 65_535, true),
        (68, 68, true),
        (67, 65_535, false),
        (0, 0, false),
        (1500, 1499, false),
        (1500, 65_536, false),
        (u32::MAX, u32::MAX, false),
    ];
    for (mtu, cut_bytes, good) in cases {
        let limits = LinkLimits {
            mac: MacAddr([2; 6]),
            mtu,
            cut_bytes,
            cuts: false,
        };
        let decoded = FromLink::decode(&FromLink::Limits(limits).encode(FROM));
        assert_eq!(decoded.is_some(), good, "{mtu}, {cut_bytes}");
    }
}

#[test]
fn what_means_nothing_is_refused() {
    for kind in [0, 4, u32::MAX] {
        assert!(FromLink::decode(&SmallMessage::new(kind, FROM, &[0u8; 48])).is_none());
        assert!(ToTransport::decode(&MiddleMessage::new(kind, FROM, &[0u8; 112])).is_none());
    }
    // A checksum that nobody knows, more ids than there are places, no family.
    assert!(FromLink::decode(&SmallMessage::new(FRAME, FROM, &[0u8; 48])).is_none());
    assert!(FromLink::decode(&SmallMessage::new(SENT, FROM, &[6u8; 48])).is_none());
    assert!(ToTransport::decode(&MiddleMessage::new(PACKET, FROM, &[0u8; 112])).is_none());
    assert!(ToTransport::decode(&MiddleMessage::new(ERROR, FROM, &[1u8; 112])).is_none());
    assert!(ToTransport::decode(&MiddleMessage::new(LEFT, FROM, &[0xffu8; 112])).is_none());
}
