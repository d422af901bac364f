//! Several programs, each with a region.
use super::*;
use skink_memory::Region;

fn region(sockets: u32) -> Region {
    let config = TableConfig {
        sockets,
        send_bytes: 4096,
        receive_bytes: 4096,
    };
    Region::create("test", config).expect("a region")
}

fn bound_in(
    udp: &mut Udp,
    world: &mut World,
    region: u32,
    local: Endpoint,
    sharing: BindOptions,
) -> SocketId {
    let id = udp.open_in(region).expect("a slot");
    udp.bind(id, local, sharing, world).expect("free");
    id
}

#[test]
fn sockets_are_in_the_region_of_their_program() {
    let mut world = world(&[A]);
    let mut udp = new_udp(1, 4096);
    udp.add_region(1, region(1)).expect("room");
    udp.add_region(2, region(8)).expect("room");
    assert!(
        udp.add_region(3, region(9)).is_err(),
        "larger than the stride"
    );
    for region in 0..3 {
        let port = 53 + region as u16;
        let id = bound_in(&mut udp, &mut world, region, at(A, port), ALONE);
        assert_eq!(udp.table().region_of(id.slot), region);
        arrive(&mut udp, &mut world, at(B, 9), at(A, port), b"x");
        assert_eq!(received(&udp, id).len(), 1);
        send(&udp, id, at(B, 9), b"y");
        request(&mut udp, &mut world, UdpRequest::Sent(id));
        udp.poll(NOW, &mut world);
        assert_eq!(world.sent.len(), region as usize + 1);
        assert_eq!(world.take_events()[0].0, id.slot);
    }
    assert_eq!(udp.open_in(1), Err(SocketError::NoBuffers));
    assert_eq!(udp.open_in(3), Err(SocketError::NoBuffers));
    assert!(udp.open().is_ok() && udp.open_in(2).is_ok());
}

#[test]
fn a_dead_programs_sockets_send_their_rest_and_are_gone() {
    let mut world = world(&[A]);
    let mut udp = new_udp(1, 4096);
    udp.add_region(1, region(8)).expect("room");
    let other = bound(&mut udp, &mut world, at(A, 53), ALONE);
    let id = bound_in(&mut udp, &mut world, 1, at(A, 54), ALONE);
    let closed = bound_in(&mut udp, &mut world, 1, at(A, 55), ALONE);
    let unbound = udp.open_in(1).expect("a slot");
    world.room = 0;
    for socket in [id, closed] {
        send(&udp, socket, at(B, 9), b"last words");
        request(&mut udp, &mut world, UdpRequest::Sent(socket));
    }
    request(&mut udp, &mut world, UdpRequest::Close(closed));
    arrive(&mut udp, &mut world, at(B, 9), at(A, 53), b"x");
    arrive(&mut udp, &mut world, at(B, 9), at(A, 54), b"x");
    udp.abandon_region(NOW, 1, &mut world);
    udp.abandon_region(NOW, 1, &mut world);
    udp.abandon_region(NOW, 7, &mut world);
    assert_eq!(udp.open_in(1), Err(SocketError::NoBuffers));
    assert!(udp.table().find(unbound).is_none());
    assert_eq!(udp.take_finished_region(), None);
    arrive(&mut udp, &mut world, at(B, 9), at(A, 54), b"x");
    assert!(udp.take_unreachable(), "deaf at once");
    world.room = usize::MAX;
    while udp.poll(NOW, &mut world) == Progress::More {}
    assert_eq!(world.sent.len(), 2);
    assert_eq!(world.take_events(), [(other.slot, Events::READABLE)]);
    assert_eq!([world.port(54), world.port(55)], [(0, 0); 2]);
    assert_eq!(udp.take_finished_region(), Some(1));
    assert_eq!(udp.take_finished_region(), None);
    assert!(udp.table().region(1).is_none());
    // The neighbour noticed nothing, and the next program gets the index.
    assert_eq!(received(&udp, other).len(), 1);
    request(&mut udp, &mut world, UdpRequest::Sent(id));
    udp.add_region(1, region(2)).expect("room");
    let next = bound_in(&mut udp, &mut world, 1, at(A, 54), ALONE);
    arrive(&mut udp, &mut world, at(B, 9), at(A, 54), b"x");
    assert_eq!(received(&udp, next).len(), 1);
}

#[test]
fn a_region_without_sockets_is_finished_at_once() {
    let mut world = world(&[A]);
    let mut udp = new_udp(1, 4096);
    udp.add_region(1, region(8)).expect("room");
    udp.abandon_region(NOW, 1, &mut world);
    assert_eq!(udp.take_finished_region(), Some(1));
}

#[test]
fn programs_that_may_share_an_address_share_its_flows() {
    let mut world = world(&[A]);
    let mut udp = new_udp(1, 8192);
    for index in 1..3 {
        udp.add_region(index, region(8)).expect("room");
    }
    let ids = [0, 1, 2].map(|region| bound_in(&mut udp, &mut world, region, at(ANY, 53), SHARED));
    let id = udp.open_in(1).expect("a slot");
    let refused = udp.bind(id, at(A, 53), REUSE, &mut world);
    assert_eq!(refused, Err(SocketError::AddressInUse));
    for port in 1..=60 {
        arrive(&mut udp, &mut world, at(B, port), at(A, 53), b"x");
    }
    let shares = counts(&udp, &ids);
    assert_eq!(shares.iter().sum::<usize>(), 60);
    assert!(shares.iter().all(|count| *count > 5), "{shares:?}");
    udp.abandon_region(NOW, 1, &mut world);
    for port in 1..=60 {
        arrive(&mut udp, &mut world, at(B, port), at(A, 53), b"x");
    }
    assert_eq!(counts(&udp, &[ids[0], ids[2]]).iter().sum::<usize>(), 60);
}

#[test]
fn a_successor_takes_over_all_programs() {
    let mut world = world(&[A]);
    let mut first = new_udp(1, 4096);
    for index in 1..3 {
        first.add_region(index, region(4)).expect("room");
    }
    first.abandon_region(NOW, 1, &mut world);
    assert_eq!(first.take_finished_region(), Some(1));
    let alone = bound(&mut first, &mut world, at(A, 54), ALONE);
    let shared = bound_in(&mut first, &mut world, 2, at(A, 53), SHARED);
    let (table, counters) = (first.table().clone(), first.counters.clone());
    drop(first);
    let mut world = self::world(&[A]);
    let (mut next, _) = adopt(&table, counters, &mut world);
    for (id, port) in [(alone, 54), (shared, 53)] {
        arrive(&mut next, &mut world, at(B, 9), at(A, port), b"x");
        assert_eq!(received(&next, id).len(), 1);
    }
    // What may be shared still may.
    let beside = bound(&mut next, &mut world, at(A, 53), SHARED);
    assert_ne!(beside.slot, shared.slot);
    assert_eq!(next.open_in(1), Err(SocketError::NoBuffers));
    next.add_region(1, region(4)).expect("room");
    next.abandon_region(NOW, 2, &mut world);
    while next.poll(NOW, &mut world) == Progress::More {}
    assert_eq!(next.take_finished_region(), Some(2));
}

/// A predecessor died while it closed more sockets than have their memory given back in one turn: none of their slots is used
/// before, which would cost the next socket what it received.
#[test]
fn slots_that_nobody_holds_are_used_only_when_their_memory_is_given_back() {
    const BYTES: u32 = 1 << 17;
    let config = TableConfig {
        sockets: 64,
        send_bytes: BYTES,
        receive_bytes: BYTES,
    };
    let region = Region::create("test", config).expect("a region");
    for slot in 0..64 {
        region.open_slot(slot, skink_memory::SocketKind::Udp);
        region.receive_ring(slot).write(&[7; 100_000]);
    }
    let counters = Counters::create().expect("memory");
    let mut udp = Udp::new(1, SocketTable::new(64), counters);
    let mut world = world(&[A]);
    let adopted = udp.adopt_region(NOW, 0, region, &mut world);
    assert_eq!(adopted.expect("a free index"), Adopted::default());
    let opened: Vec<SocketId> = std::iter::from_fn(|| udp.open().ok()).collect();
    assert!(!opened.is_empty());
    let fill = vec![9; 100_000];
    for id in &opened {
        let ring = udp.table().receive_ring(id.slot);
        assert_eq!(ring.write(&fill), fill.len());
    }
    while udp.poll(NOW, &mut world) == Progress::More {}
    for id in &opened {
        let mut read = vec![0; fill.len()];
        let ring = udp.table().receive_ring(id.slot);
        assert_eq!(ring.read(&mut read), fill.len());
        assert_eq!(read, fill, "{id:?}");
    }
    assert_eq!(
        std::iter::from_fn(|| udp.open().ok()).count(),
        64 - opened.len()
    );
}

/// A predecessor died before it gave back the memory of sockets that it had closed.
#[test]
fn memory_of_closed_sockets_is_given_back_by_a_successor() {
    let config = TableConfig {
        sockets: 64,
        send_bytes: 1 << 17,
        receive_bytes: 1 << 17,
    };
    let region = Region::create("test", config).expect("a region");
    for slot in 0..64 {
        region.open_slot(slot, skink_memory::SocketKind::Udp);
        region.receive_ring(slot).write(&[7; 100_000]);
        assert!(region.close_slot(slot));
    }
    let held = || {
        let [_, _, receive_rings] = region.files();
        let fd = receive_rings.try_clone_to_owned();
        let file = std::fs::File::from(fd.expect("a descriptor"));
        let metadata = file.metadata().expect("a memfd");
        std::os::unix::fs::MetadataExt::blocks(&metadata) * 512
    };
    assert!(held() > 6_000_000);
    let counters = Counters::create().expect("memory");
    let mut udp = Udp::new(1, SocketTable::new(64), counters);
    let mut world = world(&[A]);
    let adopted = udp.adopt_region(NOW, 0, region.clone(), &mut world);
    assert_eq!(adopted.expect("a free index"), Adopted::default());
    while udp.poll(NOW, &mut world) == Progress::More {}
    assert!(held() < 100_000, "{}", held());
    assert_eq!(std::iter::from_fn(|| udp.open().ok()).count(), 64);
}

/// A program that sends from many sockets at once, and one that sends a single datagram after that.
#[test]
fn a_program_with_many_datagrams_holds_up_no_other() {
    const EACH: usize = 50;
    // 72 KiB, of which each datagram has its 1,000 bytes and 4 KiB; and that of the other program.
    const IN_A_TURN: usize = 16;
    let mut world = world(&[A]);
    let mut udp = new_udp(1, 65_536);
    let config = TableConfig {
        sockets: 8,
        send_bytes: 65_536,
        receive_bytes: 4096,
    };
    let greedy = Region::create("test", config).expect("a region");
    udp.add_region(1, greedy).expect("room");
    let one = bound(&mut udp, &mut world, at(A, 53), ALONE);
    for port in 100..108 {
        let id = bound_in(&mut udp, &mut world, 1, at(A, port), ALONE);
        for _ in 0..EACH {
            send(&udp, id, at(B, 9), &[7; 1000]);
        }
        request(&mut udp, &mut world, UdpRequest::Sent(id));
    }
    let ahead = world.sent.len();
    assert!(
        ahead <= IN_A_TURN,
        "{ahead} are sent before anybody else is heard"
    );
    send(&udp, one, at(B, 9), b"y");
    request(&mut udp, &mut world, UdpRequest::Sent(one));
    let mut turns = 0;
    while udp.poll(NOW, &mut world) == Progress::More {
        turns += 1;
        let sent = world.sent.len();
        assert!(sent <= ahead + turns * IN_A_TURN, "{sent} in {turns} turns");
    }
    assert_eq!(world.sent.len(), 8 * EACH + 1);
    let first = world
        .sent
        .iter()
        .position(|wire| wire.bytes.ends_with(b"y"));
    assert!(
        first.is_some_and(|first| first <= ahead + IN_A_TURN),
        "{first:?}"
    );
}
