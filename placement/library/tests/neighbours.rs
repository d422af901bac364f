//! Two stacks on one wire, on which a router may speak too.

use skink_library::{Stack, StackConfig};
use skink_memory::{Bytes, DatagramHeader, DatagramRing, SocketId, TableConfig};
use skink_messages::{
    BindOptions, Counters, Full, NicOutput, SoleOwner, TcpRequest, TxPacket, UdpRequest,
};
use skink_nic::{Budget, MemoryConfig, Nic, Sender};
use skink_time::Instant;
use skink_wire::icmpv6::{self, RouterAdvertisement};
use skink_wire::{Endpoint, MacAddr, ethernet, ipv6, protocol};
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn end(address: &str, port: u16) -> Endpoint {
    Endpoint::new(address.parse().expect("an address"), port)
}

fn stack(addresses: [&str; 2], seed: u64, nic: Nic) -> Stack {
    let table = TableConfig {
        sockets: 16,
        send_bytes: 128 * 1024,
        receive_bytes: 128 * 1024,
    };
    let config = StackConfig {
        addresses: addresses
            .map(|text| text.parse().expect("an address"))
            .into(),
        gateways: Vec::new(),
        seed,
        answers: true,
        tcp_table: table,
        udp_table: table,
        socket_memory: u64::MAX,
        counters: Counters::create().expect("memory"),
    };
    Stack::new(config, nic, Box::new(SoleOwner)).expect("memory")
}

/// The wire is in the middle: what leaves at one end is looked at, and handed on to the other.
struct World {
    now: Instant,
    ours: Stack,
    peer: Stack,
    wire: [Nic; 2],
    /// The longest IP packet of late.
    longest: usize,
}

impl World {
    fn new() -> World {
        World::with_nic(|nic| nic)
    }

    /// With something around our NIC.
    fn with_nic(around: impl FnOnce(Nic) -> Nic) -> World {
        let (near, here) = skink_nic::pair(MemoryConfig::default()).expect("a link");
        let (there, far) = skink_nic::pair(MemoryConfig::default()).expect("a link");
        World {
            now: Instant::from_millis(1000),
            ours: stack(["192.0.2.1/24", "2001:db8::1/64"], 1, around(near)),
            peer: stack(["192.0.2.2/24", "2001:db8::2/64"], 2, far),
            wire: [here, there],
            longest: 0,
        }
    }

    fn carry(&mut self, from: usize) {
        let [here, there] = &mut self.wire;
        let (from, to) = match from {
            0 => (here, there),
            _ => (there, here),
        };
        let longest = &mut self.longest;
        from.receiver
            .receive(self.now, &mut Budget::frames(1000), &mut |frame| {
                *longest = (*longest).max(frame.bytes.len() - ethernet::LEN);
                give(to, frame.bytes);
            });
    }

    /// Lets so many milliseconds pass.
    fn run(&mut self, milliseconds: u32) {
        for _ in 0..milliseconds {
            for stack in [&mut self.ours, &mut self.peer] {
                stack.flush();
                stack.poll(self.now);
            }
            self.carry(0);
            self.carry(1);
            self.now += Duration::from_millis(1);
        }
    }

    /// A router tells us what the link takes.
    fn advertise(&mut self, mtu: u32) {
        let (router, all): (Ipv6Addr, Ipv6Addr) = (
            "fe80::99".parse().expect("an address"),
            "ff02::1".parse().expect("an address"),
        );
        let message = icmpv6::Message::RouterAdvertisement(RouterAdvertisement {
            hop_limit: 0,
            managed: false,
            other: false,
            lifetime_secs: 0,
            reachable_ms: 0,
            retransmit_ms: 0,
            source_link_layer: None,
            mtu: Some(mtu),
            prefixes: icmpv6::Prefixes::default(),
        });
        let mut bytes = [0; 128];
        let length = message.emit(router, all, &mut bytes);
        let header = ipv6::Header {
            traffic_class: 0,
            flow_label: 0,
            payload_len: length as u16,
            next_header: protocol::ICMPV6,
            hop_limit: 255,
            source: router,
            destination: all,
        };
        let link = ethernet::Header {
            destination: MacAddr::multicast_for_ipv6(all),
            source: MacAddr([2, 0, 0, 0, 0, 9]),
            ethertype: ethernet::IPV6,
        };
        let frame = [&link.to_bytes()[..], &header.to_bytes(), &bytes[..length]].concat();
        give(&mut self.wire[0], &frame);
    }
}

fn give(nic: &mut Nic, bytes: &[u8]) {
    let packet = TxPacket::new([Bytes::from(bytes), Bytes::EMPTY]);
    nic.sender.send(&packet).expect("room");
}

/// RFC 4861 section 6.3.4: a VLAN or a tunnel may take less from now on, also of connections that stand, or more again.
#[test]
fn a_connection_sends_segments_of_the_size_that_a_router_says_the_link_takes() {
    let mut world = World::new();
    let listener = world.peer.tcp_open().expect("a slot");
    let any = end("::", 80);
    let bound = world.peer.tcp_bind(listener, any, BindOptions::default());
    bound.expect("free");
    let now = world.now;
    world.peer.tcp_listen(now, listener, 8).expect("listens");
    let ours = world.ours.tcp_open().expect("a slot");
    let to = end("2001:db8::2", 80);
    world.ours.tcp_connect(now, ours, to).expect("a route");
    world.run(20);
    let theirs = world.peer.tcp_accept(listener).expect("a connection");
    // What the router says, and how long packets are then: never longer than the interface takes.
    let cases = [
        (None, 1500),
        (Some(1400), 1400),
        (Some(1280), 1280),
        (Some(1400), 1400),
        (Some(9000), 1400),
        (Some(1500), 1500),
    ];
    for (told, expected) in cases {
        if let Some(mtu) = told {
            world.advertise(mtu);
            world.run(2);
        }
        world.longest = 0;
        let data = vec![7; 50_000];
        let ring = world.ours.tcp_table().send_ring(ours.slot);
        assert_eq!(ring.write(&data), data.len());
        world.ours.tcp_request(world.now, TcpRequest::Sent(ours));
        // Long before a timer would have sent again what was too large.
        world.run(100);
        let ring = world.peer.tcp_table().receive_ring(theirs.slot);
        assert_eq!((ring.len(), world.longest), (data.len(), expected));
        assert_eq!(ring.read(&mut vec![0; 50_000]), data.len());
        world
            .peer
            .tcp_request(world.now, TcpRequest::Received(theirs));
    }
}

/// A NIC that has room for so many frames more.
struct Narrow(Box<dyn Sender>, Arc<AtomicUsize>);

impl NicOutput for Narrow {
    fn room(&mut self) -> usize {
        self.1.load(Ordering::Relaxed)
    }
    fn send(&mut self, packet: &TxPacket<'_>) -> Result<(), Full> {
        let less = |room: usize| room.checked_sub(1);
        let took = self
            .1
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        took.map_err(|_| Full)?;
        self.0.send(packet)
    }
}

impl Sender for Narrow {
    fn flush(&mut self) {
        self.0.flush();
    }
}

/// However room and turns fall together.
#[test]
fn tcp_and_udp_share_a_nic_that_seldom_has_room() {
    for every in 1..5 {
        let room = Arc::new(AtomicUsize::new(usize::MAX));
        let mut world = World::with_nic(|nic| Nic {
            sender: Box::new(Narrow(nic.sender, room.clone())),
            ..nic
        });
        let now = world.now;
        let listener = world.peer.tcp_open().expect("a slot");
        let bound = world
            .peer
            .tcp_bind(listener, end("0.0.0.0", 80), BindOptions::default());
        bound.expect("free");
        world.peer.tcp_listen(now, listener, 8).expect("listens");
        let connection = world.ours.tcp_open().expect("a slot");
        let to = end("192.0.2.2", 80);
        world
            .ours
            .tcp_connect(now, connection, to)
            .expect("a route");
        world.run(20);
        let ring = world.ours.tcp_table().send_ring(connection.slot);
        ring.write(&[7; 128 * 1024]);
        let now = world.now;
        world.ours.tcp_request(now, TcpRequest::Sent(connection));
        let socket = world.ours.udp_open().expect("a slot");
        let header = DatagramHeader::new(end("192.0.2.2", 53), end("0.0.0.0", 0).addr);
        let ring = DatagramRing::new(world.ours.udp_table().send_ring(socket.slot));
        room.store(0, Ordering::Relaxed);
        while ring.push_with(&header, &[&[7; 1000]]).is_ok() {}
        world.ours.udp_request(now, UdpRequest::Sent(socket));
        let mut left = [0; 2];
        for turn in 0..every * 40 {
            room.store(usize::from(turn % every == 0), Ordering::Relaxed);
            world.ours.poll(world.now);
            world.now += Duration::from_millis(1);
            world.peer.poll(world.now);
            let [here, there] = &mut world.wire;
            let mut budget = Budget::frames(1000);
            here.receiver.receive(world.now, &mut budget, &mut |frame| {
                left[usize::from(frame.bytes[23] == protocol::UDP)] += 1;
                give(there, frame.bytes);
            });
            world.peer.poll(world.now);
            world.carry(1);
        }
        assert!(left[0] >= 15 && left[1] >= 15, "every {every}: {left:?}");
    }
}

/// How many datagrams a socket has received.
fn datagrams(stack: &Stack, socket: SocketId) -> usize {
    let ring = DatagramRing::new(stack.udp_table().receive_ring(socket.slot));
    let mut count = 0;
    while let Some(datagram) = ring.peek() {
        count += 1;
        ring.pop(&datagram);
    }
    count
}

#[test]
fn a_broadcast_reaches_all_sockets_on_its_port() {
    let mut world = World::new();
    let sharing = BindOptions {
        reuse_address: true,
        ..BindOptions::default()
    };
    let mut bound = |address| {
        let socket = world.ours.udp_open().expect("a slot");
        let bound = world.ours.udp_bind(socket, end(address, 67), sharing);
        bound.expect("free");
        socket
    };
    let ids = ["0.0.0.0", "0.0.0.0", "192.0.2.255", "192.0.2.1"].map(&mut bound);
    let theirs = world.peer.udp_open().expect("a slot");
    for (to, expected) in [
        ("192.0.2.255", [1, 1, 1, 0]),
        ("255.255.255.255", [1, 1, 0, 0]),
        ("192.0.2.1", [0, 0, 0, 1]),
    ] {
        let header = DatagramHeader::new(end(to, 67), end("0.0.0.0", 0).addr);
        let ring = DatagramRing::new(world.peer.udp_table().send_ring(theirs.slot));
        ring.push_with(&header, &[b"x"]).expect("room");
        world.peer.udp_request(world.now, UdpRequest::Sent(theirs));
        world.run(20);
        let received = ids.map(|id| datagrams(&world.ours, id));
        assert_eq!(received, expected, "to {to}");
    }
    // Who is bound to it sends from an address of ours.
    let header = DatagramHeader::new(end("192.0.2.2", 68), end("0.0.0.0", 0).addr);
    let peers = world.peer.udp_open().expect("a slot");
    let at = world.peer.udp_bind(peers, end("0.0.0.0", 68), sharing);
    at.expect("free");
    let ring = DatagramRing::new(world.ours.udp_table().send_ring(ids[2].slot));
    ring.push_with(&header, &[b"x"]).expect("room");
    world.ours.udp_request(world.now, UdpRequest::Sent(ids[2]));
    world.run(20);
    let ring = DatagramRing::new(world.peer.udp_table().receive_ring(peers.slot));
    let from = ring.peek().expect("a datagram").header.remote;
    assert_eq!(from, end("192.0.2.1", 67));
}
