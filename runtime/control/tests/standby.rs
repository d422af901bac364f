//! Who is killed has a successor that knows the same. Without the usual harness: a process that has a
//! standby has one thread.
#![allow(clippy::print_stdout, reason = "a program of its own")]

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use skink_control::{Standby, Standing};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

/// Makes this program, run anew, the original.
const ORIGINAL: &str = "be-the-original";
/// The same, and that one makes copies without end.
const RESTLESS: &str = "be-restless";
/// The same, and its copy finds fault with it at once.
const SICK: &str = "be-sick";
/// The same, and it tells its copy something.
const TALKATIVE: &str = "be-talkative";

fn main() {
    if std::env::args().any(|word| word == ORIGINAL) {
        return generations(false);
    }
    if std::env::args().any(|word| word == SICK) {
        return generations(true);
    }
    if std::env::args().any(|word| word == RESTLESS) {
        return restless();
    }
    if std::env::args().any(|word| word == TALKATIVE) {
        return talkative();
    }
    who_is_killed_has_a_successor_that_knows_the_same();
    who_is_killed_while_it_makes_a_copy_has_one_successor();
    who_hangs_is_killed_and_has_a_successor();
    a_successor_knows_what_it_was_told_in_its_sleep();
    println!("test result: ok. 4 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
}

fn start(what: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("a name"));
    command
        .arg(what)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command.spawn().expect("a process")
}

fn who_is_killed_has_a_successor_that_knows_the_same() {
    let mut child = start(ORIGINAL);
    let mut commands = child.stdin.take().expect("a pipe");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut next = || lines.next().expect("a line").expect("text");
    for generation in 0..3 {
        let said = next();
        let (number, pid) = said.split_once(' ').expect("two words");
        assert_eq!(number, generation.to_string());
        let pid = pid.parse().ok().and_then(Pid::from_raw).expect("a pid");
        kill_process(pid, Signal::KILL).expect("it lives");
    }
    assert!(next().starts_with("3 "));
    writeln!(commands, "end").expect("it listens");
    // The one that ended in good order has no successor, so nobody holds the pipe any more.
    assert!(lines.next().is_none());
    child.wait().expect("the first one's end");
}

/// Its two copies of that moment don't both go on.
fn who_is_killed_while_it_makes_a_copy_has_one_successor() {
    let mut child = start(RESTLESS);
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut next = || lines.next().expect("a line").expect("text");
    for generation in 0..1000 {
        // What the one before it said may still be there.
        let mut said = next();
        while !said.starts_with(&format!("{generation} ")) {
            said = next();
        }
        for _ in 0..generation % 7 + 10 {
            assert_eq!(next(), said, "another one is there too");
        }
        let (_, pid) = said.split_once(' ').expect("two words");
        let pid = pid.parse().ok().and_then(Pid::from_raw).expect("a pid");
        kill_process(pid, Signal::KILL).expect("it lives");
    }
    child.wait().expect("the first one's end");
}

/// Its copy kills it though it lives, and says why.
fn who_hangs_is_killed_and_has_a_successor() {
    let mut child = start(SICK);
    let mut commands = child.stdin.take().expect("a pipe");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut next = || lines.next().expect("a line").expect("text");
    assert!(next().starts_with("0 "));
    assert_eq!(next(), "it is sick");
    let ended = child.wait().expect("the first one's end");
    assert_eq!(ended.signal(), Some(Signal::KILL.as_raw()));
    let said = next();
    assert!(said.starts_with("1 "), "{said}");
    writeln!(commands, "end").expect("it listens");
    assert!(lines.next().is_none());
}

/// Descriptors that are younger than it are told, too.
fn a_successor_knows_what_it_was_told_in_its_sleep() {
    let mut child = start(TALKATIVE);
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut next = || lines.next().expect("a line").expect("text");
    assert_eq!(next(), "40 were told");
    child.kill().expect("it lives");
    for number in 0..40 {
        assert_eq!(next(), format!("{number}: {}", number % 7));
    }
    assert_eq!(next(), "no more");
    child.wait().expect("the first one's end");
}

#[derive(Serialize, Deserialize)]
struct Told {
    number: u8,
    /// `number` modulo 7 can be read from it.
    #[serde(with = "skink_inherit::descriptors")]
    from: OwnedFd,
}

/// Tells its copy 40 things.
fn talkative() {
    let mut standby = Standby::new();
    let made = standby.renew(|_| None).expect("a standby");
    if let Standing::Successor { .. } = made {
        while let Some(Told { number, from }) = standby.next_told().expect("what was told") {
            let mut byte = [0];
            File::from(from).read_exact(&mut byte).expect("a byte");
            println!("{number}: {}", byte[0]);
        }
        println!("no more");
        return;
    }
    for number in 0..40 {
        let (from, mut to) = std::io::pipe().expect("a pipe");
        to.write_all(&[number % 7]).expect("room");
        let from = from.into();
        standby.tell(&Told { number, from }).expect("room");
    }
    let too_much = standby.tell(&"x".repeat(1 << 20));
    too_much.expect_err("it isn't told at all");
    println!("40 were told");
    std::thread::park();
}

/// Says which generation it is, and who, whenever it has made a copy, as long as somebody listens.
fn restless() {
    let (mut standby, mut generation) = (Standby::new(), 0);
    let mut said = Ok(());
    while said.is_ok() {
        match standby.renew(|_| None).expect("a standby") {
            Standing::Successor { .. } => generation += 1,
            Standing::Original => {
                said = writeln!(std::io::stdout(), "{generation} {}", std::process::id());
            }
        }
    }
}

/// Says which generation it is, and who; then waits for the end. The copy of the first finds fault with it if
/// that `is_sick`.
fn generations(is_sick: bool) {
    let mut standby = Standby::new();
    let mut generation = 0;
    loop {
        let first = is_sick && generation == 0;
        let look = |_| first.then(|| "it is sick".to_owned());
        match standby.renew(look).expect("a standby") {
            Standing::Successor { verdict } => {
                verdict.iter().for_each(|why| println!("{why}"));
                generation += 1;
            }
            Standing::Original => {
                println!("{generation} {}", std::process::id());
                let mut line = String::new();
                std::io::stdin().read_line(&mut line).expect("a line");
                return;
            }
        }
    }
}
