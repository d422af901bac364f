//! A place on the way that takes smaller packets than the link does, and says so: what a router in
//! front of a tunnel is to hosts behind it.

use crate::frame::Frame;
use crate::pinger::Pinger;
use core::net::{Ipv4Addr, Ipv6Addr};
use skink_messages::RxChecksum;
use skink_wire::{ChecksumPolicy, MacAddr, ethernet, icmpv4, icmpv6, ipv4, ipv6, protocol};

const ROUTER_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 201);
const ROUTER_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 201);

/// The error that a frame too large for `mtu` earns its sender, in place of getting through. Packets
/// that may be fragmented pass whole, and frames within one machine pass anyhow.
pub fn refuse(frame: &Frame, mtu: u32) -> Option<Frame> {
    if frame.bytes.len() <= mtu as usize + ethernet::LEN || frame.segment_bytes > 0 {
        return None;
    }
    let (link, packet) = ethernet::Header::parse(&frame.bytes).ok()?;
    let packet_out = match link.ethertype {
        ethernet::IPV4 => fragmentation_needed(packet, mtu)?,
        ethernet::IPV6 => packet_too_big(packet, mtu)?,
        _ => return None,
    };
    let mut bytes = answer_header(link.source, link.ethertype)
        .to_bytes()
        .to_vec();
    bytes.extend_from_slice(&packet_out);
    Some(Frame {
        bytes,
        checksum: RxChecksum::Unverified,
        segment_bytes: 0,
    })
}

fn answer_header(to: MacAddr, ethertype: u16) -> ethernet::Header {
    ethernet::Header {
        destination: to,
        source: Pinger::MAC,
        ethertype,
    }
}

fn fragmentation_needed(packet: &[u8], mtu: u32) -> Option<Vec<u8>> {
    let (ip, _) = ipv4::Header::parse(packet, ChecksumPolicy::Verify).ok()?;
    if !ip.dont_fragment {
        return None;
    }
    let message = icmpv4::Message::DestinationUnreachable {
        code: icmpv4::unreachable::FRAGMENTATION_NEEDED,
        next_hop_mtu: mtu as u16,
        quoted: packet.get(..usize::from(ip.header_len) + 8)?,
    };
    let header = ipv4::Header {
        dscp_ecn: 0,
        total_len: (ipv4::LEN + message.emitted_len()) as u16,
        identification: 0,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        ttl: 64,
        protocol: protocol::ICMP,
        source: ROUTER_V4,
        destination: ip.source,
        header_len: ipv4::LEN as u8,
    };
    let mut bytes = header.to_bytes().to_vec();
    bytes.resize(ipv4::LEN + message.emitted_len(), 0);
    let _ = message.emit(&mut bytes[ipv4::LEN..]);
    Some(bytes)
}

fn packet_too_big(packet: &[u8], mtu: u32) -> Option<Vec<u8>> {
    let (ip, _) = ipv6::Header::parse(packet).ok()?;
    let message = icmpv6::Message::PacketTooBig {
        mtu,
        quoted: packet.get(..packet.len().min(1000))?,
    };
    let mut body = vec![0; 1100];
    let length = message.emit(ROUTER_V6, ip.source, &mut body);
    let header = ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        payload_len: length as u16,
        next_header: protocol::ICMPV6,
        hop_limit: 64,
        source: ROUTER_V6,
        destination: ip.source,
    };
    let mut bytes = header.to_bytes().to_vec();
    bytes.extend_from_slice(&body[..length]);
    Some(bytes)
}
