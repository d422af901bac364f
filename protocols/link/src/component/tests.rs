use super::*;
use crate::LinkConfig;
use skink_memory::Bytes;
use skink_messages::{Capabilities, Counters, RxChecksum, Steering};
use skink_wire::{MacAddr, ethernet};

const OURS: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const OTHER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

/// A NIC and what is above `link` in one.
#[derive(Default)]
struct Neighbours {
    room: usize,
    sent: Vec<usize>,
    received: Vec<usize>,
}

impl NicOutput for Neighbours {
    fn room(&mut self) -> usize {
        self.room
    }
    fn send(&mut self, packet: &TxPacket<'_>) -> Result<(), Full> {
        self.room = self.room.checked_sub(1).ok_or(Full)?;
        self.sent.push(packet.len());
        Ok(())
    }
}

impl Above for Neighbours {
    fn frame(&mut self, _now: Instant, frame: RxFrame<'_>) {
        self.received.push(frame.bytes.len());
    }
}

fn link() -> Link {
    let capabilities = Capabilities {
        kind: "fake",
        mac: OURS,
        mtu: 1500,
        tx_checksum: true,
        rx_checksum: false,
        cut_bytes: 0,
        joins: false,
        queues: 1,
        steering: Steering::Sole,
        zero_copy: false,
    };
    let counters = Counters::create().expect("a small mapping");
    Link::new(capabilities, LinkConfig::default(), counters)
}

/// A frame of the protocol that is set aside for experiments (IEEE 802).
fn frame(destination: MacAddr, source: MacAddr) -> Vec<u8> {
    let mut bytes = vec![0; ethernet::LEN];
    let header = ethernet::Header {
        destination,
        source,
        ethertype: 0x88b5,
    };
    assert_eq!(header.emit(&mut bytes), ethernet::LEN);
    bytes
}

#[test]
fn frames_go_up_if_they_are_ours() {
    let (mut link, mut out) = (link(), Neighbours::default());
    for (destination, received) in [(OTHER, 0), (OURS, 1), (MacAddr::BROADCAST, 2)] {
        let bytes = frame(destination, OTHER);
        let input = LinkInput::Frame(RxFrame {
            arrived: Instant::ZERO,
            bytes: &bytes,
            checksum: RxChecksum::Unverified,
            segment_bytes: 0,
        });
        assert_eq!(link.handle(Instant::ZERO, input, &mut out), Ok(()));
        assert_eq!(out.received.len(), received, "to {destination}");
    }
}

#[test]
fn packets_leave_or_are_refused() {
    let (mut link, mut out) = (link(), Neighbours::default());
    let mut hand_over = |room| {
        let headers = frame(OTHER, OURS);
        let mut packet = TxPacket::new([Bytes::EMPTY; 2]);
        packet.prepend(headers.len()).copy_from_slice(&headers);
        out.room = room;
        let answer = link.handle(Instant::ZERO, LinkInput::Packet(packet), &mut out);
        (answer, out.sent.len())
    };
    assert_eq!(hand_over(0), (Err(Full), 0));
    assert_eq!(hand_over(1), (Ok(()), 1));
}
