//! What a simulated NIC does to frames in hardware: completing checksums, and cutting large
//! segments. Written anew, not shared with `link`, so that each checks the other.

use core::net::IpAddr;
use skink_messages::{RxChecksum, TxPacket};
use skink_wire::{ChecksumPolicy, Sum, checksum, ethernet, ipv4, ipv6, protocol};

/// One frame on its way.
#[derive(Clone, Debug)]
pub struct Frame {
    /// From the Ethernet header on.
    pub bytes: Vec<u8>,
    /// What the receiver is told.
    pub checksum: RxChecksum,
    /// Payload bytes of each segment in it, 0 if there is one.
    pub segment_bytes: u16,
}

/// Where the parts of a TCP or UDP frame are.
struct Parts {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    /// Offset of the transport header from the start of the frame.
    transport: usize,
    /// End of the packet, without padding.
    end: usize,
}

/// Finds the transport header of a whole (not fragmented) packet.
fn parts(bytes: &[u8]) -> Option<Parts> {
    let (link, packet) = ethernet::Header::parse(bytes).ok()?;
    match link.ethertype {
        ethernet::IPV4 => {
            let (ip, payload) = ipv4::Header::parse(packet, ChecksumPolicy::Verify).ok()?;
            let transport = ethernet::LEN + usize::from(ip.header_len);
            (!ip.is_fragment()).then_some(Parts {
                source: ip.source.into(),
                destination: ip.destination.into(),
                protocol: ip.protocol,
                transport,
                end: transport + payload.len(),
            })
        }
        ethernet::IPV6 => {
            let (ip, payload) = ipv6::Header::parse(packet).ok()?;
            let transport = ethernet::LEN + ipv6::LEN;
            Some(Parts {
                source: ip.source.into(),
                destination: ip.destination.into(),
                protocol: ip.next_header,
                transport,
                end: transport + payload.len(),
            })
        }
        _ => None,
    }
}

/// Whether the frame holds a whole TCP or UDP packet with a right checksum, as a NIC would find.
pub fn checksum_is_right(bytes: &[u8]) -> bool {
    let Some(parts) = parts(bytes) else {
        return false;
    };
    let segment = &bytes[parts.transport..parts.end];
    let known = matches!(parts.protocol, protocol::TCP | protocol::UDP);
    known
        && checksum::transport_checksum_is_valid(
            parts.source,
            parts.destination,
            parts.protocol,
            segment,
        )
}

/// Whether the frame holds a part of a packet.
pub fn is_fragment(bytes: &[u8]) -> bool {
    let Ok((link, packet)) = ethernet::Header::parse(bytes) else {
        return false;
    };
    match link.ethertype {
        ethernet::IPV4 => ipv4::Header::parse(packet, ChecksumPolicy::Trust)
            .is_ok_and(|(header, _)| header.is_fragment()),
        ethernet::IPV6 => ipv6::Header::parse(packet)
            .is_ok_and(|(header, _)| header.next_header == protocol::FRAGMENT),
        _ => false,
    }
}

/// A frame as the stack handed it over.
pub fn flatten(packet: &TxPacket<'_>) -> Vec<u8> {
    let mut bytes = vec![0; packet.len()];
    packet.copy_to(&mut bytes);
    bytes
}

/// Completes a checksum of which the field holds the sum of the pseudo-header.
pub fn complete_checksum(bytes: &mut [u8], transport: usize, field: usize) {
    let mut sum = Sum::new();
    sum.add_bytes(&bytes[transport..]);
    let value = match sum.finish() {
        // UDP sends a sum of zero as its complement; for TCP both mean the same.
        0 => 0xffff,
        value => value,
    };
    bytes[transport + field..transport + field + 2].copy_from_slice(&value.to_be_bytes());
}

/// Cuts a large TCP segment with a right header (its checksum field may hold anything) into frames
/// of `segment_bytes` payload each.
pub fn cut(bytes: &[u8], segment_bytes: usize) -> Vec<Vec<u8>> {
    let Some(parts) = parts(bytes).filter(|parts| parts.protocol == protocol::TCP) else {
        return Vec::new();
    };
    let headers = parts.transport + usize::from(bytes[parts.transport + 12] >> 4) * 4;
    let payload = &bytes[headers..parts.end];
    let count = payload.len().div_ceil(segment_bytes).max(1);
    let mut frames = Vec::with_capacity(count);
    for index in 0..count {
        let from = index * segment_bytes;
        let to = payload.len().min(from + segment_bytes);
        let mut frame = bytes[..headers].to_vec();
        frame.extend_from_slice(&payload[from..to]);
        retouch(&mut frame, &parts, index, from as u32, index + 1 == count);
        frames.push(frame);
    }
    frames
}

/// Makes the headers of segment `index` fit what it carries.
fn retouch(frame: &mut [u8], parts: &Parts, index: usize, offset: u32, last: bool) {
    let tcp = parts.transport;
    let word = |frame: &[u8], at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    if parts.source.is_ipv4() {
        let total = (frame.len() - ethernet::LEN) as u16;
        let ident = word(frame, ethernet::LEN + 4).wrapping_add(index as u16);
        frame[ethernet::LEN + 2..ethernet::LEN + 4].copy_from_slice(&total.to_be_bytes());
        frame[ethernet::LEN + 4..ethernet::LEN + 6].copy_from_slice(&ident.to_be_bytes());
        frame[ethernet::LEN + 10..ethernet::LEN + 12].fill(0);
        let sum = checksum::checksum(&[&frame[ethernet::LEN..tcp]]);
        frame[ethernet::LEN + 10..ethernet::LEN + 12].copy_from_slice(&sum.to_be_bytes());
    } else {
        let length = (frame.len() - tcp) as u16;
        frame[ethernet::LEN + 4..ethernet::LEN + 6].copy_from_slice(&length.to_be_bytes());
    }
    let seq = u32::from(word(frame, tcp + 4)) << 16 | u32::from(word(frame, tcp + 6));
    frame[tcp + 4..tcp + 8].copy_from_slice(&seq.wrapping_add(offset).to_be_bytes());
    if !last {
        // FIN and PSH belong to the last one.
        frame[tcp + 13] &= !0x09;
    }
    if index > 0 {
        // CWR belongs to the first one (RFC 3168 6.1.2).
        frame[tcp + 13] &= !0x80;
    }
    skink_wire::tcp::set_checksum(parts.source, parts.destination, &mut frame[tcp..]);
}
