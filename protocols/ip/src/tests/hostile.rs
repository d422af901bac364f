//! Whatever arrives, nothing panics, and memory stays bounded.

use super::*;
use proptest::prelude::*;

/// A frame that looks enough like one for us to get past the first checks.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let bytes = prop::collection::vec(any::<u8>(), 0..200);
    let kinds = prop::sample::select(vec![0u8, 1, 6, 17, 43, 44, 58, 59, 60, 132]);
    let shape = (0..5u8, kinds, any::<u16>(), any::<bool>());
    (shape, bytes).prop_map(|((shape, kind, fragment, lucky), bytes)| match shape {
        0 => bytes,
        1 => ethernet_frame(MAC, ethernet::ARP, &bytes),
        2 => {
            let mut header = v4_header(kind, bytes.len());
            header.fragment_offset = fragment & 0xfff8;
            header.more_fragments = fragment & 1 != 0;
            header.dont_fragment = lucky;
            v4_frame(&header, &bytes)
        }
        3 => v6_frame(&v6_header(kind, bytes.len()), &bytes),
        _ => {
            let mut header = v6_header(kind, bytes.len());
            header.hop_limit = 255;
            header.destination = solicited_node(US6);
            v6_frame(&header, &bytes)
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn no_frame_panics(frames in prop::collection::vec((frame(), any::<bool>()), 1..40)) {
        let mut host = Host::acquainted();
        let mut ms = 0;
        for (frame, verified) in frames {
            let checksum = match verified {
                true => RxChecksum::Verified,
                false => RxChecksum::Unverified,
            };
            let _ = host.receive_as(&frame, checksum);
            while host.ip.take_whole().is_some() {}
            ms += 1777;
            host.poll(ms);
        }
        let (datagrams, bytes) = host.ip.reassembly.size();
        prop_assert!(datagrams <= 64 && bytes <= 1 << 20);
    }

    #[test]
    fn no_packet_to_send_panics(
        payload in prop::collection::vec(any::<u8>(), 0..70_000),
        target in 0..7usize,
        segment_bytes in any::<u16>(),
        checksum_offset in any::<Option<u8>>(),
        dont_fragment in any::<bool>(),
        room in 0..5usize,
    ) {
        let destinations = ["10.0.0.2", "10.0.0.1", "8.8.8.8", "255.255.255.255", "2001:db8::2",
            "fe80::7", "::"];
        let destination: IpAddr = destinations[target].parse().expect("an address");
        for source in [IpAddr::V4(US4), IpAddr::V6(US6)] {
            let mut host = Host::acquainted();
            host.wire.room = room;
            let mut packet = TxPacket::new([Bytes::from(payload.as_slice()), Bytes::EMPTY]);
            packet.segment_bytes = segment_bytes;
            packet.checksum_offset = checksum_offset;
            packet.prepend(8);
            let to = outbound(source, destination, dont_fragment);
            let before = packet.len();
            if host.ip.send(host.now, &to, &mut packet, &mut host.wire).is_err() {
                prop_assert_eq!(packet.len(), before);
            }
            host.poll(10);
        }
    }
}
