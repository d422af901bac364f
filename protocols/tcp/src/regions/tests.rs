use crate::harness::{LOCAL, Net, REUSE, SHARED, new_region};
use crate::state::State;
use skink_memory::SocketId;
use skink_messages::{Component, Counter, Events, Progress, SocketError};
use skink_wire::Endpoint;
use std::sync::atomic::Ordering::Relaxed;

const PLAIN: &str = "mss 1000 sackok";

fn any(port: u16) -> Endpoint {
    Endpoint::new(core::net::Ipv4Addr::UNSPECIFIED.into(), port)
}

/// A peer's handshake from this port; answers are thrown away.
fn handshake(net: &mut Net, remote_port: u16) {
    net.remote_port = remote_port;
    net.inject(&format!("S 0 win 60000 {PLAIN}"));
    net.inject(". 1 ack 1 win 60000");
    net.drain();
}

/// A connection that the program of `region` accepted, on a port of that region's own.
fn accepted_in(net: &mut Net, region: u32) -> SocketId {
    let listener = net.listen_in(region, 80 + region as u16, 5, REUSE);
    handshake(net, 5_000 + region as u16);
    net.tcp.accept(listener).expect("a connection waits")
}

fn talk_to(net: &mut Net, id: SocketId) {
    let tuple = net.tcp.table().record(id.slot).four_tuple();
    (net.local_port, net.remote_port) = (tuple.local.port, tuple.remote.port);
}

#[test]
fn sockets_are_in_the_region_of_their_program() {
    let mut net = Net::new();
    assert_eq!((net.add_region(2), net.add_region(64)), (1, 2));
    for region in 0..3 {
        let id = accepted_in(&mut net, region);
        assert_eq!(net.tcp.table().region_of(id.slot), region);
        net.write(id, 100);
        net.expect(". 1:101 ack 1");
        net.inject(". 1:51 ack 101 win 60000");
        assert_eq!(net.read(id, 100), 50);
        assert!(net.events(id).contains(Events::READABLE | Events::WRITABLE));
        net.drain();
    }
    // One region is full; the others aren't.
    assert_eq!(net.tcp.open_in(1), Err(SocketError::NoBuffers));
    net.local_port = 81;
    handshake(&mut net, 1);
    assert_eq!(net.count(Counter::TcpDropNoMemory), 1);
    assert!(net.tcp.open_in(2).is_ok() && net.tcp.open().is_ok());
    assert_eq!(net.tcp.open_in(3), Err(SocketError::NoBuffers));
    let large = net.tcp.add_region(3, new_region(65, 4096, 4096));
    assert!(large.is_err(), "larger than the table's stride");
}

#[test]
fn what_a_dead_program_leaves_behind() {
    // (what had happened, what the peer sees at once, what it answers, and what it gets for that)
    type Row<'a> = (&'a str, &'a [&'a str], &'a str, &'a [&'a str]);
    let table: [Row<'_>; 5] = [
        ("nothing", &["F. 1 ack 1"], "F. 1 ack 2", &[". 2 ack 2"]),
        ("unread", &["R. 1 ack 11"], "", &[]),
        (
            "unsent",
            &[". 1:1001 ack 1", ". 1001:2001 ack 1", "F. 2001:2501 ack 1"],
            "F. 1 ack 2502",
            &[". 2502 ack 2"],
        ),
        ("peer left", &["F. 1 ack 2"], ". 2 ack 2", &[]),
        // Closed before: what it does already just goes on.
        ("closed", &[], "F. 1 ack 2", &[". 2 ack 2"]),
    ];
    for (what, seen, answer, last) in table {
        let mut net = Net::new();
        net.add_region(8);
        let other = accepted_in(&mut net, 0);
        let id = accepted_in(&mut net, 1);
        match what {
            "unread" => net.inject(". 1:11 ack 1 win 60000"),
            "unsent" => net.fill(id, 2_500),
            "peer left" => net.inject("F. 1 ack 1 win 60000"),
            "closed" => net.close(id),
            _ => {}
        }
        net.drain();
        net.abandon(1);
        net.expect_all(seen);
        net.expect_nothing();
        let finished = net.tcp.take_finished_region();
        assert_eq!(finished, (what == "unread").then_some(1), "{what}");
        if !answer.is_empty() {
            net.inject(&format!("{answer} win 60000"));
            net.expect_all(last);
            net.expect_nothing();
            // TIME-WAIT doesn't keep it.
            assert_eq!(net.tcp.take_finished_region(), Some(1), "{what}");
        }
        assert!(net.tcp.table().region(1).is_none());
        assert_eq!(net.out.listened.get(&81), Some(&0));
        // The neighbour noticed nothing.
        talk_to(&mut net, other);
        net.inject(". 1:21 ack 1 win 60000");
        assert_eq!(net.read(other, 100), 20);
        assert_eq!(net.events(other), Events::READABLE);
        assert_eq!(net.state(other), State::Established);
        net.advance(200_000);
    }
}

#[test]
fn sockets_of_every_kind_end_with_their_program() {
    let mut net = Net::new();
    net.add_region(16);
    let fresh = net.tcp.open_in(1).expect("a slot");
    let bound = net.tcp.open_in(1).expect("a slot");
    net.tcp
        .bind(bound, any(90), REUSE, &mut net.out)
        .expect("free");
    net.tcp.rest(bound, true).expect("bound");
    let calling = net.tcp.open_in(1).expect("a slot");
    net.connect_from(calling, 7);
    net.expect("S 0");
    let listener = net.listen_in(1, 81, 5, REUSE);
    handshake(&mut net, 1);
    net.remote_port = 2;
    net.inject(&format!("S 0 win 60000 {PLAIN}"));
    net.drain();
    net.abandon(1);
    // The one that waits to be accepted, and the one half-open.
    net.expect_all(&["R. 1 ack 1", "R. 1 ack 1"]);
    net.expect_nothing();
    for id in [fresh, bound, calling, listener] {
        assert!(!net.exists(id));
    }
    assert_eq!(net.tcp.take_finished_region(), Some(1));
    assert_eq!(net.tcp.take_finished_region(), None);
    assert!(net.out.uses.values().all(|uses| *uses == 0));
    // Nothing rests there any more.
    (net.local_port, net.remote_port) = (90, 3);
    net.inject(&format!("S 0 win 60000 {PLAIN}"));
    net.expect("R. 0 ack 1");
    // Requests that were still under way do nothing; another death neither.
    net.close(listener);
    net.abandon(1);
    net.abandon(77);
    assert_eq!(net.tcp.take_finished_region(), None);
    // The next program gets the index, and new sockets.
    assert_eq!(net.add_region(4), 1);
    let id = accepted_in(&mut net, 1);
    assert_eq!(net.tcp.table().region_of(id.slot), 1);
    net.expect_nothing();
}

#[test]
fn listeners_that_others_have_stay_when_their_program_ends() {
    let mut net = Net::new();
    net.tcp.set_hands_over();
    net.add_region(16);
    let staying = net.listen_in(1, 80, 5, SHARED);
    handshake(&mut net, 1);
    let ending = net.listen_in(1, 81, 5, SHARED);
    net.local_port = 81;
    handshake(&mut net, 2);
    let accepted = net.tcp.accept(ending).expect("a connection waits");
    net.tcp.orphan_region(net.now, 1, &[80], &[], &mut net.out);
    net.run();
    // All else ends as ever.
    net.expect("F. 1 ack 1");
    net.inject("F. 1 ack 2 win 60000");
    net.drain();
    assert!(net.exists(staying) && !net.exists(ending) && !net.exists(accepted));
    assert!(net.out.reserved.contains(&80));
    assert_eq!(net.tcp.take_finished_region(), None);
    // Who calls waits with the one before,
    net.local_port = 80;
    handshake(&mut net, 3);
    assert!(net.tcp.take_parcel(net.now).is_none());
    net.advance(1_000);
    net.expect_nothing();
    // and both go to whoever listens, once it is said that nobody need wait here.
    net.out.others = vec![80];
    net.tcp.orphan_region(net.now, 1, &[], &[], &mut net.out);
    net.run();
    net.expect_nothing();
    let leaving = core::iter::from_fn(|| net.tcp.take_parcel(net.now)).count();
    assert_eq!(leaving, 2);
}

#[test]
fn no_event_comes_from_a_dead_program() {
    let mut net = Net::new();
    net.add_region(8);
    let id = accepted_in(&mut net, 1);
    net.out.shut = true;
    net.inject_without_run(". 1:11 ack 1 win 60000");
    let _ = skink_messages::Component::poll(&mut net.tcp, net.now, &mut net.out);
    net.out.events.clear();
    net.tcp.abandon_region(net.now, 1, &mut net.out);
    net.out.shut = false;
    net.run();
    assert_eq!(net.events(id), Events::empty());
    assert!(net.out.events.is_empty());
}

/// Of three connections one with a byte that its peer doesn't acknowledge, and one whose peer hasn't closed, both of dead programs. The third
/// has a program.
#[test]
fn a_stack_that_stops_resets_what_it_can_not_deliver() {
    let mut net = Net::new();
    net.add_region(8);
    let stuck = accepted_in(&mut net, 1);
    net.write(stuck, 1);
    net.expect("P. 1:2 ack 1");
    net.add_region(8);
    let quiet = accepted_in(&mut net, 2);
    net.add_region(8);
    let held = accepted_in(&mut net, 3);
    net.shutdown(held);
    for region in [1, 2] {
        net.abandon(region);
    }
    net.drain();
    for acknowledged in [quiet, held] {
        talk_to(&mut net, acknowledged);
        net.inject(". 1 ack 2 win 60000");
    }
    assert_eq!((net.tcp.unfinished(), net.tcp.half_closed()), (1, 1));
    net.out.shut = true;
    assert_eq!(
        net.tcp.reset_unfinished(net.now, &mut net.out),
        Progress::More
    );
    assert_eq!(net.tcp.unfinished(), 1, "who isn't told is kept");
    net.out.shut = false;
    talk_to(&mut net, stuck);
    assert_eq!(
        net.tcp.reset_unfinished(net.now, &mut net.out),
        Progress::Idle
    );
    net.run();
    net.expect("R. 3 ack 1");
    talk_to(&mut net, quiet);
    net.expect("R. 2 ack 1");
    net.expect_nothing();
    assert_eq!((net.tcp.unfinished(), net.tcp.half_closed()), (0, 0));
}

#[test]
fn a_dead_program_that_spoilt_its_rings_ends_like_others() {
    for position in [1, 1 << 40, u64::MAX] {
        let mut net = Net::new();
        net.spoilt = true;
        net.add_region(8);
        let id = accepted_in(&mut net, 1);
        net.store_receive_head(id, position);
        net.abandon(1);
        // What it said of the ring counts as data that it hasn't read.
        net.expect("R. 1 ack 1");
        assert_eq!(net.tcp.take_finished_region(), Some(1));
    }
}

fn shared_listeners(net: &mut Net, regions: &[u32], backlog: u32) -> Vec<SocketId> {
    let regions = regions.iter();
    regions
        .map(|region| net.listen_in(*region, 80, backlog, SHARED))
        .collect()
}

fn waiting(net: &Net, listeners: &[SocketId]) -> Vec<usize> {
    let ids = listeners.iter();
    ids.map(|id| net.tcp.acceptable(*id)).collect()
}

#[test]
fn listeners_that_may_share_an_end_share_its_flows() {
    let mut net = Net::new();
    net.add_region(64);
    net.add_region(64);
    let listeners = shared_listeners(&mut net, &[0, 1, 2], 100);
    let other = net.tcp.open().expect("a slot");
    let refused = net.tcp.bind(other, any(80), REUSE, &mut net.out);
    assert_eq!(refused, Err(SocketError::AddressInUse));
    (1..50).for_each(|port| handshake(&mut net, port));
    let counts = waiting(&net, &listeners);
    assert_eq!(counts.iter().sum::<usize>(), 49);
    assert!(counts.iter().all(|count| *count > 5), "{counts:?}");
    for (region, listener) in listeners.iter().enumerate() {
        let id = net.tcp.accept(*listener).expect("a connection");
        assert_eq!(net.tcp.table().region_of(id.slot), region as u32);
    }
    // One goes.
    net.abandon(1);
    (100..120).for_each(|port| handshake(&mut net, port));
    let after = waiting(&net, &listeners);
    assert_eq!((after[0] + after[2], after[1]), (49 - 3 + 20, 0));
    assert_eq!(net.out.listened.get(&80), Some(&2));
}

#[test]
fn who_may_listen_where_others_do() {
    // (what the first and the second may share, and where the second listens, whether it may); both are
    // bound before either listens.
    let own = Endpoint::new(LOCAL, 80);
    for (first, second, end, expected) in [
        (SHARED, SHARED, any(80), true),
        (SHARED, SHARED, own, true),
        (REUSE, REUSE, any(80), false),
        // A more exact address must not take another program's connections.
        (REUSE, REUSE, own, false),
    ] {
        let mut net = Net::new();
        net.add_region(8);
        let ids = [0, 1].map(|region| net.tcp.open_in(region).expect("a slot"));
        for (id, end, sharing) in [(ids[0], any(80), first), (ids[1], end, second)] {
            let bound = net.tcp.bind(id, end, sharing, &mut net.out);
            assert_eq!(bound, Ok(end));
        }
        net.tcp.listen(ids[0], 5, &mut net.out).expect("the first");
        let listens = net.tcp.listen(ids[1], 5, &mut net.out);
        let refused = Err(SocketError::AddressInUse);
        let expected = if expected { Ok(end) } else { refused };
        assert_eq!(listens, expected, "{first:?} {second:?} {end}");
    }
}

#[test]
fn flows_go_to_listeners_that_have_room() {
    let mut net = Net::new();
    net.add_region(3);
    net.add_region(64);
    // A backlog of 0 takes one; the second region has two slots left, the third has room.
    let listeners = vec![
        net.listen_in(0, 80, 0, SHARED),
        net.listen_in(1, 80, 100, SHARED),
        net.listen_in(2, 80, 100, SHARED),
    ];
    (1..30).for_each(|port| handshake(&mut net, port));
    assert_eq!(waiting(&net, &listeners), [1, 2, 26]);
    assert_eq!(net.count(Counter::TcpDropListenOverflow), 0);
    // None has: as with one that is full.
    let mut net = Net::new();
    let listeners = shared_listeners(&mut net, &[0, 0], 0);
    (1..30).for_each(|port| handshake(&mut net, port));
    assert_eq!(waiting(&net, &listeners), [1, 1]);
    assert!(net.count(Counter::TcpDropListenOverflow) > 0);
}

#[test]
fn what_waits_goes_to_another_listener_of_the_program() {
    let mut net = Net::new();
    net.add_region(64);
    let listeners = shared_listeners(&mut net, &[0, 0, 1], 100);
    (1..30).for_each(|port| handshake(&mut net, port));
    // Handshakes that aren't complete yet, everywhere.
    let half: Vec<u16> = (100..130).collect();
    for port in &half {
        net.remote_port = *port;
        net.inject(&format!("S 0 win 60000 {PLAIN}"));
    }
    net.drain();
    net.out.events.clear();
    let before = waiting(&net, &listeners);
    net.close(listeners[0]);
    net.expect_nothing();
    let after = waiting(&net, &listeners);
    assert_eq!(after, [0, before[0] + before[1], before[2]]);
    assert!(net.events(listeners[1]).contains(Events::READABLE));
    for port in &half {
        net.remote_port = *port;
        net.inject(". 1 ack 1 win 60000");
    }
    assert_eq!(net.drain(), 0);
    let complete = waiting(&net, &listeners);
    assert_eq!(complete.iter().sum::<usize>(), 59, "none was reset");
    let id = net.tcp.accept(listeners[1]).expect("a connection");
    talk_to(&mut net, id);
    net.inject(". 1:11 ack 1 win 60000");
    assert_eq!(net.read(id, 100), 10);
    net.drain();
    // With too little room the rest goes to another program.
    let third = net.listen_in(0, 80, 1, SHARED);
    let rest = net.tcp.acceptable(listeners[1]);
    net.close(listeners[1]);
    net.drain();
    let after = waiting(&net, &[third, listeners[2]]);
    assert_eq!(after, [2, complete[2] + rest - 2]);
    net.close(third);
    net.drain();
    assert_eq!(net.tcp.acceptable(listeners[2]), complete[2] + rest);
    assert_eq!(net.count(Counter::TcpResetsOut), 0);
    net.advance(200_000);
}

/// One that is established, with these bytes behind its handshake.
fn waits(net: &mut Net, remote_port: u16, bytes: u32) {
    handshake(net, remote_port);
    if bytes > 0 {
        net.inject(&format!(". 1:{} ack 1 win 60000", 1 + bytes));
        net.drain();
    }
}

#[test]
fn what_nobody_accepted_goes_to_another_program_with_all_that_has_come() {
    for ended in ["closed", "dead", "offered and closed", "offered and dead"] {
        let mut net = Net::new();
        let region = net.add_region(8);
        let first = net.listen_in(region, 80, 5, SHARED);
        waits(&mut net, 1, 3_000);
        waits(&mut net, 2, 0);
        net.inject("F. 1 ack 1 win 60000");
        net.drain();
        // A handshake that isn't complete.
        net.remote_port = 3;
        net.inject(&format!("S 0 win 60000 {PLAIN}"));
        net.expect("S. 0 ack 1");
        let heir = net.listen_in(0, 80, 5, SHARED);
        if ended.starts_with("offered") {
            assert!(net.tcp.offer(first).is_some());
            assert_eq!(net.tcp.offered(first), 1);
        }
        match ended.ends_with("closed") {
            true => net.close(first),
            false => net.abandon(region),
        }
        // Each peer is made to say how things stand.
        let said: Vec<String> =
            core::iter::from_fn(|| net.next().map(|it| it.to_string())).collect();
        assert!(
            said.iter().all(|it| !it.starts_with('R')),
            "{ended}: {said:?}"
        );
        assert_eq!(net.count(Counter::TcpMoved), 3, "{ended}");
        assert_eq!(net.tcp.acceptable(heir), 2, "{ended}");
        assert!(net.events(heir).contains(Events::READABLE));
        (net.local_port, net.remote_port) = (80, 3);
        net.inject(". 1 ack 1 win 60000");
        let [one, two, three] = [0; 3].map(|_| net.tcp.accept(heir).expect("a connection"));
        for id in [one, two, three] {
            assert_eq!(net.tcp.table().region_of(id.slot), 0);
        }
        talk_to(&mut net, one);
        net.inject(". 3001:3011 ack 1 win 60000");
        net.drain();
        assert_eq!(net.read(one, 10_000), 3_010);
        net.write(one, 100);
        net.expect(". 1:101 ack 3011");
        assert_eq!(net.state(two), State::CloseWait);
        assert_eq!(net.state(three), State::Established);
        let finished = (!ended.ends_with("closed")).then_some(region);
        assert_eq!(net.tcp.take_finished_region(), finished, "{ended}");
        net.advance(200_000);
    }
}

/// Whoever has read something has accepted it, though he may not have said so yet: the rest is nobody else's.
#[test]
fn what_a_program_has_touched_goes_to_nobody() {
    for touched in ["read", "written", "accepted", "spoilt"] {
        let mut net = Net::new();
        net.spoilt = true;
        let region = net.add_region(8);
        let first = net.listen_in(region, 80, 5, SHARED);
        waits(&mut net, 1, 100);
        let heir = net.listen_in(0, 80, 5, SHARED);
        let id = net.tcp.offer(first).expect("one waits");
        match touched {
            "read" => net.store_receive_head(id, 1),
            "spoilt" => net.store_receive_head(id, 1 << 40),
            "written" => net.fill(id, 10),
            _ => net.tcp.accepted(id),
        }
        net.abandon(region);
        net.expect("R. 1 ack 101");
        net.expect_nothing();
        assert_eq!(net.tcp.acceptable(heir), 0, "{touched}");
        assert_eq!(net.tcp.offered(first), 0);
    }
}

/// Of closed listeners where somebody rests there may be many: they cost a look when that changes, and not at each poll.
#[test]
fn what_waits_for_who_rests_is_looked_at_when_somebody_listens() {
    let mut net = Net::new();
    let heir = net.tcp.open().expect("a slot");
    net.tcp
        .bind(heir, any(80), SHARED, &mut net.out)
        .expect("free");
    let first = net.listen_in(0, 80, 5, SHARED);
    net.tcp.rest(heir, true).expect("bound");
    waits(&mut net, 1, 10);
    net.close(first);
    assert!(!net.tcp.left_due && net.tcp.left == [first]);
    assert!(!net.tcp.demux.take_changed(), "nothing is to be looked at");
    net.tcp.listen(heir, 5, &mut net.out).expect("bound");
    net.run();
    assert_eq!((net.tcp.acceptable(heir), net.tcp.left.len()), (1, 0));
}

/// A hundred connections wait at a listener in region 1.
fn a_long_queue() -> (Net, SocketId) {
    let mut net = Net::on(new_region(256, 4096, 4096));
    let region = new_region(256, 4096, 4096);
    net.tcp.add_region(1, region).expect("room");
    let first = net.listen_in(1, 80, 100, SHARED);
    (1..=100).for_each(|port| waits(&mut net, port, 10));
    (net, first)
}

/// As [`Net::close`], without a poll.
fn close_unpolled(net: &mut Net, id: SocketId) {
    let close = skink_messages::TcpInput::Request(skink_messages::TcpRequest::Close(id));
    let taken = skink_messages::Component::handle(&mut net.tcp, net.now, close, &mut net.out);
    assert!(taken.is_ok());
}

/// Each turn takes some, as many bytes may have to be copied; those that wait longest first.
#[test]
fn a_long_queue_goes_to_another_program_in_turns() {
    let (mut net, first) = a_long_queue();
    let heir = net.listen_in(0, 80, 100, SHARED);
    for _ in 0..30 {
        net.tcp.offer(first).expect("one waits");
    }
    close_unpolled(&mut net, first);
    let mut moved = Vec::new();
    while moved.last() != Some(&100) {
        let _ = skink_messages::Component::poll(&mut net.tcp, net.now, &mut net.out);
        moved.push(net.tcp.acceptable(heir));
    }
    assert_eq!(moved, [32, 64, 96, 100]);
    net.run();
    net.drain();
    for port in 1..=100 {
        let id = net.tcp.accept(heir).expect("it waits");
        assert_eq!(
            net.tcp.table().record(id.slot).four_tuple().remote.port,
            port
        );
    }
    assert_eq!(net.count(Counter::TcpResetsOut), 0);
}

/// Whoever begins to listen before it is reset is a stranger, as he would be on Linux, where all of it is reset at once.
#[test]
fn nobody_gets_what_nobody_was_there_for() {
    let (mut net, first) = a_long_queue();
    close_unpolled(&mut net, first);
    let stranger = net.listen_in(0, 80, 100, SHARED);
    net.run();
    assert_eq!(net.tcp.acceptable(stranger), 0);
    assert_eq!(net.count(Counter::TcpResetsOut), 100);
}

#[test]
fn what_finds_no_room_elsewhere_is_reset() {
    // (the heir's slots besides its listener, its backlog, how many find room)
    for (slots, backlog, moved) in [(8, 5, 4), (2, 5, 2), (8, 1, 2), (0, 5, 0)] {
        let mut net = Net::new();
        let regions = [net.add_region(8), net.add_region(1 + slots)];
        let first = net.listen_in(regions[0], 80, 5, SHARED);
        (1..5).for_each(|port| waits(&mut net, port, 10));
        let heir = net.listen_in(regions[1], 80, backlog, SHARED);
        net.close(first);
        let resets = core::iter::from_fn(|| net.next());
        let resets = resets.filter(|sent| sent.to_string().starts_with('R'));
        assert_eq!(resets.count(), 4 - moved);
        assert_eq!(net.tcp.acceptable(heir), moved);
        assert_eq!(net.count(Counter::TcpMoved), moved as u64);
    }
    // Rings of another size can't hold what the peer was promised.
    let mut net = Net::new();
    let other = net.tcp.add_region(1, new_region(8, 4096, 4096));
    other.expect("room");
    let first = net.listen_in(0, 80, 5, SHARED);
    waits(&mut net, 1, 10);
    net.listen_in(1, 80, 5, SHARED);
    net.close(first);
    net.expect("R. 1 ack 11");
}

/// The old place isn't freed yet, the new one is complete: whichever the successor finds first it keeps, and says nothing of the other.
#[test]
fn a_successor_finds_what_was_on_its_way_in_one_place() {
    for old_first in [true, false] {
        let mut net = Net::new();
        let (one, other) = (net.add_region(8), net.add_region(8));
        let (from, to) = if old_first {
            (one, other)
        } else {
            (other, one)
        };
        let first = net.listen_in(from, 80, 5, SHARED);
        waits(&mut net, 1, 100);
        let records = net.tcp.table().region(from).expect("a region").clone();
        let frozen = crate::harness::Freezer::new(&records).freeze_once();
        let heir = net.listen_in(to, 80, 5, SHARED);
        net.close(first);
        net.drain();
        let old = frozen.region();
        let table = net.tcp.table().clone();
        let regions = [0, one, other].map(|index| {
            let region = if index == from {
                &old
            } else {
                table.region(index).expect("there")
            };
            (index, region.clone())
        });
        net.crash_with(&regions);
        net.run();
        let said: Vec<String> =
            core::iter::from_fn(|| net.next().map(|it| it.to_string())).collect();
        assert!(said.iter().all(|it| !it.starts_with('R')), "{said:?}");
        let counts = waiting(&net, &[first, heir]);
        assert_eq!(counts, if old_first { [1, 0] } else { [0, 1] });
        let listener = if old_first { first } else { heir };
        let id = net.tcp.accept(listener).expect("it waits");
        assert_eq!(net.read(id, 1_000), 100);
    }
}

#[test]
fn what_waits_needs_no_new_slot_to_go_to_another_listener() {
    let mut net = Net::new();
    let region = net.add_region(4);
    let listeners = shared_listeners(&mut net, &[region, region], 5);
    (1..10).for_each(|port| handshake(&mut net, port));
    assert_eq!(net.tcp.open_in(region), Err(SocketError::NoBuffers));
    assert_eq!(waiting(&net, &listeners), [1, 1]);
    net.close(listeners[0]);
    net.expect_nothing();
    assert_eq!(waiting(&net, &listeners), [0, 2]);
}

#[test]
fn a_long_list_of_full_listeners_costs_little_and_does_no_harm() {
    let mut net = Net::new();
    let added = net.tcp.add_region(1, new_region(64, 4096, 4096));
    added.expect("room");
    for region in [0, 1] {
        for _ in 0..50 {
            net.listen_in(region, 80, 0, SHARED);
        }
    }
    (1..2_000).for_each(|port| handshake(&mut net, port));
    // Each region has 14 slots besides its listeners.
    assert_eq!(net.count(Counter::TcpEstablished), 28);
}

#[test]
fn while_a_socket_rests_requests_wait_for_its_program() {
    let request = format!("S 0 win 60000 {PLAIN}");
    let mut net = Net::new();
    let id = net.tcp.open().expect("a slot");
    assert_eq!(net.tcp.rest(id, true), Err(SocketError::Invalid));
    net.tcp
        .bind(id, any(80), SHARED, &mut net.out)
        .expect("free");
    net.inject(&request);
    net.expect("R. 0 ack 1");
    for _ in 0..2 {
        net.tcp.rest(id, true).expect("bound");
    }
    // Nobody has listened yet.
    net.inject(&request);
    net.expect("R. 0 ack 1");
    let worker = net.listen_in(0, 80, 5, SHARED);
    net.close(worker);
    net.inject(&request);
    net.expect_nothing();
    assert_eq!(net.count(Counter::TcpDropMoved), 1);
    // Only requests; only there.
    net.inject(". 1 ack 1 win 60000");
    net.expect("R 1");
    net.local_port = 81;
    net.inject(&request);
    net.expect("R. 0 ack 1");
    net.local_port = 80;
    // A successor doesn't know, and refuses nobody.
    net.crash();
    net.drain();
    net.inject(&request);
    net.expect_nothing();
    net.tcp.rest(id, false).expect("bound");
    net.inject(&request);
    net.expect("R. 0 ack 1");
    // The next worker comes, and goes; then the socket itself listens.
    net.tcp.rest(id, true).expect("bound");
    let worker = net.listen_in(0, 80, 5, SHARED);
    net.inject(&request);
    net.expect("S. 0 ack 1");
    net.close(worker);
    // Who has come before waits for the next one; who comes now asks again.
    net.inject(". 1 ack 1 win 60000");
    net.remote_port = 5_001;
    net.inject(&request);
    net.expect_nothing();
    net.tcp.listen(id, 5, &mut net.out).expect("listening");
    assert_eq!(net.tcp.rest(id, true), Err(SocketError::Invalid));
    net.inject(&request);
    net.expect("S. 0 ack 1");
    assert_eq!(net.tcp.acceptable(id), 1);
    net.close(id);
    net.expect_all(&["R. 1 ack 1", "R. 1 ack 1"]);
    net.remote_port = 6_000;
    net.inject(&request);
    net.expect("R. 0 ack 1");
}

#[test]
fn what_waits_where_somebody_rests_waits_for_him() {
    for (crashes, dies, listens) in [
        (false, false, true),
        (false, true, true),
        (true, false, true),
        (true, true, true),
        (false, true, false),
        (true, false, false),
    ] {
        let mut net = Net::new();
        let region = net.add_region(8);
        let heir = net.tcp.open().expect("a slot");
        let bound = net.tcp.bind(heir, any(80), SHARED, &mut net.out);
        bound.expect("free");
        let first = net.listen_in(region, 80, 5, SHARED);
        net.tcp.rest(heir, true).expect("bound");
        waits(&mut net, 1, 100);
        waits(&mut net, 2, 0);
        if dies {
            net.abandon(region);
        } else {
            net.close(first);
        }
        net.expect_nothing();
        if crashes {
            net.crash();
            net.drain();
        }
        assert_eq!(net.tcp.take_finished_region(), None);
        let again = net.tcp.listen(first, 5, &mut net.out);
        assert_eq!(again, Err(SocketError::Invalid), "it was closed");
        if !listens {
            net.close(heir);
            net.expect_all(&["R. 1 ack 101", "R. 1 ack 1"]);
            continue;
        }
        net.tcp.listen(heir, 5, &mut net.out).expect("bound");
        net.run();
        let said: Vec<String> =
            core::iter::from_fn(|| net.next().map(|it| it.to_string())).collect();
        assert!(said.iter().all(|it| !it.starts_with('R')), "{said:?}");
        assert_eq!(net.tcp.acceptable(heir), 2);
        let id = net.tcp.accept(heir).expect("it waits");
        assert_eq!(net.read(id, 1_000), 100);
        assert_eq!(net.tcp.take_finished_region(), dies.then_some(region));
        assert_eq!(net.out.listened.get(&80), Some(&1));
    }
}

#[test]
fn to_connect_or_to_close_ends_the_rest() {
    for connects in [true, false] {
        let mut net = Net::new();
        let own = Endpoint::new(LOCAL, 80);
        let id = net.tcp.open().expect("a slot");
        net.tcp.bind(id, own, REUSE, &mut net.out).expect("free");
        net.tcp.rest(id, true).expect("bound");
        let worker = net.tcp.open().expect("a slot");
        net.tcp
            .bind(worker, own, REUSE, &mut net.out)
            .expect("free");
        net.tcp.listen(worker, 5, &mut net.out).expect("bound");
        net.close(worker);
        net.inject(&format!("S 0 win 60000 {PLAIN}"));
        net.expect_nothing();
        if connects {
            net.connect_from(id, 7);
            net.expect("S 0");
        } else {
            net.close(id);
        }
        (net.local_port, net.remote_port) = (80, 5_001);
        net.inject(&format!("S 0 win 60000 {PLAIN}"));
        net.expect("R. 0 ack 1");
    }
}

/// A program that sends on many connections at once, and one that sends on a single one after that. A turn is 72 KiB, of which each
/// connection takes 1 KiB, and each packet 4 KiB.
#[test]
fn a_program_with_many_connections_holds_up_no_other() {
    for (each, in_a_turn) in [(8_000, 2), (10, 15)] {
        many_connections_and_one(each, in_a_turn);
    }
}

fn many_connections_and_one(each: u32, in_a_turn: u32) {
    let mut net = Net::new();
    net.add_region(8);
    let one = accepted_in(&mut net, 1);
    let listener = net.listen_in(0, 90, 64, REUSE);
    let many: Vec<SocketId> = (0..60)
        .map(|number| {
            handshake(&mut net, 7_000 + number);
            net.tcp.accept(listener).expect("a connection waits")
        })
        .collect();
    for id in many.iter().chain([&one]) {
        net.fill(*id, each);
        net.tcp.sent(net.now, *id, 0);
    }
    let mut turns = Vec::new();
    loop {
        let progress = net.tcp.poll(net.now, &mut net.out);
        let own = net.tcp.table().record(one.slot).four_tuple().local.port;
        let (mut all, mut ours) = (0, 0);
        for sent in std::mem::take(&mut net.out.sent) {
            all += sent.payload.len() as u32;
            ours += sent.payload.len() as u32 * u32::from(sent.header.source_port == own);
        }
        turns.push((all, ours));
        if progress == Progress::Idle {
            break;
        }
    }
    // Each has its turn at once, and a turn isn't long.
    assert_eq!(turns[0].1, each, "{turns:?}");
    let longest = turns.iter().map(|(all, _)| all).max();
    assert_eq!(longest, Some(&(in_a_turn * each)), "{turns:?}");
    let sum: u32 = turns.iter().map(|(all, _)| all).sum();
    assert_eq!(sum, 61 * each, "{turns:?}");
}

/// `tcp` dies while it gives a connection that waits at one program's listener to another one's: somewhere in between, and
/// whichever program its successor hears of first. The connection may be over by then.
#[test]
fn a_death_on_the_way_to_another_program_leaves_the_connection_in_one_of_them() {
    let cases = [false, true].into_iter().flat_map(|over| {
        let orders = [false, true].into_iter();
        orders.flat_map(move |heir_first| (0..4).map(move |stage| (over, heir_first, stage)))
    });
    for (over, heir_first, stage) in cases {
        let what = format!("over: {over}, heir first: {heir_first}, stage {stage}");
        let mut net = Net::new();
        let region = net.add_region(8);
        let first = net.listen_in(region, 80, 5, SHARED);
        waits(&mut net, 1, 100);
        if over {
            net.inject("R. 101 ack 1");
            net.drain();
        }
        let heir = net.listen_in(0, 80, 5, SHARED);
        let table = net.tcp.table().clone();
        let child = net.tcp.offer(first).expect("it waits");
        let copy = net.tcp.slots.take(0).expect("a slot");
        let parcel = table.copy_untouched(child.slot).expect("untouched");
        table.put_in(&parcel, copy).expect("rings of the same size");
        let original = table.record(child.slot);
        let [state, fin] = [&original.state, &original.fin].map(|it| it.load(Relaxed));
        if stage > 0 {
            table.finish_copy(&parcel, copy, Some(heir.slot));
            table.leave_copied(child.slot);
        }
        match stage {
            // Both count.
            1 => {
                original.state.store(state, Relaxed);
                original.fin.store(fin, Relaxed);
            }
            // The slot is about to be free.
            3 => original.holder.store(0, Relaxed),
            _ => {}
        }
        let mut regions: Vec<_> = table
            .regions()
            .map(|(index, region)| (index, region.clone()))
            .collect();
        if !heir_first {
            regions.reverse();
        }
        let adopted = net.crash_with(&regions);
        net.run();
        assert_eq!(adopted.given_up, u32::from(stage == 1 && !over), "{what}");
        while let Some(sent) = net.next() {
            assert!(!sent.to_string().starts_with('R'), "{what}: {sent}");
        }
        let listeners = [first, heir];
        let found: Vec<SocketId> = listeners
            .into_iter()
            .filter_map(|listener| net.tcp.accept(listener))
            .collect();
        assert_eq!(found.len(), 1, "{what}");
        assert_eq!(net.read(found[0], 200), 100, "{what}");
        let stride = net.tcp.table().stride();
        let used = (0..2 * stride).filter(|slot| net.tcp.slots.is_taken(*slot));
        assert_eq!(used.count(), 3, "{what}: no slot is lost");
    }
}

/// A program takes a connection and closes the listener; what it says of the first comes after the second, or never.
#[test]
fn what_a_program_has_taken_stays_with_it_when_the_listener_goes_first() {
    for crashes in [false, true] {
        let mut net = Net::new();
        let region = net.add_region(8);
        let first = net.listen_in(region, 80, 5, SHARED);
        waits(&mut net, 1, 100);
        let _other = net.listen_in(0, 80, 5, SHARED);
        let child = net.tcp.offer(first).expect("it waits");
        assert!(net.tcp.table().take_offer(child));
        if crashes {
            net.crash();
            net.drain();
        }
        net.close(first);
        net.run();
        net.expect_nothing();
        net.tcp.accepted(child);
        assert_eq!(net.state(child), State::Established);
        assert_eq!(net.read(child, 1_000), 100);
        // It is closed as any other.
        net.close(child);
        net.expect("F. 1 ack 101");
    }
}
