//! Sockets that aren't established connections, and what programs set and hear.
use super::*;

fn handshake(net: &mut Net, remote_port: u16) {
    net.remote_port = remote_port;
    net.inject(&format!("S 0 win 60000 {PLAIN}"));
    net.expect("S. 0 ack 1");
    net.inject(". 1 ack 1 win 60000");
}

#[test]
fn listeners_go_on_with_what_waits() {
    let mut net = Net::new();
    let listener = net.listen(80, 3);
    for port in [7, 5, 6, 8] {
        handshake(&mut net, port);
    }
    // One is accepted, one is offered, two wait; one more is half-open.
    let accepted = net.tcp.accept(listener).expect("the first");
    let offered = net.tcp.offer(listener).expect("the second");
    net.remote_port = 9;
    net.inject(&format!("S 0 win 60000 {PLAIN}"));
    let first = net.expect("S. 0 ack 1");
    assert_eq!(net.crash(), all(6));
    assert_eq!(net.events(listener), Events::READABLE);
    let again = net.out.sent.iter().find(|sent| sent.iss == first.iss);
    assert!(again.is_some_and(|sent| sent.header.seq == first.header.seq));
    net.drain();
    // The peer need not repeat itself: its acknowledgement of the first answer counts.
    net.inject(". 1 ack 1 win 60000");
    let waiting: Vec<_> = core::iter::from_fn(|| net.tcp.accept(listener)).collect();
    let ports = |id: &SocketId| net.tcp.table().record(id.slot).remote_port.load(Relaxed);
    assert_eq!(waiting.iter().map(ports).collect::<Vec<_>>(), [5, 6, 8, 9]);
    assert_eq!(waiting[0], offered);
    assert!(net.exists(accepted) && !waiting.contains(&accepted));
    // The backlog too.
    for port in 20..24 {
        handshake(&mut net, port);
    }
    net.remote_port = 30;
    net.inject(&format!("S 0 win 60000 {PLAIN}"));
    net.expect_nothing();
    assert_eq!(net.count(Counter::TcpDropListenOverflow), 1);
    // What is accepted for good is.
    net.crash();
    assert_eq!(net.tcp.acceptable(listener), 4);
}

#[test]
fn a_request_is_sent_again() {
    let mut net = Net::new();
    let id = net.connect(80);
    let first = net.expect("S 0");
    net.fill(id, 10);
    net.advance(500);
    assert_eq!(net.crash(), all(1));
    let second = net.expect("S 0");
    assert_eq!(first.header.seq, second.header.seq);
    let stamp = |sent: &crate::harness::Sent| sent.options.timestamps.expect("stamps").value;
    assert_eq!(stamp(&second).wrapping_sub(stamp(&first)), 500);
    assert_eq!(net.events(id), Events::empty(), "not established");
    // Before the successor has polled, the answer to its predecessor's request counts.
    net.crash_without_run();
    net.inject(&format!("S. 0 ack 1 win 60000 {OFFER}"));
    assert_eq!(net.state(id), State::Established);
    net.expect(". 1:11 ack 1");
    assert!(net.events(id).contains(Events::WRITABLE));
}

#[test]
fn fresh_and_bound_sockets_go_on() {
    let mut net = Net::new();
    let fresh = net.tcp.open_for(0, 41).expect("a slot");
    net.set(fresh, ConnectionOption::NoDelay(true));
    let [bound, resting] = [90, 91].map(|port| {
        let id = net.tcp.open().expect("a slot");
        let end = Endpoint::new(LOCAL, port);
        net.tcp.bind(id, end, ALONE, &mut net.out).expect("free");
        id
    });
    net.tcp.rest(resting, true).expect("bound");
    let closed = net.tcp.open().expect("a slot");
    net.close(closed);
    net.tcp.note_call(bound, 42);
    assert_eq!(net.crash(), all(3));
    assert!(!net.exists(closed));
    assert_eq!(net.tcp.opened(0, 41), Some(fresh));
    assert_eq!((net.tcp.opened(0, 40), net.tcp.opened(0, 0)), (None, None));
    assert!(net.tcp.was_called(bound, 42) && !net.tcp.was_called(bound, 41));
    let end = Endpoint::new(LOCAL, 90);
    assert_eq!(
        (net.tcp.bound_to(bound), net.tcp.bound_to(fresh)),
        (Some(end), None)
    );
    let other = net.tcp.open().expect("a slot");
    let taken = net.tcp.bind(other, end, ALONE, &mut net.out);
    assert_eq!(taken, Err(SocketError::AddressInUse));
    // To one that rests, requests aren't refused.
    (net.local_port, net.remote_port) = (91, 1);
    net.inject("S 0 win 60000");
    net.expect_nothing();
    assert_eq!(net.tcp.listen(bound, 3, &mut net.out), Ok(end));
    assert_eq!(net.tcp.listens_on(bound), Some(end));
    net.connect_from(fresh, 80);
    assert!(net.connection(fresh).settings.no_delay);
    let ends = net.tcp.connected_to(fresh).expect("connected");
    assert_eq!(ends.1, Endpoint::new(REMOTE, 80));
}

#[test]
fn options_survive() {
    let options = [
        ConnectionOption::NoDelay(true),
        ConnectionOption::Cork(true),
        ConnectionOption::QuickAck(true),
        ConnectionOption::KeepAlive(true),
        ConnectionOption::KeepAliveIdle(11),
        ConnectionOption::KeepAliveInterval(12),
        ConnectionOption::KeepAliveProbes(0),
        ConnectionOption::UserTimeout(13_500),
        ConnectionOption::MaximumSegment(700),
        ConnectionOption::ResetOnClose(true),
        ConnectionOption::ReceiveBuffer(0),
        ConnectionOption::TrafficClass(0x28),
        ConnectionOption::HopLimit(0),
    ];
    let mut net = Net::new();
    let default = net.accepted(PLAIN, 60_000);
    let listener = net.listen(81, 5);
    let mut expected = Settings::default();
    for option in options {
        net.set(listener, option);
        expected.set(option);
    }
    let child = net.accepted_from(listener, PLAIN, 60_000);
    let fresh = net.tcp.open().expect("a slot");
    net.set(fresh, ConnectionOption::HopLimit(255));
    net.crash();
    assert_eq!(net.connection(child).settings, expected);
    assert_eq!(net.connection(default).settings, Settings::default());
    net.local_port = 81;
    net.remote_port = 6_000;
    net.drain();
    let child = net.accepted_from(listener, PLAIN, 60_000);
    assert_eq!(net.connection(child).settings, expected, "the listener's");
    net.connect_from(fresh, 9);
    assert_eq!(net.connection(fresh).settings.hop_limit, Some(255));
    // Keepalive is armed again, and user timeout counts.
    net.drain();
    let record = net.tcp.table().record(child.slot);
    assert_eq!(record.user_timeout.load(Relaxed), 13_500);
}

#[test]
fn programs_hear_what_they_may_have_missed() {
    let mut net = Net::new();
    let readable = net.accepted(PLAIN, 60_000);
    net.inject(". 1:11 ack 1 win 60000");
    let ended = net.connected(PLAIN, 60_000);
    net.inject("F. 1 ack 1 win 60000");
    let failed = net.connect(90);
    net.inject("R. 0 ack 1");
    net.crash();
    assert_eq!(net.events(readable), Events::READABLE | Events::WRITABLE);
    let finished = Events::READABLE | Events::WRITABLE | Events::READ_CLOSED;
    assert_eq!(net.events(ended), finished);
    assert!(net.events(failed).contains(Events::ERROR | Events::CLOSED));
    assert_eq!(net.error(failed), SocketError::Refused as u32);
    net.close(failed);
    assert!(!net.exists(failed));
}

#[test]
fn a_forgotten_connection_is_not_reset_at_its_end() {
    let mut net = Net::new();
    let id = net.accepted(OFFER, 60_000);
    net.close(id);
    net.inject("F. 1 ack 2 win 60000 ts 2000 *");
    net.drain();
    assert!(!net.exists(id), "only TIME-WAIT was left");
    net.crash();
    net.expect_nothing();
    // What the predecessor had taken in when it died comes again, and isn't answered by a reset.
    net.inject(". 1 ack 2 win 60000 ts 2000 *");
    net.expect_nothing();
    net.inject("F. 1 ack 2 win 60000 ts 2001 *");
    let sent = net.expect(". 2 ack 2 ts 0 2001");
    assert_eq!(sent.options.timestamps.map(|stamp| stamp.echo), Some(2001));
    // Anything else, and the same later, is refused as ever.
    net.inject("F. 1:11 ack 2 win 60000 ts 2001 *");
    net.expect("R 2");
    net.advance(61_000);
    for late in [
        ". 1 ack 2 win 60000 ts 2001 *",
        "F. 1 ack 2 win 60000 ts 2001 *",
    ] {
        net.inject(late);
        net.expect("R 2");
    }
}

/// A program that is new has no predecessor: strays are refused, as ever.
#[test]
fn a_new_programs_region_brings_nothing_that_was_forgotten() {
    let mut net = Net::new();
    let empty = new_region(4, 4096, 4096);
    let adopted = net.tcp.adopt_region(net.now, 1, empty, &mut net.out);
    assert_eq!(adopted.expect("free"), all(0));
    for stray in [". 1 ack 1 win 1000", "F. 1 ack 1 win 1000"] {
        net.inject(stray);
        net.expect("R 1");
    }
}

#[test]
fn regions_without_a_program_are_finished() {
    let mut net = Net::new();
    let region = net.add_region(8);
    let listener = net.listen_in(region, 81, 5, REUSE);
    let id = net.accepted_from(listener, PLAIN, 60_000);
    net.write(id, 100);
    net.drain();
    net.abandon(region);
    net.expect("F. 101 ack 1");
    net.crash();
    net.expect("F. 1:101 ack 1");
    assert!(net.out.events.iter().all(|event| event.socket != id));
    assert_eq!(net.tcp.open_in(region), Err(SocketError::NoBuffers));
    net.inject("F. 1 ack 102 win 60000");
    net.expect(". 102 ack 2");
    assert_eq!(net.tcp.take_finished_region(), Some(region));
    // An empty one is finished at once.
    let other = new_region(4, 4096, 4096);
    other.abandon();
    let adopted = net.tcp.adopt_region(net.now, 2, other, &mut net.out);
    assert_eq!(adopted.expect("free"), all(0));
    assert_eq!(net.tcp.take_finished_region(), Some(2));
}

#[test]
fn what_cannot_be_added_cannot_be_adopted() {
    let mut net = Net::new();
    let large = net
        .tcp
        .adopt_region(net.now, 1, new_region(65, 4096, 4096), &mut net.out);
    assert!(matches!(large, Err(TableError::BadSocketCount)));
    let twice = net
        .tcp
        .adopt_region(net.now, 0, new_region(4, 4096, 4096), &mut net.out);
    assert!(matches!(twice, Err(TableError::IndexTaken)));
}

#[test]
fn a_new_connection_counts_and_not_the_time_wait_whose_ends_it_has() {
    // The new one's slot may be found before or after the one that a program still holds.
    for first in [true, false] {
        let mut net = Net::new();
        let early = net.tcp.open().expect("a slot");
        let listener = net.listen(80, 10);
        let old = net.accepted_from(listener, PLAIN, 60_000);
        net.inject(". 1:11 ack 1 win 60000");
        net.shutdown(old);
        net.inject("F. 11 ack 2 win 60000");
        assert_eq!(net.state(old), State::TimeWait);
        if first {
            net.close(early);
        }
        net.drain();
        let new = net.accepted_from(listener, &format!("{PLAIN} isn 5000"), 60_000);
        assert_eq!(new.slot < old.slot, first);
        assert_eq!(net.count(Counter::TcpTimeWaitReused), 1);
        for _ in 0..2 {
            assert_eq!(net.crash(), all(3 + u32::from(!first)));
            net.expect_all(&HELLO);
            net.expect_nothing();
            let uses = net.out.uses.get(&80).copied();
            assert_eq!(uses, Some(3), "the listener and both");
        }
        let over = Events::READABLE | Events::READ_CLOSED | Events::CLOSED;
        assert!(net.events(old).contains(over));
        assert_eq!(net.state(old), State::TimeWait);
        net.close(old);
        assert!(!net.exists(old));
        net.inject(". 1:11 ack 1 win 60000");
        net.drain();
        assert_eq!(net.read(new, 100), 10);
        assert_eq!(net.state(new), State::Established);
    }
}
