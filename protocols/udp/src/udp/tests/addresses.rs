//! Bind, connect and ports.
use super::*;

#[test]
fn an_address_is_had_once_unless_all_agree() {
    let four = |addr: IpAddr, sharing: BindOptions| (at(addr, 80), sharing);
    let other: IpAddr = [10, 0, 0, 9].into();
    let in_use = Err(SocketError::AddressInUse);
    for (first, second, expected) in [
        (four(A, ALONE), four(A, ALONE), in_use),
        (four(A, REUSE), four(A, ALONE), in_use),
        (four(A, ALONE), four(A, REUSE), in_use),
        (four(A, REUSE), four(A, REUSE), Ok(())),
        (four(ANY, ALONE), four(A, ALONE), in_use),
        (four(A, ALONE), four(ANY, ALONE), in_use),
        (four(ANY, REUSE), four(A, REUSE), Ok(())),
        (four(A, ALONE), four(other, ALONE), Ok(())),
        (four(ANY, ALONE), four(ANY6, ALONE), Ok(())),
        (four(ANY6, ALONE), four(A6, ALONE), in_use),
        (four(A, ALONE), (at(A, 81), ALONE), Ok(())),
        (four(A, SHARED), four(A, SHARED), Ok(())),
        (four(ANY, SHARED), four(A, SHARED), Ok(())),
        (four(A, SHARED), four(A, REUSE), in_use),
        (four(A, REUSE), four(A, SHARED), in_use),
    ] {
        let mut world = world(&[A, A6, other]);
        let mut udp = new_udp(1, 4096);
        bound(&mut udp, &mut world, first.0, first.1);
        let id = udp.open().expect("a slot");
        let bound = udp.bind(id, second.0, second.1, &mut world);
        assert_eq!(bound.map(|_| ()), expected, "{first:?} {second:?}");
        let uses: i32 = world.ports.values().map(|uses| uses.0).sum();
        assert_eq!(uses, 1 + i32::from(expected.is_ok()));
    }
}

#[test]
fn bind_says_what_is_wrong() {
    let mut world = world(&[A]);
    world.foreign = vec![53];
    let mut udp = new_udp(1, 4096);
    let id = udp.open().expect("a slot");
    let foreign = udp.bind(id, at(B, 80), ALONE, &mut world);
    assert_eq!(foreign, Err(SocketError::AddressNotAvailable));
    let taken = udp.bind(id, at(A, 53), ALONE, &mut world);
    assert_eq!(taken, Err(SocketError::AddressInUse));
    assert_eq!(udp.bind(id, at(A, 53), REUSE, &mut world), Ok(at(A, 53)));
    let again = udp.bind(id, at(A, 54), REUSE, &mut world);
    assert_eq!(again, Err(SocketError::Invalid));
    let stale = SocketId {
        generation: id.generation + 1,
        ..id
    };
    let gone = udp.bind(stale, at(A, 54), REUSE, &mut world);
    assert_eq!(gone, Err(SocketError::Invalid));
    for slot in 1..8 {
        assert_eq!(udp.open().expect("a slot").slot, slot);
    }
    assert_eq!(udp.open(), Err(SocketError::NoBuffers));
}

#[test]
fn ephemeral_ports_are_random_free_and_end() {
    let mut ports = Vec::new();
    for seed in 0..4 {
        let mut world = world(&[A]);
        let mut udp = new_udp(seed, 4096);
        for _ in 0..2 {
            let id = udp.open().expect("a slot");
            let local = udp.bind(id, at(A, 0), ALONE, &mut world).expect("free");
            assert!((32_768..=60_999).contains(&local.port));
            assert_eq!(world.port(local.port), (1, 1));
            ports.push(local.port);
        }
    }
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 8);

    let mut world = world(&[A]);
    world.foreign = (32_768..=60_999).filter(|port| *port != 40_000).collect();
    let mut udp = new_udp(3, 4096);
    let id = udp.open().expect("a slot");
    let local = udp.bind(id, at(A, 0), ALONE, &mut world);
    assert_eq!(local, Ok(at(A, 40_000)), "the only one left is found");
    let id = udp.open().expect("a slot");
    let local = udp.bind(id, at(A, 0), ALONE, &mut world);
    assert_eq!(local, Err(SocketError::AddressInUse));
}

#[test]
fn connect_chooses_our_end_and_disconnect_gives_it_back() {
    let unreachable: IpAddr = [203, 0, 113, 1].into();
    for (bind, remote, expected, after) in [
        (None, at(B, 9), Ok(A), at(ANY, 0)),
        (None, at(B6, 9), Ok(A6), at(ANY6, 0)),
        (Some(at(ANY, 700)), at(B, 9), Ok(A), at(ANY, 700)),
        (Some(at(A, 700)), at(B, 9), Ok(A), at(A, 700)),
        (Some(at(ANY, 700)), at(B, 0), Ok(A), at(ANY, 700)),
        (
            Some(at(A, 700)),
            at(B6, 9),
            Err(SocketError::Invalid),
            at(A, 700),
        ),
        (
            None,
            at(unreachable, 9),
            Err(SocketError::NetworkUnreachable),
            at(ANY, 0),
        ),
        (
            None,
            at(ANY, 9),
            Err(SocketError::NetworkUnreachable),
            at(ANY, 0),
        ),
    ] {
        let mut world = world(&[A, A6]);
        let mut udp = new_udp(1, 4096);
        let id = udp.open().expect("a slot");
        if let Some(local) = bind {
            udp.bind(id, local, ALONE, &mut world).expect("free");
        }
        let local = udp.connect(id, Some(remote), &mut world);
        assert_eq!(local.map(|local| local.addr), expected, "{bind:?} {remote}");
        if let Ok(local) = local {
            let record = udp.table().find(id).expect("open").four_tuple();
            assert_eq!((record.local, record.remote), (local, remote));
            assert_eq!(
                world.port(local.port),
                (1, 0),
                "only the peer's are welcome"
            );
            // To another peer: our end stays.
            let again = udp.connect(id, Some(at(remote.addr, 10)), &mut world);
            assert_eq!(again, Ok(local));
            assert_eq!(world.port(local.port), (1, 0));
            arrive(&mut udp, &mut world, at(remote.addr, 9), local, b"old");
            assert!(udp.take_unreachable());
            arrive(&mut udp, &mut world, at(remote.addr, 10), local, b"new");
            assert_eq!(received(&udp, id).len(), 1);
        }
        assert_eq!(udp.connect(id, None, &mut world), Ok(after));
        let uses: i32 = world.ports.values().map(|uses| uses.0).sum();
        let listens: i32 = world.ports.values().map(|uses| uses.1).sum();
        let has = i32::from(bind.is_some());
        assert_eq!((uses, listens), (has, has), "{bind:?} {remote}");
        let record = udp.table().find(id).expect("open").four_tuple();
        assert_eq!(record.local.port, after.port);
        assert_eq!(
            (record.remote.addr.is_unspecified(), record.remote.port),
            (true, 0)
        );
    }
}
