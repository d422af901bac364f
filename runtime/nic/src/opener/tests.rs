//! A process with the NIC dies (its [`Nic`] is dropped), and another goes on.

mod heir;

use super::*;
use crate::test_support::*;
use crate::{Budget, Receiver};
use skink_time::Instant;
use skink_wire::MacAddr;
use std::net::UdpSocket;
use std::time::Duration;

/// Who is on the other end of the wire.
trait Peer {
    fn send(&mut self, number: u32);
    /// The payload of the next datagram that comes.
    fn hear(&mut self) -> Vec<u8>;
    /// Source and destination of what it hears.
    fn macs(&self) -> (MacAddr, MacAddr);
}

/// On a veth pair, whose other end has the address that [`datagram`] sends to.
struct Far(Nic);

impl Peer for Far {
    fn send(&mut self, number: u32) {
        let number = number.to_be_bytes();
        let packet = datagram(&number, (0x1234, 9), (MAC_A, MAC_B), 0);
        send(&mut self.0, &packet);
    }

    fn hear(&mut self) -> Vec<u8> {
        receive(&mut *self.0.receiver, 1, is_ours)[0].bytes[42..].to_vec()
    }

    fn macs(&self) -> (MacAddr, MacAddr) {
        (MAC_B, MAC_A)
    }
}

/// The kernel, behind a TAP.
struct Kernel {
    socket: UdpSocket,
    macs: (MacAddr, MacAddr),
}

impl Peer for Kernel {
    fn send(&mut self, number: u32) {
        let sent = self.socket.send_to(&number.to_be_bytes(), (IP_A, 0x1234));
        assert_eq!(sent.unwrap(), 4);
    }

    fn hear(&mut self) -> Vec<u8> {
        let mut buffer = [0; 100];
        let (bytes, _) = self.socket.recv_from(&mut buffer).unwrap();
        buffer[..bytes].to_vec()
    }

    fn macs(&self) -> (MacAddr, MacAddr) {
        self.macs
    }
}

/// The numbers in exactly so many of the peer's datagrams.
fn numbers(receiver: &mut dyn Receiver, count: usize) -> Vec<u32> {
    let mut all = Vec::new();
    while all.len() < count {
        let taken = receiver.receive(
            Instant::ZERO,
            &mut Budget::frames(count - all.len()),
            &mut |frame| {
                // The kernel speaks IPv6 of its own accord.
                if frame.bytes.get(12..14) == Some(&[8, 0])
                    && let Some(number) = frame.bytes.get(42..46)
                {
                    all.push(u32::from_be_bytes(number.try_into().unwrap()));
                }
            },
        );
        if taken == 0 {
            let got = all.len();
            assert!(
                becomes_readable(receiver, Duration::from_secs(10)),
                "only {got} of {count} frames came"
            );
        }
    }
    all
}

fn open_again(opener: &mut Opener) -> (Nic, bool) {
    let (parts, again) = opener.open_again(0).unwrap();
    (parts.attach().unwrap(), again)
}

/// In each row a process gets so many frames more, of which it sees some, and dies.
fn succession(opener: &mut Opener, first: Nic, peer: &mut dyn Peer) {
    let mut nic = first;
    let (mut sent, mut seen) = (0, 0);
    for (more, takes) in [
        (0, 0),
        (3, 3),
        (5, 1),
        (0, 0),
        (0, 1),
        (200, 90),
        (100, 0),
        (0, 189),
        (7, 20),
        (150, 161),
        (1, 1),
        (60, 60),
    ] {
        for number in sent..sent + more {
            peer.send(number);
        }
        sent += more;
        let came = numbers(&mut *nic.receiver, takes as usize);
        assert_eq!(came, (seen..seen + takes).collect::<Vec<u32>>());
        seen += takes;
        send(&mut nic, &datagram(b"alive", (0x1234, 9), peer.macs(), 0));
        assert_eq!(peer.hear(), b"alive");
        assert_eq!(nic.receiver.take_dropped(), 0);
        drop(nic);
        let again;
        (nic, again) = open_again(opener);
        assert!(again, "the same sockets");
    }
    assert_eq!(sent, seen);
}

#[test]
fn a_packet_ring_goes_on() {
    in_namespace(|| {
        make_veth();
        let mut far = Far(open_packet("a0"));
        let mut opener = Opener::new(&NicSpec::Packet("b0".into()), Sharing::Sole).unwrap();
        let (nic, again) = open_again(&mut opener);
        assert!(!again);
        succession(&mut opener, nic, &mut far);
    });
}

#[test]
fn a_shared_packet_ring_goes_on() {
    in_namespace(|| {
        make_veth();
        let mut far = Far(open_packet("a0"));
        let spec = NicSpec::Packet("b0".into());
        let Some(mut opener) = opener_that_steers(&spec, Sharing::Several) else {
            return;
        };
        set_address(&mut opener, IP_B);
        let (nic, _) = open_again(&mut opener);
        succession(&mut opener, nic, &mut far);
    });
}

#[test]
fn an_xdp_queue_goes_on() {
    in_namespace(|| {
        make_veth();
        let spec = NicSpec::Xdp("b0".into());
        let Some(mut opener) = opener_that_steers(&spec, Sharing::Sole) else {
            return;
        };
        set_address(&mut opener, IP_B);
        let (nic, _) = open_again(&mut opener);
        assert_eq!(nic.capabilities.kind, "xdp");
        let mut far = Far(open_packet("a0"));
        succession(&mut opener, nic, &mut far);
        // And if it isn't to be trusted, its queue is free for a new one.
        opener.close(0);
        let (nic, again) = open_again(&mut opener);
        assert_eq!((nic.capabilities.kind, again), ("xdp", false));
        far.send(7);
        let mut nic = nic;
        assert_eq!(numbers(&mut *nic.receiver, 1), [7]);
    });
}

#[test]
fn a_tap_queue_goes_on() {
    in_namespace(|| {
        let mut opener = Opener::new(&NicSpec::Tap("t".into()), Sharing::Sole).unwrap();
        let (nic, _) = open_again(&mut opener);
        ip(&format!("addr add {IP_B}/24 dev t"));
        let mac = nic.capabilities.mac;
        ip(&format!("neigh add {IP_A} lladdr {mac} dev t"));
        let kernel = interface::find("t").unwrap().unwrap().mac.unwrap();
        let socket = UdpSocket::bind((IP_B, 9)).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let macs = (mac, kernel);
        succession(&mut opener, nic, &mut Kernel { socket, macs });
    });
}

#[test]
fn a_full_ring_goes_on_with_the_oldest_frame() {
    in_namespace(|| {
        make_veth();
        let mut far = Far(open_packet("a0"));
        let mut opener = Opener::new(&NicSpec::Packet("b0".into()), Sharing::Sole).unwrap();
        let (mut nic, _) = open_again(&mut opener);
        (0..100).for_each(|number| far.send(number));
        assert_eq!(numbers(&mut *nic.receiver, 100).last(), Some(&99));
        (100..500).for_each(|number| far.send(number));
        drop(nic);
        let mut nic = open_again(&mut opener).0;
        let came = numbers(&mut *nic.receiver, 200);
        assert_eq!(came, (100..300).collect::<Vec<u32>>());
    });
}

#[test]
fn what_may_be_spoilt_or_has_changed_is_opened_anew() {
    in_namespace(|| {
        make_veth();
        let mut far = Far(open_packet("a0"));
        let mut opener = Opener::new(&NicSpec::Packet("b0".into()), Sharing::Sole).unwrap();
        assert!(!opener.can_go_on(0), "nothing is open");
        let (nic, _) = open_again(&mut opener);
        assert!(opener.can_go_on(0));
        // A name is but a name.
        ip("link set b0 name c0");
        assert!(opener.can_go_on(0) && !opener.has_changed(0));
        // Under another one it couldn't be opened anew, so it is left as it is.
        ip("link set c0 mtu 1400");
        assert!(opener.can_go_on(0) && !opener.has_changed(0));
        ip("link set c0 mtu 1500");
        ip("link set c0 name b0");
        far.send(1);
        drop(nic);
        opener.close(0);
        assert!(!opener.can_go_on(0));
        let (mut nic, again) = open_again(&mut opener);
        assert!(!again);
        far.send(2);
        assert_eq!(numbers(&mut *nic.receiver, 1), [2]);
        drop(nic);
        ip("link set b0 mtu 1400");
        assert!(!opener.can_go_on(0) && opener.has_changed(0));
        let (nic, again) = open_again(&mut opener);
        assert_eq!((nic.capabilities.mtu, again), (1400, false));
        // A cable that was pulled doesn't matter.
        ip("link set b0 down");
        assert!(opener.can_go_on(0));
        ip("link del b0");
        assert!(!opener.can_go_on(0) && !opener.has_changed(0));
        assert!(matches!(
            opener.open_again(0),
            Err(OpenError::NoInterface { .. })
        ));
    });
}
