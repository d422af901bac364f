use super::*;
use crate::packet::{PacketOpener, usable_interface};
use crate::test_support::*;
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
    let mut a = open_packet("a0");
    for number in numbers {
        send(&mut a, &datagram(&[number], (0x1234, 9), (MAC_A, MAC_B), 0));
    }
}

/// What is in the ring now.
fn receive_numbers(ring: &mut Ring, budget: usize) -> Vec<u8> {
    let mut all = Vec::new();
    ring.receive(Instant::ZERO, &mut Budget::frames(budget), &mut |frame| {
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

/// Payload of a large frame in bytes.
const LARGE: usize = 20_000;

/// A stream's frame that is too large for a slot, with `number` in its payload.
fn send_large(a: &mut crate::Nic, number: u8) {
    let payload = vec![number; LARGE];
    let mut packet = stream([&payload, &[]], 1448, false);
    // Its sequence number, as frames of a stream differ in it.
    packet.headers_mut()[41] = number;
    send(a, &packet);
}

/// The numbers of the frames that are in the ring now, small and large; all of a large one must be there.
fn receive_mixed(ring: &mut Ring, budget: usize) -> Vec<u8> {
    receive_within(ring, &mut Budget::frames(budget))
}

fn receive_within(ring: &mut Ring, budget: &mut Budget) -> Vec<u8> {
    let mut all = Vec::new();
    ring.receive(Instant::ZERO, budget, &mut |frame| {
        if !is_ours(frame.bytes) {
            return;
        }
        let headers = if frame.bytes[12] == 0x86 { 74 } else { 54 };
        let (_, payload) = frame.bytes.split_at(frame.bytes.len().min(headers));
        match payload {
            [] => all.push(frame.bytes[42]),
            [number, ..] => {
                assert!([LARGE, 1].contains(&payload.len()), "a part");
                assert!(payload.iter().all(|byte| byte == number));
                all.push(*number);
            }
        }
    });
    all
}

fn is_readable(ring: &Ring) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::from_borrowed_fd(ring.descriptor(), PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).unwrap() > 0
}

/// A ring, its socket, and the other end of its cable. What the kernel sends of itself when an interface comes up is
/// taken out.
fn quiet() -> (Ring, OwnedFd, crate::Nic) {
    make_veth();
    let (mut ring, socket) = ring();
    let a = open_packet("a0");
    while ring.receive(Instant::ZERO, &mut Budget::frames(100), &mut |_| {}) > 0 {}
    (ring, socket, a)
}

#[test]
fn a_large_frame_that_was_taken_but_not_given_back_is_skipped_alone() {
    in_namespace(|| {
        let (mut ring, socket, mut a) = quiet();
        for number in 0..3 {
            send_large(&mut a, number);
        }
        send(&mut a, &datagram(&[3], (0x1234, 9), (MAC_A, MAC_B), 0));
        send_large(&mut a, 4);
        assert_eq!(receive_mixed(&mut ring, 1), [0]);
        // It died when it had taken the next frame.
        assert!(ring.fetch());
        drop(ring);
        let mut ring = Ring::map(socket, Geometry::FLOWS, Past::Own).unwrap();
        assert_eq!(receive_mixed(&mut ring, 100), [2, 3, 4]);
        assert_eq!(ring.take_dropped(), 1);
        assert!(!is_readable(&ring));
    });
}

#[test]
fn a_large_frame_whose_slot_is_gone_is_dropped_and_keeps_nobody_awake() {
    in_namespace(|| {
        let (mut ring, _socket, mut a) = quiet();
        // Slots given back without a look at what is in the queue.
        let lose = |ring: &mut Ring| {
            while ring.is_filled() {
                ring.give_back();
            }
        };
        send_large(&mut a, 0);
        send_large(&mut a, 1);
        lose(&mut ring);
        for number in 2..4 {
            send_large(&mut a, number);
        }
        assert_eq!(receive_mixed(&mut ring, 100), [2, 3]);
        assert_eq!(ring.take_dropped(), 2);
        send_large(&mut a, 4);
        lose(&mut ring);
        assert!(is_readable(&ring));
        for _ in 0..3 * PATIENCE {
            assert!(receive_mixed(&mut ring, 100).is_empty());
        }
        assert!(!is_readable(&ring));
        send_large(&mut a, 5);
        assert_eq!(receive_mixed(&mut ring, 100), [5]);
        assert_eq!(ring.take_dropped(), 1);
    });
}

#[test]
fn another_owner_finds_no_large_frames_of_the_one_before() {
    in_namespace(|| {
        let (ring, socket, mut a) = quiet();
        send_large(&mut a, 0);
        send_large(&mut a, 1);
        drop(ring);
        let mut ring = Ring::map(socket, Geometry::FLOWS, Past::Others).unwrap();
        assert!(!is_readable(&ring));
        send_large(&mut a, 2);
        assert_eq!(receive_mixed(&mut ring, 100), [2]);
        assert_eq!(ring.take_dropped(), 0);
    });
}

/// A datagram from `port` with `number` in it.
fn send_small(a: &mut crate::Nic, port: u16, number: u8) {
    send(a, &datagram(&[number], (0x1234, port), (MAC_A, MAC_B), 0));
}

/// What is received within so many bytes, and then all that is left.
fn in_two_batches(ring: &mut Ring, bytes: usize) -> [Vec<u8>; 2] {
    let mut budget = Budget::new(64, bytes);
    let first = receive_within(ring, &mut budget);
    assert!(budget.is_spent(), "more waits");
    [first, receive_mixed(ring, 64)]
}

#[test]
fn who_says_little_overtakes_what_is_left_of_a_batch() {
    in_namespace(|| {
        let (mut ring, _socket, mut a) = quiet();
        for number in 0..5 {
            send_large(&mut a, number);
        }
        send_small(&mut a, 9, 5);
        send_large(&mut a, 6);
        send_small(&mut a, 10, 7);
        let batches = in_two_batches(&mut ring, 2 * LARGE);
        assert_eq!(batches, [vec![0, 1, 5, 7], vec![2, 3, 4, 6]]);
        assert!(!is_readable(&ring));
        assert_eq!([ring.take_overtaken(), ring.take_overtaken()], [2, 0]);
        // Nothing of that is remembered.
        for number in 0..4 {
            send_large(&mut a, number);
            send_small(&mut a, 9, number + 10);
        }
        assert_eq!(receive_mixed(&mut ring, 64), [0, 10, 1, 11, 2, 12, 3, 13]);
        assert_eq!((ring.take_dropped(), ring.take_overtaken()), (0, 0));
    });
}

#[test]
fn frames_of_a_flow_keep_their_order_where_others_overtake() {
    in_namespace(|| {
        let (mut ring, _socket, mut a) = quiet();
        send_large(&mut a, 0);
        send_large(&mut a, 1);
        // The same stream's, without need to be cut.
        send(&mut a, &stream([&[2], &[]], 0, false));
        // Of another one by its address.
        send(&mut a, &stream([&[3], &[]], 0, true));
        let batches = in_two_batches(&mut ring, 1);
        assert_eq!(batches[0], [0, 3]);
        assert_eq!(batches[1], [1, 2]);
    });
}

#[test]
fn a_successor_does_not_see_again_what_had_overtaken_others() {
    in_namespace(|| {
        let (mut ring, socket, mut a) = quiet();
        for number in 0..3 {
            send_large(&mut a, number);
        }
        send_small(&mut a, 9, 3);
        let mut budget = Budget::new(64, 1);
        assert_eq!(receive_within(&mut ring, &mut budget), [0, 3]);
        drop(ring);
        let mut ring = Ring::map(socket, Geometry::FLOWS, Past::Own).unwrap();
        send_small(&mut a, 9, 4);
        let batches = in_two_batches(&mut ring, 1);
        assert_eq!(batches, [vec![1, 4], vec![2]]);
        assert!(!is_readable(&ring));
        assert_eq!(ring.take_dropped(), 0);
    });
}

#[test]
fn a_frame_that_a_batch_has_left_says_how_long_it_has_waited() {
    in_namespace(|| {
        let (mut ring, _socket, mut a) = quiet();
        let mut arrived = Vec::new();
        let (first, second) = (at(1_000), at(1_900));
        for number in 0..4 {
            send_large(&mut a, number);
        }
        for now in [first, second] {
            let mut budget = Budget::new(64, 2 * LARGE);
            ring.receive(now, &mut budget, &mut |frame| arrived.push(frame.arrived));
        }
        assert_eq!(arrived[..2], [first; 2]);
        // It took less than the time between these batches to get here.
        assert!(
            arrived[2..].iter().all(|at| (first..second).contains(at)),
            "{arrived:?}"
        );
    });
}

fn at(microseconds: u64) -> Instant {
    Instant::ZERO + Duration::from_micros(microseconds)
}

/// Numbers without end, the same for the same seed (xorshift, Marsaglia 2003).
fn numbers(mut seed: u32) -> impl FnMut(u32) -> u32 {
    move |below| {
        seed ^= seed << 13;
        seed ^= seed >> 17;
        seed ^= seed << 5;
        seed % below
    }
}

#[test]
fn whatever_waits_and_whoever_takes_over_each_frame_is_seen_once_and_those_of_a_flow_in_their_order()
 {
    const FLOWS: usize = 5;
    in_namespace(|| {
        let (mut ring, socket, mut a) = quiet();
        let mut random = numbers(20_261_127);
        let (mut sent, mut seen) = ([0; FLOWS], [0; FLOWS]);
        let (mut last, mut latest, mut overtook) = (0, 0, 0);
        for turn in 0..4_000 {
            // In the end nothing comes any more; and now and then nobody takes anything for a while.
            for _ in 0..random(8) * u32::from(turn < 3_000) {
                let flow = random(FLOWS as u32) as usize;
                // Some flows have small frames only.
                let bytes = [50, LARGE][usize::from(flow < 2 && random(2) == 0)];
                let mut payload = vec![0; bytes];
                last += 1;
                payload[..4].copy_from_slice(&u32::to_be_bytes(sent[flow]));
                payload[4..8].copy_from_slice(&u32::to_be_bytes(last));
                let cut = if bytes == LARGE { 1_448 } else { 0 };
                let mut packet = stream([&payload, &[]], cut, false);
                packet.headers_mut()[37] = 80 + flow as u8;
                send(&mut a, &packet);
                sent[flow] += 1;
            }
            if turn % 400 < 40 {
                continue;
            }
            let mut budget = Budget::new(1 + random(16) as usize, 1 + random(30_000) as usize);
            ring.receive(Instant::ZERO, &mut budget, &mut |frame| {
                if !is_ours(frame.bytes) {
                    return;
                }
                let flow = usize::from(frame.bytes[37] - 80);
                let number =
                    |at: usize| u32::from_be_bytes(*frame.bytes[at..].first_chunk().unwrap());
                assert_eq!(number(54), seen[flow], "flow {flow}, in turn {turn}");
                seen[flow] += 1;
                overtook += u32::from(number(58) < latest);
                latest = latest.max(number(58));
            });
            if random(50) == 0 {
                drop(ring);
                let socket = socket.try_clone().unwrap();
                ring = Ring::map(socket, Geometry::FLOWS, Past::Own).unwrap();
            }
        }
        assert_eq!((seen, ring.take_dropped()), (sent, 0));
        assert!(overtook > 1_000, "only {overtook} were overtaken");
    });
}
