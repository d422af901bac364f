//! `skink ps`: processes of stacks, and programs.
mod proc;

use crate::cli::PsOptions;
use crate::failure::Failure;
use crate::tools::{self, Found};
use proc::{Activity, Usage};
use rustix::fs::fstat;
use serde::Serialize;
use skink_control::{ComponentInfo, FIRST_COMPONENT, ProcessInfo, QueueInfo, RegionKind};
use skink_memory::{SendRegion, SocketKind};
use std::fmt::Write;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// The state of a process that ends again and again.
const FAILING: &str = "failing";

/// What `skink ps --json` writes.
#[derive(Serialize)]
struct Report {
    instances: Vec<InstanceReport>,
}

#[derive(Serialize)]
struct InstanceReport {
    name: String,
    pid: u32,
    /// None: a `skink run`, whose programs have the stack inside.
    topology: Option<String>,
    nic: String,
    addresses: Vec<String>,
    processes: Vec<ProcessReport>,
    programs: Vec<ProgramReport>,
}

#[derive(Serialize, Clone, PartialEq, Debug)]
struct ProcessReport {
    name: String,
    /// None if it doesn't run.
    pid: Option<u32>,
    state: String,
    components: Vec<String>,
    /// Any if empty.
    cores: Vec<u16>,
    #[serde(flatten)]
    usage: Option<Usage>,
    /// Of the build that runs, or ran last, if it is known.
    release: Option<String>,
    executable: Option<String>,
    restarts: u64,
    last_end: Option<String>,
    /// In how many milliseconds it is started again, if it waits for that.
    starts_in_ms: Option<u64>,
    /// What the sandbox couldn't do here; empty if it could do all.
    sandbox: String,
    /// Orders of the supervisor that wait to be taken.
    orders: usize,
    /// The queues to it.
    queues: Vec<QueueInfo>,
}

#[derive(Serialize, Clone, PartialEq, Debug)]
struct ProgramReport {
    name: String,
    pid: u32,
    uid: u32,
    tcp_sockets: usize,
    udp_sockets: usize,
    /// What the buffers and records of its sockets take, in bytes.
    memory_bytes: u64,
    #[serde(flatten)]
    usage: Option<Usage>,
    /// The queues to it.
    queues: Vec<QueueInfo>,
}

/// Shows processes.
pub fn ps(options: &PsOptions) -> Result<(), Failure> {
    let found = tools::find(options.instance.as_deref())?;
    let interval = Duration::try_from_secs_f64(options.sample)
        .ok()
        .filter(|interval| *interval <= Duration::from_secs(60))
        .ok_or_else(|| Failure::tool("--sample takes a number of seconds, up to 60"))?;
    let activity = Activity::watch(found.iter().flat_map(pids), interval);
    let report = Report {
        instances: found.iter().map(|it| instance(it, &activity)).collect(),
    };
    if options.json {
        return tools::print_json(&report, true);
    }
    if found.is_empty() {
        tools::say_nothing_runs();
    }
    let texts: Vec<String> = report.instances.iter().map(describe).collect();
    tools::print(&texts.join("\n"))
}

/// All processes of an instance.
fn pids(found: &Found) -> impl Iterator<Item = u32> {
    let info = &found.info;
    let own = [Some(info.pid), info.standby].into_iter().flatten();
    let components = info.components.iter().filter_map(|component| component.pid);
    let programs = info.processes.iter();
    let programs = programs.filter(|process| process.owner < FIRST_COMPONENT);
    own.chain(components)
        .chain(programs.map(|process| process.pid))
}

fn instance(found: &Found, activity: &Activity) -> InstanceReport {
    let info = &found.info;
    let release = Some(info.release.clone()).filter(|release| !release.is_empty());
    let supervisor = supervising("supervisor", "running", info.pid, release, activity);
    let standby = info.standby.into_iter();
    // After an upgrade it may be of the build before.
    let standby = standby.map(|pid| supervising("standby", "sleeping", pid, None, activity));
    let components = info.components.iter();
    let components = components.map(|info| component(info, activity));
    let programs = info.processes.iter();
    let programs = programs.filter(|process| process.owner < FIRST_COMPONENT);
    InstanceReport {
        name: info.name.clone(),
        pid: info.pid,
        topology: info.topology.clone(),
        nic: info.nic.clone(),
        addresses: info.addresses.iter().map(ToString::to_string).collect(),
        processes: std::iter::once(supervisor)
            .chain(standby)
            .chain(components)
            .collect(),
        programs: programs
            .map(|process| program(found, process, activity))
            .collect(),
    }
}

/// A process that hosts no component.
fn supervising(
    name: &str,
    state: &str,
    pid: u32,
    release: Option<String>,
    activity: &Activity,
) -> ProcessReport {
    ProcessReport {
        name: name.to_owned(),
        pid: Some(pid),
        state: state.to_owned(),
        components: Vec::new(),
        cores: Vec::new(),
        usage: proc::usage(pid, activity),
        release,
        executable: proc::executable(pid),
        restarts: 0,
        last_end: None,
        starts_in_ms: None,
        sandbox: String::new(),
        orders: 0,
        queues: Vec::new(),
    }
}

fn component(info: &ComponentInfo, activity: &Activity) -> ProcessReport {
    ProcessReport {
        name: info.name.clone(),
        pid: info.pid,
        state: info.state.clone(),
        components: info.components.clone(),
        cores: info.cores.clone(),
        usage: info.pid.and_then(|pid| proc::usage(pid, activity)),
        release: Some(info.release.clone()).filter(|release| !release.is_empty()),
        executable: Some(info.executable.clone()).filter(|name| !name.is_empty()),
        restarts: info.restarts,
        last_end: info.last_end.clone(),
        starts_in_ms: info.starts_in_ms,
        sandbox: info.sandbox.clone(),
        orders: info.orders,
        queues: info.queues.clone(),
    }
}

fn program(found: &Found, process: &ProcessInfo, activity: &Activity) -> ProgramReport {
    let region = |kinds: [RegionKind; 3]| match kinds.map(|kind| found.open(process, kind)) {
        [Some(records), Some(send_rings), Some(receive_rings)] => {
            measure(records, send_rings, &receive_rings)
        }
        _ => (0, 0),
    };
    let (tcp_sockets, tcp_bytes) = region(RegionKind::TCP);
    let (udp_sockets, udp_bytes) = region(RegionKind::UDP);
    ProgramReport {
        name: process.program.clone(),
        pid: process.pid,
        uid: process.uid,
        tcp_sockets,
        udp_sockets,
        memory_bytes: tcp_bytes + udp_bytes,
        usage: proc::usage(process.pid, activity),
        queues: process.queues.clone(),
    }
}

/// How many sockets a region has, and how many bytes it takes.
fn measure(records: OwnedFd, send_rings: OwnedFd, receive_rings: &OwnedFd) -> (usize, u64) {
    let bytes = |file: &OwnedFd| {
        let blocks = fstat(file).map_or(0, |status| status.st_blocks);
        u64::try_from(blocks).unwrap_or(0) * 512
    };
    let bytes = bytes(&records) + bytes(&send_rings) + bytes(receive_rings);
    let Ok(region) = SendRegion::open_read_only([records, send_rings]) else {
        return (0, bytes);
    };
    let used = (0..region.used()).filter(|slot| region.record(*slot).kind() != SocketKind::Free);
    (used.count(), bytes)
}

fn describe(instance: &InstanceReport) -> String {
    let topology = instance.topology.as_deref().unwrap_or("library");
    let mut text = format!(
        "{} ({topology}, {} on {})\n",
        instance.name,
        instance.addresses.join(" and "),
        instance.nic
    );
    let header = [
        "  Process",
        "PID",
        "State",
        "CPU",
        "Memory",
        "Uptime",
        "Restarts",
        "Orders",
        "Queue",
        "Components",
    ];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(instance.processes.iter().map(process_row));
    text.push_str(&tools::table(&rows, &[1, 3, 4, 5, 6, 7, 8]));
    for process in &instance.processes {
        if let Some(end) = &process.last_end {
            let _ = writeln!(text, "  {} died last: {end}", process.name);
        }
        if process.state == FAILING {
            let _ = writeln!(text, "  {}", failing(process));
        }
    }
    if instance.programs.is_empty() {
        text.push_str("  no program uses it\n");
        return text;
    }
    let header = [
        "  Program",
        "PID",
        "User",
        "TCP",
        "UDP",
        "Memory",
        "CPU",
        "Queue",
    ];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(instance.programs.iter().map(program_row));
    text.push_str(&tools::table(&rows, &[1, 2, 3, 4, 5, 6, 7]));
    text
}

fn process_row(process: &ProcessReport) -> Vec<String> {
    let usage = |show: &dyn Fn(&Usage) -> String| match &process.usage {
        Some(usage) => show(usage),
        None => "-".to_owned(),
    };
    vec![
        format!("  {}", process.name),
        process.pid.map_or("-".to_owned(), |pid| pid.to_string()),
        process.state.clone(),
        cpu(process.usage.as_ref()),
        usage(&|usage| size(usage.rss_bytes)),
        usage(&|usage| duration(usage.uptime_s)),
        process.restarts.to_string(),
        process.orders.to_string(),
        waiting(&process.queues).to_string(),
        process.components.join(" "),
    ]
}

/// What can be said of one that ends again and again.
fn failing(process: &ProcessReport) -> String {
    let again = match process.starts_in_ms {
        Some(left) => format!("is tried again in {:.1} s", left as f64 / 1000.0),
        None => "is being tried again".to_owned(),
    };
    let name = &process.name;
    format!("{name} can't stay up and {again}: what it printed before it ended says more")
}

/// Messages in all of them.
fn waiting(queues: &[QueueInfo]) -> u64 {
    queues.iter().map(|queue| queue.waiting).sum()
}

fn program_row(program: &ProgramReport) -> Vec<String> {
    vec![
        format!("  {}", program.name),
        program.pid.to_string(),
        program.uid.to_string(),
        program.tcp_sockets.to_string(),
        program.udp_sockets.to_string(),
        size(program.memory_bytes),
        cpu(program.usage.as_ref()),
        waiting(&program.queues).to_string(),
    ]
}

/// The present share of a processor.
fn cpu(usage: Option<&Usage>) -> String {
    let percent = usage.and_then(|usage| usage.cpu_percent);
    percent.map_or("-".to_owned(), |percent| format!("{percent:.1}%"))
}

/// Bytes, to three digits.
fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(unit > 0 && value < 99.95);
    format!("{value:.digits$} {}", units.get(unit).unwrap_or(&""))
}

/// Seconds as two units.
fn duration(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{:02}s", seconds % 60),
        (0, _, _) => format!("{hours}h{:02}m", minutes % 60),
        (_, _, _) => format!("{days}d{:02}h", hours % 24),
    }
}

#[cfg(test)]
mod tests;
