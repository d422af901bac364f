use std::string::ToString;

use super::*;

#[test]
fn mac_addresses() {
    let mac = MacAddr([0x02, 0, 0xab, 0xc, 0, 0xff]);
    assert_eq!(mac.to_string(), "02:00:ab:0c:00:ff");
    // address, multicast, broadcast, unicast
    let table = [
        (mac, false, false, true),
        (MacAddr::BROADCAST, true, true, false),
        (MacAddr([1, 0, 0x5e, 0, 0, 1]), true, false, false),
        (MacAddr::UNSPECIFIED, false, false, false),
    ];
    for (mac, multicast, broadcast, unicast) in table {
        assert_eq!(mac.is_multicast(), multicast, "{mac}");
        assert_eq!(mac.is_broadcast(), broadcast, "{mac}");
        assert_eq!(mac.is_unicast(), unicast, "{mac}");
    }
}

#[test]
fn multicast_groups() {
    // RFC 1112: the top bit of the second byte is not mapped.
    assert_eq!(
        MacAddr::multicast_for_ipv4(Ipv4Addr::new(224, 0x81, 2, 3)),
        MacAddr([0x01, 0x00, 0x5e, 0x01, 2, 3])
    );
    assert_eq!(
        MacAddr::multicast_for_ipv6("ff02::1:ff28:9c5a".parse().unwrap()),
        MacAddr([0x33, 0x33, 0xff, 0x28, 0x9c, 0x5a])
    );
}

#[test]
fn endpoints() {
    for text in ["192.0.2.1:80", "[2001:db8::1]:443"] {
        let socket: SocketAddr = text.parse().unwrap();
        let endpoint = Endpoint::from(socket);
        assert_eq!(endpoint.to_string(), text);
        assert_eq!(SocketAddr::from(endpoint), socket);
    }
}

#[test]
fn a_four_tuple_shows_our_end_first() {
    let local = Endpoint::new(Ipv4Addr::new(192, 0, 2, 1).into(), 80);
    let remote = Endpoint::new(Ipv4Addr::new(192, 0, 2, 2).into(), 50000);
    let tuple = FourTuple::new(local, remote);
    assert_eq!(tuple.to_string(), "192.0.2.1:80 <-> 192.0.2.2:50000");
}
