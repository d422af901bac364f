//! Cutting a large packet into segments (TCP) or datagrams (UDP), as a NIC with TSO or USO would.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use skink_memory::Bytes;
use skink_messages::TxPacket;
use skink_wire::{SeqNum, Sum, ethernet, ipv4, ipv6, protocol, tcp, udp};

/// Where the headers of a packet begin and end, checked once before any is changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    is_v4: bool,
    /// [`protocol::TCP`] or [`protocol::UDP`].
    pub(crate) protocol: u8,
    /// Where the transport header begins in the frame.
    transport: usize,
    /// Length of all headers in the frame.
    pub(crate) headers: usize,
}

impl Layout {
    /// The layout of `packet` if it can be cut: TCP or UDP right behind an IP header.
    pub(crate) fn of(packet: &TxPacket<'_>, ethertype: u16) -> Option<Layout> {
        let headers = packet.headers();
        let network = usize::from(packet.network_bytes);
        let transport = ethernet::LEN + network;
        if transport + usize::from(packet.transport_bytes) != headers.len() {
            return None;
        }
        let (is_v4, protocol_at, least) = match ethertype {
            ethernet::IPV4 => (true, ethernet::LEN + 9, ipv4::LEN),
            ethernet::IPV6 => (false, ethernet::LEN + 6, ipv6::LEN),
            _ => return None,
        };
        let protocol = *headers.get(protocol_at)?;
        let least_transport = match protocol {
            protocol::TCP => tcp::LEN,
            protocol::UDP => udp::LEN,
            _ => return None,
        };
        let fits = network >= least && usize::from(packet.transport_bytes) >= least_transport;
        fits.then_some(Layout {
            is_v4,
            protocol,
            transport,
            headers: headers.len(),
        })
    }

    /// Where the checksum is in the transport header.
    pub(crate) fn checksum_offset(&self) -> u8 {
        match self.protocol {
            protocol::TCP => tcp::CHECKSUM_OFFSET as u8,
            _ => udp::CHECKSUM_OFFSET as u8,
        }
    }
}

/// One piece of a packet's payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    /// Counts the pieces of a packet, or rather the segments: a piece that the NIC cuts further
    /// counts as many as it will become.
    pub(crate) index: u16,
    /// Where it begins in the payload.
    pub(crate) offset: usize,
    /// Its length.
    pub(crate) len: usize,
    /// Whether it ends the payload.
    pub(crate) is_last: bool,
}

/// `len` bytes of `payload` from `offset` on, in place.
pub(crate) fn part<'a>(payload: [Bytes<'a>; 2], offset: usize, len: usize) -> [Bytes<'a>; 2] {
    let [first, second] = payload;
    let (before, rest) = first.split_at(offset);
    let (_, second) = second.split_at(offset - before.len());
    let (front, _) = rest.split_at(len);
    let (back, _) = second.split_at(len - front.len());
    [front, back]
}

/// A packet for `piece` with headers made from those of `whole`, its checksum field holding the sum
/// of the pseudo-header. Its payload is still to be set.
pub(crate) fn segment<'a>(whole: &TxPacket<'_>, layout: &Layout, piece: &Piece) -> TxPacket<'a> {
    let mut packet = TxPacket::new([Bytes::EMPTY; 2]);
    packet.transport_bytes = whole.transport_bytes;
    packet.network_bytes = whole.network_bytes;
    let headers = packet.prepend(layout.headers);
    headers.copy_from_slice(whole.headers());
    let (network, transport) = headers.split_at_mut(layout.transport);
    let transport_len = transport.len() + piece.len;
    let network = network.get_mut(ethernet::LEN..).unwrap_or_default();
    let pseudo_header = if layout.is_v4 {
        fix_ipv4(network, piece, transport_len)
    } else {
        fix_ipv6(network, transport_len)
    };
    let sum = pseudo_header.map_or(0, |(source, destination)| {
        // A packet is at most 65,535 bytes long.
        Sum::pseudo_header(source, destination, layout.protocol, transport_len as u32).fold()
    });
    match layout.protocol {
        protocol::TCP => fix_tcp(transport, piece),
        _ => put_u16(transport, 4, transport_len as u16),
    }
    put_u16(transport, usize::from(layout.checksum_offset()), sum);
    packet
}

fn fix_ipv4(network: &mut [u8], piece: &Piece, transport_len: usize) -> Option<(IpAddr, IpAddr)> {
    let total_len = network.len() + transport_len;
    put_u16(network, 2, total_len as u16);
    // Each packet has an identification of its own (RFC 6864), as if sent one by one.
    let identification = u16::from_be_bytes([*network.get(4)?, *network.get(5)?]);
    put_u16(network, 4, identification.wrapping_add(piece.index));
    put_u16(network, 10, 0);
    let mut sum = Sum::new();
    sum.add_bytes(network);
    put_u16(network, 10, sum.finish());
    let source: [u8; 4] = *network.get(12..)?.first_chunk()?;
    let destination: [u8; 4] = *network.get(16..)?.first_chunk()?;
    Some((
        Ipv4Addr::from(source).into(),
        Ipv4Addr::from(destination).into(),
    ))
}

fn fix_ipv6(network: &mut [u8], transport_len: usize) -> Option<(IpAddr, IpAddr)> {
    let payload_len = network.len().saturating_sub(ipv6::LEN) + transport_len;
    put_u16(network, 4, payload_len as u16);
    let source: [u8; 16] = *network.get(8..)?.first_chunk()?;
    let destination: [u8; 16] = *network.get(24..)?.first_chunk()?;
    Some((
        Ipv6Addr::from(source).into(),
        Ipv6Addr::from(destination).into(),
    ))
}

/// The first segment alone says that the window was reduced (RFC 3168 6.1.2), the last alone that
/// the data is to be pushed and that it is all.
fn fix_tcp(header: &mut [u8], piece: &Piece) {
    let Some(fields) = header.first_chunk_mut::<{ tcp::LEN }>() else {
        return;
    };
    let seq = u32::from_be_bytes([fields[4], fields[5], fields[6], fields[7]]);
    let seq = SeqNum(seq) + piece.offset as u32;
    fields[4..8].copy_from_slice(&seq.0.to_be_bytes());
    let mut dropped = tcp::Flags::EMPTY;
    if piece.offset != 0 {
        dropped |= tcp::Flags::CWR;
    }
    if !piece.is_last {
        dropped |= tcp::Flags::FIN | tcp::Flags::PSH;
    }
    let flags = u16::from_be_bytes([fields[12], fields[13]]) & !dropped.bits();
    fields[12..14].copy_from_slice(&flags.to_be_bytes());
}

/// Writes `value` at offset `at`, or nothing where that is beyond the end.
pub(crate) fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(field) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        *field = value.to_be_bytes();
    }
}
