use super::*;
use crate::cli::{Cli, Verb};
use clap::Parser;

#[test]
fn a_name_alone_means_to_be_served() {
    for (words, expected) in [
        (&["--name", "web"][..], Some("web")),
        (&["--name", "web", "--user", "0"], Some("web")),
        (&["--name", "web", "--nic", "tap:t0"], None),
        (&["--name", "web", "--addr", "10.0.0.2/24"], None),
        (&["--name", "web", "--gateway", "10.0.0.1"], None),
        (&[], None),
    ] {
        let words = [&["skink", "run"], words, &["--", "true"]].concat();
        let cli = Cli::try_parse_from(&words).expect("good");
        let Verb::Run(options) = cli.verb else {
            panic!("run: {cli:?}");
        };
        assert_eq!(instance(&options), expected, "{words:?}");
    }
}

#[test]
fn what_serves_a_program_is_told_and_what_is_missing_too() {
    let info = NetworkInfo {
        addresses: vec!["10.0.0.2/24".parse().expect("an address")],
        gateways: Vec::new(),
        name: "web".to_owned(),
        nic: "packet:eth0".to_owned(),
        topology: Some("single".to_owned()),
    };
    assert_eq!(
        describe("nginx", "web", &info),
        "nginx is served by web (single, 10.0.0.2/24 on packet:eth0)"
    );
    let none = missing("web", &[]);
    assert!(
        none.contains("none runs") && none.contains("skink up --name web"),
        "{none}"
    );
    let two = missing("web", &["a".to_owned(), "b".to_owned()]);
    assert!(two.contains("there runs a, b"), "{two}");
    // A name that can't be one isn't looked for.
    for name in ["", "1234", "../x", ".x", "a b", &"x".repeat(49)] {
        let failure = find(name).expect_err("not a name");
        assert!(failure.message.contains("can't be a name"), "{failure:?}");
    }
}
