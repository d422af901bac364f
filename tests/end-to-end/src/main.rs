//! Runs the end-to-end suite. See the library's documentation.

use skink_end_to_end::{all, prepare, require, suite};
use std::process::ExitCode;

/// One more than the smallest machines have processors, since a quarter of the cases' time passes in waiting: for what an idle
/// stack takes, or for a timer.
const WORKERS: usize = 3;

const NEEDED: [&str; 13] = [
    "ip",
    "unshare",
    "cc",
    "nginx",
    "redis-server",
    "redis-benchmark",
    "python3",
    "curl",
    "wrk",
    "sshd",
    "ssh",
    "memcached",
    "iperf3",
];

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// Answers whether no case failed.
fn run() -> Result<bool, String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|it| it == suite::WORKER) {
        prepare(&NEEDED)?;
        suite::work(&all()).map_err(|error| format!("a worker ended: {error}"))?;
        return Ok(true);
    }
    require(&NEEDED)?;
    suite::run(&all(), &arguments, WORKERS).map_err(|error| error.to_string())
}
