//! Rules for processes that have a stack of their own each.
use super::{Directory, attach, connect, serve, server, tool, wait};
use crate::{Broker, Notice, Server};
use rustix::fs::{MemfdFlags, SealFlags, memfd_create};
use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

fn file(text: &str, seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(memfd_create("test", flags).expect("memory"));
    file.write_all(text.as_bytes()).expect("memory");
    file.rewind().expect("a file");
    rustix::fs::fcntl_add_seals(&file, seals).expect("seals");
    file.into()
}

/// What the broker has said unasked; it may have closed the connection.
fn heard(broker: &mut Broker) -> Vec<Notice> {
    std::iter::from_fn(|| broker.take_notice().ok().flatten()).collect()
}

#[test]
fn rules_reach_processes_that_there_are_and_those_that_come() {
    let directory = Directory::new("rules");
    let (mut server, _) = server(&directory);
    serve(&mut server, |environment, path| {
        let mut first = connect(&environment);
        assert_eq!(attach(&mut first).rules, "block in");
        let tool = tool(path);
        let rules = file("pass all", SealFlags::empty());
        assert_eq!(tool.load_filter(rules.as_fd()).expect("an answer"), "done");
        assert_eq!(
            heard(&mut first),
            [Notice::LoadFilter("pass all".to_owned())]
        );
        let refused = file("nonsense", SealFlags::empty());
        assert!(tool.load_filter(refused.as_fd()).is_err());
        assert_eq!(heard(&mut first), []);
        let mut second = connect(&environment);
        assert_eq!(attach(&mut second).rules, "pass all");
    });
}

#[test]
fn a_process_is_asked_and_answers_or_is_given_up() {
    let directory = Directory::new("shown");
    let (mut server, _) = server(&directory);
    let (mut broker, owner) = serve(&mut server, |environment, _| {
        let mut broker = connect(&environment);
        let owner = attach(&mut broker).owner;
        (broker, owner)
    });
    let mut tell = |server: &mut Server<_>, answer: Option<(&str, SealFlags)>, later| {
        let path = server.socket_path().to_owned();
        let asked = std::thread::spawn(move || {
            tool(&path)
                .show_filter(Some(owner))
                .map_err(|error| error.to_string())
        });
        let mut now = Instant::now();
        while !asked.is_finished() {
            wait(server.as_fd());
            server.serve(now);
            for notice in heard(&mut broker) {
                let Notice::ShowFilter(question) = notice else {
                    panic!("{notice:?}");
                };
                if let Some((text, seals)) = answer {
                    broker.tell_filter(question + 1, file("of another", seals).as_fd());
                    broker.tell_filter(question, file(text, seals).as_fd());
                }
                now += later;
            }
        }
        asked.join().expect("a tool")
    };
    let (sealed, none) = (SealFlags::SHRINK, Duration::ZERO);
    let shown = tell(&mut server, Some(("{}", sealed)), none);
    assert_eq!(shown, Ok("{}".to_owned()));
    let late = tell(&mut server, None, Duration::from_secs(4));
    assert!(late.is_err_and(|why| why.contains("doesn't answer")));
    // What could shrink isn't looked into, and who hands that in is shown the door.
    let shrinks = tell(&mut server, Some(("{}", SealFlags::empty())), none);
    assert!(shrinks.is_err_and(|why| why.contains("ended")));
    let gone = tell(&mut server, None, none);
    assert!(gone.is_err_and(|why| why.contains("ended")));
}
