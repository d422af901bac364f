use super::geometry::{Direction, configure};
use super::*;
use crate::test_support::*;
use crate::{NicSpec, Opener, Sharing, open_sole};
use skink_memory::Bytes;
use skink_messages::{RxChecksum, TxPacket};
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::sync::Arc;

const MACS: (MacAddr, MacAddr) = (MAC_A, MAC_B);

/// The payload of a UDP frame that `datagram` made.
fn udp_payload(frame: &Kept) -> &[u8] {
    &frame.bytes[42..]
}

#[test]
fn batches_arrive_whole_and_in_order() {
    in_namespace(|| {
        make_veth();
        let (mut a, mut b) = (open_packet("a0"), open_packet("b0"));
        assert_eq!(a.capabilities.mac, MAC_A);
        assert_eq!(a.capabilities.mtu, 1500);
        let payloads: Vec<Vec<u8>> = (0..200).map(|n| pattern(n * 7)).collect();
        for payload in &payloads {
            while a.sender.room() == 0 {}
            let packet = datagram(payload, (0x1234, 9), MACS, 0);
            a.sender.send(&packet).unwrap();
        }
        a.sender.flush();
        let frames = receive(&mut *b.receiver, payloads.len(), is_ours);
        for (frame, payload) in frames.iter().zip(&payloads) {
            assert_eq!(udp_payload(frame), payload);
            assert_eq!(frame.checksum, RxChecksum::Verified);
            assert_eq!(frame.segment_bytes, 0);
        }
        assert!(!becomes_readable(&*b.receiver, std::time::Duration::ZERO));
        let lost = [a.sender.take_dropped(), b.receiver.take_dropped()];
        assert_eq!(lost, [0, 0]);
        // It doesn't hear itself.
        let mut echoes = Vec::new();
        receive_now(&mut *a.receiver, &mut echoes, is_ours);
        assert_eq!(echoes, []);
    });
}

#[test]
fn a_super_frame_crosses_a_veth_pair_joined() {
    in_namespace(|| {
        make_veth();
        let (mut a, mut b) = (open_packet("a0"), open_packet("b0"));
        let payload = pattern(65_000);
        for (ipv6, headers) in [(false, 54), (true, 74)] {
            let (first, second) = payload.split_at(20_001);
            send(&mut a, &stream([first, second], 1448, ipv6));
            let frames = receive(&mut *b.receiver, 1, is_ours);
            assert_eq!(frames[0].bytes[headers..], payload);
            assert_eq!(frames[0].segment_bytes, 1448);
            assert_eq!(frames[0].checksum, RxChecksum::Verified);
        }
        assert_eq!(a.sender.take_dropped(), 0);
    });
}

#[test]
fn the_kernel_cuts_a_super_frame_for_an_interface_that_cannot() {
    in_namespace(|| {
        make_veth();
        ip("link set a0 gso_max_size 3000");
        let (mut a, mut b) = (open_packet("a0"), open_packet("b0"));
        let payload = pattern(20_000);
        send(&mut a, &stream([&payload, &[]], 1448, false));
        let count = payload.len().div_ceil(1448);
        let frames = receive(&mut *b.receiver, count, is_ours);
        let mut joined = Vec::new();
        for frame in &frames {
            let sequence = u32::from_be_bytes(frame.bytes[38..42].try_into().unwrap());
            assert_eq!(sequence as usize, joined.len());
            joined.extend_from_slice(&frame.bytes[54..]);
        }
        assert_eq!(joined, payload);
    });
}

#[test]
fn small_and_large_frames_keep_their_order() {
    in_namespace(|| {
        make_veth();
        let (mut a, mut b) = (open_packet("a0"), open_packet("b0"));
        let large = pattern(30_000);
        let sent: [&[u8]; 5] = [&[1], &large, &[2], &[3], &large];
        for payload in sent {
            let packet = stream([payload, &[]], 1448, false);
            a.sender.send(&packet).unwrap();
        }
        a.sender.flush();
        let frames = receive(&mut *b.receiver, sent.len(), is_ours);
        let received: Vec<&[u8]> = frames.iter().map(|frame| &frame.bytes[54..]).collect();
        assert_eq!(received, sent);
    });
}

#[test]
fn a_frame_that_the_kernel_refuses_is_counted_and_holds_nobody_up() {
    in_namespace(|| {
        make_veth();
        let (mut a, mut b) = (open_packet("a0"), open_packet("b0"));
        let (small, oversize) = (pattern(100), pattern(3000));
        for payload in [&small, &oversize, &oversize, &small] {
            let packet = datagram(payload, (0x1234, 9), MACS, 0);
            a.sender.send(&packet).unwrap();
        }
        a.sender.flush();
        let frames = receive(&mut *b.receiver, 2, is_ours);
        assert!(frames.iter().all(|frame| udp_payload(frame) == small));
        assert_eq!(a.sender.take_dropped(), 2);
        assert_eq!(a.sender.take_dropped(), 0);
    });
}

#[test]
fn frames_beyond_the_ring_are_counted_and_it_goes_on() {
    in_namespace(|| {
        make_veth();
        let (mut a, mut b) = (open_packet("a0"), open_packet("b0"));
        let numbers: Vec<[u8; 2]> = (0..1000u16).map(u16::to_be_bytes).collect();
        for number in &numbers {
            send(&mut a, &datagram(number, (0x1234, 9), MACS, 0));
        }
        let mut kept = Vec::new();
        while receive_now(&mut *b.receiver, &mut kept, is_ours) > 0 {}
        let ring = Geometry::FLOWS.frames() as usize;
        assert!(
            kept.len() <= ring && kept.len() + 20 > ring,
            "{}",
            kept.len()
        );
        for (frame, number) in kept.iter().zip(&numbers) {
            assert_eq!(udp_payload(frame), number);
        }
        // The kernel says so with the next frame.
        send(&mut a, &datagram(b"last", (0x1234, 9), MACS, 0));
        let last = receive(&mut *b.receiver, 1, is_ours);
        assert_eq!(udp_payload(&last[0]), b"last");
        let lost = b.receiver.take_dropped() as usize;
        assert!(lost >= numbers.len() - kept.len(), "{lost}");
        assert_eq!(b.receiver.take_dropped(), 0);
    });
}

#[test]
fn truncated_and_tagged_frames_are_dropped_and_counted() {
    in_namespace(|| {
        make_veth();
        let mut a = open_packet("a0");
        let index = interface::find("b0").unwrap().unwrap().index;
        let socket = socket::packet_socket().unwrap();
        configure(socket.as_fd(), Geometry::CONTROL, Direction::Inbound).unwrap();
        socket::bind_to_interface(socket.as_fd(), index).unwrap();
        let mut ring = Ring::map(socket, Geometry::CONTROL, Past::Unused).unwrap();

        let large = pattern(2000);
        send(&mut a, &stream([&large, &[]], 1448, false));
        let mut tagged = datagram(b"tagged", (0x1234, 9), MACS, 0);
        tagged.strip(skink_wire::ethernet::LEN);
        let header = tagged.prepend(18);
        header[..6].copy_from_slice(&MAC_B.0);
        header[6..12].copy_from_slice(&MAC_A.0);
        header[12..18].copy_from_slice(&[0x81, 0, 0, 5, 0x08, 0]);
        send(&mut a, &tagged);
        send(&mut a, &datagram(b"whole", (0x1234, 9), MACS, 0));

        let mut kept: Vec<Vec<u8>> = Vec::new();
        while kept.is_empty() {
            ring.receive(Instant::ZERO, &mut Budget::frames(16), &mut |frame| {
                if is_ours(frame.bytes) {
                    kept.push(frame.bytes[42..].to_vec());
                }
            });
        }
        assert_eq!(kept, [b"whole"]);
        assert_eq!(ring.take_dropped(), 2);
    });
}

/// The frame of a datagram from A to B that holds `payload`, with a VLAN tag.
fn tagged(tag: u16, payload: &[u8]) -> Vec<u8> {
    let packet = datagram(payload, (0x1234, 9), MACS, 0);
    let mut frame = vec![0; packet.len()];
    packet.copy_to(&mut frame).unwrap();
    let [high, low] = tag.to_be_bytes();
    frame.splice(12..12, [0x81, 0, high, low]);
    frame
}

fn send_as_is(nic: &mut Nic, frame: &[u8]) {
    send(nic, &TxPacket::new([Bytes::from(frame), Bytes::EMPTY]));
}

#[test]
fn a_tag_that_tells_a_priority_only_counts_as_none() {
    in_namespace(|| {
        make_veth();
        for name in ["a0", "b0"] {
            ip(&format!("link set {name} mtu 9000"));
        }
        let (mut a, mut sole) = (open_packet("a0"), open_packet("b0"));
        let Some((_opener, mut owners)) = two_owners() else {
            return;
        };
        let large = pattern(3000);
        for payload in [b"small", &large[..]] {
            for tag in [0xa000, 0xa005, 0x0005, 0] {
                send_as_is(&mut a, &tagged(tag, payload));
            }
            let mut kept = Vec::new();
            for owner in &mut owners {
                while receive_now(&mut *owner.receiver, &mut kept, is_ours) > 0 {}
            }
            while receive_now(&mut *sole.receiver, &mut kept, is_ours) > 0 {}
            assert_eq!(kept.len(), 4, "two for an owner, two for the other NIC");
            assert!(kept.iter().all(|frame| udp_payload(frame) == payload));
            assert_eq!(sole.receiver.take_dropped(), 2);
        }
    });
}

#[test]
fn a_frame_whose_headers_are_scattered_in_the_kernel_reaches_its_owner() {
    in_namespace(|| {
        make_veth();
        for name in ["a0", "b0"] {
            ip(&format!("link set {name} mtu 9000"));
        }
        let mut a = open_packet("a0");
        let Some((_opener, mut owners)) = two_owners() else {
            return;
        };
        // Of a large frame without a checksum to complete, the kernel puts the Ethernet header alone into the buffer's
        // head.
        let payload = pattern(6000);
        let mut frame = tagged(0, &payload);
        frame.drain(12..16);
        send_as_is(&mut a, &frame);
        let mut kept = Vec::new();
        for owner in &mut owners {
            while receive_now(&mut *owner.receiver, &mut kept, is_ours) > 0 {}
        }
        assert_eq!(kept.len(), 1);
        assert_eq!(udp_payload(&kept[0]), payload);
    });
}

/// Owners 0 and 1 of interface `b0`.
fn two_owners() -> Option<(Opener, [Nic; 2])> {
    let spec = NicSpec::Packet("b0".into());
    let mut opener = opener_that_steers(&spec, Sharing::Several)?;
    set_address(&mut opener, IP_B);
    let nics = [0, 1].map(|owner| opener.open(owner).unwrap().attach().unwrap());
    assert_eq!(nics[0].capabilities.steering, crate::Steering::Tables);
    Some((opener, nics))
}

/// How many of `count` datagrams each owner gets, once all have come.
fn shares(a: &mut Nic, owners: &mut [Nic], count: u16) -> Vec<usize> {
    for port in 0..count {
        send(a, &datagram(&[0; 32], (1000 + port, 9), MACS, 0));
    }
    let mut kept: Vec<Vec<Kept>> = owners.iter().map(|_| Vec::new()).collect();
    for (owner, kept) in owners.iter_mut().zip(&mut kept) {
        while receive_now(&mut *owner.receiver, kept, is_ours) > 0 {}
    }
    kept.iter().map(Vec::len).collect()
}

#[test]
fn owners_share_flows_and_all_see_control_frames() {
    in_namespace(|| {
        make_veth();
        let mut a = open_packet("a0");
        let Some((mut opener, mut owners)) = two_owners() else {
            return;
        };
        send(&mut a, &arp_request(MAC_A, IP_A, IP_B));
        let is_arp = |frame: &[u8]| frame.get(12..14) == Some(&[0x08, 0x06]);
        for owner in &mut owners {
            let mut kept = receive(&mut *owner.receiver, 1, is_arp);
            while receive_now(&mut *owner.receiver, &mut kept, is_arp) > 0 {}
            assert_eq!(kept.len(), 1, "once, and not over the fan-out too");
        }
        // Each flow reaches one owner.
        assert_eq!(shares(&mut a, &mut owners, 100).iter().sum::<usize>(), 100);
        // And the one that stays gets all.
        let [first, second] = owners;
        drop(first);
        opener.close(0);
        assert_eq!(shares(&mut a, &mut [second], 100), [100]);
        // Who comes back finds its place.
        let again = opener.open(0).unwrap().attach().unwrap();
        opener.close(1);
        assert_eq!(shares(&mut a, &mut [again], 100), [100]);
    });
}

#[test]
fn an_owner_gets_nothing_that_came_for_its_predecessor() {
    in_namespace(|| {
        make_veth();
        let mut a = open_packet("a0");
        let Some((mut opener, [first, second])) = two_owners() else {
            return;
        };
        opener.close(1);
        drop(second);
        let mut owner = first;
        // Each time the kernel goes on at another place of the ring.
        for round in 0..5u16 {
            send(&mut a, &datagram(b"old", (1, 9), MACS, 0));
            opener.close(0);
            drop(owner);
            owner = opener.open(0).unwrap().attach().unwrap();
            let numbers: Vec<[u8; 2]> = (0..100).map(|n| (round * 100 + n).to_be_bytes()).collect();
            for number in &numbers {
                send(&mut a, &datagram(number, (1, 9), MACS, 0));
            }
            let frames = receive(&mut *owner.receiver, numbers.len(), is_ours);
            let payloads: Vec<&[u8]> = frames.iter().map(udp_payload).collect();
            assert_eq!(payloads, numbers, "round {round}");
        }
    });
}

#[test]
fn attaching_and_using_need_no_privileges() {
    in_namespace(|| {
        make_veth();
        let [a, b] = ["a0", "b0"].map(|name| open_sole(&NicSpec::Packet(name.into())).unwrap());
        let wire = serde_json::to_vec(&a.description).unwrap();
        become_nobody();
        let error = open_sole(&NicSpec::Packet("a0".into())).unwrap_err();
        assert!(error.to_string().contains("CAP_NET_RAW"), "{error}");
        let parts = NicParts {
            description: serde_json::from_slice(&wire).unwrap(),
            descriptors: a.descriptors,
        };
        let (mut a, mut b) = (parts.attach().unwrap(), b.attach().unwrap());
        let payload = pattern(40_000);
        send(&mut a, &datagram(b"small", (0x1234, 9), MACS, 0));
        send(&mut a, &stream([&payload, &[]], 1448, false));
        let frames = receive(&mut *b.receiver, 2, is_ours);
        assert_eq!(udp_payload(&frames[0]), b"small");
        assert_eq!(frames[1].bytes[54..], payload);
    });
}

#[test]
fn parts_that_do_not_belong_together_are_refused() {
    in_namespace(|| {
        make_veth();
        let mut parts = open_sole(&NicSpec::Packet("a0".into())).unwrap();
        let other = parts.descriptors.pop().unwrap();
        assert!(parts.attach().is_err());
        let mut parts = open_sole(&NicSpec::Packet("a0".into())).unwrap();
        parts.descriptors.push(other);
        assert!(parts.attach().is_err());
        let mut parts = open_sole(&NicSpec::Packet("a0".into())).unwrap();
        parts.descriptors = vec![std::fs::File::open("/dev/null").unwrap().into()];
        assert!(parts.attach().is_err());
    });
}

#[test]
fn errors_say_what_to_do() {
    in_namespace(|| {
        ip("link add down0 type veth peer name down1");
        for (name, words) in [
            ("none", "there is no interface none here; there are: lo, "),
            ("lo", "lo isn't an Ethernet interface"),
            ("down0", "`ip link set down0 up`"),
        ] {
            let error = open_sole(&NicSpec::Packet(name.into())).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
        }
    });
}

/// A sender to a socket of our own, which takes few messages, and what arrives there.
fn to_unix() -> (PacketSender, UnixDatagram) {
    let (ours, theirs) = UnixDatagram::pair().unwrap();
    for socket in [&ours, &theirs] {
        socket.set_nonblocking(true).unwrap();
    }
    (PacketSender::new(Arc::new(ours.into())), theirs)
}

fn read_all(socket: &UnixDatagram) -> Vec<Vec<u8>> {
    let mut buffer = vec![0; 70_000];
    std::iter::from_fn(|| socket.recv(&mut buffer).ok().map(|n| buffer[..n].to_vec())).collect()
}

#[test]
fn a_full_socket_blocks_and_loses_nothing() {
    fill_and_empty(to_unix());
    // As in a sandbox.
    let (mut sender, peer) = to_unix();
    crate::Sender::name_no_address(&mut sender);
    fill_and_empty((sender, peer));
}

fn fill_and_empty((mut sender, peer): (PacketSender, UnixDatagram)) {
    use crate::Sender;
    use skink_messages::NicOutput;
    let mut accepted = 0u32;
    let mut arrived = Vec::new();
    for round in 0..3 {
        while sender.room() > 0 {
            let number = accepted.to_be_bytes();
            let large = [number.as_slice(), &[0; 5000]].concat();
            // Large ones go at once, small ones in a batch: both run into the full socket.
            let payload: &[u8] = if accepted.is_multiple_of(3) {
                &large
            } else {
                &number
            };
            match sender.send(&TxPacket::new([Bytes::from(payload), Bytes::EMPTY])) {
                Ok(()) => accepted += 1,
                Err(skink_messages::Full) => break,
            }
            if accepted.is_multiple_of(5) {
                sender.flush();
            }
        }
        assert!(sender.blocked_on().is_some(), "round {round}");
        assert_eq!(sender.room(), 0);
        let refused = sender.send(&TxPacket::new([Bytes::EMPTY; 2]));
        assert!(refused.is_err());
        arrived.extend(read_all(&peer));
        assert!(sender.room() > 0, "round {round}");
        assert!(sender.blocked_on().is_none());
    }
    loop {
        sender.flush();
        let more = read_all(&peer);
        if more.is_empty() {
            break;
        }
        arrived.extend(more);
    }
    let blocked = sender.blocked_on().is_some();
    assert!(!blocked, "there is room, and nothing to send");
    let numbers: Vec<u32> = arrived
        .iter()
        .map(|message| u32::from_be_bytes(message[10..][..4].try_into().unwrap()))
        .collect();
    assert_eq!(numbers, (0..accepted).collect::<Vec<u32>>());
    assert_eq!(sender.take_dropped(), 0);
}

/// Sets limits of what leaves by `a0`; `false` if this kernel has no such queueing discipline.
fn hold_up(limits: &str) -> bool {
    let arguments = format!("qdisc replace dev a0 root tbf {limits}");
    let tc = Command::new("tc").args(arguments.split(' ')).status();
    tc.is_ok_and(|status| status.success())
}

#[test]
fn a_full_queueing_discipline_blocks_without_polling_writable_and_loses_nothing() {
    in_namespace(|| {
        make_veth();
        let (mut a, mut b) = (open_packet("a0"), open_packet("b0"));
        if !hold_up("rate 8kbit burst 2000 limit 4000") {
            println!("SKIP: no queueing discipline that holds frames up");
            return;
        }
        let mut accepted = 0u8;
        while a.sender.blocked_on().is_none() {
            assert!(a.sender.room() > 0 && accepted < 100);
            let payload = [accepted; 500];
            let packet = datagram(&payload, (0x1234, 9), MACS, 0);
            a.sender.send(&packet).unwrap();
            a.sender.flush();
            accepted += 1;
        }
        let room = a.sender.blocked_on().and_then(crate::Room::descriptor);
        assert!(room.is_none(), "the socket would poll writable at once");
        assert!(hold_up("rate 1gbit burst 20000 limit 40000"));
        a.sender.flush();
        assert!(a.sender.blocked_on().is_none());
        assert_eq!(a.sender.take_dropped(), 0);
        let frames = receive(&mut *b.receiver, usize::from(accepted), is_ours);
        let numbers: Vec<u8> = frames.iter().map(|frame| udp_payload(frame)[0]).collect();
        assert_eq!(numbers, (0..accepted).collect::<Vec<u8>>());
    });
}

/// Large frames are in no batch that would be tried again.
#[test]
fn a_large_frame_that_a_full_queueing_discipline_refuses_is_waited_for() {
    in_namespace(|| {
        make_veth();
        ip("link set a0 mtu 9000");
        ip("link set b0 mtu 9000");
        let mut a = open_packet("a0");
        if !hold_up("rate 8kbit burst 6000 limit 12000") {
            println!("SKIP: no queueing discipline that holds frames up");
            return;
        }
        let large = pattern(5_000);
        let packet = || datagram(&large, (0x1234, 9), MACS, 0);
        let mut accepted = 0;
        while a.sender.room() > 0 && a.sender.send(&packet()).is_ok() {
            accepted += 1;
            assert!(accepted < 100);
        }
        a.sender.flush();
        let room = a.sender.blocked_on().expect("it is full");
        assert!(room.descriptor().is_none());
        assert!(hold_up("rate 1gbit burst 20000 limit 40000"));
        a.sender.flush();
        assert!(a.sender.blocked_on().is_none());
        assert_eq!(a.sender.take_dropped(), 0);
    });
}

#[test]
fn a_dead_socket_drops_and_counts() {
    use crate::Sender;
    use skink_messages::NicOutput;
    let (mut sender, peer) = to_unix();
    // Also for a process that another test has forked off meanwhile, and that has a copy of it.
    peer.shutdown(std::net::Shutdown::Both).unwrap();
    drop(peer);
    let large = vec![0; 5000];
    for payload in [&[1u8][..], &large, &[2]] {
        assert!(sender.room() > 0);
        let packet = TxPacket::new([Bytes::from(payload), Bytes::EMPTY]);
        sender.send(&packet).unwrap();
    }
    sender.flush();
    assert_eq!(sender.take_dropped(), 3);
    assert!(sender.blocked_on().is_none());
}

#[test]
fn an_interface_that_goes_down_keeps_nobody_awake() {
    in_namespace(|| {
        make_veth();
        let mut a = open_packet("a0");
        ip("link set a0 down");
        comes_to_rest(&mut *a.receiver);
    });
}

#[test]
fn an_interface_that_is_deleted_keeps_nobody_awake() {
    in_namespace(|| {
        make_veth();
        let mut a = open_packet("a0");
        ip("link del a0");
        comes_to_rest(&mut *a.receiver);
        // What is sent is lost, and holds nobody up.
        let large = pattern(20_000);
        send(&mut a, &datagram(&[1], (0x1234, 9), MACS, 0));
        send(&mut a, &stream([&large, &[]], 1448, false));
        assert_eq!(a.sender.take_dropped(), 2);
        assert!(a.sender.blocked_on().is_none());
    });
}
