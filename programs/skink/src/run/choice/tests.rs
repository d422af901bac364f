use super::*;
use skink_nic::{XdpPlace, XdpSupport};

const NATIVE: XdpSupport = XdpSupport {
    native: true,
    zero_copy: false,
};

/// A machine on which nothing speaks against AF_XDP, with this driver.
fn machine(driver: &str, xdp: Option<XdpSupport>) -> Facts {
    Facts {
        interface: "eth0".to_owned(),
        device: Device {
            driver: driver.to_owned(),
            cuts: true,
            xdp_program: None,
            xdp,
        },
        mtu: 1500,
        running: true,
        may_load: true,
        may_pin: true,
        used: Use::Inside,
    }
}

fn veth() -> Facts {
    machine("veth", Some(NATIVE))
}

/// The same machine, changed.
fn but(mut facts: Facts, change: impl FnOnce(&mut Facts)) -> Facts {
    change(&mut facts);
    facts
}

/// The order in which NICs are tried, and why the first is the first.
fn chosen(facts: &Facts) -> (String, String) {
    let all = best(facts);
    let names: Vec<String> = all.iter().map(|it| it.nic.to_string()).collect();
    let why = all.first().and_then(|it| it.why.clone());
    (names.join(" "), why.expect("a reason"))
}

#[test]
fn each_machine_gets_its_back_end_and_is_told_why() {
    let zero_copy = Some(XdpSupport {
        native: true,
        zero_copy: true,
    });
    let none = Some(XdpSupport {
        native: false,
        zero_copy: false,
    });
    let xdp = "xdp:eth0 packet:eth0";
    let packet = "packet:eth0";
    let cases: [(Facts, &str, &str); 16] = [
        (veth(), xdp, "on a veth small requests on xdp do"),
        (machine("veth", None), xdp, "large answers 1."),
        (
            but(veth(), |it| it.device.cuts = false),
            xdp,
            "without segmentation offload small",
        ),
        (
            but(veth(), |it| {
                it.device.cuts = false;
                it.used = Use::Apart;
            }),
            packet,
            "without segmentation offload small requests on xdp do 0.99",
        ),
        (
            but(veth(), |it| it.device.xdp_program = Some(XdpPlace::Generic)),
            packet,
            "another XDP program is in front of eth0",
        ),
        (but(veth(), |it| it.may_load = false), packet, "CAP_BPF"),
        (but(veth(), |it| it.may_pin = false), packet, "CAP_IPC_LOCK"),
        (but(veth(), |it| it.mtu = 3826), xdp, "veth"),
        (but(veth(), |it| it.mtu = 3827), packet, "(MTU 3827)"),
        (but(veth(), |it| it.used = Use::Apart), xdp, "on a veth"),
        (
            but(machine("i40e", zero_copy), |it| it.used = Use::Apart),
            packet,
            "skink up",
        ),
        (machine("i40e", zero_copy), xdp, "eth0 (i40e) exchanges"),
        (machine("ena", Some(NATIVE)), packet, "would copy"),
        (machine("gve", None), packet, "takes no XDP program"),
        (machine("e1000", none), packet, "of eth0 (e1000) takes no"),
        (machine("", none), packet, "driver of eth0 takes no"),
    ];
    for (facts, names, words) in cases {
        let (order, why) = chosen(&facts);
        assert_eq!(order, names, "{facts:?}");
        assert!(why.contains(words), "{facts:?}: {why}");
    }
}

#[test]
fn a_tap_is_taken_by_the_end_that_is_free() {
    let tap = machine("tun", Some(NATIVE));
    let (order, why) = chosen(&but(tap.clone(), |it| it.running = false));
    assert_eq!(order, "tap:eth0");
    assert!(why.contains("nobody has"), "{why}");
    assert_eq!(chosen(&tap).0, "packet:eth0");
}

#[test]
fn what_a_person_writes_and_reads() {
    for text in ["eth0", "xdp:eth0", "packet:eth0", "tap:t0"] {
        let wanted: Wanted = text.parse().expect("good");
        assert_eq!(wanted.to_string(), text);
        assert_eq!(
            matches!(wanted, Wanted::BestOn(_)),
            !text.contains(':'),
            "{text}"
        );
    }
    for (text, words) in [
        ("dpdk:eth0", "Skink chooses"),
        ("", "1 to 15 bytes"),
        ("two words", "1 to 15 bytes"),
    ] {
        let error = text.parse::<Wanted>().expect_err("refused");
        assert!(error.contains(words), "{text}: {error}");
    }
    for used in [Use::Inside, Use::Apart] {
        let (_, why) = chosen(&but(veth(), |it| it.used = used));
        let ratio = measured::ratio(used, true, SMALL);
        assert!(why.contains(&format!("{ratio:.2} of packet")), "{why}");
    }
}

#[test]
fn who_names_a_nic_gets_that_one_and_no_other() {
    let named: Wanted = "xdp:eth0".parse().expect("good");
    let all = candidates(Some(&named), &[], Use::Apart).expect("no choice");
    assert_eq!(all, [Candidate::named(NicSpec::Xdp("eth0".to_owned()))]);
    assert_eq!(candidates(None, &[], Use::Inside), Ok(Vec::new()));
}

#[test]
fn the_documentation_shows_what_was_measured() {
    let text = include_str!("../../../../../docs/performance.md");
    for figure in measured::VETH.iter().flat_map(|it| it.2) {
        let row = format!(
            "| `{}` | {:.2} | {:.2} | {:.2} |",
            figure.workload,
            figure.packet,
            figure.xdp,
            figure.xdp / figure.packet
        );
        assert!(text.contains(&row), "docs/performance.md lacks {row}");
    }
}
