//! The compiled programs that are built in are those of the source beside them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// With the number of their sections of programs.
const OBJECTS: [(&str, usize); 2] = [("steer.bpf.o", 2), ("ingress.bpf.o", 1)];
/// The compiler that the committed objects were made with: others may choose other instructions.
const CLANG: &str = "clang version 14.";

/// What of an object matters to the kernel: programs, map definitions, licence.
fn sections(object: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let word = |at: usize| u64::from_le_bytes(object[at..at + 8].try_into().expect("8 bytes"));
    let half = |at: usize| usize::from(u16::from_le_bytes([object[at], object[at + 1]]));
    let number = |at: usize| u32::from_le_bytes(object[at..at + 4].try_into().expect("4 bytes"));
    // ELF-64: the section headers' place, size and number, and which one has the names.
    let headers: Vec<usize> = (0..half(0x3c))
        .map(|index| word(0x28) as usize + index * half(0x3a))
        .collect();
    let body = |header: usize| {
        let at = word(header + 0x18) as usize;
        &object[at..at + word(header + 0x20) as usize]
    };
    let names = body(headers[half(0x3e)]);
    headers
        .iter()
        .map(|header| {
            let name: Vec<u8> = names[number(*header) as usize..]
                .iter()
                .copied()
                .take_while(|byte| *byte != 0)
                .collect();
            (String::from_utf8(name).expect("a name"), *header)
        })
        .filter(|(name, _)| {
            ["xdp.frags", "socket", "classifier", ".maps", "license"].contains(&name.as_str())
        })
        .map(|(name, header)| (name, body(header).to_vec()))
        .collect()
}

#[test]
fn the_objects_are_made_of_the_sources() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf");
    let committed = |name: &str| std::fs::read(directory.join(name)).expect("the object");
    let here = env!("CARGO_MANIFEST_DIR").as_bytes();
    for (name, programs) in OBJECTS {
        let object = committed(name);
        let place = object.windows(here.len()).position(|part| part == here);
        assert_eq!(place, None, "{name} names the directory it was made in");
        assert_eq!(sections(&object).len(), programs + 2);
    }

    let version = Command::new("clang").arg("--version").output();
    let version = match &version {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(error) => {
            println!("SKIP: clang doesn't run here: {error}");
            return;
        }
    };
    if !version.contains(CLANG) {
        println!("SKIP: the objects were made with {CLANG}x, but here is {version}");
        return;
    }
    let output = std::env::temp_dir().join(format!("skink-steer-{}", std::process::id()));
    std::fs::create_dir(&output).expect("a directory");
    let status = Command::new(directory.join("build.sh"))
        .arg(&output)
        .output();
    let status = status.expect("build.sh runs");
    let built = OBJECTS.map(|(name, _)| (name, std::fs::read(output.join(name))));
    std::fs::remove_dir_all(&output).expect("removed");
    let error = String::from_utf8_lossy(&status.stderr);
    if !status.status.success() && error.contains("not found") {
        println!("SKIP: the objects can't be built here: {error}");
        return;
    }
    assert!(status.status.success(), "build.sh: {error}");
    for (object, built) in built {
        for (name, body) in sections(&built.expect("the new object")) {
            assert!(
                sections(&committed(object)).get(&name) == Some(&body),
                "section {name} of {object} differs: run bpf/build.sh"
            );
        }
    }
}
