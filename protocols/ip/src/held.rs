//! Packets that can't leave yet, copied.

use core::net::IpAddr;
use skink_memory::Bytes;
use skink_messages::TxPacket;
use skink_wire::MacAddr;
use std::collections::VecDeque;

/// A copy of a packet from its IP header on, with what `link` has to know of it.
pub(crate) struct Held {
    bytes: Box<[u8]>,
    header_bytes: u8,
    network_bytes: u8,
    transport_bytes: u8,
    checksum_offset: Option<u8>,
    segment_bytes: u16,
}

impl Held {
    pub(crate) fn copy(packet: &TxPacket<'_>) -> Held {
        let mut bytes = vec![0; packet.len()].into_boxed_slice();
        packet.copy_to(&mut bytes);
        Held {
            bytes,
            // At most 128.
            header_bytes: packet.headers().len() as u8,
            network_bytes: packet.network_bytes,
            transport_bytes: packet.transport_bytes,
            checksum_offset: packet.checksum_offset,
            segment_bytes: packet.segment_bytes,
        }
    }

    /// What it is counted for: its bytes, and the memory that it takes besides.
    pub(crate) fn cost(&self) -> usize {
        self.bytes.len() + 2 * size_of::<Held>()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The packet as it was copied.
    pub(crate) fn packet(&self) -> TxPacket<'_> {
        let (headers, payload) = self
            .bytes
            .split_at(usize::from(self.header_bytes).min(self.bytes.len()));
        let mut packet = TxPacket::new([Bytes::from(payload), Bytes::EMPTY]);
        packet.prepend(headers.len()).copy_from_slice(headers);
        packet.network_bytes = self.network_bytes;
        packet.transport_bytes = self.transport_bytes;
        packet.checksum_offset = self.checksum_offset;
        packet.segment_bytes = self.segment_bytes;
        packet
    }
}

/// Packets whose link-layer destination is known, but for which the link had no room. Nothing else
/// leaves before them, so they are few: what had waited for neighbours, or the rest of one packet's
/// fragments.
#[derive(Default)]
pub(crate) struct Outbox(VecDeque<(MacAddr, Held)>);

impl Outbox {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn push(&mut self, mac: MacAddr, held: Held) {
        self.0.push_back((mac, held));
    }

    pub(crate) fn pop(&mut self) -> Option<(MacAddr, Held)> {
        self.0.pop_front()
    }

    pub(crate) fn put_back(&mut self, mac: MacAddr, held: Held) {
        self.0.push_front((mac, held));
    }
}

/// Where a packet goes on the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// To this station or group.
    Station(MacAddr),
    /// To a neighbour that is being looked for.
    Unresolved(IpAddr),
}
