//! What a verb measures: which workloads, on which variants.

use super::goals;
use super::kv::Value;
use super::lab::Receive;
use super::options::{
    BulkOptions, Common, ConnOptions, Direction, FilterOptions, IdleOptions, KvOptions,
    LibraryOptions, LocalOptions, PpsOptions, RrOptions, TopologiesOptions, WebOptions,
};
use super::peer::Operation;
use super::task::{Pace, Task};
use super::variant::{BackEnd, Place, Variant};
use super::web::{WebServer, Workload};
use std::collections::BTreeSet;

/// Frames of the least size, and of the largest that fit: what a back end costs by itself.
pub const SMALL_PAIRS: Task = Task::Pairs(64, Pace::Most);
pub const LARGE_PAIRS: Task = Task::Pairs(1514, Pace::Most);

/// One frame there and back at a time: what a round trip takes without a stack.
const PAIR: Task = Task::Pairs(64, Pace::InTurn);

/// What is to be measured.
#[derive(Debug)]
pub struct Plan {
    /// The verb; the files of the report are called so.
    pub verb: &'static str,
    pub tasks: Vec<Task>,
    pub variants: Vec<Variant>,
    pub rounds: u32,
    pub seconds: u32,
    pub receive: Receive,
    /// The thread of the server's NAPI is scheduled by `SCHED_BATCH`.
    pub napi_batch: bool,
    /// The client's, at a time, where the workload doesn't say.
    pub connections: u32,
    /// Requests that are made in a second, whatever the answers; otherwise each connection asks when it has its answer.
    pub rate: Option<u32>,
}

/// The client's connections, if nothing else is said.
const CONNECTIONS: u32 = 64;
/// Rules of the filter, if nothing else is said.
const RULES: u32 = 1024;

impl Common {
    /// Skink in the chosen places on the chosen back ends.
    fn variants(&self, places: &[Place], nics: &[BackEnd], both: bool) -> Vec<Variant> {
        let (places, nics) = (or(&self.topologies, places), or(&self.nics, nics));
        Variant::of_skink(&places, &nics, both)
    }

    /// The same beside the kernel's; `both`: with and without offloads.
    fn beside_kernel(&self, places: &[Place], nics: &[BackEnd], both: bool) -> Vec<Variant> {
        let kernels = Variant::kernels().into_iter();
        kernels.chain(self.variants(places, nics, both)).collect()
    }

    /// The library beside the kernel with all offloads, where these make no difference.
    fn beside_best_kernel(&self, nics: &[BackEnd]) -> Vec<Variant> {
        let [kernel, _] = Variant::kernels();
        let skink = self.variants(&library(), nics, false);
        std::iter::once(kernel).chain(skink).collect()
    }
}

fn or<T: Clone>(chosen: &[T], otherwise: &[T]) -> Vec<T> {
    match chosen {
        [] => otherwise,
        chosen => chosen,
    }
    .to_vec()
}

fn library() -> Vec<Place> {
    let all = Place::all().into_iter();
    all.filter(|place| place.in_program).collect()
}

/// What most verbs measure, if nothing else is said.
const PACKET: &[BackEnd] = &[BackEnd::Packet];

impl WebOptions {
    pub fn plan(&self) -> Plan {
        let plain = self.common.beside_kernel(&library(), &BackEnd::ALL, true);
        let variants = plain.into_iter().flat_map(|plain| {
            let numbers = or(&self.workers, &[1]).into_iter();
            numbers.map(move |workers| Variant {
                workers,
                ..plain.clone()
            })
        });
        let all: &[Workload] = match self.rate {
            None => &Workload::ALL,
            Some(_) => &[Workload::Small, Workload::Page],
        };
        let workloads = or(&self.workloads, all);
        let tasks = workloads.into_iter();
        let tasks = tasks.map(|one| Task::Web(one, self.server)).collect();
        let plan = Plan::new("web", &self.common, tasks, variants.collect());
        plan.connections(self.connections).rate(self.rate)
    }
}

impl BulkOptions {
    pub fn plan(&self) -> Plan {
        let variants = self.common.beside_kernel(&Place::all(), PACKET, true);
        let directions = or(&self.directions, &[Direction::Send, Direction::Receive]);
        let task = |direction| match direction {
            Direction::Send => Task::BulkSend,
            Direction::Receive => Task::BulkReceive,
        };
        let tasks = directions.into_iter().map(task).collect();
        Plan::new("bulk", &self.common, tasks, variants)
    }
}

impl RrOptions {
    pub fn plan(&self) -> Plan {
        let variants = self.common.beside_kernel(&Place::all(), PACKET, true);
        let connections = or(&self.connections, &[1, 16]);
        let tasks = connections.into_iter().map(Task::RoundTrips).collect();
        Plan::new("rr", &self.common, tasks, variants).rate(self.rate)
    }
}

impl KvOptions {
    pub fn plan(&self) -> Plan {
        let variants = self.common.beside_kernel(&library(), PACKET, true);
        let tasks = or(&self.workloads, &Value::ALL);
        let tasks = tasks.into_iter().map(Task::Value).collect();
        let plan = Plan::new("kv", &self.common, tasks, variants);
        plan.connections(self.connections).rate(self.rate)
    }
}

impl IdleOptions {
    pub fn plan(&self) -> Plan {
        let levels = or(&self.idle, &[10_000, 100_000]);
        let plain = self.common.beside_best_kernel(PACKET).into_iter();
        let variants = plain.flat_map(|plain| {
            let levels = std::iter::once(0).chain(levels.clone());
            levels.map(move |idle| Variant {
                idle,
                ..plain.clone()
            })
        });
        let plan = Plan::new("idle", &self.common, vec![Task::Blocks], variants.collect());
        plan.connections(self.connections)
    }
}

impl PpsOptions {
    pub fn plan(&self) -> Plan {
        let nics = or(&self.common.nics, &BackEnd::ALL);
        let mut variants = self.common.beside_best_kernel(&nics);
        // Behind the kernel.
        variants.splice(1..1, Variant::raw(&nics, false));
        let sizes = or(&self.bytes, &[64, 1514]);
        let pairs = |pace| sizes.iter().map(move |bytes| Task::Pairs(*bytes, pace));
        let paces = [Pace::Most, Pace::Rate(self.rate), Pace::InTurn];
        let tasks = paces.into_iter().flat_map(pairs).collect();
        Plan::new("pps", &self.common, tasks, variants)
    }
}

impl LocalOptions {
    pub fn plan(&self) -> Plan {
        let variants = self.common.beside_best_kernel(PACKET);
        let tasks = or(&self.operations, &Operation::ALL);
        let tasks = tasks.into_iter().map(Task::Local).collect();
        Plan::new("local", &self.common, tasks, variants)
    }
}

impl ConnOptions {
    pub fn plan(&self) -> Plan {
        let variants = self.common.beside_kernel(&library(), PACKET, true);
        let plan = Plan::new("conn", &self.common, vec![Task::Connect], variants);
        plan.connections(self.connections)
    }
}

/// The workloads of `skink bench topologies`.
pub const TOPOLOGIES: [Task; 6] = [
    Task::BulkSend,
    Task::BulkReceive,
    Task::Web(Workload::Small, WebServer::Nginx),
    Task::Web(Workload::Page, WebServer::Nginx),
    Task::RoundTrips(1),
    Task::RoundTrips(16),
];

/// The workloads of `skink bench library`.
pub const LIBRARY: [Task; 13] = [
    Task::Web(Workload::Small, WebServer::Nginx),
    Task::Web(Workload::SmallClose, WebServer::Nginx),
    Task::Web(Workload::Page, WebServer::Nginx),
    Task::Value(Value::RedisGet),
    Task::Value(Value::RedisSet),
    Task::Value(Value::MemcachedGet),
    Task::BulkSend,
    Task::BulkReceive,
    Task::Connect,
    Task::RoundTrips(1),
    PAIR,
    SMALL_PAIRS,
    LARGE_PAIRS,
];

/// Reads the name of one of `tasks`.
pub fn named(tasks: &[Task], word: &str) -> Result<Task, String> {
    let found = tasks.iter().find(|task| task.to_string() == word);
    found.copied().ok_or_else(|| {
        let names: Vec<String> = tasks.iter().map(ToString::to_string).collect();
        format!("the workloads are {}", names.join(", "))
    })
}

impl LibraryOptions {
    pub fn plan(&self) -> Plan {
        let nics = or(&self.common.nics, &[BackEnd::Packet, BackEnd::Xdp]);
        let mut variants = self.common.beside_kernel(&library(), &nics, true);
        variants.extend(Variant::raw(&nics, true));
        let tasks = or(&self.workloads, &LIBRARY);
        variants.retain(|variant| tasks.iter().any(|task| task.runs_on(variant)));
        Plan::new(goals::VERB, &self.common, tasks, variants)
    }
}

impl TopologiesOptions {
    pub fn plan(&self) -> Plan {
        let variants = self.common.beside_kernel(&Place::all(), PACKET, true);
        let tasks = or(&self.workloads, &TOPOLOGIES);
        let plan = Plan::new("topologies", &self.common, tasks, variants);
        plan.connections(self.connections)
    }
}

impl FilterOptions {
    pub fn plan(&self) -> Plan {
        let mut variants = Vec::new();
        for plain in self.common.variants(&library(), PACKET, false) {
            variants.push(plain.clone());
            variants.extend(or(&self.rules, &[RULES]).into_iter().map(|rules| Variant {
                rules,
                ..plain.clone()
            }));
        }
        let tasks = vec![
            Task::BulkSend,
            Task::BulkReceive,
            Task::Web(Workload::Small, WebServer::Nginx),
            Task::RoundTrips(1),
        ];
        let plan = Plan::new("filter", &self.common, tasks, variants);
        plan.connections(self.connections)
    }
}

impl Plan {
    fn new(verb: &'static str, common: &Common, tasks: Vec<Task>, variants: Vec<Variant>) -> Plan {
        Plan {
            verb,
            tasks,
            variants,
            rounds: common.rounds,
            seconds: common.seconds,
            receive: common.receive,
            napi_batch: common.napi_batch,
            connections: CONNECTIONS,
            rate: None,
        }
    }

    fn connections(self, connections: u32) -> Plan {
        Plan {
            connections,
            ..self
        }
    }

    fn rate(self, rate: Option<u32>) -> Plan {
        Plan { rate, ..self }
    }

    /// Why it can't be measured at all.
    pub fn mistake(&self) -> Option<String> {
        let others = |task: &&Task| !matches!(task, Task::Web(_, WebServer::Nginx));
        if self.variants.iter().any(|variant| variant.workers > 1)
            && let Some(task) = self.tasks.iter().find(others)
        {
            return Some(format!(
                "{task} has a server of one process: leave out --workers, or take nginx"
            ));
        }
        let close = |task: &&Task| matches!(task, Task::Web(workload, _) if workload.close());
        let close = self.rate.and(self.tasks.iter().find(close))?;
        Some(format!(
            "{close} makes a connection for each request, which can't be done at a rate: choose others with \
             --workload, or leave out --rate"
        ))
    }

    /// Programs without which it can't be measured.
    pub fn programs(&self) -> Vec<&'static str> {
        let tasks = self.tasks.iter().flat_map(|task| task.programs(self.rate));
        let needed = ["ip", "unshare", "taskset"].iter();
        let all: BTreeSet<&str> = needed.chain(tasks).copied().collect();
        all.into_iter().collect()
    }
}
