//! Close, and what a successor finds.
use super::*;

#[test]
fn a_closed_socket_sends_its_rest_and_is_gone() {
    let mut world = world(&[A]);
    let mut udp = new_udp(1, 16_384);
    let id = bound(&mut udp, &mut world, at(A, 53), ALONE);
    arrive(&mut udp, &mut world, at(B, 9), at(A, 53), b"x");
    for index in 0..100 {
        send(&udp, id, at(B, 9), &[index]);
    }
    world.room = 0;
    request(&mut udp, &mut world, UdpRequest::Close(id));
    request(&mut udp, &mut world, UdpRequest::Close(id));
    request(&mut udp, &mut world, UdpRequest::Sent(id));
    arrive(&mut udp, &mut world, at(B, 9), at(A, 53), b"x");
    assert!(udp.take_unreachable(), "deaf at once");
    let next = bound(&mut udp, &mut world, at(A, 53), ALONE);
    assert_ne!(next.slot, id.slot);
    world.room = usize::MAX;
    while udp.poll(NOW, &mut world) == Progress::More {}
    assert_eq!(world.sent.len(), 100);
    assert!(udp.table().find(id).is_none());
    assert_eq!(world.port(53), (1, 1), "the other socket's");
    assert!(world.events.is_empty(), "no event of a closed socket");
    let reopened = udp.open().expect("a slot");
    assert_eq!(reopened.slot, id.slot);
    assert_ne!(reopened.generation, id.generation);
    request(&mut udp, &mut world, UdpRequest::Close(id));
    assert!(
        udp.table().find(reopened).is_some(),
        "an old id is harmless"
    );
}

#[test]
fn a_program_that_goes_on_filling_a_closed_socket_does_not_keep_it() {
    let mut world = world(&[A]);
    let mut udp = new_udp(1, 4096);
    let id = bound(&mut udp, &mut world, at(A, 53), ALONE);
    send(&udp, id, at(B, 9), b"x");
    world.room = 0;
    request(&mut udp, &mut world, UdpRequest::Close(id));
    let mut polls = 0;
    while udp.table().find(id).is_some() {
        while DatagramRing::new(udp.table().send_ring(0))
            .push(at(B, 9), ANY, 0, &[])
            .is_ok()
        {}
        world.room = 1000;
        udp.poll(NOW, &mut world);
        polls += 1;
        assert!(polls < 10);
    }
}

#[test]
fn a_successor_takes_over() {
    let mut world = world(&[A, A6]);
    let mut first = new_udp(1, 4096);
    let plain = bound(&mut first, &mut world, at(A, 53), REUSE);
    let connected = bound(&mut first, &mut world, at(ANY, 54), ALONE);
    first
        .connect(connected, Some(at(B, 9)), &mut world)
        .expect("a route");
    let automatic = first.open().expect("a slot");
    let local = first.connect(automatic, Some(at(B6, 9)), &mut world);
    let local = local.expect("a route");
    let unbound = first.open().expect("a slot");
    let closed = first.open().expect("a slot");
    request(&mut first, &mut world, UdpRequest::Close(closed));
    let spoilt = bound(&mut first, &mut world, at(A, 55), ALONE);
    let tuple = skink_wire::FourTuple::new(at(B, 55), at(ANY, 0));
    first.table().record(spoilt.slot).set_four_tuple(&tuple);
    let closing = bound(&mut first, &mut world, at(A, 56), ALONE);
    send(&first, closing, at(B, 9), b"last words");
    world.room = 0;
    request(&mut first, &mut world, UdpRequest::Close(closing));
    arrive(&mut first, &mut world, at(B, 1), at(A, 53), b"before");
    send(&first, connected, at(ANY, 0), b"unsent");
    let (table, counters) = (first.table().clone(), first.counters.clone());
    drop(first);

    let mut world = self::world(&[A, A6]);
    let (mut next, adopted) = adopt(&table, counters, &mut world);
    assert_eq!((adopted.sockets, adopted.given_up), (5, 1));
    while next.poll(NOW, &mut world) == Progress::More {}
    assert!(next.table().find(closing).is_none());
    let error = &next.table().find(spoilt).expect("still open").error;
    assert_eq!(error.load(Relaxed), SocketError::Reset as u32);
    let sent: Vec<&[u8]> = world.sent.iter().map(|wire| &wire.bytes[8..]).collect();
    assert_eq!(sent, [&b"unsent"[..], b"last words"]);
    let events = world.take_events();
    assert!(events.contains(&(plain.slot, Events::READABLE | Events::WRITABLE)));
    let failed = Events::ERROR | Events::READABLE | Events::WRITABLE;
    assert!(events.contains(&(spoilt.slot, failed)));
    request(&mut next, &mut world, UdpRequest::Close(spoilt));
    assert!(next.table().find(spoilt).is_none());
    arrive(&mut next, &mut world, at(B, 1), at(A, 53), b"after");
    assert_eq!(received(&next, plain).len(), 2);
    arrive(&mut next, &mut world, at(B, 9), at(A, 54), b"x");
    arrive(&mut next, &mut world, at(B, 8), at(A, 54), b"not its peer");
    assert!(next.take_unreachable());
    assert_eq!(received(&next, connected).len(), 1);
    arrive(&mut next, &mut world, at(B6, 9), local, b"x");
    assert_eq!(received(&next, automatic).len(), 1);
    assert_eq!(next.connect(connected, None, &mut world), Ok(at(ANY, 54)));
    assert_eq!(next.connect(automatic, None, &mut world), Ok(at(ANY6, 0)));
    assert_eq!(world.port(local.port), (0, 0));
    let shared = bound(&mut next, &mut world, at(A, 53), REUSE);
    assert!(![plain, connected, automatic, unbound].contains(&shared));
    next.bind(unbound, at(A, 57), ALONE, &mut world)
        .expect("still open");
}

#[test]
fn a_successor_finds_calls_and_changes_that_were_under_way() {
    let mut world = world(&[A, A6]);
    let mut first = new_udp(1, 4096);
    let opened = first.open_for(0, 41).expect("a slot");
    let bound = bound(&mut first, &mut world, at(ANY6, 55), ALONE);
    first.note_call(bound, 42);
    let peer = at(B6, 9);
    let connected = first.connect(bound, Some(peer), &mut world);
    assert_eq!(connected, Ok(at(A6, 55)));
    // Opened, and not known to anybody yet.
    let unknown = first.open().expect("a slot");
    first.table().record(unknown.slot).holder.store(0, Relaxed);
    let counters = first.counters.clone();
    let (next, adopted) = adopt(first.table(), counters.clone(), &mut world);
    assert_eq!((adopted.sockets, adopted.given_up), (2, 0));
    assert_eq!(next.opened(0, 41), Some(opened));
    assert_eq!((next.opened(0, 43), next.opened(0, 0)), (None, None));
    assert!(next.was_called(bound, 42) && !next.was_called(bound, 41));
    assert_eq!(next.connected_to(bound), Some((at(A6, 55), peer)));
    assert!(next.table().find(unknown).is_none());
    // Words of an address are stored one after the other: what it was bound to counts.
    let record = next.table().record(bound.slot);
    record.local_address[0].store(0, Relaxed);
    let (next, adopted) = adopt(next.table(), counters, &mut world);
    assert_eq!((adopted.sockets, adopted.given_up), (2, 0));
    assert_eq!(next.bound_to(bound), Some(at(ANY6, 55)));
}

#[test]
fn an_error_that_was_told_is_not_told_again_by_a_successor() {
    for told in [true, false] {
        let mut world = world(&[A]);
        let mut udp = new_udp(1, 4096);
        let id = bound(&mut udp, &mut world, at(ANY, 53), ALONE);
        udp.connect(id, Some(at(B, 9)), &mut world)
            .expect("a route");
        let report = NetworkError {
            kind: ErrorKind::PortUnreachable,
            protocol: 17,
            local: at(A, 53),
            remote: at(B, 9),
            sequence: 0,
        };
        handle(&mut udp, &mut world, UdpInput::Error(report));
        if told {
            udp.poll(NOW, &mut world);
            assert_eq!(world.take_events(), [(id.slot, Events::ERROR)]);
        }
        let (table, counters) = (udp.table().clone(), udp.counters.clone());
        drop(udp);
        let (mut next, _) = adopt(&table, counters, &mut world);
        while next.poll(NOW, &mut world) == Progress::More {}
        let events = world.take_events();
        let again = events.iter().any(|(_, it)| it.contains(Events::ERROR));
        assert_eq!(again, !told);
    }
}

/// What the predecessor stores first when a connection is dissolved is our end.
#[test]
fn a_connection_that_was_being_dissolved_is_dissolved() {
    let mut world = world(&[A]);
    let mut udp = new_udp(1, 4096);
    let id = bound(&mut udp, &mut world, at(ANY, 53), ALONE);
    udp.connect(id, Some(at(B, 9)), &mut world)
        .expect("a route");
    for word in &udp.table().record(id.slot).local_address {
        word.store(0, Relaxed);
    }
    let (table, counters) = (udp.table().clone(), udp.counters.clone());
    drop(udp);
    let (next, adopted) = adopt(&table, counters, &mut world);
    assert_eq!((adopted.sockets, adopted.given_up), (1, 0));
    assert_eq!(next.bound_to(id), Some(at(ANY, 53)));
}
