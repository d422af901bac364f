//! A scripted peer for tests: one instance of TCP on a network that records what is sent, with a
//! clock that tests turn by hand.
//!
//! Segments are written as text (see [`script`]), with numbers relative to both initial ones. All
//! payload follows one pattern by its place in the stream, and is compared wherever it turns up. After
//! each step the instance is held to its invariants (see [`invariants`]).

mod clock;
mod crash;
mod invariants;
mod network;
mod script;

use crate::instance::{Tcp, TcpConfig};
use crate::state::State;
use core::net::{IpAddr, Ipv4Addr};
pub(crate) use crash::Freezer;
pub(crate) use network::{Out, Sent};
use script::Pattern;
use skink_memory::{Mapping, Region, SocketId, SocketTable, TableConfig};
use skink_messages::{
    BindOptions, Component, ConnectionOption, Counters, ErrorKind, NetworkError, RxChecksum,
    RxPacket, Shutdown, TcpInput, TcpRequest,
};
use skink_time::{Duration, Instant};
use skink_wire::tcp::{self, Flags, Header};
use skink_wire::{Endpoint, FourTuple, SeqNum, protocol};
use std::collections::HashMap;

pub(crate) const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
pub(crate) const REMOTE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
/// The peer's initial number: its stream soon wraps around the circle.
pub(crate) const PEER_ISN: SeqNum = SeqNum(0xffff_ff00);
/// What a Linux peer offers.
pub(crate) const OFFER: &str = "mss 1460 sackok ts 1000 0 ws 7";

/// What sockets may share their ends with: nothing, others that say so too while none listens, and
/// listeners.
pub(crate) const ALONE: BindOptions = sharing(false, false);
pub(crate) const REUSE: BindOptions = sharing(true, false);
pub(crate) const SHARED: BindOptions = sharing(false, true);

const fn sharing(reuse_address: bool, shared: bool) -> BindOptions {
    BindOptions {
        reuse_address,
        shared,
    }
}

/// The byte at `position` of either stream.
pub(crate) fn pattern(position: u32) -> u8 {
    (position ^ (position >> 8).wrapping_mul(31)) as u8
}

/// What the script must remember of one flow.
#[derive(Clone, Copy, Default)]
struct Flow {
    /// Our initial number, once a SYN showed it.
    iss: SeqNum,
    irs: SeqNum,
    written: u32,
    read: u32,
    /// The latest timestamp that we sent, to be echoed.
    stamp: u32,
}

pub(crate) fn new_region(sockets: u32, send_bytes: u32, receive_bytes: u32) -> Region {
    let config = TableConfig {
        sockets,
        send_bytes,
        receive_bytes,
    };
    Region::create("tcp-test", config).expect("memory")
}

pub(crate) struct Net {
    pub tcp: Tcp,
    pub out: Out,
    pub now: Instant,
    /// The ports that injected segments go between.
    pub local_port: u16,
    pub remote_port: u16,
    flows: HashMap<(u16, u16), Flow>,
    pub counters: Counters,
    /// Payload bytes of each of the segments that injected ones were joined from, or 0.
    pub joined: u16,
    /// How long injected segments have waited since they arrived.
    pub waited: Duration,
    /// A test has written nonsense to ring positions.
    pub spoilt: bool,
}

impl Net {
    pub fn new() -> Net {
        Net::with_rings(64 * 1024, 64 * 1024)
    }

    pub fn with_rings(send_bytes: u32, receive_bytes: u32) -> Net {
        Net::on(new_region(64, send_bytes, receive_bytes))
    }

    pub fn on(region: Region) -> Net {
        let table = SocketTable::from(region);
        let counters = Counters::create().expect("memory");
        Net {
            tcp: Tcp::new(TcpConfig { seed: 7 }, table, counters.clone()),
            out: Out::new(),
            now: Instant::from_millis(1_000_000),
            local_port: 80,
            remote_port: 5_000,
            flows: HashMap::new(),
            counters,
            joined: 0,
            waited: Duration::ZERO,
            spoilt: false,
        }
    }

    /// Another stack, at the same moment, with whose peers nothing has changed.
    pub fn other(&self) -> Net {
        Net {
            now: self.now,
            flows: self.flows.clone(),
            ..Net::new()
        }
    }

    // Opening.

    pub fn listen(&mut self, port: u16, backlog: u32) -> SocketId {
        self.listen_in(0, port, backlog, REUSE)
    }

    pub fn listen_in(
        &mut self,
        region: u32,
        port: u16,
        backlog: u32,
        sharing: BindOptions,
    ) -> SocketId {
        let id = self.tcp.open_in(region).expect("a slot");
        let any = Endpoint::new(Ipv4Addr::UNSPECIFIED.into(), port);
        let bound = self.tcp.bind(id, any, sharing, &mut self.out);
        self.tcp
            .listen(id, backlog, &mut self.out)
            .expect("listening");
        self.local_port = bound.expect("bound").port;
        self.run();
        id
    }

    /// One more region, of so many slots and with small rings.
    pub fn add_region(&mut self, sockets: u32) -> u32 {
        let region = new_region(sockets, 64 * 1024, 64 * 1024);
        let free = (0..).find(|index| self.tcp.table().region(*index).is_none());
        let index = free.expect("a free index");
        self.tcp.add_region(index, region).expect("room");
        index
    }

    /// The program moves its end of a receive ring to where it likes, in its own mapping.
    pub fn store_receive_head(&self, id: SocketId, position: u64) {
        let table = self.tcp.table();
        let region = table.region(table.region_of(id.slot)).expect("a region");
        let [_, send_rings, _] = region.files();
        let fd = send_rings.try_clone_to_owned().expect("a descriptor");
        let rings = Mapping::from_fd(fd).expect("memory that is there");
        // For each slot two cache lines: the send ring's tail and this.
        let word = (id.slot % table.stride()) as usize * 16 + 8;
        rings.words()[word].store(position, std::sync::atomic::Ordering::Relaxed);
    }

    /// A region's program dies.
    pub fn abandon(&mut self, region: u32) {
        // What it has been told already doesn't count.
        let table = self.tcp.table();
        self.out
            .events
            .retain(|event| table.region_of(event.socket.slot) != region);
        self.tcp.abandon_region(self.now, region, &mut self.out);
        self.run();
    }

    pub fn connect(&mut self, remote_port: u16) -> SocketId {
        let id = self.tcp.open().expect("a slot");
        self.connect_from(id, remote_port);
        id
    }

    pub fn connect_from(&mut self, id: SocketId, remote_port: u16) {
        let remote = Endpoint::new(REMOTE, remote_port);
        self.tcp
            .connect(self.now, id, remote, &mut self.out)
            .expect("connect");
        self.remote_port = remote_port;
        self.local_port = self.tcp.table().record(id.slot).four_tuple().local.port;
        self.run();
    }

    /// A connection that the peer opened, with these options in its SYN and this window after it.
    pub fn accepted(&mut self, options: &str, window: u32) -> SocketId {
        let listener = self.listen(80, 10);
        self.accepted_from(listener, options, window)
    }

    pub fn accepted_from(&mut self, listener: SocketId, options: &str, window: u32) -> SocketId {
        self.inject(&format!("S 0 win {window} {options}"));
        self.expect("S. 0 ack 1");
        self.inject(&format!(". 1 ack 1 win {window}"));
        self.expect_nothing();
        self.tcp.accept(listener).expect("a connection waits")
    }

    /// As [`Net::accepted`], with a timestamp in the last segment if they are in use.
    pub fn accepted_with_stamps(&mut self, options: &str) -> SocketId {
        let listener = self.listen(80, 10);
        self.inject(&format!("S 0 win 65535 {options}"));
        self.expect("S. 0 ack 1");
        let stamp = if options.contains("ts") {
            " ts 1001 *"
        } else {
            ""
        };
        self.inject(&format!(". 1 ack 1 win 65535{stamp}"));
        self.tcp.accept(listener).expect("a connection waits")
    }

    /// Our initial number between the current ports.
    pub fn iss(&self) -> SeqNum {
        self.flow().iss
    }

    /// A connection that we opened.
    pub fn connected(&mut self, options: &str, window: u32) -> SocketId {
        let id = self.connect(80);
        self.expect("S 0");
        self.inject(&format!("S. 0 ack 1 win 65535 {options}"));
        self.expect(". 1 ack 1");
        self.inject(&format!(". 1 ack 1 win {window}"));
        assert_eq!(self.state(id), State::Established);
        id
    }

    // What the program does.

    pub fn request(&mut self, request: TcpRequest) {
        let input = TcpInput::Request(request);
        let taken = self.tcp.handle(self.now, input, &mut self.out);
        assert!(taken.is_ok(), "requests are never refused");
        self.run();
    }

    pub fn set(&mut self, id: SocketId, option: ConnectionOption) {
        self.request(TcpRequest::SetOption(id, option));
    }

    pub fn close(&mut self, id: SocketId) {
        self.request(TcpRequest::Close(id));
    }

    pub fn shutdown(&mut self, id: SocketId) {
        self.request(TcpRequest::Shutdown(id, Shutdown::Write));
    }

    /// Puts bytes into the send ring without a word to TCP.
    pub fn fill(&mut self, id: SocketId, count: u32) {
        let key = self.key_of(id);
        let flow = self.flows.entry(key).or_default();
        let bytes: Vec<u8> = (flow.written..flow.written + count).map(pattern).collect();
        flow.written += count;
        let written = self.tcp.table().send_ring(id.slot).write(&bytes);
        assert_eq!(written, count as usize, "the send ring is full");
    }

    pub fn write(&mut self, id: SocketId, count: u32) {
        self.fill(id, count);
        self.request(TcpRequest::Sent(id));
    }

    /// Takes up to `count` bytes from the receive ring, compares them, and says so.
    pub fn read(&mut self, id: SocketId, count: u32) -> u32 {
        let key = self.key_of(id);
        let mut bytes = vec![0; count as usize];
        let taken = self.tcp.table().receive_ring(id.slot).read(&mut bytes) as u32;
        let flow = self.flows.entry(key).or_default();
        for (index, byte) in bytes.iter().take(taken as usize).enumerate() {
            let position = flow.read + index as u32;
            assert_eq!(*byte, pattern(position), "received byte {position}");
        }
        flow.read += taken;
        self.request(TcpRequest::Received(id));
        taken
    }

    fn key_of(&self, id: SocketId) -> (u16, u16) {
        let tuple = self.tcp.table().record(id.slot).four_tuple();
        (tuple.local.port, tuple.remote.port)
    }

    // What the peer does.

    /// A segment of the peer's, as in `. 1:1001 ack 1 win 500 sack 5-9`.
    pub fn inject(&mut self, text: &str) {
        self.inject_without_run(text);
        self.run();
    }

    /// As [`Net::inject`], but nothing is polled yet.
    pub fn inject_without_run(&mut self, text: &str) {
        let bytes = self.segment(text);
        self.hand_in(REMOTE, LOCAL, &bytes);
    }

    /// The bytes of a segment of the peer's.
    pub fn segment(&mut self, text: &str) -> Vec<u8> {
        let key = (self.local_port, self.remote_port);
        let pattern = Pattern::parse(text);
        let flow = self.flows.entry(key).or_default();
        if pattern.flags.contains(Flags::SYN) {
            flow.irs = PEER_ISN + pattern.isn_offset;
            if pattern.flags == Flags::SYN {
                flow.read = 0;
            }
        }
        let flow = *flow;
        let ack = pattern.ack.map(|ack| flow.iss + ack);
        let (mut options, from) = (pattern.options, pattern.from);
        if let Some(stamp) = &mut options.timestamps
            && stamp.echo == u32::MAX
        {
            stamp.echo = flow.stamp;
        }
        let blocks = options.sack;
        options.sack = Default::default();
        for (start, end) in blocks.iter() {
            options.sack.push(flow.iss + start.0, flow.iss + end.0);
        }
        let header = Header {
            source_port: key.1,
            destination_port: key.0,
            seq: flow.irs + from,
            ack: ack.unwrap_or(SeqNum(0)),
            flags: pattern.flags,
            window: pattern.window.unwrap_or(0) as u16,
            urgent: 0,
            header_len: 0,
        };
        let first = from.wrapping_sub(1);
        let payload: Vec<u8> = (0..pattern.length)
            .map(|index| self::pattern(first.wrapping_add(index)))
            .collect();
        let mut bytes = vec![0; tcp::emitted_len(&options)];
        assert!(tcp::emit(&header, &options, &mut bytes) > 0);
        bytes.extend(payload);
        tcp::set_checksum(REMOTE, LOCAL, &mut bytes);
        bytes
    }

    pub fn inject_all(&mut self, texts: &[&str]) {
        texts.iter().for_each(|text| self.inject(text));
    }

    /// Any bytes as a segment from the peer.
    pub fn inject_bytes(&mut self, payload: &[u8]) {
        self.inject_between(REMOTE, LOCAL, payload);
    }

    pub fn inject_between(&mut self, source: IpAddr, destination: IpAddr, payload: &[u8]) {
        self.hand_in(source, destination, payload);
        self.run();
    }

    fn hand_in(&mut self, source: IpAddr, destination: IpAddr, payload: &[u8]) {
        let packet = RxPacket {
            arrived: self.now - self.waited,
            source,
            destination,
            traffic_class: 0,
            hop_limit: 64,
            checksum: RxChecksum::Unverified,
            segment_bytes: self.joined,
            payload,
        };
        let taken = self
            .tcp
            .handle(self.now, TcpInput::Packet(packet), &mut self.out);
        assert!(taken.is_ok(), "segments are never refused");
    }

    /// An ICMP error about the segment with this relative number.
    pub fn icmp(&mut self, kind: ErrorKind, sequence: u32) {
        self.icmp_without_run(kind, sequence);
        self.run();
    }

    pub fn icmp_without_run(&mut self, kind: ErrorKind, sequence: u32) {
        let sequence = (self.flow().iss + sequence).0;
        let local = Endpoint::new(LOCAL, self.local_port);
        let remote = Endpoint::new(REMOTE, self.remote_port);
        self.icmp_about(kind, &FourTuple::new(local, remote), sequence);
    }

    pub fn icmp_about(&mut self, kind: ErrorKind, tuple: &FourTuple, sequence: u32) {
        let error = NetworkError {
            kind,
            protocol: protocol::TCP,
            local: tuple.local,
            remote: tuple.remote,
            sequence,
        };
        let taken = self
            .tcp
            .handle(self.now, TcpInput::Error(error), &mut self.out);
        assert!(taken.is_ok());
    }

    fn flow(&self) -> Flow {
        let key = (self.local_port, self.remote_port);
        self.flows.get(&key).copied().unwrap_or_default()
    }
}
