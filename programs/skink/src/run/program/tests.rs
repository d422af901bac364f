use super::*;
use crate::failure::{CANNOT_RUN, OWN};
use crate::run::elf::tests::{elf, static_program};

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path =
            std::env::temp_dir().join(format!("skink-program-test-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Directory(path)
    }

    fn file(&self, name: &str, content: &[u8], mode: u32) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, content).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("set");
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn programs_are_found_as_a_shell_finds_them() {
    let directory = Directory::new("find");
    let path = directory.file("good", b"x", 0o755);
    let plain = directory.file("plain", b"x", 0o644);
    let search = std::env::join_paths([Path::new("/nonexistent"), &directory.0]).expect("a path");
    assert_eq!(find_in(OsStr::new("good"), &search), Ok(path.clone()));
    assert_eq!(find_in(path.as_os_str(), OsStr::new("")), Ok(path));
    let missing = directory.0.join("missing");
    for (name, code) in [
        (OsStr::new("plain"), NOT_FOUND),
        (OsStr::new("missing"), NOT_FOUND),
        (OsStr::new(""), NOT_FOUND),
        (missing.as_os_str(), NOT_FOUND),
        (plain.as_os_str(), CANNOT_RUN),
        (directory.0.as_os_str(), CANNOT_RUN),
    ] {
        let failure = find_in(name, &search).expect_err("refused");
        assert_eq!(failure.code, code, "{name:?}: {}", failure.message);
    }
}

#[test]
fn programs_that_cannot_be_preloaded_are_refused_with_the_reason() {
    let directory = Directory::new("check");
    let fixed = directory.file("static", &static_program(), 0o755);
    let shown = fixed.display();
    let musl = elf(2, 62, &[3]);
    let musl: Vec<u8> = musl[..musl.len() - 7]
        .iter()
        .chain(b"ld-musl")
        .copied()
        .collect();
    let cases: [(&str, Vec<u8>, u32, Option<&str>); 9] = [
        ("script", b"#!/bin/sh\n".to_vec(), 0o755, None),
        ("env", b"#!/usr/bin/env -S sh -e\n".to_vec(), 0o755, None),
        (
            "env-static",
            format!("#!/usr/bin/env {shown}\n").into(),
            0o755,
            Some("statically"),
        ),
        (
            "script-static",
            format!("#!{shown} -x\n").into(),
            0o755,
            Some("statically"),
        ),
        (
            "nowhere",
            b"#!/nonexistent/interpreter\n".to_vec(),
            0o755,
            Some("/nonexistent/interpreter"),
        ),
        ("text", b"echo\n".to_vec(), 0o755, Some("neither")),
        ("other", elf(1, 3, &[3]), 0o755, Some("another kind")),
        (
            "musl",
            musl,
            0o755,
            if cfg!(target_arch = "x86_64") {
                Some("musl")
            } else {
                Some("another kind")
            },
        ),
        (
            "loop",
            format!("#!{}\n", directory.0.join("loop").display()).into(),
            0o755,
            Some("nested"),
        ),
    ];
    for (name, content, mode, expected) in cases {
        let path = directory.file(name, &content, mode);
        match (check(&path, None), expected) {
            (Ok(()), None) => {}
            (Err(failure), Some(expected)) => {
                assert!(
                    failure.message.contains(expected),
                    "{name}: {}",
                    failure.message
                );
                assert!([CANNOT_RUN, NOT_FOUND].contains(&failure.code));
            }
            (other, _) => panic!("{name}: {other:?}"),
        }
    }
    assert_eq!(check(&fixed, None).expect_err("refused").code, CANNOT_RUN);
}

#[test]
fn a_setuid_program_is_refused_unless_it_changes_nothing() {
    let directory = Directory::new("setuid");
    let shell = std::fs::read("/bin/sh").expect("a shell");
    let path = directory.file("sh", &shell, 0o4755);
    assert_eq!(check(&path, None), Ok(()));
    let other = User {
        uid: rustix::process::geteuid().as_raw() + 1,
        gid: 0,
    };
    let failure = check(&path, Some(&other)).expect_err("refused");
    assert!(failure.message.contains("setuid"), "{}", failure.message);
}

#[test]
fn a_library_path_that_the_loader_would_split_is_refused() {
    assert_eq!(
        usable("/opt/x/libskink.so".into()),
        Ok("/opt/x/libskink.so".into())
    );
    for path in ["/opt/a b/libskink.so", "/opt/a:b/libskink.so"] {
        assert_eq!(usable(path.into()).expect_err("refused").code, OWN);
    }
}

#[test]
fn a_library_is_open_to_whom_its_mode_says() {
    let directory = Directory::new("open");
    let path = &directory.0;
    let metadata = std::fs::metadata(path).expect("it is there");
    let own = User {
        uid: metadata.uid(),
        gid: metadata.gid(),
    };
    let other = User {
        uid: own.uid + 1,
        gid: own.gid + 1,
    };
    let member = User {
        gid: own.gid,
        ..other
    };
    for (mode, users) in [
        (0o700, [true, false, false]),
        (0o710, [true, true, false]),
        (0o701, [true, false, true]),
        (0o077, [false, true, true]),
    ] {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path, permissions).expect("ours");
        let open = [own, member, other].map(|user| is_open_to(path, &user, false));
        assert_eq!(open, users, "{mode:o}");
    }
    // To go through isn't to read.
    let permissions = std::fs::Permissions::from_mode(0o711);
    std::fs::set_permissions(path, permissions).expect("ours");
    assert!(!is_open_to(path, &other, true) && is_open_to(path, &own, true));
}
