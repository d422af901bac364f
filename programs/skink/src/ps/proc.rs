//! What the kernel tells of a process, in /proc.
use serde::Serialize;

/// Units of time in /proc/PID/stat, in a second: the same on every machine (`USER_HZ`).
const TICKS: f64 = 100.0;

/// What a process uses.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct Usage {
    /// Of one processor, since the process was started.
    pub cpu_percent: f64,
    /// Of physical memory, shared memory too, in bytes.
    pub rss_bytes: u64,
    /// Since the process was started, in seconds.
    pub uptime_s: u64,
}

/// None if it has ended.
pub fn usage(pid: u32) -> Option<Usage> {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{name}")).ok();
    let stat = read(&format!("{pid}/stat"))?;
    let status = read(&format!("{pid}/status"))?;
    parse(&stat, &status, &read("uptime")?)
}

/// See proc_pid_stat(5) and proc_uptime(5).
fn parse(stat: &str, status: &str, uptime: &str) -> Option<Usage> {
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
        cpu_percent: (busy / lived * 1000.0).round() / 10.0,
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
        let usage = parse(stat, "Name:\ta\nVmRSS:\t  12 kB\n", "1000.00 5").expect("good");
        let expected = Usage {
            cpu_percent: 2.0,
            rss_bytes: 12 * 1024,
            uptime_s: 100,
        };
        assert_eq!(usage, expected);
        for (stat, uptime) in [("", "1"), ("7 (a) S 1", "1"), (stat, ""), (stat, "x")] {
            assert_eq!(parse(stat, "", uptime), None, "{stat} {uptime}");
        }
        assert!(super::usage(std::process::id()).is_some() && super::usage(0).is_none());
    }
}
