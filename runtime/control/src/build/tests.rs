use super::*;
use std::process::Command;

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

/// In the environment of who lends, and of who inherits.
const ROLE: &str = "SKINK_TEST_EXECUTABLE";
const VERSION: u32 = 1;

/// This very test, executed anew.
fn again(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let name = "build::tests::an_inherited_executable_is_above_what_a_child_puts_to_use";
    command.args([name, "--exact", "--nocapture"]);
    command.env(ROLE, role);
    command
}

#[test]
fn an_inherited_executable_is_above_what_a_child_puts_to_use() {
    match std::env::var(ROLE).as_deref() {
        Ok("heir") => {
            let inherited = skink_inherit::inherited::<Executable>(VERSION);
            let executable = inherited.unwrap().unwrap();
            let number = executable.file.as_raw_fd();
            assert!(number >= ABOVE, "it is descriptor {number}");
            assert_eq!(executable.name(), std::env::current_exe().unwrap());
            println!("inherited");
        }
        Ok(_) => {
            let own = Executable::own().unwrap();
            let lent = skink_inherit::lend(VERSION, &own).unwrap();
            panic!("{}", lent.execute(&mut again("heir")));
        }
        Err(_) => {
            let output = again("lender").output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{said}{errors}");
            assert!(said.contains("inherited"), "{said}");
        }
    }
}
