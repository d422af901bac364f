//! What programs do, and the world in which two machines talk.

use super::{ALL, Filtering, Machine, Random, TABLE, Who};
use skink_memory::{DatagramHeader, DatagramRing, SocketId};
use skink_messages::{BindOptions, Component, TcpInput, TcpRequest, UdpInput, UdpRequest};
use skink_nic::{MemoryConfig, Nic, pair};
use skink_split::{TcpHost, UdpHost};
use skink_time::{Duration, Instant};
use skink_wire::Endpoint;
use std::net::IpAddr;

/// The byte at a position of a stream.
pub fn byte(stream: u8, position: u64) -> u8 {
    let mixed = (position ^ u64::from(stream) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8
}

/// One end of a connection: sends a stream and checks the other's.
pub struct Talker {
    pub socket: SocketId,
    sends: u8,
    receives: u8,
    pub written: u64,
    pub read: u64,
}

impl Talker {
    pub fn new(socket: SocketId, sends: u8, receives: u8) -> Talker {
        Talker {
            socket,
            sends,
            receives,
            written: 0,
            read: 0,
        }
    }

    /// Writes up to `total` bytes in all, and reads what there is.
    pub fn talk(&mut self, host: &mut TcpHost, now: Instant, total: u64) {
        let ring = host.tcp().table().send_ring(self.socket.slot);
        let room = (ring.free() as u64).min(total - self.written).min(16_384);
        let piece: Vec<u8> = (self.written..self.written + room)
            .map(|at| byte(self.sends, at))
            .collect();
        let sent = ring.write(&piece);
        self.written += sent as u64;
        let mut piece = [0; 16_384];
        let ring = host.tcp().table().receive_ring(self.socket.slot);
        let received = ring.read(&mut piece);
        for (index, value) in piece[..received].iter().enumerate() {
            let at = self.read + index as u64;
            assert_eq!(*value, byte(self.receives, at), "byte {at}");
        }
        self.read += received as u64;
        if sent == 0 && received == 0 {
            return;
        }
        let socket = self.socket;
        host.call(|tcp, below| {
            for (count, request) in [
                (sent, TcpRequest::Sent(socket)),
                (received, TcpRequest::Received(socket)),
            ] {
                if count > 0 {
                    let _ = tcp.handle(now, TcpInput::Request(request), below);
                }
            }
        });
    }
}

impl Talker {
    /// Writes, and reads without a look at what it is.
    pub fn talk_blindly(&mut self, host: &mut TcpHost, now: Instant) {
        let socket = self.socket;
        let (sent, received) = {
            let table = host.tcp().table();
            let sent = table.send_ring(socket.slot).write(&[1; 4096]);
            let received = table.receive_ring(socket.slot).read(&mut [0; 16_384]);
            (sent, received)
        };
        host.call(|tcp, below| {
            for (count, request) in [
                (sent, TcpRequest::Sent(socket)),
                (received, TcpRequest::Received(socket)),
            ] {
                if count > 0 {
                    let _ = tcp.handle(now, TcpInput::Request(request), below);
                }
            }
        });
    }
}

pub fn listen(host: &mut TcpHost, local: Endpoint) -> SocketId {
    host.call(|tcp, below| {
        let socket = tcp.open().expect("a socket");
        tcp.bind(socket, local, BindOptions::default(), below)
            .expect("a port");
        tcp.listen(socket, 8, below).expect("listens");
        socket
    })
}

pub fn connect(host: &mut TcpHost, now: Instant, remote: Endpoint) -> SocketId {
    host.call(|tcp, below| {
        let socket = tcp.open().expect("a socket");
        tcp.connect(now, socket, remote, below).expect("a route");
        socket
    })
}

pub fn udp_bind(host: &mut UdpHost, local: Endpoint) -> SocketId {
    host.call(|udp, below| {
        let socket = udp.open().expect("a socket");
        udp.bind(socket, local, BindOptions::default(), below)
            .expect("a port");
        socket
    })
}

pub fn udp_send(host: &mut UdpHost, now: Instant, socket: SocketId, to: Endpoint, data: &[u8]) {
    let header = DatagramHeader {
        remote: to,
        local: match to.addr {
            IpAddr::V4(_) => IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED),
        },
        traffic_class: 0,
        hop_limit: 0,
        segment_bytes: 0,
        dont_fragment: false,
    };
    let ring = DatagramRing::new(host.udp().table().send_ring(socket.slot));
    ring.push_with(&header, &[data]).expect("room");
    host.call(|udp, below| {
        let request = UdpInput::Request(UdpRequest::Sent(socket));
        let _ = udp.handle(now, request, below);
    });
}

pub fn udp_receive(host: &UdpHost, socket: SocketId) -> Option<(Endpoint, Vec<u8>)> {
    let ring = DatagramRing::new(host.udp().table().receive_ring(socket.slot));
    let datagram = ring.peek()?;
    let mut data = vec![0; datagram.len()];
    let (front, back) = data.split_at_mut(datagram.payload[0].len());
    datagram.payload[0].copy_to(front);
    datagram.payload[1].copy_to(back);
    let from = datagram.header.remote;
    ring.pop(&datagram);
    Some((from, data))
}

/// Two machines on a link, in virtual time.
pub struct World {
    pub machines: [Machine; 2],
    pub now: Instant,
    pub random: Random,
}

pub const ADDRESSES: [[&str; 2]; 2] = [
    ["192.0.2.1/24", "2001:db8::1/64"],
    ["192.0.2.2/24", "2001:db8::2/64"],
];

impl World {
    pub fn new(seed: u64, nic: MemoryConfig, filtering: [Filtering; 2]) -> World {
        World::with_nics(seed, nic, filtering, |_, nic| nic)
    }

    /// With something around each NIC.
    pub fn with_nics(
        seed: u64,
        nic: MemoryConfig,
        filtering: [Filtering; 2],
        wrap: impl Fn(usize, Nic) -> Nic,
    ) -> World {
        let (first, second) = pair(nic).expect("a link");
        let (first, second) = (wrap(0, first), wrap(1, second));
        let [one, other] = filtering;
        let mut world = World {
            machines: [
                super::start(first, &ADDRESSES[0], seed, one),
                super::start(second, &ADDRESSES[1], seed + 1000, other),
            ],
            now: Instant::from_millis(1),
            random: Random::new(seed),
        };
        // So that transports know their addresses.
        world.settle();
        world
    }

    pub fn end(&self, machine: usize, family: usize, port: u16) -> Endpoint {
        Endpoint::new(self.machines[machine].address(family), port)
    }

    /// Each component has a turn, in any order; answers whether one has more to do.
    pub fn round(&mut self) -> bool {
        let mut order: Vec<(usize, Who)> = (0..2)
            .flat_map(|machine| ALL.map(|who| (machine, who)))
            .collect();
        for index in (1..order.len()).rev() {
            order.swap(index, self.random.below(index as u64 + 1) as usize);
        }
        self.now += Duration::from_micros(10);
        let mut busy = false;
        for (machine, who) in order {
            busy |= self.machines[machine].poll(who, self.now);
        }
        for machine in &mut self.machines {
            while machine.tcp().take_event().is_some() {}
            while machine.udp().take_event().is_some() {}
        }
        busy
    }

    /// Lets time pass until the next thing is due.
    pub fn skip(&mut self) {
        let deadlines = self.machines.iter_mut().map(Machine::next_deadline);
        let next = deadlines.flatten().min();
        let latest = self.now + Duration::from_millis(50);
        self.now = next.map_or(latest, |next| next.min(latest)).max(self.now);
    }

    /// Until nobody has anything to do at once. (What one sends, another may get a round later.)
    pub fn settle(&mut self) {
        let mut quiet = 0;
        for _ in 0..100_000 {
            quiet = if self.round() { 0 } else { quiet + 1 };
            // A frame on the wire is seen by nobody before its `link` has its turn.
            if quiet > 3 {
                return;
            }
        }
        panic!("the world doesn't come to rest");
    }

    pub fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.settle();
            self.skip();
        }
    }

    /// A connection from the first machine to the second.
    pub fn connect(&mut self, family: usize) -> [Talker; 2] {
        let server = self.end(1, family, 80);
        let listener = listen(self.machines[1].tcp(), server);
        let client = connect(self.machines[0].tcp(), self.now, server);
        for _ in 0..100 {
            self.settle();
            let accepted = self.machines[1].tcp().call(|tcp, _| tcp.accept(listener));
            if let Some(accepted) = accepted {
                return [Talker::new(client, 1, 2), Talker::new(accepted, 2, 1)];
            }
            self.skip();
        }
        panic!("no connection");
    }

    /// Both ends send `total` bytes to each other, while `each` happens before every round.
    pub fn exchange(
        &mut self,
        talkers: &mut [Talker; 2],
        total: u64,
        mut each: impl FnMut(&mut World, u64),
    ) {
        let mut rounds = 0;
        while talkers.iter().any(|talker| talker.read < total) {
            each(self, rounds);
            for (machine, talker) in self.machines.iter_mut().zip(talkers.iter_mut()) {
                talker.talk(machine.tcp(), self.now, total);
            }
            if !self.round() {
                self.skip();
            }
            rounds += 1;
            let read = [talkers[0].read, talkers[1].read];
            assert!(rounds < 400_000, "stuck at {read:?} of {total}");
        }
    }

    pub fn assert_no_leak(&mut self) {
        self.pass(Duration::from_secs(2));
        self.machines.iter_mut().for_each(Machine::assert_no_leak);
    }
}

pub const RING_BYTES: u32 = TABLE.send_bytes;
