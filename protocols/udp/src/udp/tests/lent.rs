//! Datagrams that stay in their ring until they have left.
use super::*;

fn left(udp: &mut Udp, world: &mut World, lent: Lent) {
    handle(udp, world, UdpInput::Left(lent));
}

fn filled(udp: &Udp, id: SocketId) -> usize {
    DatagramRing::new(udp.table().send_ring(id.slot)).filled()
}

/// A socket that has sent ten datagrams of ten bytes, all of which are lent.
fn ten(world: &mut World) -> (Udp, SocketId) {
    world.lends = true;
    let mut udp = new_udp(1, 8192);
    let id = bound(&mut udp, world, at(ANY, 100), ALONE);
    for index in 0..10 {
        send(&udp, id, at(B, 9), &[index; 10]);
    }
    request(&mut udp, world, UdpRequest::Sent(id));
    assert_eq!((world.sent.len(), world.lent.len()), (10, 10));
    (udp, id)
}

const ENTRY: usize = 64;

#[test]
fn room_is_free_in_the_order_of_the_ring() {
    let mut world = world(&[A]);
    let (mut udp, id) = ten(&mut world);
    assert_eq!(filled(&udp, id), 10 * ENTRY);
    let lent = world.lent.clone();
    for (index, rest) in [(1, 10), (3, 10), (0, 8), (2, 6), (9, 6), (4, 5)] {
        left(&mut udp, &mut world, lent[index]);
        assert_eq!(filled(&udp, id), rest * ENTRY, "{index}");
    }
    udp.poll(NOW, &mut world);
    assert_eq!(world.take_events(), [(id.slot, Events::WRITABLE)]);
    // What comes behind is sent meanwhile.
    send(&udp, id, at(B, 9), &[10; 10]);
    request(&mut udp, &mut world, UdpRequest::Sent(id));
    assert_eq!(world.sent.len(), 11);
    for index in [5, 6, 7, 8, 10] {
        let lent = world.lent[index];
        left(&mut udp, &mut world, lent);
    }
    assert_eq!((filled(&udp, id), udp.lent()), (0, 0));
}

/// One that can't be sent, behind others that are on their way, goes with them.
#[test]
fn a_bad_datagram_waits_for_those_before_it() {
    let mut world = world(&[A]);
    let (mut udp, id) = ten(&mut world);
    send(&udp, id, at(B, 0), &[1; 10]);
    send(&udp, id, at(B, 9), &[2; 10]);
    request(&mut udp, &mut world, UdpRequest::Sent(id));
    assert_eq!((world.sent.len(), filled(&udp, id)), (11, 12 * ENTRY));
    for lent in world.lent.clone() {
        left(&mut udp, &mut world, lent);
    }
    assert_eq!(filled(&udp, id), 0);
}

#[test]
fn a_new_network_gets_all_of_it_again() {
    let mut world = world(&[A]);
    let (mut udp, id) = ten(&mut world);
    let lent = std::mem::take(&mut world.lent);
    left(&mut udp, &mut world, lent[0]);
    request(&mut udp, &mut world, UdpRequest::Close(id));
    udp.network_restarted();
    udp.poll(NOW, &mut world);
    let payloads: Vec<u8> = world.sent[10..].iter().map(|wire| wire.bytes[8]).collect();
    assert_eq!(payloads, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert!(udp.table().find(id).is_some());
    for lent in std::mem::take(&mut world.lent) {
        left(&mut udp, &mut world, lent);
    }
    assert!(udp.table().find(id).is_none());
}

/// So does a successor; no word for its predecessor means anything to it that it would lose something by.
#[test]
fn a_successor_sends_all_of_it_again() {
    let mut world = world(&[A]);
    let (udp, id) = ten(&mut world);
    world.lent.clear();
    let counters = Counters::create().expect("a small mapping");
    let (mut next, _) = adopt(udp.table(), counters, &mut world);
    next.poll(NOW, &mut world);
    assert_eq!(world.sent.len(), 20);
    for lent in std::mem::take(&mut world.lent) {
        left(&mut next, &mut world, lent);
    }
    assert_eq!(filled(&next, id), 0);
}

/// A program that writes whatever it likes into its ring harms nobody else, and its socket can end.
#[test]
fn a_ring_that_is_spoilt_meanwhile_is_given_up() {
    for seed in 0..500u64 {
        let mut world = world(&[A]);
        let (mut udp, id) = ten(&mut world);
        let other = bound(&mut udp, &mut world, at(ANY, 101), ALONE);
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        for _ in 0..40 {
            match next(4) {
                0 => spoil(&udp, id, next(30) * ENTRY as u64),
                1 => request(&mut udp, &mut world, UdpRequest::Sent(id)),
                2 if !world.lent.is_empty() => {
                    let at = next(world.lent.len() as u64) as usize;
                    let lent = world.lent.swap_remove(at);
                    left(&mut udp, &mut world, lent);
                }
                _ => {
                    udp.poll(NOW, &mut world);
                }
            }
        }
        request(&mut udp, &mut world, UdpRequest::Close(id));
        for _ in 0..1000 {
            udp.poll(NOW, &mut world);
            // As long as somebody may read what it had, nobody else gets the slot.
            assert_eq!(udp.lent() as usize, world.lent.len(), "seed {seed}");
            assert!(udp.lent() == 0 || udp.table().find(id).is_some());
            for lent in std::mem::take(&mut world.lent) {
                left(&mut udp, &mut world, lent);
            }
        }
        assert!(udp.table().find(id).is_none(), "seed {seed}");
        let sent = world.sent.len();
        send(&udp, other, at(B, 9), &[7; 10]);
        request(&mut udp, &mut world, UdpRequest::Sent(other));
        assert_eq!(world.sent.len(), sent + 1, "seed {seed}");
    }
}

/// Moves the end that the program can write, forth and back.
fn spoil(udp: &Udp, id: SocketId, by: u64) {
    let ring = udp.table().send_ring(id.slot);
    ring.advance_tail((by as usize).wrapping_sub(15 * ENTRY));
}
