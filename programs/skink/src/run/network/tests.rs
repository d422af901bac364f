use super::*;
use crate::run::choice::{self, Use};

fn planned(
    options: &NetworkOptions,
    interfaces: &[Interface],
    ipv6: bool,
) -> Result<Plan, Failure> {
    let candidates = choice::candidates(options.nic.as_ref(), interfaces, Use::Inside)?;
    plan(options, candidates, interfaces, ipv6)
}

fn options(nic: Option<&str>, addresses: &[&str], gateways: &[&str]) -> NetworkOptions {
    NetworkOptions {
        nic: nic.map(|nic| nic.parse().expect("a NIC")),
        addresses: addresses
            .iter()
            .map(|address| address.parse().expect("an address"))
            .collect(),
        gateways: gateways
            .iter()
            .map(|gateway| gateway.parse().expect("an address"))
            .collect(),
        no_probe: false,
    }
}

fn interface(name: &str, addresses: &[&str]) -> Interface {
    Interface {
        name: name.to_owned(),
        index: 1,
        mac: None,
        mtu: 1500,
        up: true,
        running: true,
        loopback: false,
        addresses: addresses
            .iter()
            .map(|address| address.parse().expect("an address"))
            .collect(),
    }
}

fn texts<T: ToString>(values: &[T]) -> String {
    values
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn whatever_is_left_open_is_chosen_so_that_it_is_free() {
    let nothing = vec![interface("lo", &["127.0.0.1/8", "::1/128"])];
    let taken = vec![
        interface("skink0", &["10.77.0.1/24"]),
        interface("eth0", &["10.77.1.9/23", "fd77:0:0:4::1/64"]),
    ];
    let busy = vec![interface("t0", &["192.0.2.1/30", "fe80::1/64"])];
    let plain = vec![interface("t0", &["fe80::1/64"])];
    let wide = vec![interface("eth0", &["10.0.0.1/8"])];
    type Row<'a> = (NetworkOptions, &'a [Interface], bool, [&'a str; 4]);
    let cases: [Row<'_>; 10] = [
        (
            options(None, &[], &[]),
            &nothing,
            true,
            [
                "tap:skink0",
                "10.77.0.2/24 fd77::2/64",
                "",
                "10.77.0.1/24 fd77::1/64",
            ],
        ),
        (
            options(None, &[], &[]),
            &nothing,
            false,
            ["tap:skink0", "10.77.0.2/24", "", "10.77.0.1/24"],
        ),
        (
            options(None, &[], &[]),
            &taken,
            true,
            [
                "tap:skink1",
                "10.77.2.2/24 fd77:0:0:2::2/64",
                "",
                "10.77.2.1/24 fd77:0:0:2::1/64",
            ],
        ),
        (
            options(Some("tap:t0"), &[], &[]),
            &busy,
            true,
            ["tap:t0", "192.0.2.2/30", "", ""],
        ),
        (
            options(Some("tap:t0"), &["10.9.0.2/24"], &[]),
            &plain,
            true,
            ["tap:t0", "10.9.0.2/24", "", ""],
        ),
        (
            options(Some("tap:t0"), &["10.9.0.1/24"], &[]),
            &nothing,
            true,
            ["tap:t0", "10.9.0.1/24", "", "10.9.0.2/24"],
        ),
        (
            options(
                Some("tap:t0"),
                &["10.9.0.1/24", "10.9.0.2/24"],
                &["10.9.0.7"],
            ),
            &nothing,
            true,
            [
                "tap:t0",
                "10.9.0.1/24 10.9.0.2/24",
                "10.9.0.7",
                "10.9.0.7/24",
            ],
        ),
        (
            options(Some("tap:t0"), &["192.0.2.2/30"], &[]),
            &busy,
            true,
            ["tap:t0", "192.0.2.2/30", "", ""],
        ),
        (
            options(Some("packet:eth0"), &["10.0.0.7/8"], &["10.0.0.254"]),
            &wide,
            true,
            ["packet:eth0", "10.0.0.7/8", "10.0.0.254", ""],
        ),
        (
            options(Some("xdp:eth0"), &["fd00::7/64"], &["fe80::1"]),
            &wide,
            true,
            ["xdp:eth0", "fd00::7/64", "fe80::1", ""],
        ),
    ];
    for (options, interfaces, ipv6, expected) in cases {
        let plan = planned(&options, interfaces, ipv6).expect("a plan");
        let chosen = [
            plan.nic.to_string(),
            texts(&plan.addresses),
            texts(&plan.gateways),
            texts(&plan.kernel_addresses),
        ];
        assert_eq!(chosen, expected, "{options:?}");
    }
}

#[test]
fn what_cannot_be_is_refused_with_what_to_do() {
    let interfaces = vec![
        interface("eth0", &["10.0.0.1/24"]),
        interface("t0", &["fe80::1/64"]),
    ];
    let eth = Some("packet:eth0");
    let cases = [
        (options(Some("tap:t0"), &[], &[]), "t0 is there already"),
        (options(eth, &[], &[]), "give one with --addr"),
        (
            options(Some("eth0"), &[], &[]),
            "--nic eth0 needs an address",
        ),
        (
            options(Some("wifi"), &[], &[]),
            "no interface wifi here; there are: eth0, t0",
        ),
        (
            options(eth, &["10.0.0.1/24"], &[]),
            "ip address del 10.0.0.1/24 dev eth0",
        ),
        (options(eth, &["10.0.0.0/24"], &[]), "no host"),
        (options(eth, &["10.0.0.255/24"], &[]), "no host"),
        (options(eth, &["224.0.0.1/24"], &[]), "no host"),
        (options(eth, &["127.0.0.2/8"], &[]), "no host"),
        (options(eth, &["::/64"], &[]), "no host"),
        (options(eth, &["::ffff:10.0.0.7/120"], &[]), "no host"),
        (options(eth, &["10.0.0.2/24", "10.0.0.2/16"], &[]), "twice"),
        (
            options(eth, &["10.0.0.2/24"], &["10.0.1.1"]),
            "on no network",
        ),
        (
            options(eth, &["10.0.0.2/24"], &["fd00::1"]),
            "on no network",
        ),
        (options(eth, &["10.0.0.2/24"], &["10.0.0.2"]), "own address"),
        (options(eth, &["10.0.0.2/24"], &["10.0.0.255"]), "no host"),
        (options(eth, &["10.0.0.2/32"], &["224.0.0.1"]), "no host"),
        (
            options(eth, &["10.0.0.2/32"], &["fd00::1"]),
            "on no network",
        ),
        (
            options(eth, &["10.0.0.2/24"], &["10.0.0.3", "10.0.0.4"]),
            "one gateway",
        ),
    ];
    for (options, expected) in cases {
        let failure = planned(&options, &interfaces, true).expect_err("refused");
        assert_eq!(failure.code, 125);
        assert!(
            failure.message.contains(expected),
            "{options:?}: {}",
            failure.message
        );
    }
}

#[test]
fn an_address_alone_on_its_network_has_its_router_elsewhere() {
    let interfaces = [interface("eth0", &[])];
    let options = options(
        Some("packet:eth0"),
        &["192.0.2.7/32", "2001:db8::7/128"],
        &["10.0.0.1", "fe80::1"],
    );
    let plan = planned(&options, &interfaces, true).expect("a plan");
    assert_eq!(plan.gateways.len(), 2);
}

#[test]
fn the_user_is_told_what_was_chosen() {
    let mut plan = planned(&options(None, &[], &[]), &[], true).expect("a plan");
    let expected = [
        "nginx has 10.77.0.2/24 and fd77::2/64 on tap:skink0, made for it",
        "this machine reaches it at 10.77.0.2 and fd77::2, and is 10.77.0.1 and fd77::1 to it",
    ];
    assert_eq!(plan.describe("nginx"), expected);
    plan.remarks.push("why".to_owned());
    assert_eq!(plan.describe("nginx")[..2], ["why", expected[0]]);
}
