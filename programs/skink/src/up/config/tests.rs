use super::*;

const WHOLE: &str = r#"
name = "web"
topology = "single"
nic = "packet:eth0"
addresses = ["10.0.0.2/24", "fd00::2/64"]
gateways = ["10.0.0.1"]
probe = false
rules = "web.conf"
user = "1234"
recovery = "stateless"
allow = ["33", "%44"]
programs = 100
programs-per-user = 10
memory-mib = 512
[tcp]
sockets = 0x400
send-bytes = 65536
[udp]
receive-bytes = 4096
"#;

#[test]
fn a_whole_file_says_what_it_says() {
    let config = Config::parse(Path::new("/etc/skink/skink.toml"), WHOLE).expect("good");
    let expected = Config {
        name: Some("web".to_owned()),
        topology: Some("single".to_owned()),
        nic: "packet:eth0".parse().ok(),
        addresses: ["10.0.0.2/24", "fd00::2/64"]
            .map(|text| text.parse().expect("an address"))
            .to_vec(),
        gateways: vec!["10.0.0.1".parse().expect("an address")],
        probe: Some(false),
        rules: Some("/etc/skink/web.conf".into()),
        user: Some(User {
            uid: 1234,
            gid: 1234,
        }),
        recovery: Some(Recovery::Stateless),
        allow: Some(Allow {
            users: vec![33],
            groups: vec![44],
        }),
        programs: Some(100),
        programs_per_user: Some(10),
        memory_mib: Some(512),
        tcp: PartialSize {
            sockets: Some(1024),
            send_bytes: Some(65536),
            receive_bytes: None,
        },
        udp: PartialSize {
            receive_bytes: Some(4096),
            ..PartialSize::default()
        },
    };
    // What /etc/passwd says of user 33 is its own business.
    assert_eq!(config, expected);
    assert_eq!(Config::parse(Path::new("x"), ""), Ok(Config::default()));
}

#[test]
fn a_topology_that_is_a_file_is_beside_the_configuration() {
    for (path, word, expected) in [
        ("/etc/skink/skink.toml", "single", "single"),
        ("/etc/skink/skink.toml", "mine.toml", "/etc/skink/mine.toml"),
        ("/etc/skink/skink.toml", "/a/b", "/a/b"),
        ("skink.toml", "mine.toml", "./mine.toml"),
    ] {
        let text = format!("topology = \"{word}\"");
        let config = Config::parse(Path::new(path), &text).expect("good");
        assert_eq!(config.topology.as_deref(), Some(expected), "{path} {word}");
    }
}

#[test]
fn every_mistake_is_told_with_its_place() {
    let cases = [
        ("names = \"x\"", "1:1: the configuration has no `names`"),
        ("\nname = 1", "2:8: `name` must be a string"),
        ("name = \"12\"", "1:8: \"12\" can't be a name"),
        ("name = \"x", "invalid basic string"),
        ("nic = \"wifi:0\"", "1:7: \"wifi:0\" names no NIC"),
        ("nic = 3", "1:7: `nic` must be a string"),
        (
            "addresses = \"10.0.0.2/24\"",
            "1:13: `addresses` must be a list",
        ),
        ("addresses = [\"10.0.0.2/24\", \"10.0.0\"]", "1:29: "),
        ("gateways = [1]", "1:13: `gateways` must be a string"),
        ("probe = 1", "1:9: `probe` must be"),
        ("rules = \"\"", "1:9: `rules` must be a string"),
        (
            "user = \"no one here\"",
            "1:8: there is no user no one here",
        ),
        ("allow = \"root\"", "1:9: `allow` must be a list"),
        (
            "allow = [\"%no group\"]",
            "1:10: there is no %no group in /etc/group",
        ),
        ("allow = [7]", "1:10: there is no such user in /etc/passwd"),
        (
            "programs = 0",
            "1:12: `programs` must be a number from 1 to 4096",
        ),
        ("programs = 4097", "1:12: `programs` must be"),
        ("memory-mib = 0", "1:14: `memory-mib` must be"),
        (
            "programs-per-user = -1",
            "1:21: `programs-per-user` must be",
        ),
        ("tcp = 5", "1:7: `tcp` must be a table"),
        ("[tcp]\nrings = 5", "2:1: `tcp` has no `rings`"),
        (
            "[udp]\nsend-bytes = 5000",
            "2:14: `send-bytes` must be a power of two, such as 8192",
        ),
        ("[udp]\nsockets = 1.5", "2:11: `sockets` must be a number"),
        ("# ä\nname = \"ä\"; x = 1", "2:11: "),
    ];
    for (text, expected) in cases {
        let mistakes = Config::parse(Path::new("a.toml"), text).expect_err(text);
        let first = mistakes.first().expect("a mistake");
        assert!(
            first.starts_with("a.toml:") && first.contains(expected),
            "{text}: {first}"
        );
    }
    let mistakes = Config::parse(Path::new("a"), "tcp = 1\nx = 2\nname = 3").expect_err("three");
    let places: Vec<&str> = mistakes
        .iter()
        .map(|it| it.split(": ").next().unwrap_or(""))
        .collect();
    assert_eq!(places, ["a:1:7", "a:2:1", "a:3:8"]);
}

#[test]
fn arbitrary_bytes_never_panic() {
    let mut seed = 1u64;
    for _ in 0..2000 {
        let mut bytes = WHOLE.as_bytes().to_vec();
        for _ in 0..3 {
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let at = (seed >> 33) as usize % bytes.len();
            if let Some(byte) = bytes.get_mut(at) {
                *byte = (seed >> 20) as u8;
            }
        }
        let _ = Config::parse(Path::new("a"), &String::from_utf8_lossy(&bytes));
    }
}
