use super::*;
use crate::records::FlowPhase;
use crate::summary::Piece;
use crate::test_support::{
    PEER, Random, US, at, end, filter, filter_of, icmp, icmp_error, later, passes, rules, tcp, udp,
};
use crate::verdict::Direction::{In, Out};
use skink_wire::Malformed;

/// Nothing comes in unasked, and everything may go out.
const CLIENT: &str = "block all\npass out all\n";
/// A web server.
const SERVER: &str = "block all\npass in proto tcp to port 80\n";

/// A connection that the peer opened, up to ESTABLISHED.
fn open(filter: &mut Filter, seconds: u64, peer: &str) {
    assert!(passes(filter, seconds, In, &tcp(peer, US, "S")));
    assert!(passes(filter, seconds, Out, &tcp(US, peer, "SA")));
    assert!(passes(filter, seconds, In, &tcp(peer, US, "A")));
}

#[test]
fn without_rules_everything_passes_and_nothing_is_counted() {
    let mut filter = filter("");
    assert!(!filter.is_active());
    assert!(passes(&mut filter, 0, In, &tcp(PEER, US, "S")));
    let verdict = filter.check_parsed(at(0), In, Err(Malformed::TooShort));
    assert_eq!(verdict, Verdict::Pass);
    assert_eq!((*filter.totals(), filter.states()), (Totals::default(), 0));
    filter.load(rules("set skip on eth0\nblock all"));
    assert!(!filter.is_active());
    filter.load(rules("set skip on egress\nblock all"));
    assert!(!filter.is_active());
    filter.load(rules("set skip on eth1\nblock all"));
    assert!(!passes(&mut filter, 0, In, &tcp(PEER, US, "S")));
    filter.unload();
    assert!(passes(&mut filter, 0, In, &tcp(PEER, US, "S")));
}

#[test]
fn blocked_senders_are_told_where_they_may_be() {
    let mut filter = filter("block return all");
    for (packet, expected) in [
        (tcp(PEER, US, "S"), Verdict::Return),
        (tcp(PEER, US, "RA"), Verdict::Drop),
        (udp(PEER, US), Verdict::Return),
        (later(udp(PEER, US)), Verdict::Drop),
        (icmp(PEER, US, 8, 1), Verdict::Drop),
    ] {
        assert_eq!(filter.check(at(0), In, &packet), expected, "{packet:?}");
    }
    filter.load(rules("block drop all"));
    assert_eq!(filter.check(at(0), In, &udp(PEER, US)), Verdict::Drop);
    let malformed = filter.check_parsed(at(0), In, Err(Malformed::TooShort));
    assert_eq!(malformed, Verdict::Drop);
    let totals = *filter.totals();
    assert_eq!(
        (totals.returned, totals.blocked, totals.malformed),
        (2, 4, 1)
    );
}

#[test]
fn answers_come_back_and_others_do_not() {
    let (us, other) = ("10.0.0.1:5000", "192.0.2.9:4001");
    let mut filter = filter(CLIENT);
    for (packet, answer, stranger) in [
        (
            tcp(us, PEER, "S"),
            tcp(PEER, us, "SA"),
            tcp(other, us, "SA"),
        ),
        (udp(us, PEER), udp(PEER, us), udp(other, us)),
        (
            icmp(us, PEER, 8, 7),
            icmp(PEER, us, 0, 7),
            icmp(PEER, us, 0, 8),
        ),
    ] {
        assert!(!passes(&mut filter, 0, In, &answer), "unasked: {answer:?}");
        assert!(passes(&mut filter, 0, Out, &packet));
        assert!(passes(&mut filter, 1, In, &answer), "asked: {answer:?}");
        assert!(
            !passes(&mut filter, 1, In, &stranger),
            "not asked: {stranger:?}"
        );
    }
    // An echo request of theirs with the identifier of ours is no answer.
    assert!(!passes(&mut filter, 1, In, &icmp(PEER, us, 8, 7)));
    // IPv6 is no IPv4.
    let v6 = udp("[::ffff:192.0.2.9]:4000", "[::ffff:10.0.0.1]:5000");
    assert!(!passes(&mut filter, 1, In, &v6));
    assert_eq!(filter.states(), 3);
}

#[test]
fn a_connection_lives_through_everything_legal() {
    let mut filter = filter(SERVER);
    assert!(
        !passes(&mut filter, 0, In, &tcp(PEER, US, "A")),
        "not a request"
    );
    open(&mut filter, 0, PEER);
    for (seconds, direction, letters) in [
        (1, In, "PA"),
        (1, Out, "A"),
        // Four days of silence; then a half-closed connection that is silent for hours.
        (345_600, Out, "PA"),
        (345_601, In, "FA"),
        (400_000, Out, "PA"),
        (400_000, In, "A"),
        (400_001, Out, "FA"),
        // Sent again, with the longest retransmission timeout.
        (400_121, Out, "FA"),
        (400_241, Out, "FA"),
        (400_241, In, "A"),
    ] {
        let (source, destination) = match direction {
            In => (PEER, US),
            Out => (US, PEER),
        };
        let _ = filter.poll(at(seconds));
        let packet = tcp(source, destination, letters);
        assert!(
            passes(&mut filter, seconds, direction, &packet),
            "{seconds} {letters}"
        );
    }
    // Over: it is forgotten, and what is late is strange.
    assert_eq!(filter.poll(at(400_600)), Progress::Idle);
    assert_eq!(filter.states(), 0);
    assert!(!passes(&mut filter, 400_600, In, &tcp(PEER, US, "PA")));
    assert_eq!(filter.totals().states_expired, 1);
}

#[test]
fn ports_are_used_again_by_the_rules_of_the_day() {
    let mut filter = filter(SERVER);
    open(&mut filter, 0, PEER);
    filter.load(rules("block in\npass out"));
    assert!(
        passes(&mut filter, 1, In, &tcp(PEER, US, "PA")),
        "established"
    );
    assert!(passes(&mut filter, 1, In, &tcp(PEER, US, "RA")));
    assert!(
        !passes(&mut filter, 2, In, &tcp(PEER, US, "S")),
        "a new connection"
    );
    filter.load(rules(SERVER));
    open(&mut filter, 3, PEER);
    assert!(passes(&mut filter, 4, In, &tcp(PEER, US, "PA")));
    assert_eq!(filter.states(), 1);
}

#[test]
fn what_is_forged_costs_no_connection() {
    let forged = |letters| crate::Summary {
        seq: 77_000,
        ..tcp(PEER, US, letters)
    };
    // A reset and a request; a reset, and silence for hours; a FIN on top of ours.
    for history in [
        [(1, In, forged("R")), (2, In, forged("S"))],
        [(1, In, forged("R")), (40_000, In, forged("A"))],
        [(1, Out, tcp(US, PEER, "FA")), (2, In, forged("FA"))],
    ] {
        let mut filter = filter(SERVER);
        open(&mut filter, 0, PEER);
        for (seconds, direction, packet) in history {
            let _ = filter.poll(at(seconds));
            assert!(passes(&mut filter, seconds, direction, &packet));
        }
        let _ = filter.poll(at(80_000));
        assert!(
            passes(&mut filter, 80_000, In, &tcp(PEER, US, "PA")),
            "{history:?}"
        );
        assert!(passes(&mut filter, 80_000, Out, &tcp(US, PEER, "A")));
    }
}

#[test]
fn timeouts_are_those_of_the_state() {
    let t = Timeouts::DEFAULT;
    let half_open = tcp(PEER, US, "S");
    for (packets, expected) in [
        (vec![(In, half_open)], t.tcp_opening),
        (
            vec![(In, half_open), (Out, tcp(US, PEER, "RA"))],
            t.tcp_reset,
        ),
        // After the handshake a peer's reset may be forged.
        (
            vec![
                (Out, tcp(US, PEER, "S")),
                (In, tcp(PEER, US, "SA")),
                (Out, tcp(US, PEER, "A")),
                (In, tcp(PEER, US, "R")),
            ],
            t.tcp_reset_by_peer,
        ),
        (
            vec![(Out, tcp(US, PEER, "S")), (In, tcp(PEER, US, "RA"))],
            t.tcp_reset,
        ),
        (vec![(In, udp(PEER, US))], t.datagram),
        (vec![(In, udp(PEER, US)), (In, udp(PEER, US))], t.datagram),
        (
            vec![(In, udp(PEER, US)), (Out, udp(US, PEER))],
            t.datagram_answered,
        ),
        (
            vec![(In, icmp(PEER, US, 8, 1)), (Out, icmp(US, PEER, 0, 1))],
            t.echo,
        ),
    ] {
        let mut filter = filter("pass all");
        for (direction, packet) in &packets {
            assert!(passes(&mut filter, 100, *direction, packet));
        }
        assert_eq!(filter.states(), 1, "{packets:?}");
        let end = at(100) + expected;
        let _ = filter.poll(Instant::from_nanos(end.as_nanos() - 2_000_000));
        assert_eq!(filter.states(), 1, "{packets:?} before {expected:?}");
        assert!(filter.next_deadline().is_some());
        let _ = filter.poll(Instant::from_nanos(end.as_nanos() + 4_000_000));
        assert_eq!(filter.states(), 0, "{packets:?} after {expected:?}");
        assert_eq!(filter.next_deadline(), None);
    }
}

#[test]
fn idle_connections_of_live_sockets_are_kept() {
    let mut filter = filter(SERVER);
    open(&mut filter, 0, PEER);
    let mut asked = Vec::new();
    let late = at(6 * 86_400);
    let _ = filter.poll_asking(late, |number, tuple| {
        asked.push((number, *tuple));
        true
    });
    assert_eq!(asked, [(protocol::TCP, FourTuple::new(end(US), end(PEER)))]);
    assert_eq!(filter.states(), 1);
    let _ = filter.poll_asking(late, |_, _| false);
    assert_eq!(filter.states(), 1, "not asked again before its new time");
    let _ = filter.poll_asking(at(12 * 86_400), |_, _| false);
    assert_eq!(filter.states(), 0);
}

#[test]
fn flows_that_are_confirmed_are_kept_and_no_others_entered() {
    const DAY: u64 = 86_400;
    let mut filter = filter(SERVER);
    let other = "192.0.2.9:4001";
    open(&mut filter, 0, PEER);
    open(&mut filter, 0, other);
    let flow = |remote: &str| Flow {
        tuple: FourTuple::new(end(US), end(remote)),
        phase: FlowPhase::Established,
    };
    let strangers = (1..100).map(|n| format!("192.0.2.7:{n}"));
    let strangers: Vec<Flow> = strangers.map(|remote| flow(&remote)).collect();
    assert_eq!(filter.confirm(at(4 * DAY), strangers), 0);
    assert_eq!(filter.states(), 2, "nobody gets in by being told of");
    assert_eq!(filter.confirm(at(4 * DAY), [flow(PEER)]), 1);
    let _ = filter.poll(at(6 * DAY));
    assert_eq!(filter.states(), 1, "the other one was idle for 5 days");
    // What is confirmed is as long-lived as what it has become.
    assert!(passes(&mut filter, 6 * DAY, In, &tcp(PEER, US, "FA")));
    assert_eq!(filter.rebuild(at(6 * DAY + 1), [flow(PEER)]), 0);
    let _ = filter.poll(at(7 * DAY));
    assert_eq!(filter.states(), 1);
    let _ = filter.poll(at(7 * DAY + 2));
    assert_eq!((filter.states(), filter.next_deadline()), (0, None));
}

#[test]
fn icmp_errors_pass_with_the_flow_they_are_about() {
    let mut filter = filter(CLIENT);
    let router = "198.51.100.1:0";
    let flows = [udp(US, PEER), tcp(US, PEER, "S"), icmp(US, PEER, 8, 3)];
    for sent in flows {
        assert!(
            !passes(&mut filter, 0, In, &icmp_error(router, US, &sent)),
            "before"
        );
        assert!(passes(&mut filter, 0, Out, &sent));
        assert!(passes(&mut filter, 0, In, &icmp_error(router, US, &sent)));
        // To another host than the one that sent the packet; about what we received; of another flow.
        assert!(!passes(
            &mut filter,
            0,
            In,
            &icmp_error(router, "10.0.0.2:0", &sent)
        ));
        let other = crate::Summary {
            source: sent.source + 1,
            ..sent
        };
        assert!(!passes(&mut filter, 0, In, &icmp_error(router, US, &other)));
        // A redirect isn't an error about a packet.
        let redirect = crate::Summary {
            icmp_type: 5,
            ..icmp_error(router, US, &sent)
        };
        assert!(!passes(&mut filter, 0, In, &redirect));
    }
    // Ours about theirs.
    filter.load(rules("block all\npass in proto udp to port 80"));
    let received = udp("192.0.2.7:1", US);
    let unreachable = icmp_error(US, "192.0.2.7:0", &received);
    assert!(!passes(&mut filter, 0, Out, &unreachable));
    assert!(passes(&mut filter, 0, In, &received));
    assert!(passes(&mut filter, 0, Out, &unreachable));
}

#[test]
fn later_pieces_pass_by_rules_without_ports_only() {
    let piece = later(udp(PEER, US));
    for (text, expected) in [
        ("block all\npass proto udp", true),
        ("block all\npass proto udp to port 80", false),
        ("block all\npass from 192.0.2.9", true),
        ("pass all\nblock proto udp to port != 80", true),
    ] {
        let mut filter = filter(text);
        assert_eq!(passes(&mut filter, 0, In, &piece), expected, "{text}");
        assert_eq!(filter.states(), 0);
    }
}

#[test]
fn the_first_piece_of_a_message_decides_about_the_others() {
    let piece = |piece, seq, packet| crate::Summary {
        piece,
        seq,
        ..packet
    };
    let [request, reply] = [(PEER, US, 8), (US, PEER, 0)].map(|(from, to, kind)| {
        let message = icmp(from, to, kind, 7);
        let first = piece(Piece::First, 40, message);
        (first, piece(Piece::Later, 40, later(message)))
    });
    for (text, asks, answers) in [
        (
            "block all\npass in inet proto icmp icmp-type echoreq",
            true,
            true,
        ),
        (
            "block all\npass in inet proto icmp icmp-type unreach\npass out all",
            false,
            true,
        ),
        (
            "pass in no state\nblock out inet proto icmp icmp-type echorep",
            true,
            false,
        ),
    ] {
        let mut filter = filter(text);
        let asked = passes(&mut filter, 0, In, &request.0);
        assert_eq!(asked, asks, "{text}");
        // Without the first one they are of no use.
        assert!(passes(&mut filter, 0, In, &request.1), "{text}");
        let blocked = filter.totals().blocked;
        for packet in [reply.0, reply.1, reply.1] {
            assert_eq!(passes(&mut filter, 0, Out, &packet), answers, "{text}");
        }
        let more = if answers { 0 } else { 3 };
        assert_eq!(filter.totals().blocked - blocked, more, "{text}");
    }
    // Of another message.
    let mut filter = filter("block all\npass in inet proto icmp icmp-type echoreq");
    assert!(passes(&mut filter, 0, In, &request.0));
    assert!(passes(&mut filter, 0, Out, &reply.0));
    let other = piece(Piece::Later, 41, reply.1);
    assert!(!passes(&mut filter, 0, Out, &other));
}

#[test]
fn no_state_makes_none() {
    let mut filter = filter("block all\npass in proto udp to port 80 no state");
    assert!(passes(&mut filter, 0, In, &udp(PEER, US)));
    assert!(!passes(&mut filter, 0, Out, &udp(US, PEER)));
    assert_eq!(filter.states(), 0);
}

#[test]
fn a_full_table_gives_up_what_is_worth_least() {
    let peer = |n: usize| format!("192.0.2.{}:{}", n / 100, 1_000 + n % 100);
    let mut filter = filter_of("pass all", 4);
    // Two established ones, an answered datagram flow, a half-open one.
    open(&mut filter, 0, &peer(1));
    open(&mut filter, 0, &peer(2));
    assert!(passes(&mut filter, 0, In, &udp(&peer(3), US)));
    assert!(passes(&mut filter, 0, Out, &udp(US, &peer(3))));
    // A flood of requests fights for the one place that is left.
    for n in 100..5_000 {
        assert!(passes(&mut filter, 1, In, &tcp(&peer(n), US, "S")));
    }
    assert_eq!(
        (filter.states(), filter.totals().states_evicted),
        (4, 4_899)
    );
    let known: Vec<u16> = filter
        .export_states()
        .map(|state| state.remote.port)
        .collect();
    for n in [1, 2, 3] {
        assert!(known.contains(&end(&peer(n)).port), "{n} in {known:?}");
    }
    // A connection that is being closed goes before datagrams do, the longest silent of which goes first.
    open(&mut filter, 2, &peer(4_999));
    assert!(passes(&mut filter, 2, In, &tcp(&peer(1), US, "FA")));
    assert!(passes(&mut filter, 2, In, &udp(&peer(5), US)));
    assert!(passes(&mut filter, 2, Out, &udp(US, &peer(5))));
    assert!(passes(&mut filter, 3, In, &udp(&peer(3), US)));
    open(&mut filter, 4, &peer(6));
    let known: Vec<u16> = filter
        .export_states()
        .map(|state| state.remote.port)
        .collect();
    assert_eq!(known.len(), 4);
    for (n, expected) in [
        (1, false),
        (2, true),
        (3, true),
        (5, false),
        (6, true),
        (4_999, true),
    ] {
        assert_eq!(
            known.contains(&end(&peer(n)).port),
            expected,
            "{n} in {known:?}"
        );
    }
    // All established: a new one is refused, and none is lost.
    open(&mut filter, 4, &peer(7));
    assert!(!passes(&mut filter, 5, In, &tcp(&peer(8), US, "S")));
    assert_eq!(filter.totals().refused, 1);
    assert!(passes(&mut filter, 5, In, &tcp(&peer(2), US, "PA")));
}

/// As of a busy name server.
#[test]
fn connections_begin_though_datagram_flows_fill_the_table() {
    let rules = "block all\npass in proto tcp to port 80 flags S/SA\npass in proto udp to port 80";
    let mut filter = filter_of(rules, 16);
    let mut clients = (0..).map(|n| format!("192.0.2.1:{}", 1_000 + n));
    let mut ask = |filter: &mut Filter, many| {
        for client in clients.by_ref().take(many) {
            assert!(passes(filter, 1, In, &udp(&client, US)));
            assert!(passes(filter, 1, Out, &udp(US, &client)));
        }
    };
    ask(&mut filter, 20);
    assert!(passes(&mut filter, 1, In, &tcp(PEER, US, "S")));
    ask(&mut filter, 20);
    assert!(passes(&mut filter, 1, Out, &tcp(US, PEER, "SA")));
    ask(&mut filter, 20);
    assert!(passes(&mut filter, 1, In, &tcp(PEER, US, "A")));
    assert_eq!(filter.states(), 16);
}

#[test]
fn tracking_is_rebuilt_from_what_tcp_and_udp_know() {
    let flow = |local, remote, phase| Flow {
        tuple: FourTuple::new(end(local), end(remote)),
        phase,
    };
    let peer = |n: u16| format!("192.0.2.9:{n}");
    let flows = [
        flow(US, &peer(1), FlowPhase::Established),
        flow(US, &peer(2), FlowPhase::LocalClosed),
        flow(US, &peer(3), FlowPhase::RemoteClosed),
        flow(US, &peer(4), FlowPhase::BothClosed),
        flow(US, &peer(5), FlowPhase::Asked),
        flow(US, &peer(6), FlowPhase::Answered { iss: 1000 }),
        flow(US, &peer(7), FlowPhase::Datagrams),
        flow(US, "[2001:db8::1]:5", FlowPhase::Established),
    ];
    let mut filter = filter("block all");
    assert!(!passes(&mut filter, 0, In, &tcp(&peer(1), US, "PA")));
    assert_eq!(
        filter.rebuild(at(1), flows),
        7,
        "all but the one of two IP versions"
    );
    assert_eq!(filter.rebuild(at(1), flows), 0, "known");
    for (n, letters) in [
        (1, "PA"),
        (2, "PA"),
        (3, "A"),
        (4, "A"),
        (5, "SA"),
        (6, "A"),
    ] {
        assert!(
            passes(&mut filter, 2, In, &tcp(&peer(n), US, letters)),
            "{n}"
        );
        assert!(passes(&mut filter, 2, Out, &tcp(US, &peer(n), "A")), "{n}");
    }
    assert!(passes(&mut filter, 2, In, &udp(&peer(7), US)));
    assert!(passes(&mut filter, 2, Out, &udp(US, &peer(7))));
    // Not open to others.
    assert!(!passes(&mut filter, 2, In, &tcp(&peer(7), US, "PA")));
    assert!(!passes(&mut filter, 2, In, &udp(&peer(1), US)));
    assert!(!passes(&mut filter, 2, In, &tcp(&peer(8), US, "S")));
    // Handshakes go on from where they were.
    let phases: Vec<u8> = filter
        .export_states()
        .filter(|state| [5, 6].contains(&state.remote.port))
        .map(|state| state.phase)
        .collect();
    assert_eq!(phases, [crate::Phase::Established as u8; 2]);
}

#[test]
fn states_are_handed_on_as_data() {
    let mut first = filter("pass all");
    open(&mut first, 0, PEER);
    assert!(passes(&mut first, 0, Out, &udp(US, "192.0.2.7:53")));
    assert!(passes(&mut first, 0, Out, &icmp(US, "192.0.2.7:0", 8, 3)));
    assert!(passes(
        &mut first,
        0,
        In,
        &tcp("[2001:db8::2]:1", "[2001:db8::1]:80", "S")
    ));
    let records: Vec<StateRecord> = first.export_states().collect();
    let mut second = filter("block all");
    assert_eq!(second.import(at(10), &records), 4);
    assert_eq!(second.import(at(10), &records), 0);
    assert!(passes(&mut second, 11, In, &tcp(PEER, US, "PA")));
    assert!(passes(&mut second, 11, In, &udp("192.0.2.7:53", US)));
    assert!(passes(&mut second, 11, In, &icmp("192.0.2.7:0", US, 0, 3)));
    let sorted = |filter: &Filter| {
        let mut states: Vec<_> = filter
            .export_states()
            .map(|state| {
                (
                    state.protocol,
                    state.local,
                    state.remote,
                    state.life,
                    state.opener,
                )
            })
            .collect();
        states.sort();
        states
    };
    assert_eq!(sorted(&second), sorted(&first));
    // What makes no sense is left out.
    let mut third = filter("block all");
    for record in records {
        for spoilt in [
            StateRecord {
                phase: 99,
                ..record
            },
            StateRecord {
                opener: 0,
                ..record
            },
            StateRecord {
                local: end("[::1]:1"),
                remote: end("10.0.0.1:1"),
                ..record
            },
        ] {
            assert_eq!(third.import(at(0), &[spoilt]), 0, "{spoilt:?}");
        }
    }
}

#[test]
fn rules_are_counted_and_begin_anew_with_each_load() {
    let text = "block log all label \"rest\"\npass in log proto tcp to port 80\npass in proto tcp to port 81 no state";
    let mut filter = filter(text);
    open(&mut filter, 0, PEER);
    let other = "192.0.2.9:4001";
    assert!(passes(&mut filter, 0, In, &tcp(other, US, "S")));
    assert!(passes(&mut filter, 0, In, &tcp(other, "10.0.0.1:81", "S")));
    assert!(!passes(&mut filter, 0, In, &udp(PEER, US)));
    let counters: Vec<RuleCounters> = filter.rules().map(|(_, counters)| counters).collect();
    let [block, web, other_web] = counters[..] else {
        panic!("three rules: {counters:?}");
    };
    assert_eq!(
        (block.packets, block.bytes, block.logged, block.states_made),
        (1, 28, 1, 0)
    );
    assert_eq!((web.packets, web.bytes, web.logged), (4, 160, 2));
    assert_eq!((web.states_made, web.states, web.evaluations), (2, 2, 2));
    assert_eq!((other_web.packets, other_web.states_made), (1, 0));
    let totals = *filter.totals();
    assert_eq!(
        (totals.passed, totals.passed_by_state, totals.blocked),
        (5, 2, 1)
    );
    let _ = filter.poll(at(300));
    let states = |filter: &Filter| {
        filter
            .rules()
            .map(|(_, counters)| counters.states)
            .sum::<u64>()
    };
    assert_eq!(states(&filter), 1, "the half-open one is forgotten");
    // Other rules know nothing of old states, which stay.
    assert_eq!(
        filter.export_states().next().map(|state| state.rule),
        Some(Some(1))
    );
    filter.load(rules(text));
    assert_eq!((states(&filter), filter.states()), (0, 1));
    assert_eq!(
        filter.export_states().next().map(|state| state.rule),
        Some(None)
    );
    assert!(passes(&mut filter, 301, In, &tcp(PEER, US, "A")));
    assert!(passes(&mut filter, 301, In, &tcp(PEER, US, "RA")));
    let packets = |filter: &Filter| {
        filter
            .rules()
            .map(|(_, counters)| counters.packets)
            .sum::<u64>()
    };
    assert_eq!(packets(&filter), 0, "of an old rule's state");
    let _ = filter.poll(at(5_000));
    assert_eq!((states(&filter), filter.states()), (0, 0));
}

#[test]
fn a_bad_file_leaves_the_rules_in_force() {
    let mut filter = filter(SERVER);
    if let Ok(rules) = RuleSet::parse("pass all\nblok") {
        filter.load(rules);
    }
    assert!(!passes(&mut filter, 0, In, &tcp(PEER, "10.0.0.1:81", "S")));
    assert!(passes(&mut filter, 0, In, &tcp(PEER, US, "S")));
}

/// Random packets on a small table, against a plain list of what is known.
#[test]
fn the_table_stays_consistent() {
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let mut filter = filter_of("pass all flags any", 16);
        let mut seconds = 0;
        for _ in 0..3_000 {
            seconds += random.pick(&[0, 0, 0, 1, 40, 400]);
            let peer = format!("192.0.2.1:{}", random.below(40));
            let letters = random.pick(&["S", "SA", "A", "PA", "FA", "RA"]);
            let (direction, packet) = match random.below(4) {
                0 => (In, tcp(&peer, US, letters)),
                1 => (Out, tcp(US, &peer, letters)),
                2 => (In, udp(&peer, US)),
                _ => (Out, udp(US, &peer)),
            };
            let _ = filter.check(at(seconds), direction, &packet);
            if random.below(3) == 0 {
                let _ = filter.poll(at(seconds));
            }
            let states: Vec<StateRecord> = filter.export_states().collect();
            let mut names: Vec<_> = states
                .iter()
                .map(|state| (state.protocol, state.remote))
                .collect();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), states.len(), "seed {seed}: each flow once");
            assert_eq!(states.len(), filter.states(), "seed {seed}");
            assert!(states.len() <= 16, "seed {seed}");
            let totals = *filter.totals();
            let by_rule = filter
                .rules()
                .map(|(_, counters)| counters.states)
                .sum::<u64>();
            assert_eq!(by_rule, states.len() as u64, "seed {seed}");
            assert!(totals.states_made >= totals.states_expired + totals.states_evicted);
            for state in &states {
                let key = state.state().expect("a good record").0;
                assert!(
                    filter.states.find(&key).is_some(),
                    "seed {seed}: found by its name"
                );
            }
        }
        let _ = filter.poll(at(seconds + 10 * 86_400));
        assert_eq!(
            (filter.states(), filter.next_deadline()),
            (0, None),
            "seed {seed}"
        );
    }
}
