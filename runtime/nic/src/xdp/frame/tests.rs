use super::*;
use std::net::{Ipv4Addr, Ipv6Addr};

const SOURCE4: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
const LOCAL4: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
const SOURCE6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
const LOCAL6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);

/// A frame with an odd number of payload bytes, its checksum left out or complete; padded as on an
/// Ethernet.
fn frame(v6: bool, protocol: u8, complete: bool) -> Vec<u8> {
    let field = field_of(protocol).unwrap_or(16);
    let mut transport: Vec<u8> = (0..41).collect();
    let (source, local): (IpAddr, IpAddr) = if v6 {
        (SOURCE6.into(), LOCAL6.into())
    } else {
        (SOURCE4.into(), LOCAL4.into())
    };
    transport[field..field + 2].fill(0);
    let mut sum = Sum::pseudo_header(source, local, protocol, transport.len() as u32);
    let mut value = sum.fold();
    if complete {
        sum.add_bytes(&transport);
        value = sum.finish();
    }
    transport[field..field + 2].copy_from_slice(&value.to_be_bytes());
    let mut frame = vec![0; 12];
    if v6 {
        frame.extend([
            0x86,
            0xdd,
            0x60,
            0,
            0,
            0,
            0,
            transport.len() as u8,
            protocol,
            64,
        ]);
        frame.extend(SOURCE6.octets());
        frame.extend(LOCAL6.octets());
    } else {
        frame.extend([0x08, 0x00, 0x45, 0, 0, 20 + transport.len() as u8]);
        frame.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
        frame.extend(SOURCE4.octets());
        frame.extend(LOCAL4.octets());
    }
    frame.extend(transport);
    frame.extend([0; 3]);
    frame
}

#[test]
fn a_checksum_that_was_left_out_is_told_from_a_complete_one() {
    for v6 in [false, true] {
        for protocol in [6, 17] {
            let what = format!("protocol {protocol}, IPv6 {v6}");
            assert!(checksum_was_left_out(&frame(v6, protocol, false)), "{what}");
            assert!(!checksum_was_left_out(&frame(v6, protocol, true)), "{what}");
        }
        assert!(
            !checksum_was_left_out(&frame(v6, 132, false)),
            "SCTP has none"
        );
    }
}

#[test]
fn anything_unusual_is_verified_as_ever() {
    let good = frame(false, 6, false);
    for len in 0..good.len() - 3 {
        assert!(!checksum_was_left_out(&good[..len]), "cut to {len}");
    }
    // At, value: what is changed.
    for (at, value, what) in [
        (12, 0x81, "EtherType"),
        (14, 0x46, "longer header"),
        (17, 19, "length within the header"),
        (17, 200, "length beyond the frame"),
        (20, 0x20, "a fragment"),
        (21, 7, "a later fragment"),
        (30, 9, "another address"),
    ] {
        let mut bad = good.clone();
        bad[at] = value;
        assert!(!checksum_was_left_out(&bad), "{what}");
    }
}
