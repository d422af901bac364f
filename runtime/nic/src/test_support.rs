//! What the tests of several back ends share.

use crate::{Budget, Nic, NicSpec, OpenError, Opener, Receiver, Sharing, open_sole};
use skink_memory::Bytes;
use skink_messages::{RxChecksum, TxPacket};
use skink_time::Instant;
use skink_wire::{IpCidr, MacAddr, Sum, ethernet, ipv4, protocol, tcp, udp};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

pub(crate) const MAC_A: MacAddr = MacAddr([0x02, 0, 0, 0, 0, 0xa]);
pub(crate) const MAC_B: MacAddr = MacAddr([0x02, 0, 0, 0, 0, 0xb]);
pub(crate) const IP_A: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
pub(crate) const IP_B: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);

/// One at a time: a child of another test would hold this one's descriptors until it has executed
/// its program, and closing one would not take effect at once.
static NAMESPACE: Mutex<()> = Mutex::new(());

/// Runs `test` in a network namespace of its own, which goes with the thread; without the privilege
/// to make one, says so.
pub(crate) fn in_namespace(test: impl FnOnce() + Send) {
    let _alone = NAMESPACE.lock().unwrap_or_else(PoisonError::into_inner);
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: only this thread changes its namespace, and it holds no descriptors yet.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
                println!("SKIP: no network namespace without CAP_SYS_ADMIN");
                return;
            }
            test();
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// The NIC of an interface, by packet sockets, all of it ours.
pub(crate) fn open_packet(name: &str) -> Nic {
    let parts = open_sole(&NicSpec::Packet(name.into())).unwrap();
    parts.attach().unwrap()
}

/// An opener of a NIC that the kernel steers; where it can't, says so.
pub(crate) fn opener_that_steers(spec: &NicSpec, sharing: Sharing) -> Option<Opener> {
    match Opener::new(spec, sharing) {
        Ok(mut opener) => {
            let steers = opener.steering().is_some();
            if !steers {
                println!("SKIP: the kernel refuses the steering program");
            }
            steers.then_some(opener)
        }
        Err(error @ (OpenError::Steering(_) | OpenError::Unavailable { .. })) => {
            println!("SKIP: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// What comes for this address is ours.
pub(crate) fn set_address(opener: &mut Opener, address: Ipv4Addr) {
    let addresses = [IpCidr::new(address.into(), 24).unwrap()];
    opener.set_addresses(&addresses).unwrap();
}

/// Takes every privilege from the calling thread, for good.
pub(crate) fn become_nobody() {
    const NOBODY: libc::c_long = 65_534;
    // SAFETY: no memory is involved. The bare system call changes this thread only, unlike libc's
    // function, and with the user id go the thread's capabilities (capabilities(7)).
    let result = unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
    assert_eq!(result, 0);
    assert!(crate::socket::packet_socket().is_err());
}

/// Runs a command of iproute2 in the thread's namespace.
pub(crate) fn ip(arguments: &str) {
    let output = Command::new("ip")
        .args(arguments.split_whitespace())
        .output()
        .expect("the tests need iproute2");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {errors}");
}

/// A pair of interfaces `a0` and `b0`, up, with the addresses above on their Ethernet side.
pub(crate) fn make_veth() {
    ip("link add a0 type veth peer name b0");
    ip(&format!("link set a0 address {MAC_A}"));
    ip(&format!("link set b0 address {MAC_B}"));
    ip("link set a0 up");
    ip("link set b0 up");
    // Until the kernel has seen the carrier it drops what is sent.
    wait_until(|| {
        let all = crate::interface::list().unwrap();
        all.iter().filter(|interface| interface.running).count() == 2
    });
}

/// Waits for a condition of the kernel's; panics if it doesn't come about.
pub(crate) fn wait_until(mut condition: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(std::time::Instant::now() < deadline, "waited in vain");
        std::thread::yield_now();
    }
}

/// A received frame, kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Kept {
    pub(crate) bytes: Vec<u8>,
    pub(crate) checksum: RxChecksum,
    pub(crate) segment_bytes: u16,
}

/// Waits until `count` frames that `wanted` likes have come; panics if they don't within seconds.
pub(crate) fn receive(
    receiver: &mut dyn Receiver,
    count: usize,
    wanted: impl Fn(&[u8]) -> bool,
) -> Vec<Kept> {
    let mut kept = Vec::new();
    while kept.len() < count {
        let taken = receive_now(receiver, &mut kept, &wanted);
        if taken == 0 && kept.len() < count {
            let got = kept.len();
            assert!(
                becomes_readable(receiver, Duration::from_secs(10)),
                "only {got} of {count} frames came"
            );
        }
    }
    kept
}

/// Whatever waits at this moment.
pub(crate) fn receive_now(
    receiver: &mut dyn Receiver,
    kept: &mut Vec<Kept>,
    wanted: impl Fn(&[u8]) -> bool,
) -> usize {
    receiver.receive(Instant::ZERO, &mut Budget::frames(16), &mut |frame| {
        if wanted(frame.bytes) {
            kept.push(Kept {
                bytes: frame.bytes.to_vec(),
                checksum: frame.checksum,
                segment_bytes: frame.segment_bytes,
            });
        }
    })
}

/// Polls the receiver's descriptors.
pub(crate) fn becomes_readable(receiver: &dyn Receiver, timeout: Duration) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut descriptors = Vec::new();
    receiver.descriptors(&mut |fd| {
        descriptors.push(fd.try_clone_to_owned().unwrap());
    });
    let mut fds: Vec<PollFd<'_>> = descriptors
        .iter()
        .map(|fd| PollFd::new(fd, PollFlags::IN))
        .collect();
    let timeout = Timespec {
        tv_sec: timeout.as_secs() as i64,
        tv_nsec: timeout.subsec_nanos().into(),
    };
    poll(&mut fds, Some(&timeout)).unwrap() > 0
}

/// Takes in what comes until nothing does, after the kernel has said that the interface is down or gone.
pub(crate) fn comes_to_rest(receiver: &mut dyn Receiver) {
    assert!(
        becomes_readable(receiver, Duration::from_secs(10)),
        "the kernel's error"
    );
    let mut looks = 0;
    while becomes_readable(receiver, Duration::ZERO) {
        receive_now(receiver, &mut Vec::new(), |_| false);
        looks += 1;
        assert!(looks < 100, "it goes on");
    }
}

/// Puts an Ethernet header in front.
fn add_ethernet(packet: &mut TxPacket<'_>, macs: (MacAddr, MacAddr), ethertype: u16) {
    let (source, destination) = macs;
    let header = ethernet::Header {
        destination,
        source,
        ethertype,
    };
    packet
        .prepend(ethernet::LEN)
        .copy_from_slice(&header.to_bytes());
}

fn add_ipv4(packet: &mut TxPacket<'_>, protocol: u8) {
    let header = ipv4::Header {
        dscp_ecn: 0,
        total_len: u16::try_from(packet.len() + ipv4::LEN).unwrap(),
        identification: 0,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        ttl: 64,
        protocol,
        source: IP_A,
        destination: IP_B,
        header_len: 20,
    };
    packet
        .prepend(ipv4::LEN)
        .copy_from_slice(&header.to_bytes());
    packet.network_bytes = 20;
}

/// A UDP datagram from A to B, its checksum left to the NIC; `segment_bytes` as in [`TxPacket`].
pub(crate) fn datagram(
    payload: &[u8],
    ports: (u16, u16),
    macs: (MacAddr, MacAddr),
    segment_bytes: u16,
) -> TxPacket<'_> {
    let mut packet = TxPacket::new([Bytes::from(payload), Bytes::EMPTY]);
    let header = udp::Header::new(ports.0, ports.1, payload.len()).unwrap();
    let len = u32::from(header.length);
    let place = packet.prepend(8);
    assert_eq!(header.emit(place), 8);
    udp::set_partial_checksum(IP_A.into(), IP_B.into(), place, len);
    packet.transport_bytes = 8;
    packet.checksum_offset = Some(6);
    packet.segment_bytes = segment_bytes;
    add_ipv4(&mut packet, protocol::UDP);
    add_ethernet(&mut packet, macs, ethernet::IPV4);
    packet
}

/// A TCP packet from A to B of two spans of payload, to be cut, its checksum left to the NIC.
pub(crate) fn stream<'a>(payload: [&'a [u8]; 2], segment_bytes: u16, ipv6: bool) -> TxPacket<'a> {
    let mut packet = TxPacket::new(payload.map(Bytes::from));
    let bytes = packet.payload_bytes() + tcp::LEN;
    let [source, destination]: [IpAddr; 2] = if ipv6 {
        [v6(1), v6(2)].map(IpAddr::from)
    } else {
        [IP_A, IP_B].map(IpAddr::from)
    };
    let place = packet.prepend(tcp::LEN);
    place[..4].copy_from_slice(&[0x12, 0x34, 0, 80]);
    place[12..14].copy_from_slice(&[0x50, 0x10]);
    tcp::set_partial_checksum(source, destination, place, bytes as u32);
    packet.transport_bytes = 20;
    packet.checksum_offset = Some(16);
    packet.segment_bytes = segment_bytes;
    if ipv6 {
        let place = packet.prepend(40);
        place[0] = 0x60;
        place[4..6].copy_from_slice(&u16::try_from(bytes).unwrap().to_be_bytes());
        place[6..8].copy_from_slice(&[protocol::TCP, 64]);
        place[8..24].copy_from_slice(&v6(1).octets());
        place[24..40].copy_from_slice(&v6(2).octets());
        packet.network_bytes = 40;
        add_ethernet(&mut packet, (MAC_A, MAC_B), ethernet::IPV6);
    } else {
        add_ipv4(&mut packet, protocol::TCP);
        add_ethernet(&mut packet, (MAC_A, MAC_B), ethernet::IPV4);
    }
    packet
}

fn v6(host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host)
}

/// Whether it is a frame that [`datagram`] or [`stream`] made, or was cut from one.
pub(crate) fn is_ours(frame: &[u8]) -> bool {
    let port = |at: usize| frame.get(at..at + 2) == Some(&[0x12, 0x34]);
    match frame.get(12..14) {
        Some([0x08, 0x00]) => port(34) || frame.get(30..34) == Some(&IP_B.octets()),
        Some([0x86, 0xdd]) => port(54),
        _ => false,
    }
}

/// Bytes that differ from their neighbours.
pub(crate) fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// An ARP request from `ip` at `mac`.
pub(crate) fn arp_request(mac: MacAddr, ip: Ipv4Addr, target: Ipv4Addr) -> TxPacket<'static> {
    use skink_wire::arp;
    let mut packet = TxPacket::new([Bytes::EMPTY; 2]);
    let request = arp::Packet {
        operation: arp::Operation::Request,
        sender_mac: mac,
        sender_ip: ip,
        target_mac: MacAddr::UNSPECIFIED,
        target_ip: target,
    };
    assert_eq!(request.emit(packet.prepend(arp::LEN)), arp::LEN);
    add_ethernet(&mut packet, (mac, MacAddr::BROADCAST), ethernet::ARP);
    packet
}

/// Sends and flushes, where there must be room.
pub(crate) fn send(nic: &mut Nic, packet: &TxPacket<'_>) {
    assert!(nic.sender.room() > 0);
    nic.sender.send(packet).expect("there is room");
    nic.sender.flush();
}

/// Whether the TCP or UDP checksum in an IPv4 frame holds at least the pseudo-header's sum: that is
/// what the sender's NIC is to complete.
pub(crate) fn holds_partial_checksum(frame: &[u8], offset: usize, protocol: u8) -> bool {
    let len = frame.len() as u32 - 34;
    let sum = Sum::pseudo_header(IP_A.into(), IP_B.into(), protocol, len).fold();
    frame.get(34 + offset..36 + offset) == Some(&sum.to_be_bytes())
}
