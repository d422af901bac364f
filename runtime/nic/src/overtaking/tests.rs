use super::*;
use crate::test_support::{IP_A, IP_B, MAC_A, MAC_B, arp_request, datagram, stream};
use skink_messages::TxPacket;

/// Of a frame with these headers, of which a slot holds so much.
fn bucket_of(packet: &TxPacket<'_>) -> Bucket {
    let mut beginning = packet.headers().to_vec();
    beginning.resize(64, 0xff);
    Bucket::of(&beginning)
}

fn of_ports(remote: u16, local: u16) -> Bucket {
    bucket_of(&datagram(&[1], (remote, local), (MAC_A, MAC_B), 0))
}

#[test]
fn flows_are_told_apart_by_addresses_ports_and_nothing_else() {
    let one = of_ports(1000, 80);
    assert_eq!(one, of_ports(1000, 80));
    for other in [of_ports(1001, 80), of_ports(1000, 81), of_ports(80, 1000)] {
        assert_ne!(one, other);
    }
    for ipv6 in [false, true] {
        let mut packet = stream([&[1], &[]], 0, ipv6);
        let first = bucket_of(&packet);
        // Its length, IPv4's identification, and its sequence number.
        let changing: &[usize] = if ipv6 { &[19, 61] } else { &[17, 19, 41] };
        for at in changing {
            packet.headers_mut()[*at] ^= 1;
        }
        assert_eq!(bucket_of(&packet), first);
    }
}

#[test]
fn what_has_no_ports_is_told_apart_by_its_addresses() {
    let fragment = |number: u8| {
        let mut packet = datagram(&[1], (number.into(), 80), (MAC_A, MAC_B), 0);
        // More fragments follow.
        packet.headers_mut()[20] = 0x20;
        bucket_of(&packet)
    };
    assert_eq!(fragment(1), fragment(2));
    let asks = |mac| bucket_of(&arp_request(mac, IP_A, IP_B));
    assert_eq!(asks(MAC_A), asks(MAC_B));
    assert_ne!(fragment(1), asks(MAC_A));
}

#[test]
fn short_and_odd_frames_have_a_bucket() {
    let packet = stream([&[1], &[]], 0, true);
    for end in 0..packet.headers().len() {
        Bucket::of(&packet.headers()[..end]);
    }
}

#[test]
fn a_flow_goes_on_overtaking_until_something_of_it_waits() {
    let (little, much) = (of_ports(1, 80), of_ports(2, 80));
    let mut overtaking = Overtaking::new();
    assert!(!overtaking.look(much, false));
    assert!(overtaking.look(little, true));
    assert!(!overtaking.look(much, true));
    assert!(overtaking.look(little, true));
    assert_eq!(overtaking.looked_at(), 4);
    // In the order of the queue: what waited, and what had overtaken it.
    overtaking.leaves(Some(much));
    overtaking.leaves(None);
    assert!(!overtaking.look(much, true));
    overtaking.leaves(Some(much));
    overtaking.leaves(None);
    overtaking.leaves(Some(much));
    assert_eq!(overtaking.looked_at(), 0);
    assert!(overtaking.look(much, true));
}

#[test]
fn a_flow_that_shares_one_bucket_with_one_that_waits_overtakes_it() {
    let much = of_ports(1, 80);
    let flows = || (2..u16::MAX).map(|port| of_ports(port, 80));
    for kind in 0..2 {
        let shares = |flow: &Bucket| flow.0[kind] == much.0[kind] && *flow != much;
        let little = flows().find(shares).expect("one in some thousands");
        let mut overtaking = Overtaking::new();
        assert!(!overtaking.look(much, false));
        assert!(overtaking.look(little, true));
        assert!(!overtaking.look(much, true));
    }
}
