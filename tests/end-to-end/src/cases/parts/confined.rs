//! What each running process of a stack can reach, as the kernel tells it.
use super::reach::{self, Reach};
use crate::member::Member;
use crate::network::Network;
use crate::site::{Nginx, Site};
use crate::{Failure, Outcome, Topology};
use std::collections::BTreeMap;
use std::fs;

/// What a descriptor of a component may lead to; sockets are counted. Timers and tables of the steering program belong to a NIC.
const HELD: [&str; 8] = [
    "/memfd:skink-",
    "anon_inode:[eventfd]",
    "anon_inode:[eventpoll]",
    "anon_inode:[timerfd]",
    "anon_inode:bpf-map",
    "pipe:[",
    "/dev/null",
    "socket:[",
];

/// Each component is unprivileged and in its sandbox, holds nothing but shared memory, doorbells and its link to the
/// supervisor (and `link` its NIC), and reaches no memory that it doesn't need; no two write to the same memory, but that
/// of programs, and none can take back what another was rung.
pub fn confined(network: &Network) -> Outcome {
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    // A program that has just ended is let go of by one process after the other: its memory alone may be reached by less than all
    // that should, for a moment.
    let mut found = look(network);
    let settled = network.wait_until("all is as it should be", || match &found {
        Ok((faults, true)) if !faults.is_empty() => {
            found = look(network);
            false
        }
        Ok(_) | Err(_) => true,
    });
    let (faults, _) = found?;
    nginx.stop()?;
    match faults.is_empty() {
        true => settled,
        false => Err(Failure::Wrong(faults.join("\n"))),
    }
}

/// What isn't as it should be, and whether that is only that some reach less than they should.
fn look(network: &Network) -> Result<(Vec<String>, bool), Failure> {
    let mut writers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut hearers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut reach = Reach::default();
    let members = network.members()?;
    let mut faults = Vec::new();
    for member in &members {
        let mut wrong = |what: String| faults.push(format!("{}: {what}", member.name));
        for (field, expected) in UNPRIVILEGED {
            let found = status(member, field)?;
            if found.split_whitespace().any(|value| value != expected) {
                wrong(format!("{field} is {found}"));
            }
        }
        let held = held(member)?;
        for target in &held {
            if !HELD.iter().any(|known| target.starts_with(known)) {
                wrong(format!("holds {target}"));
            }
        }
        let sockets = held.iter().filter(|it| it.starts_with("socket:")).count();
        let has_nic = network.plan.topology == Topology::Single || member.name == "link";
        if sockets != 1 && !has_nic {
            wrong(format!("holds {sockets} sockets"));
        }
        for unknown in unknown(member)? {
            wrong(format!("has mapped {unknown}"));
        }
        reach.add(member, reach::held(pid(member)?)?);
        let written = written(member)?;
        if written.is_empty() {
            wrong("writes no memory that others see".to_owned());
        }
        for memory in written {
            writers.entry(memory).or_default().push(member.name.clone());
        }
        for bell in heard(member)? {
            hearers.entry(bell).or_default().push(member.name.clone());
        }
    }
    for (bell, names) in hearers {
        // All have the pipe that tells whether the stack is needed, into which nobody writes.
        if names.len() > 1 && names.len() < members.len() {
            faults.push(format!("{names:?} can read {bell}"));
        }
    }
    for (memory, names) in writers {
        if names.len() > 1 {
            faults.push(format!("{memory} is written by {names:?}"));
        }
    }
    let is_less = faults.is_empty() && !reach.exceeds(&network.plan);
    faults.extend(reach.faults(&network.plan));
    Ok((faults, is_less))
}

/// Fields of `/proc/PID/status`, and what all their values must be: nobody, no capabilities, no way to more, and a filter of system
/// calls.
const UNPRIVILEGED: [(&str, &str); 9] = [
    ("Uid", "65534"),
    ("Gid", "65534"),
    ("CapInh", "0000000000000000"),
    ("CapPrm", "0000000000000000"),
    ("CapEff", "0000000000000000"),
    ("CapBnd", "0000000000000000"),
    ("CapAmb", "0000000000000000"),
    ("NoNewPrivs", "1"),
    ("Seccomp", "2"),
];

fn pid(member: &Member) -> Result<u32, Failure> {
    let missing = || Failure::Wrong(format!("{} doesn't run", member.name));
    member.pid.ok_or_else(missing)
}

fn directory(member: &Member) -> Result<String, Failure> {
    Ok(format!("/proc/{}", pid(member)?))
}

fn status(member: &Member, field: &str) -> Result<String, Failure> {
    let all = fs::read_to_string(directory(member)? + "/status")?;
    let mut lines = all.lines().filter_map(|line| line.split_once(':'));
    let found = lines.find(|(name, _)| *name == field);
    Ok(found.map_or("", |(_, values)| values.trim()).to_owned())
}

/// Where its descriptors lead, but those by which it says something, which are the supervisor's.
fn held(member: &Member) -> Result<Vec<String>, Failure> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory(member)? + "/fd")? {
        let entry = entry?;
        if entry.file_name() != "1" && entry.file_name() != "2" {
            all.push(fs::read_link(entry.path())?.to_string_lossy().into_owned());
        }
    }
    Ok(all)
}

/// The doorbells that it can make quiet: pipes that it can read, and eventfds by their numbers.
fn heard(member: &Member) -> Result<Vec<String>, Failure> {
    let directory = directory(member)?;
    let mut all = Vec::new();
    for entry in fs::read_dir(format!("{directory}/fd"))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let target = fs::read_link(entry.path())?.to_string_lossy().into_owned();
        let info = fs::read_to_string(format!("{directory}/fdinfo/{name}"))?;
        let field = |key: &str| {
            let mut lines = info.lines().filter_map(|line| line.split_once(':'));
            lines
                .find(|(found, _)| *found == key)
                .map(|(_, value)| value.trim())
        };
        // The last digit of the flags, which are octal, is the access mode.
        let is_read = field("flags").is_some_and(|flags| !flags.ends_with('1'));
        match field("eventfd-id") {
            Some(number) => all.push(format!("eventfd {number}")),
            None if target.starts_with("pipe:") && is_read => all.push(target),
            None => {}
        }
    }
    all.sort();
    all.dedup();
    Ok(all)
}

/// The shared memory that it may write: its inode and name. Tables of the steering program, which have one inode in
/// common, can't be told apart here.
fn written(member: &Member) -> Result<Vec<String>, Failure> {
    let mut all = shared(member)?;
    all.retain(|(rights, memory)| rights == "rw-s" && !memory.contains("bpf-map"));
    let mut all: Vec<String> = all.into_iter().map(|(_, memory)| memory).collect();
    all.sort();
    all.dedup();
    Ok(all)
}

/// Shared memory that isn't of a kind that its descriptors may lead to.
fn unknown(member: &Member) -> Result<Vec<String>, Failure> {
    let mut all = shared(member)?;
    let is_known = |memory: &str| {
        HELD.iter()
            .any(|known| memory.contains(&format!(" {known}")))
    };
    all.retain(|(_, memory)| !is_known(memory));
    Ok(all.into_iter().map(|(_, memory)| memory).collect())
}

/// The shared memory that it has mapped: with which rights, and its inode and name.
fn shared(member: &Member) -> Result<Vec<(String, String)>, Failure> {
    let maps = fs::read_to_string(directory(member)? + "/maps")?;
    let fields = maps.lines().map(|line| line.split_whitespace().collect());
    let shared = fields.filter_map(|fields: Vec<&str>| {
        let rights = fields.get(1).filter(|rights| rights.ends_with('s'))?;
        let memory = fields.get(4..).unwrap_or_default().join(" ");
        Some(((*rights).to_owned(), memory))
    });
    Ok(shared.collect())
}
