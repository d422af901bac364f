//! Packets that are in no frame: put together from fragments, or sent to ourselves.

use core::net::IpAddr;
use skink_messages::{RxChecksum, RxPacket};
use skink_time::Instant;
use std::collections::VecDeque;

/// Most packets that wait to be taken.
const PACKETS: usize = 256;
/// Most bytes that wait to be taken.
const BYTES: usize = 2 * 1024 * 1024;
/// Buffers kept for reuse.
const SPARE: usize = 32;

/// A packet with its own memory. Give it back with [`Ip::recycle`](crate::Ip::recycle).
pub struct OwnedPacket {
    /// When its last frame arrived, or when it was sent.
    pub(crate) arrived: Instant,
    pub(crate) protocol: u8,
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
    pub(crate) checksum: RxChecksum,
    pub(crate) segment_bytes: u16,
    pub(crate) payload: Vec<u8>,
    /// Where the transport header begins in `payload`.
    pub(crate) offset: usize,
}

impl OwnedPacket {
    /// Its transport protocol: TCP or UDP.
    pub fn protocol(&self) -> u8 {
        self.protocol
    }

    /// The packet as one from a frame.
    pub fn as_packet(&self) -> RxPacket<'_> {
        RxPacket {
            arrived: self.arrived,
            source: self.source,
            destination: self.destination,
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
            checksum: self.checksum,
            segment_bytes: self.segment_bytes,
            payload: self.payload.get(self.offset..).unwrap_or_default(),
        }
    }
}

/// Packets to be taken, and buffers for more.
#[derive(Default)]
pub(crate) struct WholeQueue {
    packets: VecDeque<OwnedPacket>,
    bytes: usize,
    spare: Vec<Vec<u8>>,
}

impl WholeQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Whether a packet of so many bytes may wait here.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.packets.len() < PACKETS && self.bytes + bytes <= BYTES
    }

    /// An empty buffer.
    pub(crate) fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Adds a packet; see [`WholeQueue::has_room`].
    pub(crate) fn push(&mut self, packet: OwnedPacket) {
        self.bytes += packet.payload.len();
        self.packets.push_back(packet);
    }

    pub(crate) fn pop(&mut self) -> Option<OwnedPacket> {
        let packet = self.packets.pop_front()?;
        self.bytes -= packet.payload.len();
        Some(packet)
    }

    pub(crate) fn recycle(&mut self, mut buffer: Vec<u8>) {
        if self.spare.len() < SPARE {
            buffer.clear();
            self.spare.push(buffer);
        }
    }
}
