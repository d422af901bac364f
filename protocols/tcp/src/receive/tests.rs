use crate::harness::{Net, OFFER};
use crate::state::State;
use skink_memory::SocketId;
use skink_messages::{ConnectionOption, Counter, Events, Shutdown, SocketError, TcpRequest};
use skink_time::Duration;
use skink_wire::SeqNum;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;

const PLAIN: &str = "mss 1000 sackok";

/// A connection without timestamps and scaling, with this much receive buffer.
fn open(receive_bytes: u32) -> (Net, SocketId) {
    let mut net = Net::with_rings(64 * 1024, receive_bytes);
    let id = net.accepted(PLAIN, 60_000);
    (net, id)
}

/// As [`open`], and the peer is past its slow start.
fn open_warm() -> (Net, SocketId) {
    let (mut net, id) = open(64 * 1024);
    for _ in 0..16 {
        let at = net
            .connection(id)
            .irs
            .distance_to(net.connection(id).rcv_nxt);
        net.inject(&format!(". {at}:{} ack 1 win 60000", at + 1_000));
        net.expect(&format!(". 1 ack {}", at + 1_000));
    }
    assert_eq!(net.read(id, 20_000), 16_000);
    net.drain();
    (net, id)
}

#[test]
fn acknowledgements_wait_for_a_second_segment_or_a_while() {
    let (mut net, id) = open_warm();
    net.events(id);
    net.inject(". 16001:17001 ack 1 win 60000");
    net.expect_nothing();
    assert_eq!(net.events(id), Events::READABLE);
    net.inject(". 17001:18001 ack 1 win 60000");
    net.expect(". 1 ack 18001");
    // Not two full ones.
    net.inject(". 18001:18101 ack 1 win 60000");
    net.advance(38);
    net.expect_nothing();
    net.advance(5);
    net.expect(". 1 ack 18101");
    assert_eq!(net.count(Counter::TcpDelayedAcks), 1);
    // Data takes it along.
    net.inject(". 18101:18201 ack 1 win 60000");
    net.write(id, 10);
    net.expect(". 1:11 ack 18201");
    net.advance(100);
    net.expect_nothing();
    net.set(id, ConnectionOption::QuickAck(true));
    net.drain();
    net.inject(". 18201:18301 ack 11 win 60000");
    net.expect(". 11 ack 18301");
}

/// A peer that writes little at a time sends the next when the last was acknowledged (Nagle's algorithm).
#[test]
fn who_says_nothing_itself_acknowledges_what_is_all_for_now() {
    let (mut net, id) = open_warm();
    net.inject("P. 16001:16101 ack 1 win 60000");
    net.expect(". 1 ack 16101");
    // There is more to come.
    net.inject(". 16101:16201 ack 1 win 60000");
    net.expect_nothing();
    // Who answers takes the acknowledgement along, from then on.
    net.write(id, 10);
    net.expect(". 1:11 ack 16201");
    net.inject("P. 16201:16301 ack 11 win 60000");
    net.expect_nothing();
    net.advance(10);
    net.write(id, 10);
    net.expect(". 11:21 ack 16301");
    // Until it doesn't.
    net.inject("P. 16301:16401 ack 21 win 60000");
    net.expect_after(40, ". 21 ack 16401");
    net.inject("P. 16401:16501 ack 21 win 60000");
    net.expect(". 21 ack 16501");
}

/// A request that a peer writes in two parts, the second of which waits for an acknowledgement of the first (Nagle's algorithm).
#[test]
fn at_the_beginning_a_peer_that_wrote_twice_waits_for_no_second() {
    let (mut net, _) = open(64 * 1024);
    let mut next = 1;
    for round in 0..20 {
        net.inject(&format!(". {next}:{} ack 1 win 60000", next + 100));
        next += 100;
        net.expect_nothing();
        net.expect_after(if round < 16 { 1 } else { 40 }, &format!(". 1 ack {next}"));
    }
    // An answer in time takes it along.
    let (mut net, id) = open(64 * 1024);
    net.inject(". 1:101 ack 1 win 60000");
    net.write(id, 10);
    net.expect(". 1:11 ack 101");
    net.advance(30);
    net.expect_nothing();
}

/// Our segments grow when the link takes more; those of a peer that was told less don't.
#[test]
fn a_larger_link_makes_no_acknowledgements_rarer() {
    let mut net = Net::new();
    net.out.path.mtu = 1_040;
    let id = net.accepted("mss 8960 sackok", 60_000);
    net.out.path.mtu = 9_000;
    net.out.path.cut_bytes = 9_000;
    net.out.raises += 1;
    net.write(id, 2_000);
    net.expect(". 1:2001 ack 1");
    for at in (1..16_000).step_by(1_000) {
        net.inject(&format!(". {at}:{} ack 2001 win 60000", at + 1_000));
        net.expect(&format!(". 2001 ack {}", at + 1_000));
    }
    net.inject(". 16001:17001 ack 2001 win 60000");
    net.expect_nothing();
    net.inject(". 17001:18001 ack 2001 win 60000");
    net.expect(". 2001 ack 18001");
}

/// Who has filled a send buffer that holds less than a segment to ourselves can send no more.
#[test]
fn what_comes_from_ourselves_is_acknowledged_though_a_segment_could_hold_more() {
    let mut net = Net::new();
    (net.out.path.mtu, net.out.path.cut_bytes) = (65_535, 65_535);
    let id = net.accepted("mss 65495 sackok", 60_000);
    for at in (1..80_001).step_by(4_000) {
        net.inject(&format!(". {at}:{} ack 1 win 60000", at + 4_000));
        net.expect(&format!(". 1 ack {}", at + 4_000));
        assert_eq!(net.read(id, 4_000), 4_000);
        net.drain();
    }
}

#[test]
fn a_peer_in_slow_start_gets_an_acknowledgement_for_each_full_segment() {
    let (mut net, _) = open(64 * 1024);
    for index in 0..16 {
        net.inject(&format!(
            ". {}:{} ack 1 win 9",
            1 + index * 1_000,
            1_001 + index * 1_000
        ));
        net.expect(&format!(". 1 ack {}", 1_001 + index * 1_000));
    }
    net.inject(". 16001:17001 ack 1 win 9");
    net.expect_nothing();
}

/// Scripts of (segment, answer); all data begins at 1, and `read` bytes can be read in the end.
#[test]
fn gaps_overlaps_and_duplicates() {
    type Script<'a> = (u32, &'a [(&'a str, &'a str)]);
    let table: &[Script] = &[
        // Selective acknowledgements: the latest stretch first (RFC 2018).
        (
            4_000,
            &[
                (". 1001:2001", ". 1 ack 1 sack 1001-2001"),
                (". 3001:4001", ". 1 ack 1 sack 3001-4001 sack 1001-2001"),
                (". 2001:3001", ". 1 ack 1 sack 1001-4001"),
                (". 1:1001", ". 1 ack 4001"),
            ],
        ),
        // Five stretches; four fit, and one that is left out has its turn next time.
        (
            500,
            &[
                (". 1001:1501", ". 1 ack 1 sack 1001-1501"),
                (". 2001:2501", ". 1 ack 1 sack 2001-2501 sack 1001-1501"),
                (
                    ". 3001:3501",
                    ". 1 ack 1 sack 3001-3501 sack 2001-2501 sack 1001-1501",
                ),
                (
                    ". 4001:4501",
                    ". 1 ack 1 sack 4001-4501 sack 2001-2501 sack 3001-3501 sack 1001-1501",
                ),
                (
                    ". 5001:5501",
                    ". 1 ack 1 sack 5001-5501 sack 2001-2501 sack 3001-3501 sack 4001-4501",
                ),
                (
                    ". 2501:2601",
                    ". 1 ack 1 sack 2001-2601 sack 5001-5501 sack 1001-1501 sack 3001-3501",
                ),
                (
                    ". 1:501",
                    ". 1 ack 501 sack 2001-2601 sack 4001-4501 sack 5001-5501 sack 1001-1501",
                ),
            ],
        ),
        // Overlaps of all kinds.
        (
            3_000,
            &[
                (". 1:1001", ". 1 ack 1001"),
                (". 501:1501", ""),
                (". 1:1001", ". 1 ack 1501"),
                (". 1:2501", ". 1 ack 2501"),
                (". 2601:2801", ". 1 ack 2501 sack 2601-2801"),
                (". 2551:2901", ". 1 ack 2501 sack 2551-2901"),
                (". 2401:3001", ". 1 ack 3001"),
            ],
        ),
        // A duplicate ahead of the gap.
        (
            2_000,
            &[
                (". 1001:2001", ". 1 ack 1 sack 1001-2001"),
                (". 1001:2001", ". 1 ack 1 sack 1001-2001"),
                (". 1501:1601", ". 1 ack 1 sack 1001-2001"),
                (". 1:2001", ". 1 ack 2001"),
            ],
        ),
        // FIN: with data, ahead of a gap, again, and with other ends.
        (
            1_000,
            &[
                ("F. 1:1001", ". 1 ack 1002"),
                ("F. 1:1001", ". 1 ack 1002"),
                ("F. 1001", ". 1 ack 1002"),
            ],
        ),
        (
            2_000,
            &[
                ("F. 1001:2001", ". 1 ack 1 sack 1001-2001"),
                (". 1:1001", ". 1 ack 2002"),
                (". 2002:2012", ". 1 ack 2002"),
            ],
        ),
        (
            2_000,
            &[
                ("F. 2001", ". 1 ack 1"),
                (". 1001:2001", ". 1 ack 1 sack 1001-2001"),
                // Beyond the FIN nothing counts.
                (". 2001:2011", ". 1 ack 1 sack 1001-2001"),
                (". 1:1001", ". 1 ack 2002"),
            ],
        ),
        // A peer gone mad sent data beyond its FIN before that.
        (
            1_000,
            &[
                (". 501:1501", ". 1 ack 1 sack 501-1501"),
                ("F. 1001", ". 1 ack 1 sack 501-1501"),
                (". 1:501", ". 1 ack 1002"),
            ],
        ),
        (
            0,
            &[
                ("F. 1", ". 1 ack 2"),
                ("F. 1", ". 1 ack 2"),
                (". 2:12", ". 1 ack 2"),
            ],
        ),
    ];
    for refuse in [0, 2, 3] {
        for (read, script) in table {
            let (mut net, id) = open(64 * 1024);
            net.out.refuse_every = refuse;
            for (segment, answer) in *script {
                net.inject(&format!("{segment} ack 1 win 60000"));
                match *answer {
                    "" => net.expect_nothing(),
                    answer => drop(net.expect(answer)),
                }
                net.expect_nothing();
            }
            assert_eq!(net.read(id, 60_000), *read, "{script:?}");
            let fin = script.iter().any(|(segment, _)| segment.starts_with('F'));
            let state = if fin {
                State::CloseWait
            } else {
                State::Established
            };
            assert_eq!(net.state(id), state);
            assert_eq!(net.events(id).contains(Events::READ_CLOSED), fin);
        }
    }
}

#[test]
fn data_ahead_of_a_gap_is_reported_beside_data_of_ours() {
    let (mut net, id) = open(64 * 1024);
    net.inject(". 1001:2001 ack 1 win 60000");
    net.expect(". 1 ack 1 sack 1001-2001");
    net.fill(id, 1_000);
    net.inject(". 2001:3001 ack 1 win 60000");
    net.expect(". 1 ack 1 sack 1001-3001");
    net.expect(". 1:1001 ack 1");
}

/// Starts of the ranges that are told in what was sent, and in how many segments.
fn told(net: &mut Net) -> (BTreeSet<u32>, usize) {
    let sent: Vec<_> = core::iter::from_fn(|| net.next()).collect();
    let blocks = sent.iter().flat_map(|sent| {
        let distance = |block: (SeqNum, SeqNum)| sent.irs.distance_to(block.0);
        sent.options.sack.iter().map(distance)
    });
    (blocks.collect(), sent.len())
}

#[test]
fn each_range_ahead_of_a_gap_is_told_at_once_and_again_by_turns() {
    for refuse in [0, 2, 3] {
        let (mut net, _) = open(64 * 1024);
        net.out.refuse_every = refuse;
        let starts = || (1..8).map(|range| range * 1_000 + 1);
        for start in starts() {
            net.inject_without_run(&format!(". {start}:{} ack 1 win 60000", start + 100));
        }
        net.run();
        // The latest and three others in each.
        assert_eq!(told(&mut net), (starts().collect(), 2));
        // New ones go before old ones.
        for start in [2_501, 501] {
            net.inject_without_run(&format!(". {start}:{} ack 1 win 60000", start + 100));
        }
        net.run();
        let (new, segments) = told(&mut net);
        assert!(new.contains(&2_501) && new.contains(&501) && segments == 1);
        // Were they lost: the peer is told again.
        for _ in 0..3 {
            net.inject(". 1001:1101 ack 1 win 60000");
        }
        assert_eq!(told(&mut net), (starts().chain([501, 2_501]).collect(), 3));
    }
}

/// RFC 5681 section 4.2.
#[test]
fn a_peer_without_sack_gets_a_duplicate_acknowledgement_for_each_segment_ahead_of_a_gap() {
    // (options, payload bytes of segments that were joined, segments of one batch, answers)
    type Row<'a> = (&'a str, u16, &'a [&'a str], &'a [&'a str]);
    let table: [Row<'_>; 8] = [
        (
            "mss 1000",
            0,
            &[". 1001:2001", ". 2001:3001", ". 3001:4001"],
            &[". 1 ack 1"; 3],
        ),
        // The first of four is for what is in order.
        (
            "mss 1000",
            0,
            &[". 1:1001", ". 2001:3001", ". 3001:4001", ". 4001:5001"],
            &[". 1 ack 1001"; 4],
        ),
        // The same again is out of order too, and so is a FIN.
        (
            "mss 1000",
            0,
            &[". 1001:2001", ". 1001:2001", "F. 2001"],
            &[". 1 ack 1"; 3],
        ),
        // There is no gap any more: data takes the acknowledgement along.
        (
            "mss 1000",
            0,
            &[". 1001:2001", ". 2001:3001", ". 1:1001"],
            &[],
        ),
        ("mss 1000", 0, &["F. 1001", ". 1:1001"], &[]),
        // There is one, but behind.
        (
            "mss 1000",
            0,
            &[". 1001:2001", ". 3001:4001", ". 1:1001", ". 4001:5001"],
            &[". 1 ack 2001"; 2],
        ),
        ("mss 1000", 1_000, &[". 1001:3501"], &[". 1 ack 1"; 3]),
        (
            PLAIN,
            1_000,
            &[". 1001:2001", ". 2001:3001", ". 3001:4001"],
            &[". 1 ack 1 sack 1001-4001"],
        ),
    ];
    for refuse in [0, 2, 3] {
        for (options, joined, segments, answers) in table {
            let mut net = Net::new();
            let id = net.accepted(options, 60_000);
            (net.out.refuse_every, net.joined) = (refuse, joined);
            // No segment with data is a duplicate acknowledgement.
            net.fill(id, 1_000);
            for segment in segments {
                net.inject_without_run(&format!("{segment} ack 1 win 60000"));
            }
            net.run();
            net.expect_all(answers);
            net.expect(". 1:1001");
            net.expect_nothing();
        }
    }
    let mut net = Net::new();
    net.accepted("mss 1000", 60_000);
    for start in 2..1_000 {
        net.inject_without_run(&format!(". {start}:{} ack 1 win 60000", start + 1));
    }
    net.run();
    net.expect_all(&[". 1 ack 1"; 32]);
    net.expect_nothing();
}

/// RFC 2018 section 4.
#[test]
fn the_first_range_told_is_that_of_the_segment_that_arrived_last() {
    let mut random = 3u32;
    let mut next = |bound: u32| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 8) % bound
    };
    for (options, stamp) in [(PLAIN, ""), (OFFER, " ts 1001 *")] {
        let mut net = Net::new();
        net.accepted_with_stamps(options);
        for round in 0..500 {
            // New ones, old ones, and such as join others; several at once, or one alone.
            let mut last = (0, 0);
            for _ in 0..1 + round % 3 {
                let start = 101 + 10 * next(400);
                last = (start, start + 10 + 10 * next(3));
                let range = format!("{}:{}", last.0, last.1);
                net.inject_without_run(&format!(". {range} ack 1 win 60000{stamp}"));
            }
            net.run();
            while let Some(sent) = net.next() {
                let (start, end) = sent.options.sack.iter().next().expect("a range");
                let distance = |at| sent.irs.distance_to(at);
                assert!(distance(start) <= last.0 && last.1 <= distance(end));
            }
        }
    }
}

#[test]
fn data_ahead_of_a_gap_stays_while_the_program_reads_all_before_the_gap() {
    let (mut net, id) = open(64 * 1024);
    net.inject(". 2001:3001 ack 1 win 60000");
    net.expect(". 1 ack 1 sack 2001-3001");
    net.inject(". 1:1001 ack 1 win 60000");
    net.expect(". 1 ack 1001 sack 2001-3001");
    // The ring is empty now, but for what nobody can read yet.
    assert_eq!(net.read(id, 5_000), 1_000);
    net.inject(". 1001:2001 ack 1 win 60000");
    net.expect(". 1 ack 3001");
    assert_eq!(net.read(id, 5_000), 2_000);
}

#[test]
fn what_is_beyond_the_window_is_dropped() {
    let (mut net, id) = open(4_096);
    // (segment, bytes taken so far)
    net.inject(". 4097:4197 ack 1 win 9");
    net.expect(". 1 ack 1");
    assert_eq!(net.count(Counter::TcpDropOutOfWindow), 1);
    net.inject(". 4001:5001 ack 1 win 9");
    net.expect(". 1 ack 1 sack 4001-4097");
    net.inject("F. 1:5001 ack 1 win 9");
    net.expect(". 1 ack 4097 win 0");
    assert_eq!(net.state(id), State::Established, "the FIN lies beyond");
    assert_eq!(net.read(id, 5_000), 4_096);
    net.expect(". 1 ack 4097 win 4096");
    net.inject("F. 4097:5001 ack 1 win 9");
    net.expect(". 1 ack 5002");
    assert_eq!(net.read(id, 5_000), 904);
}

#[test]
fn a_closed_window_opens_by_worthwhile_steps_only() {
    let (mut net, id) = open(4_096);
    net.inject(". 1:4097 ack 1 win 9");
    net.expect(". 1 ack 4097 win 0");
    // Probes are answered: Linux's empty one, and RFC 9293's with a byte; but not too often.
    net.inject(". 4096 ack 1 win 9");
    net.expect(". 1 ack 4097 win 0");
    net.inject(". 4097:4098 ack 1 win 9");
    net.expect(". 1 ack 4097 win 0");
    // RFC 9293 3.8.6.2.2: less than a segment isn't worth it, not even with an answer.
    assert_eq!(net.read(id, 999), 999);
    net.expect_nothing();
    net.inject(". 4097:4098 ack 1 win 9");
    net.expect(". 1 ack 4097 win 0");
    // Two segments are; said by itself.
    assert_eq!(net.read(id, 1_050), 1_050);
    net.expect(". 1 ack 4097 win 2049");
    assert_eq!(net.read(id, 9_999), 2_047);
    // The peer has half of the window left; the rest comes with the next acknowledgement.
    net.expect_nothing();
    net.inject(". 4097:5097 ack 1 win 9");
    net.expect(". 1 ack 5097 win 3096");
    // A FIN fits into a closed window.
    let (mut net, id) = open(4_096);
    net.inject(". 1:4097 ack 1 win 9");
    net.expect(". 1 ack 4097 win 0");
    net.inject("F. 4097 ack 1 win 9");
    net.expect(". 1 ack 4098 win 0");
    assert_eq!(net.state(id), State::CloseWait);
}

#[test]
fn the_right_edge_never_moves_left_and_what_was_promised_is_taken() {
    let mut random = 5u32;
    let mut next = |bound: u32| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 8) % bound
    };
    for round in 0..20 {
        // In some rounds the program reads little, so that the ring fills to its end.
        let (ring_bits, longest_read) = [(20, 200_000), (17, 3_000), (18, 9_000)][round % 3];
        let mut net = Net::with_rings(4_096, 1 << ring_bits);
        let id = net.accepted("mss 1000 sackok ws 2", 60_000);
        let scale = net.connection(id).rcv_wscale;
        assert_eq!(u32::from(scale), ring_bits - 15);
        let (mut sent, mut edge) = (1u32, 1u32 + 65_535);
        for _ in 0..400 {
            match next(6) {
                0 => {
                    let count = 1 + next(longest_read);
                    net.read(id, count);
                }
                1 if round % 2 == 1 => {
                    net.set(id, ConnectionOption::ReceiveBuffer(next(1 << ring_bits)));
                }
                2 if sent < edge => {
                    // All that was offered, to the last byte.
                    let end = edge.min(sent + 60_000);
                    net.inject(&format!(". {sent}:{end} ack 1 win 60000"));
                    sent = end;
                }
                _ if sent < edge => {
                    let end = edge.min(sent + 1 + next(3_000));
                    net.inject(&format!(". {sent}:{end} ack 1 win 60000"));
                    sent = end;
                }
                _ => {}
            }
            while let Some(answer) = net.next() {
                let told = answer.ack() + (u32::from(answer.header.window) << scale);
                // But for rounding (RFC 7323 2.4); even then, what was told before is taken.
                assert!(told + (1 << scale) > edge, "moved from {edge} to {told}");
                edge = edge.max(told);
            }
            let rcv_nxt = net
                .connection(id)
                .irs
                .distance_to(net.connection(id).rcv_nxt);
            assert_eq!(rcv_nxt, sent, "what was promised was dropped");
        }
    }
}

/// (segment, answer, whether it ends the connection): RFC 5961 section 3.
#[test]
fn only_an_exact_reset_counts() {
    let table = [
        ("R 1", "", true),
        ("R. 1 ack 1", "", true),
        ("R 2", ". 1 ack 1", false),
        ("R 60000", ". 1 ack 1", false),
        ("R 0", "", false),
        ("R 70000", "", false),
        ("R. 2 ack 1", ". 1 ack 1", false),
    ];
    for (segment, answer, ends) in table {
        let (mut net, id) = open(64 * 1024);
        net.inject(segment);
        if !answer.is_empty() {
            net.expect(answer);
        }
        net.expect_nothing();
        assert_eq!(net.state(id) == State::Closed, ends, "{segment}");
        let error = if ends { SocketError::Reset as u32 } else { 0 };
        assert_eq!(net.error(id), error);
        if ends {
            let events = Events::ERROR | Events::CLOSED | Events::READ_CLOSED;
            assert!(net.events(id).contains(events));
            net.inject(". 1 ack 1");
            net.expect("R 1");
            net.close(id);
            assert!(!net.exists(id));
        }
    }
}

/// Another client that got the port of one that is gone (behind one address), and has no timestamps, must learn of the connection to
/// reset it.
#[test]
fn a_request_without_timestamps_is_answered_on_a_connection_that_has_them() {
    let mut net = Net::new();
    net.accepted_with_stamps(OFFER);
    net.drain();
    net.inject("S 500 win 1000 mss 1000");
    net.expect(". 1 ack 1");
    net.inject("S 500 win 1000 mss 1000");
    net.expect_nothing();
}

#[test]
fn senseless_segments_are_answered_but_not_for_ever() {
    // (segment, whether the answers are limited)
    let table = [
        ("S 1 win 9", true),
        ("S. 5 ack 1 win 9", true),
        (". 1 ack 2", true),
        (". 0 ack 1", true),
        (". 70000 ack 1", true),
        ("R 9", true),
        (". 70000:70100 ack 1", false),
        ("S. 0 ack 1 win 9", false),
    ];
    for (segment, limited) in table {
        let (mut net, id) = open(64 * 1024);
        net.inject(segment);
        net.expect(". 1 ack 1");
        net.inject(segment);
        assert_eq!(net.next().is_none(), limited, "{segment}");
        net.advance(510);
        net.inject(segment);
        net.expect(". 1 ack 1");
        assert_eq!(net.state(id), State::Established);
    }
    // Acknowledgements from long ago, and segments without any: dropped without a word.
    let (mut net, _) = open(64 * 1024);
    net.inject_all(&[". 1 ack -70000", "- 1:11", "F 1"]);
    net.expect_nothing();
}

#[test]
fn old_timestamps_are_dropped() {
    let mut net = Net::new();
    let id = net.accepted_with_stamps(OFFER);
    net.inject(". 1:11 ack 1 win 500 ts 2000 *");
    net.inject(". 11:21 ack 1 win 500 ts 1999 *");
    net.expect(". 1 ack 11 ts 0 2000");
    net.inject(". 11:21 ack 1 win 500");
    net.expect_nothing();
    assert_eq!(net.count(Counter::TcpDropPaws), 2);
    net.inject(". 11:21 ack 1 win 500 ts 2000 *");
    // A segment ahead of a gap doesn't change what is echoed (RFC 7323 4.3).
    net.inject(". 31:41 ack 1 win 500 ts 2500 *");
    net.expect(". 1 ack 21 ts 0 2000 sack 31-41");
    net.inject(". 21:31 ack 1 win 500 ts 2501 *");
    net.expect(". 1 ack 41 ts 0 2501");
    // Around the circle.
    net.set(id, ConnectionOption::QuickAck(true));
    net.inject(". 41:51 ack 1 win 500 ts 2147485000 *");
    net.inject(". 51:61 ack 1 win 500 ts -5 *");
    net.inject(". 61:71 ack 1 win 500 ts 3 *");
    net.expect(". 1 ack 51 ts 0 2147485000");
    net.expect(". 1 ack 61 ts 0 -5");
    net.expect(". 1 ack 71 ts 0 3");
    // After 24 days of silence an old timestamp says nothing (RFC 7323 5.5).
    net.advance_by(core::time::Duration::from_secs(25 * 24 * 3_600));
    net.inject(". 71:81 ack 1 win 500 ts -1000000 *");
    net.expect(". 1 ack 81 ts 0 -1000000");
    assert_eq!(net.read(id, 1_000), 80);
    // A reset is not held to it.
    net.inject("R 81 ts 7 0");
    assert_eq!(net.state(id), State::Closed);
}

#[test]
fn the_timestamp_of_a_senseless_acknowledgement_does_not_count() {
    let mut net = Net::new();
    let id = net.accepted_with_stamps(OFFER);
    net.inject(". 1:11 ack 5000 win 500 ts 900000 *");
    net.inject(". 1:11 ack 1 win 500 ts 2000 *");
    assert_eq!(net.read(id, 100), 10);
}

/// RFC 1122 section 4.2.2.13, as far as Linux goes.
#[test]
fn data_for_who_has_shut_both_directions_is_reset() {
    for (how, resets) in [
        (Shutdown::Both, true),
        (Shutdown::Read, false),
        (Shutdown::Write, false),
    ] {
        let (mut net, id) = open(64 * 1024);
        net.request(TcpRequest::Shutdown(id, how));
        net.drain();
        let ack = if how == Shutdown::Read { 1 } else { 2 };
        net.inject(&format!(". 1:11 ack {ack} win 60000"));
        if resets {
            net.expect("R 2");
            assert_eq!(net.error(id), SocketError::Reset as u32);
            assert!(net.events(id).contains(Events::ERROR | Events::CLOSED));
        } else {
            net.drain();
            assert_eq!(net.read(id, 100), 10, "{how:?}");
            assert_eq!(net.error(id), 0);
        }
    }
    // The peer's end isn't data.
    let (mut net, id) = open(64 * 1024);
    net.request(TcpRequest::Shutdown(id, Shutdown::Both));
    net.drain();
    net.inject("F. 1 ack 2 win 60000");
    net.expect(". 2 ack 2");
    assert_eq!(net.error(id), 0);
}

#[test]
fn data_for_a_program_that_has_gone_is_reset() {
    let (mut net, id) = open(64 * 1024);
    net.inject(". 1:11 ack 1 win 60000");
    assert_eq!(net.read(id, 100), 10);
    net.advance(50);
    net.drain();
    net.close(id);
    net.expect("F. 1 ack 11");
    // An old segment again, or one that holds only a FIN besides, is no new data.
    net.inject(". 1:11 ack 2 win 60000");
    net.expect(". 2 ack 11");
    net.inject(". 11:12 ack 2 win 60000");
    net.expect("R 2");
    assert!(!net.exists(id));
    assert_eq!(net.count(Counter::TcpDropClosed), 1);

    let (mut net, id) = open(64 * 1024);
    net.inject(". 1:11 ack 1 win 60000");
    assert_eq!(net.read(id, 100), 10);
    net.close(id);
    net.drain();
    net.inject("F. 1:11 ack 2 win 60000");
    net.expect(". 2 ack 12");
    assert!(!net.exists(id), "in TIME-WAIT");
}

#[test]
fn broken_segments_are_counted_and_dropped() {
    let (mut net, _) = open(64 * 1024);
    net.inject_bytes(&[1; 19]);
    net.inject_bytes(&[0xff; 64]);
    net.inject_bytes(&[]);
    let malformed = net.count(Counter::TcpDropMalformed);
    let mut bytes = [0u8; 20];
    bytes[12] = 0x50;
    bytes[1] = 1;
    bytes[3] = 80;
    net.inject_bytes(&bytes);
    assert_eq!(net.count(Counter::TcpDropChecksum), 4 - malformed);
    net.expect_nothing();
    assert!(malformed >= 2);
}

#[test]
fn the_gap_list_and_ring_bound_what_is_kept() {
    let (mut net, id) = open(64 * 1024);
    for index in 0..200u32 {
        let at = 101 + index * 20;
        net.inject(&format!(". {at}:{} ack 1 win 60000", at + 10));
    }
    assert_eq!(net.count(Counter::TcpOutOfOrder), 128);
    assert_eq!(net.count(Counter::TcpDropNoBuffer), 72);
    net.drain();
    net.inject(". 1:101 ack 1 win 60000");
    net.inject(". 101:5001 ack 1 win 60000");
    assert_eq!(net.read(id, 9_999), 5_000);
}

#[test]
fn a_peer_without_window_scaling_is_not_told_the_same_window_at_each_read() {
    let mut net = Net::with_rings(1 << 16, 1 << 20);
    let id = net.accepted("mss 1000", 60_000);
    for segment in 0..20 {
        let from = 1 + segment * 1_000;
        net.inject(&format!(". {from}:{} ack 1 win 60000", from + 1_000));
    }
    net.advance(500);
    net.drain();
    for _ in 0..20 {
        net.read(id, 1_000);
        net.expect_nothing();
    }
}

const MEBIBYTE: u32 = 1 << 20;

/// A connection with that much receive buffer, unless it grows, to a peer that scales windows, and has sent one segment: it shows what a scaled
/// window is. Answers how they are scaled, and up to where was sent.
fn open_wide() -> (Net, SocketId, u8, u32) {
    open_wide_from(0)
}

/// As [`open_wide`], a round trip of so many milliseconds away.
fn open_wide_from(milliseconds: u64) -> (Net, SocketId, u8, u32) {
    let mut net = Net::with_rings(4_096, 4 * MEBIBYTE);
    let listener = net.listen(80, 10);
    net.inject("S 0 win 60000 mss 1000 sackok ws 2");
    net.expect("S. 0 ack 1");
    net.advance(milliseconds);
    net.inject(". 1 ack 1 win 60000");
    let id = net.tcp.accept(listener).expect("a connection waits");
    let scale = net.connection(id).rcv_wscale;
    net.inject(". 1:1001 ack 1 win 60000");
    (net, id, scale, 1_001)
}

/// Sends all that was offered, however often more is; answers up to where. What was offered once stays offered (RFC 9293
/// section 3.8.6), but for what rounding up to a unit had added.
fn fill(net: &mut Net, scale: u8, mut sent: u32) -> u32 {
    loop {
        let mut edge = sent;
        while let Some(answer) = net.next() {
            let offered = answer.ack() + (u32::from(answer.header.window) << scale);
            assert!(offered + (1 << scale) > edge, "{offered} after {edge}");
            edge = edge.max(offered);
        }
        if edge == sent {
            return sent;
        }
        for from in (sent..edge).step_by(50_000) {
            net.inject(&format!(
                ". {from}:{} ack 1 win 60000",
                edge.min(from + 50_000)
            ));
        }
        net.advance(100);
        sent = edge;
    }
}

#[test]
fn the_window_grows_with_what_the_program_reads_to_what_the_ring_begins_with() {
    let (mut net, id, scale, sent) = open_wide();
    let mut sent = fill(&mut net, scale, sent);
    let unread = sent - 1;
    assert!((65_000..70_000).contains(&unread), "{unread} bytes unread");
    let mut largest = unread;
    for _ in 0..6 {
        let count = net.read(id, 2 * MEBIBYTE);
        let before = sent;
        sent = fill(&mut net, scale, sent);
        let offered = sent - before;
        assert!(
            offered >= (2 * count).min(MEBIBYTE - 200),
            "{offered} after {count}"
        );
        largest = largest.max(offered);
    }
    assert!(largest > MEBIBYTE - 200, "{largest}");
}

#[test]
fn a_peer_whose_data_waits_for_long_is_offered_less_until_it_no_longer_does() {
    let (mut net, id, scale, sent) = open_wide();
    let mut sent = fill(&mut net, scale, sent);
    let mut offered = |net: &mut Net, rounds: usize| {
        let offers = (0..rounds).map(|_| {
            net.read(id, 2 * MEBIBYTE);
            let before = sent;
            sent = fill(net, scale, sent);
            sent - before
        });
        offers.collect::<Vec<u32>>()
    };
    let before = offered(&mut net, 6)[5];
    assert!(before > MEBIBYTE - 200, "{before}");
    net.waited = Duration::from_millis(3);
    let meanwhile = offered(&mut net, 5);
    assert!(
        meanwhile.is_sorted_by(|one, next| one >= next),
        "{meanwhile:?}"
    );
    assert!((120_000..132_000).contains(&meanwhile[4]), "{meanwhile:?}");
    let crowded = net.count(Counter::TcpCrowded);
    assert!(crowded >= 3, "a mebibyte to an eighth: {crowded}");
    net.waited = Duration::ZERO;
    let after = offered(&mut net, 40);
    assert!(after.is_sorted(), "{after:?}");
    assert!(after[39] > MEBIBYTE - 200, "{after:?}");
    assert_eq!(net.count(Counter::TcpCrowded), crowded);
}

#[test]
fn a_peer_far_away_is_offered_as_much_while_others_fill_the_queue() {
    let (mut net, id, scale, sent) = open_wide_from(50);
    net.waited = Duration::from_millis(10);
    let mut sent = fill(&mut net, scale, sent);
    for _ in 0..6 {
        net.read(id, 2 * MEBIBYTE);
        sent = fill(&mut net, scale, sent);
    }
    assert_eq!(net.count(Counter::TcpCrowded), 0);
    net.waited = Duration::from_millis(20);
    net.read(id, 2 * MEBIBYTE);
    fill(&mut net, scale, sent);
    assert!(net.count(Counter::TcpCrowded) > 0);
}

#[test]
fn a_ring_grows_for_a_peer_far_away_that_fills_it_in_each_round_trip() {
    // The most that was offered to one so many milliseconds away, which sends all that it may.
    let offered = |milliseconds: u64, buffer: Option<u32>| {
        let (mut net, id, scale, mut sent) = open_wide_from(milliseconds);
        if let Some(bytes) = buffer {
            net.set(id, ConnectionOption::ReceiveBuffer(bytes));
        }
        let offers = (0..12).map(|_| {
            let before = sent;
            sent = fill(&mut net, scale, sent);
            net.read(id, 8 * MEBIBYTE);
            sent - before
        });
        offers.max().expect("some")
    };
    assert!(offered(80, None) > 3 * MEBIBYTE);
    let begun = MEBIBYTE - 200..=MEBIBYTE;
    assert!(begun.contains(&offered(3, None)), "near");
    assert!(begun.contains(&offered(80, Some(MEBIBYTE))), "by request");
}

#[test]
fn a_program_may_send_ahead_to_a_peer_far_away_if_as_much_may_be_under_way() {
    let may = |milliseconds: u64, window: u32| {
        let (net, id, ..) = open_wide_from(milliseconds);
        let (record, ring) = (
            net.tcp.table().record(id.slot),
            net.tcp.table().send_ring(id.slot),
        );
        record.cwnd.store(window, Relaxed);
        crate::may_send_ahead(record, &ring)
    };
    assert!(may(80, 2_048) && may(4, 2_048));
    assert!(!may(80, 2_047) && !may(3, MEBIBYTE));
}

#[test]
fn a_ring_does_not_grow_for_a_peer_far_away_that_sends_little() {
    let (mut net, id, scale, sent) = open_wide_from(80);
    let mut sent = fill(&mut net, scale, sent);
    for _ in 0..100 {
        net.read(id, MEBIBYTE);
        net.inject(&format!(". {sent}:{} ack 1 win 60000", sent + 50_000));
        sent += 50_000;
        net.advance(100);
        net.drain();
    }
    assert_eq!(
        net.tcp.table().receive_ring(id.slot).size(),
        MEBIBYTE as usize
    );
}

/// A peer that has said all it had to say, and then resets, has only broken the way there.
#[test]
fn a_reset_after_the_end_is_for_who_sends() {
    for at_once in [false, true] {
        let (mut net, id) = open(64 * 1024);
        net.inject_without_run("F. 1:11 ack 1 win 60000");
        if !at_once {
            net.run();
            net.drain();
        }
        net.inject("R. 12 ack 1");
        assert_eq!(net.error(id), SocketError::BrokenPipe as u32);
        let table = net.tcp.table().clone();
        assert!(crate::has_peer_finished(table.record(id.slot)));
        assert_eq!(net.read(id, 100), 10);
    }
}
