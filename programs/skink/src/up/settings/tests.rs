use super::*;
use crate::cli::{Cli, Verb};
use clap::Parser;
use std::path::Path;

fn settings(words: &[&str], file: &str) -> Result<Settings, Failure> {
    let words = [&["skink", "up"], words].concat();
    let cli = Cli::try_parse_from(&words).expect("good");
    let Verb::Up(options) = cli.verb else {
        panic!("up: {cli:?}");
    };
    let config = Config::parse(Path::new("skink.toml"), file).expect("good");
    Settings::of(&options, config, String::new(), &[0, 1])
}

#[test]
fn the_command_line_goes_before_the_file_and_the_file_before_defaults() {
    let file = "name = \"file\"\nnic = \"packet:eth0\"\naddresses = [\"10.0.0.2/24\"]\n\
                gateways = [\"10.0.0.1\"]\nuser = \"5\"\nprogram = 3"
        .replace(
            "program = 3",
            "programs = 3\nprobe = false\n[tcp]\nsockets = 16",
        );
    let show = |settings: &Settings| {
        let network = &settings.network;
        format!(
            "{} {} {:?} {:?} {:?} {} {:?} {} {}x{}",
            settings.name,
            settings.topology.name,
            network.nic.as_ref().map(ToString::to_string),
            network
                .addresses
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>(),
            network.gateways,
            network.no_probe,
            settings.user.map(|user| user.uid),
            settings.programs,
            settings.tcp.sockets,
            settings.tcp.send_bytes,
        )
    };
    let cases = [
        (
            &[][..],
            "",
            "skink single None [] [] false None 1518 8192x4194304",
        ),
        (
            &[],
            "programs = 4096",
            "skink single None [] [] false None 4096 8192x1048576",
        ),
        (
            &[],
            file.as_str(),
            "file single Some(\"packet:eth0\") [\"10.0.0.2/24\"] [10.0.0.1] true Some(5) 3 16x4194304",
        ),
        (
            &[
                "--name",
                "x",
                "--nic",
                "tap:t",
                "--addr",
                "10.1.0.2/24",
                "--gateway",
                "10.1.0.1",
                "--user",
                "6",
            ],
            &file,
            "x single Some(\"tap:t\") [\"10.1.0.2/24\"] [10.1.0.1] true Some(6) 3 16x4194304",
        ),
    ];
    for (words, file, expected) in cases {
        assert_eq!(show(&settings(words, file).expect("good")), expected);
    }
}

#[test]
fn what_cant_be_run_is_refused_with_what_can() {
    let tables = "[tcp]\nsockets = 1048576\nsend-bytes = 268435456";
    for (words, file, expected) in [
        (&["--topology", "library"][..], "", "skink run --nic"),
        (
            &["--topology", "none"],
            "",
            "there is no topology of this name",
        ),
        (&["--topology", "/nowhere.toml"], "", "can't be read"),
        (&["--name", "17"], "", "can't be a name"),
        (&["--user", "nobody here"], "", "there is no user"),
        (&[], tables, "addresses for: make the tables smaller"),
        (
            &[],
            "programs = 9\n[tcp]\nsockets = 65536\nsend-bytes = 134217728\nreceive-bytes = 134217728",
            "set programs = 5 at most",
        ),
    ] {
        let failure = settings(words, file).expect_err("refused");
        assert!(failure.message.contains(expected), "{words:?}: {failure:?}");
        assert_eq!(failure.code, crate::failure::OWN);
    }
}

fn process(components: &[&str]) -> String {
    format!("[[process]]\ncomponents = {components:?}\n")
}

#[test]
fn parts_can_share_processes_in_any_way() {
    use Part::{Filter, Ip, Link, Store, Syscall, Tcp, Udp};
    let of = |groups: &[&[&str]]| {
        let text: String = groups.iter().map(|group| process(group)).collect();
        layout_of(&Topology::parse("test", &text).expect("a topology")).expect("runs")
    };
    let whole = of(&[&["store", "tcp", "link", "ip", "udp", "filter", "syscall"]]);
    assert!(whole.is_whole());
    let two = of(&[
        &["store", "tcp", "udp", "syscall"],
        &["filter", "link", "ip"],
    ]);
    let expected = vec![vec![Udp, Tcp, Syscall, Store], vec![Link, Ip, Filter]];
    assert_eq!(two, Layout::new(expected));
    let mixed = of(&[
        &["udp", "link"],
        &["syscall"],
        &["ip", "tcp", "store"],
        &["filter"],
    ]);
    let expected = [
        vec![Link, Udp],
        vec![Syscall],
        vec![Ip, Tcp, Store],
        vec![Filter],
    ];
    for (place, parts) in expected.iter().enumerate() {
        assert_eq!(mixed.parts(place), parts);
    }
    let split = Topology::load("split").expect("ships");
    let apart = Part::ALL.map(|part| vec![part]).to_vec();
    assert_eq!(layout_of(&split).expect("runs"), Layout::new(apart));
}

#[test]
fn a_stack_is_inside_the_programs_as_a_whole_or_not_at_all() {
    let inside = format!("{}program = true\n", process(&["udp", "tcp", "syscall"]));
    let text = process(&["link", "ip", "filter", "store"]) + &inside;
    let topology = Topology::parse("mine", &text).expect("a topology");
    let failure = layout_of(&topology).expect_err("refused");
    for expected in ["mine has udp+tcp+syscall inside", "at line 3", "split"] {
        assert!(failure.message.contains(expected), "{failure:?}");
    }
}
