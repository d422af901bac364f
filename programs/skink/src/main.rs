//! `skink`: runs programs on a TCP/IP stack of their own, and shows what that does.
//!
//! **Purpose.** `skink run` opens the NIC, starts the program with the socket library preloaded and
//! brokers a stack to each of its processes; `stat`, `ss` and `capture` are its tools, which read the
//! memory that those processes registered.
//!
//! **Place on the data path.** None.
//!
//! **What survives a restart.** Nothing: there is nothing to survive.
//!
//! **What it leaves out.** Privileged configuration of the kernel, except for the one TAP interface
//! that `run` makes when it is told of no NIC.
mod bench;
mod capture;
mod cli;
mod failure;
mod run;
mod ss;
mod stat;
mod tools;

use clap::Parser;
use cli::{Cli, Verb};
use failure::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            let run = std::env::args_os().nth(1).is_some_and(|verb| verb == "run");
            // As env(1) and timeout(1) do: 125 is the wrapper's own failure, so that any other
            // number is the program's.
            return ExitCode::from(match error.use_stderr() {
                true if run => failure::OWN,
                true => 2,
                false => 0,
            });
        }
    };
    start_log();
    let done = match cli.verb {
        Verb::Run(options) => run::run(&options),
        Verb::Stat(options) => stat::stat(&options).map(|()| 0),
        Verb::Ss(options) => ss::ss(&options).map(|()| 0),
        Verb::Capture(options) => capture::capture(&options).map(|()| 0),
        Verb::Bench(options) => bench::bench(&options).map(|()| 0),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(Failure { message, code }) => {
            if !message.is_empty() {
                eprintln!("skink: {message}");
            }
            ExitCode::from(code)
        }
    }
}

/// Logs to standard error what `SKINK_LOG` asks for, such as `debug`; warnings without it.
fn start_log() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("SKINK_LOG");
    let filter = filter.unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .try_init();
}
