use crate::test_support::*;
use crate::{Nic, NicSpec, Opener, Sharing, interface, open_sole};
use skink_memory::Bytes;
use skink_messages::{RxChecksum, TxPacket};
use skink_wire::{MacAddr, arp, protocol};
use std::net::UdpSocket;
use std::time::Duration;

fn spec() -> NicSpec {
    NicSpec::Tap("t".into())
}

/// A TAP whose kernel end is B, and its MAC address.
fn open() -> (Nic, MacAddr) {
    let nic = open_sole(&spec()).unwrap().attach().unwrap();
    (nic, address_kernel_end())
}

fn address_kernel_end() -> MacAddr {
    ip(&format!("addr add {IP_B}/24 dev t"));
    interface::find("t").unwrap().unwrap().mac.unwrap()
}

fn is_arp(operation: arp::Operation) -> impl Fn(&[u8]) -> bool {
    move |frame| {
        frame.get(12..14) == Some(&[0x08, 0x06])
            && arp::Packet::parse(&frame[14..]).is_ok_and(|packet| packet.operation == operation)
    }
}

#[test]
fn the_kernel_answers_arp() {
    in_namespace(|| {
        let (mut nic, kernel_mac) = open();
        let mac = nic.capabilities.mac;
        assert_ne!(mac, kernel_mac);
        assert!(mac.is_unicast() && mac.0[0] & 2 != 0);
        assert_eq!(nic.capabilities.mtu, 1500);
        send(&mut nic, &arp_request(mac, IP_A, IP_B));
        let frames = receive(&mut *nic.receiver, 1, is_arp(arp::Operation::Reply));
        let reply = arp::Packet::parse(&frames[0].bytes[14..]).unwrap();
        assert_eq!((reply.sender_mac, reply.target_mac), (kernel_mac, mac));
        assert_eq!(reply.sender_ip, IP_B);
    });
}

#[test]
fn the_kernel_leaves_checksums_to_us_and_completes_ours() {
    in_namespace(|| {
        let (mut nic, kernel_mac) = open();
        let mac = nic.capabilities.mac;
        ip(&format!("neigh add {IP_A} lladdr {mac} dev t"));
        let socket = UdpSocket::bind((IP_B, 9)).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        // To the kernel, which cuts it into datagrams and verifies each.
        let payload = pattern(7500);
        let packet = datagram(&payload, (0x1234, 9), (mac, kernel_mac), 1000);
        send(&mut nic, &packet);
        let mut buffer = [0; 2000];
        for expected in payload.chunks(1000) {
            let (bytes, from) = socket.recv_from(&mut buffer).unwrap();
            assert_eq!(&buffer[..bytes], expected);
            assert_eq!(from, (IP_A, 0x1234).into());
        }
        // And from it.
        socket.send_to(&payload[..1000], (IP_A, 0x1234)).unwrap();
        let is_udp =
            |frame: &[u8]| frame.get(12..14) == Some(&[8, 0]) && frame.get(23) == Some(&17);
        let frames = receive(&mut *nic.receiver, 1, is_udp);
        assert_eq!(frames[0].bytes[42..], payload[..1000]);
        assert_eq!(frames[0].checksum, RxChecksum::Verified);
        assert!(holds_partial_checksum(&frames[0].bytes, 6, protocol::UDP));
        assert_eq!(nic.sender.take_dropped(), 0);
    });
}

#[test]
fn all_owners_see_what_the_kernel_asks_and_one_gets_each_flow() {
    in_namespace(|| {
        let mut opener = Opener::new(&spec(), Sharing::Several).unwrap();
        let kernel_mac = address_kernel_end();
        if let Some(steering) = opener.steering() {
            let ours = skink_wire::IpCidr::new(IP_A.into(), 24).unwrap();
            steering.set_addresses(&[ours]).unwrap();
        }
        let mut owners: Vec<Nic> = (0..3)
            .map(|owner| opener.open(owner).unwrap().attach().unwrap())
            .collect();
        let mac = owners[0].capabilities.mac;
        assert!(owners.iter().all(|owner| owner.capabilities.mac == mac));

        let socket = UdpSocket::bind((IP_B, 9)).unwrap();
        socket.send_to(b"who?", (IP_A, 1000)).unwrap();
        let asks = is_arp(arp::Operation::Request);
        for owner in &mut owners {
            let mut kept = receive(&mut *owner.receiver, 1, &asks);
            while receive_now(&mut *owner.receiver, &mut kept, &asks) > 0 {}
            assert_eq!(kept.len(), 1);
        }
        ip(&format!("neigh replace {IP_A} lladdr {mac} dev t"));
        let is_flow =
            |frame: &[u8]| frame.get(23) == Some(&17) && frame.get(36..38) > Some(&[8, 0]);
        let deliver = |owners: &mut [Nic]| -> usize {
            for port in 0..100 {
                socket.send_to(b"flow", (IP_A, 3000 + port)).unwrap();
            }
            let mut kept = Vec::new();
            for owner in owners {
                while receive_now(&mut *owner.receiver, &mut kept, is_flow) > 0 {}
            }
            kept.len()
        };
        assert_eq!(deliver(&mut owners), 100);
        // The interface outlives the owners, and whoever stays gets everything.
        owners.remove(0);
        opener.close(0);
        assert_eq!(deliver(&mut owners), 100);
        owners.clear();
        opener.close(1);
        opener.close(2);
        let mut again = opener.open(0).unwrap().attach().unwrap();
        assert_eq!(again.capabilities.mac, mac);
        assert_eq!(deliver(std::slice::from_mut(&mut again)), 100);
        let mac_now = interface::find("t").unwrap().unwrap().mac;
        assert_eq!(mac_now, Some(kernel_mac));
    });
}

#[test]
fn the_interface_goes_with_its_users() {
    in_namespace(|| {
        let nic = open_sole(&spec()).unwrap().attach().unwrap();
        assert!(interface::find("t").unwrap().unwrap().up);
        drop(nic);
        assert_eq!(interface::find("t").unwrap(), None);
    });
}

#[test]
fn attaching_and_using_need_no_privileges() {
    in_namespace(|| {
        let parts = open_sole(&spec()).unwrap();
        address_kernel_end();
        become_nobody();
        let error = open_sole(&NicSpec::Tap("u".into()))
            .unwrap_err()
            .to_string();
        assert!(error.contains("run as root"), "{error}");
        let mut nic = parts.attach().unwrap();
        let mac = nic.capabilities.mac;
        send(&mut nic, &arp_request(mac, IP_A, IP_B));
        receive(&mut *nic.receiver, 1, is_arp(arp::Operation::Reply));
    });
}

#[test]
fn a_tag_that_tells_a_priority_only_counts_as_none() {
    in_namespace(|| {
        make_veth();
        let mut far = open_packet("a0");
        for sharing in [Sharing::Sole, Sharing::Several] {
            let mut opener = Opener::new(&spec(), sharing).unwrap();
            let mut nic = opener.open(0).unwrap().attach().unwrap();
            // A bridge keeps the tags of what it passes on.
            ip("link add name bridge type bridge");
            for name in ["b0", "t", "bridge"] {
                ip(&format!("link set dev {name} up"));
                if name != "bridge" {
                    ip(&format!("link set dev {name} master bridge"));
                }
            }
            wait_until(|| interface::find("bridge").unwrap().unwrap().running);
            let wanted = is_arp(arp::Operation::Request);
            for tag in [[0, 5], [0xa0, 5], [0xa0, 0], [0, 0]] {
                let request = arp_request(MAC_A, IP_B, IP_A);
                let mut frame = request.headers().to_vec();
                frame.splice(12..12, [[0x81, 0], tag].concat());
                send(
                    &mut far,
                    &TxPacket::new([Bytes::from(&frame[..]), Bytes::EMPTY]),
                );
                if tag[1] == 0 {
                    let frames = receive(&mut *nic.receiver, 1, &wanted);
                    assert_eq!(frames.len(), 1, "once");
                    assert_eq!(frames[0].bytes, request.headers());
                }
            }
            ip("link del dev bridge");
        }
    });
}

#[test]
fn a_tap_that_is_deleted_keeps_nobody_awake() {
    in_namespace(|| {
        for sharing in [Sharing::Sole, Sharing::Several] {
            let mut opener = Opener::new(&spec(), sharing).unwrap();
            // Of a process that died; what it had isn't all that its successor sees.
            drop(opener.open_again(0).unwrap().0.attach().unwrap());
            let (parts, again) = opener.open_again(0).unwrap();
            assert!(again);
            let mut nic = parts.attach().unwrap();
            address_kernel_end();
            ip("link del dev t");
            comes_to_rest(&mut *nic.receiver);
            // What is sent is lost, and holds nobody up.
            let mac = nic.capabilities.mac;
            send(&mut nic, &arp_request(mac, IP_A, IP_B));
            assert_eq!(nic.sender.take_dropped(), 1);
            assert!(nic.sender.blocked_on().is_none());
        }
    });
}

#[test]
fn taps_that_exist_already() {
    in_namespace(|| {
        ip("tuntap add dev t mode tap");
        let (mut nic, _) = open();
        let mac = nic.capabilities.mac;
        send(&mut nic, &arp_request(mac, IP_A, IP_B));
        receive(&mut *nic.receiver, 1, is_arp(arp::Operation::Reply));
        ip("link add v type veth peer name w");
        for (name, sharing) in [("t", Sharing::Several), ("v", Sharing::Sole)] {
            let error = Opener::new(&NicSpec::Tap(name.into()), sharing)
                .err()
                .unwrap();
            assert!(error.to_string().contains("multi_queue"), "{error}");
        }
    });
}
