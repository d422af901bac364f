//! Frames from a sender on this machine.

use skink_wire::checksum::Sum;
use skink_wire::ethernet;
use std::net::IpAddr;

/// Offset of the checksum field in a transport header, for TCP and UDP.
fn field_of(protocol: u8) -> Option<usize> {
    match protocol {
        6 => Some(16),
        17 => Some(6),
        _ => None,
    }
}

/// Whether the frame's transport checksum field holds just the sum of the pseudo-header: its sender
/// left the rest to a card, as the kernel does with `CHECKSUM_PARTIAL`. Frames with anything unusual
/// in their headers are answered with no, and are verified like any other.
pub(super) fn checksum_was_left_out(frame: &[u8]) -> bool {
    left_out(frame) == Some(true)
}

fn left_out(frame: &[u8]) -> Option<bool> {
    let packet = frame.get(ethernet::LEN..)?;
    let (source, destination, protocol, transport) = match word(frame, 12)? {
        ethernet::IPV4 => ipv4(packet)?,
        ethernet::IPV6 => ipv6(packet)?,
        _ => return None,
    };
    let field = word(transport, field_of(protocol)?)?;
    let length = u32::try_from(transport.len()).ok()?;
    Some(field == Sum::pseudo_header(source, destination, protocol, length).fold())
}

type Transport<'a> = (IpAddr, IpAddr, u8, &'a [u8]);

fn ipv4(packet: &[u8]) -> Option<Transport<'_>> {
    let header = usize::from(packet.first()? & 15) * 4;
    // Fragments have no checksum of their own.
    if word(packet, 6)? & 0x3fff != 0 {
        return None;
    }
    let transport = packet.get(header..usize::from(word(packet, 2)?))?;
    Some((
        address4(packet, 12)?,
        address4(packet, 16)?,
        *packet.get(9)?,
        transport,
    ))
}

fn ipv6(packet: &[u8]) -> Option<Transport<'_>> {
    let end = 40 + usize::from(word(packet, 4)?);
    let transport = packet.get(40..end)?;
    Some((
        address6(packet, 8)?,
        address6(packet, 24)?,
        *packet.get(6)?,
        transport,
    ))
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes(bytes.try_into().ok()?))
}

fn address4(bytes: &[u8], at: usize) -> Option<IpAddr> {
    let bytes: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(IpAddr::from(bytes))
}

fn address6(bytes: &[u8], at: usize) -> Option<IpAddr> {
    let bytes: [u8; 16] = bytes.get(at..at + 16)?.try_into().ok()?;
    Some(IpAddr::from(bytes))
}

#[cfg(test)]
mod tests;
