//! Runs the end-to-end suite. See the library's documentation.

use std::process::ExitCode;

fn main() -> ExitCode {
    let needed = [
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
    if let Err(why) = skink_end_to_end::prepare(&needed) {
        eprintln!("{why}");
        return ExitCode::FAILURE;
    }
    let filters: Vec<String> = std::env::args().skip(1).collect();
    if skink_end_to_end::run(&skink_end_to_end::all(), &filters) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
