use crate::harness::{Net, OFFER};
use crate::state::State;
use skink_memory::SocketId;
use skink_messages::{ConnectionOption, Counter, ErrorKind, Events};

const PLAIN: &str = "mss 1000 sackok";

fn open(window: u32) -> (Net, SocketId) {
    let mut net = Net::new();
    let id = net.accepted(PLAIN, window);
    net.events(id);
    (net, id)
}

#[test]
fn the_congestion_window_and_the_peers_window_bound_what_is_sent() {
    // (peer's window, bytes written, bytes sent at once): ten segments are the initial window.
    let table = [
        (60_000, 500, 500),
        (60_000, 10_000, 10_000),
        (60_000, 20_000, 10_000),
        (3_000, 20_000, 3_000),
        (3_500, 20_000, 3_000),
        (3_500, 3_200, 3_200),
        (999, 20_000, 999),
        (0, 100, 0),
    ];
    for refuse in [0, 2, 3] {
        for (window, written, sent) in table {
            let (mut net, id) = open(window);
            net.out.refuse_every = refuse;
            net.write(id, written);
            assert_eq!(net.drain(), sent, "{window} {written}");
            assert_eq!(net.connection(id).flight(), sent);
        }
    }
}

#[test]
fn a_segment_that_is_sent_again_tells_the_window_if_it_acknowledges_more() {
    let (mut net, id) = open(3_000);
    net.write(id, 20_000);
    assert_eq!(net.drain(), 3_000);
    net.inject(". 101:201 ack 1 win 3000");
    net.inject(". 1:101 ack 3001 win 0");
    assert_eq!(net.drain(), 0, "beyond the window");
    // An older one that acknowledges no more isn't news.
    net.inject(". 1:101 ack 3001 win 500");
    net.inject(". 101:201 ack 2001 win 3000");
    assert_eq!(net.drain(), 0);
    net.inject(". 201 ack 3001 win 3000");
    assert_eq!(net.drain(), 3_000);
}

/// The peer has taken back a window that our FIN was in; what began behind that would be dropped.
#[test]
fn acknowledgements_begin_within_the_peers_window_and_what_is_beyond_is_sent_again_soon() {
    let (mut net, id) = open(1_001);
    net.write(id, 1_000);
    net.expect("P. 1:1001 ack 1");
    net.shutdown(id);
    net.expect("F. 1001 ack 1");
    net.inject(". 1:11 ack 1001 win 0");
    net.advance(200);
    net.expect(". 1001 ack 11");
    // The timeout is doubled again and again while the window is closed.
    for timeout in [1_000, 2_000, 4_000, 8_000] {
        net.advance(timeout);
        net.expect("F. 1001 ack 11");
        net.inject(". 11 ack 1001 win 0");
    }
    net.inject(". 11 ack 1001 win 1");
    net.advance(1_000);
    net.expect("F. 1001 ack 11");
}

#[test]
fn a_fin_waits_until_it_is_within_the_peers_window() {
    // (bytes written, the window, those and the FIN at once, those alone)
    let table = [
        (1_000, 1_001, "F. 1:1001 ack 1", ""),
        (1_000, 1_000, "", ". 1:1001 ack 1"),
        (300, 300, "", ". 1:301 ack 1"),
    ];
    for refuse in [0, 2, 3] {
        for (written, window, with_fin, alone) in table {
            let (mut net, id) = open(window);
            net.out.refuse_every = refuse;
            net.fill(id, written);
            net.shutdown(id);
            net.expect(if alone.is_empty() { with_fin } else { alone });
            net.expect_nothing();
            if alone.is_empty() {
                continue;
            }
            // What is sent again doesn't take it along either.
            net.expect_after(200, alone);
            let (last, end) = (written, written + 1);
            net.inject(&format!(". 1 ack {end} win 0"));
            // The peer is asked as long as it answers, and as a window that opens may get lost.
            for _ in 0..3 {
                net.advance(5_000);
                net.expect(&format!(". {last} ack 1"));
                net.drain();
                net.inject(&format!(". 1 ack {end} win 0"));
                net.expect_nothing();
            }
            assert_eq!(net.state(id), State::FinWait1);
            net.inject(&format!(". 1 ack {end} win 1"));
            net.expect(&format!("F. {end} ack 1"));
            assert_eq!(net.connection(id).deadlines.probe, None);
            net.inject(&format!(". 1 ack {} win 0", end + 1));
            assert_eq!(net.state(id), State::FinWait2);
            net.expect_nothing();
        }
    }
}

#[test]
fn a_fin_for_a_closed_window_is_asked_about_until_nobody_answers() {
    for (closed, answers) in [(false, false), (true, false), (true, true)] {
        let (mut net, id) = open(0);
        match closed {
            true => net.close(id),
            false => net.shutdown(id),
        }
        net.expect_nothing();
        for _ in 0..20 {
            net.advance(60_000);
            if answers && net.exists(id) {
                net.inject(". 1 ack 1 win 0");
            }
        }
        assert!(net.count(Counter::TcpZeroWindowProbes) >= 15);
        assert_eq!(net.state(id), State::Closed);
        assert_eq!(net.exists(id), !closed);
    }
}

#[test]
fn slow_start_sends_two_segments_for_each_acknowledged() {
    let (mut net, id) = open(60_000);
    net.write(id, 60_000);
    assert_eq!(net.drain(), 10_000);
    net.inject(". 1 ack 1001 win 60000");
    assert_eq!(net.drain(), 2_000);
    net.inject(". 1 ack 3001 win 60000");
    assert_eq!(net.drain(), 4_000);
    assert_eq!(net.tcp.table().send_ring(id.slot).len(), 57_000);
}

#[test]
fn who_waits_for_room_is_told_when_a_quarter_is_free() {
    let (mut net, id) = open(60_000);
    net.write(id, 64 * 1024);
    for acked in (2_000..=64_000).step_by(2_000) {
        net.drain();
        net.inject(&format!(". 1 ack {} win 60000", 1 + acked));
        let told = net.events(id).contains(Events::WRITABLE);
        assert_eq!(told, acked >= 16 * 1024, "{acked}");
    }
}

#[test]
fn small_segments_wait_for_acknowledgements_unless_told_otherwise() {
    let (mut net, id) = open(60_000);
    net.write(id, 10);
    net.expect(". 1:11 ack 1");
    net.write(id, 10);
    net.write(id, 20);
    net.expect_nothing();
    // A full segment leaves, and (Minshall) no small one behind it.
    net.write(id, 1_000);
    net.expect(". 11:1011 ack 1");
    net.expect_nothing();
    net.inject(". 1 ack 11 win 60000");
    net.expect(". 1011:1041 ack 1");
    net.write(id, 5);
    net.expect_nothing();
    net.set(id, ConnectionOption::NoDelay(true));
    net.expect(". 1041:1046 ack 1");
    net.write(id, 5);
    net.expect(". 1046:1051 ack 1");
    net.set(id, ConnectionOption::NoDelay(false));
    net.write(id, 5);
    net.expect_nothing();
    // The end waits for nobody.
    net.shutdown(id);
    net.expect("F. 1051:1056 ack 1");
}

#[test]
fn a_small_segment_behind_a_lot_of_data_does_not_wait_for_itself() {
    // Marks from long ago must not be taken for the future: half of the circle passes by.
    let mut net = Net::with_rings(1 << 20, 64 * 1024);
    let id = net.accepted("mss 1000 sackok ws 8", 10_000);
    net.write(id, 10);
    net.drain();
    net.inject(". 1 ack 11 win 10000");
    net.shift_sent(id, 0x7fff_0000);
    net.write(id, 1_000);
    let una = 11 + 0x7fff_0000;
    net.inject(&format!(". 1 ack {} win 10000", una + 1_000));
    net.drain();
    net.shift_sent(id, 0x7fff_0000);
    net.write(id, 10);
    assert_eq!(net.drain(), 10);
}

#[test]
fn a_cork_holds_back_small_segments_for_a_fifth_of_a_second() {
    let (mut net, id) = open(60_000);
    net.set(id, ConnectionOption::Cork(true));
    net.write(id, 10);
    net.write(id, 10);
    net.expect_nothing();
    net.write(id, 1_000);
    net.expect(". 1:1001 ack 1");
    net.inject(". 1 ack 1001 win 60000");
    net.expect_after(200, ". 1001:1021 ack 1");
    net.inject(". 1 ack 1021 win 60000");
    net.write(id, 10);
    net.expect_nothing();
    net.set(id, ConnectionOption::Cork(false));
    net.expect(". 1021:1031 ack 1");
    net.inject(". 1 ack 1031 win 60000");
    // Exactly full segments never wait, and leave no timer behind.
    net.set(id, ConnectionOption::Cork(true));
    net.write(id, 400);
    net.write(id, 600);
    net.expect(". 1031:2031 ack 1");
    net.inject(". 1 ack 2031 win 60000");
    assert_eq!(net.connection(id).deadlines.first(), None);
    // The window closes meanwhile: it is probed.
    net.write(id, 10);
    net.inject(". 1 ack 2031 win 0");
    net.advance(1_300);
    net.expect(". 2030 ack 1");
    net.drain();
    net.inject(". 1 ack 2031 win 500");
    net.expect(". 2031:2041 ack 1");
    net.inject(". 1 ack 2041 win 60000");
    // To ask for no delay lets out what is held, and nothing that comes later.
    net.set(id, ConnectionOption::NoDelay(true));
    net.write(id, 5);
    net.expect_nothing();
    net.set(id, ConnectionOption::NoDelay(true));
    net.expect(". 2041:2046 ack 1");
    net.write(id, 5);
    net.expect_nothing();
}

#[test]
fn large_packets_are_cut_to_whole_segments() {
    let mut net = Net::new();
    net.out.path.cut_bytes = 5_000;
    let id = net.accepted(PLAIN, 60_000);
    net.write(id, 9_300);
    net.expect(". 1:4001 ack 1 cut 1000");
    net.expect(". 4001:8001 ack 1 cut 1000");
    net.expect(". 8001:9301 ack 1 cut 1000");
    net.expect_nothing();
    // What is sent again is cut too, as far as the window allows.
    net.expect_after(200, ". 1:1001 ack 1 cut 0");
    net.inject(". 1 ack 2001 win 60000");
    net.expect(". 2001:5001 ack 1 cut 1000");
    net.inject(". 1 ack 3501 win 60000");
    let lengths: Vec<usize> = core::iter::from_fn(|| net.next())
        .map(|sent| sent.payload.len())
        .collect();
    assert!(
        lengths.iter().all(|length| length % 1_000 == 0),
        "{lengths:?}"
    );
}

#[test]
fn timestamps_take_their_room() {
    let mut net = Net::new();
    let id = net.accepted_with_stamps(OFFER);
    net.write(id, 3_000);
    net.expect(". 1:1449 ack 1 ts 0 1001");
    net.expect(". 1449:2897 ack 1 ts 0 1001");
    // RFC 7323: the wire carries the clock in milliseconds.
    let first = net
        .expect(". 2897:3001 ack 1")
        .options
        .timestamps
        .map(|stamp| stamp.value);
    net.advance(150);
    net.inject(". 1 ack 3001 win 60000 ts 1300 *");
    net.write(id, 1);
    let later = net
        .expect(". 3001:3002 ack 1 ts 0 1300")
        .options
        .timestamps
        .map(|stamp| stamp.value);
    assert_eq!(
        first
            .zip(later)
            .map(|(first, later)| later.wrapping_sub(first)),
        Some(150)
    );
}

#[test]
fn a_maximum_segment_size_set_by_the_program_counts_both_ways() {
    let mut net = Net::new();
    let id = net.tcp.open().expect("a slot");
    net.set(id, ConnectionOption::MaximumSegment(500));
    net.connect_from(id, 80);
    net.expect("S 0 mss 500 sackok ws 1");
    net.inject("S. 0 ack 1 win 60000 mss 1460");
    net.drain();
    net.write(id, 700);
    net.expect(". 1:701 ack 1 cut 500");
}

#[test]
fn packets_too_big_for_the_path_are_sent_again_smaller() {
    let mut net = Net::new();
    let id = net.accepted("mss 1460 sackok", 60_000);
    net.write(id, 4_000);
    net.expect_all(&[". 1:1461 ack 1", ". 1461:2921 ack 1", ". 2921:4001 ack 1"]);
    let window = net.connection(id).congestion.window();
    // About what isn't in flight, or no smaller: nothing happens.
    net.icmp(ErrorKind::PacketTooBig { mtu: 1_000 }, 4_001);
    net.icmp(ErrorKind::PacketTooBig { mtu: 1_500 }, 1);
    net.expect_nothing();
    assert_eq!(net.count(Counter::TcpDropBadError), 1);
    net.icmp(ErrorKind::PacketTooBig { mtu: 1_040 }, 1);
    net.expect_all(&[
        ". 1:1001 ack 1",
        ". 1001:2001 ack 1",
        ". 2001:3001 ack 1",
        ". 3001:4001 ack 1",
    ]);
    assert_eq!(
        net.connection(id).congestion.window(),
        window,
        "the network isn't to blame"
    );
    net.inject(". 1 ack 4001 win 60000");
    net.write(id, 1_100);
    net.expect(". 4001:5001 ack 1");
    net.drain();
    // No lie makes segments absurdly small: no smaller than `ip` believes it.
    net.icmp(ErrorKind::PacketTooBig { mtu: 0 }, 4_001);
    assert_eq!(net.connection(id).mss, 512);
}

/// Segments fit the smallest link that IPv4 can have (RFC 791 section 3.2), with 12 bytes of options.
#[test]
fn segments_fit_the_smallest_link() {
    for (options, mss) in [("mss 1460", 28), ("mss 1460 ts 1 *", 16)] {
        let mut net = Net::new();
        net.out.path.mtu = 68;
        let id = net.accepted(options, 60_000);
        assert_eq!(net.connection(id).mss, mss, "{options}");
    }
}

#[test]
fn segments_grow_when_the_link_takes_more_again() {
    let mut net = Net::new();
    let small = net.out.path;
    net.out.path.mtu = 1_040;
    let id = net.accepted("mss 8960 sackok", 60_000);
    net.write(id, 1_500);
    net.expect_all(&[". 1:1001 ack 1", ". 1001:1501 ack 1"]);
    net.out.path = small;
    net.write(id, 1_500);
    net.inject(". 1 ack 1501 win 60000");
    net.expect_all(&[". 1501:2501 ack 1", ". 2501:3001 ack 1"]);
    // What is in flight stays as it was cut, what follows is as large as the path takes: the network looks at that.
    net.out.raises += 1;
    net.write(id, 3_000);
    net.expect_all(&[". 3001:4461 ack 1", ". 4461:5921 ack 1"]);
    // No more than before changes nothing; nor does less, of which an error would tell.
    for mtu in [1_500, 1_040] {
        net.out.path.mtu = mtu;
        net.out.raises += 1;
        net.write(id, 0);
        assert_eq!(net.connection(id).mss, 1_460);
    }
}

/// A router further away complains of what just began to grow: the route hears of that only when it shows to be true.
#[test]
fn what_is_too_large_for_the_path_is_not_taken_back_by_a_raise() {
    let mut net = Net::new();
    net.out.path.mtu = 1_040;
    let id = net.accepted("mss 8960 sackok", 60_000);
    net.write(id, 1_500);
    net.drain();
    net.out.path.mtu = 1_500;
    net.out.raises += 1;
    net.icmp(ErrorKind::PacketTooBig { mtu: 1_240 }, 1);
    net.drain();
    assert_eq!(net.connection(id).mss, 1_200);
}

/// The window may be one segment, of the smaller size.
#[test]
fn what_was_lost_is_sent_again_in_larger_segments() {
    let mut net = Net::new();
    net.out.path.mtu = 1_040;
    let id = net.accepted("mss 8960 sackok", 60_000);
    net.write(id, 20_000);
    net.drain();
    net.advance(2_000);
    net.out.path.mtu = 9_000;
    net.out.path.cut_bytes = 9_000;
    net.out.raises += 1;
    net.drain();
    net.inject(". 1 ack 1001 win 60000");
    net.expect(". 1001:9961 ack 1");
}

#[test]
fn a_long_transfer_the_other_way_after_a_half_close() {
    for refuse in [0, 2, 3] {
        let (mut net, id) = open(5_000);
        net.out.refuse_every = refuse;
        net.inject("F. 1 ack 1 win 5000");
        net.expect(". 1 ack 2");
        net.write(id, 40_000);
        let (mut acked, mut total) = (1, 0);
        while total < 40_000 {
            total += net.drain();
            acked = 1 + total;
            net.inject(&format!(". 2 ack {acked} win 5000"));
        }
        assert_eq!(net.state(id), State::CloseWait);
        net.shutdown(id);
        net.expect(&format!("F. {acked} ack 2"));
        net.inject(&format!(". 2 ack {} win 5000", acked + 1));
        assert_eq!(net.state(id), State::Closed);
        assert_eq!(net.error(id), 0);
        assert_eq!(net.tcp.table().send_ring(id.slot).len(), 0);
    }
}

#[test]
fn after_a_pause_the_window_begins_small_again() {
    let (mut net, id) = open(60_000);
    net.write(id, 60_000);
    let mut sent = net.drain();
    while sent < 60_000 {
        net.inject(&format!(". 1 ack {} win 60000", sent + 1));
        sent += net.drain();
    }
    net.inject(". 1 ack 60001 win 60000");
    assert!(net.connection(id).congestion.window() > 20_000);
    net.advance(5_000);
    net.write(id, 60_000);
    assert_eq!(net.drain(), 10_000);
}

#[test]
fn spoilt_ring_positions_harm_only_their_program() {
    // A program moves the ends of its rings at will: (send head, send tail, receive head).
    let table = [
        (0u64, 0u64, 0u64),
        (5, 2, 9),
        (u64::MAX, 1, 1 << 40),
        (1 << 31, 1 << 32, u64::MAX),
        (100, u64::MAX, 3),
    ];
    for (send_head, send_tail, receive_head) in table {
        for finish in [false, true] {
            let (mut net, id) = open(60_000);
            net.write(id, 3_000);
            net.inject(". 1:101 ack 1 win 60000");
            net.drain();
            net.spoilt = true;
            let send = net.tcp.table().send_ring(id.slot);
            let receive = net.tcp.table().receive_ring(id.slot);
            send.advance_head(send_head as usize);
            send.advance_tail(send_tail as usize);
            receive.advance_tail(receive_head as usize);
            net.request(skink_messages::TcpRequest::Sent(id));
            net.request(skink_messages::TcpRequest::Received(id));
            if finish {
                net.shutdown(id);
            }
            net.inject(". 201:301 ack 1001 win 60000");
            net.inject(". 101:201 ack 2001 win 60000");
            net.inject(". 301 ack 3001 win 60000");
            net.advance(2_000_000);
            net.close(id);
            net.advance(2_000_000);
            assert!(!net.exists(id), "given up in the end");
        }
    }
}
