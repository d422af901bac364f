//! On a veth pair in a network namespace of the test's own: `near` is ours, `far` the kernel's.

use super::open::OpenError as QueueError;
use super::*;
use crate::packet::usable_interface;
use crate::test_support::{comes_to_rest, in_namespace, ip, opener_that_steers};
use crate::{Budget, NicSpec, Receiver, Room, Sender, Sharing};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use skink_memory::Bytes;
use skink_messages::{NicOutput, Ports, RxChecksum, TxPacket};
use skink_steering::{AttachMode, PortTable, Steering, SteeringError};
use skink_time::Instant;
use skink_wire::checksum::Sum;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd};
use std::process::Command;
use std::time;

pub(super) const NEAR: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
const FAR: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
const NEAR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const FAR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
pub(super) const UDP: u8 = 17;

/// Runs `test` where `near` and `far` are, or says why it can't.
pub(super) fn on_a_link(mtu: u32, queues: u32, test: impl FnOnce() + Send) {
    in_namespace(|| {
        let both = format!("numrxqueues {queues} numtxqueues {queues}");
        ip(&format!(
            "link add near address 02:00:00:00:00:01 mtu {mtu} {both} type veth \
             peer name far address 02:00:00:00:00:02 mtu {mtu} {both}"
        ));
        ip("link set lo up");
        ip("link set near up");
        ip("link set far up");
        ip("address add 10.1.0.2/24 dev far");
        ip("neighbour add 10.1.0.1 lladdr 02:00:00:00:00:01 dev far");
        test();
    });
}

pub(super) fn owner(number: u8) -> Owner {
    Owner::new(number).expect("less than 64")
}

/// One queue with the steering program in front, without the packet sockets beside it.
pub(super) struct Queue {
    _steering: Steering,
    pub(super) receiver: XdpReceiver,
    pub(super) sender: XdpSender,
    pub(super) description: QueueDescription,
    /// Its socket and memory.
    pub(super) descriptors: [OwnedFd; 2],
}

pub(super) fn open_queue() -> Option<Queue> {
    let mut steering = match Steering::load_with(1024) {
        Ok(steering) => steering,
        Err(SteeringError::Privileges { what }) => {
            println!("SKIP: loading programs isn't permitted here: {what}");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let mode = steering.attach_xdp("near").expect("attached");
    assert_eq!(mode, AttachMode::Driver, "veth can");
    let address = "10.1.0.1/24".parse().expect("an address");
    steering.set_addresses(&[address]).expect("set");
    let (interface, _) = usable_interface("near").expect("there");
    let parts = open::queue(&interface, 0, Geometry::QUEUE).expect("free");
    steering
        .set_queue(owner(0), 0, parts.socket.as_fd())
        .expect("set");
    steering.add_owner(owner(0));
    let taken = open::queue(&interface, 0, Geometry::QUEUE);
    assert!(matches!(taken, Err(QueueError::Taken)));
    let beyond = open::queue(&interface, 1, Geometry::QUEUE);
    assert!(matches!(beyond, Err(QueueError::NoSuchQueue)));
    let descriptors = [parts.socket, parts.memory];
    let [socket, memory] = descriptors
        .each_ref()
        .map(|fd| fd.try_clone().expect("a duplicate"));
    let attached = parts
        .description
        .attach(socket.into(), &[], memory.as_fd(), Past::Unused);
    let (receiver, sender) = attached.expect("mapped");
    Some(Queue {
        _steering: steering,
        receiver,
        sender,
        description: parts.description,
        descriptors,
    })
}

/// Frames until there are `wanted`, or nothing comes for two seconds.
pub(super) fn frames(receiver: &mut dyn Receiver, wanted: usize) -> Vec<(Vec<u8>, RxChecksum)> {
    let mut all = Vec::new();
    let deadline = time::Instant::now() + time::Duration::from_secs(2);
    while all.len() < wanted && time::Instant::now() < deadline {
        receiver.receive(Instant::ZERO, &mut Budget::frames(64), &mut |frame| {
            // The kernel speaks IPv6 of its own accord.
            if frame.bytes.get(12..14) == Some(&[8, 0]) {
                all.push((frame.bytes.to_vec(), frame.checksum));
            }
        });
        if all.len() < wanted {
            wait(receiver);
        }
    }
    all
}

fn wait(receiver: &dyn Receiver) {
    let mut fds = Vec::new();
    receiver.descriptors(&mut |fd| fds.push(fd.try_clone_to_owned().expect("a duplicate")));
    let mut fds: Vec<PollFd<'_>> = fds
        .iter()
        .map(|fd| PollFd::new(fd, PollFlags::IN))
        .collect();
    let soon = Timespec {
        tv_sec: 0,
        tv_nsec: 100_000_000,
    };
    poll(&mut fds, Some(&soon)).expect("polled");
}

pub(super) fn kernel_socket(port: u16) -> UdpSocket {
    let socket = UdpSocket::bind((FAR, port)).expect("bound");
    let patience = time::Duration::from_secs(2);
    socket.set_read_timeout(Some(patience)).expect("set");
    socket
}

pub(super) fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8).collect()
}

/// Writes the headers of a UDP datagram from `NEAR`:6000 to `FAR`:5000 into a packet. The checksum is left to the NIC: the
/// kernel takes in none that is wrong.
pub(super) fn datagram<'a>(first: &'a [u8], second: &'a [u8]) -> TxPacket<'a> {
    let mut packet = TxPacket::new([Bytes::from(first), Bytes::from(second)]);
    let len = (first.len() + second.len() + 8) as u16;
    let mut udp = vec![0x17, 0x70, 0x13, 0x88, 0, 0, 0, 0];
    udp[4..6].copy_from_slice(&len.to_be_bytes());
    let sum = Sum::pseudo_header(NEAR.into(), FAR.into(), UDP, u32::from(len));
    udp[6..8].copy_from_slice(&sum.fold().to_be_bytes());
    packet.prepend(8).copy_from_slice(&udp);
    (packet.transport_bytes, packet.checksum_offset) = (8, Some(6));
    let mut header = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, UDP, 0, 0];
    header[2..4].copy_from_slice(&(len + 20).to_be_bytes());
    header.extend(NEAR.octets());
    header.extend(FAR.octets());
    let mut sum = Sum::new();
    sum.add_bytes(&header);
    header[10..12].copy_from_slice(&sum.finish().to_be_bytes());
    packet.prepend(20).copy_from_slice(&header);
    let mut ethernet = FAR_MAC.to_vec();
    ethernet.extend(NEAR_MAC);
    ethernet.extend([8, 0]);
    packet.prepend(14).copy_from_slice(&ethernet);
    packet
}

fn both_ways(mtu: usize) {
    let Some(mut queue) = open_queue() else {
        return;
    };
    assert_eq!(queue.description.chains, mtu > 3826);
    assert!(queue.description.local_partner);
    let kernel = kernel_socket(5000);
    let largest = mtu - 28;
    for bytes in [0, 1, 17, 1400, 3798, 3799, 4096, 7000, largest] {
        if bytes > largest {
            continue;
        }
        let payload = pattern(bytes);
        kernel.send_to(&payload, (NEAR, 6000)).expect("sent");
        let came = frames(&mut queue.receiver, 1);
        let [(frame, checksum)] = &came[..] else {
            panic!("{} frames for {bytes} bytes", came.len());
        };
        assert_eq!(&frame[42..], payload, "{bytes} bytes inbound");
        assert_eq!(
            *checksum,
            RxChecksum::Verified,
            "the kernel left it out of {bytes} bytes"
        );

        let (first, second) = payload.split_at(bytes / 3);
        let packet = datagram(first, second);
        queue.sender.send(&packet).expect("room");
        queue.sender.flush();
        let mut answer = vec![0; 65536];
        let (len, from) = kernel.recv_from(&mut answer).expect("an answer");
        assert_eq!(from, SocketAddrV4::new(NEAR, 6000).into());
        assert_eq!(&answer[..len], payload, "{bytes} bytes outbound");
    }
    assert_eq!(queue.receiver.take_dropped(), 0);
    assert_eq!(queue.sender.take_dropped(), 0);
    // What can never go is a counted drop.
    let too_large = pattern(largest + 5000);
    let packet = datagram(&too_large, &[]);
    queue.sender.send(&packet).expect("taken");
    assert_eq!(queue.sender.take_dropped(), 1);
}

#[test]
fn frames_go_both_ways_at_an_ordinary_mtu() {
    on_a_link(1500, 1, || both_ways(1500));
}

#[test]
fn frames_larger_than_a_chunk_go_both_ways() {
    on_a_link(9000, 1, || both_ways(9000));
}

#[test]
fn a_burst_of_the_kernel_comes_cut_to_size() {
    on_a_link(1500, 1, || {
        let Some(mut queue) = open_queue() else {
            return;
        };
        let kernel = kernel_socket(5000);
        let segment = 1000i32;
        crate::socket::set_option(&kernel, libc::SOL_UDP, libc::UDP_SEGMENT, segment)
            .expect("UDP_SEGMENT");
        let payload = pattern(20_000);
        kernel.send_to(&payload, (NEAR, 6000)).expect("sent");
        let came = frames(&mut queue.receiver, 20);
        assert_eq!(came.len(), 20);
        for (index, (frame, _)) in came.iter().enumerate() {
            assert_eq!(frame[42..], payload[index * 1000..][..1000]);
        }
    });
}

/// Sends frames of `bytes` bytes of payload until each ring has turned many times.
fn send_many(bytes: usize, chunks_each: usize) {
    let Some(mut queue) = open_queue() else {
        return;
    };
    // Nobody has this port: the kernel drops what comes.
    let payload = pattern(bytes);
    let all = Geometry::QUEUE.chunks as usize / chunks_each;
    assert_eq!(queue.sender.room(), all);
    for sent in 0..all {
        let taken = queue.sender.send(&datagram(&payload, &[]));
        assert!(taken.is_ok(), "frame {sent}");
    }
    assert!(queue.sender.send(&datagram(&payload, &[])).is_err());
    assert!(queue.sender.blocked_on().is_some());
    // Nothing has left so far; asking for room makes some.
    assert_ne!(queue.sender.room(), 0);
    let mut sent = 0;
    for _ in 0..100_000 {
        match queue.sender.send(&datagram(&payload, &[])) {
            Ok(()) => sent += 1,
            Err(_) => queue.sender.flush(),
        }
        if sent == all * 10 {
            assert_eq!(queue.sender.take_dropped(), 0);
            return;
        }
    }
    panic!("stuck after {sent} frames");
}

#[test]
fn what_cannot_leave_while_the_link_is_down_is_tried_now_and_then_and_leaves_later() {
    on_a_link(1500, 1, || {
        let Some(mut queue) = open_queue() else {
            return;
        };
        let kernel = kernel_socket(5000);
        ip("link set near down");
        queue.sender.send(&datagram(b"later", &[])).expect("room");
        flush_in_vain(&mut queue.sender);
        ip("link set near up");
        queue.sender.flush();
        assert!(queue.sender.blocked_on().is_none());
        let mut came = [0; 100];
        let (len, _) = kernel.recv_from(&mut came).expect("a datagram");
        assert_eq!(came[..len], *b"later");
    });
}

#[test]
fn an_interface_that_is_gone_is_asked_now_and_then() {
    on_a_link(1500, 1, || {
        let Some(mut queue) = open_queue() else {
            return;
        };
        ip("link del near");
        queue.sender.send(&datagram(b"never", &[])).expect("room");
        flush_in_vain(&mut queue.sender);
    });
}

#[test]
fn an_interface_that_is_gone_keeps_nobody_awake() {
    on_a_link(1500, 2, || {
        let spec = NicSpec::Xdp("near".to_owned());
        let Some(mut opener) = opener_that_steers(&spec, Sharing::Several) else {
            return;
        };
        let parts = opener.open(0).expect("opened");
        let mut nic = parts.attach().expect("attached");
        assert_eq!(nic.capabilities.kind, "xdp");
        ip("link del near");
        comes_to_rest(&mut *nic.receiver);
    });
}

/// What was sent can't leave, and is to be tried again rather late.
fn flush_in_vain(sender: &mut impl Sender) {
    sender.flush();
    match sender.blocked_on() {
        Some(Room::Untold(again)) => assert_eq!(again, Room::LATER),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_doorbell_may_be_left_to_the_caller() {
    on_a_link(1500, 1, || {
        let Some(mut queue) = open_queue() else {
            return;
        };
        let kernel = kernel_socket(5000);
        let mut came = [0; 100];
        let mut receive = |expected: u8| {
            let (len, _) = kernel.recv_from(&mut came).expect("a datagram");
            assert_eq!(came[..len], [expected]);
        };
        let sender = &mut queue.sender;
        sender.set_deferring(true);
        sender.flush();
        assert!(sender.take_doorbell().is_none(), "there is nothing to send");
        sender.send(&datagram(&[1], &[])).expect("room");
        sender.flush();
        let doorbell = sender.take_doorbell().expect("left to us");
        assert!(sender.take_doorbell().is_none(), "once");
        // Nothing has left: what is sent by another way arrives first.
        let far = UdpSocket::bind((FAR, 5001)).expect("bound");
        far.send_to(&[2], (FAR, 5000)).expect("sent");
        receive(2);
        let flags = rustix::net::SendFlags::DONTWAIT;
        rustix::net::send(&doorbell, &[], flags).expect("rung");
        receive(1);
        // More than one doorbell would be needed for isn't left.
        for number in 0..33 {
            sender.send(&datagram(&[number], &[])).expect("room");
        }
        sender.flush();
        assert!(sender.take_doorbell().is_none());
        (0..33).for_each(&mut receive);
        // Nor what must leave before something that goes another way.
        sender.send(&datagram(&[3], &[])).expect("room");
        sender.flush_now();
        assert!(sender.take_doorbell().is_none());
        receive(3);
    });
}

#[test]
fn chunks_to_send_from_come_back() {
    on_a_link(1500, 1, || send_many(100, 1));
}

#[test]
fn chunks_of_chains_come_back() {
    on_a_link(9000, 1, || send_many(8900, 3));
}

#[test]
fn chunks_to_receive_into_are_used_again() {
    on_a_link(1500, 1, || {
        let Some(mut queue) = open_queue() else {
            return;
        };
        let kernel = kernel_socket(5000);
        // More rounds than there are chunks; few enough at a time for veth's own ring (256).
        let batch = 64u32;
        for round in 0..Geometry::QUEUE.chunks / batch * 2 {
            let numbers = round * batch..(round + 1) * batch;
            for number in numbers.clone() {
                let payload = number.to_be_bytes();
                kernel.send_to(&payload, (NEAR, 6000)).expect("sent");
            }
            let came = frames(&mut queue.receiver, batch as usize);
            let came: Vec<u32> = came
                .iter()
                .filter_map(|(frame, _)| Some(u32::from_be_bytes(frame[42..].try_into().ok()?)))
                .collect();
            assert_eq!(came, numbers.collect::<Vec<u32>>(), "round {round}");
        }
        assert_eq!(queue.receiver.take_dropped(), 0);
    });
}

#[test]
fn what_is_not_ours_is_left_to_the_kernel() {
    on_a_link(1500, 1, || {
        ip("address add 10.2.0.1/24 dev near");
        let Some(mut queue) = open_queue() else {
            return;
        };
        let kernel = UdpSocket::bind("10.2.0.1:6000").expect("bound");
        let patience = time::Duration::from_secs(2);
        kernel.set_read_timeout(Some(patience)).expect("set");
        // From the far end by hand, lest the kernel take the short way.
        let far = crate::socket::packet_socket().expect("a packet socket");
        let (interface, _) = usable_interface("far").expect("there");
        crate::socket::bind_to_interface(far.as_fd(), interface.index).expect("bound");
        let mut frame = vec![0; 200];
        let packet = datagram(b"for the kernel", &[]);
        let len = packet.copy_to(&mut frame).expect("room");
        frame.truncate(len);
        frame[..6].copy_from_slice(&NEAR_MAC);
        frame[6..12].copy_from_slice(&FAR_MAC);
        // From 10.2.0.2:6000 to 10.2.0.1:6000, without a UDP checksum.
        frame[24..26].fill(0);
        frame[26..34].copy_from_slice(&[10, 2, 0, 2, 10, 2, 0, 1]);
        frame[36..38].copy_from_slice(&6000u16.to_be_bytes());
        frame[40..42].fill(0);
        let mut sum = Sum::new();
        sum.add_bytes(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.finish().to_be_bytes());
        rustix::io::write(&far, &frame).expect("sent");
        let mut answer = [0; 100];
        let (len, _) = kernel.recv_from(&mut answer).expect("a datagram");
        assert_eq!(&answer[..len], b"for the kernel");
        // The one after it is ours, and comes as the first.
        let peer = kernel_socket(5000);
        peer.send_to(b"for us", (NEAR, 6000)).expect("sent");
        let came = frames(&mut queue.receiver, 1);
        assert_eq!(&came[0].0[42..], b"for us");
    });
}

/// Owners of one interface, each with its own port, all opened by one opener.
fn owners(queues: u32) {
    let spec = NicSpec::Xdp("near".to_owned());
    let Some(mut opener) = opener_that_steers(&spec, Sharing::Several) else {
        return;
    };
    let mut nics = Vec::new();
    let mut ports = Vec::new();
    for number in 0..3u8 {
        let parts = opener.open(u16::from(number)).expect("opened");
        let nic = parts.attach().expect("attached");
        assert_eq!(nic.capabilities.kind, "xdp");
        nics.push(nic);
        let maps = opener
            .steering()
            .expect("steers")
            .port_maps()
            .expect("maps");
        let mut table =
            PortTable::map(owner(number), Some(maps.tcp), Some(maps.udp)).expect("mapped");
        assert!(table.use_port(UDP, 6000 + u16::from(number), true));
        ports.push(table);
    }
    let address = "10.1.0.1/24".parse().expect("an address");
    let steering = opener.steering().expect("steers");
    steering.set_addresses(&[address]).expect("set");

    // Sockets of their own: with several queues, veth picks one by the sender's socket.
    let senders: Vec<UdpSocket> = (0..20).map(|at| kernel_socket(5000 + at)).collect();
    let expect = |nics: &mut Vec<Nic>, live: &[usize]| {
        for sender in &senders {
            for port in live {
                let payload = [*port as u8; 8];
                let to = (NEAR, 6000 + *port as u16);
                sender.send_to(&payload, to).expect("sent");
            }
        }
        for (at, port) in live.iter().enumerate() {
            let came = frames(nics[at].receiver.as_mut(), senders.len());
            assert_eq!(came.len(), senders.len(), "owner {port} of {queues} queues");
            for (frame, checksum) in came {
                assert_eq!(frame[42..50], [*port as u8; 8]);
                assert_eq!(checksum, RxChecksum::Verified);
            }
        }
        for (at, port) in live.iter().enumerate() {
            let mut more = 0;
            nics[at]
                .receiver
                .receive(Instant::ZERO, &mut Budget::frames(64), &mut |frame| {
                    more += usize::from(frame.bytes.get(12..14) == Some(&[8, 0]));
                });
            assert_eq!(more, 0, "owner {port} has others' frames");
        }
    };
    expect(&mut nics, &[0, 1, 2]);
    // The first owner goes: the others' frames go on reaching them.
    drop(nics.remove(0));
    opener.close(0);
    expect(&mut nics, &[1, 2]);
    // Its successor gets the queue that is free again.
    let parts = opener.open(0).expect("opened");
    nics.insert(0, parts.attach().expect("attached"));
    assert_eq!(nics[0].capabilities.kind, "xdp");
    assert!(ports[0].use_port(1, 0, false));
    let maps = opener
        .steering()
        .expect("steers")
        .port_maps()
        .expect("maps");
    let mut table = PortTable::map(owner(0), Some(maps.tcp), Some(maps.udp)).expect("mapped");
    assert!(table.use_port(UDP, 6000, true), "the dead owner's is free");
    expect(&mut nics, &[0, 1, 2]);
}

#[test]
fn owners_without_a_queue_get_their_frames_another_way() {
    on_a_link(1500, 1, || owners(1));
}

#[test]
fn frames_that_come_by_another_queue_arrive_too() {
    on_a_link(1500, 2, || owners(2));
}

#[test]
fn neighbours_questions_reach_every_owner() {
    on_a_link(1500, 1, || {
        let spec = NicSpec::Xdp("near".to_owned());
        let Some(mut opener) = opener_that_steers(&spec, Sharing::Several) else {
            return;
        };
        let mut nics: Vec<Nic> = (0..2)
            .map(|number| opener.open(number).expect("opened"))
            .map(|parts| parts.attach().expect("attached"))
            .collect();
        // For an address that nobody has told the kernel of.
        let kernel = kernel_socket(5000);
        kernel.send_to(b"who?", "10.1.0.9:1").expect("sent");
        for nic in &mut nics {
            let mut questions = 0;
            while questions == 0 {
                nic.receiver
                    .receive(Instant::ZERO, &mut Budget::frames(64), &mut |frame| {
                        questions += usize::from(frame.bytes.get(12..14) == Some(&[8, 6]));
                    });
                if questions == 0 {
                    wait(nic.receiver.as_ref());
                }
            }
        }
    });
}

#[test]
fn a_link_that_goes_down_and_comes_up_again_brings_each_owner_its_frames() {
    on_a_link(1500, 1, || {
        let spec = NicSpec::Packet("near".to_owned());
        let Some(mut opener) = opener_that_steers(&spec, Sharing::Several) else {
            return;
        };
        let mut nics: Vec<Nic> = (0..4)
            .map(|number| opener.open(number).expect("opened"))
            .map(|parts| parts.attach().expect("attached"))
            .collect();
        drop(nics.remove(0));
        opener.close(0);
        let steering = opener.steering().expect("steers");
        let address = "10.1.0.1/24".parse().expect("an address");
        steering.set_addresses(&[address]).expect("set");
        for number in 1..4u8 {
            let maps = steering.port_maps().expect("maps");
            let mut table =
                PortTable::map(owner(number), Some(maps.tcp), Some(maps.udp)).expect("mapped");
            assert!(table.use_port(UDP, 6000 + u16::from(number), true));
        }
        ip("link set near down");
        ip("link set near up");
        let kernel = kernel_socket(5000);
        for (at, nic) in nics.iter_mut().enumerate() {
            let to = (NEAR, 6001 + at as u16);
            // Until the other end has noticed that the link is up, it drops what it should send.
            let came = (0..5).any(|_| {
                kernel.send_to(b"again", to).expect("sent");
                !frames(nic.receiver.as_mut(), 1).is_empty()
            });
            assert!(came, "owner {}", at + 1);
        }
    });
}

/// Tells the child of the test below which descriptors are the socket and the memory.
const CHILD: &str = "SKINK_TEST_XDP_DESCRIPTORS";

#[test]
fn another_process_uses_the_queue_without_privileges() {
    if let Ok(descriptors) = std::env::var(CHILD) {
        answer_one_datagram(&descriptors);
        return;
    }
    on_a_link(1500, 1, || {
        let Ok(mut steering) = Steering::load_with(1024) else {
            println!("SKIP: loading programs isn't permitted here");
            return;
        };
        steering.attach_xdp("near").expect("attached");
        let address = "10.1.0.1/24".parse().expect("an address");
        steering.set_addresses(&[address]).expect("set");
        let (interface, _) = usable_interface("near").expect("there");
        let parts = open::queue(&interface, 0, Geometry::QUEUE).expect("free");
        steering
            .set_queue(owner(0), 0, parts.socket.as_fd())
            .expect("set");
        steering.add_owner(owner(0));
        // Before there is anybody to receive it.
        let kernel = kernel_socket(5000);
        kernel
            .send_to(b"anybody there?", (NEAR, 6000))
            .expect("sent");
        for fd in [&parts.socket, &parts.memory] {
            rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty()).expect("inherited");
        }
        let name = "xdp::tests::another_process_uses_the_queue_without_privileges";
        let output = Command::new(std::env::current_exe().expect("this program"))
            .args([name, "--exact", "--nocapture"])
            .env(
                CHILD,
                format!("{} {}", parts.socket.as_raw_fd(), parts.memory.as_raw_fd()),
            )
            .output()
            .expect("a child");
        let words = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{words}");
        let mut answer = [0; 100];
        let (len, _) = kernel.recv_from(&mut answer).expect("an answer");
        assert_eq!(&answer[..len], b"anybody there?");
    });
}

fn answer_one_datagram(descriptors: &str) {
    let nobody = 65_534;
    // SAFETY: no memory is involved.
    let dropped = unsafe { libc::setresuid(nobody, nobody, nobody) };
    assert_eq!(dropped, 0, "privileges dropped");
    let mut fds = descriptors.split(' ').map(|number| {
        let number = number.parse().expect("a descriptor");
        // SAFETY: inherited for this, and used by nobody else in this process.
        unsafe { OwnedFd::from_raw_fd(number) }
    });
    let mut next = || fds.next().expect("two descriptors");
    let (socket, memory) = (next(), next());
    let description = QueueDescription {
        queue: 0,
        geometry: Geometry::QUEUE,
        zero_copy: false,
        generic: false,
        chains: false,
        cuts: false,
        local_partner: true,
        mtu: 1500,
        flow_rings: 0,
    };
    let attached = description.attach(socket.into(), &[], memory.as_fd(), Past::Unused);
    let (mut receiver, mut sender) = attached.expect("mapped");
    let came = frames(&mut receiver, 1);
    sender.send(&datagram(&came[0].0[42..], &[])).expect("room");
    sender.flush();
}
