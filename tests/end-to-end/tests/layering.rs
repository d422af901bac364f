//! The workspace keeps its layers: a crate depends on nothing above it, protocols know no I/O and
//! no other protocol, and runtime crates know no protocol.

use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

/// For each folder: the folders that its crates may use.
const MAY_USE: [(&str, &[&str]); 9] = [
    ("base", &["base"]),
    ("messages", &["base"]),
    ("protocols", &["base", "messages"]),
    ("runtime", &["base", "messages", "runtime"]),
    (
        "placement",
        &["base", "messages", "protocols", "runtime", "placement"],
    ),
    (
        "programs",
        &[
            "base",
            "messages",
            "protocols",
            "runtime",
            "placement",
            "testbed",
        ],
    ),
    (
        "simulator",
        &["base", "messages", "protocols", "runtime", "placement"],
    ),
    ("testbed", &[]),
    ("tests", &["testbed"]),
];

/// Crates that keep to less than their folder may use: a topology is data, and starts nothing.
const NEEDS_LITTLE: [(&str, &[&str]); 1] = [("skink-topology", &["base", "messages"])];

/// What protocol crates may take from outside: data structures, never the system.
const PURE: [&str; 2] = ["foldhash", "bitflags"];

fn packages() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
        ])
        .output()
        .expect("cargo metadata runs");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    metadata["packages"]
        .as_array()
        .expect("a list of packages")
        .clone()
}

/// The folder below the workspace's root that a manifest is in.
fn folder(package: &Value) -> String {
    let manifest = package["manifest_path"].as_str().expect("a path");
    let own = env!("CARGO_MANIFEST_DIR");
    let root = own
        .strip_suffix("tests/end-to-end")
        .expect("this crate's place");
    let inside = manifest.strip_prefix(root).expect("inside the workspace");
    inside.split('/').next().expect("a folder").to_owned()
}

fn text(value: &Value) -> String {
    value.as_str().expect("a string").to_owned()
}

#[test]
fn arrows_between_folders_only_go_down() {
    let packages = packages();
    let folders: BTreeMap<String, String> = packages
        .iter()
        .map(|package| (text(&package["name"]), folder(package)))
        .collect();
    for package in &packages {
        let (name, own) = (text(&package["name"]), folder(package));
        let allowed = MAY_USE.iter().find(|(folder, _)| *folder == own);
        let (_, allowed) = allowed.unwrap_or_else(|| panic!("{own} is no known layer"));
        let less = NEEDS_LITTLE.iter().find(|(little, _)| *little == name);
        let allowed = less.map_or(allowed, |(_, allowed)| allowed);
        for dependency in package["dependencies"].as_array().expect("a list") {
            // What only tests use doesn't count.
            if dependency["kind"].as_str() == Some("dev") {
                continue;
            }
            let used = text(&dependency["name"]);
            match folders.get(&used) {
                Some(folder) => assert!(
                    allowed.contains(&folder.as_str()),
                    "{name} ({own}) must not use {used} ({folder})"
                ),
                None => assert!(
                    own != "protocols" || PURE.contains(&used.as_str()),
                    "{name} is a protocol and must not use {used}"
                ),
            }
        }
    }
}

#[test]
fn protocols_hold_no_unsafe_code() {
    for package in packages()
        .iter()
        .filter(|package| folder(package) == "protocols")
    {
        let manifest = text(&package["manifest_path"]);
        let library = std::path::Path::new(&manifest).with_file_name("src/lib.rs");
        let source = std::fs::read_to_string(&library).expect("a library");
        assert!(
            source.contains("#![forbid(unsafe_code)]"),
            "{} must forbid unsafe code",
            library.display()
        );
    }
}
