//! Asks the link whether somebody has an address already (RFC 5227, RFC 4862 section 5.4), since the
//! program would share it without a word otherwise.
use crate::failure::Failure;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::time::{ClockId, clock_gettime};
use skink_memory::Bytes;
use skink_messages::TxPacket;
use skink_nic::{Budget, Nic, NicSpec, open_sole};
use skink_time::Instant;
use skink_wire::{ChecksumPolicy, IpCidr, MacAddr, arp, ethernet, icmpv6, ipv6, protocol};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// How often to ask.
const PROBES: u32 = 2;
/// How long to wait for an answer each time. Hosts on the link answer within a millisecond or two.
const PATIENCE: Duration = Duration::from_millis(200);

/// Fails if one of the addresses is in use on the link of `interface`.
pub fn probe(interface: &str, addresses: &[IpCidr]) -> Result<(), Failure> {
    let parts = open_sole(&NicSpec::Packet(interface.to_owned()));
    let parts = parts.map_err(|error| Failure::own(error.to_string()))?;
    let failed = |error: std::io::Error| {
        Failure::own(format!(
            "can't ask on {interface} whether an address is in use ({error}): --no-probe goes without"
        ))
    };
    let mut nic = parts.attach().map_err(failed)?;
    let own = nic.capabilities.mac;
    for _ in 0..PROBES {
        for cidr in addresses {
            send(&mut nic, &question(own, cidr.addr));
        }
        nic.sender.flush();
        if let Some((address, mac)) = listen(&mut nic, addresses) {
            return Err(Failure::own(format!(
                "the address {address} is in use by {mac} on the link of {interface}: give the program another with --addr, or go ahead with --no-probe"
            )));
        }
    }
    Ok(())
}

fn now() -> Instant {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Instant::from_nanos(seconds * 1_000_000_000 + time.tv_nsec as u64)
}

fn send(nic: &mut Nic, frame: &[u8]) {
    let (header, payload) = frame.split_at(ethernet::LEN.min(frame.len()));
    let mut packet = TxPacket::new([payload.into(), Bytes::EMPTY]);
    packet.prepend(header.len()).copy_from_slice(header);
    let _ = nic.sender.send(&packet);
}

/// Waits for an answer about one of the addresses.
fn listen(nic: &mut Nic, addresses: &[IpCidr]) -> Option<(IpAddr, MacAddr)> {
    let deadline = now() + PATIENCE;
    loop {
        let time = now();
        let left = deadline.since(time);
        if left.is_zero() {
            return None;
        }
        wait(nic, left);
        let mut found = None;
        nic.receiver
            .receive(time, &mut Budget::frames(64), &mut |frame| {
                let answer = answer(frame.bytes)
                    .filter(|(address, _)| addresses.iter().any(|cidr| cidr.addr == *address));
                found = found.or(answer);
            });
        if found.is_some() {
            return found;
        }
    }
}

fn wait(nic: &Nic, limit: Duration) {
    let mut owned = Vec::new();
    nic.receiver
        .descriptors(&mut |descriptor| owned.extend(descriptor.try_clone_to_owned()));
    let mut descriptors: Vec<PollFd<'_>> = owned
        .iter()
        .map(|fd| PollFd::new(fd, PollFlags::IN))
        .collect();
    let limit = Timespec {
        tv_sec: limit.as_secs() as i64,
        tv_nsec: limit.subsec_nanos().into(),
    };
    let _ = rustix::event::poll(&mut descriptors, Some(&limit));
}

/// An ARP probe or a neighbour solicitation from the unspecified address.
fn question(own: MacAddr, address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => {
            let probe = arp::Packet {
                operation: arp::Operation::Request,
                sender_mac: own,
                sender_ip: Ipv4Addr::UNSPECIFIED,
                target_mac: MacAddr::UNSPECIFIED,
                target_ip: address,
            };
            let mut packet = [0; arp::LEN];
            let length = probe.emit(&mut packet);
            frame(
                own,
                MacAddr::BROADCAST,
                ethernet::ARP,
                packet.get(..length).unwrap_or_default(),
            )
        }
        IpAddr::V6(address) => solicitation(own, address),
    }
}

fn solicitation(own: MacAddr, address: Ipv6Addr) -> Vec<u8> {
    let [.., a, b, c] = address.octets();
    // The solicited-node group (RFC 4291 section 2.7.1).
    let group = Ipv6Addr::new(
        0xff02,
        0,
        0,
        0,
        0,
        1,
        0xff00 | u16::from(a),
        u16::from_be_bytes([b, c]),
    );
    let message = icmpv6::Message::NeighbourSolicitation(icmpv6::NeighbourSolicitation {
        target: address,
        source_link_layer: None,
    });
    let mut body = [0; 64];
    let length = message.emit(Ipv6Addr::UNSPECIFIED, group, &mut body);
    let body = body.get(..length).unwrap_or_default();
    let header = ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        payload_len: body.len() as u16,
        next_header: protocol::ICMPV6,
        hop_limit: 255,
        source: Ipv6Addr::UNSPECIFIED,
        destination: group,
    };
    let packet = [&header.to_bytes(), body].concat();
    frame(
        own,
        MacAddr::multicast_for_ipv6(group),
        ethernet::IPV6,
        &packet,
    )
}

fn frame(source: MacAddr, destination: MacAddr, ethertype: u16, packet: &[u8]) -> Vec<u8> {
    let header = ethernet::Header {
        destination,
        source,
        ethertype,
    };
    [&header.to_bytes(), packet].concat()
}

/// Whose address a frame says which one is.
fn answer(frame: &[u8]) -> Option<(IpAddr, MacAddr)> {
    let (header, packet) = ethernet::Header::parse(frame).ok()?;
    match header.ethertype {
        ethernet::ARP => {
            let packet = arp::Packet::parse(packet).ok()?;
            Some((packet.sender_ip.into(), packet.sender_mac))
        }
        ethernet::IPV6 => {
            let (ip, payload) = ipv6::Header::parse(packet).ok()?;
            if ip.next_header != protocol::ICMPV6 || ip.hop_limit != 255 {
                return None;
            }
            let policy = ChecksumPolicy::Verify;
            match icmpv6::Message::parse(ip.source, ip.destination, payload, policy).ok()? {
                icmpv6::Message::NeighbourAdvertisement(one) => {
                    Some((one.target.into(), header.source))
                }
                _ => None,
            }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_well_formed_and_answers_are_understood() {
        let own = MacAddr([2, 0, 0, 0, 0, 1]);
        let asked = question(own, "10.0.0.7".parse().expect("an address"));
        let (header, packet) = ethernet::Header::parse(&asked).expect("a header");
        assert_eq!(
            (header.destination, header.source),
            (MacAddr::BROADCAST, own)
        );
        let mut reply = arp::Packet::parse(packet).expect("a probe");
        assert_eq!(
            (reply.sender_ip, reply.target_ip),
            (Ipv4Addr::UNSPECIFIED, Ipv4Addr::new(10, 0, 0, 7))
        );
        // Our own question comes back as the unspecified address's.
        assert_eq!(answer(&asked), Some((Ipv4Addr::UNSPECIFIED.into(), own)));
        reply.operation = arp::Operation::Reply;
        reply.sender_ip = reply.target_ip;
        let mut bytes = [0; arp::LEN];
        assert_eq!(reply.emit(&mut bytes), arp::LEN);
        let reply = frame(own, own, ethernet::ARP, &bytes);
        assert_eq!(
            answer(&reply),
            Some((Ipv4Addr::new(10, 0, 0, 7).into(), own))
        );

        let asked = question(own, "fd77::12:3456".parse().expect("an address"));
        let (header, packet) = ethernet::Header::parse(&asked).expect("a header");
        assert_eq!(
            header.destination,
            MacAddr([0x33, 0x33, 0xff, 0x12, 0x34, 0x56])
        );
        let (ip, payload) = ipv6::Header::parse(packet).expect("a header");
        let message =
            icmpv6::Message::parse(ip.source, ip.destination, payload, ChecksumPolicy::Verify);
        assert!(
            matches!(message, Ok(icmpv6::Message::NeighbourSolicitation(_))),
            "{message:?}"
        );
        assert_eq!(answer(&asked), None);
        for length in 0..asked.len() {
            assert_eq!(answer(&asked[..length]), None);
        }
    }
}
