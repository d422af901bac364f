//! What transports in other processes are told.

use super::{Host, PEER4, US4, US6};
use crate::Replica;
use core::net::IpAddr;
use skink_messages::FrameOutput;

#[test]
fn a_replica_answers_as_ip_does() {
    let mut host = Host::new();
    let far: IpAddr = "198.51.100.1".parse().expect("an address");
    let before = host.ip.view_revision();
    host.ip.path_mtus.shrink(host.now, far, 1300);
    assert_ne!(host.ip.view_revision(), before, "a path has changed");
    let replica = Replica::new(host.ip.view(), None, 9);
    let limits = host.wire.limits();
    let sources = [
        None,
        Some(IpAddr::V4(US4)),
        Some(IpAddr::V6(US6)),
        Some(IpAddr::V4(PEER4)),
    ];
    let destinations = [
        "10.0.0.1",
        "10.0.0.2",
        "10.0.0.255",
        "198.51.100.1",
        "198.51.100.2",
        "224.0.0.1",
        "239.1.2.3",
        "0.0.0.0",
        "127.0.0.1",
        "2001:db8::2",
        "2001:db8:1::2",
        "fe80::7",
        "ff02::1",
        "::",
        "::1",
    ];
    for destination in destinations {
        let destination: IpAddr = destination.parse().expect("an address");
        for source in sources {
            assert_eq!(
                replica.path(source, destination, &limits),
                host.ip.path(source, destination, &limits),
                "{source:?} to {destination}"
            );
        }
        let is_local = host.ip.is_local(destination);
        assert_eq!(replica.is_local(destination), is_local, "{destination}");
        if let IpAddr::V4(destination) = destination {
            let is_broadcast = host.ip.is_broadcast(destination);
            assert_eq!(replica.is_broadcast(destination), is_broadcast);
        }
    }
    let path = replica.path(None, far, &limits).expect("a route");
    assert_eq!(path.mtu, 1300);
}

/// (address, whether packets to it are for all of a network): an address of ours isn't, though another network of ours ends in
/// it.
#[test]
fn broadcasts_are_told_from_addresses_of_ours() {
    let mut all = vec!["10.1.0.255/16", "10.1.0.1/24", "10.2.0.1/30", "10.3.0.3/31"];
    all.extend(["10.4.0.3/32", "2001:db8::1/64"]);
    let host = Host::with(|config| {
        let parsed = all.iter().map(|text| text.parse().expect("a network"));
        config.addresses = parsed.collect();
    });
    let replica = Replica::new(host.ip.view(), None, 9);
    let cases = [
        ("255.255.255.255", true),
        ("10.1.255.255", true),
        ("10.1.0.255", false),
        ("10.1.0.1", false),
        ("10.2.0.3", true),
        ("10.3.0.3", false),
        ("10.4.0.3", false),
        ("10.5.0.255", false),
        ("224.0.0.1", false),
    ];
    for (address, expected) in cases {
        let address = address.parse().expect("an address");
        assert_eq!(host.ip.is_broadcast(address), expected, "{address}");
        assert_eq!(replica.is_broadcast(address), expected, "{address}");
    }
}
