//! What the kernel tells of a process, in /proc.
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Units of time in /proc/PID/stat, in a second: the same on every machine (`USER_HZ`).
const TICKS: f64 = 100.0;

/// What a process uses.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct Usage {
    /// Of one processor, at present; None if nobody looked on.
    pub cpu_percent: Option<f64>,
    /// Of one processor, since the process was started.
    pub cpu_life_percent: f64,
    /// Of physical memory, shared memory too, in bytes.
    pub rss_bytes: u64,
    /// Since the process was started, in seconds.
    pub uptime_s: u64,
}

/// How much of a processor processes take at present, in percent, by their ids.
#[derive(Default)]
pub struct Activity(BTreeMap<u32, f64>);

impl Activity {
    /// Looks at all of them twice, with `interval` in between; not at all if that is zero.
    pub fn watch(pids: impl Iterator<Item = u32>, interval: Duration) -> Activity {
        let pids = pids.filter(|_| !interval.is_zero());
        let first: Vec<_> = pids
            .filter_map(|pid| Some((pid, Instant::now(), busy(pid)?)))
            .collect();
        if first.is_empty() {
            return Activity::default();
        }
        std::thread::sleep(interval);
        let again = first.into_iter().filter_map(|(pid, since, before)| {
            let after = busy(pid)?;
            Some((pid, percent(&before, &after, since.elapsed())))
        });
        Activity(again.collect())
    }
}

/// For how long each thread of a process has run, in nanoseconds; None if the process has ended, or the kernel doesn't tell.
fn busy(pid: u32) -> Option<BTreeMap<String, u64>> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let ran = threads.filter_map(|thread| {
        let thread = thread.ok()?;
        let told = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        let ran = told.split_whitespace().next()?.parse().ok()?;
        Some((thread.file_name().into_string().ok()?, ran))
    });
    let ran: BTreeMap<String, u64> = ran.collect();
    (!ran.is_empty()).then_some(ran)
}

/// Threads that have ended meanwhile don't count; new ones do.
fn percent(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>, time: Duration) -> f64 {
    let ran = after.iter().map(|(thread, ran)| {
        let before = before.get(thread).copied().unwrap_or(0);
        ran.saturating_sub(before)
    });
    let ran = Duration::from_nanos(ran.sum());
    tenths(ran.as_secs_f64() / time.as_secs_f64())
}

/// A share in percent, to tenths.
fn tenths(share: f64) -> f64 {
    (share * 1000.0).round() / 10.0
}

/// None if it has ended.
pub fn usage(pid: u32, activity: &Activity) -> Option<Usage> {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{name}")).ok();
    let stat = read(&format!("{pid}/stat"))?;
    let status = read(&format!("{pid}/status"))?;
    let now = activity.0.get(&pid).copied();
    parse(&stat, &status, &read("uptime")?, now)
}

/// See proc_pid_stat(5) and proc_uptime(5).
fn parse(stat: &str, status: &str, uptime: &str, cpu_percent: Option<f64>) -> Option<Usage> {
    // The name before may have spaces and parentheses in it.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    // Fields 14, 15 and 22, of which the first two came before.
    let number = |at: usize| fields.get(at - 3)?.parse::<f64>().ok();
    let busy = (number(14)? + number(15)?) / TICKS;
    let up: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    let lived = (up - number(22)? / TICKS).max(0.01);
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    Some(Usage {
        cpu_percent,
        cpu_life_percent: tenths(busy / lived),
        rss_bytes: kilobytes.unwrap_or(0).saturating_mul(1024),
        uptime_s: lived as u64,
    })
}

/// The file that a process executes; `None` if that isn't for us to know.
pub fn executable(pid: u32) -> Option<String> {
    let path = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    Some(path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_read_from_proc() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 150 50 0 0 20 0 1 0 90000 5 6";
        let usage =
            parse(stat, "Name:\ta\nVmRSS:\t  12 kB\n", "1000.00 5", Some(37.5)).expect("good");
        let expected = Usage {
            cpu_percent: Some(37.5),
            cpu_life_percent: 2.0,
            rss_bytes: 12 * 1024,
            uptime_s: 100,
        };
        assert_eq!(usage, expected);
        for (stat, uptime) in [("", "1"), ("7 (a) S 1", "1"), (stat, ""), (stat, "x")] {
            assert_eq!(parse(stat, "", uptime, None), None, "{stat} {uptime}");
        }
    }

    #[test]
    fn a_process_is_as_busy_as_its_threads_together() {
        let threads = |all: &[(&str, u64)]| {
            let all = all.iter().map(|(thread, ran)| ((*thread).to_owned(), *ran));
            all.collect::<BTreeMap<_, _>>()
        };
        let ms = 1_000_000;
        let before = threads(&[("1", 5000 * ms), ("2", 70 * ms), ("3", 9 * ms)]);
        let after = threads(&[("1", 5100 * ms), ("2", 70 * ms), ("4", 50 * ms)]);
        assert_eq!(percent(&before, &after, Duration::from_millis(200)), 75.0);
        assert_eq!(percent(&before, &before, Duration::from_millis(200)), 0.0);
    }

    #[test]
    fn processes_are_seen_as_long_as_they_live() {
        let own = std::process::id();
        for (milliseconds, is_seen) in [(1, true), (0, false)] {
            let interval = Duration::from_millis(milliseconds);
            let activity = Activity::watch([own, 0].into_iter(), interval);
            let usage = |pid| usage(pid, &activity);
            assert_eq!(usage(own).map(|it| it.cpu_percent.is_some()), Some(is_seen));
            assert_eq!(usage(0), None);
        }
    }
}
