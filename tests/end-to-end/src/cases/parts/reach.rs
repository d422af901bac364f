//! Which memory that others have too each process of a stack can reach, be it for reading: what its channels and pools need.
use crate::member::Member;
use crate::network::Plan;
use crate::{BackEnd, Failure, Topology};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;

/// Who has a kind of memory.
#[derive(Clone, Copy)]
enum Had {
    /// Each of these has its own, and none of another process of the stack.
    Alone(&'static [&'static str]),
    /// All of these have the same.
    Together(&'static [&'static str]),
}

use Had::{Alone, Together};

const ALL: &[&str] = &["link", "ip", "filter", "udp", "tcp", "syscall", "store"];

/// By its name in `/proc/PID/maps`, after "skink-".
const SPLIT: [(&str, Had); 30] = [
    ("counters", Alone(ALL)),
    // Copies of frames, for tools.
    ("capture", Alone(&["link"])),
    // Lanes.
    ("link-ip", Together(&["link", "ip"])),
    ("ip-filter", Together(&["ip", "filter"])),
    ("ip-tcp", Together(&["ip", "tcp"])),
    ("ip-udp", Together(&["ip", "udp"])),
    ("tcp-syscall", Together(&["tcp", "syscall"])),
    ("udp-syscall", Together(&["udp", "syscall"])),
    ("store-syscall", Together(&["store", "syscall"])),
    // Whether each sleeps, for those who may have to ring.
    ("sleep-link", Together(&["link", "ip"])),
    (
        "sleep-ip",
        Together(&["link", "ip", "filter", "udp", "tcp"]),
    ),
    ("sleep-filter", Together(&["ip", "filter"])),
    ("sleep-udp", Together(&["ip", "udp", "syscall"])),
    ("sleep-tcp", Together(&["ip", "tcp", "syscall"])),
    (
        "sleep-syscall",
        Together(&["udp", "tcp", "syscall", "store"]),
    ),
    ("sleep-store", Together(&["syscall", "store"])),
    ("sleep-program", Together(&["udp", "tcp", "syscall"])),
    // A program's channels, one to each.
    ("requests", Alone(&["udp", "tcp", "syscall"])),
    ("notices", Alone(&["udp", "tcp", "syscall"])),
    // What has come; and what `ip` says itself, both ways.
    ("link-received", Together(&["link", "ip", "udp", "tcp"])),
    ("ip-packets", Together(&["link", "ip", "udp", "tcp"])),
    // Payload leaves from where it lies, and the record says whether it still lies there.
    ("tcp-records", Together(&["link", "ip", "tcp"])),
    ("tcp-send-rings", Together(&["link", "ip", "tcp"])),
    ("tcp-receive-rings", Alone(&["tcp"])),
    ("udp-records", Together(&["link", "ip", "udp"])),
    ("udp-send-rings", Together(&["link", "ip", "udp"])),
    ("udp-receive-rings", Alone(&["udp"])),
    // Which paths there are, for who connects.
    ("routes", Together(&["ip", "udp", "tcp"])),
    // What outlives its only reader.
    ("stored", Alone(&["store"])),
    ("flows", Alone(&["filter"])),
];

const STACK: &[&str] = &["stack"];

const SINGLE: [(&str, Had); 14] = [
    ("counters", Alone(STACK)),
    ("capture", Alone(STACK)),
    ("sleep-stack", Alone(STACK)),
    ("sleep-program", Alone(STACK)),
    ("requests", Alone(STACK)),
    ("notices", Alone(STACK)),
    ("tcp-records", Alone(STACK)),
    ("tcp-send-rings", Alone(STACK)),
    ("tcp-receive-rings", Alone(STACK)),
    ("udp-records", Alone(STACK)),
    ("udp-send-rings", Alone(STACK)),
    ("udp-receive-rings", Alone(STACK)),
    ("stored", Alone(STACK)),
    ("flows", Alone(STACK)),
];

/// AF_XDP's frames, and which of them are whose.
fn nic(topology: Topology) -> [(&'static str, Had); 2] {
    let who: &[&str] = match topology {
        Topology::Split => &["link"],
        Topology::Library | Topology::Single => STACK,
    };
    [("frames", Alone(who)), ("shares", Alone(who))]
}

/// Who has which kinds of memory where the parts are placed so.
fn known(plan: &Plan) -> Vec<(&'static str, Had)> {
    let table: &[(&str, Had)] = match plan.topology {
        Topology::Split => &SPLIT,
        Topology::Library | Topology::Single => &SINGLE,
    };
    let mut known = table.to_vec();
    if let BackEnd::Xdp = plan.back_end {
        known.extend(nic(plan.topology));
    }
    known
}

/// A piece of memory: its name, and its inode.
pub type Memory = (String, u64);

/// Who reaches which memory.
#[derive(Default)]
pub struct Reach(BTreeMap<Memory, BTreeSet<String>>);

impl Reach {
    /// A process reaches these.
    pub fn add(&mut self, who: &Member, memory: impl IntoIterator<Item = Memory>) {
        for piece in memory {
            self.0.entry(piece).or_default().insert(who.name.clone());
        }
    }

    /// Whether anybody reaches what it shouldn't.
    pub fn exceeds(&self, plan: &Plan) -> bool {
        let known = known(plan);
        let is_allowed = |name: &str, holders: &BTreeSet<String>| {
            known.iter().any(|(known, had)| {
                let (Alone(expected) | Together(expected)) = had;
                let alone = matches!(had, Alone(_));
                let within = holders.iter().all(|it| expected.contains(&it.as_str()));
                *known == name && within && !(alone && holders.len() > 1)
            })
        };
        let mut all = self.0.iter();
        !all.all(|((name, _), holders)| is_allowed(name, holders))
    }

    /// Where this isn't what it should be.
    pub fn faults(&self, plan: &Plan) -> Vec<String> {
        let known = known(plan);
        let known = || known.iter();
        let mut faults = Vec::new();
        for ((name, inode), holders) in &self.0 {
            if known().all(|(known, _)| known != name) {
                faults.push(format!("{holders:?} reach {name} ({inode})"));
            }
        }
        for (name, had) in known() {
            let (Alone(expected) | Together(expected)) = had;
            let expected: BTreeSet<&str> = expected.iter().copied().collect();
            let mut found = BTreeSet::new();
            for ((_, inode), holders) in self.0.iter().filter(|((it, _), _)| it == name) {
                let holders: BTreeSet<&str> = holders.iter().map(String::as_str).collect();
                let good = match had {
                    Alone(_) => holders.len() == 1 && holders.is_subset(&expected),
                    Together(_) => holders == expected,
                };
                if !good {
                    faults.push(format!("{holders:?} reach {name} ({inode})"));
                }
                found.extend(holders);
            }
            if let missing @ [_, ..] = &*expected.difference(&found).collect::<Vec<_>>() {
                faults.push(format!("{missing:?} reach no {name}"));
            }
        }
        faults
    }
}

/// The name of memory that Skink made, and that a descriptor or mapping leads to.
pub fn name(leads_to: &str) -> Option<&str> {
    let name = leads_to.strip_prefix("/memfd:skink-")?;
    Some(name.strip_suffix(" (deleted)").unwrap_or(name))
}

/// What a process has descriptors of or has mapped, as the kernel tells it.
pub fn held(pid: u32) -> Result<Vec<Memory>, Failure> {
    let mut all = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let path = entry?.path();
        if let Some(name) = name(&fs::read_link(&path)?.to_string_lossy()) {
            all.push((name.to_owned(), fs::metadata(&path)?.ino()));
        }
    }
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    for line in maps.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let path = fields.get(5).and_then(|path| name(path));
        if let (Some(name), Some(inode)) = (path, fields.get(4)) {
            let inode = inode.parse().map_err(std::io::Error::other)?;
            all.push((name.to_owned(), inode));
        }
    }
    Ok(all)
}
