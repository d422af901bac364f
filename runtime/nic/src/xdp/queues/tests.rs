use super::*;
use crate::test_support::opener_that_steers;
use crate::xdp::tests::{NEAR, UDP, datagram, kernel_socket, on_a_link, owner};
use crate::{Nic, NicSpec, Opener, Sharing};
use skink_messages::Ports;
use skink_steering::PortTable;
use std::net::UdpSocket;

/// Opens the NIC for `number`, who uses UDP port 6000 + `number`.
fn open_owner(opener: &mut Opener, number: u8) -> (Nic, PortTable) {
    let parts = opener.open(u16::from(number)).expect("opened");
    let nic = parts.attach().expect("attached");
    let maps = opener
        .steering()
        .expect("steers")
        .port_maps()
        .expect("maps");
    let mut table = PortTable::map(owner(number), Some(maps.tcp), Some(maps.udp)).expect("mapped");
    assert!(table.use_port(UDP, 6000 + u16::from(number), true));
    (nic, table)
}

/// Sends 40 datagrams from as many sockets to `port`, until less than `few` of those that come to the first of the NICs
/// come beside its queues. The others are looked after.
fn until_beside(few: u64, port: u16, nics: &mut [&mut Nic]) {
    let senders: Vec<UdpSocket> = (0..40).map(|at| kernel_socket(5000 + at)).collect();
    let begun = std::time::Instant::now();
    loop {
        nics[0].receiver.take_beside();
        for sender in &senders {
            sender.send_to(b"which way?", (NEAR, port)).expect("sent");
        }
        let mut came = 0;
        while came < senders.len() {
            let now = Instant::ZERO + begun.elapsed();
            assert!(now < Instant::ZERO + Duration::from_secs(10));
            for (at, nic) in nics.iter_mut().enumerate() {
                nic.receiver
                    .receive(now, &mut Budget::frames(64), &mut |frame| {
                        let ours = frame.bytes.get(12..14) == Some(&[8, 0]);
                        came += usize::from(at == 0 && ours);
                    });
            }
        }
        if nics[0].receiver.take_beside() < few {
            return;
        }
    }
}

#[test]
fn queues_are_passed_on_among_living_owners_and_from_dead_ones() {
    on_a_link(1500, 4, || {
        let spec = NicSpec::Xdp("near".to_owned());
        let Some(mut opener) = opener_that_steers(&spec, Sharing::Several) else {
            return;
        };
        let address = "10.1.0.1/24".parse().expect("an address");
        let steering = opener.steering().expect("steers");
        steering.set_addresses(&[address]).expect("set");
        let (mut first, _ports) = open_owner(&mut opener, 0);
        until_beside(10, 6000, &mut [&mut first]);
        let (mut second, _its) = open_owner(&mut opener, 1);
        // About half of its frames come by its queues as soon as the first has let go of them.
        until_beside(35, 6001, &mut [&mut second, &mut first]);
        until_beside(35, 6000, &mut [&mut first, &mut second]);
        // Both send.
        let kernel = kernel_socket(5000);
        for nic in [&mut first, &mut second] {
            nic.sender.send(&datagram(b"out", &[])).expect("room");
            nic.sender.flush();
            let mut answer = [0; 100];
            let (len, _) = kernel.recv_from(&mut answer).expect("a datagram");
            assert_eq!(&answer[..len], b"out");
        }
        drop((kernel, first));
        opener.close(0);
        until_beside(10, 6001, &mut [&mut second]);
    });
}
