use super::*;
use clap::CommandFactory;

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn words_after_the_program_are_the_programs() {
    let words = [
        "skink",
        "run",
        "--nic",
        "tap:t0",
        "--addr",
        "10.0.0.2/24",
        "--",
        "nc",
        "-l",
        "--name",
        "x",
    ];
    let cli = Cli::try_parse_from(words).expect("good");
    let Verb::Run(options) = cli.verb else {
        panic!("run: {cli:?}");
    };
    assert_eq!(options.command, ["nc", "-l", "--name", "x"]);
    assert_eq!(options.network.nic, "tap:t0".parse().ok());
    assert_eq!(options.name, None);
    let cli = Cli::try_parse_from(["skink", "run", "nc", "-l", "--no-probe"]).expect("good");
    let Verb::Run(options) = cli.verb else {
        panic!("run: {cli:?}");
    };
    assert_eq!(options.command, ["nc", "-l", "--no-probe"]);
    for (words, watch) in [
        (&["skink", "stat", "--watch", "web"][..], Some(1.0)),
        (&["skink", "stat", "--watch=0.5", "web"], Some(0.5)),
        (&["skink", "stat", "web"], None),
    ] {
        let cli = Cli::try_parse_from(words).expect("good");
        let Verb::Stat(options) = cli.verb else {
            panic!("stat: {cli:?}");
        };
        assert_eq!(
            (options.instance.as_deref(), options.watch),
            (Some("web"), watch)
        );
    }
    for words in [
        &["skink", "run"][..],
        &["skink", "run", "--bogus"],
        &["skink", "run", "--nic", "wifi:0", "--", "x"],
        &["skink", "run", "--addr", "10.0.0.2", "--", "x"],
        &["skink", "capture", "--json", "-w", "x"],
        &["skink", "bench"],
    ] {
        assert!(Cli::try_parse_from(words).is_err(), "{words:?}");
    }
}
