use crate::budget::LITTLE;
use crate::harness::{Net, new_region};
use crate::memory::PERIOD;
use skink_memory::SocketId;
use skink_messages::{Component, ConnectionOption, Counter};
use std::ops::Range;

const MEBIBYTE: u32 = 1 << 20;
/// What the scripted peer sends at once.
const SEGMENT: u32 = 32_768;

/// Programs with connections to a peer that sends as much as it may, and asks again for what was dropped.
struct Flood {
    net: Net,
    connections: Vec<Flooded>,
}

#[derive(Clone, Copy)]
struct Flooded {
    id: SocketId,
    port: u16,
}

impl Flood {
    /// So many connections of each of these programs, whose receive rings hold a mebibyte.
    fn new(budget: u64, programs: u32, connections: u16) -> Flood {
        Flood::over(1_500, budget, programs, connections)
    }

    /// The same over a path whose packets have so many bytes.
    fn over(mtu: u32, budget: u64, programs: u32, connections: u16) -> Flood {
        let mut net = Net::on(new_region(128, MEBIBYTE, 4 * MEBIBYTE));
        (net.out.path.mtu, net.out.path.cut_bytes) = (mtu, mtu);
        net.tcp.set_memory(budget);
        let options = format!("mss {} sackok ws 7", mtu - 40);
        let mut all = Vec::new();
        for program in 0..programs {
            if program > 0 {
                let region = new_region(128, MEBIBYTE, 4 * MEBIBYTE);
                net.tcp.add_region(program, region).expect("room");
            }
            net.local_port = 80 + program as u16;
            let listener = net.listen_in(program, net.local_port, 64, crate::harness::REUSE);
            for port in 5_000..5_000 + connections {
                net.remote_port = port;
                let id = net.accepted_from(listener, &options, 60_000);
                net.set(id, ConnectionOption::ReceiveBuffer(MEBIBYTE));
                all.push(Flooded { id, port });
            }
        }
        Flood {
            net,
            connections: all,
        }
    }

    /// One whose peer was offered half a mebibyte and more, before others' peers have used up all memory.
    fn with_a_victim() -> (Flood, Flooded) {
        let mut flood = Flood::new(u64::from(2 * MEBIBYTE), 1, 32);
        let victim = flood.connections.remove(0);
        flood.turn_to(victim);
        for from in [1, 3_001] {
            flood
                .net
                .inject(&format!(". {from}:{} ack 1 win 60000", from + 3_000));
            flood.net.advance(100);
            flood.read(victim);
        }
        assert!(flood.turn_to(victim).1 > MEBIBYTE / 2);
        (flood, victim)
    }

    /// What isn't in order arrives from `from` on, in pieces of `bytes` each `step` after the one before.
    fn send_ahead(&mut self, range: Range<u32>, step: u32, bytes: u32) {
        for at in range.step_by(step as usize) {
            let end = at + bytes;
            self.net.inject(&format!(". {at}:{end} ack 1 win 60000"));
        }
        self.net.drain();
    }

    fn turn_to(&mut self, one: Flooded) -> (u32, u32) {
        let region = self.net.tcp.table().region_of(one.id.slot);
        (self.net.local_port, self.net.remote_port) = (80 + region as u16, one.port);
        let connection = self.net.connection(one.id);
        let next = connection.irs.distance_to(connection.rcv_nxt);
        let offered = connection.rcv_nxt.distance_to(connection.rcv_adv);
        (next, offered)
    }

    /// The peer sends one of its segments on each connection, if it may.
    fn send(&mut self) {
        for one in self.connections.clone() {
            let (next, offered) = self.turn_to(one);
            let end = next + SEGMENT.min(offered);
            if end > next {
                self.net.inject(&format!(". {next}:{end} ack 1 win 60000"));
            }
            self.net.drain();
        }
    }

    /// Up to the bounds of all windows, and beyond if `rounds` are many.
    fn flood(&mut self, rounds: u32) {
        for _ in 0..rounds {
            self.send();
            self.net.advance(100);
        }
    }

    fn unread(&self, one: Flooded) -> usize {
        self.net.tcp.table().receive_ring(one.id.slot).len()
    }

    fn read(&mut self, one: Flooded) -> u32 {
        self.turn_to(one);
        let mut count = 0;
        while self.unread(one) > 0 {
            count += self.net.read(one.id, SEGMENT);
        }
        self.net.drain();
        count
    }

    fn taken(&self) -> u64 {
        let regions = self.net.tcp.table().regions();
        regions.map(|(_, region)| region.taken_to_receive()).sum()
    }
}

#[test]
fn what_nobody_reads_takes_no_more_than_it_may() {
    let budget = u64::from(4 * MEBIBYTE);
    let mut flood = Flood::new(budget, 1, 32);
    flood.flood(64);
    let most = budget + u64::from(SEGMENT);
    assert!(flood.taken() <= most, "{} of {most}", flood.taken());
    assert_eq!(flood.net.count(Counter::TcpMemoryScarce), 1);
    assert!(flood.net.count(Counter::TcpDropScarce) > 0);
    let soon = flood.net.tcp.memory.next_deadline();
    assert!(soon.is_some_and(|due| due <= flood.net.now + PERIOD));
    // What was offered before doesn't count any more.
    for one in flood.connections.clone() {
        assert!(flood.turn_to(one).1 <= LITTLE as u32);
    }
    // Each byte of what was taken is there, and what was dropped comes again.
    for one in flood.connections.clone() {
        assert!(flood.read(one) > 0);
    }
    flood.net.advance(300);
    flood.net.advance(300);
    let little = 32 * LITTLE as u64 / 4;
    assert!(flood.taken() < little, "read and kept: {}", flood.taken());
    assert_eq!(flood.net.tcp.memory.next_deadline(), None);
    let sent_before = flood.net.count(Counter::TcpBytesIn);
    flood.flood(2);
    assert_eq!(
        flood.net.count(Counter::TcpBytesIn) - sent_before,
        64 * u64::from(SEGMENT)
    );
}

#[test]
fn the_less_memory_there_is_the_less_goes_through_at_a_time_but_some_always_does() {
    for (connections, bytes) in [(8, SEGMENT), (24, 16 << 10), (80, 4 << 10)] {
        let mut flood = Flood::new(u64::from(MEBIBYTE), 1, connections);
        flood.flood(64);
        // One is read, the others stay full.
        let one = flood.connections[3];
        flood.read(one);
        for _ in 0..20 {
            flood.send();
            assert_eq!(flood.read(one), bytes, "{connections} connections");
        }
    }
}

#[test]
fn a_program_that_takes_little_hears_nothing_of_anothers_hoard() {
    let mut flood = Flood::new(u64::from(4 * MEBIBYTE), 2, 32);
    let all = flood.connections.clone();
    let modest = all[32];
    flood.connections = [&all[..32], &[modest]].concat();
    for _ in 0..64 {
        flood.send();
        assert_eq!(flood.read(modest), SEGMENT);
        assert!(flood.turn_to(modest).1 > MEBIBYTE / 2);
        flood.net.advance(100);
    }
    assert!(flood.net.count(Counter::TcpDropScarce) > 0);
}

#[test]
fn a_ring_that_never_empties_gives_back_what_was_read() {
    let mut flood = Flood::new(u64::from(MEBIBYTE), 1, 2);
    let [slow, _] = flood.connections[..] else {
        unreachable!("two")
    };
    for _ in 0..100 {
        flood.send();
        flood.turn_to(slow);
        while flood.unread(slow) > 1 {
            flood.net.read(slow.id, flood.unread(slow) as u32 / 2);
        }
        flood.net.advance(300);
        flood.net.drain();
    }
    let most = u64::from(MEBIBYTE) / 4 * 5;
    assert!(flood.taken() < most, "{}", flood.taken());
}

#[test]
fn data_ahead_of_a_gap_stays() {
    let mut flood = Flood::new(u64::from(MEBIBYTE), 1, 20);
    flood.flood(1);
    assert_eq!(flood.net.count(Counter::TcpMemoryScarce), 1);
    let one = flood.connections[0];
    let (next, _) = flood.turn_to(one);
    let (middle, end) = (next + 10_000, next + 30_000);
    flood
        .net
        .inject(&format!(". {middle}:{end} ack 1 win 60000"));
    // A ring in which nothing has changed isn't looked at again.
    assert_eq!(flood.net.read(one.id, 1_000), 1_000);
    flood.net.drain();
    flood.net.advance(300);
    flood.net.advance(300);
    flood
        .net
        .inject(&format!(". {next}:{middle} ack 1 win 60000"));
    flood.net.drain();
    assert_eq!(flood.read(one), SEGMENT + 29_000);
}

#[test]
fn slots_that_are_free_again_keep_nothing_while_memory_is_scarce() {
    let mut flood = Flood::new(u64::from(MEBIBYTE), 1, 32);
    flood.flood(1);
    for one in flood.connections.split_off(1) {
        flood.read(one);
        flood.net.close(one.id);
        flood.net.inject(&format!("R {}", SEGMENT + 1));
        flood.net.drain();
    }
    let before = flood.taken();
    assert!(before >= u64::from(MEBIBYTE), "{before}");
    flood.flood(10);
    assert!(flood.taken() < before / 2, "{}", flood.taken());
}

#[test]
fn pages_count_and_not_the_bytes_in_them() {
    let budget = u64::from(2 * MEBIBYTE);
    let mut flood = Flood::new(budget, 1, 32);
    for one in flood.connections.clone() {
        let (next, offered) = flood.turn_to(one);
        flood.send_ahead(next + 5_000..next + offered - 10, 4_096, 1);
    }
    assert!(flood.taken() <= budget / 4 * 5, "{}", flood.taken());
    assert_eq!(flood.net.count(Counter::TcpMemoryScarce), 1);
}

#[test]
fn what_the_gap_list_has_no_room_for_takes_no_memory() {
    let mut flood = Flood::new(u64::MAX, 1, 1);
    let (next, offered) = flood.turn_to(flood.connections[0]);
    flood.send_ahead(next + 5_000..next + offered - 10, 4_096, 1);
    assert!(flood.taken() <= 129 * 4096, "{}", flood.taken());
}

#[test]
fn no_window_is_open_in_which_everything_is_dropped() {
    let mut flood = Flood::over(9_000, u64::from(MEBIBYTE), 1, 120);
    flood.flood(40);
    let before = flood.net.count(Counter::TcpDropScarce);
    for one in flood.connections.clone() {
        let (next, offered) = flood.turn_to(one);
        if offered > 0 {
            let end = next + offered.min(1_000);
            flood.net.inject(&format!(". {next}:{end} ack 1 win 60000"));
            assert_eq!(flood.turn_to(one).0, end, "it was offered");
        }
        flood.net.drain();
    }
    assert_eq!(flood.net.count(Counter::TcpDropScarce), before);
}

/// Nobody reads, so that what is missing can't be kept: the peer would try in vain until it gives up.
#[test]
fn no_window_is_open_for_what_is_ahead_of_a_gap_that_can_not_be_filled() {
    let (mut flood, victim) = Flood::with_a_victim();
    let (next, _) = flood.turn_to(victim);
    flood.send_ahead(next + 70_000..next + 400_000, SEGMENT, SEGMENT);
    flood.flood(10);
    let before = flood.taken();
    let (mut next, mut offered) = flood.turn_to(victim);
    while offered > 0 {
        let end = next + 1_000;
        flood.net.inject(&format!(". {next}:{end} ack 1 win 60000"));
        flood.net.drain();
        let came = flood.turn_to(victim);
        assert!(came.0 == end || came.1 == 0, "dropped, and wanted");
        (next, offered) = came;
    }
    // Its memory is there for others,
    flood.net.advance(300);
    flood.net.drain();
    assert!(before - flood.taken() > u64::from(SEGMENT));
    // and what was forgotten comes again.
    let first = flood.read(victim);
    assert!(first > 0);
    flood.net.advance(300);
    let end = next + 1_000;
    flood.turn_to(victim);
    flood.net.inject(&format!(". {next}:{end} ack 1 win 60000"));
    assert_eq!(flood.read(victim), 1_000);
}

#[test]
fn what_was_ahead_of_a_gap_is_given_back_with_its_slot() {
    let mut flood = Flood::new(u64::MAX, 1, 4);
    for one in flood.connections.split_off(0) {
        let (next, _) = flood.turn_to(one);
        flood.send_ahead(next + 1_000..next + 200_000, SEGMENT, SEGMENT);
        flood.net.inject(&format!("R {next}"));
        flood.net.close(one.id);
        flood.net.drain();
    }
    assert!(flood.taken() <= 4 * LITTLE as u64, "{}", flood.taken());
}

/// As BSD's stacks do, which go on from the end of what they have sent.
#[test]
fn acknowledgements_and_resets_beyond_what_was_taken_back_count() {
    let (mut flood, victim) = Flood::with_a_victim();
    flood.flood(10);
    let (next, _) = flood.turn_to(victim);
    let end = next + 1_000;
    flood.net.inject(&format!(". {next}:{end} ack 1 win 60000"));
    flood.net.advance(100);
    flood.net.drain();
    assert!(flood.turn_to(victim).1 <= LITTLE as u32);
    flood.net.write(victim.id, 1_000);
    flood.net.drain();
    let far = next + 500_000;
    flood.net.inject(&format!(". {far} ack 1001 win 60000"));
    assert!(flood.net.tcp.table().send_ring(victim.id.slot).is_empty());
    flood.net.inject(&format!("R {far}"));
    // A peer that lives and has sent it says so once more, where it is asked to.
    flood.net.expect(&format!(". 1001 ack {end}"));
}

#[test]
fn a_crash_loses_no_connection_whose_window_was_taken_back() {
    // Something is ahead of a gap beyond the new edge, and the gap is filled.
    let (mut flood, victim) = Flood::with_a_victim();
    let (next, _) = flood.turn_to(victim);
    flood.send_ahead(next + 1_000..next + 300_000, SEGMENT, SEGMENT);
    flood.flood(10);
    flood.turn_to(victim);
    let (middle, end) = (next + 500, next + 1_000);
    flood
        .net
        .inject(&format!(". {next}:{middle} ack 1 win 60000"));
    flood.net.drain();
    flood
        .net
        .inject_without_run(&format!(". {middle}:{end} ack 1 win 60000"));
    assert_eq!(flood.net.crash_without_run().given_up, 0);

    // What says that there is less can't leave, and the peer goes on.
    let (mut flood, victim) = Flood::with_a_victim();
    flood.flood(10);
    let (mut next, _) = flood.turn_to(victim);
    flood.net.out.shut = true;
    for round in 0..48 {
        let end = next + 4_000;
        flood
            .net
            .inject_without_run(&format!(". {next}:{end} ack 1 win 60000"));
        if round < 8 {
            let now = flood.net.now;
            let _ = flood.net.tcp.poll(now, &mut flood.net.out);
        }
        let ring = flood.net.tcp.table().receive_ring(victim.id.slot);
        next += ring.read(&mut [0; 4_000]) as u32;
    }
    assert_eq!(flood.net.crash_without_run().given_up, 0);
}

#[test]
fn a_program_that_takes_little_keeps_its_memory() {
    let mut flood = Flood::new(u64::from(4 * MEBIBYTE), 2, 32);
    let modest = flood.connections.split_off(32)[0];
    flood.flood(64);
    flood.connections = vec![modest];
    flood.send();
    flood.read(modest);
    let taken = |flood: &Flood| {
        let region = flood.net.tcp.table().region(1);
        region.expect("its region").taken_to_receive()
    };
    let before = taken(&flood);
    flood.net.advance(600);
    assert!(before > 0 && taken(&flood) == before);
}

/// What a successor finds it knows nothing of.
#[test]
fn a_successor_finds_out_that_memory_is_scarce() {
    let budget = u64::from(2 * MEBIBYTE);
    let mut flood = Flood::new(u64::MAX, 1, 8);
    flood.flood(40);
    assert!(flood.taken() > budget);
    flood.net.crash_without_run();
    flood.net.tcp.set_memory(budget);
    flood.net.run();
    flood.net.drain();
    assert_eq!(flood.net.count(Counter::TcpMemoryScarce), 1);
}

/// As between two ends that have both taken back what they had offered.
#[test]
fn a_window_opens_again_though_the_peer_has_gone_back_in_its_numbers() {
    let mut net = Net::new();
    let id = net.accepted("mss 1460", 60_000);
    net.inject(". 400 ack 1 win 0");
    net.inject(". 1 ack 1 win 1000");
    net.write(id, 500);
    assert!(net.connection(id).flight() > 0);
    net.drain();
}
