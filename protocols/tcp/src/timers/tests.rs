use crate::harness::Net;
use crate::state::State;
use core::time::Duration;
use skink_memory::SocketId;
use skink_messages::{ConnectionOption, Counter, Events, SocketError};

const PLAIN: &str = "mss 1000 sackok";

fn open(window: u32) -> (Net, SocketId) {
    let mut net = Net::new();
    let id = net.accepted(PLAIN, window);
    (net, id)
}

#[test]
fn a_closed_window_is_probed_as_long_as_the_peer_answers() {
    let (mut net, id) = open(0);
    net.write(id, 3_000);
    net.expect_nothing();
    // The first after a timeout, then with doubled waits, a minute at most.
    let mut wait = 200;
    for _ in 0..40 {
        net.expect_after(wait, ". 0 ack 1");
        net.inject(". 1 ack 1 win 0");
        wait = (wait * 2).min(60_000);
    }
    assert_eq!(net.count(Counter::TcpZeroWindowProbes), 40);
    net.inject(". 1 ack 1 win 60000");
    assert_eq!(net.drain(), 3_000);
    assert_eq!(net.connection(id).backoff, 0);
    assert_eq!(net.connection(id).deadlines.probe, None);
}

#[test]
fn a_peer_that_answers_no_probe_is_given_up() {
    for closed in [false, true] {
        let (mut net, id) = open(0);
        net.write(id, 3_000);
        if closed {
            net.close(id);
        }
        net.advance(20 * 60_000);
        assert_eq!(net.count(Counter::TcpZeroWindowProbes), 15);
        assert_eq!(net.state(id), State::Closed);
        if closed {
            assert!(!net.exists(id));
        } else {
            assert_eq!(net.error(id), SocketError::TimedOut as u32);
        }
    }
    // A program that has gone isn't waited for, though the peer answers.
    let (mut net, id) = open(0);
    net.write(id, 3_000);
    net.close(id);
    for _ in 0..30 {
        net.advance(60_000);
        if net.exists(id) {
            net.inject(". 1 ack 1 win 0");
        }
    }
    assert!(!net.exists(id));
}

#[test]
fn a_window_smaller_than_a_segment_is_used_after_a_while() {
    let (mut net, id) = open(60_000);
    net.inject(". 1 ack 1 win 300");
    net.write(id, 1_000);
    // RFC 9293 3.8.6.2.1: less than half of the largest window ever seen isn't worth it at once.
    net.expect_nothing();
    net.advance(205);
    net.expect(". 1:301 ack 1");
    net.inject(". 1 ack 301 win 300");
    net.expect_nothing();
    net.advance(205);
    net.expect(". 301:601 ack 1");
    net.inject(". 1 ack 601 win 60000");
    net.expect(". 601:1001 ack 1");
}

#[test]
fn a_peer_that_takes_its_window_back_is_alive_while_it_answers() {
    let (mut net, id) = open(60_000);
    net.write(id, 3_000);
    net.drain();
    net.inject(". 1 ack 1 win 0");
    for _ in 0..60 {
        net.advance(60_000);
        net.inject(". 1 ack 1 win 0");
    }
    assert_eq!(net.state(id), State::Established);
    net.advance(130_000);
    net.drain();
    net.inject(". 1 ack 3001 win 60000");
    assert_eq!(net.connection(id).flight(), 0);
    // It stops answering.
    net.write(id, 3_000);
    net.advance_by(Duration::from_secs(2_000));
    assert_eq!(net.state(id), State::Closed);
}

#[test]
fn a_peer_that_acknowledges_nothing_is_given_up() {
    let (mut net, id) = open(60_000);
    net.write(id, 100);
    net.advance_by(Duration::from_secs(900));
    assert_eq!(net.state(id), State::Established);
    net.advance_by(Duration::from_secs(130));
    assert_eq!(net.state(id), State::Closed);
    assert_eq!(net.count(Counter::TcpRetransmitTimeouts), 15);
    assert_eq!(net.error(id), SocketError::TimedOut as u32);
    assert!(net.events(id).contains(Events::ERROR | Events::CLOSED));
    let last = core::iter::from_fn(|| net.next())
        .last()
        .map(|sent| sent.to_string());
    assert_eq!(last.as_deref(), Some("R. 101 ack 1 win 0"));
}

#[test]
fn a_peer_that_acknowledges_only_what_is_sent_again_lives() {
    let (mut net, id) = open(60_000);
    for round in 0..20 {
        net.write(id, 100);
        net.advance(130_000);
        net.inject(&format!(". 1 ack {} win 60000", 101 + 100 * round));
    }
    assert_eq!(net.state(id), State::Established);
}

#[test]
fn the_user_timeout_gives_up_earlier_or_later() {
    for limit in [3_000, 3_600_000] {
        let (mut net, id) = open(60_000);
        net.set(id, ConnectionOption::UserTimeout(limit));
        net.write(id, 100);
        // It counts from the first timeout on, as in Linux.
        net.advance(200 + u64::from(limit) - 50);
        assert_eq!(net.state(id), State::Established);
        net.advance(100);
        assert_eq!(net.state(id), State::Closed, "{limit}");
    }
    // A peer whose window is closed.
    let (mut net, id) = open(0);
    net.set(id, ConnectionOption::UserTimeout(3_000));
    net.write(id, 100);
    net.advance(2_950);
    assert_eq!(net.state(id), State::Established);
    net.advance(100);
    assert_eq!(net.state(id), State::Closed);
}

#[test]
fn the_user_timeout_counts_anew_when_the_window_opens() {
    let (mut net, id) = open(0);
    net.set(id, ConnectionOption::UserTimeout(3_000));
    net.write(id, 100);
    net.advance(2_900);
    net.inject(". 1 ack 1 win 60000");
    net.advance(2_900);
    assert_eq!(net.state(id), State::Established);
}

#[test]
fn silence_is_probed_if_the_program_asks_for_it() {
    for on_listener in [false, true] {
        let options = [
            ConnectionOption::KeepAlive(true),
            ConnectionOption::KeepAliveIdle(10),
            ConnectionOption::KeepAliveInterval(2),
            ConnectionOption::KeepAliveProbes(3),
        ];
        let mut net = Net::new();
        let listener = net.listen(80, 5);
        if on_listener {
            options.iter().for_each(|option| net.set(listener, *option));
        }
        let id = net.accepted_from(listener, PLAIN, 60_000);
        if !on_listener {
            options.iter().for_each(|option| net.set(id, *option));
        }
        net.advance(5_000);
        net.inject(". 1:11 ack 1 win 60000");
        net.advance(9_990);
        net.expect(". 1 ack 11");
        net.expect_nothing();
        net.advance(15);
        net.expect(". 0 ack 11");
        net.inject(". 11 ack 1 win 60000");
        net.expect_after(10_000, ". 0 ack 11");
        net.expect_after(2_000, ". 0 ack 11");
        net.expect_after(2_000, ". 0 ack 11");
        assert_eq!(net.state(id), State::Established);
        net.expect_after(2_000, "R. 1 ack 11");
        assert_eq!(net.state(id), State::Closed);
        assert_eq!(net.error(id), SocketError::TimedOut as u32);
        assert_eq!(net.count(Counter::TcpKeepAliveProbes), 4);
    }
}

#[test]
fn keepalive_waits_while_data_is_in_flight_and_ends_with_the_connection() {
    let (mut net, id) = open(60_000);
    net.set(id, ConnectionOption::KeepAlive(true));
    net.set(id, ConnectionOption::KeepAliveIdle(0));
    net.set(id, ConnectionOption::KeepAliveInterval(0));
    net.write(id, 100);
    // `advance` panics if timers fire for nothing.
    net.advance(100_000);
    assert_eq!(net.count(Counter::TcpKeepAliveProbes), 0);
    net.inject(". 1 ack 101 win 60000");
    net.shutdown(id);
    net.inject("F. 1 ack 102 win 60000");
    assert_eq!(net.state(id), State::TimeWait);
    net.drain();
    net.set(id, ConnectionOption::KeepAlive(true));
    net.advance(10_000);
    net.expect_nothing();
    assert_eq!(net.error(id), 0);
}

#[test]
fn a_closed_socket_waits_a_minute_for_the_peers_fin() {
    let (mut net, id) = open(60_000);
    net.close(id);
    net.expect("F. 1 ack 1");
    net.inject(". 1 ack 2 win 60000");
    assert_eq!(net.state(id), State::FinWait2);
    net.advance(59_900);
    assert!(net.exists(id));
    net.advance(200);
    assert!(!net.exists(id));
    net.expect_nothing();
    // With a program it may take for ever; from its close on, a minute.
    let (mut net, id) = open(60_000);
    net.shutdown(id);
    net.inject(". 1 ack 2 win 60000");
    net.advance(10_000_000);
    assert_eq!(net.state(id), State::FinWait2);
    net.close(id);
    net.advance(60_100);
    assert!(!net.exists(id));
}
