//! Whoever changes what processes of several builds share raises its version.
//!
//! Beside each version stands a digest of the source text that the version counts: items whose layout is
//! `repr(C)` or that are serialized, and constants; of files that do nothing but lay messages out, all of the code. Text and not
//! offsets, since a list of fields would miss the one that is new. Comments and spaces don't count.

use std::fs;
use std::path::{Path, PathBuf};

/// What a version counts.
struct Shared {
    /// The file with the version, and its name there.
    version: (&'static str, &'static str),
    /// Files and folders whose items count that have one of these words among their attributes.
    items: &'static [&'static str],
    words: &'static [&'static str],
    /// Files of which all code counts.
    whole: &'static [&'static str],
    /// Whether constants count, too.
    constants: bool,
}

const LAYOUT: &[&str] = &["repr("];
const SERIALIZED: &[&str] = &["Serialize"];

const ALL: [Shared; 7] = [
    Shared {
        version: ("base/memory/src/record.rs", "LAYOUT_VERSION"),
        items: &[
            "base/memory/src/record.rs",
            "base/memory/src/region.rs",
            "base/memory/src/region/sending.rs",
            "base/memory/src/ring.rs",
            "base/memory/src/datagram.rs",
        ],
        words: LAYOUT,
        whole: &[],
        constants: true,
    },
    Shared {
        version: ("base/memory/src/stored.rs", "STORED_LAYOUT_VERSION"),
        items: &["base/memory/src/stored.rs"],
        words: LAYOUT,
        whole: &[
            "protocols/syscall/src/stored.rs",
            "protocols/filter/src/kept.rs",
        ],
        constants: true,
    },
    Shared {
        version: ("runtime/channel/src/lib.rs", "LAYOUT_VERSION"),
        items: &[
            "runtime/channel/src/queue.rs",
            "runtime/channel/src/queue/slots.rs",
            "runtime/channel/src/sleep.rs",
            "runtime/channel/src/pool.rs",
            "runtime/channel/src/doorbell.rs",
        ],
        words: LAYOUT,
        whole: &[],
        constants: true,
    },
    Shared {
        version: ("runtime/lanes/src/lib.rs", "MESSAGES_VERSION"),
        items: &["runtime/lanes/src", "messages/src"],
        words: LAYOUT,
        whole: &[
            "runtime/lanes/src/calls.rs",
            "runtime/lanes/src/codec.rs",
            "runtime/lanes/src/judge.rs",
            "runtime/lanes/src/packet_down.rs",
            "runtime/lanes/src/packet_up.rs",
            "runtime/lanes/src/payload.rs",
        ],
        constants: false,
    },
    Shared {
        version: ("runtime/sockets/src/lib.rs", "MESSAGES_VERSION"),
        items: &["runtime/sockets/src/routes.rs"],
        words: &["repr(", "Serialize"],
        whole: &["runtime/sockets/src/message.rs"],
        constants: true,
    },
    Shared {
        version: ("runtime/control/src/message.rs", "PROTOCOL"),
        items: &[
            "runtime/control/src/message.rs",
            "runtime/control/src/component.rs",
            "runtime/control/src/build.rs",
            "runtime/control/src/part.rs",
            "runtime/sockets/src/routes.rs",
            "runtime/sockets/src/parts.rs",
            "runtime/nic/src",
        ],
        words: SERIALIZED,
        whole: &[],
        constants: false,
    },
    Shared {
        version: ("programs/skink/src/interfaces.rs", "HANDED_VERSION"),
        items: &[
            "programs/skink/src/up.rs",
            "programs/skink/src/up",
            "runtime/channel/src",
            "runtime/control/src",
            "runtime/lanes/src",
            "runtime/nic/src",
            "runtime/sockets/src",
            "runtime/steering/src",
        ],
        words: SERIALIZED,
        whole: &["runtime/inherit/src/shapes.rs"],
        constants: false,
    },
];

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.expect("the workspace").to_owned()
}

/// The file, or all in the folder but tests, in the order of their names.
fn files(at: &Path) -> Vec<PathBuf> {
    if at.is_file() {
        return vec![at.to_owned()];
    }
    let entries = fs::read_dir(at).unwrap_or_else(|error| panic!("{}: {error}", at.display()));
    let mut all: Vec<PathBuf> = entries.map(|it| it.expect("an entry").path()).collect();
    all.sort();
    let all = all
        .into_iter()
        .filter(|it| !it.ends_with("tests") && !it.ends_with("tests.rs"));
    all.flat_map(|it| files(&it)).collect()
}

/// Its code without comments, in lines without spaces around them.
fn code(file: &Path) -> Vec<String> {
    let text =
        fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let lines = text
        .lines()
        .map(|line| line.split(" // ").next().unwrap_or(line).trim());
    let lines = lines.filter(|line| !line.starts_with("//") && !line.is_empty());
    lines.map(str::to_owned).collect()
}

/// The text from here to where all brackets are closed and a `;`, `}` or `]` ends the line; and how many lines.
fn piece(lines: &[String]) -> (String, usize) {
    let (mut text, mut open) = (String::new(), 0);
    for (index, line) in lines.iter().enumerate() {
        text.push_str(line);
        text.push('\n');
        open += line.matches(['{', '(', '[']).count() as i64;
        open -= line.matches(['}', ')', ']']).count() as i64;
        if open <= 0 && line.ends_with([';', '}', ']']) {
            return (text, index + 1);
        }
    }
    (text, lines.len())
}

fn is_item(line: &str) -> bool {
    let line = line.strip_prefix("pub").unwrap_or(line).trim_start();
    let line = match line.strip_prefix('(') {
        Some(rest) => rest
            .split_once(')')
            .map_or("", |(_, rest)| rest.trim_start()),
        None => line,
    };
    ["struct ", "enum ", "union "]
        .iter()
        .any(|word| line.starts_with(word))
}

/// The items that count, and constants if they do.
fn items(lines: &[String], words: &[&str], constants: bool) -> String {
    let (mut all, mut attributes, mut at) = (String::new(), String::new(), 0);
    while let Some(line) = lines.get(at) {
        let is_constant = line.starts_with("const ")
            || line.starts_with("pub const ")
            || line.starts_with("pub(crate) const ")
            || line.starts_with("pub(super) const ");
        if line.starts_with("#[") {
            let (text, count) = piece(&lines[at..]);
            attributes.push_str(&text);
            at += count;
            continue;
        }
        if is_item(line) {
            let (text, count) = piece(&lines[at..]);
            if words.iter().any(|word| attributes.contains(word)) {
                all.push_str(&attributes);
                all.push_str(&text);
            }
            at += count;
        } else if constants && is_constant && !line.contains(" fn ") && !line.contains("VERSION") {
            let (text, count) = piece(&lines[at..]);
            all.push_str(&text);
            at += count;
        } else {
            at += 1;
        }
        attributes.clear();
    }
    all
}

/// FNV-1a, without what only formatting changes.
fn digest(text: &str) -> u64 {
    let bytes = text
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace() && *byte != b',');
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

impl Shared {
    fn text(&self) -> String {
        let root = root();
        let places = self.items.iter().flat_map(|it| files(&root.join(it)));
        let mut text: String = places
            .map(|file| items(&code(&file), self.words, self.constants))
            .collect();
        for file in self.whole {
            text.extend(
                code(&root.join(file))
                    .into_iter()
                    .filter(|line| !line.starts_with("use ")),
            );
        }
        text
    }

    /// The version, and the digest that stands before it.
    fn stated(&self) -> (String, String) {
        let (file, name) = self.version;
        let text = fs::read_to_string(root().join(file)).expect("a file");
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let wanted = format!("const {name}: u32 = ");
        let at = lines.iter().position(|line| line.contains(&wanted));
        let at = at.unwrap_or_else(|| panic!("{file} has no {name}"));
        let version = lines[at].split_once("= ").map_or("", |(_, number)| number);
        let before = lines.get(at.wrapping_sub(1)).copied().unwrap_or("");
        let digest = before.strip_prefix("// Layout digest: ").unwrap_or("");
        (version.trim_end_matches(';').to_owned(), digest.to_owned())
    }
}

#[test]
fn whoever_changes_a_layout_raises_its_version() {
    let mut wrong = Vec::new();
    for shared in &ALL {
        let (file, name) = shared.version;
        let (version, stated) = shared.stated();
        // The version is part of it: who raises that has looked.
        let found = digest(&format!("{version} {}", shared.text()));
        let found = format!("{found:016x}");
        if stated != found {
            wrong.push(format!(
                "what {name} counts has changed: raise it in {file}, unless not one byte lies elsewhere or means \
                 something else than before; the line before it is then\n// Layout digest: {found}\n(after raising \
                 it, run this again for the digest)"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn a_field_more_or_elsewhere_is_noticed_and_a_comment_is_not() {
    let before = "/// A thing.\n#[repr(C)]\npub(crate) struct Thing {\n    /// One.\n    one: u32,\n    two: u16,\n}\nfn other() {}\n";
    let of = |text: &str| {
        let lines: Vec<String> = text.lines().map(|line| line.trim().to_owned()).collect();
        let lines: Vec<String> = lines
            .into_iter()
            .filter(|line| !line.starts_with("//"))
            .collect();
        digest(&items(&lines, LAYOUT, true))
    };
    assert_eq!(of(before), of(&before.replace("One.", "Two.")));
    assert_eq!(of(before), of(&before.replace("other", "another")));
    for (from, to) in [
        ("one: u32,", "one: u64,"),
        ("two: u16,", "two: u16,\n    three: u16,"),
        ("#[repr(C)]", "#[repr(C, align(64))]"),
        (
            "    one: u32,\n    two: u16,",
            "    two: u16,\n    one: u32,",
        ),
        ("fn other", "const KIND: u32 = 3;\nfn other"),
    ] {
        assert_ne!(of(before), of(&before.replace(from, to)), "{to}");
    }
}
