//! Two machines, each of whose components is on its own, on a link in memory.

mod machine;

use machine::programs::{Talker, World, connect, listen, udp_bind, udp_receive, udp_send};
use machine::{Filtering, Machine};
use skink_channel::Pool;
use skink_filter::RuleSet;
use skink_memory::{Bytes, DatagramRing, Mapping, SocketId};
use skink_messages::{Component, Counter, Full, NicOutput, TxPacket, UdpInput, UdpRequest};
use skink_nic::{Budget, MemoryConfig, Nic, Room, Sender};
use skink_split::Host;
use skink_time::{Duration, Instant};
use skink_wire::{MacAddr, arp, ethernet, icmpv4, ipv4, protocol};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const NONE: [Filtering; 2] = [Filtering::None, Filtering::None];

/// A NIC that does everything, and one that does nothing.
fn nics() -> [MemoryConfig; 2] {
    let able = MemoryConfig {
        cut_bytes: 65_535,
        checksum: true,
        ..MemoryConfig::default()
    };
    [able, MemoryConfig::default()]
}

#[test]
fn a_connection_carries_megabytes_both_ways() {
    for (family, nic) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
        let mut world = World::new(family as u64 + 1, nics()[nic], NONE);
        let mut talkers = world.connect(family);
        world.exchange(&mut talkers, 3_000_000, |_, _| {});
        world.assert_no_leak();
    }
}

#[test]
fn datagrams_of_any_size_arrive_whole() {
    for (family, nic) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
        let mut world = World::new(5, nics()[nic], NONE);
        let (from, to) = (world.end(0, family, 1000), world.end(1, family, 2000));
        let sender = udp_bind(world.machines[0].udp(), from);
        let receiver = udp_bind(world.machines[1].udp(), to);
        for bytes in [0, 1, 1400, 1473, 9000, 40_000] {
            let data: Vec<u8> = (0..bytes).map(|at| at as u8).collect();
            let now = world.now;
            udp_send(world.machines[0].udp(), now, sender, to, &data);
            world.settle();
            let received = udp_receive(world.machines[1].udp(), receiver);
            assert_eq!(received, Some((from, data)), "{bytes} bytes");
        }
        let fragments = world.machines[0].counters.get(Counter::IpFragmentsOut);
        assert!(fragments > 20, "{fragments}");
        world.assert_no_leak();
    }
}

#[test]
fn packets_to_ourselves_come_back() {
    let mut world = World::new(6, nics()[0], NONE);
    let (from, to) = (world.end(0, 0, 1000), world.end(0, 0, 2000));
    let sender = udp_bind(world.machines[0].udp(), from);
    let receiver = udp_bind(world.machines[0].udp(), to);
    let now = world.now;
    udp_send(world.machines[0].udp(), now, sender, to, b"to myself");
    world.settle();
    let received = udp_receive(world.machines[0].udp(), receiver);
    assert_eq!(received, Some((from, b"to myself".to_vec())));
    world.assert_no_leak();
}

#[test]
fn who_sends_to_a_closed_port_is_told() {
    // The other machine, and ourselves.
    for machine in [1, 0] {
        let mut world = World::new(7, nics()[1], NONE);
        let (from, to) = (world.end(0, 0, 1000), world.end(machine, 0, 2000));
        let sender = udp_bind(world.machines[0].udp(), from);
        world.machines[0].udp().call(|udp, below| {
            udp.connect(sender, Some(to), below).expect("a route");
        });
        let now = world.now;
        udp_send(world.machines[0].udp(), now, sender, to, b"anybody?");
        world.settle();
        let table = world.machines[0].udp().udp().table();
        let error = &table.record(sender.slot).error;
        let error = error.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(error, skink_messages::SocketError::Refused as u32);
        world.assert_no_leak();
    }
}

fn rules(text: &str) -> RuleSet {
    RuleSet::parse(text).expect("rules")
}

/// The same rules in the process of `ip`, and in one of their own.
fn both(text: &str) -> [Filtering; 2] {
    [
        Filtering::Inline(rules(text)),
        Filtering::Apart(rules(text)),
    ]
}

#[test]
fn a_filter_lets_through_what_its_rules_allow() {
    let text =
        "block return all\npass in proto tcp to any port 80\npass out proto udp to any port 53\n";
    for filtering in both(text) {
        let mut world = World::new(8, nics()[0], [Filtering::None, filtering]);
        let mut talkers = world.connect(0);
        world.exchange(&mut talkers, 1_000_000, |_, _| {});

        // A closed port, refused with a reset: by the filter, since nobody listens on either.
        let closed = world.end(1, 0, 81);
        let now = world.now;
        let refused = machine::programs::connect(world.machines[0].tcp(), now, closed);
        world.settle();
        let table = world.machines[0].tcp().tcp().table();
        let error = &table.record(refused.slot).error;
        let error = error.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(error, skink_messages::SocketError::Refused as u32);
        assert_eq!(
            world.machines[1].counters.get(Counter::FilterReturned),
            1,
            "told by the filter"
        );

        // Datagrams out: one port passes, the other doesn't, in either direction.
        let inside = world.end(1, 0, 3000);
        let sender = udp_bind(world.machines[1].udp(), inside);
        let ports = [53, 54].map(|port| world.end(0, 0, port));
        let receivers = ports.map(|end| udp_bind(world.machines[0].udp(), end));
        for end in ports {
            let now = world.now;
            udp_send(world.machines[1].udp(), now, sender, end, b"question");
        }
        world.settle();
        let received = receivers.map(|socket| udp_receive(world.machines[0].udp(), socket));
        assert_eq!(received, [Some((inside, b"question".to_vec())), None]);
        for (socket, end) in receivers.into_iter().zip(ports) {
            let now = world.now;
            let from_53 = end.port == 53;
            udp_send(world.machines[0].udp(), now, socket, inside, b"answer");
            world.settle();
            let received = udp_receive(world.machines[1].udp(), sender);
            assert_eq!(received.is_some(), from_53);
        }
        world.assert_no_leak();
    }
}

#[test]
fn pieces_are_judged_once_they_are_whole() {
    for filtering in both("block return all\npass in proto udp to any port 2000\n") {
        let mut world = World::new(9, nics()[1], [Filtering::None, filtering]);
        let from = world.end(0, 0, 1000);
        let sender = udp_bind(world.machines[0].udp(), from);
        let ports = [2000, 2001].map(|port| world.end(1, 0, port));
        let receivers = ports.map(|end| udp_bind(world.machines[1].udp(), end));
        let data = vec![7; 5000];
        for end in ports {
            let now = world.now;
            udp_send(world.machines[0].udp(), now, sender, end, &data);
            world.settle();
        }
        let received = receivers.map(|socket| udp_receive(world.machines[1].udp(), socket));
        assert_eq!(received, [Some((from, data)), None]);
        // Who isn't let through is told, though the answer is one that the rules block.
        let told = &world.machines[0].counters;
        assert_eq!(told.get(Counter::IpIcmpIn), 1);
        world.assert_no_leak();
    }
}

#[test]
fn while_the_filter_is_dead_nothing_passes_and_nothing_is_lost() {
    let filtering = Filtering::Apart(rules("pass all\n"));
    let mut world = World::new(10, nics()[0], [Filtering::None, filtering]);
    let to = world.end(1, 0, 2000);
    let from = world.end(0, 0, 1000);
    let sender = udp_bind(world.machines[0].udp(), from);
    let receiver = udp_bind(world.machines[1].udp(), to);
    let now = world.now;
    udp_send(world.machines[0].udp(), now, sender, to, b"first");
    world.settle();
    assert!(udp_receive(world.machines[1].udp(), receiver).is_some());
    world.machines[1].kill(machine::Who::Filter);
    for index in 0..20 {
        let now = world.now;
        udp_send(world.machines[0].udp(), now, sender, to, &[index; 10]);
    }
    world.settle();
    assert_eq!(udp_receive(world.machines[1].udp(), receiver), None);
    let now = world.now;
    world.machines[1].restart(machine::Who::Filter, now);
    world.settle();
    for index in 0..20 {
        let received = udp_receive(world.machines[1].udp(), receiver);
        assert_eq!(received, Some((from, vec![index; 10])));
    }
    assert_eq!(udp_receive(world.machines[1].udp(), receiver), None);
    world.assert_no_leak();
}

/// A filter that was out of its mind said that it had told more than it did, before it died: what its successor
/// tells is heard all the same.
#[test]
fn a_filter_that_made_up_verdicts_doesnt_wedge_ip() {
    for made_up in [1, 100, 512, u64::MAX] {
        let filtering = Filtering::Apart(rules("pass all\n"));
        let mut world = World::new(10, nics()[0], [Filtering::None, filtering]);
        let (from, to) = (world.end(0, 0, 1000), world.end(1, 0, 2000));
        let sender = udp_bind(world.machines[0].udp(), from);
        let receiver = udp_bind(world.machines[1].udp(), to);
        let machine = &mut world.machines[1];
        machine.kill(machine::Who::Filter);
        let (verdicts, _) = machine.queues(machine::Who::Filter)[0];
        let own = verdicts.producer().expect("descriptors").own;
        let half = Mapping::from_fd(own).expect("memory");
        // See `skink_channel::queue`.
        half.words()[16].fetch_add(made_up, Ordering::Relaxed);
        let now = world.now;
        world.machines[1].restart(machine::Who::Filter, now);
        // More than may wait for a verdict.
        for index in 0..300u32 {
            let (now, data) = (world.now, index.to_be_bytes());
            udp_send(world.machines[0].udp(), now, sender, to, &data);
            world.settle();
            let received = udp_receive(world.machines[1].udp(), receiver);
            assert_eq!(received, Some((from, data.into())), "{made_up}");
        }
        world.assert_no_leak();
    }
}

/// Datagrams that are in a socket's send ring.
fn lent(machine: &mut Machine, socket: SocketId) -> usize {
    let ring = machine.udp().udp().table().send_ring(socket.slot);
    DatagramRing::new(ring).filled() / DatagramRing::bytes_for(10)
}

/// Neither end of a frame is told at once that its memory isn't needed any more, but before much of it is away.
#[test]
fn a_few_chunks_come_back_later_than_the_rest() {
    let mut world = World::new(11, nics()[0], NONE);
    let (from, to) = (world.end(0, 0, 1000), world.end(1, 0, 2000));
    let sender = udp_bind(world.machines[0].udp(), from);
    let receiver = udp_bind(world.machines[1].udp(), to);
    let mut away = Vec::new();
    for index in 0..40 {
        let now = world.now;
        udp_send(world.machines[0].udp(), now, sender, to, &[index; 10]);
        world.settle();
        let received = udp_receive(world.machines[1].udp(), receiver);
        assert_eq!(received, Some((from, vec![index; 10])));
        let gone = |pool: &Pool| pool.geometry().chunks() as usize - pool.available();
        let sent = lent(&mut world.machines[0], sender);
        let link = world.machines[1].link.as_ref().expect("a link");
        away.push([sent, gone(link.pool())]);
    }
    for side in [0, 1] {
        let most = away.iter().map(|pools| pools[side]).max();
        assert!(most > Some(4) && most < Some(32), "{away:?}");
    }
    world.assert_no_leak();
}

/// Room in a ring that is full comes back as soon as something has left, though nothing else is to be told.
#[test]
fn who_waits_for_room_gets_it_at_once() {
    let mut world = World::new(12, nics()[0], NONE);
    let (from, to) = (world.end(0, 0, 1000), world.end(1, 0, 2000));
    let sender = udp_bind(world.machines[0].udp(), from);
    for _ in 0..20 {
        let now = world.now;
        let room = |machine: &mut Machine| {
            let ring = machine.udp().udp().table().send_ring(sender.slot);
            DatagramRing::new(ring).room()
        };
        while room(&mut world.machines[0]) > Some(60_000) {
            udp_send(world.machines[0].udp(), now, sender, to, &[1; 60_000]);
        }
        world.settle();
        let had = room(&mut world.machines[0]);
        assert!(had > Some(65_536), "{had:?}");
    }
}

/// The slot of a socket that was closed is free soon, and not before its last datagram has left.
#[test]
fn a_socket_that_is_closed_goes_when_all_has_left() {
    let filtering = Filtering::Apart(rules("pass all\n"));
    let mut world = World::new(13, nics()[0], [filtering, Filtering::None]);
    let (from, to) = (world.end(0, 0, 1000), world.end(1, 0, 2000));
    let receiver = udp_bind(world.machines[1].udp(), to);
    for holds_up in [true, false] {
        let sender = udp_bind(world.machines[0].udp(), from);
        if holds_up {
            world.machines[0].kill(machine::Who::Filter);
        }
        let now = world.now;
        udp_send(world.machines[0].udp(), now, sender, to, &[5; 10]);
        world.machines[0].udp().call(|udp, below| {
            let close = UdpInput::Request(UdpRequest::Close(sender));
            let _ = udp.handle(now, close, below);
        });
        world.settle();
        let is_there = |world: &mut World| {
            let udp = world.machines[0].udp().udp();
            udp.table().find(sender).is_some()
        };
        if holds_up {
            assert_eq!(lent(&mut world.machines[0], sender), 1);
            assert!(is_there(&mut world));
            let now = world.now;
            world.machines[0].restart(machine::Who::Filter, now);
            world.settle();
        }
        let received = udp_receive(world.machines[1].udp(), receiver);
        assert_eq!(received, Some((from, vec![5; 10])));
        world.pass(Duration::from_millis(200));
        assert!(!is_there(&mut world));
    }
    world.assert_no_leak();
}

/// What `ip` had of a socket when it died is sent once more, and nothing else of it is lost.
#[test]
fn what_a_dead_ip_had_is_sent_again() {
    let filtering = Filtering::Apart(rules("pass all\n"));
    let mut world = World::new(14, nics()[0], [filtering, Filtering::None]);
    let (from, to) = (world.end(0, 0, 1000), world.end(1, 0, 2000));
    let sender = udp_bind(world.machines[0].udp(), from);
    let receiver = udp_bind(world.machines[1].udp(), to);
    // They wait for a verdict in `ip`.
    world.machines[0].kill(machine::Who::Filter);
    for index in 0..20 {
        let now = world.now;
        udp_send(world.machines[0].udp(), now, sender, to, &[index; 10]);
    }
    world.settle();
    world.machines[0].kill(machine::Who::Ip);
    let now = world.now;
    world.machines[0].restart(machine::Who::Ip, now);
    world.machines[0].restart(machine::Who::Filter, now);
    world.settle();
    for index in 0..20 {
        let received = udp_receive(world.machines[1].udp(), receiver);
        assert_eq!(received, Some((from, vec![index; 10])));
    }
    world.pass(Duration::from_millis(200));
    assert_eq!(lent(&mut world.machines[0], sender), 0);
    world.assert_no_leak();
}

/// What it has sent waits for the filter to come back, in its ring: `udp` doesn't spin meanwhile.
#[test]
fn udp_sleeps_while_all_that_it_sent_is_on_its_way() {
    let filtering = Filtering::Apart(rules("pass all\n"));
    let mut world = World::new(10, nics()[0], [filtering, Filtering::None]);
    let (from, to) = (world.end(0, 0, 1000), world.end(1, 0, 2000));
    let sender = udp_bind(world.machines[0].udp(), from);
    let receiver = udp_bind(world.machines[1].udp(), to);
    world.machines[0].kill(machine::Who::Filter);
    for index in 0..60 {
        let now = world.now;
        udp_send(world.machines[0].udp(), now, sender, to, &[index; 10]);
    }
    world.settle();
    assert_eq!(lent(&mut world.machines[0], sender), 60);
    let udp = world.machines[0].udp();
    assert!(!udp.is_ready());
    assert!(udp.next_deadline().is_none_or(|due| due > world.now));
    let now = world.now;
    world.machines[0].restart(machine::Who::Filter, now);
    world.settle();
    for index in 0..60 {
        let received = udp_receive(world.machines[1].udp(), receiver);
        assert_eq!(received, Some((from, vec![index; 10])));
    }
    world.assert_no_leak();
}

/// An echo request to the machine, and a frame that answers where it comes from.
fn echo_frames(to: MacAddr) -> [Vec<u8>; 2] {
    let (ours, theirs) = (Ipv4Addr::new(192, 0, 2, 9), Ipv4Addr::new(192, 0, 2, 1));
    let header = |ethertype| ethernet::Header {
        destination: to,
        source: PEER,
        ethertype,
    };
    let request = arp::Packet {
        operation: arp::Operation::Request,
        sender_mac: PEER,
        sender_ip: ours,
        target_mac: MacAddr::UNSPECIFIED,
        target_ip: theirs,
    };
    let mut first = vec![0; ethernet::LEN + arp::LEN];
    let (link, rest) = first.split_at_mut(ethernet::LEN);
    let _ = header(ethernet::ARP).emit(link);
    let _ = request.emit(rest);

    let message = icmpv4::Message::EchoRequest {
        ident: 7,
        seq: 1,
        data: b"are you there?",
    };
    let mut second = vec![0; ethernet::LEN + ipv4::LEN + message.emitted_len()];
    let ip = ipv4::Header {
        dscp_ecn: 0,
        total_len: (second.len() - ethernet::LEN) as u16,
        identification: 1,
        dont_fragment: false,
        more_fragments: false,
        fragment_offset: 0,
        ttl: 64,
        protocol: protocol::ICMP,
        source: ours,
        destination: theirs,
        header_len: ipv4::LEN as u8,
    };
    let (link, rest) = second.split_at_mut(ethernet::LEN);
    let _ = header(ethernet::IPV4).emit(link);
    let (network, rest) = rest.split_at_mut(ipv4::LEN);
    let _ = ip.emit(network);
    let _ = message.emit(rest);
    [first, second]
}

const PEER: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

#[test]
fn echo_requests_are_answered_if_the_filter_agrees() {
    let cases = [
        (Filtering::None, true),
        (Filtering::Inline(rules("pass all\n")), true),
        (Filtering::Apart(rules("pass all\n")), true),
        (
            Filtering::Inline(rules("pass in all\nblock out all\n")),
            true,
        ),
        (
            Filtering::Apart(rules("pass in no state\nblock out all\n")),
            false,
        ),
        (
            Filtering::Inline(rules("pass in no state\nblock out all\n")),
            false,
        ),
        (Filtering::Apart(rules("block in all\n")), false),
    ];
    for (index, (filtering, answers)) in cases.into_iter().enumerate() {
        let (nic, mut peer) = skink_nic::pair(MemoryConfig::default()).expect("a link");
        let to = nic.capabilities.mac;
        let mut machine = machine::start(nic, &["192.0.2.1/24"], 1, filtering);
        for frame in echo_frames(to) {
            let packet = TxPacket::new([Bytes::from(frame.as_slice()), Bytes::EMPTY]);
            peer.sender.send(&packet).expect("room");
        }
        for round in 0..50 {
            for who in machine::ALL {
                machine.poll(who, Instant::from_millis(round));
            }
        }
        let mut received = Vec::new();
        peer.receiver
            .receive(Instant::ZERO, &mut Budget::frames(10), &mut |frame| {
                received.push(frame.bytes.to_vec())
            });
        let data = b"are you there?";
        let answered = received.iter().any(|frame| frame.ends_with(data));
        assert_eq!(answered, answers, "case {index}");
        machine.assert_no_leak();
    }
}

/// A NIC that has room for so many frames more, and counts what left: TCP's, and UDP's.
struct Narrow {
    nic: Box<dyn Sender>,
    room: Arc<AtomicUsize>,
    left: Arc<[AtomicUsize; 2]>,
}

impl NicOutput for Narrow {
    fn room(&mut self) -> usize {
        self.room.load(Ordering::Relaxed)
    }

    fn send(&mut self, packet: &TxPacket<'_>) -> Result<(), Full> {
        let room = self.room.load(Ordering::Relaxed);
        let less = room.checked_sub(1).ok_or(Full)?;
        self.room.store(less, Ordering::Relaxed);
        let is_udp = packet.headers().get(23) == Some(&protocol::UDP);
        self.left[usize::from(is_udp)].fetch_add(1, Ordering::Relaxed);
        self.nic.send(packet)
    }
}

impl Sender for Narrow {
    fn flush(&mut self) {
        self.nic.flush();
    }

    fn blocked_on(&self) -> Option<Room<'_>> {
        let is_full = self.room.load(Ordering::Relaxed) == 0;
        is_full.then_some(Room::Untold(Duration::ZERO))
    }
}

/// Fourteen connections and a socket for datagrams, all with more to send than leaves, which is a frame for each turn.
#[test]
fn tcp_and_udp_share_a_link_that_has_room_for_one_of_them() {
    const CONNECTIONS: usize = 14;
    let room = Arc::new(AtomicUsize::new(usize::MAX));
    let left = Arc::<[AtomicUsize; 2]>::default();
    let mut world = World::with_nics(15, nics()[0], NONE, |machine, nic| {
        if machine == 1 {
            return nic;
        }
        let sender = Narrow {
            nic: nic.sender,
            room: room.clone(),
            left: left.clone(),
        };
        Nic {
            sender: Box::new(sender),
            ..nic
        }
    });
    let (from, to, server) = (
        world.end(0, 0, 1000),
        world.end(1, 0, 2000),
        world.end(1, 0, 80),
    );
    let listener = listen(world.machines[1].tcp(), server);
    let mut talkers = [0; CONNECTIONS].map(|_| {
        let client = connect(world.machines[0].tcp(), world.now, server);
        world.pass(Duration::from_millis(20));
        let accepted = world.machines[1].tcp().call(|tcp, _| tcp.accept(listener));
        let accepted = accepted.expect("a connection");
        [Talker::new(client, 1, 2), Talker::new(accepted, 2, 1)]
    });
    let sender = udp_bind(world.machines[0].udp(), from);
    // So that congestion windows are large.
    for talkers in &mut talkers {
        world.exchange(talkers, 300_000, |_, _| {});
    }
    let mut counted = [0; 2];
    for round in 0..3_000 {
        room.store(1, Ordering::Relaxed);
        for [client, server] in &mut talkers {
            client.talk_blindly(world.machines[0].tcp(), world.now);
            server.talk_blindly(world.machines[1].tcp(), world.now);
        }
        let now = world.now;
        while has_room(&mut world.machines[0], sender) {
            udp_send(world.machines[0].udp(), now, sender, to, &[1; 1000]);
        }
        world.round();
        if round == 2_000 {
            counted = left.each_ref().map(|left| left.load(Ordering::Relaxed));
        }
    }
    let all = left.each_ref().map(|left| left.load(Ordering::Relaxed));
    let lately = [all[0] - counted[0], all[1] - counted[1]];
    assert!(lately.iter().all(|frames| *frames > 300), "{lately:?}");
}

fn has_room(machine: &mut Machine, socket: SocketId) -> bool {
    let ring = DatagramRing::new(machine.udp().udp().table().send_ring(socket.slot));
    ring.room() > Some(2_000)
}
