use core::net::Ipv4Addr;
use std::string::ToString;

use proptest::prelude::*;

use super::*;
use crate::fuzz_tests::config;

const SOURCE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const DESTINATION: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

const SYN: Header = Header {
    source_port: 0xc000,
    destination_port: 80,
    seq: SeqNum(0x0102_0304),
    ack: SeqNum(0),
    flags: Flags::SYN,
    window: 64240,
    urgent: 0,
    header_len: 40,
};

/// The SYN of a Linux client: MSS 1460, SACK permitted, timestamps 1/0, window scale 7.
const SYN_BYTES: [u8; 40] = [
    0xc0, 0, 0, 80, 1, 2, 3, 4, 0, 0, 0, 0, 0xa0, 0x02, 0xfa, 0xf0, 0, 0, 0, 0, // fixed
    2, 4, 0x05, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7, // options
];

fn syn_options() -> Options {
    Options {
        mss: Some(1460),
        window_scale: Some(7),
        sack_permitted: true,
        timestamps: Some(Timestamps { value: 1, echo: 0 }),
        sack: SackBlocks::EMPTY,
    }
}

fn blocks(count: u32) -> SackBlocks {
    let mut sack = SackBlocks::EMPTY;
    for index in 0..count {
        sack.push(SeqNum(index * 100), SeqNum(index * 100 + 50));
    }
    sack
}

#[test]
fn golden_syn() {
    assert_eq!(parse(&SYN_BYTES), Ok((SYN, syn_options(), &[][..])));
    let mut out = [0xff; 40];
    assert_eq!(emit(&SYN, &syn_options(), &mut out), 40);
    assert_eq!(out, SYN_BYTES);
    assert_eq!(emitted_len(&syn_options()), 40);
    let mut short = [7; 39];
    assert_eq!(emit(&SYN, &syn_options(), &mut short), 0);
    assert_eq!(short, [7; 39]);
}

#[test]
fn golden_data_with_timestamps() {
    let mut bytes = [0; 34];
    bytes[..20].copy_from_slice(&[
        0, 80, 0xc0, 0, 0, 0, 0, 9, 0, 0, 0, 8, 0x81, 0x18, 0x01, 0xf5, 0, 0, 0, 3,
    ]);
    bytes[20..32].copy_from_slice(&[1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8]);
    bytes[32..].copy_from_slice(b"hi");
    let header = Header {
        source_port: 80,
        destination_port: 0xc000,
        seq: SeqNum(9),
        ack: SeqNum(8),
        flags: Flags::AE | Flags::PSH | Flags::ACK,
        window: 501,
        urgent: 3,
        header_len: 32,
    };
    let options = Options::only_timestamps(0x0102_0304, 0x0506_0708);
    assert_eq!(parse(&bytes), Ok((header, options, &b"hi"[..])));
    let mut out = [0xff; 34];
    assert_eq!(emit(&header, &options, &mut out), 32);
    assert_eq!(out[..32], bytes[..32]);
}

#[test]
fn option_layouts() {
    let timestamps = Some(Timestamps {
        value: 0x0a0b_0c0d,
        echo: 2,
    });
    let table: [(Options, &[u8]); 4] = [
        (Options::NONE, &[]),
        (
            Options {
                sack_permitted: true,
                ..Options::NONE
            },
            &[1, 1, 4, 2],
        ),
        (
            Options {
                mss: Some(536),
                window_scale: Some(200),
                ..Options::NONE
            },
            &[2, 4, 2, 24, 1, 3, 3, 14],
        ),
        (
            Options {
                timestamps,
                sack: blocks(1),
                ..Options::NONE
            },
            &[
                1, 1, 8, 10, 10, 11, 12, 13, 0, 0, 0, 2, 1, 1, 5, 10, 0, 0, 0, 0, 0, 0, 0, 50,
            ],
        ),
    ];
    for (options, bytes) in table {
        let mut out = [0xff; MAXIMUM_LEN];
        let len = emit(&SYN, &options, &mut out);
        assert_eq!(&out[LEN..len], bytes, "{options:?}");
        assert_eq!(usize::from(out[12] >> 4) * 4, len);
    }
}

#[test]
fn sack_blocks_that_fit() {
    // options before SACK, blocks given, blocks emitted
    let bare = Options::NONE;
    let timestamps = Options::only_timestamps(1, 2);
    for (options, given, emitted) in [
        (bare, 1, 1),
        (bare, 4, 4),
        (bare, 5, 4),
        (timestamps, 3, 3),
        (timestamps, 4, 3),
        (syn_options(), 4, 2),
    ] {
        let options = Options {
            sack: blocks(given),
            ..options
        };
        let mut out = [0; MAXIMUM_LEN];
        let len = emit(&SYN, &options, &mut out);
        let (_, parsed, payload) = parse(&out[..len]).unwrap();
        assert_eq!(payload, &[]);
        assert_eq!(
            parsed,
            Options {
                sack: blocks(emitted),
                ..options
            }
        );
    }
    let mut full = blocks(4);
    assert!(!full.push(SeqNum(1), SeqNum(2)));
    assert_eq!(full.len(), 4);
}

#[test]
fn parsing_options() {
    let mss = Options {
        mss: Some(1460),
        ..Options::NONE
    };
    let table: [(&[u8], Result<Options, Malformed>); 18] = [
        (&[0, 0, 0, 0], Ok(Options::NONE)),
        (&[1, 1, 1, 1], Ok(Options::NONE)),
        (&[2, 4, 5, 0xb4], Ok(mss)),
        // What follows the end is not looked at.
        (&[2, 4, 5, 0xb4, 0, 99, 0, 0], Ok(mss)),
        // Unknown options are skipped, up to the last byte.
        (&[254, 4, 0xf9, 0x89, 2, 4, 5, 0xb4], Ok(mss)),
        (&[30, 2, 1, 1], Ok(Options::NONE)),
        // Known ones of the wrong length, too.
        (&[2, 3, 5, 1], Ok(Options::NONE)),
        (&[8, 4, 0, 0], Ok(Options::NONE)),
        (&[4, 3, 0, 0], Ok(Options::NONE)),
        (&[5, 4, 0, 0], Ok(Options::NONE)),
        (&[5, 2, 1, 1], Ok(Options::NONE)),
        (
            &[3, 3, 15, 1],
            Ok(Options {
                window_scale: Some(14),
                ..Options::NONE
            }),
        ),
        // The recommended words of timestamps, and something after them.
        (
            &[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 2, 4, 5, 0xb4],
            Ok(Options {
                mss: Some(1460),
                ..Options::only_timestamps(1, 2)
            }),
        ),
        (
            &[8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1],
            Ok(Options::only_timestamps(1, 2)),
        ),
        (&[1, 1, 1, 2], Err(Malformed::BadOption)),
        (&[254, 0, 0, 0], Err(Malformed::BadOption)),
        (&[254, 1, 0, 0], Err(Malformed::BadOption)),
        (&[254, 5, 0, 0], Err(Malformed::BadOption)),
    ];
    for (options, expected) in table {
        let mut bytes = [0; MAXIMUM_LEN];
        let len = LEN + options.len();
        bytes[12] = (len as u8 / 4) << 4;
        bytes[LEN..len].copy_from_slice(options);
        let parsed = parse(&bytes[..len]).map(|(_, options, _)| options);
        assert_eq!(parsed, expected, "{options:?}");
    }
}

#[test]
fn refuses() {
    assert_eq!(parse(&SYN_BYTES[..19]), Err(Malformed::TooShort));
    assert_eq!(parse(&SYN_BYTES[..39]), Err(Malformed::BadHeaderLength));
    let mut bytes = SYN_BYTES;
    bytes[12] = 0x40;
    assert_eq!(parse(&bytes), Err(Malformed::BadHeaderLength));
}

#[test]
fn checksums() {
    // By hand: pseudo-header c000+0201+c000+0202+0006+002a = 18433; fixed header
    // c000+0050+0102+0304+a002+faf0 = 25f48; options 0204+05b4+0402+080a+0001+0103+0307 = 17cf; with
    // the payload, 6869, together 463b3, folded 63b7, complemented 9c48.
    let mut segment = [0; 42];
    segment[..40].copy_from_slice(&SYN_BYTES);
    segment[40..].copy_from_slice(b"hi");
    set_checksum(SOURCE, DESTINATION, &mut segment);
    assert_eq!(segment[16..18], [0x9c, 0x48]);
    assert!(checksum_is_valid(SOURCE, DESTINATION, &segment));
    assert!(!checksum_is_valid(SOURCE, SOURCE, &segment));

    let mut header = SYN_BYTES;
    header[16..18].fill(0xaa);
    fill_checksum(SOURCE, DESTINATION, &mut header, &[b"h", b"", b"i"]);
    assert_eq!(header, segment[..40]);

    // What a NIC does with a partial checksum: sum the segment, field included, and complement.
    set_partial_checksum(SOURCE, DESTINATION, &mut header, 42);
    assert_eq!(header[16..18], [0x84, 0x34]);
    let finished = checksum::checksum(&[&header, b"hi"]);
    assert_eq!(finished.to_be_bytes(), segment[16..18]);

    set_checksum(SOURCE, DESTINATION, &mut [0; 17]);
}

#[test]
fn flags() {
    let syn_ack = Flags::SYN | Flags::ACK;
    assert_eq!(syn_ack.to_string(), "SYN|ACK");
    assert_eq!(Flags::EMPTY.to_string(), "-");
    assert!(syn_ack.contains(Flags::SYN) && syn_ack.contains(syn_ack));
    assert!(!syn_ack.contains(Flags::SYN | Flags::FIN));
    assert!(syn_ack.intersects(Flags::SYN | Flags::FIN));
    assert!(!syn_ack.intersects(Flags::RST));
    assert_eq!(syn_ack.without(Flags::SYN), Flags::ACK);
    assert_eq!(Flags::from_bits(0xa012), syn_ack);
    let table = [
        (Flags::EMPTY, 5),
        (Flags::SYN, 6),
        (Flags::SYN | Flags::FIN, 7),
        (Flags::ACK, 5),
    ];
    for (flags, len) in table {
        assert_eq!(Header { flags, ..SYN }.sequence_len(5), len);
    }
}

fn any_options() -> impl Strategy<Value = Options> {
    let pairs = prop::collection::vec((any::<u32>(), any::<u32>()), 0..=2);
    let timestamps = prop::option::of((any::<u32>(), any::<u32>()));
    let rest = (
        prop::option::of(any::<u16>()),
        prop::option::of(0..=14u8),
        any::<bool>(),
    );
    (pairs, timestamps, rest).prop_map(
        |(pairs, timestamps, (mss, window_scale, sack_permitted))| {
            let mut sack = SackBlocks::EMPTY;
            for (start, end) in pairs {
                sack.push(SeqNum(start), SeqNum(end));
            }
            Options {
                mss,
                window_scale,
                sack_permitted,
                timestamps: timestamps.map(|(value, echo)| Timestamps { value, echo }),
                sack,
            }
        },
    )
}

proptest! {
    #![proptest_config(config(512))]

    #[test]
    fn round_trips(
        options in any_options(),
        ports in any::<(u16, u16)>(),
        numbers in any::<(u32, u32)>(),
        bits in 0..0x200u16,
        window in any::<u16>(),
        urgent in any::<u16>(),
        payload in prop::collection::vec(any::<u8>(), 0..50),
    ) {
        let header = Header {
            source_port: ports.0,
            destination_port: ports.1,
            seq: SeqNum(numbers.0),
            ack: SeqNum(numbers.1),
            flags: Flags::from_bits(bits),
            window,
            urgent,
            header_len: emitted_len(&options) as u8,
        };
        let mut out = [0xff; MAXIMUM_LEN + 50];
        let len = emit(&header, &options, &mut out);
        prop_assert_eq!(len, emitted_len(&options));
        out[len..len + payload.len()].copy_from_slice(&payload);
        let segment = &mut out[..len + payload.len()];
        set_checksum(SOURCE, DESTINATION, segment);
        prop_assert!(checksum_is_valid(SOURCE, DESTINATION, segment));
        prop_assert_eq!(parse(segment), Ok((header, options, &payload[..])));
    }
}
