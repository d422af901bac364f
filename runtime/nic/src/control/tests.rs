use super::{is_control, outgoing_control};
use crate::socket;
use crate::test_support::{arp_request, in_namespace, make_veth};
use std::os::fd::{AsFd, OwnedFd};

const BROADCAST: [u8; 6] = [0xff; 6];

fn frame(ethertype: u16, packet: &[u8]) -> Vec<u8> {
    let mut frame = [BROADCAST, [2, 0, 0, 0, 0, 0xa]].concat();
    frame.extend(ethertype.to_be_bytes());
    frame.extend(packet);
    frame.resize(frame.len().max(60), 0);
    frame
}

/// An IPv4 packet with `words` words of header.
fn ipv4(words: u8, fragment: u16, protocol: u8, kind: u8) -> Vec<u8> {
    let mut packet = vec![0; usize::from(words) * 4 + 8];
    packet[0] = 0x40 | words;
    packet[6..8].copy_from_slice(&fragment.to_be_bytes());
    packet[9] = protocol;
    packet[usize::from(words) * 4] = kind;
    frame(0x0800, &packet)
}

fn ipv6(next_header: u8, kind: u8) -> Vec<u8> {
    let mut packet = vec![0; 48];
    packet[0] = 0x60;
    packet[6] = next_header;
    packet[40] = kind;
    frame(0x86dd, &packet)
}

/// Behind hop-by-hop options of 8 bytes.
fn behind_options(next_header: u8, kind: u8) -> Vec<u8> {
    let mut packet = vec![0; 56];
    packet[0] = 0x60;
    packet[40] = next_header;
    packet[48] = kind;
    frame(0x86dd, &packet)
}

fn table() -> Vec<(&'static str, Vec<u8>, bool)> {
    let arp = arp_request(
        skink_wire::MacAddr([2, 0, 0, 0, 0, 0xa]),
        [10, 0, 0, 1].into(),
        [10, 0, 0, 2].into(),
    );
    vec![
        ("ARP", frame(0x0806, &arp.headers()[14..]), true),
        ("unreachable", ipv4(5, 0, 1, 3), true),
        ("don't fragment", ipv4(5, 0x4000, 1, 3), true),
        ("behind options", ipv4(15, 0, 1, 11), true),
        ("parameter problem", ipv4(5, 0, 1, 12), true),
        ("echo request", ipv4(5, 0, 1, 8), false),
        ("echo reply", ipv4(5, 0, 1, 0), false),
        ("a later fragment", ipv4(5, 1, 1, 3), false),
        ("TCP", ipv4(5, 0, 6, 3), false),
        ("packet too big", ipv6(58, 2), true),
        ("echo request, IPv6", ipv6(58, 128), false),
        ("listener report", ipv6(58, 143), false),
        ("listener query", behind_options(58, 130), true),
        ("report behind options", behind_options(58, 143), false),
        ("UDP behind options", behind_options(17, 130), false),
        ("router solicitation", ipv6(58, 133), true),
        ("redirect", ipv6(58, 137), true),
        ("renumbering", ipv6(58, 138), false),
        ("UDP over IPv6", ipv6(17, 135), false),
        ("LLDP", frame(0x88cc, &[3; 50]), false),
    ]
}

#[test]
fn classes() {
    for (name, frame, expected) in table() {
        assert_eq!(is_control(&frame), expected, "{name}");
    }
    for bytes in 0..60 {
        // Whatever is missing, it doesn't panic.
        is_control(&ipv4(5, 0, 1, 3)[..bytes]);
        is_control(&ipv6(58, 2)[..bytes]);
    }
}

#[test]
fn the_kernel_filter_agrees() {
    in_namespace(|| {
        make_veth();
        let index = crate::interface::find("a0").unwrap().unwrap().index;
        let bound = || -> OwnedFd {
            let socket = socket::packet_socket().unwrap();
            socket::bind_to_interface(socket.as_fd(), index).unwrap();
            socket
        };
        let watcher = socket::packet_socket().unwrap();
        socket::attach_filter(watcher.as_fd(), &outgoing_control()).unwrap();
        socket::bind_to_interface(watcher.as_fd(), index).unwrap();
        let sender = bound();
        let mut buffer = [0; 2048];
        for (name, frame, expected) in table() {
            rustix::io::write(&sender, &frame).unwrap();
            // What the kernel says of its own accord is no frame of the table.
            let mut seen = false;
            while let Ok(bytes) = rustix::io::read(&watcher, &mut buffer[..]) {
                seen |= buffer[..bytes] == frame;
            }
            assert_eq!(seen, expected, "{name}");
        }
        // Inbound frames are none of its business.
        let peer = socket::packet_socket().unwrap();
        let index = crate::interface::find("b0").unwrap().unwrap().index;
        socket::bind_to_interface(peer.as_fd(), index).unwrap();
        let arp = &table()[0].1;
        rustix::io::write(&peer, arp).unwrap();
        while let Ok(bytes) = rustix::io::read(&watcher, &mut buffer[..]) {
            assert_ne!(buffer[..bytes], *arp);
        }
    });
}
