use super::*;
use crate::ChecksumPolicy::{Trust, Verify};

/// A header whose checksum, b861, is worked out in many a textbook, with 95 bytes of payload.
fn golden() -> [u8; 120] {
    let mut packet = [0xcc; 120];
    packet[..LEN].copy_from_slice(&[
        0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00,
        0x01, 0xc0, 0xa8, 0x00, 0xc7,
    ]);
    packet
}

const HEADER: Header = Header {
    dscp_ecn: 0,
    total_len: 115,
    identification: 0,
    dont_fragment: true,
    more_fragments: false,
    fragment_offset: 0,
    ttl: 64,
    protocol: 17,
    source: Ipv4Addr::new(192, 168, 0, 1),
    destination: Ipv4Addr::new(192, 168, 0, 199),
    header_len: 20,
};

#[test]
fn golden_bytes() {
    let packet = golden();
    let (header, payload) = Header::parse(&packet, Verify).unwrap();
    assert_eq!(header, HEADER);
    assert_eq!(
        payload,
        &packet[20..115],
        "without the five bytes of padding"
    );
    let mut out = [0; LEN];
    assert_eq!(header.emit(&mut out), LEN);
    assert_eq!(out, packet[..LEN]);
    assert_eq!(header.emit(&mut out[..19]), 0);
}

#[test]
fn fragments_round_trip() {
    for (dont_fragment, more_fragments, fragment_offset) in [
        (false, true, 0),
        (false, true, 1480),
        (false, false, 65528),
        (true, false, 0),
    ] {
        let header = Header {
            dscp_ecn: 0xb9,
            identification: 0xbeef,
            dont_fragment,
            more_fragments,
            fragment_offset,
            total_len: 20,
            ..HEADER
        };
        assert_eq!(header.is_fragment(), !dont_fragment);
        assert_eq!(
            Header::parse(&header.to_bytes(), Verify),
            Ok((header, &[][..]))
        );
    }
    // Offset 185 units, more fragments.
    let header = Header {
        dont_fragment: false,
        more_fragments: true,
        fragment_offset: 1480,
        ..HEADER
    };
    assert_eq!(header.to_bytes()[6..8], [0x20, 0xb9]);
}

#[test]
fn options_are_skipped() {
    let mut packet = [0; 28];
    packet[..LEN].copy_from_slice(
        &Header {
            total_len: 26,
            ..HEADER
        }
        .to_bytes(),
    );
    packet[0] = 0x46;
    packet[20..26].copy_from_slice(&[0x94, 4, 0, 0, b'h', b'i']);
    packet[10..12].fill(0);
    let mut sum = Sum::new();
    sum.add_bytes(&packet[..24]);
    packet[10..12].copy_from_slice(&sum.finish().to_be_bytes());
    let (header, payload) = Header::parse(&packet, Verify).unwrap();
    assert_eq!(header.header_len, 24);
    assert_eq!(payload, b"hi");
    // The checksum covers the options.
    packet[22] ^= 1;
    assert_eq!(Header::parse(&packet, Verify), Err(Malformed::BadChecksum));
}

#[test]
fn refuses() {
    let packet = golden();
    assert_eq!(
        Header::parse(&packet[..19], Verify),
        Err(Malformed::TooShort)
    );
    assert_eq!(
        Header::parse(&packet[..114], Verify),
        Err(Malformed::BadTotalLength)
    );
    // offset, value, reason where the checksum is trusted
    for (at, value, reason) in [
        (0, 0x65, Malformed::BadVersion),
        (0, 0x44, Malformed::BadHeaderLength),
        (3, 19, Malformed::BadTotalLength),
        (3, 121, Malformed::BadTotalLength),
    ] {
        let mut packet = packet;
        packet[at] = value;
        assert_eq!(Header::parse(&packet, Trust), Err(reason), "{at} {value}");
    }
    let mut short = [0; 20];
    short.copy_from_slice(&packet[..20]);
    short[0] = 0x46;
    assert_eq!(
        Header::parse(&short, Trust),
        Err(Malformed::BadHeaderLength)
    );
    let mut changed = packet;
    changed[8] = 63;
    assert_eq!(Header::parse(&changed, Verify), Err(Malformed::BadChecksum));
    assert!(Header::parse(&changed, Trust).is_ok());
}

#[test]
fn quoted_packets_are_cut_short() {
    let mut packet = golden();
    packet[8] = 1;
    let (header, payload) = Header::parse_quoted(&packet[..28]).unwrap();
    assert_eq!((header.ttl, header.total_len), (1, 115));
    assert_eq!(payload, &packet[20..28]);
    let (_, payload) = Header::parse_quoted(&packet).unwrap();
    assert_eq!(payload, &packet[20..115]);
    packet[3] = 19;
    assert_eq!(
        Header::parse_quoted(&packet),
        Err(Malformed::BadTotalLength)
    );
}
