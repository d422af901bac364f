//! What `ip` asks `filter`, as it travels.

use core::net::IpAddr;
use skink_filter::{Direction, Family, Piece, Summary, Verdict};
use skink_lanes::{PacketDown, Question};
use skink_messages::ErrorKind;
use skink_messages::NetworkError;
use skink_wire::{Endpoint, Malformed, ethernet, protocol};

/// The question whether a packet may pass.
pub(crate) fn question(direction: Direction, summary: &Result<Summary, Malformed>) -> Question {
    let mut question = Question {
        id: 0,
        addresses: [[0; 16]; 4],
        length: 0,
        payload_length: 0,
        seq: 0,
        ack: 0,
        direction: direction as u32,
        window: 0,
        tcp_flags: 0,
        ports: [0; 4],
        family: 0,
        piece: 0,
        protocol: 0,
        icmp_type: 0,
        icmp_code: 0,
        quoted_protocol: 0,
        quoted_icmp_type: 0,
        reserved: 0,
    };
    if let Ok(summary) = summary {
        let Summary {
            source,
            destination,
            quoted_source,
            quoted_destination,
            length,
            payload_length,
            seq,
            ack,
            window,
            tcp_flags,
            source_port,
            destination_port,
            quoted_source_port,
            quoted_destination_port,
            family,
            piece,
            protocol,
            icmp_type,
            icmp_code,
            quoted_protocol,
            quoted_icmp_type,
            reserved: _,
        } = *summary;
        let addresses = [source, destination, quoted_source, quoted_destination];
        question = Question {
            addresses: addresses.map(u128::to_be_bytes),
            length,
            payload_length,
            seq,
            ack,
            window,
            tcp_flags,
            ports: [
                source_port,
                destination_port,
                quoted_source_port,
                quoted_destination_port,
            ],
            family: family as u8,
            piece: piece as u8,
            protocol,
            icmp_type,
            icmp_code,
            quoted_protocol,
            quoted_icmp_type,
            ..question
        };
    }
    question
}

/// The packet that a question is about; `None` if the question makes no sense.
pub(crate) fn packet(question: &Question) -> Option<(Direction, Result<Summary, Malformed>)> {
    let direction = match question.direction {
        1 => Direction::In,
        2 => Direction::Out,
        _ => return None,
    };
    let family = match question.family {
        0 => return Some((direction, Err(Malformed::TooShort))),
        4 => Family::V4,
        6 => Family::V6,
        _ => return None,
    };
    let piece = match question.piece {
        0 => Piece::Whole,
        1 => Piece::First,
        2 => Piece::Later,
        _ => return None,
    };
    let [source, destination, quoted_source, quoted_destination] =
        question.addresses.map(u128::from_be_bytes);
    let [
        source_port,
        destination_port,
        quoted_source_port,
        quoted_destination_port,
    ] = question.ports;
    let summary = Summary {
        source,
        destination,
        quoted_source,
        quoted_destination,
        length: question.length,
        payload_length: question.payload_length,
        seq: question.seq,
        ack: question.ack,
        window: question.window,
        tcp_flags: question.tcp_flags,
        source_port,
        destination_port,
        quoted_source_port,
        quoted_destination_port,
        family,
        piece,
        protocol: question.protocol,
        icmp_type: question.icmp_type,
        icmp_code: question.icmp_code,
        quoted_protocol: question.quoted_protocol,
        quoted_icmp_type: question.quoted_icmp_type,
        reserved: 0,
    };
    Some((direction, Ok(summary)))
}

/// The verdict that a number stands for. One that stands for none blocks: a filter that fails must not
/// leave the door open.
pub(crate) fn verdict(number: u8) -> Verdict {
    match number {
        1 => Verdict::Pass,
        3 => Verdict::Return,
        _ => Verdict::Drop,
    }
}

/// What the filter is to judge of a frame: whole packets, and pieces of others than TCP and UDP, which
/// are judged once they are whole. `None` if it is none of the filter's business.
pub(crate) fn of_frame(frame: &[u8]) -> Option<Result<Summary, Malformed>> {
    let (link, packet) = ethernet::Header::parse(frame).ok()?;
    if !matches!(link.ethertype, ethernet::IPV4 | ethernet::IPV6) {
        return None;
    }
    let summary = Summary::parse(packet);
    let is_part = summary.as_ref().is_ok_and(|summary| {
        summary.piece != Piece::Whole && matches!(summary.protocol, protocol::TCP | protocol::UDP)
    });
    (!is_part).then_some(summary)
}

/// What the filter is to judge of a transport's packet.
pub(crate) fn of_outbound(packet: &PacketDown) -> Result<Summary, Malformed> {
    let headers = packet.headers.as_slice();
    let bytes = headers
        .len()
        .saturating_add(packet.payload.bytes() as usize);
    let to = &packet.to;
    Summary::of_transport(to.source, to.destination, to.protocol, headers, bytes)
}

/// Whether a frame of ours is a message of `ip`'s own.
pub(crate) fn is_message(frame: &[u8]) -> bool {
    Summary::is_message(frame.get(ethernet::LEN..).unwrap_or_default())
}

/// What an ICMP error about the packet would say, had a router on the way blocked it (RFC 1812 section
/// 5.2.7.1: communication administratively prohibited).
pub(crate) fn prohibited(packet: &PacketDown) -> Option<NetworkError> {
    let fields = packet.headers.as_slice().first_chunk::<8>()?;
    let &[s0, s1, d0, d1, a, b, c, d] = fields;
    let end = |address: IpAddr, port| Endpoint::new(address, u16::from_be_bytes(port));
    Some(NetworkError {
        kind: ErrorKind::Prohibited,
        protocol: packet.to.protocol,
        local: end(packet.to.source, [s0, s1]),
        remote: end(packet.to.destination, [d0, d1]),
        sequence: u32::from_be_bytes([a, b, c, d]),
    })
}

/// Whether it is what a refusal is: a TCP reset without payload.
pub(crate) fn is_bare_reset(packet: &PacketDown) -> bool {
    const RST: u8 = 4;
    let flags = packet.headers.as_slice().get(13);
    packet.to.protocol == protocol::TCP
        && packet.payload.bytes() == 0
        && flags.is_some_and(|flags| flags & RST != 0)
}
