//! What the processes of the server's side use: processor time and context switches, from /proc.

use super::outside::{family, process_ids};
use super::results::{Memory, ProcessCosts};
use std::collections::BTreeMap;

/// What a process has used since it was started.
#[derive(Clone, Debug, Default, PartialEq)]
struct Used {
    name: String,
    user_ticks: u64,
    system_ticks: u64,
    voluntary: u64,
    involuntary: u64,
}

/// What the server is called among them.
pub const PROGRAM: &str = "program";

/// A look at the processes, by process id.
pub struct Look(BTreeMap<u32, Used>);

/// Looks at what `roots` and all that they started have used until now.
pub fn look(roots: &[u32]) -> Look {
    let stats = process_ids().into_iter().filter_map(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some((pid, parse_stat(&stat)?))
    });
    let stats: BTreeMap<u32, (u32, u64, u64)> = stats.collect();
    let parents = stats.iter().map(|(pid, (parent, ..))| (*pid, *parent));
    let family = family(&parents.collect(), roots);
    let used = family.into_iter().filter_map(|pid| {
        let (_, user_ticks, system_ticks) = *stats.get(&pid)?;
        let (voluntary, involuntary) = switches(pid);
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let used = Used {
            name: name(&command),
            user_ticks,
            system_ticks,
            voluntary,
            involuntary,
        };
        Some((pid, used))
    });
    Look(used.collect())
}

impl Look {
    /// What was used since `earlier`, by name. A process that has ended meanwhile is left out.
    pub fn since(&self, earlier: &Look) -> Vec<ProcessCosts> {
        let mut costs: BTreeMap<&str, ProcessCosts> = BTreeMap::new();
        for (pid, after) in &self.0 {
            let before = earlier.0.get(pid).cloned().unwrap_or_default();
            let one = costs.entry(&after.name).or_default();
            let seconds = |after: u64, before| after.saturating_sub(before) as f64 / 100.0;
            one.name.clone_from(&after.name);
            one.user_seconds += seconds(after.user_ticks, before.user_ticks);
            one.system_seconds += seconds(after.system_ticks, before.system_ticks);
            one.voluntary_switches += after.voluntary.saturating_sub(before.voluntary);
            one.involuntary_switches += after.involuntary.saturating_sub(before.involuntary);
        }
        costs.into_values().collect()
    }
}

/// Of all threads. Those of threads that have ended are lost.
fn switches(pid: u32) -> (u64, u64) {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    let mut sum = (0, 0);
    for thread in threads.into_iter().flatten().flatten() {
        let status = std::fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        let (voluntary, involuntary) = parse_status(&status);
        sum = (sum.0 + voluntary, sum.1 + involuntary);
    }
    sum
}

fn parse_status(status: &str) -> (u64, u64) {
    let number = |label: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(label));
        line.and_then(|rest| rest.trim().parse().ok()).unwrap_or(0)
    };
    (
        number("voluntary_ctxt_switches:"),
        number("nonvoluntary_ctxt_switches:"),
    )
}

/// Parent, user and system time in ticks, of a line of `/proc/PID/stat`.
fn parse_stat(line: &str) -> Option<(u32, u64, u64)> {
    let (_, rest) = line.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some((number(1)?.try_into().ok()?, number(11)?, number(12)?))
}

/// What a process is on the server's side, by its command line.
fn name(command: &[u8]) -> String {
    let mut words = command
        .split(|byte| *byte == 0)
        .map(String::from_utf8_lossy);
    let program = words.next().unwrap_or_default().into_owned();
    let (verb, next) = (words.next(), words.next());
    let skink = program.rsplit('/').next() == Some("skink") || program == "/proc/self/exe";
    match (skink, verb.as_deref(), next) {
        (true, Some("component"), Some(name)) => name.into_owned(),
        (true, Some("up" | "run"), _) => "supervisor".to_owned(),
        _ => PROGRAM.to_owned(),
    }
}

/// Memory that the machine uses for what processes share, and for the kernel's own objects, in bytes.
pub struct MachineMemory {
    shared: u64,
    slab: u64,
}

impl MachineMemory {
    /// As it is now.
    pub fn look() -> MachineMemory {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        MachineMemory {
            shared: kibibytes(&text, "Shmem:") << 10,
            slab: kibibytes(&text, "Slab:") << 10,
        }
    }
}

/// What `roots` and all that they started have now, and what the machine uses more than `before`.
pub fn memory(roots: &[u32], before: &MachineMemory, connections: u32) -> Memory {
    let own = look(roots).0.into_keys().map(|pid| {
        let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"));
        let rollup = rollup.unwrap_or_default();
        kibibytes(&rollup, "Pss_Anon:") + kibibytes(&rollup, "Pss_File:")
    });
    let processes_bytes = own.sum::<u64>() << 10;
    let now = MachineMemory::look();
    Memory {
        connections,
        processes_bytes,
        shared_bytes: now.shared.saturating_sub(before.shared),
        slab_bytes: now.slab.saturating_sub(before.slab),
    }
}

/// A line of `/proc/meminfo` and the like.
fn kibibytes(text: &str, label: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(label));
    let number = line.and_then(|rest| rest.split_whitespace().next());
    number.and_then(|word| word.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests;
