//! Frames in a line, for a run that is looked at.

use crate::frame::Frame;
use skink_wire::{ChecksumPolicy, ethernet, ipv4, ipv6, protocol, tcp, udp};

/// What a frame says.
pub fn frame(frame: &Frame) -> String {
    let Ok((link, packet)) = ethernet::Header::parse(&frame.bytes) else {
        return "short".to_owned();
    };
    let (source, destination, protocol, payload): (
        core::net::IpAddr,
        core::net::IpAddr,
        u8,
        &[u8],
    ) = match link.ethertype {
        ethernet::IPV4 => match ipv4::Header::parse(packet, ChecksumPolicy::Trust) {
            Ok((ip, payload)) if ip.fragment_offset == 0 => (
                ip.source.into(),
                ip.destination.into(),
                ip.protocol,
                payload,
            ),
            Ok((ip, _)) => return format!("{} > {} fragment", ip.source, ip.destination),
            Err(error) => return format!("broken IPv4: {error:?}"),
        },
        ethernet::IPV6 => match ipv6::Header::parse(packet) {
            Ok((ip, payload)) => (
                ip.source.into(),
                ip.destination.into(),
                ip.next_header,
                payload,
            ),
            Err(error) => return format!("broken IPv6: {error:?}"),
        },
        ethernet::ARP => return format!("{} > {} ARP", link.source, link.destination),
        other => return format!("ethertype {other:#x}"),
    };
    match protocol {
        protocol::TCP => match tcp::parse(payload) {
            Ok((header, options, data)) => format!(
                "{source}:{} > {destination}:{} {:?} seq {} ack {} win {} len {} seg {} {options:?}",
                header.source_port,
                header.destination_port,
                header.flags,
                header.seq.0,
                header.ack.0,
                header.window,
                data.len(),
                frame.segment_bytes,
            ),
            Err(error) => format!("{source} > {destination} broken TCP: {error:?}"),
        },
        protocol::UDP => match udp::Header::parse(payload) {
            Ok((header, data)) => format!(
                "{source}:{} > {destination}:{} UDP len {}",
                header.source_port,
                header.destination_port,
                data.len()
            ),
            Err(error) => format!("{source} > {destination} UDP: {error:?}"),
        },
        other => format!(
            "{source} > {destination} protocol {other} len {}",
            payload.len()
        ),
    }
}
