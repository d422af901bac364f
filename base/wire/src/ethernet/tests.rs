use super::*;

const FRAME: [u8; 16] = [
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02, 0, 0, 0, 0, 0x01, 0x08, 0x06, 0xaa, 0xbb,
];
const HEADER: Header = Header {
    destination: MacAddr::BROADCAST,
    source: MacAddr([2, 0, 0, 0, 0, 1]),
    ethertype: ARP,
};

#[test]
fn golden() {
    assert_eq!(Header::parse(&FRAME), Ok((HEADER, &[0xaa, 0xbb][..])));
    let mut out = [0; LEN];
    assert_eq!(HEADER.emit(&mut out), LEN);
    assert_eq!(out, FRAME[..LEN]);
}

#[test]
fn too_short() {
    assert_eq!(Header::parse(&FRAME[..13]), Err(Malformed::TooShort));
    let mut out = [7; 13];
    assert_eq!(HEADER.emit(&mut out), 0);
    assert_eq!(out, [7; 13]);
}
