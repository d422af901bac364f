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
        (&["--topology", "split"][..], "", "use --topology single"),
        (&["--topology", "library"], "", "skink run --nic"),
        (
            &["--topology", "none"],
            "",
            "there is no topology of this name",
        ),
        (&["--topology", "/nowhere.toml"], "", "can't be read"),
        (&["--name", "17"], "", "can't be a name"),
        (&["--user", "nobody here"], "", "there is no user"),
        (&[], tables, "set programs = "),
        (
            &[],
            "topology = \"split\"",
            "link, ip, filter, udp, tcp, syscall, store apart",
        ),
    ] {
        let failure = settings(words, file).expect_err("refused");
        assert!(failure.message.contains(expected), "{words:?}: {failure:?}");
        assert_eq!(failure.code, crate::failure::OWN);
    }
}
