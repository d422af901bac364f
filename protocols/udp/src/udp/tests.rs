use super::*;
use core::cell::Cell;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::sync::atomic::Ordering::Relaxed;
use skink_memory::{Adopted, DatagramHeader, DatagramRing, TableConfig};
use skink_messages::{
    BindOptions, Counter, ErrorKind, Lent, NetworkError, Outbound, Path, RxChecksum, RxPacket,
    Sent, TxPacket,
};
use skink_wire::{Endpoint, udp};
use std::collections::BTreeMap;

const A: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const B: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const A6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1));
const B6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2));
/// To all on our network.
const ALL: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 255));
const ANY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
const ANY6: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
const NOW: Instant = Instant::from_millis(1000);

/// A datagram on its way between two stacks, its checksum completed as `link` would.
#[derive(Clone, Debug)]
struct Wire {
    to: Outbound,
    segment_bytes: u16,
    bytes: Vec<u8>,
}

/// What a UDP component has around it.
struct World {
    ours: Vec<IpAddr>,
    room: usize,
    event_room: usize,
    sent: Vec<Wire>,
    /// Whether payload stays where it is, and what does.
    lends: bool,
    lent: Vec<Lent>,
    events: Vec<SocketEvent>,
    /// Uses and listeners of each port.
    ports: BTreeMap<u16, (i32, i32)>,
    /// Ports that another owner has.
    foreign: Vec<u16>,
    /// How often it was asked for a way.
    asked: Cell<u32>,
}

fn world(ours: &[IpAddr]) -> World {
    World {
        ours: ours.to_vec(),
        room: usize::MAX,
        event_room: usize::MAX,
        sent: Vec::new(),
        lends: false,
        lent: Vec::new(),
        events: Vec::new(),
        ports: BTreeMap::new(),
        foreign: Vec::new(),
        asked: Cell::new(0),
    }
}

impl Network for World {
    fn send(&mut self, _: Instant, to: &Outbound, packet: &mut TxPacket<'_>) -> Result<(), Full> {
        self.room = self.room.checked_sub(1).ok_or(Full)?;
        assert!(self.ours.contains(&to.source));
        assert_eq!(
            (packet.transport_bytes, packet.checksum_offset),
            (8, Some(6))
        );
        let mut bytes = vec![0; packet.len()];
        packet.copy_to(&mut bytes).expect("as long as the packet");
        let mut sum = skink_wire::Sum::new();
        sum.add_bytes(&bytes);
        let checksum = sum.finish();
        let checksum = if checksum == 0 { 0xffff } else { checksum };
        bytes[6..8].copy_from_slice(&checksum.to_be_bytes());
        assert!(udp::checksum_is_valid(to.source, to.destination, &bytes));
        let segment_bytes = packet.segment_bytes;
        self.sent.push(Wire {
            to: *to,
            segment_bytes,
            bytes,
        });
        Ok(())
    }

    fn lend(
        &mut self,
        now: Instant,
        to: &Outbound,
        packet: &mut TxPacket<'_>,
        lent: Lent,
    ) -> Result<Sent, Full> {
        self.send(now, to, packet)?;
        if !self.lends {
            return Ok(Sent::Done);
        }
        self.lent.push(lent);
        Ok(Sent::Lent)
    }

    fn path(&self, source: Option<IpAddr>, destination: IpAddr) -> Option<Path> {
        self.asked.update(|asked| asked + 1);
        let unreachable: IpAddr = [203, 0, 113, 1].into();
        let ours = |address: &&IpAddr| address.is_ipv4() == destination.is_ipv4();
        let source = match source {
            Some(source) => source,
            None => *self.ours.iter().find(ours)?,
        };
        let good = self.ours.contains(&source)
            && destination != unreachable
            && source.is_ipv4() == destination.is_ipv4();
        good.then_some(Path {
            source,
            mtu: 1500,
            cut_bytes: 65_535,
        })
    }

    fn raises(&self) -> u32 {
        0
    }

    fn is_local(&self, address: IpAddr) -> bool {
        self.ours.contains(&address) || address == ALL
    }

    fn is_broadcast(&self, address: Ipv4Addr) -> bool {
        address.is_broadcast() || address == ALL
    }
}

impl SocketEvents for World {
    fn tcp_event(&mut self, _: SocketEvent) -> Result<(), Full> {
        unreachable!("no TCP here")
    }
    fn udp_event(&mut self, event: SocketEvent) -> Result<(), Full> {
        self.event_room = self.event_room.checked_sub(1).ok_or(Full)?;
        self.events.push(event);
        Ok(())
    }
}

impl Ports for World {
    fn use_port(&mut self, protocol: u8, port: u16, exclusive: bool) -> bool {
        assert_eq!(protocol, skink_wire::protocol::UDP);
        if exclusive && self.foreign.contains(&port) {
            return false;
        }
        self.ports.entry(port).or_default().0 += 1;
        true
    }
    fn release_port(&mut self, _: u8, port: u16) {
        self.ports.entry(port).or_default().0 -= 1;
    }
    fn listen(&mut self, _: u8, port: u16) {
        self.ports.entry(port).or_default().1 += 1;
    }
    fn unlisten(&mut self, _: u8, port: u16) {
        self.ports.entry(port).or_default().1 -= 1;
    }
}

impl World {
    /// Uses and listeners of `port`.
    fn port(&self, port: u16) -> (i32, i32) {
        self.ports.get(&port).copied().unwrap_or_default()
    }

    fn take_events(&mut self) -> Vec<(u32, Events)> {
        let events = std::mem::take(&mut self.events);
        events.iter().map(|e| (e.socket.slot, e.events)).collect()
    }
}

fn new_udp(seed: u64, ring_bytes: u32) -> Udp {
    let config = TableConfig {
        sockets: 8,
        send_bytes: ring_bytes,
        receive_bytes: ring_bytes,
    };
    let table = SocketTable::create("test", config).expect("a small table");
    let counters = Counters::create().expect("a small mapping");
    Udp::new(seed, table, counters)
}

/// A successor, which adopts all regions.
fn adopt(table: &SocketTable, counters: Counters, world: &mut World) -> (Udp, Adopted) {
    let mut next = Udp::new(2, SocketTable::new(table.stride()), counters);
    let mut all = Adopted::default();
    for (index, region) in table.regions() {
        let adopted = next.adopt_region(NOW, index, region.clone(), world);
        all = all + adopted.expect("a free index");
    }
    (next, all)
}

fn at(addr: IpAddr, port: u16) -> Endpoint {
    Endpoint::new(addr, port)
}

/// A datagram as it arrives, its checksum right.
fn datagram(from: Endpoint, to: Endpoint, payload: &[u8]) -> Vec<u8> {
    let header = udp::Header::new(from.port, to.port, payload.len()).expect("fits");
    let mut bytes = vec![0; 8];
    assert_eq!(header.emit(&mut bytes), 8);
    bytes.extend_from_slice(payload);
    udp::set_checksum(from.addr, to.addr, &mut bytes);
    bytes
}

fn packet<'a>(from: IpAddr, to: IpAddr, payload: &'a [u8]) -> RxPacket<'a> {
    RxPacket {
        arrived: NOW,
        source: from,
        destination: to,
        traffic_class: 3,
        hop_limit: 61,
        checksum: RxChecksum::Unverified,
        segment_bytes: 0,
        payload,
    }
}

fn handle(udp: &mut Udp, world: &mut World, input: UdpInput<'_>) {
    assert_eq!(udp.handle(NOW, input, world), Ok(()));
}

fn arrive(udp: &mut Udp, world: &mut World, from: Endpoint, to: Endpoint, payload: &[u8]) {
    let bytes = datagram(from, to, payload);
    handle(
        udp,
        world,
        UdpInput::Packet(packet(from.addr, to.addr, &bytes)),
    );
}

fn request(udp: &mut Udp, world: &mut World, request: UdpRequest) {
    handle(udp, world, UdpInput::Request(request));
}

fn send(udp: &Udp, id: SocketId, to: Endpoint, payload: &[u8]) {
    let ring = DatagramRing::new(udp.table().send_ring(id.slot));
    let header = DatagramHeader::new(to, if to.addr.is_ipv4() { ANY } else { ANY6 });
    ring.push_with(&header, &[payload]).expect("room");
}

/// What the socket received, oldest first.
fn received(udp: &Udp, id: SocketId) -> Vec<(DatagramHeader, Vec<u8>)> {
    let ring = DatagramRing::new(udp.table().receive_ring(id.slot));
    let mut all = Vec::new();
    while let Some(datagram) = ring.peek() {
        let mut bytes = vec![0; datagram.len()];
        datagram.copy_to(&mut bytes);
        all.push((datagram.header, bytes));
        ring.pop(&datagram);
    }
    all
}

/// How many datagrams each socket received.
fn counts(udp: &Udp, ids: &[SocketId]) -> Vec<usize> {
    ids.iter().map(|id| received(udp, *id).len()).collect()
}

/// What sockets may share their addresses with: nothing, others that say so too, and others that may.
const ALONE: BindOptions = BindOptions {
    reuse_address: false,
    shared: false,
};
const REUSE: BindOptions = BindOptions {
    reuse_address: true,
    ..ALONE
};
const SHARED: BindOptions = BindOptions {
    shared: true,
    ..ALONE
};

fn bound(udp: &mut Udp, world: &mut World, local: Endpoint, sharing: BindOptions) -> SocketId {
    let id = udp.open().expect("a slot");
    udp.bind(id, local, sharing, world).expect("free");
    id
}

mod addresses;
mod ends;
mod lent;
mod programs;
mod receiving;
mod sending;
mod together;
