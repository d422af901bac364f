use super::super::driver::{Value, ask};
use crate::test_support::{
    in_namespace, is_ours, make_veth, open_packet, opener_that_steers, pattern, receive, stream,
};
use crate::{NicSpec, Sharing};

const ETHTOOL_STSO: u32 = 0x1f;

/// The link between `a0` and `b0`, where AF_XDP sends, and frames of `payloads` go out: what comes.
fn send(payloads: &[&[u8]]) -> Option<Vec<Vec<u8>>> {
    let spec = NicSpec::Xdp("a0".into());
    let mut opener = opener_that_steers(&spec, Sharing::Several)?;
    let mut near = opener.open(0).unwrap().attach().unwrap();
    let cuts = near.capabilities.cut_bytes > 0;
    let mut far = open_packet("b0");
    for payload in payloads {
        let large = payload.len() > 1448;
        assert!(cuts || !large, "it hasn't said that it cuts");
        let packet = stream([payload, &[]], if large { 1448 } else { 0 }, false);
        near.sender.send(&packet).unwrap();
    }
    near.sender.flush();
    let frames = receive(&mut *far.receiver, payloads.len(), is_ours);
    assert_eq!(near.sender.take_dropped(), 0);
    Some(
        frames
            .iter()
            .map(|frame| frame.bytes[54..].to_vec())
            .collect(),
    )
}

#[test]
fn small_and_large_packets_keep_their_order_on_two_ways() {
    in_namespace(|| {
        make_veth();
        let large = pattern(30_000);
        let sent: [&[u8]; 6] = [&[1], &[2], &large, &[3], &large[..4000], &[4]];
        if let Some(came) = send(&sent) {
            assert_eq!(came, sent);
        }
    });
}

#[test]
fn a_card_that_does_not_cut_is_given_frames() {
    in_namespace(|| {
        make_veth();
        let mut off = Value {
            command: ETHTOOL_STSO,
            data: 0,
        };
        // SAFETY: it is the command's structure.
        unsafe { ask("a0", &mut off) }.unwrap();
        let spec = NicSpec::Xdp("a0".into());
        let Some(mut opener) = opener_that_steers(&spec, Sharing::Several) else {
            return;
        };
        let near = opener.open(0).unwrap().attach().unwrap();
        assert_eq!(near.capabilities.cut_bytes, 0);
    });
}
