//! `skink`: runs programs on a TCP/IP stack of their own, and shows what that does.
//!
//! **Purpose.** `skink run` opens the NIC, starts the program with the socket library preloaded and
//! brokers a stack to each of its processes. `skink up` is the supervisor of a stack in a process of its
//! own (`skink component`), which serves programs of `skink run --name`. `ps`, `stat`, `ss`, `capture`,
//! `filter` and `upgrade` are their tools, which read the memory that was registered or made, or ask.
//!
//! **Place on the data path.** None.
//!
//! **What survives a restart.** Of `skink run` nothing: there is nothing to survive. The supervisor keeps
//! the descriptors of all shared memory while a component is restarted.
//!
//! **What it leaves out.** Privileged configuration of the kernel, except for the one TAP interface
//! that `run` makes when it is told of no NIC.
mod bench;
mod capture;
mod cli;
mod component;
mod failure;
mod fault;
mod filter;
mod interfaces;
mod memory_limit;
mod ps;
mod run;
mod ss;
mod stat;
mod stderr;
mod tools;
mod up;
mod upgrade;

use clap::Parser;
use cli::{Cli, Verb};
use failure::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            let wraps = std::env::args_os()
                .nth(1)
                .is_some_and(|verb| verb == "run" || verb == "up");
            // As env(1) and timeout(1) do: 125 is the wrapper's own failure, so that any other
            // number is the program's.
            return ExitCode::from(match error.use_stderr() {
                true if wraps => failure::OWN,
                true => 2,
                false => 0,
            });
        }
    };
    start_log();
    let done = match cli.verb {
        Verb::Run(options) => run::run(&options),
        Verb::Up(options) => up::up(&options),
        Verb::Component(options) => {
            // Executed by way of /proc, it would be called "exe".
            let _ = rustix::thread::set_name(c"skink-component");
            component::component(&options).map(|()| 0)
        }
        Verb::Ps(options) => ps::ps(&options).map(|()| 0),
        Verb::Stat(options) => stat::stat(&options).map(|()| 0),
        Verb::Ss(options) => ss::ss(&options).map(|()| 0),
        Verb::Capture(options) => capture::capture(&options).map(|()| 0),
        Verb::Filter(options) => filter::filter(&options.verb).map(|()| 0),
        Verb::Upgrade(options) => upgrade::upgrade(&options).map(|()| 0),
        Verb::Bench(options) => bench::bench(&options).map(|()| 0),
        Verb::Fault(options) => fault::fault(&options).map(|()| 0),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(Failure { message, code }) => {
            if !message.is_empty() {
                stderr::tell(format_args!("{message}"));
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
        .with_writer(|| stderr::AtOnce)
        .with_target(false)
        .try_init();
}
