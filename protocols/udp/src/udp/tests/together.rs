//! Two stacks, and hostile input.
use super::*;

#[test]
fn two_stacks_talk_to_each_other() {
    for (ours, theirs, any) in [(A, B, ANY), (A6, B6, ANY6)] {
        let mut worlds = [world(&[ours]), world(&[theirs])];
        let mut stacks = [new_udp(1, 8192), new_udp(2, 8192)];
        let server = bound(&mut stacks[1], &mut worlds[1], at(any, 7), ALONE);
        let client = stacks[0].open().expect("a slot");
        let local = stacks[0].connect(client, Some(at(theirs, 7)), &mut worlds[0]);
        let local = local.expect("a route");
        for len in [0, 1, 2, 999, 1472, 3001] {
            let payload: Vec<u8> = (0..len).map(|i| i as u8).collect();
            send(&stacks[0], client, at(any, 0), &payload);
            request(&mut stacks[0], &mut worlds[0], UdpRequest::Sent(client));
            carry(&mut stacks, &mut worlds, 0);
            let [(header, data)] = &received(&stacks[1], server)[..] else {
                panic!("one datagram of {len} bytes");
            };
            assert_eq!(
                (header.remote, header.local, data),
                (local, theirs, &payload)
            );
            // Back to whom it came from, as a server does.
            send(&stacks[1], server, header.remote, data);
            request(&mut stacks[1], &mut worlds[1], UdpRequest::Sent(server));
            carry(&mut stacks, &mut worlds, 1);
            let [(header, data)] = &received(&stacks[0], client)[..] else {
                panic!("one answer of {len} bytes");
            };
            assert_eq!((header.remote, data), (at(theirs, 7), &payload));
        }
    }
}

/// Hands what stack `from` sent to the other one.
fn carry(stacks: &mut [Udp; 2], worlds: &mut [World; 2], from: usize) {
    for wire in std::mem::take(&mut worlds[from].sent) {
        let packet = packet(wire.to.source, wire.to.destination, &wire.bytes);
        handle(
            &mut stacks[1 - from],
            &mut worlds[1 - from],
            UdpInput::Packet(packet),
        );
        assert!(!stacks[1 - from].take_unreachable());
    }
}

#[test]
fn random_input_from_all_sides_never_panics() {
    let addresses = [A, B, ANY, A6, B6, ANY6, [224, 0, 0, 1].into()];
    for seed in 0..40u64 {
        let mut world = world(&[A, A6]);
        let mut udp = new_udp(seed, 4096);
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = move |bound: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 16) as usize % bound
        };
        for _ in 0..1_000 {
            let id = SocketId {
                slot: next(9) as u32,
                generation: next(4) as u32,
            };
            let mut endpoint = || at(addresses[next(7)], [0, 1, 53, 54, 40_000][next(5)]);
            let (here, there) = (endpoint(), endpoint());
            match next(10) {
                0 => drop(udp.open()),
                1 => drop(udp.bind(id, here, [ALONE, REUSE, SHARED][next(3)], &mut world)),
                2 => drop(udp.connect(id, (next(4) > 0).then_some(there), &mut world)),
                3 => request(&mut udp, &mut world, UdpRequest::Close(id)),
                4 => request(&mut udp, &mut world, UdpRequest::Sent(id)),
                5 if id.slot < 8 => {
                    let garbage: Vec<u8> = (0..next(200)).map(|_| next(8) as u8).collect();
                    let ring = udp.table().send_ring(id.slot);
                    ring.write(&garbage);
                    if next(5) == 0 {
                        ring.advance_tail(next(1 << 20));
                    }
                }
                6 if id.slot < 8 => {
                    let ring = DatagramRing::new(udp.table().send_ring(id.slot));
                    let header = DatagramHeader {
                        segment_bytes: next(3) as u16,
                        ..DatagramHeader::new(there, here.addr)
                    };
                    let _ = ring.push_with(&header, &[&[1; 7]]);
                }
                7 => {
                    let mut bytes = datagram(there, here, &vec![9; next(30)]);
                    if next(2) == 0 {
                        bytes.truncate(next(bytes.len() + 1));
                    } else {
                        let index = next(bytes.len());
                        bytes[index] = next(256) as u8;
                    }
                    let mut packet = packet(there.addr, here.addr, &bytes);
                    packet.segment_bytes = [0, 1, 9][next(3)];
                    packet.checksum = [RxChecksum::Verified, RxChecksum::Unverified][next(2)];
                    handle(&mut udp, &mut world, UdpInput::Packet(packet));
                }
                8 => world.room = next(5),
                _ => {
                    world.event_room = next(5);
                    let _ = udp.poll(NOW, &mut world);
                }
            }
        }
        // Whatever happened, all of it can be cleaned up.
        world.room = usize::MAX;
        world.event_room = usize::MAX;
        for slot in 0..8 {
            let generation = udp
                .table()
                .record(slot)
                .generation
                .load(std::sync::atomic::Ordering::Relaxed);
            let id = SocketId { slot, generation };
            request(&mut udp, &mut world, UdpRequest::Close(id));
        }
        let mut polls = 0;
        while udp.poll(NOW, &mut world) == Progress::More {
            polls += 1;
            assert!(polls < 100);
        }
        assert!(
            world.ports.values().all(|uses| *uses == (0, 0)),
            "{:?}",
            world.ports
        );
        assert_eq!((0..8).filter(|_| udp.open().is_ok()).count(), 8);
    }
}
