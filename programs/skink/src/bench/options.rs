//! What the verbs can be told.

use super::lab::Receive;
use super::plan;
use super::variant::{BackEnd, Place};
use super::web::Workload;
use clap::Args;
use std::path::PathBuf;

/// What all verbs that measure in private namespaces have in common.
#[derive(Args, Debug)]
pub struct Common {
    /// What carries Skink's frames: packet, xdp or tap; can be repeated [default: packet; for library: packet and
    /// xdp; for web and pps: all]
    #[arg(long = "nic", value_name = "BACK END", hide_possible_values = true)]
    pub nics: Vec<BackEnd>,
    /// Where Skink's components run: library, single, split, or a topology's file, not below /tmp; can be
    /// repeated [default: all three for bulk, rr and
    /// topologies; otherwise library]
    #[arg(long = "topology", value_name = "NAME|FILE", value_parser = Place::parse)]
    pub topologies: Vec<Place>,
    /// Undisturbed rounds to measure; at least 5 for figures to be quoted
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// How long each measurement takes, after a second of warming up
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub seconds: u32,
    /// Whose CPU receives what passes the cable: own, or the sender's, as on a veth as it comes
    #[arg(
        long,
        value_name = "SIDE",
        default_value = "own",
        hide_possible_values = true
    )]
    pub receive: Receive,
    /// Have the server's NAPI take the CPU from nobody (its kernel thread by SCHED_BATCH), on the kernel's variants too
    #[arg(long, conflicts_with = "receive")]
    pub napi_batch: bool,
    /// Write JSON, with every raw figure
    #[arg(long)]
    pub json: bool,
    /// Write the report, as text and as JSON, to files of the verb's name in this directory too
    #[arg(long, value_name = "DIRECTORY")]
    pub output: Option<PathBuf>,
}

/// Measure what a request costs a web server's side: on Skink, and on the kernel with and without GSO
///
/// Everything runs in private namespaces on this machine, the server's side on CPU 1 and the client's on
/// CPU 0. Variants take turns, and are compared within each round; a round in which other processes
/// used more than 5% of a CPU is discarded and repeated. So leave the machine alone meanwhile.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Needs root, two CPUs, nginx (or lighttpd) and wrk. With everything at its default it takes about a quarter of an hour.

Examples:
  sudo skink bench web
  sudo skink bench web --nic packet --workload 20B --workload 22KB
  sudo skink bench web --nic packet --topology library --topology split
  sudo skink bench web --nic packet --workload 20B --rate 20000      latency at an equal load
  sudo skink bench web --rounds 1 --seconds 1          a quick look
  sudo skink bench web --json | jq .ratios")]
pub struct WebOptions {
    #[command(flatten)]
    pub common: Common,
    /// Connections of the client
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4000))]
    pub connections: u32,
    /// What is asked for; can be repeated [default: all]
    #[arg(long = "workload", value_name = "NAME")]
    pub workloads: Vec<Workload>,
    /// Which program serves
    #[arg(long, value_name = "PROGRAM", default_value = "nginx")]
    pub server: super::web::WebServer,
    /// Worker processes of nginx, and queues of the cable; all on one CPU. Can be repeated: each is held against one worker
    /// [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub workers: Vec<u32>,
    /// Ask so many times in a second, at moments that don't depend on answers; a time begins when the request was due
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub rate: Option<u32>,
}

/// Which way the bytes go.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// The server sends
    Send,
    /// The server receives
    Receive,
}

/// Measure throughput of one connection, and the server's CPU time per GiB
///
/// On Skink in each topology and on the kernel, each with and without GSO; as `skink bench web` does. The
/// server and the client are skink's own, which do nothing but send and receive 128 KiB in each call.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Needs root and two CPUs. With everything at its default it takes about seven minutes.

Examples:
  sudo skink bench bulk
  sudo skink bench bulk --direction send --topology library --nic packet --nic xdp")]
pub struct BulkOptions {
    #[command(flatten)]
    pub common: Common,
    /// Whether the server sends or receives; can be repeated [default: both]
    #[arg(long = "direction", value_name = "DIRECTION")]
    pub directions: Vec<Direction>,
}

/// Measure round trips of one byte: latency, number, and the server's CPU time for each
///
/// On Skink in each topology and on the kernel, as `skink bench web` does. The server and the client are
/// skink's own; each connection has a thread on both sides and asks again when it has its answer.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Needs root and two CPUs. With everything at its default it takes about five minutes.

Examples:
  sudo skink bench rr
  sudo skink bench rr --connections 16 --rate 10000
  sudo skink bench rr --connections 1 --topology library --nic packet --nic xdp")]
pub struct RrOptions {
    #[command(flatten)]
    pub common: Common,
    /// Connections at a time; can be repeated [default: 1 and 16]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub connections: Vec<u32>,
    /// Ask so many times in a second, at moments that don't depend on answers; a time begins when the request was due
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub rate: Option<u32>,
}

/// Measure what a value from redis or memcached costs the server's side, 64 connections, one request at a time on each
///
/// As `skink bench web` does. The client is skink's own, and holds that each answer is the right one.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Needs root, two CPUs, redis-server and memcached (those of the workloads chosen). With everything at its default it
takes about five minutes.

Examples:
  sudo skink bench kv
  sudo skink bench kv --workload redis-get --rate 20000")]
pub struct KvOptions {
    #[command(flatten)]
    pub common: Common,
    /// Connections of the client
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4000))]
    pub connections: u32,
    /// What is asked for; can be repeated [default: all but the last]
    #[arg(long = "workload", value_name = "NAME")]
    pub workloads: Vec<super::kv::Value>,
    /// Ask so many times in a second, at moments that don't depend on answers; a time begins when the request was due
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub rate: Option<u32>,
}

/// Measure connections that are made, accepted and closed: their number, and the server's CPU time for each
///
/// As `skink bench web` does. The server is skink's own, which accepts and closes; its side, being first to close,
/// is the one that remembers the connection (TIME-WAIT), as with a web server that answers one request on each.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Needs root and two CPUs. With everything at its default it takes about two minutes.

Examples:
  sudo skink bench conn
  sudo skink bench conn --connections 1 --topology library --topology single")]
pub struct ConnOptions {
    #[command(flatten)]
    pub common: Common,
    /// Connections that are under way at a time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4000))]
    pub connections: u32,
}

/// Measure what idle connections cost: the CPU time of requests with and without them, and memory
///
/// A server of skink's own sends 64 bytes back on 64 connections, with no, 10,000 and 100,000 other connections
/// open on which nothing happens. Each is held against the same without them, and Skink against the kernel.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Needs root, two CPUs, and 2 GiB of memory. With everything at its default it takes about five minutes.

Examples:
  sudo skink bench idle
  sudo skink bench idle --idle 1000 --topology library --topology single")]
pub struct IdleOptions {
    #[command(flatten)]
    pub common: Common,
    /// Connections on which requests are made
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4000))]
    pub connections: u32,
    /// How many idle ones; can be repeated [default: 10000 and 100000]
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=super::peer::MOST_HELD as i64))]
    pub idle: Vec<u32>,
}

/// Measure a frame for each frame: the NIC's back ends without a stack, and UDP on Skink and on the kernel
///
/// What the back ends cost is the least that a stack on them can cost. Once with so many frames under way that the
/// server always has some, and once at a fixed rate.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Needs root and two CPUs. With everything at its default it takes about ten minutes.

Examples:
  sudo skink bench pps
  sudo skink bench pps --nic xdp --bytes 64 --rate 100000")]
pub struct PpsOptions {
    #[command(flatten)]
    pub common: Common,
    /// Size of frames, from the Ethernet header on; can be repeated [default: 64 and 1514]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(64..=1514))]
    pub bytes: Vec<u16>,
    /// Frames in a second where the rate is fixed
    #[arg(long, value_name = "N", default_value_t = 150_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub rate: u32,
}

/// Measure what a program under `skink run` pays for calls that aren't about the network
///
/// A program that has a connection works on files, pipes and epoll, on Skink and without.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Needs root and two CPUs. With everything at its default it takes about five minutes.

Examples:
  sudo skink bench local
  sudo skink bench local --operation pipe --rounds 20 --seconds 1")]
pub struct LocalOptions {
    #[command(flatten)]
    pub common: Common,
    /// What the program does; can be repeated [default: all]
    #[arg(long = "operation", value_name = "NAME")]
    pub operations: Vec<super::peer::Operation>,
}

/// Measure the library beside the kernel, and beside the floor: what its back end and the program cost by themselves
///
/// nginx, redis, memcached, bulk, connections and round trips on Skink in the program and on the kernel, each with and
/// without GSO, and its back ends without a stack, in one run. The floor of a workload is the program's own time
/// and that of the back end for as many frames.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Needs root, two CPUs, nginx, wrk, redis-server and memcached (those of the workloads chosen). With everything at its default it
takes about 40 minutes.

Examples:
  sudo skink bench library
  sudo skink bench library --nic xdp --output bench/results/0.2.0
  sudo skink bench library --workload 20B --workload 64B --workload 1514B
  sudo skink bench library --rounds 1 --seconds 1          a quick look")]
pub struct LibraryOptions {
    #[command(flatten)]
    pub common: Common,
    /// A workload: 20B, 20B-close, 22KB, redis-get, redis-set, memcached-get, bulk-send, bulk-receive, conn, rr-1, 64B-1, 64B or 1514B;
    /// can be repeated [default: all]. Without 64B and 1514B there is no floor
    #[arg(long = "workload", value_name = "NAME", value_parser = |word: &str| plan::named(&plan::LIBRARY, word))]
    pub workloads: Vec<super::task::Task>,
}

/// Measure every topology and the kernel, each with and without GSO: bulk, web, and round trips, in one run
///
/// What NewtOS's table 2.2 shows of that system, for this machine: where components run, what that costs,
/// and what large segments are worth. Ratios come first. It also tells, for each workload and variant, which
/// process used how much CPU time and how often it gave up the CPU.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Needs root, two CPUs, nginx and wrk. With everything at its default it takes about 25 minutes.

Examples:
  sudo skink bench topologies
  sudo skink bench topologies --output bench/results/0.2.0
  sudo skink bench topologies --workload bulk-send --rounds 1 --seconds 1          a quick look")]
pub struct TopologiesOptions {
    #[command(flatten)]
    pub common: Common,
    /// Connections of the web workloads' client
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4000))]
    pub connections: u32,
    /// A workload: bulk-send, bulk-receive, 20B, 22KB, rr-1 or rr-16; can be repeated [default: all]
    #[arg(long = "workload", value_name = "NAME", value_parser = |word: &str| plan::named(&plan::TOPOLOGIES, word))]
    pub workloads: Vec<super::task::Task>,
}

/// Measure what rules of the packet filter cost established flows
///
/// The same workloads with no rules, and with many rules of which one keeps state for the flow: bulk in both
/// directions, 20 bytes from nginx on connections that last, and round trips; as `skink bench web` does.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Needs root, two CPUs, nginx and wrk. With everything at its default it takes about three minutes.

Examples:
  sudo skink bench filter
  sudo skink bench filter --filter-rules 10 --filter-rules 65536 --topology library --topology split")]
pub struct FilterOptions {
    #[command(flatten)]
    pub common: Common,
    /// Connections of the web workload's client
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4000))]
    pub connections: u32,
    /// How many rules; can be repeated [default: 1024]
    #[arg(long = "filter-rules", value_name = "N",
          value_parser = clap::value_parser!(u32).range(super::rules::FEWEST as i64..=super::rules::MOST as i64))]
    pub rules: Vec<u32>,
}
