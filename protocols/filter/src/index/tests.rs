use super::*;
use crate::rules::Answer;
use crate::summary::Piece;
use crate::test_support::{Random, end, icmp, later, rules, tcp, udp};
use std::net::IpAddr;

/// What pf's manual says, and nothing cleverer: every rule is looked at, the last that matches decides,
/// and one that is quick ends the search.
fn naive(set: &RuleSet, interface: &str, direction: Direction, packet: &Summary) -> Option<u32> {
    let mut found = None;
    for (number, rule) in (0..).zip(&set.rules) {
        if naive_matches(set, rule, interface, direction, packet) {
            found = Some(number);
            if rule.quick {
                break;
            }
        }
    }
    found
}

fn naive_matches(
    set: &RuleSet,
    rule: &Rule,
    interface: &str,
    direction: Direction,
    packet: &Summary,
) -> bool {
    let whole = packet.piece != Piece::Later;
    let on = match &rule.interface {
        None => true,
        Some(wanted) => (wanted.name == interface) != wanted.negated,
    };
    let flags = match rule.flags {
        FlagTest::Any => true,
        FlagTest::Exactly { .. } if packet.protocol != protocol::TCP => true,
        FlagTest::Exactly { set, mask } => whole && packet.tcp_flags & mask.bits() == set.bits(),
    };
    let icmp = rule.icmp.is_none_or(|test| {
        whole
            && test.kind == packet.icmp_type
            && test.code.is_none_or(|code| code == packet.icmp_code)
    });
    let port = |test: PortTest, port| test == PortTest::Any || (whole && test.matches(port));
    on && rule.direction.is_none_or(|wanted| wanted == direction)
        && rule.family.is_none_or(|family| family == packet.family)
        && rule.protocol.is_none_or(|number| number == packet.protocol)
        && naive_address(set, &rule.from.address, packet.family, packet.source)
        && naive_address(set, &rule.to.address, packet.family, packet.destination)
        && port(rule.from.port, packet.source_port)
        && port(rule.to.port, packet.destination_port)
        && flags
        && icmp
}

fn naive_address(set: &RuleSet, wanted: &Address, family: Family, number: u128) -> bool {
    let address = crate::summary::address(family, number);
    match wanted {
        Address::Any => true,
        Address::Network { negated, network } => network.contains(address) != *negated,
        Address::Table { negated, index } => {
            let entries = set.tables[*index].entries.iter();
            let fitting = entries.filter(|(_, network)| network.contains(address));
            // Of two equal networks the later one counts.
            let longest = fitting.max_by_key(|(_, network)| network.prefix);
            longest.is_some_and(|(out, _)| !out) != *negated
        }
    }
}

const ADDRESSES: [&str; 8] = [
    "10.0.0.1",
    "10.0.0.2",
    "10.1.0.1",
    "192.0.2.1",
    "2001:db8::1",
    "2001:db8::2",
    "fd00::1",
    "::ffff:10.0.0.1",
];
const NETWORKS: [&str; 9] = [
    "10.0.0.0/8",
    "10.0.0.0/24",
    "0.0.0.0/0",
    "::/0",
    "2001:db8::/32",
    "2001:db8::1/128",
    "fd00::/8",
    "10.0.0.2/31",
    "::/96",
];
const PORTS: [u16; 7] = [0, 1, 53, 80, 443, 1024, 65535];

fn random_peer(random: &mut Random, family: Option<&str>, ports: bool) -> String {
    let fits = |text: &str| match family {
        Some("inet") => !text.contains(':'),
        Some(_) => text.contains(':'),
        None => true,
    };
    let not = random.pick(&["", "", "", "! "]);
    let address = match random.below(7) {
        0..=2 => random.pick(&ADDRESSES),
        3 => random.pick(&NETWORKS),
        4 => random.pick(&["<one>", "<two>"]),
        _ => "any",
    };
    let address = match fits(address) || address.starts_with('<') {
        true => address,
        false => "any",
    };
    let not = if address == "any" { "" } else { not };
    if !ports || random.below(2) == 0 {
        return format!("{not}{address}");
    }
    let (mut low, mut high) = (random.pick(&PORTS), random.pick(&PORTS));
    if low > high {
        (low, high) = (high, low);
    }
    let port = match random.below(11) {
        0..=3 => format!("{low}"),
        4 => format!("!= {low}"),
        5 => format!("< {low}"),
        6 => format!("<= {low}"),
        7 => format!("> {low}"),
        8 => format!(">= {low}"),
        9 => format!("{low} >< {high}"),
        _ => format!("{low} <> {high}"),
    };
    format!("{not}{address} port {port}")
}

/// A line of a file; one whose ends are of different IP versions is left out by the caller.
fn random_rule(random: &mut Random) -> String {
    let family = random.pick(&[None, None, Some("inet"), Some("inet6")]);
    let protocol = random.pick(&[
        "",
        "proto tcp",
        "proto tcp",
        "proto udp",
        "proto icmp",
        "proto icmp6",
        "proto 47",
    ]);
    let ports = matches!(protocol, "proto tcp" | "proto udp");
    let options = match protocol {
        "proto icmp" => random.pick(&["", "icmp-type echoreq", "icmp-type 0 code 1"]),
        "proto icmp6" => random.pick(&["", "icmp6-type echoreq"]),
        "proto tcp" | "" => random.pick(&["", "flags any", "flags A/A", "flags /SA"]),
        _ => "",
    };
    format!(
        "{} {} {} {} {} {protocol} from {} to {} {options}",
        random.pick(&["pass", "block drop", "block return"]),
        random.pick(&["", "in", "out"]),
        random.pick(&["", "", "", "quick"]),
        random.pick(&["", "", "on eth0", "on ! eth0", "on eth1"]),
        family.unwrap_or_default(),
        random_peer(random, family, ports),
        random_peer(random, family, ports),
    )
}

fn random_packet(random: &mut Random) -> Summary {
    let family = random.below(2);
    let addresses: Vec<&str> = ADDRESSES
        .into_iter()
        .filter(|text| text.contains(':') == (family == 1))
        .collect();
    let mut endpoint = || {
        let address: IpAddr = random.pick(&addresses).parse().expect("an address");
        std::net::SocketAddr::new(address, random.pick(&PORTS)).to_string()
    };
    let (source, destination) = (endpoint(), endpoint());
    assert_eq!(end(&source).addr.is_ipv6(), family == 1);
    let packet = match random.below(6) {
        0..=1 => tcp(
            &source,
            &destination,
            random.pick(&["S", "SA", "A", "RA", "FA"]),
        ),
        2..=3 => udp(&source, &destination),
        4 => icmp(&source, &destination, random.pick(&[0, 8, 128, 129, 3]), 0),
        _ => Summary {
            protocol: 47,
            source_port: 0,
            destination_port: 0,
            ..udp(&source, &destination)
        },
    };
    match random.below(8) {
        0 => later(packet),
        _ => packet,
    }
}

const TABLES: &str = "table <one> { 10.0.0.0/8, !10.0.0.0/24, 10.0.0.2, 2001:db8::1 }\n\
    table <two> { ! 192.0.2.1, 192.0.0.0/16, ::/0, ! 2001:db8::/32 }\n";

#[test]
fn the_index_finds_what_a_naive_search_finds() {
    let mut matched = [0u32; 3];
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let mut text = TABLES.to_owned();
        for _ in 0..=random.below(40) {
            let rule = random_rule(&mut random);
            if RuleSet::parse(&format!("{TABLES}{rule}")).is_ok() {
                text.push_str(&rule);
                text.push('\n');
            }
        }
        let set = rules(&text);
        let index = Index::new(&set, "eth0", seed);
        for _ in 0..200 {
            let packet = random_packet(&mut random);
            let direction = random.pick(&[Direction::In, Direction::Out]);
            let found = index.find(direction, &packet, |_| {});
            let expected = naive(&set, "eth0", direction, &packet);
            assert_eq!(
                found.map(|found| found.rule),
                expected,
                "seed {seed}: {packet:?}\n{text}"
            );
            let kind = match found.map(|found| found.action) {
                None => 0,
                Some(Action::Pass) => 1,
                Some(Action::Block(_)) => 2,
            };
            matched[kind] += 1;
        }
    }
    assert!(
        matched.iter().all(|count| *count > 5_000),
        "all kinds occur: {matched:?}"
    );
}

#[test]
fn few_rules_are_looked_at() {
    let mut text = String::from("block all\n");
    for n in 0..1_000 {
        text.push_str(&format!("pass in proto tcp to port {}\n", 1_000 + n));
        text.push_str(&format!(
            "block in quick from 10.0.{}.{}\n",
            n / 250,
            n % 250
        ));
    }
    // One port, for many sources.
    for n in 0..1_000 {
        let (high, low) = (n / 250, n % 250);
        text.push_str(&format!(
            "pass in proto tcp from 10.1.{high}.{low} to port 22\n"
        ));
    }
    let index = Index::new(&rules(&text), "eth0", 1);
    for (source, port, expected) in [
        ("10.1.2.3:9", 22, Some(Action::Pass)),
        ("10.1.4.1:9", 22, Some(Action::Block(Answer::Drop))),
        ("192.0.2.1:9", 1_500, Some(Action::Pass)),
        ("192.0.2.1:9", 80, Some(Action::Block(Answer::Drop))),
        ("10.0.3.5:9", 1_500, Some(Action::Block(Answer::Drop))),
    ] {
        let packet = tcp(source, &format!("192.0.2.2:{port}"), "S");
        let mut tried = 0;
        let found = index.find(Direction::In, &packet, |_| tried += 1);
        assert_eq!(found.map(|found| found.action), expected);
        assert!(
            tried <= 1 + MANY + 1,
            "{tried} rules for {source} and {port}"
        );
    }
}

#[test]
fn egress_is_the_only_interface() {
    let set = rules("block on egress\npass on ! egress\npass on lo0");
    let index = Index::new(&set, "eth0", 1);
    let packet = udp("10.0.0.1:1", "10.0.0.2:2");
    let found = index.find(Direction::In, &packet, |_| {}).expect("a match");
    assert_eq!(found.rule, 0);
}

#[test]
fn port_ranges_are_the_tests_they_stand_for() {
    let ports = [0, 1, 2, 5, 6, 7, 8, 9, 10, 65_534, 65_535];
    for a in ports {
        for b in ports.into_iter().filter(|b| a <= *b) {
            for test in [
                PortTest::Any,
                PortTest::Equal(a),
                PortTest::Unequal(a),
                PortTest::Below(a),
                PortTest::AtMost(a),
                PortTest::Above(a),
                PortTest::AtLeast(a),
                PortTest::Range(a, b),
                PortTest::Between(a, b),
                PortTest::Except(a, b),
            ] {
                for port in ports {
                    let range = PortRange::new(test);
                    assert_eq!(range.matches(port), test.matches(port), "{test:?} {port}");
                }
            }
        }
    }
}
