//! The virtio-net header that goes before each frame (virtio 1.3 section 5.1.6, legacy layout in
//! native byte order, as Linux's packet sockets and TAP speak it).

use skink_messages::{RxChecksum, TxPacket};

/// Length of the header in bytes.
pub(crate) const BYTES: usize = 10;

const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;

const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;

const ETHERNET: usize = 14;
const UDP: u8 = 17;

/// What to tell the kernel about an outbound frame.
pub(crate) fn header_for(packet: &TxPacket<'_>) -> [u8; BYTES] {
    let mut header = [0; BYTES];
    let headers = packet.headers();
    let Some(checksum_offset) = packet.checksum_offset else {
        return header;
    };
    // All lengths here are below `TxPacket`'s headroom.
    let transport = headers
        .len()
        .saturating_sub(usize::from(packet.transport_bytes));
    header[0] = NEEDS_CSUM;
    header[6..8].copy_from_slice(&(transport as u16).to_ne_bytes());
    header[8..10].copy_from_slice(&u16::from(checksum_offset).to_ne_bytes());
    if packet.segment_bytes != 0 && packet.payload_bytes() > usize::from(packet.segment_bytes) {
        header[1] = gso_type(headers);
        header[2..4].copy_from_slice(&(headers.len() as u16).to_ne_bytes());
        header[4..6].copy_from_slice(&packet.segment_bytes.to_ne_bytes());
    }
    header
}

/// The spans of an outbound frame with its virtio-net header, in order, for one gathering write.
pub(crate) fn gather(header: &[u8; BYTES], packet: &TxPacket<'_>) -> [libc::iovec; 4] {
    let span = |at: *const u8, bytes: usize| libc::iovec {
        // The kernel only reads, though the struct can't say so.
        iov_base: at.cast_mut().cast(),
        iov_len: bytes,
    };
    let headers = packet.headers();
    let [first, second] = packet.payload;
    [
        span(header.as_ptr(), BYTES),
        span(headers.as_ptr(), headers.len()),
        span(first.as_ptr(), first.len()),
        span(second.as_ptr(), second.len()),
    ]
}

/// By the IP header. Who sets `segment_bytes` sends TCP or UDP without extension headers.
fn gso_type(headers: &[u8]) -> u8 {
    let byte = |at: usize| headers.get(ETHERNET + at).copied().unwrap_or(0);
    match byte(0) >> 4 {
        4 if byte(9) != UDP => GSO_TCPV4,
        6 if byte(6) != UDP => GSO_TCPV6,
        _ => GSO_UDP_L4,
    }
}

/// What the kernel says about an inbound frame: its checksum, and the payload bytes of each segment
/// if several were joined.
pub(crate) fn parse(header: &[u8; BYTES]) -> (RxChecksum, u16) {
    let [flags, gso_type, _, _, size_low, size_high, ..] = *header;
    let checksum = if flags & (NEEDS_CSUM | DATA_VALID) != 0 {
        RxChecksum::Verified
    } else {
        RxChecksum::Unverified
    };
    let segment_bytes = match gso_type {
        GSO_NONE => 0,
        _ => u16::from_ne_bytes([size_low, size_high]),
    };
    (checksum, segment_bytes)
}

#[cfg(test)]
mod tests;
