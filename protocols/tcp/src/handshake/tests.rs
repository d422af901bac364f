use crate::harness::{LOCAL, Net, OFFER, Out, REMOTE, SHARED, new_region};
use crate::instance::Socket;
use crate::state::State;
use core::net::{IpAddr, Ipv4Addr};
use skink_memory::SocketId;
use skink_messages::{Component, ConnectionOption, Counter, ErrorKind, Events, SocketError};
use skink_wire::tcp::MAXIMUM_WINDOW_SCALE;

#[test]
fn a_peer_opens_and_options_are_agreed_on() {
    // (the peer's options, ours in the answer, segment size, SACK, timestamps, scales)
    let table = [
        (
            OFFER,
            "mss 1460 sackok ts 0 1000 ws 1",
            1_448,
            true,
            true,
            (7, 1),
        ),
        ("mss 1000", "mss 1460 nots", 1_000, false, false, (0, 0)),
        ("", "mss 1460 nots", 536, false, false, (0, 0)),
        ("mss 0", "mss 1460 nots", 64, false, false, (0, 0)),
        ("mss 1", "mss 1460 nots", 64, false, false, (0, 0)),
        (
            "mss 65535 ws 255",
            "mss 1460 ws 1 nots",
            1_460,
            false,
            false,
            (MAXIMUM_WINDOW_SCALE, 1),
        ),
        (
            "mss 1460 sackok",
            "mss 1460 sackok nots",
            1_460,
            true,
            false,
            (0, 0),
        ),
    ];
    for (theirs, ours, mss, sack, timestamps, scales) in table {
        let mut net = Net::new();
        let listener = net.listen(80, 5);
        net.inject(&format!("S 0 win 65535 {theirs}"));
        let answer = net.expect(&format!("S. 0 ack 1 {ours}"));
        assert_eq!(answer.options.window_scale.is_some(), theirs.contains("ws"));
        assert_eq!(net.events(listener), Events::empty());
        net.inject(if timestamps {
            ". 1 ack 1 win 10 ts 1001 *"
        } else {
            ". 1 ack 1 win 10"
        });
        net.expect_nothing();
        assert_eq!(net.events(listener), Events::READABLE);
        assert_eq!(net.tcp.acceptable(listener), 1);
        let id = net.tcp.accept(listener).expect("established");
        assert_eq!(net.tcp.accept(listener), None);
        let connection = net.connection(id);
        assert_eq!(connection.state(), State::Established, "{theirs}");
        assert_eq!(connection.mss, mss, "{theirs}");
        assert_eq!((connection.sack, connection.timestamps), (sack, timestamps));
        assert_eq!((connection.snd_wscale, connection.rcv_wscale), scales);
        assert_eq!(
            connection.snd_wnd,
            10 << scales.0,
            "the SYN's window isn't scaled"
        );
    }
}

#[test]
fn we_open_and_options_are_agreed_on() {
    // (options in the answer, segment size, SACK, timestamps, scales)
    let table = [
        ("mss 1000 sackok ts 5 * ws 3", 988, true, true, (3, 1)),
        ("mss 1000", 1_000, false, false, (0, 0)),
        ("", 536, false, false, (0, 0)),
    ];
    for (theirs, mss, sack, timestamps, scales) in table {
        let mut net = Net::new();
        let id = net.connect(80);
        net.expect("S 0 mss 1460 sackok ts 0 0 ws 1");
        assert_eq!(net.state(id), State::SynSent);
        assert_eq!(net.events(id), Events::empty());
        net.inject(&format!("S. 0 ack 1 win 500 {theirs}"));
        net.expect(". 1 ack 1");
        assert_eq!(net.events(id), Events::WRITABLE);
        let connection = net.connection(id);
        assert_eq!(connection.state(), State::Established);
        assert_eq!(connection.mss, mss, "{theirs}");
        assert_eq!((connection.sack, connection.timestamps), (sack, timestamps));
        assert_eq!((connection.snd_wscale, connection.rcv_wscale), scales);
        assert_eq!(connection.snd_wnd, 500);
    }
}

/// What arrives in SYN-SENT besides a good answer: (segment, answer, state after, error).
#[test]
fn odd_segments_in_syn_sent() {
    let table = [
        ("R. 0 ack 1", "", State::Closed, Some(SocketError::Refused)),
        ("R. 0 ack 2", "", State::SynSent, None),
        ("R. 0 ack 0", "", State::SynSent, None),
        ("R 0", "", State::SynSent, None),
        (". 0 ack 2", "R 2", State::SynSent, None),
        (". 0 ack 0", "R 0", State::SynSent, None),
        ("S. 0 ack 2 win 9", "R 2", State::SynSent, None),
        (". 0 ack 1", "", State::SynSent, None),
        ("F. 0 ack 1", "", State::SynSent, None),
        ("S 0 win 9 mss 1000", "S. 0 ack 1", State::SynReceived, None),
    ];
    for (segment, answer, state, error) in table {
        let mut net = Net::new();
        let id = net.connect(80);
        net.expect("S 0");
        net.inject(segment);
        if !answer.is_empty() {
            net.expect(answer);
        }
        net.expect_nothing();
        assert_eq!(net.state(id), state, "{segment}");
        assert_eq!(net.error(id), error.map_or(0, |error| error as u32));
        if state == State::Closed {
            let over = Events::ERROR | Events::CLOSED | Events::READ_CLOSED;
            assert!(net.events(id).contains(over));
            net.close(id);
            assert!(!net.exists(id));
        }
    }
}

#[test]
fn who_is_answered_from_an_old_connection_asks_again_soon_but_once() {
    let mut net = Net::new();
    net.connect(80);
    net.expect("S 0");
    net.inject(". 0 ack 2");
    net.expect("R 2");
    net.advance(6);
    net.expect("S 0");
    net.inject(". 0 ack 2");
    net.expect("R 2");
    net.advance(900);
    net.expect_nothing();
}

#[test]
fn icmp_errors_end_an_attempt_but_not_a_connection() {
    let table = [
        (ErrorKind::PortUnreachable, SocketError::Refused),
        (ErrorKind::ProtocolUnreachable, SocketError::Refused),
        (ErrorKind::HostUnreachable, SocketError::HostUnreachable),
        (ErrorKind::TimeExceeded, SocketError::HostUnreachable),
        (ErrorKind::Prohibited, SocketError::Prohibited),
    ];
    for (kind, error) in table {
        let mut net = Net::new();
        let id = net.connect(80);
        net.expect("S 0");
        net.icmp(kind, 17);
        assert_eq!(net.state(id), State::SynSent, "quotes what was never sent");
        net.icmp(kind, 0);
        assert_eq!(net.state(id), State::Closed);
        assert_eq!(net.error(id), error as u32);

        let mut net = Net::new();
        let id = net.connected("mss 1000", 5_000);
        net.write(id, 100);
        net.icmp(kind, 1);
        assert_eq!(net.state(id), State::Established, "{kind:?}");
    }
}

#[test]
fn a_request_is_repeated_for_two_minutes() {
    let mut net = Net::new();
    let id = net.connect(80);
    net.expect("S 0");
    for wait in [1_000, 2_000, 4_000, 8_000, 16_000, 32_000] {
        net.expect_after(wait, "S 0 mss 1460 sackok ws 1");
    }
    net.advance(63_500);
    assert_eq!(net.state(id), State::SynSent);
    net.advance(600);
    net.expect_nothing();
    assert_eq!(net.state(id), State::Closed);
    assert_eq!(net.error(id), SocketError::TimedOut as u32);
    assert!(net.events(id).contains(Events::ERROR | Events::CLOSED));
}

#[test]
fn an_answer_is_repeated_for_a_minute() {
    let mut net = Net::new();
    let listener = net.listen(80, 5);
    net.inject("S 0 win 1000 mss 1000");
    net.expect("S. 0 ack 1");
    for wait in [1_000, 2_000, 4_000, 8_000, 16_000] {
        net.expect_after(wait, "S. 0 ack 1");
    }
    net.advance(32_100);
    net.expect_nothing();
    // Nothing is left of it.
    net.inject(". 1 ack 1 win 1000");
    net.expect("R 1");
    assert_eq!(net.events(listener), Events::empty());
    assert_eq!(net.count(Counter::TcpFailed), 1);
}

#[test]
fn the_user_timeout_bounds_an_attempt() {
    let mut net = Net::new();
    let id = net.tcp.open().expect("a slot");
    net.set(id, ConnectionOption::UserTimeout(2_500));
    net.connect_from(id, 80);
    net.advance(2_450);
    assert_eq!(net.state(id), State::SynSent);
    net.advance(100);
    assert_eq!(net.state(id), State::Closed);
    assert_eq!(net.error(id), SocketError::TimedOut as u32);
}

#[test]
fn both_sides_open_at_once() {
    // RFC 9293 figure 8.
    let mut net = Net::new();
    let id = net.connect(80);
    net.expect("S 0");
    net.inject("S 0 win 1000 mss 1000 sackok");
    net.expect("S. 0 ack 1 mss 1460 sackok nots");
    assert_eq!(net.state(id), State::SynReceived);
    net.inject("S. 0 ack 1 win 1000 mss 1000 sackok");
    assert_eq!(net.state(id), State::Established);
    assert_eq!(net.events(id), Events::WRITABLE);
    net.drain();
    net.inject(". 1:101 ack 1 win 1000");
    assert_eq!(net.read(id, 1_000), 100);
    // Its answer again, since ours was lost: it is acknowledged.
    net.drain();
    net.inject("S. 0 ack 1 win 1000 mss 1000 sackok");
    net.expect(". 1 ack 101");
}

#[test]
fn both_sides_open_at_once_and_one_answer_is_lost() {
    let mut net = Net::new();
    let id = net.connect(80);
    net.expect("S 0");
    net.inject("S 0 win 1000 mss 1000");
    net.expect("S. 0 ack 1");
    net.advance(1_100);
    net.expect("S. 0 ack 1");
    net.inject(". 1 ack 1 win 1000");
    assert_eq!(net.state(id), State::Established);
}

/// What arrives in SYN-RECEIVED: (segment, answer, whether the handshake goes on).
#[test]
fn odd_segments_in_syn_received() {
    let table = [
        ("S 0 win 1000 mss 1000", "S. 0 ack 1", true),
        ("S 100 win 1000 mss 1000 isn 0", "", true),
        (". 1 ack 2", "R 2", true),
        (". 1 ack 0", "R 0", true),
        (". 70000 ack 1", ". 1 ack 1", true),
        ("R 2", "", true),
        ("R 1", "", false),
        ("R 0", "", true),
        ("- 1", "", true),
        (". 0 ack 1", ". 1 ack 1", true),
    ];
    for (segment, answer, goes_on) in table {
        let mut net = Net::new();
        let listener = net.listen(80, 5);
        net.inject("S 0 win 1000 mss 1000");
        net.expect("S. 0 ack 1");
        net.inject(segment);
        if segment.starts_with("S 100") {
            // A request of another life, inside the window.
            net.expect(". 1 ack 1");
        }
        if !answer.is_empty() {
            net.expect(answer);
        }
        net.expect_nothing();
        net.inject(". 1 ack 1 win 1000");
        assert_eq!(
            net.tcp.acceptable(listener),
            usize::from(goes_on),
            "{segment}"
        );
    }
}

#[test]
fn data_may_come_with_the_last_acknowledgement_of_the_handshake() {
    let mut net = Net::new();
    let listener = net.listen(80, 5);
    net.inject("S 0 win 1000 mss 1000");
    net.expect("S. 0 ack 1");
    net.inject("F. 1:101 ack 1 win 1000");
    net.expect(". 1 ack 102");
    let id = net.tcp.accept(listener).expect("established");
    assert_eq!(net.state(id), State::CloseWait);
    assert_eq!(net.read(id, 1_000), 100);
}

#[test]
fn a_full_accept_queue_holds_back_handshakes() {
    let mut net = Net::new();
    let listener = net.listen(80, 0);
    // Two handshakes are under way; a backlog of 0 admits one connection.
    for port in [5_001, 5_002] {
        net.remote_port = port;
        net.inject("S 0 win 1000 mss 1000");
        net.expect("S. 0 ack 1");
    }
    net.remote_port = 5_001;
    net.inject(". 1 ack 1 win 1000");
    assert_eq!(net.tcp.acceptable(listener), 1);
    net.remote_port = 5_002;
    net.inject_all(&[". 1 ack 1 win 1000", ". 1:11 ack 1 win 1000"]);
    net.expect_nothing();
    assert_eq!(net.tcp.acceptable(listener), 1);
    assert_eq!(net.count(Counter::TcpDropListenOverflow), 2);
    // A new request isn't even answered.
    net.remote_port = 5_003;
    net.inject("S 0 win 1000 mss 1000");
    net.expect_nothing();
    // Our answer is repeated, and once there is room the peer's acknowledgement counts.
    net.tcp.accept(listener).expect("the first");
    net.remote_port = 5_002;
    net.advance(1_010);
    net.drain();
    net.inject(". 1:11 ack 1 win 1000");
    let id = net.tcp.accept(listener).expect("the second");
    assert_eq!(net.read(id, 100), 10);
}

/// Requests from these ports; answers how many of them were answered.
fn request_from(net: &mut Net, ports: core::ops::RangeInclusive<u16>) -> usize {
    for port in ports {
        net.remote_port = port;
        net.inject("S 0 win 1000 mss 1000");
    }
    core::iter::from_fn(|| net.next()).count()
}

/// Whether the last acknowledgement of a handshake from this port makes a connection that can be accepted.
fn completes(net: &mut Net, listener: SocketId, port: u16) -> bool {
    net.remote_port = port;
    net.inject(". 1 ack 1 win 1000");
    net.tcp.accept(listener).is_some()
}

#[test]
fn a_burst_of_requests_costs_nobody_a_handshake() {
    // As many as may be under way, and as many as there are slots, one of them the listener's.
    for (slots, most) in [(512, 256), (64, 63)] {
        let mut net = Net::on(new_region(slots, 4_096, 4_096));
        let listener = net.listen(80, 5);
        assert_eq!(request_from(&mut net, 1..=most + 1), usize::from(most));
        let counters = [Counter::TcpDropHalfOpen, Counter::TcpDropNoMemory];
        assert_eq!(
            counters
                .map(|counter| net.count(counter))
                .iter()
                .sum::<u64>(),
            1
        );
        for port in 1..=most {
            assert!(completes(&mut net, listener, port), "{port}");
            net.expect_nothing();
        }
        // Who came too late asks again.
        let answered = request_from(&mut net, most + 1..=most + 1);
        assert_eq!(answered, usize::from(slots == 512));
    }
}

/// What nobody completes gives way without a word to whoever is said to have sent it: after a second, and if it was many,
/// at once.
#[test]
fn a_flood_of_requests_keeps_nobody_out_for_long() {
    let mut net = Net::on(new_region(512, 4_096, 4_096));
    let listener = net.listen(80, 5);
    assert_eq!(request_from(&mut net, 1..=400), 256);
    net.advance(1_010);
    net.drain();
    assert_eq!(net.count(Counter::TcpDropHalfOpen), 400 - 256);
    assert_eq!(request_from(&mut net, 401..=402), 2);
    assert_eq!(net.count(Counter::TcpDropHalfOpen), 400 - 256 + 2);
    assert!(completes(&mut net, listener, 402));
    // Its answer was sent twice, but it is still there.
    assert!(completes(&mut net, listener, 256));
    assert!(!completes(&mut net, listener, 1));
    net.expect("R 1");
    assert_eq!(request_from(&mut net, 1_001..=3_000), 2_000);
    assert!(completes(&mut net, listener, 3_000 - 255));
    // The last of these waits for room in the accept queue, and doesn't give way.
    for port in 2_990..=2_996 {
        net.remote_port = port;
        net.inject(". 1 ack 1 win 1000");
    }
    while net.tcp.accept(listener).is_some() {}
    assert_eq!(asked(&mut net), [2_996]);
    assert_eq!(request_from(&mut net, 3_001..=4_000), 1_000);
    assert!(completes(&mut net, listener, 2_996));
    // All give up, and it isn't taken for a flood any more.
    net.advance(70_000);
    net.drain();
    assert_eq!(request_from(&mut net, 4_001..=4_400), 256);
}

/// Nor does one whose requests are each repeated before we would answer anew.
#[test]
fn a_flood_of_repeated_requests_keeps_nobody_out_for_long() {
    let mut net = Net::on(new_region(512, 4_096, 4_096));
    let listener = net.listen(80, 5);
    for _ in 0..3 {
        assert_eq!(request_from(&mut net, 1..=256), 256);
        net.advance(900);
        net.drain();
    }
    assert_eq!(request_from(&mut net, 401..=402), 2);
    assert!(completes(&mut net, listener, 402));
}

#[test]
fn who_waits_for_room_in_the_accept_queue_does_not_give_way() {
    let mut net = Net::new();
    let listener = net.listen(80, 0);
    assert_eq!(request_from(&mut net, 1..=63), 63);
    for port in (1..=63).filter(|port| *port != 60) {
        // All but this one are acknowledged.
        net.remote_port = port;
        net.inject(". 1 ack 1 win 1000");
    }
    net.advance(1_010);
    net.drain();
    net.tcp.accept(listener).expect("the first");
    assert_eq!(asked(&mut net), [2]);
    // Of 62 handshakes one isn't acknowledged, and found by and by.
    let asked = (0..10).position(|_| request_from(&mut net, 64..=64) > 0);
    assert_eq!(asked, Some(7));
    for port in (2..=64).filter(|port| *port != 60) {
        assert!(completes(&mut net, listener, port), "{port}");
    }
}

/// Acknowledges from these ports what was answered.
fn acknowledge_from(net: &mut Net, ports: core::ops::RangeInclusive<u16>) {
    for port in ports {
        net.remote_port = port;
        net.inject(". 1 ack 1 win 1000");
    }
}

/// Who is sent a SYN-ACK within two milliseconds.
fn asked(net: &mut Net) -> Vec<u16> {
    let soon = net.now + core::time::Duration::from_millis(2);
    let deadline = Component::<Out>::next_deadline(&net.tcp).filter(|next| *next <= soon);
    if let Some(deadline) = deadline {
        net.now = net.now.max(deadline);
        net.run();
    }
    let sent: Vec<_> = core::iter::from_fn(|| net.next()).collect();
    let syn_ack = |sent: &crate::harness::Sent| sent.to_string().starts_with("S. 0 ack 1 ");
    assert!(sent.iter().all(syn_ack));
    let ports = sent.iter().map(|sent| sent.header.destination_port);
    ports.collect()
}

#[test]
fn who_found_the_accept_queue_full_is_asked_again_when_there_is_room() {
    let mut net = Net::new();
    let listener = net.listen(80, 1);
    assert_eq!(request_from(&mut net, 1..=12), 12);
    acknowledge_from(&mut net, 1..=10);
    assert_eq!(net.tcp.acceptable(listener), 2);
    // It says so again, and one gives up.
    net.remote_port = 3;
    net.inject(". 1:11 ack 1 win 1000");
    net.remote_port = 6;
    net.inject("R 1");
    // The next SYN-ACK by itself is due after 31 seconds.
    net.advance(16_000);
    net.drain();
    for next in [3, 4, 5, 7] {
        net.tcp.accept(listener).expect("a connection waits");
        assert_eq!(asked(&mut net), [next]);
        acknowledge_from(&mut net, next..=next);
        assert_eq!(net.tcp.acceptable(listener), 2);
    }
    // Somebody else is faster: it waits once more.
    net.tcp.accept(listener).expect("a connection waits");
    assert_eq!(asked(&mut net), [8]);
    acknowledge_from(&mut net, 11..=11);
    acknowledge_from(&mut net, 8..=8);
    assert_eq!(net.tcp.acceptable(listener), 2);
    // What is sent gets lost: it is repeated soon, and somebody else may come meanwhile.
    net.tcp.accept(listener).expect("a connection waits");
    assert_eq!(asked(&mut net), [9]);
    net.advance(2_003);
    assert_eq!(asked(&mut net), [8, 9, 10]);
    // A longer queue has room for several; one was never acknowledged.
    net.tcp.listen(listener, 10, &mut net.out).expect("listens");
    assert_eq!(asked(&mut net), [8]);
    acknowledge_from(&mut net, 8..=10);
    while net.tcp.accept(listener).is_some() {}
    assert_eq!(asked(&mut net), []);
}

/// Clients that have given up meanwhile answer by resets: their places are others'.
#[test]
fn who_is_asked_again_and_is_gone_leaves_his_place_to_the_next() {
    let mut net = Net::new();
    let listener = net.listen(80, 1);
    request_from(&mut net, 1..=8);
    acknowledge_from(&mut net, 1..=8);
    while net.tcp.accept(listener).is_some() {}
    assert_eq!(asked(&mut net), [3, 4]);
    for gone in [3, 4] {
        net.remote_port = gone;
        net.inject("R 1");
    }
    assert_eq!(asked(&mut net), [5, 6]);
    acknowledge_from(&mut net, 5..=6);
    assert_eq!(net.tcp.acceptable(listener), 2);
}

/// A listener with room for one in its accept queue, from which the first of nine was just taken. The next SYN-ACK by itself is due
/// to the others after 31 seconds, of which 16 are over.
fn eight_waiting() -> (Net, SocketId) {
    let mut net = Net::new();
    let listener = net.listen(80, 0);
    request_from(&mut net, 1..=9);
    acknowledge_from(&mut net, 1..=9);
    net.advance(16_000);
    net.drain();
    net.tcp.accept(listener).expect("a connection waits");
    (net, listener)
}

/// Many that gave up are gone without a word: a firewall forgot them, or their machine was switched off.
#[test]
fn who_is_asked_again_and_is_silent_does_not_keep_the_next_one_out() {
    let (mut net, listener) = eight_waiting();
    assert_eq!(asked(&mut net), [2]);
    assert_eq!(asked(&mut net), []);
    net.advance(2_003);
    assert_eq!(asked(&mut net), [2, 3]);
    net.advance(2_003);
    assert_eq!(asked(&mut net), [3, 4]);
    acknowledge_from(&mut net, 4..=4);
    // These come after all, but too late; then they are the last ones in line.
    acknowledge_from(&mut net, 2..=3);
    assert_eq!(net.tcp.acceptable(listener), 1);
    for next in [5, 6, 7, 8, 9, 2, 3] {
        net.tcp.accept(listener).expect("a connection waits");
        assert_eq!(asked(&mut net), [next]);
        acknowledge_from(&mut net, next..=next);
    }
    net.tcp.accept(listener).expect("a connection waits");
    assert_eq!(asked(&mut net), []);
}

/// Who doesn't answer for long passes on one place, not one with each of its timeouts.
#[test]
fn no_more_are_asked_than_places_have_come_free() {
    let (mut net, listener) = eight_waiting();
    let (mut answered, mut all) = (Vec::new(), asked(&mut net));
    for _ in 0..3 {
        net.advance(2_003);
        let now = asked(&mut net);
        answered.extend(now.iter().copied().filter(|port| !all.contains(port)));
        all.extend(now);
    }
    assert_eq!(answered, [3, 4, 5]);
    // Whoever has passed on its place and ends leaves none.
    net.remote_port = 2;
    net.inject("R 1");
    assert_eq!(asked(&mut net), []);
    acknowledge_from(&mut net, 3..=5);
    assert_eq!(net.tcp.acceptable(listener), 1);
}

#[test]
fn who_found_the_accept_queue_full_is_asked_by_another_listener() {
    let mut net = Net::new();
    let listener = net.listen_in(0, 80, 0, SHARED);
    request_from(&mut net, 1..=4);
    acknowledge_from(&mut net, 1..=3);
    let heir = net.listen_in(0, 80, 5, SHARED);
    net.close(listener);
    assert_eq!(asked(&mut net), [2, 3]);
    acknowledge_from(&mut net, 2..=4);
    assert_eq!(net.tcp.acceptable(heir), 4);
}

#[test]
fn who_comes_and_goes_while_the_accept_queue_is_full_takes_no_memory() {
    let mut net = Net::new();
    let listener = net.listen(80, 0);
    net.set(listener, ConnectionOption::ResetOnClose(true));
    request_from(&mut net, 1..=30);
    acknowledge_from(&mut net, 1..=30);
    for _ in 0..25 {
        let id = net.tcp.accept(listener).expect("a connection waits");
        net.close(id);
        request_from(&mut net, 100..=120);
        // The first has the place, and the others are gone.
        acknowledge_from(&mut net, 100..=120);
        for port in 101..=120 {
            net.remote_port = port;
            net.inject("R 1");
        }
        net.drain();
        let Some(Socket::Listener(listener)) = net.tcp.socket(listener) else {
            panic!("no listener");
        };
        assert!(listener.turned_away.len() < 200);
    }
}

/// Connections that were accepted never give way.
#[test]
fn established_connections_keep_their_slots() {
    let mut net = Net::new();
    let listener = net.listen(80, 100);
    for port in 1..=63 {
        net.remote_port = port;
        net.inject("S 0 win 1000 mss 1000");
        net.expect("S. 0 ack 1");
        net.inject(". 1 ack 1 win 1000");
    }
    net.remote_port = 64;
    net.inject("S 0 win 1000 mss 1000");
    net.expect_nothing();
    assert_eq!(net.count(Counter::TcpDropNoMemory), 1);
    assert_eq!(net.tcp.acceptable(listener), 63);
}

/// (segment to a port where nobody listens, answer): RFC 9293 3.10.7.1.
#[test]
fn strays_are_reset() {
    let table = [
        ("S 0 win 10", Some("R. 0 ack 1")),
        (". 5 ack 7", Some("R 7")),
        ("S. 5 ack 7", Some("R 7")),
        ("- 5:15", Some("R. 0 ack 15")),
        ("F 5:15", Some("R. 0 ack 16")),
        ("R 5", None),
        ("R. 5 ack 7", None),
    ];
    for (segment, answer) in table {
        let mut net = Net::new();
        net.inject(segment);
        match answer {
            Some(answer) if segment.starts_with('S') => {
                let sent = net.expect(answer);
                assert_eq!(sent.header.window, 0);
            }
            Some(answer) => {
                // No SYN was seen, so both initial numbers are taken as 0.
                net.expect(answer);
            }
            None => net.expect_nothing(),
        }
    }
}

/// A request that comes just after we stopped to listen is for whoever goes on listening.
#[test]
fn a_request_for_others_that_listen_is_not_reset() {
    let mut net = Net::new();
    net.out.moved.push(net.local_port);
    net.inject("S 0 win 10");
    net.expect_nothing();
    assert_eq!(net.counters.get(Counter::TcpDropMoved), 1);
    for (segment, answer) in [(". 5 ack 7", "R 7"), ("S. 5 ack 7", "R 7")] {
        net.inject(segment);
        net.expect(answer);
    }
    net.inject("RS 5");
    net.expect_nothing();
    // They don't hear what comes from ourselves.
    net.out.ours.push(REMOTE);
    net.inject("S 0 win 10");
    net.expect("R. 0 ack 1");
}

/// What the steering program has sent astray isn't reset before its owner had time to be found.
#[test]
fn a_segment_that_may_be_another_owners_is_left_unanswered() {
    let mut net = Net::new();
    net.listen(net.local_port, 5);
    net.out.users.push(net.local_port);
    for segment in [". 5 ack 7", "P. 5:9 ack 7", "F. 5 ack 7"] {
        net.inject(segment);
        net.expect_nothing();
    }
    assert_eq!(net.counters.get(Counter::TcpDropMisled), 3);
    assert!(net.tcp.take_misled().is_some());
    assert!(net.tcp.take_misled().is_none());
    net.advance(1_000);
    net.inject(". 5 ack 7");
    net.expect("R 7");
    // New flows are as welcome as ever.
    net.inject("S 0 win 10");
    net.expect("S. 0 ack 1");
}

/// So is one that comes after we stopped to listen on one address, while we go on with another on the same port.
#[test]
fn a_request_for_an_end_that_was_left_is_not_reset() {
    let mut net = Net::new();
    net.out.others.push(net.local_port);
    let request = "S 0 win 10";
    net.inject(request);
    net.expect("R. 0 ack 1");
    let listener = net.listen(net.local_port, 5);
    net.close(listener);
    net.inject(request);
    net.expect_nothing();
    assert_eq!(net.counters.get(Counter::TcpDropMoved), 1);
    net.advance(4_000);
    net.inject(request);
    net.expect("R. 0 ack 1");
}

#[test]
fn groups_are_neither_answered_nor_connected() {
    let mut net = Net::new();
    net.listen(80, 5);
    let group: IpAddr = Ipv4Addr::new(224, 0, 0, 1).into();
    for (source, destination) in [(REMOTE, group), (group, LOCAL)] {
        let mut bytes = vec![0; 20];
        let header = skink_wire::tcp::Header {
            source_port: 9,
            destination_port: 80,
            seq: skink_wire::SeqNum(1),
            ack: skink_wire::SeqNum(1),
            flags: skink_wire::tcp::Flags::ACK,
            window: 1,
            urgent: 0,
            header_len: 0,
        };
        assert_eq!(
            skink_wire::tcp::emit(&header, &Default::default(), &mut bytes),
            20
        );
        skink_wire::tcp::set_checksum(source, destination, &mut bytes);
        net.inject_between(source, destination, &bytes);
        net.expect_nothing();
    }
    assert_eq!(net.count(Counter::TcpDropMalformed), 2);
}

#[test]
fn a_listener_ignores_what_is_no_request() {
    let mut net = Net::new();
    net.listen(80, 5);
    net.inject("R 0");
    net.inject("F 0");
    net.inject("SF 0 win 1000");
    net.inject("- 0:10");
    net.expect_nothing();
    net.inject(". 0 ack 9");
    net.expect("R 9");
}

#[test]
fn finishing_before_the_handshake_sends_a_fin_after_it() {
    let mut net = Net::new();
    let id = net.connect(80);
    net.expect("S 0");
    net.shutdown(id);
    net.shutdown(id);
    net.expect_nothing();
    net.inject("S. 0 ack 1 win 1000 mss 1000");
    net.expect("F. 1 ack 1");
    assert_eq!(net.state(id), State::FinWait1);
    net.inject("F. 1 ack 2 win 1000");
    net.expect(". 2 ack 2");
    assert_eq!(net.state(id), State::TimeWait);

    // The same while both sides open at once, with a program that has gone.
    let mut net = Net::new();
    let id = net.connect(80);
    net.expect("S 0");
    net.inject("S 0 win 1000 mss 1000");
    net.expect("S. 0 ack 1");
    net.close(id);
    net.expect_nothing();
    net.inject("S. 0 ack 1 win 1000 mss 1000");
    net.expect("F. 1 ack 1");
    net.inject("F. 1 ack 2 win 1000");
    net.expect(". 2 ack 2");
    assert!(!net.exists(id));
}

#[test]
fn closing_in_syn_sent_forgets_the_attempt() {
    let mut net = Net::new();
    let id = net.connect(80);
    net.expect("S 0");
    net.close(id);
    assert!(!net.exists(id));
    net.inject("S. 0 ack 1 win 1000");
    net.expect("R 1");
}

#[test]
fn no_room_in_the_network_only_delays_a_handshake() {
    let mut net = Net::new();
    let listener = net.listen(80, 5);
    net.out.refuse_every = 2;
    for port in 5_000..5_010 {
        net.remote_port = port;
        net.inject("S 0 win 1000 mss 1000");
        net.expect("S. 0 ack 1");
        net.inject(". 1 ack 1 win 1000");
        assert!(net.tcp.accept(listener).is_some());
    }
}

#[test]
fn a_repeated_request_gives_no_round_trip_time() {
    let mut net = Net::new();
    let id = net.connect(80);
    net.advance(30);
    net.inject("S. 0 ack 1 win 1000");
    let rtt = net.connection(id).rtt.smoothed();
    assert_eq!(rtt.map(|rtt| rtt.as_millis()), Some(30));
    let id = net.connect(81);
    net.advance(1_030);
    net.inject("S. 0 ack 1 win 1000");
    assert_eq!(net.connection(id).rtt.smoothed(), None);
}

#[test]
fn after_a_repeated_request_data_is_not_repeated_too_soon() {
    // RFC 6298 (5.7), unless a timestamp tells the round-trip time.
    for (options, timeout) in [("mss 1000", 3_000), ("mss 1000 ts 1 *", 208)] {
        let mut net = Net::new();
        let id = net.connect(80);
        net.advance(7_010);
        assert_eq!(net.connection(id).retries, 3);
        net.inject(&format!("S. 0 ack 1 win 1000 {options}"));
        net.drain();
        net.write(id, 100);
        net.expect(". 1:101 ack 1");
        net.expect_after(timeout, ". 1:101 ack 1");
        assert_eq!(net.connection(id).retries, 1);
    }
}
