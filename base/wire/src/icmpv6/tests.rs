use super::*;
use crate::ChecksumPolicy::{Trust, Verify};
use crate::MacAddr;

const SOURCE: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const TARGET: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

#[test]
fn golden_neighbour_solicitation() {
    let destination = solicited_node(TARGET);
    assert_eq!(destination, "ff02::1:ff00:2".parse::<Ipv6Addr>().unwrap());
    // Pseudo-header: fe80+0001 + ff02+0001+ff00+0002 + 0020 + 003a = 2fce0; message: 8700 + fe80+0002
    // + 0101+0200+0001 = 18884; together 48564, folded 8568, complemented 7a97.
    let bytes = [
        135, 0, 0x7a, 0x97, 0, 0, 0, 0, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 1, 1,
        2, 0, 0, 0, 0, 1,
    ];
    let message = Message::NeighbourSolicitation(NeighbourSolicitation {
        target: TARGET,
        source_link_layer: Some(MAC),
    });
    let mut out = [0; 32];
    assert_eq!(message.emit(SOURCE, destination, &mut out), 32);
    assert_eq!(out, bytes);
    assert_eq!(
        Message::parse(SOURCE, destination, &bytes, Verify),
        Ok(message)
    );
    assert_eq!(
        Message::parse(SOURCE, TARGET, &bytes, Verify),
        Err(Malformed::BadChecksum),
        "the pseudo-header counts"
    );
    assert_eq!(message.emit(SOURCE, destination, &mut out[..31]), 0);
}

#[test]
fn golden_router_advertisement() {
    let mut bytes = [0; 64];
    bytes[..16].copy_from_slice(&[134, 0, 0, 0, 64, 0x40, 0x07, 0x08, 0, 0, 0, 1, 0, 0, 0, 2]);
    bytes[16..24].copy_from_slice(&[1, 1, 2, 0, 0, 0, 0, 1]);
    bytes[24..32].copy_from_slice(&[5, 1, 0, 0, 0, 0, 0x05, 0xdc]);
    bytes[32..48].copy_from_slice(&[
        3, 4, 64, 0xc0, 0, 0, 0x0e, 0x10, 0, 0, 0x07, 0x08, 0, 0, 0, 0,
    ]);
    bytes[48..52].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
    let mut prefixes = Prefixes::default();
    assert!(prefixes.push(PrefixInformation {
        prefix: "2001:db8::".parse().unwrap(),
        prefix_len: 64,
        on_link: true,
        autonomous: true,
        valid_secs: 3600,
        preferred_secs: 1800,
    }));
    let message = Message::RouterAdvertisement(RouterAdvertisement {
        hop_limit: 64,
        managed: false,
        other: true,
        lifetime_secs: 1800,
        reachable_ms: 1,
        retransmit_ms: 2,
        source_link_layer: Some(MAC),
        mtu: Some(1500),
        prefixes,
    });
    assert_eq!(Message::parse(SOURCE, TARGET, &bytes, Trust), Ok(message));
    let mut out = [0; 64];
    assert_eq!(message.emit(SOURCE, TARGET, &mut out), 64);
    assert_eq!(Message::parse(SOURCE, TARGET, &out, Verify), Ok(message));
    out[2..4].fill(0);
    assert_eq!(out, bytes);
}

#[test]
fn round_trips() {
    let quoted = b"the packet itself!";
    for message in [
        Message::DestinationUnreachable {
            code: unreachable::PORT,
            quoted,
        },
        Message::PacketTooBig { mtu: 1400, quoted },
        Message::TimeExceeded {
            code: time_exceeded::IN_TRANSIT,
            quoted,
        },
        Message::ParameterProblem {
            code: parameter_problem::UNKNOWN_OPTION,
            pointer: 0x1_0000,
            quoted,
        },
        Message::EchoRequest {
            ident: 1,
            seq: 2,
            data: quoted,
        },
        Message::EchoReply {
            ident: 1,
            seq: 2,
            data: quoted,
        },
        Message::RouterSolicitation(RouterSolicitation {
            source_link_layer: None,
        }),
        Message::RouterSolicitation(RouterSolicitation {
            source_link_layer: Some(MAC),
        }),
        Message::NeighbourAdvertisement(NeighbourAdvertisement {
            router: false,
            solicited: true,
            replace: true,
            target: TARGET,
            target_link_layer: Some(MAC),
        }),
        Message::NeighbourAdvertisement(NeighbourAdvertisement {
            router: true,
            solicited: false,
            replace: false,
            target: TARGET,
            target_link_layer: None,
        }),
        Message::Unknown {
            kind: 143,
            code: 0,
            rest: [0, 0, 0, 1],
            body: quoted,
        },
    ] {
        let mut out = [0; 64];
        let len = message.emit(SOURCE, TARGET, &mut out);
        assert_ne!(len, 0);
        assert_eq!(
            Message::parse(SOURCE, TARGET, &out[..len], Verify),
            Ok(message)
        );
    }
}

#[test]
fn discovery_options() {
    // options after a target; the source link-layer address or the reason
    type Row = (&'static [u8], Result<Option<MacAddr>, Malformed>);
    let table: [Row; 7] = [
        (&[], Ok(None)),
        (
            &[14, 1, 0, 0, 0, 0, 0, 0, 1, 1, 2, 0, 0, 0, 0, 1],
            Ok(Some(MAC)),
        ),
        (&[1, 2, 2, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0], Ok(None)),
        (&[1, 0, 2, 0, 0, 0, 0, 1], Err(Malformed::BadOption)),
        (&[1, 1, 2, 0, 0, 0, 0], Err(Malformed::BadOption)),
        (&[1], Err(Malformed::BadOption)),
        (&[14, 2, 0, 0, 0, 0, 0, 0], Err(Malformed::BadOption)),
    ];
    for (options, expected) in table {
        let mut bytes = [0; 64];
        bytes[0] = 135;
        bytes[8..24].copy_from_slice(&TARGET.octets());
        bytes[24..24 + options.len()].copy_from_slice(options);
        let parsed = Message::parse(SOURCE, TARGET, &bytes[..24 + options.len()], Trust);
        let expected = expected.map(|source_link_layer| {
            Message::NeighbourSolicitation(NeighbourSolicitation {
                target: TARGET,
                source_link_layer,
            })
        });
        assert_eq!(parsed, expected, "{options:?}");
    }
}

#[test]
fn refuses() {
    let parse = |bytes: &[u8]| Message::parse(SOURCE, TARGET, bytes, Trust).err();
    assert_eq!(parse(&[128, 0, 0, 0, 0, 0, 0]), Some(Malformed::TooShort));
    assert_eq!(
        parse(&[136, 0, 0, 0, 0, 0, 0, 0, 0xfe, 0x80]),
        Some(Malformed::TooShort)
    );
    assert_eq!(
        parse(&[134, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        Some(Malformed::TooShort)
    );
    for kind in 133..=136 {
        assert_eq!(
            parse(&[&[kind, 1], &[0; 40][..]].concat()),
            Some(Malformed::BadCode)
        );
    }
    let multicast = [&[135, 0, 0, 0, 0, 0, 0, 0, 0xff, 2], &[0; 14][..]].concat();
    assert_eq!(parse(&multicast), Some(Malformed::BadAddress));
}

#[test]
fn prefixes_beyond_the_capacity_are_ignored() {
    let mut bytes = [&[134u8][..], &[0; 15]].concat();
    for prefix_len in [129, 1, 2, 3, 4, 5] {
        bytes.extend([3, 4, prefix_len]);
        bytes.extend([0; 29]);
    }
    let Ok(Message::RouterAdvertisement(message)) = Message::parse(SOURCE, TARGET, &bytes, Trust)
    else {
        panic!("not a router advertisement");
    };
    let lengths: Vec<u8> = message
        .prefixes
        .iter()
        .map(|prefix| prefix.prefix_len)
        .collect();
    assert_eq!(
        lengths,
        [1, 2, 3, 4],
        "129 is no length, and 5 is one too many"
    );
}
