//! The compiled programs that are built in are those of the source beside them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The compiler that the committed object was made with: others may choose other instructions.
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
        .filter(|(name, _)| ["xdp.frags", "socket", ".maps", "license"].contains(&name.as_str()))
        .map(|(name, header)| (name, body(header).to_vec()))
        .collect()
}

#[test]
fn the_object_is_made_of_the_source() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf");
    let committed = std::fs::read(directory.join("steer.bpf.o")).expect("the object");
    let here = env!("CARGO_MANIFEST_DIR").as_bytes();
    let place = committed.windows(here.len()).position(|part| part == here);
    assert_eq!(place, None, "the object names the directory it was made in");
    assert_eq!(sections(&committed).len(), 4);

    let version = Command::new("clang").arg("--version").output();
    let version = match &version {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(error) => {
            println!("SKIP: clang doesn't run here: {error}");
            return;
        }
    };
    if !version.contains(CLANG) {
        println!("SKIP: the object was made with {CLANG}x, but here is {version}");
        return;
    }
    let output = std::env::temp_dir().join(format!("skink-steer-{}.o", std::process::id()));
    let status = Command::new(directory.join("build.sh"))
        .arg(&output)
        .output();
    let status = status.expect("build.sh runs");
    let error = String::from_utf8_lossy(&status.stderr);
    if !status.status.success() && error.contains("not found") {
        println!("SKIP: the object can't be built here: {error}");
        return;
    }
    assert!(status.status.success(), "build.sh: {error}");
    let built = std::fs::read(&output).expect("the new object");
    std::fs::remove_file(&output).expect("removed");
    for (name, body) in sections(&built) {
        assert!(
            sections(&committed).get(&name) == Some(&body),
            "section {name} differs: run bpf/build.sh"
        );
    }
}
