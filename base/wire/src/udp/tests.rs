use core::net::{Ipv4Addr, Ipv6Addr};

use super::*;

const SOURCE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const DESTINATION: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

/// "hi" from port 53 to 1024. The sum, by hand: c000+0201+c000+0202+0011+000a (pseudo-header) = 1841e,
/// +0035+0400+000a (header) = 1885d, +6869 = 1f0c6, folded f0c7, complemented 0f38.
const DATAGRAM: [u8; 12] = [0, 53, 4, 0, 0, 10, 0x0f, 0x38, b'h', b'i', 0xee, 0xee];

#[test]
fn golden() {
    let (header, payload) = Header::parse(&DATAGRAM).unwrap();
    let mut expected = Header::new(53, 1024, 2).unwrap();
    expected.checksum = 0x0f38;
    assert_eq!(header, expected);
    assert_eq!(payload, b"hi");
    assert!(checksum_is_valid(SOURCE, DESTINATION, &DATAGRAM));
    assert!(!checksum_is_valid(SOURCE, SOURCE, &DATAGRAM));

    let mut out = [0; 10];
    assert_eq!(Header::new(53, 1024, 2).unwrap().emit(&mut out), LEN);
    fill_checksum(SOURCE, DESTINATION, &mut out[..8], &[b"h", b"i"]);
    assert_eq!(out[..8], DATAGRAM[..8]);
    out[8..].copy_from_slice(b"hi");
    out[6..8].fill(0xff);
    set_checksum(SOURCE, DESTINATION, &mut out);
    assert_eq!(out, DATAGRAM[..10]);
    set_partial_checksum(SOURCE, DESTINATION, &mut out, 10);
    assert_eq!(
        out[6..8],
        [0x84, 0x1f],
        "c000+0201+c000+0202+0011+000a, folded"
    );
}

#[test]
fn refuses() {
    assert_eq!(Header::parse(&DATAGRAM[..7]), Err(Malformed::TooShort));
    assert_eq!(
        Header::parse(&DATAGRAM[..9]),
        Err(Malformed::BadTotalLength)
    );
    for length in [0, 7, 13] {
        let mut datagram = DATAGRAM;
        datagram[5] = length;
        assert_eq!(
            Header::parse(&datagram),
            Err(Malformed::BadTotalLength),
            "{length}"
        );
    }
    assert!(!checksum_is_valid(SOURCE, DESTINATION, &DATAGRAM[..9]));
    assert!(!checksum_is_valid(SOURCE, DESTINATION, &[]));
    assert_eq!(
        Header::new(1, 2, 65527).map(|header| header.length),
        Some(65535)
    );
    assert_eq!(Header::new(1, 2, 65528), None);
    assert_eq!(Header::new(1, 2, usize::MAX), None);
}

#[test]
fn a_sum_of_zero_is_sent_as_all_ones() {
    let addr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let mut datagram = [0; 10];
    let header = Header::new(0, 0, 2).unwrap();
    assert_eq!(header.emit(&mut datagram), LEN);
    // 17 + 10 (pseudo-header) + 10 (header) + payload = ffff
    datagram[8..].copy_from_slice(&(0xffffu16 - 37).to_be_bytes());
    set_checksum(addr, addr, &mut datagram);
    assert_eq!(datagram[6..8], [0xff, 0xff]);
    assert!(checksum_is_valid(addr, addr, &datagram));
}
