use core::net::{Ipv4Addr, Ipv6Addr};
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::fuzz_tests::config;

/// RFC 1071 section 1, word for word.
fn oracle(bytes: &[u8]) -> u16 {
    let mut sum: u64 = 0;
    for pair in bytes.chunks(2) {
        let low = pair.get(1).copied().unwrap_or(0);
        sum += u64::from(pair[0]) << 8 | u64::from(low);
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn sum_of(bytes: &[u8]) -> Sum {
    let mut sum = Sum::new();
    sum.add_bytes(bytes);
    sum
}

#[test]
fn the_example_of_rfc_1071() {
    let sum = sum_of(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
    assert_eq!(sum.fold(), 0xddf2);
    assert_eq!(sum.finish(), 0x220d);
}

#[test]
fn edges() {
    assert_eq!(Sum::new().fold(), 0);
    assert_eq!(sum_of(&[]).fold(), 0);
    assert_eq!(sum_of(&[0xab]).fold(), 0xab00);
    for len in 0..130 {
        assert_eq!(
            sum_of(&[0xff; 130][..len]).fold(),
            oracle(&[0xff; 130][..len]),
            "{len}"
        );
    }
    // Every end-around carry that there can be.
    assert_eq!(sum_of(&[0xff; 65536]).fold(), 0xffff);
}

#[test]
fn pseudo_headers() {
    let v4 = Sum::pseudo_header(
        Ipv4Addr::new(192, 0, 2, 1).into(),
        Ipv4Addr::new(198, 51, 100, 7).into(),
        6,
        0x1234,
    );
    assert_eq!(
        v4.fold(),
        oracle(&[192, 0, 2, 1, 198, 51, 100, 7, 0, 6, 0x12, 0x34])
    );
    let (source, destination): (Ipv6Addr, Ipv6Addr) = (
        "2001:db8::1".parse().unwrap(),
        "fe80::abcd".parse().unwrap(),
    );
    let v6 = Sum::pseudo_header(source.into(), destination.into(), 58, 0x1_2345);
    let mut bytes = Vec::from(source.octets());
    bytes.extend(destination.octets());
    bytes.extend([0, 1, 0x23, 0x45, 0, 0, 0, 58]);
    assert_eq!(v6.fold(), oracle(&bytes));
}

#[test]
fn a_segment_is_valid_only_as_it_was_sent() {
    let source = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    let destination = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
    let mut segment = *b"\0\0 an odd number of bytes";
    assert_eq!(segment.len() % 2, 1);
    let mut sum = Sum::pseudo_header(source, destination, 6, segment.len() as u32);
    sum.add_bytes(&segment);
    segment[..2].copy_from_slice(&sum.finish().to_be_bytes());
    assert!(transport_checksum_is_valid(
        source,
        destination,
        6,
        &segment
    ));
    assert!(!transport_checksum_is_valid(
        source,
        destination,
        17,
        &segment
    ));
    assert!(!transport_checksum_is_valid(source, source, 6, &segment));
    for at in 0..segment.len() {
        let mut changed = segment;
        changed[at] ^= 0x10;
        assert!(
            !transport_checksum_is_valid(source, destination, 6, &changed),
            "{at}"
        );
    }
}

/// What is added to a sum, and its bytes.
#[derive(Clone, Debug)]
enum Piece {
    Bytes(Vec<u8>),
    U16(u16),
    U32(u32),
    Apart(Vec<Vec<u8>>),
}

fn piece() -> impl Strategy<Value = Piece> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..200);
    prop_oneof![
        bytes().prop_map(Piece::Bytes),
        any::<u16>().prop_map(Piece::U16),
        any::<u32>().prop_map(Piece::U32),
        prop::collection::vec(bytes(), 0..3).prop_map(Piece::Apart),
    ]
}

proptest! {
    #![proptest_config(config(512))]

    #[test]
    fn equals_the_oracle_at_any_length_and_alignment(
        bytes in prop::collection::vec(any::<u8>(), 0..3000),
        skip in 0usize..16,
    ) {
        let bytes = bytes.get(skip..).unwrap_or_default();
        prop_assert_eq!(sum_of(bytes).fold(), oracle(bytes));
        prop_assert_eq!(checksum(&[bytes]), !oracle(bytes));
    }

    #[test]
    fn equals_the_oracle_in_any_pieces(pieces in prop::collection::vec(piece(), 0..8)) {
        let mut sum = Sum::new();
        let mut flat = Vec::new();
        for piece in &pieces {
            match piece {
                Piece::Bytes(bytes) => {
                    sum.add_bytes(bytes);
                    flat.extend(bytes);
                }
                Piece::U16(value) => {
                    sum.add_u16(*value);
                    flat.extend(value.to_be_bytes());
                }
                Piece::U32(value) => {
                    sum.add_u32(*value);
                    flat.extend(value.to_be_bytes());
                }
                Piece::Apart(parts) => {
                    let mut apart = Sum::new();
                    for part in parts {
                        apart.add_bytes(part);
                        flat.extend(part);
                    }
                    sum = sum.combine(apart);
                }
            }
        }
        prop_assert_eq!(sum.fold(), oracle(&flat));
    }
}
