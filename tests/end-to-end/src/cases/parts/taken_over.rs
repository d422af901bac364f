//! What an attacker reaches who has a running component under control: the component's own process tries, with the
//! descriptors, memory and filter of system calls that it has.
use super::reach::{self, Memory, Reach};
use super::{Download, bound_receive_buffers};
use crate::member::Member;
use crate::network::Network;
use crate::site::{Nginx, Site};
use crate::{Failure, Outcome};
use skink_testbed::{Called, Seized};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

/// Whom a component attacks, and with what.
struct Target {
    /// A socket that it has.
    socket: u64,
    /// Another component or the supervisor.
    other: u64,
}

type Attack = fn(&mut Seized, &Target) -> io::Result<Called>;

/// What ends the component that tries it. Few, since one that ends again and again is started later and later; the sandbox's own
/// tests try many more.
const ATTACKS: [(&str, Attack); 4] = [
    ("sent to an address", |it, target| {
        // sockaddr_ll(7): to interface 1, which isn't the stack's.
        let address = it.put(&[17, 0, 8, 0, 1, 0, 0, 0, 0, 0, 0, 6, 2, 2, 2, 2, 2, 2, 0, 0])?;
        it.call(SENDTO, &[target.socket, address, 14, 0, address, 20])
    }),
    ("sent a message", |it, target| {
        let message = it.put(&[0; 56])?;
        it.call(SENDMSG, &[target.socket, message, 0])
    }),
    ("opened a file", |it, _| {
        let path = it.put(b"/etc/passwd\0")?;
        it.call(OPENAT, &[u64::MAX, path, 0])
    }),
    ("read another's memory", |it, target| {
        let vectors = it.put(&[0; 32])?;
        it.call(PROCESS_VM_READV, &[target.other, vectors, 1, vectors, 1, 0])
    }),
];

const MMAP: i64 = 9;
const MUNMAP: i64 = 11;
const SENDTO: i64 = 44;
const SENDMSG: i64 = 46;
const OPENAT: i64 = 257;
const PROCESS_VM_READV: i64 = 310;

const PAGE: u64 = 4096;
const READ: u64 = 1;
const WRITE: u64 = 2;
const READ_WRITE: u64 = READ | WRITE;
const SHARED: u64 = 1;
const SIGSYS: i32 = 31;

/// Whatever a component tries ends it and nobody else, connections go on, and no descriptor or mapping that it
/// has lets it write to memory that another may write to, or read what it doesn't need; nor any of its successor's.
pub fn taken_over(network: &Network) -> Outcome {
    if !skink_testbed::is_root() {
        return Err(Failure::Skip(
            "another's process is root's to seize".to_owned(),
        ));
    }
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    bound_receive_buffers(network)?;
    let download = Download::start(network, &site.path("copy"), &site.path("larger"))?;
    let mut faults = memory_faults(network)?;
    let supervisor = network.supervisor()?.unwrap_or(0);
    for (what, attack) in ATTACKS {
        let members = network.members()?;
        for member in &members {
            let mut others = members.iter().filter_map(|it| it.pid);
            let other = others.find(|pid| Some(*pid) != member.pid);
            let other = other.unwrap_or(supervisor);
            let outcome = attempt(member, other, attack)?;
            if outcome != Called::Ended(SIGSYS) {
                faults.push(format!("{} {what}: {outcome:?}", member.name));
            }
        }
        if !faults.is_empty() {
            return Err(Failure::Wrong(faults.join("\n")));
        }
        network.wait_until("all run again", || {
            let again = |it: &Member| {
                let before = members.iter().find(|old| old.name == it.name);
                it.pid.is_some() && before.is_some_and(|old| old.restarts < it.restarts)
            };
            network.members().is_ok_and(|now| now.iter().all(again))
        })?;
    }
    // What successors are told they map by and by.
    let mut faults = Vec::new();
    let reached = network.wait_until("all have their memory", || {
        faults = memory_faults(network).unwrap_or_else(|why| vec![format!("{why:?}")]);
        faults.is_empty()
    });
    if reached.is_err() {
        return Err(Failure::Wrong(faults.join("\n")));
    }
    download.finish()?;
    nginx.stop()
}

/// What memory processes could write that others may write, too, or read though they don't need it.
fn memory_faults(network: &Network) -> Result<Vec<String>, Failure> {
    let mut writers: BTreeMap<Memory, Vec<String>> = BTreeMap::new();
    let mut reach = Reach::default();
    for member in network.members()? {
        for memory in reachable(&member, READ_WRITE)? {
            writers.entry(memory).or_default().push(member.name.clone());
        }
        reach.add(&member, reachable(&member, READ)?);
    }
    let mut faults = reach.faults(&network.plan);
    if writers.is_empty() {
        faults.push("nobody could write to any memory".to_owned());
    }
    writers.retain(|_, names| names.len() > 1);
    let writers = writers.into_iter();
    faults.extend(writers.map(|(memory, names)| format!("{names:?} can all write to {memory:?}")));
    Ok(faults)
}

fn pid(member: &Member) -> Result<u32, Failure> {
    let missing = || Failure::Wrong(format!("{} doesn't run", member.name));
    member.pid.ok_or_else(missing)
}

fn attempt(member: &Member, other: u32, attack: Attack) -> Result<Called, Failure> {
    let pid = pid(member)?;
    let socket = descriptors(pid)?
        .into_iter()
        .find(|(_, leads_to)| leads_to.starts_with("socket:"));
    let (socket, _) =
        socket.ok_or_else(|| Failure::Wrong(format!("{} has no socket", member.name)))?;
    let target = Target {
        socket,
        other: other.into(),
    };
    Ok(attack(&mut Seized::seize(pid)?, &target)?)
}

/// Its descriptors, and where they lead.
fn descriptors(pid: u32) -> Result<Vec<(u64, String)>, Failure> {
    let mut all = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let entry = entry?;
        let number = entry.file_name().to_string_lossy().parse();
        let leads_to = fs::read_link(entry.path())?.to_string_lossy().into_owned();
        all.push((number.map_err(io::Error::other)?, leads_to));
    }
    Ok(all)
}

/// The shared memory that it can map with these rights, or has mapped so: nobody may change what a mapping allows (the sandbox's
/// own tests try it).
fn reachable(member: &Member, rights: u64) -> Result<Vec<Memory>, Failure> {
    let pid = pid(member)?;
    let mut seized = Seized::seize(pid)?;
    let held = descriptors(pid)?;
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let mut all = Vec::new();
    for (number, leads_to) in held {
        let Some(name) = reach::name(&leads_to) else {
            continue;
        };
        let inode = fs::metadata(format!("/proc/{pid}/fd/{number}"))?.ino();
        let mapped = seized.call(MMAP, &[0, PAGE, rights, SHARED, number, 0])?;
        if let Called::Answered(address @ 1..) = mapped {
            all.push((name.to_owned(), inode));
            seized.call(MUNMAP, &[address as u64, PAGE])?;
        }
    }
    for line in maps.lines() {
        // As in proc_pid_maps(5).
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, letters, _, _, inode, path, ..] = *fields else {
            continue;
        };
        let Some(name) = reach::name(path).filter(|_| letters.ends_with('s')) else {
            continue;
        };
        let bit = |letter, bit| if letters.contains(letter) { bit } else { 0 };
        let has = bit('r', READ) | bit('w', WRITE);
        if has & rights == rights {
            let inode = inode.parse().map_err(io::Error::other)?;
            all.push((name.to_owned(), inode));
        }
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}
