//! Frames are captured where they enter and where they leave the stack.

use skink_library::{Stack, StackConfig};
use skink_memory::{CaptureDirection, CaptureReader, CaptureRing, TableConfig};
use skink_messages::{
    Capabilities, Counters, Full, NicOutput, RxChecksum, RxFrame, SoleOwner, Steering, TxPacket,
};
use skink_nic::{Budget, Nic, Receiver, Sender};
use skink_time::Instant;
use skink_wire::{MacAddr, arp, ethernet};
use std::net::Ipv4Addr;
use std::os::fd::BorrowedFd;

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const PEER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

/// A NIC on which one frame waits, and from which nothing comes back.
struct Stub(Vec<Vec<u8>>);

impl Receiver for Stub {
    fn receive(
        &mut self,
        now: Instant,
        _: &mut Budget,
        each: &mut dyn FnMut(RxFrame<'_>),
    ) -> usize {
        let frames = std::mem::take(&mut self.0);
        for bytes in &frames {
            each(RxFrame {
                arrived: now,
                bytes,
                checksum: RxChecksum::Unverified,
                segment_bytes: 0,
            });
        }
        frames.len()
    }
    fn descriptors(&self, _: &mut dyn FnMut(BorrowedFd<'_>)) {}
}

impl NicOutput for Stub {
    fn room(&mut self) -> usize {
        64
    }
    fn send(&mut self, _: &TxPacket<'_>) -> Result<(), Full> {
        Ok(())
    }
}

impl Sender for Stub {
    fn flush(&mut self) {}
}

/// An ARP request for our address.
fn request() -> Vec<u8> {
    let header = ethernet::Header {
        destination: MacAddr::BROADCAST,
        source: PEER,
        ethertype: ethernet::ARP,
    };
    let packet = arp::Packet {
        operation: arp::Operation::Request,
        sender_mac: PEER,
        sender_ip: Ipv4Addr::new(192, 0, 2, 2),
        target_mac: MacAddr::UNSPECIFIED,
        target_ip: Ipv4Addr::new(192, 0, 2, 1),
    };
    let mut bytes = header.to_bytes().to_vec();
    bytes.resize(ethernet::LEN + arp::LEN, 0);
    let _ = packet.emit(&mut bytes[ethernet::LEN..]);
    bytes
}

fn stack() -> Stack {
    let table = TableConfig {
        sockets: 4,
        send_bytes: 4096,
        receive_bytes: 4096,
    };
    let config = StackConfig {
        addresses: vec!["192.0.2.1/24".parse().expect("an address")],
        gateways: Vec::new(),
        seed: 1,
        answers: true,
        tcp_table: table,
        udp_table: table,
        socket_memory: u64::MAX,
        counters: Counters::create().expect("memory"),
    };
    let nic = Nic {
        capabilities: Capabilities {
            kind: "stub",
            mac: MAC,
            mtu: 1500,
            tx_checksum: false,
            rx_checksum: false,
            cut_bytes: 0,
            joins: false,
            queues: 1,
            steering: Steering::Sole,
            zero_copy: false,
        },
        receiver: Box::new(Stub(vec![request()])),
        sender: Box::new(Stub(Vec::new())),
    };
    Stack::new(config, nic, Box::new(SoleOwner)).expect("a stack")
}

#[test]
fn a_reader_sees_what_enters_and_what_leaves() {
    let ring = CaptureRing::create(1 << 16).expect("memory");
    let mut stack = stack();
    stack.set_capture(Some(ring.clone()));
    let fd = ring.fd().try_clone_to_owned().expect("a descriptor");
    let mut reader = CaptureReader::start(fd, 65_535).expect("a reader");
    stack.poll(Instant::from_millis(5));
    let mut inbound = Vec::new();
    let mut answered = false;
    while let Some(frame) = reader.take() {
        assert_eq!(frame.time_ns, 5_000_000);
        match frame.direction {
            CaptureDirection::Inbound => inbound.push(frame.bytes),
            CaptureDirection::Outbound => answered |= frame.bytes[..6] == PEER.0,
        }
    }
    assert_eq!(inbound, [request()]);
    assert!(answered, "the answer to the request was not captured");
}
