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
            "{} {} {:?} {:?} {:?} {} {:?} {} {}",
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
        )
    };
    let cases = [
        (&[][..], "", "skink single None [] [] false None 4096 8192"),
        (
            &[],
            file.as_str(),
            "file single Some(\"packet:eth0\") [\"10.0.0.2/24\"] [10.0.0.1] true Some(5) 3 16",
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
            "x single Some(\"tap:t\") [\"10.1.0.2/24\"] [10.1.0.1] true Some(6) 3 16",
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
        (&[], tables, "set programs = "),
    ] {
        let failure = settings(words, file).expect_err("refused");
        assert!(failure.message.contains(expected), "{words:?}: {failure:?}");
        assert_eq!(failure.code, crate::failure::OWN);
    }
}

#[test]
fn parts_are_found_wherever_their_processes_stand_in_the_file() {
    use skink_control::Part;
    let of = |text: &str| parts_of(&Topology::parse("test", text).expect("a topology"));
    let text = |groups: &[&str]| -> String {
        let process = |group: &&str| format!("[[process]]\ncomponents = [{group}]\n");
        groups.iter().map(process).collect()
    };
    let transport = "\"store\", \"tcp\", \"udp\", \"syscall\"";
    let whole = format!("\"link\", \"ip\", \"filter\", {transport}");
    assert_eq!(of(&text(&[&whole])).expect("runs"), []);
    let split = [transport, "\"filter\"", "\"link\"", "\"ip\""];
    assert_eq!(
        of(&text(&split)).expect("runs"),
        [Part::Transport, Part::Filter, Part::Link, Part::Ip]
    );
    assert_eq!(of(PRESETS[2].1).expect("runs"), Part::ALL);
    let two = ["\"link\", \"ip\", \"filter\"", transport];
    let failure = of(&text(&two)).expect_err("refused");
    for expected in [
        "link+ip+filter, ",
        " apart",
        "use --topology single or split",
    ] {
        assert!(failure.message.contains(expected), "{failure:?}");
    }
}
