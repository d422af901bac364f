use clap::{Args, Parser, Subcommand};
use skink_nic::NicSpec;
use skink_wire::IpCidr;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

/// Runs programs on a user-space TCP/IP stack of their own, and shows what it does.
///
/// `skink run -- PROGRAM` needs no configuration: it makes a TAP interface, gives the program an
/// address of its own on it, and says which. `skink stat`, `skink ss` and `skink capture` then look
/// into the running stack.
#[derive(Parser, Debug)]
#[command(name = "skink", version, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Subcommand, Debug)]
pub enum Verb {
    Run(RunOptions),
    Stat(StatOptions),
    Ss(SsOptions),
    Capture(CaptureOptions),
    Bench(crate::bench::BenchOptions),
}

/// Run a program on a stack of its own
///
/// The program's TCP and UDP sockets are served by Skink; other sockets, and those that Skink has no
/// route for, go to the kernel (`skink ss` tells which and why). The command stays until the program
/// and everything it started have ended, and passes signals on.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Exit codes: the program's own; 128 and the signal's number if a signal ended it; 125 if skink itself \
failed; 126 if the program can't be run under skink; 127 if it wasn't found.

Examples:
  skink run -- nginx -g 'daemon off;'
  skink run --nic packet:eth0 --addr 192.0.2.7/24 --gateway 192.0.2.1 -- ./server
  skink run --name web --nic tap:skink5 --addr 10.9.0.2/24 -- python3 -m http.server

Environment: SKINK_LOG sets how much is logged (error, warn, info, debug, trace), for skink and for the \
library in the program; SKINK_LIBRARY names libskink.so if it isn't beside skink.")]
pub struct RunOptions {
    /// The NIC: xdp:INTERFACE, packet:INTERFACE or tap:NAME [default: a new TAP, tap:skink0]
    #[arg(long, value_name = "NIC")]
    pub nic: Option<NicSpec>,
    /// An address for the program that nobody else has, with its prefix length; can be repeated
    #[arg(long = "addr", value_name = "ADDRESS/PREFIX")]
    pub addresses: Vec<IpCidr>,
    /// Default route: a router on the network of an address; one for IPv4 and one for IPv6
    #[arg(long = "gateway", value_name = "ADDRESS")]
    pub gateways: Vec<IpAddr>,
    /// Name to find this by with `skink stat` and others [default: the program's]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Run the program as this user (name or number); the NIC is opened before
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// Don't ask the link first whether somebody else has the address
    #[arg(long)]
    pub no_probe: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

/// Show counters, and why packets were dropped
#[derive(Args, Debug)]
#[command(after_long_help = "\
Counters of processes that have ended stay in the sums, so that totals never go backwards.

Examples:
  skink stat
  skink stat web --watch
  skink stat --json --all | jq '.instances[].counters'")]
pub struct StatOptions {
    /// Name or process id, of `skink run` or of a process in it [default: all]
    #[arg(value_name = "NAME|PID")]
    pub instance: Option<String>,
    /// Write JSON
    #[arg(long)]
    pub json: bool,
    /// Show counters that are zero too
    #[arg(long)]
    pub all: bool,
    /// Show what has changed, every SECONDS
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    pub watch: Option<f64>,
}

/// Show sockets, and which went to the kernel and why
#[derive(Args, Debug)]
#[command(after_long_help = "\
Sockets that Skink left to the kernel come last, with the reason. Recv-Q and Send-Q are in bytes.

Examples:
  skink ss -a
  skink ss -l web
  skink ss --json | jq '.sockets[] | select(.state == \"ESTABLISHED\")'")]
pub struct SsOptions {
    /// Name or process id, of `skink run` or of a process in it [default: all]
    #[arg(value_name = "NAME|PID")]
    pub instance: Option<String>,
    /// Write JSON
    #[arg(long)]
    pub json: bool,
    /// Show listening sockets only
    #[arg(short, long)]
    pub listening: bool,
    /// Show listening sockets and all others
    #[arg(short, long)]
    pub all: bool,
}

/// Show or record the frames that a stack sends and receives
#[derive(Args, Debug)]
#[command(after_long_help = "\
FILTER is a subset of tcpdump's: host A, net A/P, port N, each after src or dst if wanted; tcp, udp, \
icmp, icmp6, arp, ip, ip6; joined by and, or, not and parentheses.

Sent frames are seen as the stack hands them to the NIC: up to 64 KiB, before they are cut to size \
and before the NIC completes their checksums. If the tool can't keep up, frames are dropped from the \
capture (never from the network), and their number is told at the end.

Examples:
  skink capture tcp port 80 and not host 10.77.0.1
  skink capture -w web.pcapng --duration 10 -i web
  skink capture -w - | tcpdump -nr -")]
pub struct CaptureOptions {
    /// Write pcapng to FILE, or to standard output if it is -
    #[arg(short, long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Write JSON, one object a line
    #[arg(long, conflicts_with = "write")]
    pub json: bool,
    /// Stop after this many frames
    #[arg(short, long, value_name = "N")]
    pub count: Option<u64>,
    /// Stop after this many seconds
    #[arg(long, value_name = "SECONDS")]
    pub duration: Option<f64>,
    /// Name or process id, of `skink run` or of a process in it [default: all]
    #[arg(short, long, value_name = "NAME|PID")]
    pub instance: Option<String>,
    /// Keep at most this many bytes of each frame
    #[arg(short, long, value_name = "BYTES", default_value_t = 65_600, value_parser = clap::value_parser!(u32).range(14..))]
    pub snap: u32,
    /// Which frames
    #[arg(trailing_var_arg = true, value_name = "FILTER")]
    pub filter: Vec<String>,
}

#[cfg(test)]
mod tests;
