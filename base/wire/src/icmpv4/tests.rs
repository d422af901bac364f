use super::*;
use crate::ChecksumPolicy::{Trust, Verify};

#[test]
fn golden_echo_request() {
    // 0800 + 1234 + 0001 + 6162 = 7b97, complemented 8468
    let bytes = [8, 0, 0x84, 0x68, 0x12, 0x34, 0, 1, b'a', b'b'];
    let message = Message::EchoRequest {
        ident: 0x1234,
        seq: 1,
        data: b"ab",
    };
    assert_eq!(Message::parse(&bytes, Verify), Ok(message));
    let mut out = [0; 10];
    assert_eq!(message.emit(&mut out), message.emitted_len());
    assert_eq!(out, bytes);
    assert_eq!(message.emit(&mut out[..9]), 0);
}

#[test]
fn golden_fragmentation_needed() {
    // RFC 1191 section 4: type, code, checksum, unused, MTU. 0304 + 05dc = 08e0.
    let bytes = [3, 4, 0xf7, 0x1f, 0, 0, 0x05, 0xdc];
    let message = Message::DestinationUnreachable {
        code: unreachable::FRAGMENTATION_NEEDED,
        next_hop_mtu: 1500,
        quoted: &[],
    };
    assert_eq!(Message::parse(&bytes, Verify), Ok(message));
    let mut out = [0; 8];
    assert_eq!(message.emit(&mut out), 8);
    assert_eq!(out, bytes);
}

#[test]
fn round_trips() {
    let quoted = b"the packet itself";
    for message in [
        Message::EchoReply {
            ident: 7,
            seq: 0xffff,
            data: quoted,
        },
        Message::DestinationUnreachable {
            code: unreachable::PORT,
            next_hop_mtu: 0,
            quoted,
        },
        Message::TimeExceeded {
            code: time_exceeded::REASSEMBLY,
            quoted,
        },
        Message::ParameterProblem {
            code: 0,
            pointer: 20,
            quoted,
        },
        Message::Unknown {
            kind: 13,
            code: 0,
            rest: [1, 2, 3, 4],
            body: quoted,
        },
    ] {
        let mut out = [0xaa; 64];
        let len = message.emit(&mut out);
        assert_eq!(len, LEN + quoted.len());
        assert_eq!(Message::parse(&out[..len], Verify), Ok(message));
        out[len - 1] ^= 1;
        assert_eq!(
            Message::parse(&out[..len], Verify),
            Err(Malformed::BadChecksum)
        );
        assert!(Message::parse(&out[..len], Trust).is_ok());
    }
}

#[test]
fn refuses() {
    assert_eq!(
        Message::parse(&[8, 0, 0, 0, 0, 0, 0], Trust),
        Err(Malformed::TooShort)
    );
    assert_eq!(
        Message::parse(&[8, 1, 0, 0, 0, 0, 0, 0], Trust),
        Err(Malformed::BadCode)
    );
}
