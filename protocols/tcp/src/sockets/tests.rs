use super::*;
use crate::bind::FIRST_EPHEMERAL;
use crate::harness::{ALONE, LOCAL, Net, REMOTE, REUSE, SHARED};
use skink_messages::BindOptions;

const PLAIN: &str = "mss 1000 sackok";

fn any(port: u16) -> Endpoint {
    Endpoint::new(core::net::Ipv4Addr::UNSPECIFIED.into(), port)
}

/// Opens and binds; `None` if the end is taken.
fn bind(
    net: &mut Net,
    local: Endpoint,
    sharing: BindOptions,
) -> Result<(SocketId, Endpoint), SocketError> {
    let id = net.tcp.open().expect("a slot");
    match net.tcp.bind(id, local, sharing, &mut net.out) {
        Ok(bound) => Ok((id, bound)),
        Err(error) => {
            net.close(id);
            Err(error)
        }
    }
}

#[test]
fn binding_conflicts() {
    let own = Endpoint::new(LOCAL, 80);
    let (v6, in_use) = (
        Endpoint::new(core::net::Ipv6Addr::UNSPECIFIED.into(), 80),
        Err(SocketError::AddressInUse),
    );
    let foreign = Err(SocketError::AddressNotAvailable);
    // (first end and what it may be shared with, whether it listens, second end and the like, outcome)
    let table = [
        (any(80), ALONE, false, any(80), ALONE, in_use),
        (any(80), ALONE, false, own, ALONE, in_use),
        (own, ALONE, false, any(80), ALONE, in_use),
        (own, ALONE, false, Endpoint::new(LOCAL, 81), ALONE, Ok(())),
        (any(80), REUSE, false, any(80), REUSE, Ok(())),
        (any(80), REUSE, false, any(80), ALONE, in_use),
        (any(80), REUSE, true, any(80), REUSE, in_use),
        (any(80), SHARED, false, any(80), SHARED, Ok(())),
        (any(80), SHARED, true, any(80), SHARED, Ok(())),
        (any(80), SHARED, true, own, SHARED, Ok(())),
        (any(80), SHARED, true, any(80), REUSE, in_use),
        (any(80), REUSE, true, any(80), SHARED, in_use),
        (any(80), SHARED, false, any(80), REUSE, in_use),
        (
            any(80),
            ALONE,
            false,
            Endpoint::new(REMOTE, 80),
            ALONE,
            foreign,
        ),
        (any(80), ALONE, false, v6, ALONE, Ok(())),
    ];
    for (first, reuse, listens, second, second_reuse, outcome) in table {
        let mut net = Net::new();
        let (id, _) = bind(&mut net, first, reuse).expect("the first");
        if listens {
            net.tcp.listen(id, 5, &mut net.out).expect("listening");
        }
        let second = bind(&mut net, second, second_reuse).map(|_| ());
        assert_eq!(second, outcome, "{first} {second:?}");
        net.run();
        // Once it is closed its end is free again.
        net.close(id);
        if outcome == Err(SocketError::AddressInUse) {
            bind(&mut net, any(80), ALONE).expect("free again");
        }
        net.run();
    }
}

#[test]
fn a_socket_is_bound_and_listens_once() {
    let mut net = Net::new();
    let (id, _) = bind(&mut net, any(80), ALONE).expect("bound");
    let again = net.tcp.bind(id, any(81), ALONE, &mut net.out);
    assert_eq!(again, Err(SocketError::Invalid));
    assert_eq!(net.tcp.listen(id, 5, &mut net.out), Ok(any(80)));
    assert_eq!(net.tcp.listen(id, 9, &mut net.out), Ok(any(80)));
    assert_eq!(net.out.listened.get(&80), Some(&1));
    let connect = net
        .tcp
        .connect(net.now, id, Endpoint::new(REMOTE, 1), &mut net.out);
    assert_eq!(connect, Err(SocketError::Invalid));
    net.close(id);
    assert_eq!(net.out.listened.get(&80), Some(&0));
    assert_eq!(net.out.uses.get(&80), Some(&0));
    assert_eq!(
        net.tcp.listen(id, 5, &mut net.out),
        Err(SocketError::Invalid)
    );
    // Without a bind, a listener gets some port.
    let id = net.tcp.open().expect("a slot");
    let local = net.tcp.listen(id, 5, &mut net.out).expect("listening");
    assert!(local.port >= FIRST_EPHEMERAL);
    net.run();
}

#[test]
fn a_listener_that_closes_resets_what_nobody_accepted() {
    let mut net = Net::new();
    let listener = net.listen(80, 10);
    for port in [1, 2] {
        net.remote_port = port;
        net.inject(&format!("S 0 win 1000 {PLAIN}"));
        net.expect("S. 0 ack 1");
    }
    net.inject(". 1 ack 1 win 1000");
    // One has been reset meanwhile, and one was accepted.
    net.remote_port = 3;
    net.inject(&format!("S 0 win 1000 {PLAIN}"));
    net.inject_all(&[". 1 ack 1 win 1000", "R 1"]);
    net.drain();
    assert_eq!(net.tcp.acceptable(listener), 2);
    let accepted = net.tcp.accept(listener).expect("a connection");
    net.remote_port = 4;
    net.inject(&format!("S 0 win 1000 {PLAIN}"));
    net.inject(". 1 ack 1 win 1000");
    net.drain();
    net.close(listener);
    // The half-open one and the last one; not the one reset already.
    assert_eq!(
        net.next().map(|sent| sent.to_string()).as_deref(),
        Some("R. 1 ack 1 win 0")
    );
    assert_eq!(
        net.next().map(|sent| sent.to_string()).as_deref(),
        Some("R. 1 ack 1 win 0")
    );
    net.expect_nothing();
    assert_eq!(net.out.listened.get(&80), Some(&0));
    assert!(net.exists(accepted));
    net.remote_port = 2;
    net.inject(". 1:11 ack 1 win 1000");
    assert_eq!(net.read(accepted, 100), 10);
    net.drain();
    net.remote_port = 9;
    net.inject(&format!("S 0 win 1000 {PLAIN}"));
    net.expect("R. 0 ack 1");
    net.close(accepted);
    net.advance(1_000_000);
}

#[test]
fn ephemeral_ports_differ_and_all_are_tried() {
    let mut net = Net::new();
    let (_, first) = bind(&mut net, any(0), ALONE).expect("bound");
    let (_, second) = bind(&mut net, any(0), ALONE).expect("bound");
    assert_ne!(first.port, second.port);
    // All ports but one belong to another owner.
    for free in [32_768u16, 40_000, 55_464, 60_999] {
        net.out.foreign = (FIRST_EPHEMERAL..61_000)
            .filter(|port| *port != free)
            .collect();
        let id = net.connect(80);
        assert_eq!(
            net.tcp.table().record(id.slot).four_tuple().local.port,
            free
        );
        // The same port serves a connection to somewhere else, but not one more to there.
        let other = net.connect(81);
        assert_eq!(
            net.tcp.table().record(other.slot).four_tuple().local.port,
            free
        );
        let third = net.tcp.open().expect("a slot");
        let end = Endpoint::new(REMOTE, 80);
        let refused = net.tcp.connect(net.now, third, end, &mut net.out);
        assert_eq!(refused, Err(SocketError::AddressNotAvailable));
        for id in [id, other, third] {
            net.close(id);
        }
    }
}

#[test]
fn connecting_to_nowhere_or_twice() {
    let mut net = Net::new();
    let id = net.tcp.open().expect("a slot");
    let group = core::net::Ipv4Addr::new(224, 0, 0, 1).into();
    for end in [Endpoint::new(REMOTE, 0), any(80), Endpoint::new(group, 80)] {
        let refused = net.tcp.connect(net.now, id, end, &mut net.out);
        assert_eq!(refused, Err(SocketError::AddressNotAvailable), "{end}");
    }
    net.connect_from(id, 80);
    let again = net
        .tcp
        .connect(net.now, id, Endpoint::new(REMOTE, 81), &mut net.out);
    assert_eq!(again, Err(SocketError::Invalid));
    net.inject(&format!("S. 0 ack 1 win 1000 {PLAIN}"));
    let again = net
        .tcp
        .connect(net.now, id, Endpoint::new(REMOTE, 81), &mut net.out);
    assert_eq!(again, Err(SocketError::IsConnected));
    // From the same end to the same end.
    let local = net.tcp.table().record(id.slot).four_tuple().local;
    let (twin, _) = bind(&mut net, local, REUSE).expect("no listener there");
    let refused = net
        .tcp
        .connect(net.now, twin, Endpoint::new(REMOTE, 80), &mut net.out);
    assert_eq!(refused, Err(SocketError::AddressNotAvailable));
    net.run();
}

/// Every way to end: (who does what, in order; states after each step). `c` closes, `s` shuts
/// down, others are segments.
#[test]
fn closing_sequences() {
    use State::*;
    type Step<'a> = (&'a str, &'a str, State);
    let table: &[&[Step]] = &[
        // We finish first, in three forms of the peer's answer.
        &[
            ("s", "F. 1 ack 1", FinWait1),
            (". 1 ack 2", "", FinWait2),
            ("F. 1 ack 2", ". 2 ack 2", TimeWait),
        ],
        &[
            ("s", "F. 1 ack 1", FinWait1),
            ("F. 1 ack 2", ". 2 ack 2", TimeWait),
        ],
        &[
            ("s", "F. 1 ack 1", FinWait1),
            ("F. 1 ack 1", ". 2 ack 2", Closing),
            (". 2 ack 2", "", TimeWait),
        ],
        &[
            ("s", "F. 1 ack 1", FinWait1),
            ("F. 1:11 ack 2", ". 2 ack 12", TimeWait),
        ],
        // The peer repeats its FIN in CLOSING: it is acknowledged again.
        &[
            ("s", "F. 1 ack 1", FinWait1),
            ("F. 1 ack 1", ". 2 ack 2", Closing),
            ("F. 1 ack 1", ". 2 ack 2", Closing),
            (". 2 ack 2", "", TimeWait),
        ],
        // The peer finishes first.
        &[
            ("F. 1 ack 1", ". 1 ack 2", CloseWait),
            ("s", "F. 1 ack 2", LastAck),
            (". 2 ack 2", "", Closed),
        ],
        &[
            ("F. 1 ack 1", ". 1 ack 2", CloseWait),
            ("s", "F. 1 ack 2", LastAck),
            ("F. 1 ack 1", ". 2 ack 2", LastAck),
            (". 2 ack 1", "", LastAck),
            (". 2 ack 2", "", Closed),
        ],
        // Half-closed, the other direction goes on.
        &[
            ("s", "F. 1 ack 1", FinWait1),
            (". 1:1001 ack 2", ". 2 ack 1001", FinWait2),
            (". 1001:2001 ack 2", ". 2 ack 2001", FinWait2),
            ("F. 2001 ack 2", ". 2 ack 2002", TimeWait),
        ],
        // Resets.
        &[("s", "F. 1 ack 1", FinWait1), ("R 1", "", Closed)],
        &[("F. 1 ack 1", ". 1 ack 2", CloseWait), ("R 2", "", Closed)],
    ];
    for script in table {
        let mut net = Net::new();
        let id = net.accepted(PLAIN, 60_000);
        for (step, answer, state) in *script {
            match *step {
                "s" => net.shutdown(id),
                segment => net.inject(&format!("{segment} win 60000")),
            }
            if !answer.is_empty() {
                net.expect(answer);
            }
            // Only an acknowledgement of ours that nobody needs may be left.
            net.expect_nothing();
            assert_eq!(net.state(id), *state, "{script:?} at {step}");
        }
        net.close(id);
        assert!(!net.exists(id), "{script:?}");
        net.advance(100_000);
        assert_eq!(net.out.uses.get(&80), Some(&1), "the listener's");
    }
}

#[test]
fn closing_with_unread_data_or_by_option_resets() {
    let mut net = Net::new();
    let listener = net.listen(80, 5);
    let id = net.accepted_from(listener, PLAIN, 60_000);
    net.inject(". 1:11 ack 1 win 60000");
    net.close(id);
    net.expect("R. 1 ack 11");
    assert!(!net.exists(id));
    net.remote_port += 1;
    let id = net.accepted_from(listener, PLAIN, 60_000);
    net.set(id, ConnectionOption::ResetOnClose(true));
    net.write(id, 100);
    net.expect(". 1:101 ack 1");
    net.inject(". 1 ack 101 win 60000");
    net.close(id);
    net.expect("R. 101 ack 1");
    net.expect_nothing();
    assert!(!net.exists(id));
}

/// A server says that a request is too large, and closes without having read it to its end.
#[test]
fn what_was_written_arrives_before_the_reset_that_closing_makes() {
    for resets in [false, true] {
        let mut net = Net::new();
        let id = net.accepted(PLAIN, 60_000);
        net.inject(". 1:1001 ack 1 win 60000");
        net.drain();
        if resets {
            net.read(id, 1_000);
            net.set(id, ConnectionOption::ResetOnClose(true));
        }
        net.write(id, 1_500);
        net.close(id);
        net.expect_all(&[". 1:1001 ack 1001", ". 1001:1501 ack 1001"]);
        net.expect_nothing();
        // More of the request, from before the answer came.
        net.inject(". 1001:2001 ack 1 win 60000");
        net.inject(". 2001 ack 1001 win 60000");
        net.expect_nothing();
        net.inject(". 2001 ack 1501 win 60000");
        net.expect("R 1501");
        net.expect_nothing();
        assert!(!net.exists(id));
    }
    // A peer that says nothing isn't waited for.
    let mut net = Net::new();
    let id = net.accepted(PLAIN, 60_000);
    net.set(id, ConnectionOption::ResetOnClose(true));
    net.write(id, 500);
    net.close(id);
    net.expect(". 1:501 ack 1");
    net.expect_after(200, ". 1:501 ack 1");
    net.advance(210);
    let rest: Vec<String> = core::iter::from_fn(|| net.next())
        .map(|sent| sent.to_string())
        .collect();
    assert_eq!(
        rest.last().map(String::as_str),
        Some("R. 501 ack 1 win 0"),
        "{rest:?}"
    );
    assert!(!net.exists(id));
}

#[test]
fn a_closed_socket_still_delivers_what_was_written() {
    for refuse in [0, 2, 3] {
        let mut net = Net::new();
        let id = net.accepted(PLAIN, 1_500);
        net.out.refuse_every = refuse;
        net.write(id, 4_100);
        net.close(id);
        assert_eq!(net.tcp.unfinished(), 1);
        net.expect(". 1:1001 ack 1");
        net.expect_nothing();
        net.inject(". 1 ack 1001 win 2000");
        net.expect_all(&[". 1001:2001 ack 1", ". 2001:3001 ack 1"]);
        net.inject(". 1 ack 3001 win 2000");
        net.expect_all(&[". 3001:4001 ack 1", "F. 4001:4101 ack 1"]);
        net.expect_nothing();
        net.inject("F. 1 ack 4102 win 2000");
        assert!(!net.exists(id));
        assert_eq!(net.tcp.unfinished(), 0);
    }
}

#[test]
fn requests_for_sockets_that_are_gone_are_ignored() {
    let mut net = Net::new();
    let id = net.accepted(PLAIN, 60_000);
    net.set(id, ConnectionOption::ResetOnClose(true));
    net.close(id);
    net.expect("R. 1 ack 1");
    let wild = SocketId {
        slot: u32::MAX,
        generation: 1,
    };
    for id in [id, wild] {
        net.request(TcpRequest::Sent(id));
        net.request(TcpRequest::Received(id));
        net.shutdown(id);
        net.set(id, ConnectionOption::NoDelay(true));
        net.close(id);
        assert_eq!(net.tcp.accept(id), None);
        assert_eq!(net.tcp.acceptable(id), 0);
        let bound = net.tcp.bind(id, any(99), ALONE, &mut net.out);
        assert_eq!(bound, Err(SocketError::Invalid));
    }
    net.expect_nothing();
}

#[test]
fn events_that_find_no_room_come_later() {
    let mut net = Net::new();
    let id = net.accepted(PLAIN, 60_000);
    net.events(id);
    net.out.shut = true;
    let header = "F. 1:11 ack 1 win 60000";
    net.inject_without_run(header);
    for _ in 0..3 {
        let progress = skink_messages::Component::poll(&mut net.tcp, net.now, &mut net.out);
        assert_eq!(progress, skink_messages::Progress::More);
    }
    net.out.shut = false;
    net.run();
    net.expect(". 1 ack 12");
    assert!(
        net.events(id)
            .contains(Events::READABLE | Events::READ_CLOSED)
    );
}

/// Comparisons of sequence numbers hold for half of the number circle only.
#[test]
fn a_connection_ends_however_much_it_has_sent() {
    for bytes in [0x7fff_0000, 0x9000_0000, 0xffff_0000] {
        let mut net = Net::with_rings(1 << 20, 64 * 1024);
        let id = net.accepted(PLAIN, 60_000);
        net.shift_sent(id, bytes);
        net.drain();
        net.close(id);
        let fin = net
            .next()
            .unwrap_or_else(|| panic!("no FIN after {bytes:#x} bytes"));
        assert!(fin.header.flags.contains(skink_wire::tcp::Flags::FIN));
        assert_eq!(fin.seq(), bytes.wrapping_add(1));
    }
}
