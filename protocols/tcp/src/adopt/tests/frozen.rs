//! What a successor finds at every moment at which the instance asked for something: before and after
//! each segment, each event and each use of a port.
use super::*;
use crate::instance::Socket;
use skink_wire::FourTuple;
use skink_wire::tcp::{Flags, Header};

/// Adopts all that was kept. Nothing may be given up, and what was shown to the peer must be known.
fn thaw_all(net: &mut Net, what: &str) {
    let frozen = net.take_frozen();
    assert!(frozen.len() > 3, "{what}: {} moments", frozen.len());
    for (moment, frozen) in frozen.iter().enumerate() {
        let (mut next, adopted) = net.thaw(frozen);
        assert_eq!(adopted.given_up, 0, "{what}, moment {moment}");
        if let Some((header, bytes)) = frozen.last {
            check_covered(&next, &header, bytes, &format!("{what}, moment {moment}"));
        }
        // Comes to rest, and is sound then.
        next.run();
        let resets = |sent: &crate::harness::Sent| sent.header.flags.contains(Flags::RST);
        let reset = next.out.sent.iter().any(resets);
        assert!(!reset || what.contains("reset"), "{what}, moment {moment}");
        // The successor dies before anything else happens.
        let again = next.crash();
        assert_eq!(again.given_up, 0, "{what}, moment {moment}, again");
    }
}

fn check_covered(net: &Net, header: &Header, bytes: u32, what: &str) {
    let local = Endpoint::new(LOCAL, header.source_port);
    let remote = Endpoint::new(REMOTE, header.destination_port);
    let tuple = FourTuple::new(local, remote);
    let connections = net.tcp.sockets.iter().filter_map(|socket| match socket {
        Socket::Connection(connection) if connection.tuple == tuple => Some(connection),
        _ => None,
    });
    for connection in connections {
        let state = connection.state();
        if header.flags.contains(Flags::RST) {
            assert_eq!(state, State::Closed, "{what}: reset, and goes on");
        }
        if state == State::SynReceived && header.flags == Flags::SYN | Flags::ACK {
            let edge = header.ack + u32::from(header.window);
            assert!(edge.le(connection.rcv_adv), "{what}: offered");
        }
        if state == State::Closed || header.flags.contains(Flags::SYN) {
            continue;
        }
        let end = header.seq + bytes + u32::from(header.flags.contains(Flags::FIN));
        assert!(end.le(connection.snd_nxt), "{what}: sent, not on record");
        let ack = header.ack;
        assert!(ack.le(connection.rcv_nxt), "{what}: acknowledged");
        let edge = ack + (u32::from(header.window) << connection.rcv_wscale);
        let slack = (1 << connection.rcv_wscale) - 1;
        assert!(edge.le(connection.rcv_adv + slack), "{what}: offered");
    }
}

#[test]
fn every_moment_of_a_connection_can_be_adopted() {
    // (what, lines: the peer's segments, or what the program does)
    let table: [(&str, &[&str]); 9] = [
        (
            "both ways",
            &[
                "write 3000",
                ". 1:1001 ack 1001",
                ". 1001:1501 ack 3001",
                "read",
                "write 500",
                ". 1501 ack 3501",
            ],
        ),
        (
            "losses",
            &[
                "write 5000",
                ". 1 ack 1 sack 1001-2001",
                ". 1 ack 1 sack 1001-4001",
                ". 1 ack 1 sack 1001-5001",
                ". 1001:2001 ack 5001",
                ". 1:1001 ack 5001",
                "read",
            ],
        ),
        (
            "a closed window",
            &[
                "write 1000",
                "0 . 1 ack 1001",
                "write 2000",
                "wait 5000",
                ". 1 ack 1001",
                ". 1 ack 3001",
            ],
        ),
        (
            "timeouts",
            &["write 2000", "wait 10000", ". 1 ack 2001", "write 10"],
        ),
        (
            "we close first",
            &[
                "write 100",
                "close",
                ". 1 ack 102",
                "F. 1 ack 102",
                "wait 70000",
            ],
        ),
        (
            "we shut down, then close",
            &[
                "write 100",
                "shutdown",
                ". 1:101 ack 102",
                "read",
                "F. 101 ack 102",
                "close",
            ],
        ),
        (
            "the peer closes first",
            &[
                "F. 1:101 ack 1",
                "read",
                "write 100",
                "close",
                ". 102 ack 102",
            ],
        ),
        (
            "both close at once",
            &["shutdown", "F. 1 ack 1", ". 2 ack 2", "close"],
        ),
        ("reset: data unread", &[". 1:101 ack 1", "close"]),
    ];
    for refuse_every in [0, 2, 3] {
        for (what, lines) in &table {
            let mut net = Net::with_rings(8192, 8192);
            net.freeze();
            let id = net.accepted(OFFER, 60_000);
            net.out.refuse_every = refuse_every;
            for line in *lines {
                step(&mut net, id, line);
            }
            thaw_all(&mut net, &format!("{what} (one in {refuse_every} refused)"));
        }
    }
}

fn step(net: &mut Net, id: SocketId, line: &str) {
    let mut words = line.split_whitespace();
    let mut number = || words.next().and_then(|word| word.parse().ok());
    match line.split_whitespace().next() {
        Some("write") => {
            let _ = number();
            net.write(id, number().expect("a number"));
        }
        Some("wait") => {
            let _ = number();
            net.advance(number().map_or(0, u64::from));
        }
        Some("read") => drop(net.read(id, 10_000)),
        Some("shutdown") => net.shutdown(id),
        Some("close") => net.close(id),
        Some("0") => net.inject(&format!("{} win 0 ts 2000 *", &line[2..])),
        _ => net.inject(&format!("{line} win 400 ts 2000 *")),
    }
}

#[test]
fn every_moment_of_opening_can_be_adopted() {
    let mut net = Net::with_rings(8192, 8192);
    net.freeze();
    let id = net.connect(80);
    net.fill(id, 100);
    net.shutdown(id);
    net.advance(5_000);
    net.inject(&format!("S. 0 ack 1 win 60000 {PLAIN}"));
    net.inject(". 1 ack 102 win 60000");
    thaw_all(&mut net, "we open");

    net.freeze();
    let crossed = net.connect(81);
    net.inject(&format!("S 0 win 60000 {PLAIN}"));
    net.advance(5_000);
    net.inject(". 1 ack 1 win 60000");
    assert_eq!(net.state(crossed), State::Established);
    thaw_all(&mut net, "both open");

    net.freeze();
    let refused = net.connect(82);
    net.inject("R. 0 ack 1");
    assert_eq!(net.error(refused), SocketError::Refused as u32);
    net.close(refused);
    net.connect(83);
    net.advance(200_000);
    thaw_all(&mut net, "refused");
}

#[test]
fn every_moment_of_a_listener_can_be_adopted() {
    let mut net = Net::with_rings(8192, 8192);
    net.freeze();
    let listener = net.listen(80, 5);
    for port in 1..5 {
        net.remote_port = port;
        net.inject(&format!("S 0 win 60000 {OFFER}"));
        net.inject(". 1:11 ack 1 win 60000 ts 1001 *");
    }
    let first = net.tcp.accept(listener).expect("one waits");
    net.remote_port = 5;
    net.inject(&format!("S 0 win 60000 {OFFER}"));
    let offered = net.tcp.offer(listener).expect("another waits");
    net.local_port = 80;
    net.remote_port = 1;
    net.inject("R. 11 ack 1");
    net.close(first);
    thaw_all(&mut net, "accepting");
    net.freeze();
    net.close(offered);
    net.close(listener);
    thaw_all(&mut net, "closing a listener, with resets");
    net.freeze();
    net.listen_in(0, 90, 5, SHARED);
    net.abandon(0);
    thaw_all(&mut net, "a program that dies, with resets");
}
