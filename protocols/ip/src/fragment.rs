//! Cutting packets that don't fit into fragments (RFC 791 section 3.2, RFC 8200 section 4.5).

use crate::Ip;
use crate::held::{Held, Target};
use crate::send::{MAXIMUM_BYTES, ethertype};
use core::net::IpAddr;
use skink_memory::Bytes;
use skink_messages::{Counter, FrameOutput, Full, Outbound, TxPacket};
use skink_time::Instant;
use skink_wire::{Sum, ipv4, ipv6, protocol};

/// What the fragments of one packet have in common.
#[derive(Clone, Copy)]
struct Cut {
    identification: u32,
    total: usize,
    hop_limit: u8,
}

impl Ip {
    /// Sends `packet` in fragments of at most `mtu` bytes. Either none leaves, or all do, some of them
    /// perhaps with the next poll.
    pub(crate) fn send_fragments<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        to: &Outbound,
        packet: &TxPacket<'_>,
        target: Target,
        mtu: u32,
        out: &mut O,
    ) -> Result<(), Full> {
        let (headers, counted) = match (to.source, to.destination) {
            (IpAddr::V4(_), IpAddr::V4(_)) => (ipv4::LEN, ipv4::LEN),
            // What is put together again has no fragment header.
            (IpAddr::V6(_), IpAddr::V6(_)) => (ipv6::LEN + ipv6::FRAGMENT_LEN, 0),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => {
                self.counters.count(Counter::IpDropNoRoute);
                return Ok(());
            }
        };
        let total = packet.len();
        let each = (mtu as usize).saturating_sub(headers) & !7;
        if each == 0 || total + counted > MAXIMUM_BYTES {
            self.counters.count(Counter::IpDropTooBig);
            return Ok(());
        }
        let mut bytes = core::mem::take(&mut self.fragments);
        bytes.clear();
        bytes.resize(total, 0);
        packet.copy_to(&mut bytes);
        complete_checksum(&mut bytes, packet.checksum_offset);
        let cut = Cut {
            identification: self.identifications.next(to.source, to.destination, 1),
            total,
            hop_limit: self.hop_limit(to),
        };
        let mut sent = Ok(());
        for (index, data) in bytes.chunks(each).enumerate() {
            let mut fragment = fragment(to, &cut, index * each, data);
            sent = self.send_fragment(now, target, to, &mut fragment, index == 0, out);
            if sent.is_err() {
                break;
            }
        }
        self.fragments = bytes;
        sent
    }

    /// Sends one fragment. If the link is full, the first one is refused, others are kept.
    fn send_fragment<O: FrameOutput + ?Sized>(
        &mut self,
        now: Instant,
        target: Target,
        to: &Outbound,
        fragment: &mut TxPacket<'_>,
        is_first: bool,
        out: &mut O,
    ) -> Result<(), Full> {
        match target {
            Target::Station(mac) if !self.outbox.is_empty() => {
                self.outbox.push(mac, Held::copy(fragment));
            }
            Target::Station(_) | Target::Unresolved(_) => {
                let sent = self.transmit(now, target, ethertype(to), fragment, out);
                match (sent, target) {
                    (Err(Full), Target::Station(mac)) if !is_first => {
                        self.outbox.push(mac, Held::copy(fragment));
                    }
                    (Err(Full), _) => return Err(Full),
                    (Ok(()), _) => {}
                }
            }
        }
        self.counters.count(Counter::IpFragmentsOut);
        Ok(())
    }
}

/// The fragment with `data`, which begins at `offset`, and its IP header.
fn fragment<'a>(to: &Outbound, cut: &Cut, offset: usize, data: &'a [u8]) -> TxPacket<'a> {
    let mut packet = TxPacket::new([Bytes::from(data), Bytes::EMPTY]);
    let more = offset + data.len() < cut.total;
    let hop_limit = cut.hop_limit;
    match (to.source, to.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let header = ipv4::Header {
                dscp_ecn: to.traffic_class,
                // All at most 65,535, as the whole is.
                total_len: (data.len() + ipv4::LEN) as u16,
                identification: cut.identification as u16,
                dont_fragment: false,
                more_fragments: more,
                fragment_offset: offset as u16,
                ttl: hop_limit,
                protocol: to.protocol,
                source,
                destination,
                header_len: ipv4::LEN as u8,
            };
            let _ = header.emit(packet.prepend(ipv4::LEN));
            packet.network_bytes = ipv4::LEN as u8;
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let header = ipv6::FragmentHeader {
                next_header: to.protocol,
                offset: offset as u16,
                more,
                identification: cut.identification,
            };
            let _ = header.emit(packet.prepend(ipv6::FRAGMENT_LEN));
            let header = ipv6::Header {
                traffic_class: to.traffic_class,
                flow_label: 0,
                payload_len: (data.len() + ipv6::FRAGMENT_LEN) as u16,
                next_header: protocol::FRAGMENT,
                hop_limit,
                source,
                destination,
            };
            let _ = header.emit(packet.prepend(ipv6::LEN));
            packet.network_bytes = (ipv6::LEN + ipv6::FRAGMENT_LEN) as u8;
        }
        // Refused by `send_fragments`.
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => {}
    }
    packet
}

/// Completes the checksum at `offset`, which no NIC can do over several fragments.
fn complete_checksum(bytes: &mut [u8], offset: Option<u8>) {
    let Some(offset) = offset else {
        return;
    };
    let mut sum = Sum::new();
    sum.add_bytes(bytes);
    let field = bytes.get_mut(usize::from(offset)..);
    if let Some(field) = field.and_then(|field| field.first_chunk_mut::<2>()) {
        *field = sum.finish_at(offset).to_be_bytes();
    }
}
