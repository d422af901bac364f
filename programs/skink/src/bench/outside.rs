//! The half of a benchmark that stays outside its private namespaces. Kernel threads and other
//! people's processes can't be seen from inside: this half pins the former and counts what the latter
//! use. The halves talk over a socket, which is the inner half's standard input, in lines of JSON.

use super::results::Results;
use crate::failure::Failure;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

#[derive(Serialize, Deserialize)]
enum Request {
    /// Pin the kernel threads whose names begin so, and schedule them by `SCHED_BATCH`, if so wanted.
    Pin {
        prefix: String,
        cpu: usize,
        batch: bool,
    },
    /// Count from now on what other processes use.
    Watch,
    /// What they have used since.
    Others,
    /// What kernel threads whose names begin so have done since.
    Threads { prefix: String },
    /// It's done.
    Done(Box<Results>),
    /// It can't be done.
    Failed(String),
}

#[derive(Serialize, Deserialize)]
enum Reply {
    Pinned(Result<Vec<String>, String>),
    Watching,
    /// In parts of one processor's time.
    Others(f64),
    /// By name.
    Threads(Vec<(String, Turns)>),
}

/// What the scheduler says of a thread.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq)]
pub struct Turns {
    /// How often it was given a processor.
    pub count: u64,
    /// For how long it had one,
    pub ran_ns: u64,
    /// and for how long it wanted one.
    pub waited_ns: u64,
}

impl Turns {
    fn since(&self, earlier: &Turns) -> Turns {
        Turns {
            count: self.count.saturating_sub(earlier.count),
            ran_ns: self.ran_ns.saturating_sub(earlier.ran_ns),
            waited_ns: self.waited_ns.saturating_sub(earlier.waited_ns),
        }
    }
}

/// The inner half's connection to the outer one.
pub struct Outside {
    stream: UnixStream,
    replies: Receiver<Reply>,
}

impl Outside {
    /// Takes over standard input. If the outer half ends, so does this process.
    pub fn connect() -> io::Result<Outside> {
        let stream = rustix::io::fcntl_dupfd_cloexec(io::stdin(), 3)?;
        let stream = UnixStream::from(stream);
        let input = BufReader::new(stream.try_clone()?);
        let (sender, replies) = channel();
        std::thread::spawn(move || {
            for line in input.lines().map_while(Result::ok) {
                let Ok(reply) = serde_json::from_str(&line) else {
                    break;
                };
                if sender.send(reply).is_err() {
                    return;
                }
            }
            std::process::exit(1);
        });
        Ok(Outside { stream, replies })
    }

    fn send(&self, request: &Request) -> Result<(), Failure> {
        write_line(&self.stream, request)
            .map_err(|error| Failure::tool(format!("the outer half doesn't listen: {error}")))
    }

    fn ask(&self, request: &Request) -> Result<Reply, Failure> {
        self.send(request)?;
        let reply = self.replies.recv();
        reply.map_err(|_| Failure::tool("the outer half doesn't answer"))
    }

    /// Pins kernel threads whose names begin with `prefix`, and answers their names. With `batch` they are scheduled by
    /// `SCHED_BATCH`: when they wake they take the processor from nobody.
    pub fn pin(&self, prefix: &str, cpu: usize, batch: bool) -> Result<Vec<String>, Failure> {
        let prefix = prefix.to_owned();
        match self.ask(&Request::Pin { prefix, cpu, batch })? {
            Reply::Pinned(Ok(names)) => Ok(names),
            Reply::Pinned(Err(why)) => Err(Failure::tool(why)),
            _ => Err(confused()),
        }
    }

    /// Counts from now on what processes that aren't the benchmark's use.
    pub fn watch(&self) -> Result<(), Failure> {
        match self.ask(&Request::Watch)? {
            Reply::Watching => Ok(()),
            _ => Err(confused()),
        }
    }

    /// Processor time of other processes since [`Outside::watch`], in parts of one processor's.
    pub fn others(&self) -> Result<f64, Failure> {
        match self.ask(&Request::Others)? {
            Reply::Others(share) => Ok(share),
            _ => Err(confused()),
        }
    }

    /// What each kernel thread whose name begins with `prefix` has done since [`Outside::watch`].
    pub fn threads(&self, prefix: &str) -> Result<Vec<(String, Turns)>, Failure> {
        let prefix = prefix.to_owned();
        match self.ask(&Request::Threads { prefix })? {
            Reply::Threads(threads) => Ok(threads),
            _ => Err(confused()),
        }
    }

    /// Hands the outcome over.
    pub fn finish(&self, outcome: Result<Results, Failure>) -> Result<(), Failure> {
        self.send(&match outcome {
            Ok(results) => Request::Done(Box::new(results)),
            Err(failure) => Request::Failed(failure.message),
        })
    }
}

fn confused() -> Failure {
    Failure::tool("the outer half answered another question")
}

fn write_line<T: Serialize>(mut stream: &UnixStream, value: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Runs the calling program once more, as the inner half, serves it, and answers its results.
pub fn run_inner_half() -> Result<Results, Failure> {
    let failed = |error: io::Error| Failure::tool(format!("can't start the benchmark: {error}"));
    let (own, other) = UnixStream::pair().map_err(failed)?;
    let mut path = std::env::var("PATH").unwrap_or_default();
    path.push_str(":/usr/sbin:/sbin");
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.args(std::env::args_os().skip(1));
    command.env("PATH", path).env(super::INNER, "1");
    // Whatever ends the benchmark, what its programs printed and were given ends with its namespaces.
    if let Some(directory) = skink_testbed::private_temporary() {
        command.env("TMPDIR", directory);
    }
    command.stdin(std::os::fd::OwnedFd::from(other));
    let mut child = command.spawn().map_err(failed)?;
    drop(command);
    let results = serve(&own);
    let status = child.wait().map_err(failed)?;
    results.unwrap_or_else(|| Err(silent(status)))
}

fn silent(status: ExitStatus) -> Failure {
    Failure::tool(format!("the benchmark ended early, with {status}"))
}

/// Answers requests until the outcome comes; `None` if it doesn't.
fn serve(stream: &UnixStream) -> Option<Result<Results, Failure>> {
    let mut watch = None;
    let mut turns = BTreeMap::new();
    for line in BufReader::new(stream).lines() {
        let reply = match serde_json::from_str(&line.ok()?).ok()? {
            Request::Pin { prefix, cpu, batch } => {
                let pinned = pin_threads(&prefix, cpu, batch);
                Reply::Pinned(pinned.map_err(|error| error.to_string()))
            }
            Request::Watch => {
                watch = Some((Instant::now(), others_seconds()));
                turns = turns_of_threads(NAPI);
                Reply::Watching
            }
            Request::Threads { prefix } => {
                let now = turns_of_threads(&prefix).into_iter();
                let since = now.map(|(pid, (name, now))| {
                    let before = turns
                        .get(&pid)
                        .map_or(Turns::default(), |(_, turns)| *turns);
                    (name, now.since(&before))
                });
                Reply::Threads(since.collect())
            }
            Request::Others => Reply::Others(watch.as_ref().map_or(1.0, |(start, before)| {
                (others_seconds() - before).max(0.0) / start.elapsed().as_secs_f64()
            })),
            Request::Done(results) => return Some(Ok(*results)),
            Request::Failed(why) => return Some(Err(Failure::tool(why))),
        };
        write_line(stream, &reply).ok()?;
    }
    None
}

/// How the names of all kernel threads that bring frames begin.
pub const NAPI: &str = "napi/";

/// What threads whose names begin with `prefix` have done since they were started, by process id.
fn turns_of_threads(prefix: &str) -> BTreeMap<u32, (String, Turns)> {
    let threads = process_ids().into_iter().filter_map(|pid| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        if !name.starts_with(prefix) {
            return None;
        }
        let told = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
        Some((pid, (name.trim().to_owned(), parse_turns(&told)?)))
    });
    threads.collect()
}

/// `/proc/PID/schedstat`: nanoseconds on a processor, nanoseconds waiting for one, turns.
fn parse_turns(told: &str) -> Option<Turns> {
    let mut numbers = told.split_whitespace().map(|word| word.parse().ok());
    Some(Turns {
        ran_ns: numbers.next()??,
        waited_ns: numbers.next()??,
        count: numbers.next()??,
    })
}

fn pin_threads(prefix: &str, cpu: usize, batch: bool) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for pid in process_ids() {
        let Ok(name) = std::fs::read_to_string(format!("/proc/{pid}/comm")) else {
            continue;
        };
        if name.starts_with(prefix) {
            pin(Some(pid), cpu)?;
            if batch {
                schedule_by_batch(pid)?;
            }
            names.push(name.trim().to_owned());
        }
    }
    Ok(names)
}

fn schedule_by_batch(pid: u32) -> io::Result<()> {
    let mut command = Command::new("chrt");
    let output = command
        .args(["--batch", "--pid", "0", &pid.to_string()])
        .output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "chrt (of util-linux) can't have a kernel thread scheduled by SCHED_BATCH: {}",
            String::from_utf8_lossy(&output.stderr)
        ))),
    }
}

/// Keeps a process, or the caller, and what it will start on one processor.
pub fn pin(pid: Option<u32>, cpu: usize) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    let pid = pid.and_then(|pid| rustix::process::Pid::from_raw(pid as i32));
    Ok(rustix::thread::sched_setaffinity(pid, &set)?)
}

/// All processes in sight.
pub fn process_ids() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().parse());
    names.filter_map(Result::ok).collect()
}

/// Processor time that processes outside this one's family have used, in seconds. What their ended
/// children used is part of it, so that it grows by what was used even if processes come and go.
pub fn others_seconds() -> f64 {
    let stats = process_ids().into_iter().filter_map(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some((pid, parse_stat(&stat)?))
    });
    let stats: BTreeMap<u32, Stat> = stats.collect();
    sum_of_others(&stats, std::process::id())
}

#[derive(Debug, PartialEq)]
struct Stat {
    parent: u32,
    kernel_thread: bool,
    /// Its own and its ended children's user and system time.
    ticks: u64,
}

/// A line of `/proc/PID/stat`.
fn parse_stat(line: &str) -> Option<Stat> {
    const PF_KTHREAD: u64 = 0x0020_0000;
    let (_, rest) = line.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Stat {
        parent: number(1)?.try_into().ok()?,
        kernel_thread: number(6)? & PF_KTHREAD != 0,
        ticks: number(11)? + number(12)? + number(13)? + number(14)?,
    })
}

fn sum_of_others(stats: &BTreeMap<u32, Stat>, own: u32) -> f64 {
    let parents = stats.iter().map(|(pid, stat)| (*pid, stat.parent));
    let family = family(&parents.collect(), &[own]);
    let others = stats
        .iter()
        .filter(|(pid, stat)| !stat.kernel_thread && !family.contains(*pid));
    others.map(|(_, stat)| stat.ticks).sum::<u64>() as f64 / TICKS_PER_SECOND
}

/// Processes and all their descendants; `parents` has each process's parent.
pub fn family(parents: &BTreeMap<u32, u32>, roots: &[u32]) -> BTreeSet<u32> {
    let mut family: BTreeSet<u32> = roots.iter().copied().collect();
    // A child can have a smaller number than its parent: look until nothing is found any more.
    loop {
        let children = parents
            .iter()
            .filter(|(pid, parent)| family.contains(parent) && !family.contains(*pid));
        let children: Vec<u32> = children.map(|(pid, _)| *pid).collect();
        if children.is_empty() {
            return family;
        }
        family.extend(children);
    }
}

const TICKS_PER_SECOND: f64 = 100.0;

#[cfg(test)]
mod tests;
