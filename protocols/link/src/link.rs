use crate::cut::{self, Layout, Piece};
use crate::source::Sources;
use core::net::IpAddr;
use skink_memory::Bytes;
use skink_messages::{
    Capabilities, Counter, Counters, Full, LinkLimits, NicOutput, RxFrame, TxPacket,
};
use skink_time::Instant;
use skink_wire::{Sum, ethernet, ipv4, ipv6, protocol};

/// Largest IP packet in bytes that is cut here for a NIC that can't: the largest there is.
const CUT_BYTES: u32 = 65_535;

/// What a link needs to know besides its NIC.
#[derive(Clone, Debug, Default)]
pub struct LinkConfig {
    /// If set: packets (and ARP) from other addresses than these and the unspecified one don't leave,
    /// nor does anything that is neither IP nor ARP.
    pub addresses: Option<Vec<IpAddr>>,
}

/// The link component; see the crate's description.
pub struct Link {
    capabilities: Capabilities,
    /// Largest packet that isn't cut, in bytes: never more than the capabilities say.
    mtu: u32,
    sources: Sources,
    counters: Counters,
    /// Payload of the segment whose checksum is being completed. Empty if the NIC does that.
    scratch: Box<[u8]>,
    /// The most room that the NIC ever had.
    most_room: usize,
}

impl Link {
    /// A link for a NIC that can do what `capabilities` says.
    pub fn new(capabilities: Capabilities, config: LinkConfig, counters: Counters) -> Link {
        let scratch_bytes = if capabilities.tx_checksum {
            0
        } else {
            capabilities.mtu.min(CUT_BYTES)
        };
        Link {
            capabilities,
            mtu: capabilities.mtu,
            sources: Sources::new(capabilities.mac, config.addresses),
            counters,
            scratch: vec![0; scratch_bytes as usize].into_boxed_slice(),
            most_room: 0,
        }
    }

    /// Replaces [`LinkConfig::addresses`] when addresses come and go.
    pub fn set_addresses(&mut self, addresses: Option<Vec<IpAddr>>) {
        self.sources = Sources::new(self.capabilities.mac, addresses);
    }

    /// The NIC takes packets of so many bytes from now on, as far as it could at the beginning.
    pub fn set_mtu(&mut self, mtu: u32) {
        self.mtu = mtu.min(self.capabilities.mtu);
    }

    /// What frames it takes.
    #[inline(always)]
    pub fn limits(&self) -> LinkLimits {
        LinkLimits {
            mac: self.capabilities.mac,
            mtu: self.mtu,
            cut_bytes: CUT_BYTES.max(self.mtu),
            cuts: self.capabilities.cut_bytes > 0,
        }
    }

    /// Counts a frame that arrived; answers whether it is for us (or for a group), else drops it.
    #[inline(always)]
    pub fn receive(&self, frame: &RxFrame<'_>) -> bool {
        self.counters.count(Counter::LinkFramesIn);
        self.counters
            .add(Counter::LinkBytesIn, frame.bytes.len() as u64);
        let Ok((header, _)) = ethernet::Header::parse(frame.bytes) else {
            self.counters.count(Counter::LinkDropShort);
            return false;
        };
        let ours = header.destination == self.capabilities.mac || header.destination.is_multicast();
        if !ours {
            self.counters.count(Counter::LinkDropForeign);
        }
        ours
    }

    /// Sends a whole frame, cut and its checksum completed as the NIC needs it, or drops and counts
    /// it if it must not leave. All of it is taken or, with [`Full`], nothing, and `packet` is as it
    /// was.
    #[inline(always)]
    pub fn send<Nic: NicOutput + ?Sized>(
        &mut self,
        _now: Instant,
        packet: &mut TxPacket<'_>,
        nic: &mut Nic,
    ) -> Result<(), Full> {
        let Ok((header, _)) = ethernet::Header::parse(packet.headers()) else {
            self.counters.count(Counter::LinkDropMalformed);
            return Ok(());
        };
        if !self.sources.allow(&header, packet.headers()) {
            self.counters.count(Counter::LinkDropSpoofed);
            return Ok(());
        }
        if packet.checksum_offset.is_some() && !transport_is_behind_ip(packet, header.ethertype) {
            self.counters.count(Counter::LinkDropMalformed);
            return Ok(());
        }
        let segment_bytes = usize::from(packet.segment_bytes);
        if segment_bytes != 0 && packet.payload_bytes() > segment_bytes {
            return self.send_large(packet, header.ethertype, nic);
        }
        if packet.len() - ethernet::LEN > self.capabilities.mtu as usize {
            self.counters.count(Counter::LinkDropOversize);
            return Ok(());
        }
        let segment_bytes = std::mem::take(&mut packet.segment_bytes);
        let sent = if packet.checksum_offset.is_some() && !self.capabilities.tx_checksum {
            self.send_completed(packet, nic)
        } else {
            hand_over(&self.counters, packet, nic)
        };
        packet.segment_bytes = segment_bytes;
        sent
    }

    /// Sends one frame whose checksum the NIC can't complete. The payload is copied first: a program
    /// that changes it after it was summed must not make us send a wrong checksum.
    fn send_completed<Nic: NicOutput + ?Sized>(
        &mut self,
        packet: &TxPacket<'_>,
        nic: &mut Nic,
    ) -> Result<(), Full> {
        if nic.room() == 0 {
            self.counters.count(Counter::LinkFull);
            return Err(Full);
        }
        let headers = packet.headers();
        let payload_bytes = packet.payload_bytes();
        let transport = headers
            .len()
            .checked_sub(usize::from(packet.transport_bytes));
        let (Some(transport), Some(offset), Some(copy)) = (
            transport,
            packet.checksum_offset,
            self.scratch.get_mut(..payload_bytes),
        ) else {
            self.counters.count(Counter::LinkDropMalformed);
            return Ok(());
        };
        copy_payload(&packet.payload, copy);
        let mut completed = TxPacket::new([Bytes::from(&*copy), Bytes::EMPTY]);
        completed.transport_bytes = packet.transport_bytes;
        completed.network_bytes = packet.network_bytes;
        let to = completed.prepend(headers.len());
        to.copy_from_slice(headers);
        complete_checksum(to.get_mut(transport..).unwrap_or_default(), offset, copy);
        hand_over(&self.counters, &completed, nic)
    }

    /// Sends a packet that is to be cut, leaving the cutting to the NIC as far as it can.
    fn send_large<Nic: NicOutput + ?Sized>(
        &mut self,
        packet: &TxPacket<'_>,
        ethertype: u16,
        nic: &mut Nic,
    ) -> Result<(), Full> {
        let Some(layout) = Layout::of(packet, ethertype) else {
            self.counters.count(Counter::LinkDropMalformed);
            return Ok(());
        };
        let segment_bytes = usize::from(packet.segment_bytes);
        let network_headers = layout.headers - ethernet::LEN;
        let packet_bytes = packet.len() - ethernet::LEN;
        let too_large = network_headers + segment_bytes > self.capabilities.mtu as usize
            || packet_bytes > CUT_BYTES as usize;
        if too_large {
            self.counters.count(Counter::LinkDropOversize);
            return Ok(());
        }
        let nic_cuts = if layout.protocol == protocol::TCP {
            self.capabilities.cut_bytes as usize
        } else {
            0
        };
        if packet_bytes <= nic_cuts && packet.checksum_offset.is_some() {
            return hand_over(&self.counters, packet, nic);
        }
        let segments_each = (nic_cuts.saturating_sub(network_headers) / segment_bytes).max(1);
        self.send_pieces(packet, &layout, segments_each, nic)
    }

    /// Sends a packet in pieces of `segments_each` segments.
    fn send_pieces<Nic: NicOutput + ?Sized>(
        &mut self,
        packet: &TxPacket<'_>,
        layout: &Layout,
        segments_each: usize,
        nic: &mut Nic,
    ) -> Result<(), Full> {
        let total = packet.payload_bytes();
        let each = segments_each * usize::from(packet.segment_bytes);
        let frames = total.div_ceil(each);
        let room = nic.room();
        self.most_room = self.most_room.max(room);
        // More frames than an idle NIC takes would never find room: then what fits must do.
        let never_fits = frames > self.most_room && room > 0 && room == self.most_room;
        if frames > room && !never_fits {
            self.counters.count(Counter::LinkFull);
            return Err(Full);
        }
        for frame in 0..frames {
            let offset = frame * each;
            let len = each.min(total - offset);
            let piece = Piece {
                // At most 65,535, since each has at least one byte.
                index: (frame * segments_each) as u16,
                offset,
                len,
                is_last: offset + len == total,
            };
            if self.send_piece(packet, layout, &piece, nic).is_err() {
                let lost = frames - frame;
                self.counters.add(Counter::LinkDropSend, lost as u64);
                break;
            }
        }
        Ok(())
    }

    fn send_piece<Nic: NicOutput + ?Sized>(
        &mut self,
        packet: &TxPacket<'_>,
        layout: &Layout,
        piece: &Piece,
        nic: &mut Nic,
    ) -> Result<(), Full> {
        let mut segment = cut::segment(packet, layout, piece);
        let payload = cut::part(packet.payload, piece.offset, piece.len);
        let nic_cuts = piece.len > usize::from(packet.segment_bytes);
        if nic_cuts || self.capabilities.tx_checksum {
            segment.checksum_offset = Some(layout.checksum_offset());
            segment.payload = payload;
            if nic_cuts {
                segment.segment_bytes = packet.segment_bytes;
            }
        } else {
            // As long as the MTU at most, as is the scratch buffer.
            let Some(copy) = self.scratch.get_mut(..piece.len) else {
                return Err(Full);
            };
            copy_payload(&payload, copy);
            let transport = layout.headers - usize::from(packet.transport_bytes);
            let header = segment.headers_mut().get_mut(transport..);
            complete_checksum(header.unwrap_or_default(), layout.checksum_offset(), copy);
            segment.payload = [Bytes::from(&*copy), Bytes::EMPTY];
        }
        self.counters.count(Counter::LinkCut);
        hand_over(&self.counters, &segment, nic)
    }
}

/// Whether the transport header, in which a checksum is to be completed, lies behind the addresses that were looked at: whoever
/// is out of its mind might have a sum of its choice written over them.
fn transport_is_behind_ip(packet: &TxPacket<'_>, ethertype: u16) -> bool {
    let network = match ethertype {
        ethernet::IPV4 => ipv4::LEN,
        ethernet::IPV6 => ipv6::LEN,
        _ => return false,
    };
    let transport = usize::from(packet.transport_bytes);
    packet.headers().len() >= ethernet::LEN + network + transport
}

/// Gives a frame to the NIC as it is.
#[inline]
fn hand_over<Nic: NicOutput + ?Sized>(
    counters: &Counters,
    packet: &TxPacket<'_>,
    nic: &mut Nic,
) -> Result<(), Full> {
    let sent = nic.send(packet);
    match sent {
        Ok(()) => {
            counters.count(Counter::LinkFramesOut);
            counters.add(Counter::LinkBytesOut, packet.len() as u64);
        }
        Err(Full) => counters.count(Counter::LinkFull),
    }
    sent
}

/// Copies both spans to `to`, which is as long as they are together.
fn copy_payload(payload: &[Bytes<'_>; 2], to: &mut [u8]) {
    let (front, back) = to.split_at_mut(payload[0].len());
    payload[0].copy_to(front);
    payload[1].copy_to(back);
}

/// Completes the checksum at `offset` of `header`, which holds the sum of the pseudo-header.
fn complete_checksum(header: &mut [u8], offset: u8, payload: &[u8]) {
    let mut sum = Sum::new();
    sum.add_bytes(header);
    sum.add_bytes(payload);
    cut::put_u16(header, usize::from(offset), sum.finish_at(offset));
}

#[cfg(test)]
mod tests;
