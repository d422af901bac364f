use super::*;

const REQUEST: [u8; LEN] = [
    0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 192, 0, 2, 2,
];
const PACKET: Packet = Packet {
    operation: Operation::Request,
    sender_mac: MacAddr([2, 0, 0, 0, 0, 1]),
    sender_ip: Ipv4Addr::new(192, 0, 2, 1),
    target_mac: MacAddr::UNSPECIFIED,
    target_ip: Ipv4Addr::new(192, 0, 2, 2),
};

#[test]
fn golden() {
    let mut padded = [0xee; 46];
    padded[..LEN].copy_from_slice(&REQUEST);
    assert_eq!(Packet::parse(&padded), Ok(PACKET));
    let mut out = [0; LEN];
    assert_eq!(PACKET.emit(&mut out), LEN);
    assert_eq!(out, REQUEST);
}

#[test]
fn a_reply_round_trips() {
    let reply = Packet {
        operation: Operation::Reply,
        target_mac: MacAddr([2, 0, 0, 0, 0, 2]),
        ..PACKET
    };
    let mut out = [0; 64];
    assert_eq!(reply.emit(&mut out), LEN);
    assert_eq!(out[7], 2);
    assert_eq!(Packet::parse(&out), Ok(reply));
}

#[test]
fn refuses() {
    assert_eq!(Packet::parse(&REQUEST[..27]), Err(Malformed::TooShort));
    for (at, value, reason) in [
        (1, 6, Malformed::BadHardware),
        (2, 9, Malformed::BadHardware),
        (4, 8, Malformed::BadHardware),
        (5, 16, Malformed::BadHardware),
        (7, 3, Malformed::BadOperation),
        (6, 1, Malformed::BadOperation),
    ] {
        let mut packet = REQUEST;
        packet[at] = value;
        assert_eq!(Packet::parse(&packet), Err(reason), "{at}");
    }
    assert_eq!(PACKET.emit(&mut [0; 27]), 0);
}
