//! Records that something wrote over.
use super::*;
use crate::harness::Freezer;

type Spoil = fn(&Record);

fn add(number: &core::sync::atomic::AtomicU32) {
    number.fetch_add(1 << 20, Relaxed);
}

/// Two connections and a listener; the record of one is spoilt before the crash.
fn world() -> (Net, SocketId, SocketId, SocketId) {
    let mut net = Net::new();
    let listener = net.listen(80, 5);
    let victim = net.accepted_from(listener, PLAIN, 60_000);
    net.remote_port = 6_000;
    let other = net.accepted_from(listener, PLAIN, 60_000);
    net.drain();
    (net, listener, victim, other)
}

/// These bytes of our stream are sent next, in whatever pieces.
fn expect_sent(net: &mut Net, from: u32, to: u32, what: &str) {
    let (mut at, mut sent) = (from, net.out.sent.drain(..).collect::<Vec<_>>());
    sent.sort_by_key(crate::harness::Sent::seq);
    for segment in sent.iter().filter(|it| !it.payload.is_empty()) {
        assert!(segment.seq() <= at, "{what}: {segment}");
        at = at.max(segment.seq() + segment.payload.len() as u32);
    }
    assert_eq!(at, to, "{what}");
}

#[test]
fn a_spoilt_record_costs_one_connection() {
    // (what is spoilt, which reason is counted, whether the peer is told)
    let table: [(Spoil, Counter, bool); 12] = [
        (
            |it| it.state.store(11, Relaxed),
            Counter::TcpRecordKind,
            true,
        ),
        (
            |it| it.kind.store(77, Relaxed),
            Counter::TcpRecordKind,
            true,
        ),
        (|it| it.kind.store(0, Relaxed), Counter::TcpRecordKind, true),
        (
            |it| it.holder.store(9, Relaxed),
            Counter::TcpRecordKind,
            true,
        ),
        (
            |it| it.remote_port.store(1, Relaxed),
            Counter::TcpRecordChanged,
            true,
        ),
        (
            |it| it.iss.store(1, Relaxed),
            Counter::TcpRecordChanged,
            true,
        ),
        (
            |it| it.snd_wscale.store(15, Relaxed),
            Counter::TcpRecordChanged,
            true,
        ),
        (
            // The peer was told that more had arrived than there is.
            |it| {
                it.rcv_nxt.fetch_add(100, Relaxed);
            },
            Counter::TcpRecordNumbers,
            true,
        ),
        (
            // The peer has acknowledged what was never sent.
            |it| {
                it.snd_una.fetch_sub(1_000, Relaxed);
                it.snd_max.fetch_sub(1_000, Relaxed);
            },
            Counter::TcpRecordNumbers,
            true,
        ),
        (
            // More arrived than was ever asked for.
            |it| {
                it.rcv_adv.fetch_sub(70_000, Relaxed);
            },
            Counter::TcpRecordNumbers,
            true,
        ),
        (
            |it| it.state.store(State::FinWait2 as u8, Relaxed),
            Counter::TcpRecordNumbers,
            true,
        ),
        (
            |it| {
                it.holder.store(2, Relaxed);
                it.listener.store(60, Relaxed)
            },
            Counter::TcpRecordListener,
            true,
        ),
    ];
    for (spoil, reason, told) in table {
        let (mut net, listener, victim, other) = world();
        spoil(net.tcp.table().record(victim.slot));
        let adopted = net.crash();
        assert_eq!((adopted.sockets, adopted.given_up), (2, 1), "{reason:?}");
        assert_eq!(net.count(reason), 1, "{reason:?}");
        let resets = net
            .out
            .sent
            .iter()
            .filter(|sent| sent.to_string().starts_with('R'));
        assert_eq!(resets.count(), usize::from(told), "{reason:?}");
        if reason == Counter::TcpRecordListener {
            assert!(!net.exists(victim), "nobody knew of it");
        } else {
            assert!(net.events(victim).contains(Events::ERROR | Events::CLOSED));
            assert_eq!(net.error(victim), SocketError::Reset as u32);
            net.close(victim);
            assert!(!net.exists(victim));
        }
        // The others notice nothing.
        net.drain();
        assert_eq!(net.state(listener), State::Listen);
        net.inject(". 1:1001 ack 1 win 60000");
        net.expect(". 1 ack 1001");
        assert_eq!(net.read(other, 2_000), 1_000);
    }
}

/// What is known otherwise needn't be on record: the rings say where both streams are, and the peer what it takes.
#[test]
fn nonsense_in_numbers_is_got_over() {
    let table: [(&str, Spoil); 10] = [
        ("snd_una", |it| add(&it.snd_una)),
        ("snd_una", |it| {
            it.snd_una.store(it.iss.load(Relaxed) + 500, Relaxed)
        }),
        ("snd_max", |it| add(&it.snd_max)),
        ("snd_max", |it| {
            it.snd_max.store(it.iss.load(Relaxed) + 5_000, Relaxed)
        }),
        ("both", |it| {
            add(&it.snd_una);
            it.snd_max.store(7, Relaxed);
        }),
        ("snd_wnd", |it| it.snd_wnd.store(u32::MAX / 2, Relaxed)),
        ("snd_wnd", |it| it.snd_wnd.store(u32::MAX, Relaxed)),
        ("rcv_nxt", |it| add(&it.rcv_nxt)),
        ("rcv_adv", |it| add(&it.rcv_adv)),
        ("rcv_adv", |it| {
            it.rcv_adv.fetch_sub(1 << 20, Relaxed);
        }),
    ];
    for (what, spoil) in table {
        let (mut net, _, victim, other) = world();
        net.remote_port = 5_000;
        net.write(victim, 700);
        net.drain();
        spoil(net.tcp.table().record(victim.slot));
        let adopted = net.crash();
        assert_eq!((adopted.sockets, adopted.given_up), (3, 0), "{what}");
        assert!(net.count(Counter::TcpMended) > 0, "{what}");
        assert_eq!(net.state(other), State::Established, "{what}");
        net.drain();
        // The peer has some of it, has asked for the rest, and has sent something.
        net.inject(". 1:1001 ack 301 win 60000");
        assert_eq!(net.read(victim, 2_000), 1_000, "{what}");
        net.drain();
        net.advance(3_000);
        expect_sent(&mut net, 301, 701, what);
        net.inject(". 1001:2001 ack 701 win 60000");
        assert_eq!(net.read(victim, 2_000), 1_000, "{what}");
        net.drain();
        net.write(victim, 100);
        expect_sent(&mut net, 701, 801, what);
    }
}

/// A predecessor may have told the peer, and kept, timestamps far ahead. By the rules either side would drop all that
/// the other sends, for weeks.
#[test]
fn nonsense_in_timestamps_is_got_over() {
    let mut net = Net::new();
    let id = net.accepted_with_stamps(OFFER);
    net.set(id, ConnectionOption::NoDelay(true));
    let record = net.tcp.table().record(id.slot);
    record.ts_recent.fetch_add(1 << 30, Relaxed);
    net.crash();
    net.drain();
    net.write(id, 10);
    let stamps = |sent: &crate::harness::Sent| sent.options.timestamps.expect("stamps");
    let before = stamps(&net.expect(". 1:11 ack 1"));
    // The peer acknowledges what it has, and says how far our clock was.
    let ahead = before.value.wrapping_add(1 << 30);
    net.inject(&format!(". 1:11 ack 1 win 500 ts 1002 {ahead}"));
    assert_eq!(net.read(id, 100), 10, "what the peer sent was dropped");
    net.write(id, 10);
    let after = stamps(&net.expect(". 11:21 ack 11"));
    assert!(after.value.wrapping_sub(ahead) as i32 > 0);
    assert_eq!(after.echo, 1002);
}

/// A predecessor may have agreed on timestamps by its own record, and not have told the peer.
#[test]
fn a_peer_that_never_heard_of_timestamps_goes_on_without() {
    for stamps in ["", " ts 1002 *"] {
        let mut net = Net::new();
        let id = net.accepted_with_stamps(OFFER);
        net.set(id, ConnectionOption::NoDelay(true));
        net.crash();
        net.drain();
        net.inject(&format!(". 1:11 ack 1 win 500{stamps}"));
        assert_eq!(net.read(id, 100), 10, "what the peer sent was dropped");
        net.write(id, 10);
        let sent = net.expect(". 1:11 ack 11");
        assert_eq!(sent.options.timestamps.is_some(), !stamps.is_empty());
        // Only the first segment tells.
        net.inject(". 11:21 ack 11 win 500");
        let taken = if stamps.is_empty() { 10 } else { 0 };
        assert_eq!(net.read(id, 100), taken);
    }
}

#[test]
fn a_stateless_successor_resets_connections_and_goes_on_listening() {
    let (mut net, listener, one, other) = world();
    net.tcp.set_stateless(true);
    let adopted = net.crash();
    assert_eq!((adopted.sockets, adopted.given_up), (1, 2));
    assert_eq!(net.count(Counter::TcpForgotten), 2);
    let resets = net.out.sent.iter();
    let resets = resets.filter(|sent| sent.to_string().starts_with('R'));
    assert_eq!(resets.count(), 2);
    for connection in [one, other] {
        assert!(
            net.events(connection)
                .contains(Events::ERROR | Events::CLOSED)
        );
        assert_eq!(net.error(connection), SocketError::Reset as u32);
        net.close(connection);
        assert!(!net.exists(connection));
    }
    net.drain();
    net.remote_port = 6_001;
    let new = net.accepted_from(listener, PLAIN, 60_000);
    net.drain();
    net.inject(". 1:1001 ack 1 win 60000");
    assert_eq!(net.read(new, 2_000), 1_000);
    // What had ended before ends as it would have.
    net.inject("R. 1001 ack 1");
    let adopted = net.crash();
    assert_eq!((adopted.sockets, adopted.given_up), (2, 0));
}

#[test]
fn a_peer_that_was_reset_cannot_end_cleanly() {
    let (mut net, _, victim, _) = world();
    net.tcp
        .table()
        .record(victim.slot)
        .rcv_nxt
        .store(7, Relaxed);
    net.crash();
    net.drain();
    net.remote_port = 5_000;
    net.inject("F. 1 ack 1 win 60000");
    net.expect("R 1");
}

#[test]
fn a_spoilt_listener_is_given_up_alone() {
    let (mut net, listener, victim, other) = world();
    net.tcp
        .table()
        .record(listener.slot)
        .local_port
        .store(81, Relaxed);
    let adopted = net.crash();
    assert_eq!((adopted.sockets, adopted.given_up), (2, 1));
    assert_eq!(net.count(Counter::TcpRecordChanged), 1);
    assert!(net.events(listener).contains(Events::ERROR));
    for id in [victim, other] {
        assert_eq!(net.state(id), State::Established);
    }
    net.close(listener);
    assert!(!net.exists(listener));
}

#[test]
fn ends_that_are_not_ours_or_taken_are_given_up() {
    let (mut net, _, victim, other) = world();
    let (first, second) = (
        net.tcp.table().record(victim.slot),
        net.tcp.table().record(other.slot),
    );
    second.set_four_tuple(&first.four_tuple());
    second.seal.store(second.seal(), Relaxed);
    assert_eq!(net.crash().given_up, 1);
    assert_eq!(net.count(Counter::TcpRecordEnds), 1);
    assert_eq!(net.state(victim), State::Established);

    let (mut net, _, victim, _) = world();
    let record = net.tcp.table().record(victim.slot);
    let mut tuple = record.four_tuple();
    tuple.local.addr = "10.0.0.77".parse().expect("an address");
    record.set_four_tuple(&tuple);
    record.seal.store(record.seal(), Relaxed);
    assert_eq!(net.crash().given_up, 1);
    assert_eq!(net.count(Counter::TcpRecordEnds), 1);
    assert!(
        net.out
            .sent
            .iter()
            .all(|sent| !sent.to_string().starts_with('R'))
    );
}

#[test]
fn a_program_that_spoils_its_ring_loses_that_connection() {
    let (mut net, _, victim, _) = world();
    net.store_receive_head(victim, 1 << 40);
    net.spoilt = true;
    assert_eq!(net.crash().given_up, 1);
    assert_eq!(net.count(Counter::TcpRecordRings), 1);
}

#[test]
fn random_bytes_in_a_record_never_panic_and_cost_no_other() {
    let mut seed = 1u64;
    let mut random = || {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        seed >> 33
    };
    let mut given_up = 0;
    for round in 0..400 {
        let (mut net, listener, victim, other) = world();
        (net.spoilt, net.out.strangers) = (true, true);
        net.write(victim, 700);
        net.write(other, 300);
        let region = net.tcp.table().region(0).expect("a region").clone();
        let freezer = Freezer::new(&region);
        let records = freezer.records();
        // The header has a page; the victim's record follows the listener's.
        let first = 4096 / 8 + size_of::<Record>() / 8 * victim.slot as usize;
        for _ in 0..=random() % 4 {
            let word = &records.words()[first + random() as usize % (size_of::<Record>() / 8)];
            let shift = 8 * (random() % 8);
            let old = word.load(Relaxed);
            let byte = (random() & 0xff) << shift;
            word.store(old & !(0xff << shift) | byte, Relaxed);
        }
        net.drain();
        given_up += net.crash().given_up;
        net.drain();
        assert_eq!(net.state(listener), State::Listen, "round {round}");
        assert_eq!(net.state(other), State::Established, "round {round}");
        net.remote_port = 6_000;
        net.inject(". 1:11 ack 301 win 60000");
        assert_eq!(net.read(other, 100), 10, "round {round}");
        net.advance(30_000);
        net.close(victim);
        net.abandon(0);
        net.advance(1_000_000);
    }
    assert!(given_up > 100, "{given_up}");
}
