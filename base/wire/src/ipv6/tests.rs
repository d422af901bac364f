use super::*;
use crate::{icmpv6::parameter_problem, protocol};

const HEADER: Header = Header {
    traffic_class: 0xb9,
    flow_label: 0x12345,
    payload_len: 2,
    next_header: protocol::UDP,
    hop_limit: 64,
    source: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
    destination: Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2),
};

const PACKET: [u8; 44] = [
    0x6b, 0x91, 0x23, 0x45, 0, 2, 17, 64, 0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    1, 0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, b'h', b'i', 0xee, 0xee,
];

#[test]
fn golden() {
    assert_eq!(Header::parse(&PACKET), Ok((HEADER, &b"hi"[..])));
    let mut out = [0; LEN];
    assert_eq!(HEADER.emit(&mut out), LEN);
    assert_eq!(out, PACKET[..LEN]);
    assert_eq!(HEADER.emit(&mut out[..39]), 0);
    let wide = Header {
        flow_label: 0xfff1_2345,
        ..HEADER
    };
    assert_eq!(
        wide.to_bytes(),
        PACKET[..LEN],
        "a label of more than 20 bits spills nowhere"
    );
}

#[test]
fn refuses() {
    assert_eq!(Header::parse(&PACKET[..39]), Err(Malformed::TooShort));
    assert_eq!(Header::parse(&PACKET[..41]), Err(Malformed::BadTotalLength));
    assert_eq!(Header::parse_quoted(&PACKET[..41]), Ok((HEADER, &b"h"[..])));
    assert_eq!(Header::parse_quoted(&PACKET), Ok((HEADER, &b"hi"[..])));
    let mut packet = PACKET;
    packet[0] = 0x4b;
    assert_eq!(Header::parse(&packet), Err(Malformed::BadVersion));
}

#[test]
fn fragment_header_golden() {
    let bytes = [17, 0, 0x05, 0xa9, 0xde, 0xad, 0xbe, 0xef, 0xcc];
    let header = FragmentHeader {
        next_header: 17,
        offset: 1448,
        more: true,
        identification: 0xdead_beef,
    };
    assert_eq!(FragmentHeader::parse(&bytes), Ok((header, &[0xcc][..])));
    let mut out = [0; 8];
    assert_eq!(header.emit(&mut out), FRAGMENT_LEN);
    assert_eq!(out, bytes[..8]);
    assert_eq!(FragmentHeader::parse(&bytes[..7]), Err(Malformed::TooShort));
}

const TCP: u8 = protocol::TCP;
const HOP: u8 = protocol::HOP_BY_HOP;
const OPTIONS: u8 = protocol::DESTINATION_OPTIONS;
const ROUTE: u8 = protocol::ROUTING;
const FRAGMENT: u8 = protocol::FRAGMENT;

fn upper(protocol: u8, offset: usize, next_header_at: u32) -> Result<Upper, ExtensionFault> {
    Ok(Upper {
        protocol,
        offset,
        next_header_at,
        fragment: None,
    })
}

fn problem<T>(code: u8, pointer: u32, even_if_multicast: bool) -> Result<T, ExtensionFault> {
    Err(ExtensionFault::ParameterProblem {
        code,
        pointer,
        even_if_multicast,
    })
}

fn malformed<T>(reason: Malformed) -> Result<T, ExtensionFault> {
    Err(ExtensionFault::Malformed(reason))
}

#[test]
fn chains() {
    type Row = (u8, &'static [u8], Result<Upper, ExtensionFault>);
    let table: [Row; 13] = [
        (TCP, &[], upper(TCP, 0, 6)),
        (99, &[1, 2, 3], upper(99, 0, 6)),
        (protocol::NO_NEXT_HEADER, &[], upper(59, 0, 6)),
        (HOP, &[TCP, 0, 1, 4, 0, 0, 0, 0, 9], upper(TCP, 8, 40)),
        (HOP, &[TCP, 0, 5, 2, 0, 0, 0, 0], upper(TCP, 8, 40)),
        (
            HOP,
            &[
                OPTIONS, 0, 1, 4, 0, 0, 0, 0, TCP, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            ],
            upper(TCP, 24, 48),
        ),
        (ROUTE, &[TCP, 0, 4, 0, 0, 0, 0, 0], upper(TCP, 8, 40)),
        // Segments left.
        (
            ROUTE,
            &[TCP, 0, 0, 1, 0, 0, 0, 0],
            problem(parameter_problem::ERRONEOUS_FIELD, 42, false),
        ),
        // Hop-by-hop options in second place.
        (
            OPTIONS,
            &[HOP, 0, 1, 4, 0, 0, 0, 0, TCP, 0, 1, 4, 0, 0, 0, 0],
            problem(parameter_problem::UNKNOWN_NEXT_HEADER, 40, false),
        ),
        // Beyond the packet.
        (
            OPTIONS,
            &[TCP, 1, 1, 4, 0, 0, 0, 0],
            malformed(Malformed::BadExtension),
        ),
        (OPTIONS, &[TCP], malformed(Malformed::BadExtension)),
        (
            OPTIONS,
            &[OPTIONS, 0, 1, 4, 0, 0, 0, 0],
            malformed(Malformed::BadExtension),
        ),
        (
            FRAGMENT,
            &[TCP, 0, 0, 0, 0, 0, 0],
            malformed(Malformed::BadExtension),
        ),
    ];
    for (next_header, payload, expected) in table {
        assert_eq!(
            walk(next_header, payload),
            expected,
            "{next_header} {payload:?}"
        );
    }
}

#[test]
fn options() {
    // The six bytes of options of one header, and what comes of them.
    let table = [
        ([0, 0, 0, 0, 0, 0], upper(TCP, 8, 40)),
        ([1, 0, 0, 1, 1, 0], upper(TCP, 8, 40)),
        ([0x1e, 4, 9, 9, 9, 9], upper(TCP, 8, 40)),
        ([0, 0, 0x5e, 2, 0, 0], Err(ExtensionFault::Discard)),
        (
            [0, 0, 0x9e, 2, 0, 0],
            problem(parameter_problem::UNKNOWN_OPTION, 44, true),
        ),
        (
            [0, 0xde, 3, 0, 0, 0],
            problem(parameter_problem::UNKNOWN_OPTION, 43, false),
        ),
        ([1, 5, 0, 0, 0, 0], malformed(Malformed::BadOption)),
        ([0, 0, 0, 0, 0, 1], malformed(Malformed::BadOption)),
    ];
    for (bytes, expected) in table {
        let [a, b, c, d, e, f] = bytes;
        for next_header in [HOP, OPTIONS] {
            assert_eq!(
                walk(next_header, &[TCP, 0, a, b, c, d, e, f]),
                expected,
                "{bytes:?}"
            );
        }
    }
}

#[test]
fn fragments() {
    let first = [OPTIONS, 0, 0, 1, 0, 0, 0, 7, TCP, 0, 1, 4, 0, 0, 0, 0];
    let found = walk(FRAGMENT, &first).unwrap();
    assert_eq!(
        (found.protocol, found.offset, found.next_header_at),
        (OPTIONS, 8, 40)
    );
    assert_eq!(found.fragment.map(|fragment| fragment.more), Some(true));
    // What the rest holds is looked at after reassembly.
    assert_eq!(walk_reassembled(OPTIONS, &first[8..]), upper(TCP, 8, 40));
    // A later fragment's payload is not a header.
    let later = [OPTIONS, 0, 0, 8, 0, 0, 0, 7, 0xff];
    let found = walk(FRAGMENT, &later).unwrap();
    assert_eq!((found.protocol, found.offset), (OPTIONS, 8));
    assert_eq!(found.fragment.map(|fragment| fragment.offset), Some(8));
    // An atomic fragment is walked through.
    let atomic = [OPTIONS, 0, 0, 0, 0, 0, 0, 7, TCP, 0, 1, 4, 0, 0, 0, 0];
    let found = walk(FRAGMENT, &atomic).unwrap();
    assert_eq!(
        (found.protocol, found.offset, found.next_header_at),
        (TCP, 16, 48)
    );
    assert!(found.fragment.is_some_and(|fragment| fragment.is_atomic()));
    // Fragments of fragments.
    let nested = [FRAGMENT, 0, 0, 0, 0, 0, 0, 7, TCP, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(walk(FRAGMENT, &nested), malformed(Malformed::BadExtension));
    assert_eq!(
        walk_reassembled(FRAGMENT, &nested[8..]),
        malformed(Malformed::BadExtension)
    );
    assert_eq!(
        walk_reassembled(HOP, &[TCP, 0, 1, 4, 0, 0, 0, 0]),
        problem(parameter_problem::UNKNOWN_NEXT_HEADER, 6, false)
    );
}

#[test]
fn the_number_of_headers_is_bounded() {
    for count in 0..=MAXIMUM_EXTENSIONS + 1 {
        let mut payload = [OPTIONS, 0, 1, 4, 0, 0, 0, 0].repeat(count);
        if let Some(last) = payload.len().checked_sub(8) {
            payload[last] = TCP;
        }
        let next_header = if count == 0 { TCP } else { OPTIONS };
        let found = walk(next_header, &payload).map(|upper| upper.offset);
        let expected = if count <= MAXIMUM_EXTENSIONS {
            Ok(count * 8)
        } else {
            malformed(Malformed::BadExtension)
        };
        assert_eq!(found, expected, "{count}");
    }
}
