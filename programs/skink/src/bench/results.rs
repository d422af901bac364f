//! What a benchmark finds: every raw figure, as it is written to JSON.

use serde::{Deserialize, Serialize};

/// All figures of one run.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub struct Results {
    pub machine: Machine,
    pub settings: Settings,
    /// What ran on which processor, in sentences.
    pub pinned: Vec<String>,
    /// What should have been pinned and wasn't.
    pub not_pinned: Vec<String>,
    /// Which variant is held against which.
    pub comparisons: Vec<Comparison>,
    pub workloads: Vec<WorkloadResults>,
}

/// Two variants of which the ratio is made.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    pub variant: String,
    pub base: String,
    /// What the base is to the variant, such as "the kernel, GSO on".
    pub against: String,
    /// The base is the kernel, and sends segments that are as large.
    pub like_for_like: bool,
}

/// What is counted as work.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    #[default]
    #[serde(rename = "request")]
    Request,
    #[serde(rename = "round trip")]
    RoundTrip,
    /// Made, accepted, and ended by both sides.
    #[serde(rename = "connection")]
    Connection,
    /// A frame there and one back.
    #[serde(rename = "pair")]
    Pair,
    /// Something that a program does by itself.
    #[serde(rename = "operation")]
    Operation,
    /// 2^30 bytes that arrived.
    #[serde(rename = "GiB")]
    Gibibyte,
}

impl Unit {
    /// What one of it is called.
    pub fn word(self) -> &'static str {
        match self {
            Unit::Request => "request",
            Unit::RoundTrip => "round trip",
            Unit::Connection => "connection",
            Unit::Pair => "pair",
            Unit::Operation => "operation",
            Unit::Gibibyte => "GiB",
        }
    }
}

/// What the figures hold for.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub struct Machine {
    pub kernel: String,
    pub processor: String,
    pub processors: usize,
    pub skink: String,
    /// `release`, or `debug`, whose figures mean nothing.
    pub build: String,
    /// Names and versions of the other programs that were used.
    pub programs: Vec<String>,
    /// Seconds since 1970.
    pub unix_time: u64,
}

/// How it was measured.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub struct Settings {
    /// Of `skink bench`; empty in results that are older than this.
    #[serde(default)]
    pub verb: String,
    pub rounds: u32,
    pub seconds: u32,
    pub warm_up_seconds: u32,
    pub connections: u32,
    pub mtu: u32,
    pub server_processor: usize,
    pub client_processor: usize,
    /// A round is discarded above this part of a processor's time.
    pub disturbance_limit: f64,
}

/// One workload on every variant.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub struct WorkloadResults {
    pub name: String,
    pub unit: Unit,
    /// Requests that were made in a second, whatever the answers; `None`: each when the one before was answered.
    #[serde(default)]
    pub rate: Option<u32>,
    pub calibration: Vec<Calibration>,
    pub rounds: Vec<Round>,
    pub failures: Vec<VariantFailure>,
}

/// Which settings of nginx were tried on a variant, and which one counts.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Calibration {
    pub variant: String,
    /// Settings, and server processor time per request in microseconds.
    pub tried: Vec<(String, f64)>,
    pub chosen: String,
    /// Others used too much of the processors while it was found out.
    pub disturbed: bool,
}

/// One measurement of each variant, one straight after the other.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub struct Round {
    /// Why it doesn't count, if it doesn't.
    pub discarded: Option<String>,
    pub measurements: Vec<Measurement>,
    /// What answered nothing, in a round that is discarded, and all that can be said of it.
    #[serde(default)]
    pub silent: Vec<VariantFailure>,
}

impl Round {
    /// What was measured of a variant.
    pub fn of(&self, variant: &str) -> Option<&Measurement> {
        self.measurements.iter().find(|one| one.variant == variant)
    }
}

/// Why a variant has no figures, or not all.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct VariantFailure {
    pub variant: String,
    pub why: String,
}

/// One run of a client against one server.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub struct Measurement {
    pub variant: String,
    /// nginx's settings.
    pub tuning: String,
    /// The work, in the workload's unit.
    pub units: f64,
    pub units_per_second: f64,
    /// Time in which the server's processor wasn't idle, divided by units.
    pub server_cpu_us_per_unit: f64,
    /// The same as the clock's tick finds it busy, which can be wrong by half: it falls on what begins with the tick.
    pub server_ticks_us_per_unit: f64,
    /// Busy part of the server's and of the client's processor.
    pub server_busy: f64,
    pub client_busy: f64,
    /// Not for bulk.
    pub latency: Option<Latency>,
    pub socket_errors: u64,
    pub bad_responses: u64,
    /// What each process of the server's side used.
    pub processes: Vec<ProcessCosts>,
    pub disturbance: Disturbance,
    /// Where idle connections are kept.
    #[serde(default)]
    pub memory: Option<Memory>,
    /// What passed the server's end of the cable; `None` in results that are older than this.
    #[serde(default)]
    pub traffic: Option<Traffic>,
}

/// Frames and bytes at the server's end of the cable, of which a segment that passes uncut is one.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    pub frames_in: u64,
    pub bytes_in: u64,
    pub frames_out: u64,
    pub bytes_out: u64,
}

/// Memory of the server's side, in bytes, when all connections are there.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq)]
pub struct Memory {
    /// How many connections are idle.
    pub connections: u32,
    /// What the server and all processes of the stack have to themselves: anonymous memory, and their part of
    /// files.
    pub processes_bytes: u64,
    /// By how much the machine's shared memory grew since before the server was started, mapped or not.
    pub shared_bytes: u64,
    /// By how much the kernel's own objects grew, the client's side among them.
    pub slab_bytes: u64,
}

/// What processes of one name on the server's side used during a measurement, their threads included.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct ProcessCosts {
    /// `program`, `supervisor`, or the name that the topology gives.
    pub name: String,
    pub user_seconds: f64,
    pub system_seconds: f64,
    /// Context switches: it waited for something.
    pub voluntary_switches: u64,
    /// Context switches: another one's turn came.
    pub involuntary_switches: u64,
}

/// What others did to a measurement, in parts of one processor's time.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default)]
pub struct Disturbance {
    /// Processor time of processes that aren't the benchmark's, on whatever processor.
    pub other_processes: f64,
    /// Taken by the hypervisor from the server's and from the client's processor.
    pub stolen_from_server: f64,
    pub stolen_from_client: f64,
}

/// Percentiles of the time from a request to its complete answer, in microseconds. Under a closed loop a
/// request is made when the one before is answered; at a rate its time begins when it was due.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq)]
pub struct Latency {
    pub p50_us: f64,
    pub p75_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    /// wrk doesn't tell.
    pub p999_us: Option<f64>,
    /// The 99th percentile of what was due in each 50 ms, and of those the median: a pause of the machine makes all that wait
    /// meanwhile slow, which is one request in a hundred soon, but it reaches few such moments. At a rate only.
    #[serde(default)]
    pub p99_moments_us: Option<f64>,
}
