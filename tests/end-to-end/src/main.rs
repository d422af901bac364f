//! Runs the end-to-end suite. See the library's documentation.

use std::process::ExitCode;

fn main() -> ExitCode {
    let needed = [
        "ip",
        "unshare",
        "nginx",
        "redis-server",
        "redis-benchmark",
        "python3",
        "curl",
        "wrk",
    ];
    let missing = skink_testbed::missing_programs(&needed);
    if !missing.is_empty() {
        eprintln!(
            "missing programs: {}; `make setup` installs them",
            missing.join(", ")
        );
        return ExitCode::FAILURE;
    }
    if let Err(error) = skink_testbed::enter() {
        eprintln!("can't make private namespaces: {error}");
        return ExitCode::FAILURE;
    }
    let filters: Vec<String> = std::env::args().skip(1).collect();
    if skink_end_to_end::run(&skink_end_to_end::all(), &filters) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
