use crate::run::choice::Wanted;
use clap::{Args, Parser, Subcommand, ValueEnum};
use skink_wire::IpCidr;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// Runs programs on a user-space TCP/IP stack, and shows what it does.
///
/// `skink run -- PROGRAM` needs no configuration: it makes a TAP interface, gives the program an
/// address of its own on it, and says which. `skink up` runs a stack in a process of its own, which
/// serves any number of programs started with `skink run --name NAME -- PROGRAM`. `skink ps`,
/// `skink stat`, `skink ss` and `skink capture` look into what runs.
#[derive(Parser, Debug)]
#[command(name = "skink", version, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Subcommand, Debug)]
pub enum Verb {
    Run(RunOptions),
    Up(UpOptions),
    Ps(PsOptions),
    Stat(StatOptions),
    Ss(SsOptions),
    Capture(CaptureOptions),
    Filter(FilterOptions),
    Upgrade(UpgradeOptions),
    Bench(crate::bench::BenchOptions),
    Fault(crate::fault::FaultOptions),
    #[command(hide = true)]
    Component(crate::component::ComponentOptions),
}

/// Which network a stack is on.
#[derive(Args, Debug, Clone, Default)]
pub struct NetworkOptions {
    /// The NIC: an INTERFACE, on which Skink chooses what is fastest; or xdp:INTERFACE, packet:INTERFACE or tap:NAME
    /// [default: a new TAP, tap:skink0]
    #[arg(long, value_name = "NIC")]
    pub nic: Option<Wanted>,
    /// An address for the stack that nobody else has, with its prefix length; can be repeated
    #[arg(long = "addr", value_name = "ADDRESS/PREFIX")]
    pub addresses: Vec<IpCidr>,
    /// Default route: a router on the network of an address; one for IPv4 and one for IPv6
    #[arg(long = "gateway", value_name = "ADDRESS")]
    pub gateways: Vec<IpAddr>,
    /// Don't ask the link first whether somebody else has the address
    #[arg(long)]
    pub no_probe: bool,
}

/// Run a program on a stack of its own, or on one that `skink up` runs
///
/// The program's TCP and UDP sockets are served by Skink; other sockets, and those that Skink has no
/// route for, go to the kernel (`skink ss` tells which and why). The command stays until the program
/// and everything it started have ended, and passes signals on.
///
/// With --name alone the program is served by the `skink up` of that name, and needs no privileges:
/// then this command becomes the program.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Exit codes: the program's own; 128 and the signal's number if a signal ended it; 125 if skink itself \
failed; 126 if the program can't be run under skink; 127 if it wasn't found.

Examples:
  skink run -- nginx -g 'daemon off;'
  skink run --nic eth0 --addr 192.0.2.7/24 --gateway 192.0.2.1 -- ./server
  skink run --name web --nic tap:skink5 --addr 10.9.0.2/24 -- python3 -m http.server
  skink run --name main -- curl http://10.0.0.9/      (after: skink up --name main ...)

Environment: SKINK_LOG sets how much is logged (error, warn, info, debug, trace), for skink and for the \
library in the program; SKINK_LIBRARY names libskink.so if it isn't beside skink.")]
pub struct RunOptions {
    #[command(flatten)]
    pub network: NetworkOptions,
    /// The `skink up` that serves the program; with --nic, --addr or --gateway, a name to find this
    /// by with `skink stat` and others [default: the program's]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Rules for the packet filter, in pf's language; `skink filter check` explains mistakes [default:
    /// everything passes]
    #[arg(long, value_name = "FILE")]
    pub rules: Option<PathBuf>,
    /// Run the program as this user (name or number); what needs privileges is done before
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

/// Run a stack in processes of its own, which serve many programs
///
/// Opens the NIC, starts the components' processes, confines them, and hands each program that was
/// started with `skink run --name NAME` its part of shared memory. Stays until SIGTERM or SIGINT, then
/// ends the components too. As a service of systemd it says when it is ready and that it lives.
#[derive(Args, Debug)]
#[command(after_long_help = "\
What the command line says goes before what the file says. Without either, a TAP interface is made and \
addresses are chosen, as by `skink run`. docs/cli.md has every key of the file:

  name = \"main\"
  nic = \"eth0\"
  addresses = [\"10.0.0.2/24\"]
  gateways = [\"10.0.0.1\"]
  rules = \"/etc/skink/rules.conf\"

Exit codes: 0 after SIGTERM or SIGINT; 125 if the stack can't be started.

Examples:
  skink up --nic eth0 --addr 10.0.0.2/24 --gateway 10.0.0.1
  skink up -c /etc/skink/skink.toml
  skink up --name web --rules web.conf --nic xdp:eth1 --addr 192.0.2.7/24")]
pub struct UpOptions {
    /// Read the configuration from this file
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Which components share a process: a preset, or a file with a / in its path or .toml at its end
    /// [default: single]
    #[arg(short, long, value_name = "TOPOLOGY")]
    pub topology: Option<String>,
    #[command(flatten)]
    pub network: NetworkOptions,
    /// Name by which programs and tools find this [default: skink]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Rules of the packet filter; see `skink filter check` [default: everything passes]
    #[arg(long, value_name = "FILE")]
    pub rules: Option<PathBuf>,
    /// Run the components as this user (name or number) [default: 65534, who owns nothing]
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// What a restarted `tcp` does with connections: `adopt`s them, or resets them for comparison
    /// (`stateless`) [default: adopt]
    #[arg(long, value_name = "HOW", hide_possible_values = true)]
    pub recovery: Option<Recovery>,
}

/// What a restarted `tcp` does with its predecessor's connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum Recovery {
    /// Takes them over.
    #[default]
    Adopt,
    /// Resets them, as systems do that keep no state of connections.
    Stateless,
}

impl FromStr for Recovery {
    type Err = String;

    fn from_str(word: &str) -> Result<Recovery, String> {
        let words = "`recovery` can be adopt or stateless";
        ValueEnum::from_str(word, false).map_err(|_| format!("\"{word}\": {words}"))
    }
}

/// Show the processes of stacks, and the programs that use them
#[derive(Args, Debug)]
#[command(after_long_help = "\
CPU is the share of one processor while it is looked on (--sample); JSON has the mean since the process \
was started, too. QUEUE is how many messages wait for the process. MEMORY of a program is what its \
sockets' buffers take.

Examples:
  skink ps
  skink ps main --json | jq '.instances[].processes[] | {name, pid, state}'")]
pub struct PsOptions {
    /// Name or process id, of `skink up`, of `skink run` or of a program [default: all]
    #[arg(value_name = "NAME|PID")]
    pub instance: Option<String>,
    /// How long to look how busy processes are; 0 to answer at once, without that
    #[arg(long, value_name = "SECONDS", default_value_t = 0.2)]
    pub sample: f64,
    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

/// Show counters, and why packets were dropped
#[derive(Args, Debug)]
#[command(after_long_help = "\
Counters of processes that have ended stay in the sums, so that totals never go backwards. Of a `skink up` it is \
told which share of the calls of programs that run were resolved in the program, without a message to syscall.

Examples:
  skink stat
  skink stat web --watch
  skink stat --json --all | jq '.instances[].counters'")]
pub struct StatOptions {
    /// Name or process id, of `skink run`, `skink up` or of a process in it [default: all]
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
    /// Name or process id, of `skink run`, `skink up` or of a process in it [default: all]
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
    /// Name or process id, of `skink run`, `skink up` or of a process in it [default: all]
    #[arg(short, long, value_name = "NAME|PID")]
    pub instance: Option<String>,
    /// Keep at most this many bytes of each frame
    #[arg(short, long, value_name = "BYTES", default_value_t = 65_600, value_parser = clap::value_parser!(u32).range(14..))]
    pub snap: u32,
    /// Which frames
    #[arg(trailing_var_arg = true, value_name = "FILTER")]
    pub filter: Vec<String>,
}

/// Work with rules of the packet filter
#[derive(Args, Debug)]
pub struct FilterOptions {
    #[command(subcommand)]
    pub verb: FilterVerb,
}

#[derive(Subcommand, Debug)]
pub enum FilterVerb {
    Check(FilterCheckOptions),
    Load(FilterLoadOptions),
    Show(FilterShowOptions),
}

/// Load a file of rules into a running stack
#[derive(Args, Debug)]
#[command(after_long_help = "\
The file is read to its end first: if there is a mistake in it, each is told with its line and column, and \
the rules that were in force stay. Connections that the old rules let pass go on. The rules last until \
`skink up` ends, also if the stack is restarted meanwhile; of a `skink run` all processes have them.

Examples:
  skink filter load web.conf
  skink filter load --name main - < web.conf")]
pub struct FilterLoadOptions {
    /// The file; standard input if it is -
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Name or process id of the `skink up` or `skink run` [default: the only one that runs]
    #[arg(long, value_name = "NAME|PID")]
    pub name: Option<String>,
}

/// Show the rules of a running stack, and what each has counted
#[derive(Args, Debug)]
pub struct FilterShowOptions {
    /// Name or process id of the `skink up` or `skink run`, or of a process of that [default: the only one that runs]
    #[arg(long, value_name = "NAME|PID")]
    pub name: Option<String>,
    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

/// Put another build in the place of a running stack's processes, without ending a connection
///
/// One process after the other: the other build is started beside the one that runs and says which it is;
/// then it takes over from its memory. If it ends, hangs, or can't take over a program within half a second, all
/// processes get back the build before. The supervisor is the last; it executes the other build, and keeps its process id. The
/// library in programs stays as it is until they are started anew.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Both builds must agree on the layout of shared memory and on messages; if they don't, nothing is replaced \
and the difference is told.

Exit codes: 0 if all processes are of the other build, 1 if none is.

Examples:
  skink upgrade                                  (to the build that this very command is of)
  skink upgrade tcp --binary ./target/release/skink
  skink upgrade --name main --json | jq '.processes[] | {name, away_ms}'")]
pub struct UpgradeOptions {
    /// Only the process that hosts this component, or is called so; or `supervisor` [default: all]
    #[arg(value_name = "COMPONENT")]
    pub component: Option<String>,
    /// The other build's `skink` [default: the one that this command is of]
    #[arg(long, value_name = "PATH")]
    pub binary: Option<PathBuf>,
    /// Name or process id of the `skink up` [default: the only one that runs]
    #[arg(long, value_name = "NAME|PID")]
    pub name: Option<String>,
    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

/// Read a file of rules and show what they are after expansion, or what is wrong with it
#[derive(Args, Debug)]
#[command(after_long_help = "\
The rules are a subset of those of pf.conf(5); docs/filter.md says which. Nothing is loaded.

Exit codes: 0 if the file is good, 1 if it isn't.

Examples:
  skink filter check web.conf
  echo 'pass in proto tcp to port { 80, 443 }' | skink filter check -
  skink filter check --json web.conf | jq '.errors[].message'")]
pub struct FilterCheckOptions {
    /// The file; standard input if it is -
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests;
