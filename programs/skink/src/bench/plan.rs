//! What a verb measures: which workloads, on which variants.

use super::lab::Receive;
use super::options::{
    BulkOptions, Common, Direction, FilterOptions, RrOptions, TopologiesOptions, WebOptions,
};
use super::task::Task;
use super::variant::{BackEnd, Place, Variant};
use super::web::Workload;

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
    /// Of wrk.
    pub connections: u32,
}

/// Connections of wrk where it doesn't run.
const NO_WEB: u32 = 64;
/// Rules of the filter, if nothing else is said.
const RULES: u32 = 1024;

impl Common {
    fn nics(&self, otherwise: &[BackEnd]) -> Vec<BackEnd> {
        or(&self.nics, otherwise)
    }

    fn places(&self, otherwise: &[Place]) -> Vec<Place> {
        or(&self.topologies, otherwise)
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

impl WebOptions {
    pub fn plan(&self) -> Plan {
        let (places, nics) = (
            self.common.places(&library()),
            self.common.nics(&BackEnd::ALL),
        );
        let mut variants = Variant::kernels().to_vec();
        variants.extend(Variant::of_skink(&places, &nics, false));
        let workloads = or(&self.workloads, &Workload::ALL);
        let tasks = workloads.into_iter().map(Task::Web).collect();
        plan("web", &self.common, tasks, variants, self.connections)
    }
}

impl BulkOptions {
    pub fn plan(&self) -> Plan {
        let (places, nics) = (
            self.common.places(&Place::all()),
            self.common.nics(&[BackEnd::Packet]),
        );
        let mut variants = Variant::kernels().to_vec();
        variants.extend(Variant::of_skink(&places, &nics, true));
        let directions = or(&self.directions, &[Direction::Send, Direction::Receive]);
        let task = |direction| match direction {
            Direction::Send => Task::BulkSend,
            Direction::Receive => Task::BulkReceive,
        };
        let tasks = directions.into_iter().map(task).collect();
        plan("bulk", &self.common, tasks, variants, NO_WEB)
    }
}

impl RrOptions {
    pub fn plan(&self) -> Plan {
        let (places, nics) = (
            self.common.places(&Place::all()),
            self.common.nics(&[BackEnd::Packet]),
        );
        let mut variants = Variant::kernels().to_vec();
        variants.extend(Variant::of_skink(&places, &nics, false));
        let connections = or(&self.connections, &[1, 16]);
        let tasks = connections.into_iter().map(Task::RoundTrips).collect();
        plan("rr", &self.common, tasks, variants, NO_WEB)
    }
}

/// The workloads of `skink bench topologies`.
const TOPOLOGIES: [Task; 6] = [
    Task::BulkSend,
    Task::BulkReceive,
    Task::Web(Workload::Small),
    Task::Web(Workload::Page),
    Task::RoundTrips(1),
    Task::RoundTrips(16),
];

/// Reads the name of one of them.
pub fn topologies_task(word: &str) -> Result<Task, String> {
    let mut tasks = TOPOLOGIES.into_iter();
    tasks.find(|task| task.to_string() == word).ok_or_else(|| {
        let names = TOPOLOGIES.map(|task| task.to_string());
        format!("the workloads are {}", names.join(", "))
    })
}

impl TopologiesOptions {
    pub fn plan(&self) -> Plan {
        let (places, nics) = (
            self.common.places(&Place::all()),
            self.common.nics(&[BackEnd::Packet]),
        );
        let mut variants = Variant::kernels().to_vec();
        variants.extend(Variant::of_skink(&places, &nics, true));
        let tasks = or(&self.workloads, &TOPOLOGIES);
        plan(
            "topologies",
            &self.common,
            tasks,
            variants,
            self.connections,
        )
    }
}

impl FilterOptions {
    pub fn plan(&self) -> Plan {
        let (places, nics) = (
            self.common.places(&library()),
            self.common.nics(&[BackEnd::Packet]),
        );
        let mut variants = Vec::new();
        for plain in Variant::of_skink(&places, &nics, false) {
            variants.push(plain.clone());
            variants.extend(or(&self.rules, &[RULES]).into_iter().map(|rules| Variant {
                rules,
                ..plain.clone()
            }));
        }
        let tasks = vec![
            Task::BulkSend,
            Task::BulkReceive,
            Task::Web(Workload::Small),
            Task::RoundTrips(1),
        ];
        plan("filter", &self.common, tasks, variants, self.connections)
    }
}

fn plan(
    verb: &'static str,
    common: &Common,
    tasks: Vec<Task>,
    variants: Vec<Variant>,
    connections: u32,
) -> Plan {
    Plan {
        verb,
        tasks,
        variants,
        rounds: common.rounds,
        seconds: common.seconds,
        receive: common.receive,
        connections,
    }
}

impl Plan {
    /// Programs without which it can't be measured.
    pub fn programs(&self) -> Vec<&'static str> {
        let web = self.tasks.iter().any(|task| matches!(task, Task::Web(_)));
        let needed = ["ip", "unshare", "taskset"].into_iter();
        needed
            .chain(["nginx", "wrk"].into_iter().filter(|_| web))
            .collect()
    }
}
