use super::{header_for, parse};
use crate::test_support::{MAC_A, MAC_B, datagram, stream};
use skink_memory::Bytes;
use skink_messages::{RxChecksum, TxPacket};

/// A header of native integers.
fn header(flags: u8, gso_type: u8, numbers: [u16; 4]) -> [u8; 10] {
    let mut bytes = [flags, gso_type, 0, 0, 0, 0, 0, 0, 0, 0];
    for (at, number) in numbers.into_iter().enumerate() {
        bytes[2 + at * 2..4 + at * 2].copy_from_slice(&number.to_ne_bytes());
    }
    bytes
}

#[test]
fn outbound() {
    let payload = [0; 3000];
    let macs = (MAC_A, MAC_B);
    let plain = TxPacket::new([Bytes::from(&payload[..]), Bytes::EMPTY]);
    // Header length, segment, checksum start and offset.
    for (name, packet, expected) in [
        ("no checksum", plain, header(0, 0, [0; 4])),
        (
            "TCP over IPv4",
            stream([&payload, &[]], 1448, false),
            header(1, 1, [54, 1448, 34, 16]),
        ),
        (
            "TCP over IPv6",
            stream([&payload, &[]], 1428, true),
            header(1, 4, [74, 1428, 54, 16]),
        ),
        (
            "just one segment",
            stream([&payload[..1448], &[]], 1448, false),
            header(1, 0, [0, 0, 34, 16]),
        ),
        (
            "UDP to cut",
            datagram(&payload, (1, 2), macs, 1000),
            header(1, 5, [42, 1000, 34, 6]),
        ),
        (
            "UDP",
            datagram(&payload, (1, 2), macs, 0),
            header(1, 0, [0, 0, 34, 6]),
        ),
    ] {
        assert_eq!(header_for(&packet), expected, "{name}");
    }
}

#[test]
fn inbound() {
    use RxChecksum::{Unverified, Verified};
    for (given, expected) in [
        (header(0, 0, [0; 4]), (Unverified, 0)),
        (header(1, 0, [0, 0, 34, 16]), (Verified, 0)),
        (header(2, 0, [0; 4]), (Verified, 0)),
        (header(1, 1, [54, 1448, 34, 16]), (Verified, 1448)),
        (header(1, 0x84, [74, 1428, 54, 16]), (Verified, 1428)),
        // A size without a type says nothing.
        (header(0, 0, [0, 1448, 0, 0]), (Unverified, 0)),
    ] {
        assert_eq!(parse(&given), expected, "{given:?}");
    }
}
