use crate::harness::{Net, SHARED};
use crate::state::State;
use skink_memory::{Parcel, SocketId};
use skink_messages::Counter;

/// One process's stack, at whose listener three wait: two established, one of which has sent ten bytes, and one in its handshake.
/// Others listen on the port as well.
fn some_wait() -> (Net, SocketId) {
    let mut net = Net::new();
    net.tcp.set_hands_over();
    net.out.others = vec![80];
    net.out.users = vec![80];
    let listener = net.listen_in(0, 80, 10, SHARED);
    for port in [1, 2, 3] {
        net.remote_port = port;
        net.inject("S 0 win 60000 mss 1000");
        if port < 3 {
            net.inject(". 1 ack 1 win 60000");
        }
        if port == 1 {
            net.inject(". 1:11 ack 1 win 60000");
        }
    }
    net.drain();
    (net, listener)
}

/// What leaves a stack when it is closed, and the other stack, which has been told nothing yet.
fn closed() -> (Net, Net, Vec<Parcel>) {
    let (mut net, listener) = some_wait();
    net.close(listener);
    net.expect_nothing();
    let parcels: Vec<Parcel> = core::iter::from_fn(|| net.tcp.take_parcel()).collect();
    assert_eq!(net.count(Counter::TcpMoved), parcels.len() as u64);
    let heir = net.other();
    (net, heir, parcels)
}

fn take_in(net: &mut Net, parcel: &Parcel) -> bool {
    // As it travels.
    let parcel = Parcel::from_bytes(&parcel.to_bytes()).expect("it is whole");
    let taken = net.tcp.take_in(net.now, &parcel, &mut net.out);
    net.run();
    taken
}

#[test]
fn what_waits_at_a_closed_listener_goes_to_another_stack() {
    let (_, mut heir, parcels) = closed();
    assert_eq!(parcels.len(), 3);
    let listener = heir.listen_in(0, 80, 10, SHARED);
    for parcel in &parcels {
        assert!(take_in(&mut heir, parcel));
    }
    while let Some(sent) = heir.next() {
        assert!(!sent.to_string().starts_with('R'), "{sent}");
    }
    // The handshake goes on there.
    heir.remote_port = 3;
    heir.inject(". 1 ack 1 win 60000");
    for (port, bytes) in [(1, 10), (2, 0), (3, 0)] {
        let id = heir.tcp.accept(listener).expect("it waits");
        let tuple = heir.tcp.table().record(id.slot).four_tuple();
        assert_eq!(
            (tuple.remote.port, heir.state(id)),
            (port, State::Established)
        );
        heir.remote_port = port;
        assert_eq!(heir.read(id, 100), bytes);
        heir.drain();
        heir.inject(&format!(". {}:{} ack 1 win 60000", bytes + 1, bytes + 6));
        assert_eq!(heir.read(id, 100), 5);
        heir.write(id, 7);
        heir.drain();
        heir.inject(&format!(". {} ack 8 win 60000", bytes + 6));
        assert_eq!(heir.connection(id).flight(), 0, "the numbers are the same");
    }
}

#[test]
fn its_segments_are_left_unanswered_until_they_go_there() {
    let (mut net, _, _) = closed();
    net.remote_port = 1;
    for text in [
        ". 11:21 ack 1",
        "F. 11 ack 1",
        "R. 11 ack 1",
        "S 0 win 60000",
    ] {
        net.inject(text);
        net.expect_nothing();
    }
    assert_eq!(net.out.uses.get(&80), Some(&3), "no other stack gets them");
    net.out.users.clear();
    net.advance(1_001);
    assert_eq!(net.out.uses.get(&80), Some(&0));
    net.inject(". 11:21 ack 1");
    net.expect("R 1");
}

#[test]
fn a_connection_that_nobody_can_take_is_reset() {
    // Nobody listens there any more.
    let (_, mut heir, parcels) = closed();
    assert!(!take_in(&mut heir, &parcels[0]));
    heir.remote_port = 1;
    heir.expect("R. 1");
    heir.expect_nothing();
    assert_eq!(heir.out.uses.get(&80).copied().unwrap_or(0), 0);
    // Nobody else listens when it is closed, or nobody would fetch it.
    for enabled in [false, true] {
        let (mut net, listener) = some_wait();
        if enabled {
            net.out.others.clear();
        } else {
            net.tcp.handed_over.enabled = false;
        }
        net.close(listener);
        assert_eq!(net.tcp.take_parcel(), None);
        net.remote_port = 1;
        let resets =
            core::iter::from_fn(|| net.next()).filter(|it| it.to_string().starts_with('R'));
        assert!(resets.count() >= 2);
    }
}

#[test]
fn what_the_program_has_taken_stays() {
    let (mut net, listener) = some_wait();
    let offered = net.tcp.offer(listener).expect("one waits");
    assert!(net.tcp.table().take_offer(offered));
    net.close(listener);
    let parcels: Vec<Parcel> = core::iter::from_fn(|| net.tcp.take_parcel()).collect();
    assert_eq!(parcels.len(), 2);
    assert_eq!(net.state(offered), State::Established);
}

#[test]
fn a_parcel_that_makes_no_sense_is_refused() {
    let (_, _, parcels) = closed();
    let bytes = parcels[0].to_bytes();
    // (The harness has one peer.)
    let remote_address = 36..52;
    for place in (0..bytes.len()).filter(|place| !remote_address.contains(place)) {
        for bit in [0, 3, 7] {
            let mut bytes = bytes.clone();
            bytes[place] ^= 1 << bit;
            let Some(parcel) = Parcel::from_bytes(&bytes) else {
                continue;
            };
            let mut heir = Net::new();
            heir.listen_in(0, 80, 10, SHARED);
            heir.tcp.take_in(heir.now, &parcel, &mut heir.out);
            heir.run();
        }
    }
}
