use super::*;

fn build(interfaces: &[(&str, u32)]) -> Build {
    Build {
        release: "1.0.0".to_owned(),
        interfaces: interfaces
            .iter()
            .map(|(name, version)| ((*name).to_owned(), *version))
            .collect(),
    }
}

#[test]
fn builds_conflict_in_what_they_share_and_nothing_else() {
    let ours = build(&[("records", 3), ("lanes", 1)]);
    let mut newer = ours.clone();
    newer.release = "2.0.0".to_owned();
    assert_eq!(ours.conflicts(&newer), Vec::<String>::new());
    let other = build(&[("records", 4), ("sockets", 1)]);
    assert_eq!(
        ours.conflicts(&other),
        [
            "lanes: version 1 and none",
            "records: version 3 and version 4",
            "sockets: none and version 1"
        ]
    );
}

#[test]
fn only_what_may_be_executed_is_an_executable() {
    assert!(Executable::own().is_ok());
    let directory = File::open("/").unwrap();
    assert!(Executable::new(directory.into()).is_err());
    let text = File::open("/etc/passwd").unwrap();
    assert!(Executable::new(text.into()).is_err());
}
