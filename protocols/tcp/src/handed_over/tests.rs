use super::{HOPE, MOST, MOST_SILENCES};
use crate::harness::{Net, REMOTE, SHARED};
use crate::instance::{Tcp, TcpConfig};
use crate::state::State;
use skink_memory::{Parcel, SocketId, SocketTable};
use skink_messages::{Counter, Events, Waits};
use skink_time::Duration;

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

/// A stack whose listener is closed, what leaves it, and the other stack, which has been told nothing yet.
fn closed() -> (Net, Net, Vec<Parcel>) {
    let (mut net, listener) = some_wait();
    net.close(listener);
    net.expect_nothing();
    let parcels = parcels(&mut net);
    let heir = net.other();
    (net, heir, parcels)
}

fn parcels(net: &mut Net) -> Vec<Parcel> {
    let leaving = core::iter::from_fn(|| net.tcp.take_parcel(net.now));
    leaving.map(|(parcel, _)| parcel).collect()
}

/// What leaves at the first moment within so many milliseconds at which something does.
fn next_parcel(net: &mut Net, within: u64) -> Vec<Parcel> {
    let found = (0..within).find_map(|_| {
        net.advance(1);
        Some(parcels(net)).filter(|parcels| !parcels.is_empty())
    });
    found.unwrap_or_default()
}

fn take_in(net: &mut Net, parcel: &Parcel) -> bool {
    // As it travels.
    let parcel = Parcel::from_bytes(&parcel.to_bytes()).expect("it is whole");
    let taken = net.tcp.take_in(net.now, &parcel, &mut net.out);
    net.run();
    taken
}

fn tell(net: &mut Net, parcel: &Parcel, taken: bool) {
    let flow = parcel.four_tuple();
    net.tcp
        .on_handed_over(net.now, &flow, None, taken, &mut net.out);
    net.run();
}

fn waits(net: &mut Net, listener: SocketId, threads: usize, only_then: bool) {
    let waits = Waits { threads, only_then };
    let listeners = [listener].into_iter();
    net.tcp.show_waiting(listeners, waits, &mut net.out);
}

fn resets(net: &mut Net) -> usize {
    let sent = core::iter::from_fn(|| net.next());
    sent.filter(|it| it.to_string().starts_with('R')).count()
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
    let (mut net, _, parcels) = closed();
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
    assert_eq!(net.tcp.unfinished(), 3, "the process may not end yet");
    for parcel in &parcels {
        tell(&mut net, parcel, true);
        // Twice does no harm.
        tell(&mut net, parcel, false);
    }
    net.expect_nothing();
    assert_eq!(net.count(Counter::TcpMoved), 3);
    assert_eq!(net.out.uses.get(&80), Some(&0));
    assert_eq!(net.tcp.unfinished(), 0);
    net.advance(5_000);
    net.expect_nothing();
}

#[test]
fn what_nobody_takes_in_is_reset() {
    // They say so, or say nothing for long; others are asked then, who may begin to listen only now, but not for ever.
    for said in [true, false] {
        let (mut net, _, mut leaving) = closed();
        let begun = net.now;
        let mut last = begun;
        while !leaving.is_empty() {
            // The one in its handshake goes first.
            let first = last == begun;
            assert_eq!(leaving.len(), if first { 3 } else { 2 });
            if said {
                for parcel in &leaving {
                    tell(&mut net, parcel, false);
                }
            } else {
                net.advance(999);
                assert_eq!(parcels(&mut net), []);
                net.advance(2);
            }
            if first {
                net.out.others.clear();
                assert_eq!(resets(&mut net), 1);
            }
            net.advance(11);
            last = net.now;
            leaving = parcels(&mut net);
        }
        assert_eq!(resets(&mut net), 2);
        let took = last.since(begun);
        let silence = Duration::from_millis(1_012) * u32::from(MOST_SILENCES);
        match said {
            true => assert!(took >= HOPE && took < HOPE * 2, "{took:?}"),
            false => assert!(took >= silence && took < silence * 2, "{took:?}"),
        }
        assert_eq!(net.out.uses.get(&80), Some(&0));
        assert_eq!(net.count(Counter::TcpMoved), 0);
    }
    // Nobody else listens when it is closed, nobody would fetch it, or it is from here.
    for why in ["alone", "not enabled", "own"] {
        let (mut net, listener) = some_wait();
        match why {
            "alone" => net.out.others.clear(),
            "own" => net.out.ours.push(REMOTE),
            _ => net.tcp.handed_over.enabled = false,
        }
        net.close(listener);
        assert_eq!(net.tcp.take_parcel(net.now), None, "{why}");
        assert!(resets(&mut net) >= 2, "{why}");
    }
}

#[test]
fn who_listens_nowhere_or_has_no_room_takes_nothing_in() {
    let (_, mut heir, parcels) = closed();
    assert!(!take_in(&mut heir, &parcels[0]), "nobody listens");
    let listener = heir.listen_in(0, 80, 0, SHARED);
    assert!(take_in(&mut heir, &parcels[0]));
    heir.drain();
    assert!(!take_in(&mut heir, &parcels[0]), "it is there");
    assert!(!take_in(&mut heir, &parcels[1]), "the queue is full");
    heir.expect_nothing();
    assert_eq!(heir.out.uses.get(&80), Some(&2));
    let taken = core::iter::from_fn(|| heir.tcp.accept(listener)).count();
    assert_eq!(taken, 1);
}

#[test]
fn only_so_many_are_on_their_way_at_a_time() {
    let mut net = Net::new();
    net.tcp.set_hands_over();
    net.out.others = vec![80];
    let listener = net.listen_in(0, 80, 40, SHARED);
    for port in 1..31 {
        net.remote_port = port;
        net.inject("S 0 win 60000 mss 1000");
        net.inject(". 1 ack 1 win 60000");
    }
    net.drain();
    net.close(listener);
    assert!(net.tcp.owes_parcels());
    let first = parcels(&mut net);
    assert!(!net.tcp.owes_parcels(), "an answer will come");
    assert_eq!(first.len(), MOST);
    tell(&mut net, &first[0], true);
    let next = parcels(&mut net);
    assert_eq!(next.len(), 1);
    // There is no room for it.
    let flow = next[0].four_tuple();
    net.tcp.put_back(net.now, &flow);
    assert_eq!(parcels(&mut net), []);
    net.advance(11);
    assert_eq!(parcels(&mut net), next, "it is the next one again");
    for parcel in &first[1..] {
        tell(&mut net, parcel, true);
    }
    // Those that wait for others to be taken in wait as long as that takes.
    net.advance(900);
    net.expect_nothing();
    assert_eq!(parcels(&mut net).len(), 13);
    net.out.others.clear();
    net.advance(101);
    for _ in 0..30 {
        net.advance(11);
        for parcel in parcels(&mut net) {
            assert_eq!(
                parcel, next[0],
                "of the others nobody has said anything yet"
            );
            tell(&mut net, &parcel, false);
        }
    }
    assert_eq!(resets(&mut net), 1, "the one that nobody took in");
}

#[test]
fn what_the_program_has_taken_stays() {
    let (mut net, listener) = some_wait();
    let offered = net.tcp.offer(listener).expect("one waits");
    assert!(net.tcp.table().take_offer(offered));
    net.close(listener);
    assert_eq!(parcels(&mut net).len(), 2);
    assert_eq!(net.state(offered), State::Established);
}

#[test]
fn a_parcel_that_makes_no_sense_is_refused() {
    let (_, _, parcels) = closed();
    let bytes = parcels[0].to_bytes();
    // (The harness has one peer.)
    let remote_address = 56..72;
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

/// A program that doesn't wait for what waits at its socket, which others have, too: somebody else does.
#[test]
fn what_a_busy_program_leaves_waiting_goes_to_who_waits_elsewhere() {
    let (mut net, listener) = some_wait();
    waits(&mut net, listener, 0, true);
    net.remote_port = 4;
    net.inject("S 0 win 60000 mss 1000");
    net.inject(". 1 ack 1 win 60000");
    net.drain();
    net.advance(20);
    assert_eq!(parcels(&mut net), [], "nobody waits");
    net.out.wait = vec![80];
    let first = next_parcel(&mut net, 11);
    assert_eq!(first.len(), 1);
    assert_eq!(net.tcp.acceptable(listener), 2);
    // It isn't taken in, and waits here again, as the first one, of which the program is told.
    net.events(listener);
    tell(&mut net, &first[0], false);
    assert_eq!(net.tcp.acceptable(listener), 3);
    assert_eq!(net.events(listener), Events::READABLE);
    net.remote_port = 1;
    net.inject(". 11:16 ack 1 win 60000");
    let id = net.tcp.accept(listener).expect("it waits");
    assert_eq!(net.read(id, 100), 15);
    net.drain();
    assert_eq!(next_parcel(&mut net, 13).len(), 1, "the next one");
    // Its own program waits, and is about to have it.
    waits(&mut net, listener, 1, true);
    net.advance(300);
    assert_eq!(parcels(&mut net), []);
    // Timers of the one that came back run as ever.
    net.advance(1_100);
    net.drain();
    net.write(id, 5);
    net.drain();
    net.advance(1_000);
    net.expect("P. 1:6");
}

/// A program that accepts at other times, too, may just have had no processor: it is looked at twice. Then one goes after the other.
#[test]
fn what_waits_at_a_program_that_serves_many_goes_if_it_is_seen_twice_not_to_wait() {
    let (mut net, listener) = some_wait();
    net.drain();
    waits(&mut net, listener, 0, false);
    net.out.wait = vec![80];
    net.remote_port = 4;
    net.inject("S 0 win 60000 mss 1000");
    net.inject(". 1 ack 1 win 60000");
    // It finds what waits: it is about to accept it.
    net.advance(3);
    assert_eq!(parcels(&mut net), [], "the first look");
    waits(&mut net, listener, 1, false);
    net.advance(200);
    assert_eq!(parcels(&mut net), []);
    waits(&mut net, listener, 0, false);
    for within in [11, 3, 3] {
        assert_eq!(next_parcel(&mut net, within).len(), 1);
    }
    assert_eq!(net.tcp.acceptable(listener), 0);
}

#[test]
fn what_came_from_elsewhere_goes_on_if_it_is_seen_twice() {
    let (net, mut heir, parcels_left) = closed();
    let [first, ..] = parcels_left.as_slice() else {
        panic!("none left");
    };
    let listener = heir.listen_in(0, 80, 10, SHARED);
    heir.tcp.set_hands_over();
    heir.out.others = vec![80];
    heir.out.wait = vec![80];
    waits(&mut heir, listener, 0, true);
    assert!(take_in(&mut heir, first));
    heir.drain();
    heir.advance(4);
    assert_eq!(parcels(&mut heir), [], "the first look");
    assert_eq!(next_parcel(&mut heir, 4).len(), 1);
    drop(net);
}

#[test]
fn what_may_stay_goes_only_to_who_waits() {
    let (mut net, listener) = some_wait();
    waits(&mut net, listener, 0, true);
    net.out.wait = vec![80];
    let first = (0..20).find_map(|_| {
        net.advance(1);
        net.tcp.take_parcel(net.now)
    });
    assert!(first.expect("it waits in vain").1);
    net.close(listener);
    let (_, may_stay) = net.tcp.take_parcel(net.now).expect("the next one");
    assert!(!may_stay, "nobody listens here any more");
}

#[test]
fn what_waits_at_a_dead_programs_listener_waits_for_who_listens_soon() {
    for listens in [true, false] {
        let (mut net, listener) = some_wait();
        net.out.others.clear();
        net.tcp
            .expect_heirs(net.now + skink_time::Duration::from_secs(1));
        net.close(listener);
        net.advance(900);
        assert_eq!((resets(&mut net), parcels(&mut net)), (0, vec![]));
        assert_eq!(net.tcp.acceptable(listener), 0, "it isn't its program's");
        if listens {
            net.out.others = vec![80];
        }
        net.advance(200);
        let left = parcels(&mut net).len();
        let reset = resets(&mut net);
        assert_eq!((left, reset), if listens { (3, 0) } else { (0, 3) });
    }
}

/// Nobody who waits took it in, and its listener is closed meanwhile.
#[test]
fn what_could_stay_goes_to_anybody_if_its_listener_is_closed_meanwhile() {
    let (mut net, listener) = some_wait();
    waits(&mut net, listener, 0, true);
    net.out.wait = vec![80];
    let first = next_parcel(&mut net, 20);
    assert_eq!(first.len(), 1);
    net.close(listener);
    let others = parcels(&mut net);
    tell(&mut net, &first[0], false);
    let again: Vec<_> = core::iter::from_fn(|| net.tcp.take_parcel(net.now)).collect();
    assert_eq!(again, [(first[0].clone(), false)]);
    for parcel in others.iter().chain(&first) {
        tell(&mut net, parcel, true);
    }
    assert_eq!(resets(&mut net), 0);
}

#[test]
fn who_waits_is_shown_again_when_it_takes_in_nothing() {
    let (_, mut heir, parcels) = closed();
    let listener = heir.listen_in(0, 80, 0, SHARED);
    waits(&mut heir, listener, 1, true);
    assert!(take_in(&mut heir, &parcels[0]));
    heir.tcp.accept(listener).expect("it waits");
    heir.out.waiting.clear();
    assert!(!take_in(&mut heir, &parcels[0]), "it is there already");
    assert_eq!(heir.out.waiting.get(&80), Some(&(true, true)));
}

/// A connection in use: of 40 bytes that came the program has read 10, of 500 that it wrote the peer has acknowledged 200. And what is
/// made of it to be passed.
fn passed() -> (Net, SocketId, Parcel) {
    let mut net = Net::new();
    net.tcp.set_hands_over();
    let id = net.accepted("mss 1000", 60_000);
    net.inject(". 1:41 ack 1 win 60000");
    assert_eq!(net.read(id, 10), 10);
    net.write(id, 500);
    net.drain();
    net.inject(". 41 ack 201 win 60000");
    net.drain();
    let parcel = net.tcp.pass(net.now, id, 1, &net.out);
    let parcel = parcel.expect("it is open").to_bytes();
    (net, id, Parcel::from_bytes(&parcel).expect("it is whole"))
}

fn adopt(net: &mut Net, parcel: &Parcel) -> Option<SocketId> {
    let adopted = net.tcp.adopt_passed(net.now, parcel, &mut net.out);
    net.run();
    adopted
}

#[test]
fn a_connection_that_is_passed_goes_on_at_another_stack() {
    let (mut net, _, parcel) = passed();
    let mut heir = net.other();
    net.inject("P. 41:61 ack 201 win 60000");
    net.inject("F. 61 ack 201 win 60000");
    net.expect_nothing();
    assert_eq!(net.tcp.unfinished(), 1, "the process may not end yet");
    let id = adopt(&mut heir, &parcel).expect("there is room");
    heir.expect(". 201:501 ack 41");
    tell(&mut net, &parcel, true);
    assert_eq!(net.tcp.unfinished(), 0);
    let flow = parcel.four_tuple();
    while let Some(segment) = net.tcp.take_late() {
        heir.tcp.on_late(heir.now, &flow, &segment, &mut heir.out);
        heir.run();
    }
    assert_eq!(heir.state(id), State::CloseWait);
    assert_eq!(
        heir.read(id, 100),
        50,
        "what wasn't read, and what came late"
    );
    heir.drain();
    heir.inject(". 62 ack 501 win 60000");
    heir.write(id, 7);
    heir.expect("P. 501:508 ack 62");
    heir.close(id);
    heir.expect("F. 508 ack 62");
    net.advance(5_000);
    net.expect_nothing();
}

#[test]
fn a_connection_that_nobody_was_passed_goes_on_where_it_was() {
    let (mut net, id, parcel) = passed();
    net.inject("P. 41:61 ack 501 win 60000");
    net.advance(60_000);
    net.expect_nothing();
    assert_eq!(net.tcp.unfinished(), 1);
    tell(&mut net, &parcel, false);
    assert_eq!(net.connection(id).flight(), 0, "the acknowledgement counts");
    assert_eq!(net.read(id, 100), 50);
    net.drain();
    net.write(id, 7);
    net.expect("P. 501:508 ack 61");
    assert!(
        net.tcp.pass(net.now, id, 1, &net.out).is_some(),
        "once more"
    );
}

/// Before the first stack was told that it had left.
#[test]
fn a_connection_may_come_back_at_once() {
    let (mut net, _, parcel) = passed();
    let mut heir = net.other();
    heir.tcp.set_hands_over();
    let id = adopt(&mut heir, &parcel).expect("there is room");
    net.inject(". 41:45 ack 501 win 60000");
    assert_eq!(heir.read(id, 30), 30);
    let back = heir
        .tcp
        .pass(heir.now, id, 1, &heir.out)
        .expect("it is open");
    let id = adopt(&mut net, &back).expect("the first one has made way");
    tell(&mut heir, &back, true);
    tell(&mut net, &parcel, true);
    assert_eq!(net.connection(id).flight(), 0, "what came late");
    assert_eq!(net.tcp.table().receive_ring(id.slot).len(), 4);
}

#[test]
fn what_is_not_open_or_already_passed_is_not_passed() {
    let (mut net, id, _) = passed();
    assert_eq!(net.tcp.pass(net.now, id, 1, &net.out), None, "twice");
    let id = net.connect(7);
    assert_eq!(
        net.tcp.pass(net.now, id, 1, &net.out),
        None,
        "no handshake yet"
    );
    let mut net = Net::new();
    let id = net.accepted("mss 1000", 60_000);
    assert_eq!(
        net.tcp.pass(net.now, id, 1, &net.out),
        None,
        "nobody brings it"
    );
    net.tcp.set_hands_over();
    net.inject("R. 1 ack 1");
    assert_eq!(net.tcp.pass(net.now, id, 1, &net.out), None, "it is over");
}

/// Both have closed, in time for the other's acknowledgement; something is still to be read.
#[test]
fn what_is_still_to_be_read_of_a_connection_in_time_wait_is_passed() {
    let mut net = Net::new();
    net.tcp.set_hands_over();
    let id = net.accepted("mss 1000", 60_000);
    net.shutdown(id);
    net.inject("P. 1:41 ack 2 win 60000");
    net.inject("F. 41 ack 2 win 60000");
    net.drain();
    assert_eq!(net.state(id), State::TimeWait);
    let parcel = net.tcp.pass(net.now, id, 1, &net.out);
    let parcel = parcel.expect("it isn't over for the program").to_bytes();
    let parcel = Parcel::from_bytes(&parcel).expect("it is whole");
    for comes_back in [false, true] {
        let mut heir = net.other();
        let heir = if comes_back { &mut net } else { &mut heir };
        let id = adopt(heir, &parcel).expect("there is room");
        assert_eq!(heir.read(id, 100), 40);
        assert_eq!(heir.read(id, 100), 0);
        heir.expect_nothing();
    }
    tell(&mut net, &parcel, true);
    // Who was there first answers, for as long as that takes.
    net.inject("F. 41 ack 2 win 60000");
    net.expect(". 2 ack 42");
    net.advance(120_000);
    net.inject("F. 41 ack 2 win 60000");
    net.expect("R 2");
}

#[test]
fn only_so_much_that_comes_late_is_kept() {
    let (mut net, _, parcel) = passed();
    for at in 0..100u32 {
        net.inject(&format!(
            ". {}:{} ack 201 win 60000",
            41 + 900 * at,
            941 + 900 * at
        ));
    }
    let dropped = net.count(Counter::TcpDropMoved) as usize;
    tell(&mut net, &parcel, true);
    let late: Vec<_> = core::iter::from_fn(|| net.tcp.take_late()).collect();
    let bytes: usize = late.iter().map(Vec::len).sum();
    assert!(
        (60_000..=super::MOST_LATE_BYTES).contains(&bytes),
        "{bytes}"
    );
    assert_eq!(late.len() + dropped, 100);
}

/// A stack at which nobody listens any more, but others do elsewhere.
#[test]
fn a_request_that_comes_too_late_is_brought_to_who_listens() {
    let (mut net, listener) = some_wait();
    net.close(listener);
    let mut heir = net.other();
    heir.tcp.set_hands_over();
    let heard = heir.listen_in(0, 80, 10, SHARED);
    for stack in [&mut net, &mut heir] {
        stack.remote_port = 9;
    }
    net.inject("S 0 win 60000 mss 1000");
    net.expect_nothing();
    let (flow, request) = net.tcp.take_stray().expect("it is for others");
    assert_eq!(net.tcp.take_stray(), None);
    assert_eq!(net.count(Counter::TcpSentOn), 1);
    heir.segment("S 0 win 60000 mss 1000");
    heir.tcp.on_late(heir.now, &flow, &request, &mut heir.out);
    heir.run();
    heir.expect("S. 0 ack 1");
    heir.inject(". 1 ack 1 win 60000");
    assert!(heir.tcp.accept(heard).is_some());
    // One that was brought isn't brought on.
    net.tcp.on_late(net.now, &flow, &request, &mut net.out);
    net.run();
    net.expect_nothing();
    assert_eq!(net.tcp.take_stray(), None);
    // Not if nobody listens, nor without end.
    net.out.others.clear();
    net.inject("S 0 win 60000 mss 1000");
    net.drain();
    assert_eq!(net.tcp.take_stray(), None);
    net.out.others = vec![80];
    for port in 100..200 {
        net.remote_port = port;
        net.inject("S 0 win 60000 mss 1000");
        net.expect_nothing();
    }
    let all = core::iter::from_fn(|| net.tcp.take_stray()).count();
    assert_eq!(all, super::MOST_STRAY);
    assert_eq!(net.count(Counter::TcpDropMoved), 101 - all as u64);
}

/// What takes the place of the process whose stack this is, which has died, and of its program.
fn orphans_of(net: &Net) -> Net {
    let table = net.tcp.table().clone();
    let mut orphans = net.other();
    let config = TcpConfig { seed: 8 };
    let stride = SocketTable::new(table.stride());
    orphans.tcp = Tcp::new(config, stride, orphans.counters.clone());
    orphans.tcp.set_hands_over();
    orphans.out.others = vec![80];
    for (index, region) in table.regions() {
        let (now, out) = (orphans.now, &mut orphans.out);
        let adopted = orphans.tcp.adopt_region(now, index, region.clone(), out);
        adopted.expect("a free index");
        orphans
            .tcp
            .abandon_region(orphans.now, index, &mut orphans.out);
    }
    orphans.run();
    orphans
}

/// Its process dies before it hears whether another one has it.
#[test]
fn what_is_away_when_its_process_dies_is_offered_again() {
    for taken in [true, false] {
        let (net, _, before) = closed();
        let mut orphans = orphans_of(&net);
        orphans.expect_nothing();
        let again = parcels(&mut orphans);
        let flows = |parcels: &[Parcel]| -> Vec<u16> {
            let ports = parcels.iter().map(|it| it.four_tuple().remote.port);
            let mut ports: Vec<u16> = ports.collect();
            ports.sort_unstable();
            ports
        };
        assert_eq!(flows(&again), flows(&before));
        for parcel in &again {
            tell(&mut orphans, parcel, taken);
        }
        if taken {
            orphans.expect_nothing();
            assert_eq!(orphans.tcp.unfinished(), 0);
        } else {
            assert_eq!(
                next_parcel(&mut orphans, 20).len(),
                2,
                "they are offered on"
            );
        }
    }
}

/// The same of one that was passed: whoever has claimed it says nothing to a dead process.
#[test]
fn what_was_passed_by_a_process_that_died_is_asked_for_and_closed_if_nobody_has_it() {
    for taken in [true, false] {
        let (net, _, parcel) = passed();
        let mut orphans = orphans_of(&net);
        assert_eq!(orphans.tcp.take_question(orphans.now), None, "not yet");
        assert_eq!(parcels(&mut orphans), [], "it isn't for who listens");
        orphans.advance(49);
        orphans.now += Duration::from_millis(1);
        let question = orphans.tcp.take_question(orphans.now);
        assert_eq!(question, Some(parcel.four_tuple()));
        assert_eq!(orphans.tcp.take_question(orphans.now), None, "once");
        orphans.expect_nothing();
        tell(&mut orphans, &parcel, taken);
        if taken {
            orphans.expect_nothing();
        } else {
            // Something wasn't read, and something wasn't acknowledged.
            orphans.expect(". 201:501 ack 41");
        }
        assert_eq!(orphans.tcp.unfinished(), usize::from(!taken));
    }
}

/// A word about the first time comes during the second one.
#[test]
fn a_word_about_an_earlier_time_counts_for_nothing() {
    let (mut net, id, parcel) = passed();
    let flow = parcel.four_tuple();
    net.tcp
        .on_handed_over(net.now, &flow, Some(1), false, &mut net.out);
    net.run();
    net.drain();
    assert!(net.tcp.pass(net.now, id, 2, &net.out).is_some());
    for serial in [1, 0] {
        let (now, out) = (net.now, &mut net.out);
        net.tcp.on_handed_over(now, &flow, Some(serial), true, out);
        net.run();
        assert!(net.tcp.is_away(id));
    }
    net.tcp
        .on_handed_over(net.now, &flow, Some(2), true, &mut net.out);
    net.run();
    assert_eq!(net.tcp.unfinished(), 0);
}
