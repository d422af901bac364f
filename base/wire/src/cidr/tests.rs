use std::string::ToString;

use super::*;

fn cidr(text: &str) -> IpCidr {
    text.parse().unwrap()
}

#[test]
fn parses_and_displays() {
    for text in [
        "192.0.2.7/24",
        "0.0.0.0/0",
        "10.0.0.1/32",
        "2001:db8::1/64",
        "::/0",
        "::1/128",
    ] {
        assert_eq!(cidr(text).to_string(), text);
    }
}

#[test]
fn refuses_with_a_reason() {
    let too_long = |prefix, maximum| CidrError::PrefixTooLong { prefix, maximum };
    let table = [
        ("192.0.2.1", CidrError::NoSlash),
        ("", CidrError::NoSlash),
        ("192.0.2/24", CidrError::BadAddress),
        ("/24", CidrError::BadAddress),
        ("192.0.2.1/", CidrError::BadPrefix),
        ("192.0.2.1/+24", CidrError::BadPrefix),
        ("192.0.2.1/ 24", CidrError::BadPrefix),
        ("192.0.2.1/256", CidrError::BadPrefix),
        ("192.0.2.1/24/8", CidrError::BadPrefix),
        ("192.0.2.1/33", too_long(33, 32)),
        ("::1/129", too_long(129, 128)),
    ];
    for (text, error) in table {
        assert_eq!(text.parse::<IpCidr>(), Err(error), "{text:?}");
    }
    assert_eq!(
        too_long(33, 32).to_string(),
        "a prefix of 33 bits is longer than the address: write at most 32"
    );
}

#[test]
fn contains() {
    let table = [
        ("192.0.2.7/24", "192.0.2.255", true),
        ("192.0.2.7/24", "192.0.3.0", false),
        ("192.0.2.7/32", "192.0.2.7", true),
        ("192.0.2.7/32", "192.0.2.6", false),
        ("192.0.2.7/0", "255.255.255.255", true),
        ("192.0.2.7/0", "::1", false),
        ("::/0", "192.0.2.7", false),
        ("2001:db8::1/64", "2001:db8::ffff:0:0:1", true),
        ("2001:db8::1/64", "2001:db8:0:1::1", false),
        ("2001:db8::1/128", "2001:db8::1", true),
        ("2001:db8::1/128", "2001:db8::2", false),
        ("2001:db8::1/127", "2001:db8::", true),
        ("::/0", "ffff::", true),
    ];
    for (network, addr, expected) in table {
        assert_eq!(
            cidr(network).contains(addr.parse().unwrap()),
            expected,
            "{network} {addr}"
        );
    }
}

#[test]
fn network_and_broadcast() {
    let table = [
        ("192.0.2.77/24", "192.0.2.0/24", Some("192.0.2.255")),
        ("192.0.2.77/30", "192.0.2.76/30", Some("192.0.2.79")),
        ("192.0.2.77/31", "192.0.2.76/31", None),
        ("192.0.2.77/32", "192.0.2.77/32", None),
        ("192.0.2.77/0", "0.0.0.0/0", Some("255.255.255.255")),
        ("2001:db8::77/64", "2001:db8::/64", None),
        ("2001:db8::77/0", "::/0", None),
    ];
    for (text, network, broadcast) in table {
        assert_eq!(cidr(text).network(), cidr(network), "{text}");
        let broadcast = broadcast.map(|text| text.parse().unwrap());
        assert_eq!(cidr(text).broadcast(), broadcast, "{text}");
    }
}

#[test]
fn an_oversized_prefix_made_by_hand_is_a_host() {
    let host = IpCidr {
        addr: Ipv4Addr::new(192, 0, 2, 1).into(),
        prefix: 200,
    };
    assert!(host.contains(host.addr));
    assert!(!host.contains(Ipv4Addr::new(192, 0, 2, 2).into()));
    assert_eq!(host.network().addr, host.addr);
}
