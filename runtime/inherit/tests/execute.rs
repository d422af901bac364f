//! A process that becomes another program has what it lent. Without the usual harness: it executes itself, and
//! is single-threaded as whoever does that should be.
#![allow(clippy::print_stdout, reason = "a program of its own")]

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Makes this program, run anew, the one that executes another.
const ORIGINAL: &str = "be-the-original";
/// The same, of another version.
const NEWER: &str = "be-a-newer-one";
/// And the one that is executed.
const HEIR: &str = "be-the-heir";
const VERSION: u32 = 7;

#[derive(Serialize, Deserialize)]
struct State {
    pid: u32,
    word: String,
    #[serde(with = "skink_inherit::moments")]
    begun: Instant,
    #[serde(with = "skink_inherit::descriptors")]
    ends: BTreeMap<u8, (OwnedFd, Option<OwnedFd>)>,
    #[serde(with = "skink_inherit::descriptors")]
    shared: [Arc<OwnedFd>; 2],
    /// Isn't kept.
    forgotten: i32,
}

fn main() {
    let argument = std::env::args().nth(1).unwrap_or_default();
    match argument.as_str() {
        ORIGINAL => original(VERSION),
        NEWER => original(VERSION + 1),
        HEIR => heir(),
        _ => {
            who_executes_another_program_finds_all_again();
            who_cant_execute_goes_on_as_before();
            nobody_takes_what_has_another_version_or_was_not_lent();
            println!("test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
        }
    }
}

fn own(argument: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a name"));
    command.arg(argument);
    command
}

fn state() -> (State, PipeReader) {
    let (reading, writing) = std::io::pipe().expect("a pipe");
    let (other, _) = std::io::pipe().expect("a pipe");
    let shared = Arc::new(OwnedFd::from(writing.try_clone().expect("a descriptor")));
    let kept = reading.try_clone().expect("a descriptor");
    let state = State {
        pid: std::process::id(),
        word: "as it was".to_owned(),
        begun: Instant::now(),
        forgotten: other.as_raw_fd(),
        ends: [(3, (reading.into(), Some(writing.into())))].into(),
        shared: [shared.clone(), shared],
    };
    std::mem::forget(other);
    (state, kept)
}

fn original(version: u32) {
    let (state, _) = state();
    let lent = skink_inherit::lend(version, &state).expect("a text");
    panic!("{}", lent.execute(&mut own(HEIR)));
}

fn heir() {
    let state = skink_inherit::inherited::<State>(VERSION);
    let mut state = state.expect("something was lent").expect("it is whole");
    assert_eq!(
        (state.pid, state.word.as_str()),
        (std::process::id(), "as it was")
    );
    assert!(state.begun <= Instant::now() && state.begun.elapsed() < Duration::from_secs(60));
    let (reading, writing) = state.ends.remove(&3).expect("the pipe");
    let mut writing = PipeWriter::from(writing.expect("its other end"));
    writing.write_all(b"through").expect("room");
    drop(writing);
    let [one, other] = state.shared;
    assert_ne!(one.as_raw_fd(), other.as_raw_fd());
    drop((one, other));
    // Nobody has the writing end any more: all was taken, and nothing twice.
    let mut text = String::new();
    PipeReader::from(reading)
        .read_to_string(&mut text)
        .expect("text");
    assert_eq!(text, "through");
    let forgotten = format!("/proc/self/fd/{}", state.forgotten);
    assert!(
        std::fs::read_link(forgotten).is_err(),
        "what wasn't lent is still open"
    );
    assert!(skink_inherit::inherited::<State>(VERSION).is_none());
    println!("inherited");
}

fn who_executes_another_program_finds_all_again() {
    let output = own(ORIGINAL).output().expect("a process");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.stdout, b"inherited\n", "{said}");
}

fn who_cant_execute_goes_on_as_before() {
    let (state, mut reading) = state();
    let lent = skink_inherit::lend(VERSION, &state).expect("a text");
    let _ = lent.execute(&mut Command::new("/nonexistent/program"));
    // A child has none of it.
    let mut child = Command::new("cat")
        .stdin(Stdio::piped())
        .spawn()
        .expect("cat");
    drop(state);
    let mut text = Vec::new();
    reading.read_to_end(&mut text).expect("an end");
    drop(child.stdin.take());
    child.wait().expect("its end");
}

fn nobody_takes_what_has_another_version_or_was_not_lent() {
    let said = |variable: &str| {
        let mut command = own(HEIR);
        command.env("SKINK_INHERITED", variable);
        let output = command.output().expect("a process");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let output = own(NEWER).output().expect("a process");
    let newer = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        newer.contains("has version 8, and this program knows version 7"),
        "{newer}"
    );
    assert!(said("word").contains("isn't a number"));
    assert!(said("1").contains("nobody has lent anything"));
    assert!(said("99").contains("nobody has lent anything"));
}
