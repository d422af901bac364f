use crate::harness::{Net, OFFER};
use crate::recovery::Phase;
use skink_memory::SocketId;
use skink_messages::{ConnectionOption, Counter, ErrorKind};

/// Ten segments of 1,000 bytes are in flight.
fn ten_in_flight(options: &str) -> (Net, SocketId) {
    let mut net = Net::new();
    let id = net.accepted(options, 60_000);
    net.write(id, 30_000);
    assert_eq!(net.drain(), 10_000);
    (net, id)
}

#[test]
fn selective_acknowledgements_repair_two_holes_in_one_round_trip() {
    let (mut net, id) = ten_in_flight("mss 1000 sackok");
    // The first and the fifth are lost. New data keeps flowing (limited transmit, RFC 3042).
    net.inject(". 1 ack 1 win 60000 sack 1001-2001");
    net.expect(". 10001:11001 ack 1");
    net.inject(". 1 ack 1 win 60000 sack 1001-3001");
    net.expect(". 11001:12001 ack 1");
    assert_eq!(net.count(Counter::TcpFastRecoveries), 0);
    net.inject(". 1 ack 1 win 60000 sack 1001-4001");
    // Three segments' worth beyond the hole: it is lost.
    net.expect(". 1:1001 ack 1");
    assert_eq!(net.count(Counter::TcpFastRecoveries), 1);
    // 12 in flight; beta is 0.7.
    assert_eq!(net.connection(id).congestion.window(), 7_000);
    net.inject(". 1 ack 1 win 60000 sack 5001-6001 sack 1001-4001");
    net.inject(". 1 ack 1 win 60000 sack 5001-7001 sack 1001-4001");
    net.drain();
    net.inject(". 1 ack 1 win 60000 sack 5001-8001 sack 1001-4001");
    net.expect(". 4001:5001 ack 1");
    // The first arrives: a partial acknowledgement. Nothing is sent twice more.
    net.inject(". 1 ack 4001 win 60000 sack 5001-12001");
    assert_ne!(net.next().map(|sent| sent.seq()), Some(4_001));
    net.drain();
    assert_eq!(net.count(Counter::TcpRetransmits), 2);
    net.inject(". 1 ack 12001 win 60000");
    assert!(matches!(net.connection(id).recovery.phase, Phase::Open));
    assert_eq!(net.count(Counter::TcpFastRecoveries), 1);
    assert_eq!(net.count(Counter::TcpRetransmitTimeouts), 0);
}

/// Eight segments of ten bytes are in flight, as of a program that sends small messages and has turned Nagle's algorithm off.
fn eight_small_in_flight() -> (Net, SocketId) {
    let mut net = Net::new();
    let id = net.accepted("mss 1000 sackok", 60_000);
    net.set(id, ConnectionOption::NoDelay(true));
    for _ in 0..8 {
        net.write(id, 10);
        assert_eq!(net.drain(), 10);
    }
    (net, id)
}

/// RFC 6675 section 5, step (1).
#[test]
fn a_small_segment_that_was_lost_does_not_wait_for_the_timer() {
    let (mut net, _) = eight_small_in_flight();
    net.inject(". 1 ack 1 win 60000 sack 11-21");
    // The same again, which says nothing new, is none of the three.
    net.inject(". 1 ack 1 win 60000 sack 11-21");
    net.inject(". 1 ack 1 win 60000 sack 11-31");
    net.expect_nothing();
    // With data, and another window: selective acknowledgements count all the same.
    net.inject(". 1:2 ack 1 win 50000 sack 11-41");
    net.expect(". 1:11 ack 2");
    net.expect_nothing();
    assert_eq!(net.count(Counter::TcpDuplicateAcks), 3);
    assert_eq!(net.count(Counter::TcpFastRecoveries), 1);
}

#[test]
fn a_second_hole_with_little_behind_it_is_repaired_when_the_first_one_is() {
    let (mut net, id) = eight_small_in_flight();
    // The first, the fifth and the seventh are lost. Two behind the fifth, and one behind the seventh, are no sign yet.
    net.inject(". 1 ack 1 win 60000 sack 11-21");
    net.inject(". 1 ack 1 win 60000 sack 11-31");
    net.inject(". 1 ack 1 win 60000 sack 11-41");
    net.expect(". 1:11 ack 1");
    net.inject(". 1 ack 1 win 60000 sack 51-61 sack 11-41");
    net.expect_nothing();
    // They are since the first has been sent again, and has arrived.
    net.inject(". 1 ack 41 win 60000 sack 51-61");
    net.expect(". 41:51 ack 1");
    // What nothing has arrived behind is left alone.
    net.expect_nothing();
    net.inject(". 1 ack 61 win 60000");
    net.expect_nothing();
    assert!(matches!(
        net.connection(id).recovery.phase,
        Phase::Fast { .. }
    ));
    net.inject(". 1 ack 81 win 60000");
    assert!(matches!(net.connection(id).recovery.phase, Phase::Open));
}

#[test]
fn what_was_sent_during_a_recovery_is_not_lost_because_the_first_hole_is_repaired() {
    let (mut net, _) = ten_in_flight("mss 1000 sackok");
    net.inject(". 1 ack 1 win 60000 sack 1001-4001");
    net.expect(". 1:1001 ack 1");
    net.drain();
    net.inject(". 1 ack 1 win 60000 sack 1001-5001 sack 6001-10001");
    net.expect_all(&[
        ". 5001:6001 ack 1",
        ". 10001:11001 ack 1",
        ". 11001:12001 ack 1",
    ]);
    // Of the new segments the second one arrives first.
    net.inject(". 1 ack 1 win 60000 sack 11001-12001 sack 6001-10001 sack 1001-5001");
    net.drain();
    net.inject(". 1 ack 5001 win 60000 sack 11001-12001 sack 6001-10001");
    net.drain();
    // The first one and that at 5001 were sent again.
    assert_eq!(net.count(Counter::TcpRetransmits), 2);
}

#[test]
fn a_second_timeout_repairs_what_was_sent_since_the_first_one() {
    let (mut net, id) = ten_in_flight("mss 1000 sackok");
    net.advance(210);
    net.expect(". 1:1001 ack 1");
    // What was sent again arrives, and new data is sent, all of which is lost.
    net.inject(". 1 ack 9001 win 60000");
    net.expect(". 9001:10001 ack 1");
    assert_eq!(net.drain(), 6_000);
    net.advance(410);
    net.expect(". 9001:10001 ack 1");
    net.inject(". 1 ack 10001 win 60000");
    // Not after another timeout.
    net.expect(". 10001:11001 ack 1");
    assert_eq!(net.count(Counter::TcpRetransmitTimeouts), 2);
    // Slow start ends at seven tenths of the 7,000 bytes that were on their way this time (RFC 5681 section 3.1).
    net.inject(". 1 ack 13001 win 60000");
    assert_eq!(net.connection(id).congestion.window(), 4_900);
}

/// Karn's rule (RFC 6298 section 3).
#[test]
fn what_is_sent_again_late_in_a_recovery_gives_no_round_trip_time() {
    for lost in [false, true] {
        let (mut net, id) = ten_in_flight("mss 1000 sackok");
        let before = net.connection(id).rtt.smoothed();
        net.inject(". 1 ack 1 win 60000 sack 1001-4001");
        net.expect(". 1:1001 ack 1");
        net.drain();
        // New data of the recovery, the end of whose first segment is timed.
        net.inject(". 1 ack 1 win 60000 sack 1001-10001");
        let first = net.expect(". 10001:11001 ack 1");
        net.drain();
        assert!(
            net.connection(id)
                .timed
                .is_some_and(|(end, _)| end == first.header.seq + 1_000)
        );
        net.advance(50);
        if lost {
            net.inject(". 1 ack 1 win 60000 sack 11001-14001 sack 1001-10001");
            net.expect(". 10001:11001 ack 1");
            net.drain();
        }
        net.advance(50);
        net.inject(". 1 ack 14001 win 60000");
        assert_eq!(net.connection(id).rtt.smoothed() == before, lost);
        assert_eq!(net.count(Counter::TcpRetransmitTimeouts), 0);
    }
}

#[test]
fn three_duplicates_repair_without_selective_acknowledgements() {
    let (mut net, id) = ten_in_flight("mss 1000");
    net.inject_all(&[". 1 ack 1 win 60000", ". 1 ack 1 win 60000"]);
    net.expect_all(&[". 10001:11001 ack 1", ". 11001:12001 ack 1"]);
    net.expect_nothing();
    net.inject(". 1 ack 1 win 60000");
    net.expect(". 1:1001 ack 1");
    assert_eq!(net.count(Counter::TcpFastRecoveries), 1);
    net.expect_nothing();
    for _ in 0..6 {
        net.inject(". 1 ack 1 win 60000");
    }
    net.drain();
    // RFC 6582: a partial acknowledgement shows the next hole, which is repaired at once, again
    // and again.
    for hole in [3_001, 5_001, 7_001] {
        net.inject(&format!(". 1 ack {hole} win 60000"));
        net.expect(&format!(". {hole}:{} ack 1", hole + 1_000));
        net.drain();
    }
    assert!(matches!(
        net.connection(id).recovery.phase,
        Phase::Fast { .. }
    ));
    net.inject(". 1 ack 20001 win 60000");
    net.inject(". 1 ack 10001 win 60000");
    assert_eq!(net.count(Counter::TcpRetransmitTimeouts), 0);
}

#[test]
fn partial_acknowledgements_are_answered_even_if_the_window_is_full() {
    // A window that had grown far: 7 tenths of the flight leave no room for long.
    let mut net = Net::new();
    let id = net.accepted("mss 1000", 40_000);
    net.write(id, 60_000);
    let mut sent = net.drain();
    while sent < 25_000 {
        net.inject(&format!(". 1 ack {} win 40000", sent + 1));
        sent += net.drain();
    }
    let una = net
        .connection(id)
        .iss
        .distance_to(net.connection(id).snd_una);
    for _ in 0..3 {
        net.inject(&format!(". 1 ack {una} win 40000"));
    }
    net.drain();
    for step in 1..5 {
        let hole = una + step * 1_000;
        net.inject(&format!(". 1 ack {hole} win 40000"));
        net.expect(&format!(". {hole}:{} ack 1", hole + 1_000));
        net.drain();
    }
}

/// What doesn't count as a duplicate (RFC 5681 section 2).
#[test]
fn duplicates_that_are_none() {
    for segment in [
        ". 1:11 ack 1 win 60000",
        ". 1 ack 1 win 50000",
        ". 1 ack 0 win 60000",
    ] {
        let (mut net, _) = ten_in_flight("mss 1000");
        net.inject(segment);
        assert_eq!(net.count(Counter::TcpDuplicateAcks), 0, "{segment}");
        net.inject(segment.replace("50000", "50001").as_str());
        net.drain();
        assert_eq!(net.count(Counter::TcpRetransmits), 0);
    }
}

#[test]
fn lying_selective_acknowledgements_do_no_harm() {
    let lies = [
        "sack 1-1001",
        "sack 0-5000",
        "sack 9001-99999",
        "sack 20001-21001",
        "sack 3001-2001",
        "sack 2001-2001",
    ];
    for lie in lies {
        let (mut net, id) = ten_in_flight("mss 1000 sackok");
        net.inject(&format!(". 1 ack 1 win 60000 {lie}"));
        assert!(net.connection(id).recovery.sacked.is_empty(), "{lie}");
    }
    // All is said to have arrived, but never acknowledged: the timer takes it back (RFC 2018 8).
    let (mut net, id) = ten_in_flight("mss 1000 sackok");
    net.inject(". 1 ack 1 win 60000 sack 1001-10001");
    net.drain();
    assert!(!net.connection(id).recovery.sacked.is_empty());
    net.advance(1_300);
    assert!(net.connection(id).recovery.sacked.is_empty());
    net.drain();
    net.inject(". 1 ack 1001 win 60000");
    let again = net.next().map(|sent| sent.seq());
    assert_eq!(again, Some(1_001));
}

#[test]
fn timeouts_double_and_begin_with_one_segment() {
    for refuse in [0, 2, 3] {
        let (mut net, id) = ten_in_flight("mss 1000 sackok");
        net.out.refuse_every = refuse;
        // Nothing was measured but the handshake, which took no time: 200 ms.
        let mut wait = 200;
        for round in 0..6 {
            net.expect_after(wait, ". 1:1001 ack 1");
            net.expect_nothing();
            assert_eq!(
                net.connection(id).congestion.window(),
                1_000,
                "round {round}"
            );
            wait *= 2;
        }
        assert_eq!(net.count(Counter::TcpRetransmitTimeouts), 6);
        // What follows is sent again as slow start allows. The timeout stays doubled: no round trip was measured.
        net.inject(". 1 ack 1001 win 60000");
        net.expect_all(&[". 1001:2001 ack 1", ". 2001:3001 ack 1"]);
        net.expect_after(wait, ". 1001:2001 ack 1");
        net.inject(". 1 ack 10001 win 60000");
        assert!(matches!(net.connection(id).recovery.phase, Phase::Open));
        net.expect(". 10001:11001 ack 1");
        net.drain();
        // The acknowledgement of what was sent once measures one.
        net.inject(". 1 ack 11001 win 60000");
        net.drain();
        net.expect_after(200, ". 11001:12001 ack 1");
    }
}

#[test]
fn after_what_is_below_was_replaced_nobody_waits_for_the_timer() {
    let (mut net, id) = ten_in_flight("mss 1000 sackok");
    net.expect_nothing();
    net.tcp.network_restarted(net.now);
    net.run();
    net.advance(1);
    net.expect(". 10001 ack 1");
    net.expect(". 1:1001 ack 1");
    net.inject(". 1 ack 10001 win 60000");
    assert!(matches!(net.connection(id).recovery.phase, Phase::Open));
    // With nothing on its way the peer is asked whether it has sent something.
    let mut net = Net::new();
    net.accepted("mss 1000 sackok", 60_000);
    net.tcp.network_restarted(net.now);
    net.run();
    net.expect_all(&[". 1 ack 1", ". 0 ack 1"]);
}

#[test]
fn after_what_is_below_was_replaced_handshakes_go_on_at_once() {
    // Ours, whose request may have waited for the peer's address in what was replaced.
    let mut net = Net::new();
    let id = net.connect(80);
    let request = net.next().expect("a request");
    net.tcp.network_restarted(net.now);
    net.run();
    let again = net.next().expect("a request");
    assert_eq!(
        (again.seq(), again.header.flags),
        (request.seq(), request.header.flags)
    );
    assert_eq!(net.connection(id).backoff, 0, "none of the retries");
    net.expect_nothing();
    // The peer's, whose answer was under way.
    let mut net = Net::new();
    net.listen(80, 8);
    net.inject("S 0 win 60000 mss 1000");
    net.expect("S. 0 ack 1 mss 1460 nots");
    net.tcp.network_restarted(net.now);
    net.run();
    net.expect("S. 0 ack 1 mss 1460 nots");
    net.expect_nothing();
}

#[test]
fn a_timeout_that_was_needless_is_undone() {
    let mut net = Net::new();
    let id = net.accepted_with_stamps(OFFER);
    net.write(id, 30_000);
    let stamp = net
        .next()
        .and_then(|sent| sent.options.timestamps)
        .map_or(0, |stamp| stamp.value);
    net.drain();
    let window = net.connection(id).congestion.window();
    net.advance(210);
    net.expect(". 1:1449 ack 1");
    assert_eq!(net.connection(id).congestion.window(), 1_448);
    // The acknowledgement of the original was just late: it echoes the original's time.
    net.inject(&format!(". 1 ack 1449 win 500 ts 1500 {stamp}"));
    assert_eq!(net.count(Counter::TcpSpuriousTimeouts), 1);
    assert!(net.connection(id).congestion.window() >= window);
    assert!(
        net.next().is_none_or(|sent| sent.seq() > 14_000),
        "nothing more is sent again"
    );

    // Was it the retransmission that arrived, the timeout was right.
    let mut net = Net::new();
    let id = net.accepted_with_stamps(OFFER);
    net.write(id, 30_000);
    net.advance(210);
    net.drain();
    net.inject(". 1 ack 1449 win 500 ts 1500 *");
    assert_eq!(net.count(Counter::TcpSpuriousTimeouts), 0);
    net.expect(". 1449:2897 ack 1");
}

/// A path that changes the order of segments: what was late comes, and its acknowledgement echoes the original's time.
#[test]
fn a_fast_recovery_that_was_needless_is_undone_and_the_next_one_waits_for_more() {
    let mut net = Net::new();
    let id = net.accepted_with_stamps(OFFER);
    net.write(id, 40_000);
    let stamp = |net: &mut Net| {
        let stamps = core::iter::from_fn(|| net.next()).filter_map(|sent| sent.options.timestamps);
        stamps.last().map_or(0, |stamp| stamp.value)
    };
    let first = stamp(&mut net);
    let window = net.connection(id).congestion.window();
    net.advance(20);
    let behind = |una: u32, segments: u32, echo: u32| {
        let at = una + 1448;
        let end = at + segments * 1448;
        format!(". 1 ack {una} win 500 ts 1500 {echo} sack {at}-{end}")
    };
    for segments in 1..=5 {
        net.inject(&behind(1, segments, first));
    }
    assert_eq!(net.count(Counter::TcpFastRecoveries), 1);
    let resent = stamp(&mut net);
    assert!(net.connection(id).congestion.window() < window);
    net.inject(&format!(". 1 ack 8689 win 500 ts 1500 {first}"));
    assert_eq!(net.count(Counter::TcpSpuriousRecoveries), 1);
    assert!(net.connection(id).congestion.window() >= window);
    // Five came before one that was late: five say nothing any more, a sixth does.
    net.drain();
    for segments in 1..=5 {
        net.inject(&behind(8_689, segments, resent));
    }
    assert_eq!(net.count(Counter::TcpFastRecoveries), 1);
    net.inject(&behind(8_689, 6, resent));
    assert_eq!(net.count(Counter::TcpFastRecoveries), 2);
    net.drain();
    // That one was lost: the retransmission's time comes back.
    net.advance(20);
    net.inject(". 1 ack 18825 win 500 ts 1500 *");
    assert_eq!(net.count(Counter::TcpSpuriousRecoveries), 1);
}

#[test]
fn a_path_that_became_slower_than_the_timeout_is_measured() {
    for options in ["mss 1000 sackok", OFFER] {
        let mut net = Net::new();
        let id = net.accepted_with_stamps(options);
        net.drain();
        for round in 0..20 {
            net.write(id, 100);
            let sent = net.next().expect("a segment");
            net.advance(1_000);
            let stamp = sent.options.timestamps.map_or(String::new(), |stamp| {
                format!(" ts {} {}", 2_000 + round, stamp.value)
            });
            net.inject(&format!(". 1 ack {} win 500{stamp}", 101 + 100 * round));
            net.drain();
        }
        // Twice in the first round, and after 800 ms in the second.
        assert_eq!(net.count(Counter::TcpRetransmitTimeouts), 3, "{options}");
    }
}

#[test]
fn a_timestamp_of_what_was_sent_again_ends_doubling_and_an_absurd_one_does_no_harm() {
    // (which time before the last retransmission is echoed, next timeout): that itself, the one before, days, one
    // that is to come.
    for (ago, timeout) in [(0, 225), (400, 800), (200_000_000, 800), (-1_000i32, 800)] {
        let mut net = Net::new();
        let id = net.accepted_with_stamps(OFFER);
        net.write(id, 100);
        net.drain();
        // After 200 and 600 ms it is sent again.
        net.advance(800);
        let last = core::iter::from_fn(|| net.next()).last();
        let stamp = last.and_then(|sent| sent.options.timestamps);
        let echo = stamp.map_or(0, |stamp| stamp.value.wrapping_sub(ago as u32));
        net.inject(&format!(". 1 ack 101 win 500 ts 2000 {echo}"));
        net.write(id, 100);
        net.expect(". 101:201 ack 1");
        net.expect_after(timeout, ". 101:201 ack 1");
    }
}

#[test]
fn a_lost_fin_is_sent_again() {
    let mut net = Net::new();
    let id = net.accepted("mss 1000 sackok", 60_000);
    net.write(id, 1_500);
    net.shutdown(id);
    net.expect_all(&[". 1:1001 ack 1", ". 1001:1501 ack 1", "F. 1501 ack 1"]);
    net.inject(". 1 ack 1501 win 60000");
    net.advance(210);
    net.expect("F. 1501 ack 1");
    net.advance(410);
    net.expect("F. 1501 ack 1");
    // With data in front of it.
    let mut net = Net::new();
    let id = net.accepted("mss 1000 sackok", 60_000);
    net.write(id, 500);
    net.shutdown(id);
    net.drain();
    net.advance(210);
    net.expect("F. 1:501 ack 1");
    net.inject(". 1 ack 502 win 60000");
    net.advance(100_000);
    net.expect_nothing();
}

#[test]
fn marks_from_half_a_circle_ago_are_no_losses() {
    let mut net = Net::with_rings(1 << 22, 64 * 1024);
    let id = net.accepted("mss 1000 sackok ws 8", 10_000);
    net.write(id, 5_000);
    net.advance(210);
    net.inject(". 1 ack 5001 win 10000");
    net.drain();
    // What a smaller path made due is acknowledged before it is sent again.
    net.write(id, 2_000);
    net.icmp_without_run(ErrorKind::PacketTooBig { mtu: 1_000 }, 5_001);
    net.inject(". 1 ack 7001 win 10000");
    net.drain();
    let mut una = 7_001u32;
    for _ in 0..5 {
        net.shift_sent(id, 0x6000_0000);
        una = una.wrapping_add(0x6000_0000);
        net.write(id, 2_000);
        assert_eq!(net.connection(id).pipe(), 2_000);
        assert_eq!(net.drain(), 2_000);
        una = una.wrapping_add(2_000);
        net.inject(&format!(". 1 ack {una} win 10000"));
        net.expect_nothing();
    }
}

/// The congestion window after a loss and a hundred full round trips of 50 ms. A round trip's acknowledgements come
/// one by one, or all before anything can be sent.
fn window_after_a_loss(in_one_batch: bool) -> u32 {
    let mut net = Net::with_rings(1 << 22, 1 << 16);
    let id = net.accepted("mss 1000 sackok ws 8", 60_000);
    net.write(id, 1_000_000);
    let mut acked = 1;
    for round in 0..100 {
        net.drain();
        net.advance(50);
        let connection = net.connection(id);
        let end = connection.iss.distance_to(connection.snd_nxt);
        if round == 4 {
            for segments in 2..5 {
                let sacked = acked + segments * 1_000;
                net.inject(&format!(
                    ". 1 ack {acked} win 60000 sack {}-{sacked}",
                    acked + 1_000
                ));
            }
            assert_eq!(net.count(Counter::TcpFastRecoveries), 1);
        }
        let before = acked;
        while acked < end {
            acked = end.min(acked + 2_000);
            let text = format!(". 1 ack {acked} win 60000");
            match in_one_batch {
                true => net.inject_without_run(&text),
                false => net.inject(&text),
            }
        }
        net.write(id, acked - before);
    }
    net.connection(id).congestion.window()
}

#[test]
fn the_window_grows_as_fast_if_acknowledgements_come_in_batches() {
    let (one_by_one, batched) = (window_after_a_loss(false), window_after_a_loss(true));
    assert!(
        batched > one_by_one * 3 / 4,
        "{batched}, {one_by_one} one by one"
    );
}
