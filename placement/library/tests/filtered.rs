//! Each place where packets meet the packet filter: two stacks on one link, one of them with rules.

use skink_filter::RuleSet;
use skink_library::{Protocol, Stack, StackConfig, State};
use skink_memory::{DatagramHeader, DatagramRing, SocketId, TableConfig};
use skink_messages::{
    BindOptions, Counter, Counters, SocketError, SoleOwner, TcpRequest, UdpRequest,
};
use skink_nic::{MemoryConfig, Nic};
use skink_time::Instant;
use skink_wire::Endpoint;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const OURS: &str = "192.0.2.1";
const PEERS: &str = "192.0.2.2";

fn end(address: &str, port: u16) -> Endpoint {
    Endpoint::new(address.parse().expect("an address"), port)
}

struct World {
    now: Instant,
    ours: Stack,
    peer: Stack,
    counters: Counters,
}

fn stack(address: &str, seed: u64, nic: Nic, counters: &Counters) -> Stack {
    let table = TableConfig {
        sockets: 16,
        send_bytes: 16 * 1024,
        receive_bytes: 16 * 1024,
    };
    let config = StackConfig {
        addresses: vec![format!("{address}/24").parse().expect("an address")],
        gateways: Vec::new(),
        seed,
        answers: true,
        tcp_table: table,
        udp_table: table,
        socket_memory: u64::MAX,
        counters: counters.clone(),
    };
    Stack::new(config, nic, Box::new(SoleOwner)).expect("memory")
}

impl World {
    fn new(rules: &str) -> World {
        let (near, far) = skink_nic::pair(MemoryConfig::default()).expect("a link");
        let counters = Counters::create().expect("memory");
        let others = Counters::create().expect("memory");
        let mut world = World {
            now: Instant::from_millis(1000),
            ours: stack(OURS, 1, near, &counters),
            peer: stack(PEERS, 2, far, &others),
            counters,
        };
        world.load(rules);
        world
    }

    fn load(&mut self, rules: &str) {
        let rules = RuleSet::parse(rules).expect("good rules");
        self.ours.set_rules(self.now, "eth0", rules);
    }

    /// Lets so many milliseconds pass.
    fn run(&mut self, milliseconds: u32) {
        for _ in 0..milliseconds {
            for stack in [&mut self.ours, &mut self.peer] {
                stack.flush();
                stack.poll(self.now);
            }
            self.now += Duration::from_millis(1);
        }
    }
}

fn listen(stack: &mut Stack, port: u16) -> SocketId {
    let socket = stack.tcp_open().expect("a slot");
    let bound = stack.tcp_bind(socket, end("0.0.0.0", port), BindOptions::default());
    bound.expect("free");
    stack.tcp_listen(Instant::ZERO, socket, 8).expect("listens");
    socket
}

fn connect(stack: &mut Stack, to: Endpoint) -> SocketId {
    let socket = stack.tcp_open().expect("a slot");
    stack
        .tcp_connect(Instant::ZERO, socket, to)
        .expect("a route");
    socket
}

/// State and error of a connection.
fn outcome(stack: &Stack, socket: SocketId) -> (State, Option<SocketError>) {
    let record = stack.tcp_table().find(socket).expect("its record");
    let state = State::from_number(record.state.load(Relaxed)).expect("a state");
    (state, SocketError::from_number(record.error.load(Relaxed)))
}

#[test]
fn connections_as_the_rules_say() {
    use State::{Closed, Established, SynSent};
    let open = (Established, None);
    let refused = (Closed, Some(SocketError::Refused));
    let prohibited = (Closed, Some(SocketError::Prohibited));
    let silent = (SynSent, None);
    // Rules of ours; then what becomes of a connection to our port 80, and of one to the peer's.
    let table = [
        ("", open, open),
        ("pass all", open, open),
        ("block drop all", silent, silent),
        ("block return all", refused, prohibited),
        ("block return in all\npass out all", refused, open),
        // Without a rule that passes it there is no state, and the answer is blocked.
        ("block return in all", refused, silent),
        ("block drop in all\npass out all", silent, open),
        ("block return out all\npass in all", open, prohibited),
        ("block return out all", silent, prohibited),
        ("block drop out all\npass in all", open, silent),
        ("block drop all\npass in proto tcp to port 80", open, silent),
        (
            "block drop all\npass in proto tcp to port 81",
            silent,
            silent,
        ),
        (
            "block drop all\npass out proto tcp to port 80",
            silent,
            open,
        ),
        (
            "block return in proto tcp to port 80\nblock drop out proto { icmp, udp }",
            refused,
            open,
        ),
        ("set skip on eth0\nblock all", open, open),
        ("block drop on eth1 all", open, open),
    ];
    for (rules, inbound, outbound) in table {
        let mut world = World::new(rules);
        listen(&mut world.ours, 80);
        listen(&mut world.peer, 80);
        let theirs = connect(&mut world.peer, end(OURS, 80));
        let ours = connect(&mut world.ours, end(PEERS, 80));
        world.run(50);
        assert_eq!(outcome(&world.peer, theirs), inbound, "in, {rules:?}");
        assert_eq!(outcome(&world.ours, ours), outbound, "out, {rules:?}");
    }
}

#[test]
fn connections_stay_when_rules_come() {
    let mut world = World::new("");
    let listener = listen(&mut world.ours, 80);
    let theirs = connect(&mut world.peer, end(OURS, 80));
    world.run(20);
    let ours = world.ours.tcp_accept(listener).expect("a connection");
    world.load("block drop all");
    let late = connect(&mut world.peer, end(OURS, 80));
    assert_eq!(
        world
            .ours
            .tcp_table()
            .send_ring(ours.slot)
            .write(b"still here"),
        10
    );
    world.ours.tcp_request(world.now, TcpRequest::Sent(ours));
    world.run(20);
    assert_eq!(world.peer.tcp_table().receive_ring(theirs.slot).len(), 10);
    assert_eq!(outcome(&world.peer, late).0, State::SynSent);
    // An idle connection outlives the filter's patience; a new one doesn't come in.
    world.now += Duration::from_secs(3 * 24 * 3600);
    world.run(20);
    assert_eq!(
        world
            .ours
            .tcp_table()
            .send_ring(ours.slot)
            .write(b", and here"),
        10
    );
    world.ours.tcp_request(world.now, TcpRequest::Sent(ours));
    world.run(20);
    assert_eq!(world.peer.tcp_table().receive_ring(theirs.slot).len(), 20);
    world.load("pass all");
    let last = connect(&mut world.peer, end(OURS, 80));
    world.run(20);
    assert_eq!(outcome(&world.peer, last).0, State::Established);
}

/// Sends a datagram of so many bytes from the peer to our `port`; answers whether the peer was told
/// that nobody has it, and how many bytes arrived.
fn datagram(world: &mut World, port: u16, bytes: usize) -> (bool, usize) {
    let here = world.ours.udp_open().expect("a slot");
    let bound = world
        .ours
        .udp_bind(here, end("0.0.0.0", 53), BindOptions::default());
    bound.expect("free");
    let there = world.peer.udp_open().expect("a slot");
    let connected = world.peer.udp_connect(there, Some(end(OURS, port)));
    connected.expect("a route");
    let ring = DatagramRing::new(world.peer.udp_table().send_ring(there.slot));
    let header = DatagramHeader::new(end(OURS, port), PEERS.parse().expect("an address"));
    ring.push_with(&header, &[&vec![7; bytes]]).expect("room");
    world.peer.udp_request(world.now, UdpRequest::Sent(there));
    world.run(20);
    let mut told = false;
    while let Some((protocol, event)) = world.peer.take_event() {
        let error = event.events.contains(skink_messages::Events::ERROR);
        told |= protocol == Protocol::Udp && event.socket == there && error;
    }
    let ring = DatagramRing::new(world.ours.udp_table().receive_ring(here.slot));
    (told, ring.peek().map_or(0, |datagram| datagram.len()))
}

#[test]
fn datagrams_as_the_rules_say() {
    // Rules; port and length; whether the sender is told, and what arrives. The longer ones come in
    // fragments; a port that nobody has is told by an ICMP error.
    let table = [
        ("", 53, 100, (false, 100)),
        ("", 54, 100, (true, 0)),
        ("block drop in all", 53, 100, (false, 0)),
        ("block return in all", 53, 100, (true, 0)),
        ("block return in all", 53, 4000, (true, 0)),
        ("block drop in all", 53, 4000, (false, 0)),
        (
            "block in all\npass in proto udp to port 53",
            53,
            100,
            (false, 100),
        ),
        (
            "block in all\npass in proto udp to port 53",
            53,
            4000,
            (false, 4000),
        ),
        ("block drop out proto icmp", 54, 100, (false, 0)),
        ("pass out proto icmp", 54, 100, (true, 0)),
    ];
    for (rules, port, bytes, expected) in table {
        let mut world = World::new(rules);
        let outcome = datagram(&mut world, port, bytes);
        assert_eq!(outcome, expected, "{rules:?}, {bytes} bytes to {port}");
    }
}

#[test]
fn what_is_blocked_is_counted() {
    let mut world = World::new("block drop in proto tcp\nblock return in proto udp");
    connect(&mut world.peer, end(OURS, 80));
    datagram(&mut world, 53, 10);
    let count = |counter| world.counters.get(counter);
    assert!(count(Counter::FilterDropBlocked) > 0);
    assert_eq!(count(Counter::FilterReturned), 1);
    let filter = world.ours.filter().expect("a filter");
    let packets: Vec<u64> = filter.rules().map(|(_, counted)| counted.packets).collect();
    assert_eq!(packets[1], 1);
    assert!(packets[0] > 0);
}

#[test]
fn a_stack_without_rules_has_no_filter() {
    let mut world = World::new("");
    connect(&mut world.peer, end(OURS, 80));
    world.run(5);
    assert!(world.ours.filter().is_none());
}
