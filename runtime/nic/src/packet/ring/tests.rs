use super::*;
use crate::packet::{PacketOpener, usable_interface};
use crate::test_support::*;
use crate::{NicSpec, open_sole};
use skink_steering::Owner;

/// The ring of a socket on `b0`, and the socket again.
fn ring() -> (Ring, OwnedFd) {
    usable_interface("b0").unwrap();
    let mut opener = PacketOpener::new("b0").unwrap();
    let parts = opener.open(Owner::new(0).unwrap(), None).unwrap();
    let socket = parts.descriptors.into_iter().next().unwrap();
    let again = socket.try_clone().unwrap();
    let ring = Ring::map(socket, Geometry::FLOWS, Past::Unused).unwrap();
    (ring, again)
}

fn send_numbers(numbers: std::ops::Range<u8>) {
    let parts = open_sole(&NicSpec::Packet("a0".into())).unwrap();
    let mut a = parts.attach().unwrap();
    for number in numbers {
        send(&mut a, &datagram(&[number], (0x1234, 9), (MAC_A, MAC_B), 0));
    }
}

/// What is in the ring now.
fn receive_numbers(ring: &mut Ring, budget: usize) -> Vec<u8> {
    let mut all = Vec::new();
    ring.receive(Instant::ZERO, budget, &mut |frame| {
        if is_ours(frame.bytes) {
            all.push(frame.bytes[42]);
        }
    });
    all
}

#[test]
fn a_frame_that_was_marked_but_not_given_back_is_not_seen_again() {
    in_namespace(|| {
        make_veth();
        let (mut ring, socket) = ring();
        send_numbers(0..10);
        let seen = receive_numbers(&mut ring, 4);
        // It died between the two stores.
        let slot = ring.slot();
        ring.slot_mark().store(ring.mark, Ordering::Release);
        let skipped = ring.frame_in(slot, Instant::ZERO).unwrap().bytes.to_vec();
        drop(ring);
        let mut ring = Ring::map(socket, Geometry::FLOWS, Past::Own).unwrap();
        let mut all = seen;
        all.extend(is_ours(&skipped).then(|| skipped[42]));
        all.extend(receive_numbers(&mut ring, 100));
        assert_eq!(all, (0..10).collect::<Vec<u8>>());
    });
}

/// A ring whose marks are wrong, and which slot is next by them.
fn spoilt(spoil: impl Fn(&Ring)) -> Ring {
    let (mut ring, socket) = ring();
    send_numbers(0..10);
    while !receive_numbers(&mut ring, 100).is_empty() {}
    ring.go_to(100);
    spoil(&ring);
    drop(ring);
    Ring::map(socket, Geometry::FLOWS, Past::Own).unwrap()
}

fn finds_its_way(mut ring: Ring) {
    send_numbers(10..20);
    let mut all = Vec::new();
    for _ in 0..PATIENCE + SEARCHES + 100 {
        all.extend(receive_numbers(&mut ring, 100));
    }
    all.retain(|number| *number >= 10);
    assert_eq!(all, (10..20).collect::<Vec<u8>>());
    // And isn't lost any more.
    send_numbers(20..30);
    assert_eq!(
        receive_numbers(&mut ring, 100),
        (20..30).collect::<Vec<u8>>()
    );
}

#[test]
fn wrong_marks_are_got_over() {
    in_namespace(|| {
        make_veth();
        finds_its_way(spoilt(|ring| {
            ring.slot_mark().store(1 << 20, Ordering::Release);
        }));
    });
}

#[test]
fn a_slot_that_claims_to_be_filled_is_got_over() {
    in_namespace(|| {
        make_veth();
        finds_its_way(spoilt(|ring| {
            ring.slot_mark().store(1 << 20, Ordering::Release);
            // What the kernel never wrote: skipped, and counted.
            let socket = ring.socket.try_clone().unwrap();
            let mut next = Ring::map_unused(socket.into(), ring.geometry).unwrap();
            next.go_to(101);
            next.status().store(TP_STATUS_USER, Ordering::Release);
        }));
    });
}
