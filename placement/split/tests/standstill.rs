//! Nothing that fits into no queue stops `ip`, or waits at the NIC, for good.

mod machine;

use machine::programs::{udp_bind, udp_send};
use machine::{Filtering, Machine, Who};
use skink_filter::RuleSet;
use skink_memory::{Bytes, SocketId};
use skink_messages::{Full, NicOutput, TxPacket};
use skink_nic::{Budget, MemoryConfig, Nic, Room, Sender, pair};
use skink_split::Host;
use skink_time::{Duration, Instant};
use skink_wire::Endpoint;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Our station, one that it knows, and one that it will have to ask for.
const OWN: [u8; 4] = [192, 0, 2, 1];
const KNOWN: [u8; 4] = [192, 0, 2, 2];
const STRANGE: [u8; 4] = [192, 0, 2, 3];
/// Questions that may be under way.
const MOST: u32 = 256;

/// All but the filter.
const UNJUDGED: [Who; 4] = [Who::Link, Who::Ip, Who::Tcp, Who::Udp];

/// One machine, and the other end of its wire.
struct Lab {
    machine: Machine,
    wire: Nic,
    now: Instant,
}

fn mac(address: [u8; 4]) -> [u8; 6] {
    [2, 0, 0, 0, 1, address[3]]
}

fn checksum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes.chunks(2);
    let words =
        words.map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low)));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    (!(sum as u16)).to_be_bytes()
}

/// A NIC that has taken frames and, while it is told so, can't let all of them leave.
struct Stuck(Box<dyn Sender>, Arc<AtomicBool>);

impl NicOutput for Stuck {
    fn room(&mut self) -> usize {
        self.0.room()
    }
    fn send(&mut self, packet: &TxPacket<'_>) -> Result<(), Full> {
        self.0.send(packet)
    }
}

impl Sender for Stuck {
    fn flush(&mut self) {
        self.0.flush();
    }
    fn blocked_on(&self) -> Option<Room<'_>> {
        let stuck = self.1.load(Ordering::Relaxed);
        stuck.then_some(Room::Untold(Room::LATER))
    }
}

impl Lab {
    fn new() -> Lab {
        Lab::with_nic(|nic| nic)
    }

    fn with_nic(make: impl FnOnce(Nic) -> Nic) -> Lab {
        let rules = RuleSet::parse("pass all\n").expect("rules");
        let (own, wire) = pair(MemoryConfig::default()).expect("a link");
        let own = make(own);
        let addresses = ["192.0.2.1/24", "2001:db8::1/64"];
        let mut lab = Lab {
            machine: machine::start(own, &addresses, 1, Filtering::Apart(rules)),
            wire,
            now: Instant::from_millis(1),
        };
        lab.turns(&machine::ALL, 20);
        lab
    }

    fn turns(&mut self, whose: &[Who], rounds: usize) {
        for _ in 0..rounds {
            self.now += Duration::from_micros(10);
            for who in whose {
                self.machine.poll(*who, self.now);
            }
        }
    }

    fn put(&mut self, from: [u8; 4], ethertype: u16, packet: &[u8]) {
        let own = self
            .machine
            .link
            .as_ref()
            .map(|_| MemoryConfig::default().macs[0].0);
        let mut frame = own.expect("a link").to_vec();
        frame.extend(mac(from));
        frame.extend(ethertype.to_be_bytes());
        frame.extend(packet);
        self.wire
            .sender
            .send(&TxPacket::new([Bytes::from(&frame[..]), Bytes::EMPTY]))
            .expect("room");
        self.wire.sender.flush();
    }

    /// A UDP socket on port 1000, and a station that is known.
    fn socket(&mut self) -> SocketId {
        self.arp(KNOWN, 1);
        self.turns(&machine::ALL, 20);
        udp_bind(self.machine.udp(), Endpoint::new(IpAddr::from(OWN), 1000))
    }

    /// Sends a datagram from there to port 2000 of that station.
    fn send(&mut self, socket: SocketId, datagram: &[u8]) {
        let there = Endpoint::new(IpAddr::from(KNOWN), 2000);
        udp_send(self.machine.udp(), self.now, socket, there, datagram);
    }

    /// Chunks of `ip`'s own pool.
    fn chunks(&mut self) -> u32 {
        let ip = self.machine.ip.as_mut().expect("ip");
        ip.pool().geometry().chunks()
    }

    /// ARP: 1 asks who we are, 2 says who `from` is.
    fn arp(&mut self, from: [u8; 4], operation: u8) {
        let mut packet = vec![0, 1, 8, 0, 6, 4, 0, operation];
        packet.extend(mac(from));
        packet.extend(from);
        packet.extend([0; 6]);
        packet.extend(OWN);
        self.put(from, 0x0806, &packet);
    }

    fn ip(&mut self, from: [u8; 4], protocol: u8, payload: &[u8]) {
        self.fragment(from, protocol, payload, [0; 4]);
    }

    /// `place` is its identification, and its flags and offset.
    fn fragment(&mut self, from: [u8; 4], protocol: u8, payload: &[u8], place: [u8; 4]) {
        let length = (20 + payload.len() as u16).to_be_bytes();
        let mut packet = vec![0x45, 0, length[0], length[1]];
        packet.extend(place);
        packet.extend([64, protocol, 0, 0]);
        packet.extend(from);
        packet.extend(OWN);
        let sum = checksum(&packet);
        packet[10..12].copy_from_slice(&sum);
        packet.extend(payload);
        self.put(from, 0x0800, &packet);
    }

    fn echo(&mut self, from: [u8; 4]) {
        let mut message = [8, 0, 0, 0, 0, 7, 0, 1];
        let sum = checksum(&message);
        message[2..4].copy_from_slice(&sum);
        self.ip(from, 1, &message);
    }

    /// What left: how many UDP datagrams to the station that is known, and ICMP messages to the other.
    fn left(&mut self) -> (usize, usize) {
        let (mut datagrams, mut messages) = (0, 0);
        self.wire
            .receiver
            .receive(self.now, &mut Budget::frames(1024), &mut |frame| {
                let bytes = &frame.bytes;
                if bytes[12..14] == [8, 0] {
                    datagrams += usize::from(bytes[23] == 17 && bytes[30..34] == KNOWN);
                    messages += usize::from(bytes[23] == 1 && bytes[30..34] == STRANGE);
                }
            });
        (datagrams, messages)
    }
}

/// Messages that waited for an address leave before a packet that was judged, and are to be judged themselves.
#[test]
fn verdicts_are_taken_though_messages_wait_for_room_at_the_filter() {
    let mut lab = Lab::new();
    let socket = lab.socket();
    for _ in 0..32 {
        lab.echo(STRANGE);
    }
    lab.turns(&machine::ALL, 20);
    assert_eq!(lab.left(), (0, 0), "nobody knows where the answers go");
    // Nobody judges for a while: as many datagrams come in as there is room for, and as many go out.
    for _ in 0..MOST {
        // To a port where nobody is, without a checksum; about most nobody is told.
        lab.ip(KNOWN, 17, &[0x10, 0, 0x20, 0, 0, 8, 0, 0]);
        lab.turns(&UNJUDGED, 2);
    }
    let mut sent = 0;
    while lab.machine.ip.as_ref().expect("ip").outstanding().0 < MOST {
        lab.send(socket, b"one");
        sent += 1;
        lab.turns(&UNJUDGED, 5);
    }
    assert!(sent > 32, "some room is kept for them");
    assert!(lab.machine.ip.as_ref().expect("ip").has_waiting());
    // All is judged at once, and the strange station says where it is.
    lab.turns(&[Who::Filter], 20);
    lab.arp(STRANGE, 2);
    lab.turns(&[Who::Link], 1);
    lab.turns(&machine::ALL, 200);
    assert_eq!(lab.left(), (sent, 32));
    let (waiting, _) = lab.machine.ip.as_ref().expect("ip").outstanding();
    assert_eq!(waiting, 0);
    assert!(!lab.machine.ip.as_ref().expect("ip").has_waiting());
}

/// A datagram that is cut waits for a chunk of `ip`'s own, and here messages that are to be judged have them.
#[test]
fn verdicts_are_taken_though_a_fragment_waits_for_a_chunk() {
    let mut lab = Lab::new();
    let socket = lab.socket();
    // Nobody judges for a while: then all is answered before the datagram may leave.
    for _ in 0..lab.chunks() {
        lab.echo(KNOWN);
    }
    lab.turns(&UNJUDGED, 20);
    lab.send(socket, &[0; 3_000]);
    lab.turns(&UNJUDGED, 20);
    lab.turns(&machine::ALL, 200);
    assert_eq!(lab.left().0, 3, "three fragments");
    assert!(!lab.machine.ip.as_ref().expect("ip").has_waiting());
}

/// Here datagrams that were put together would have them, until `udp` says that it doesn't need them any more; but that
/// is behind packets which wait for a chunk.
#[test]
fn datagrams_that_were_put_together_leave_chunks_for_what_is_cut() {
    let mut lab = Lab::new();
    let socket = lab.socket();
    lab.send(socket, &[0; 3_000]);
    lab.turns(&UNJUDGED, 20);
    for identification in 0..=u8::MAX {
        // A datagram of 8 bytes to that socket, without a checksum.
        let place = |flags, offset| [0, identification, flags, offset];
        lab.fragment(KNOWN, 17, &[7, 208, 3, 232, 0, 16, 0, 0], place(0x20, 0));
        lab.fragment(KNOWN, 17, &[0; 8], place(0, 1));
        lab.turns(&UNJUDGED, 2);
    }
    lab.turns(&machine::ALL, 200);
    assert_eq!(lab.left().0, 3, "three fragments");
    assert!(!lab.machine.ip.as_ref().expect("ip").has_waiting());
}

/// `link` has nothing more to send then, and nobody would wake it.
#[test]
fn frames_that_the_nic_holds_back_are_tried_again_though_none_follow() {
    let stuck = Arc::new(AtomicBool::new(false));
    let mut lab = Lab::with_nic(|nic| Nic {
        sender: Box::new(Stuck(nic.sender, stuck.clone())),
        ..nic
    });
    let deadline = |lab: &Lab| lab.machine.link.as_ref().expect("link").next_deadline();
    // It is left to say that frames have left, which isn't urgent.
    let isnt_urgent = |lab: &Lab| deadline(lab).is_none_or(|due| due > lab.now + Room::LATER);
    assert!(isnt_urgent(&lab));
    stuck.store(true, Ordering::Relaxed);
    lab.arp(KNOWN, 1);
    lab.turns(&machine::ALL, 20);
    assert_eq!(deadline(&lab), Some(lab.now + Room::LATER));
    stuck.store(false, Ordering::Relaxed);
    lab.turns(&[Who::Link], 1);
    assert!(isnt_urgent(&lab));
}
