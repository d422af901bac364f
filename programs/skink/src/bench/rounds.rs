//! The order of things: calibrate, then round after round, each variant once in each.

use super::costs::{self, MachineMemory};
use super::held;
use super::lab::{CLIENT_CPU, Lab, MTU, Receive, SERVER_CPU};
use super::measure::{self, DISTURBANCE_LIMIT, Missed, failed};
use super::outside::Outside;
use super::plan::Plan;
use super::results::{
    Calibration, Machine, Measurement, Results, Round, Settings, VariantFailure, WorkloadResults,
};
use super::server::{Server, end_leftovers};
use super::task::Task;
use super::variant;
use super::web::{Site, Tuning};
use crate::failure::Failure;
use std::collections::BTreeSet;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds of load before each measurement, which don't count.
const WARM_UP: u32 = 1;
/// Rounds are repeated until enough are undisturbed, but at most so many times as asked for.
const ATTEMPTS: u32 = 2;
/// So often at most is a setting of nginx tried until nobody disturbs.
const CALIBRATION_ATTEMPTS: u32 = 3;

struct Bench<'a> {
    outside: &'a Outside,
    plan: &'a Plan,
    site: Site,
    labs: Vec<Lab>,
    pinned: BTreeSet<String>,
    not_pinned: BTreeSet<String>,
}

/// Measures everything that was asked for.
pub fn run(plan: &Plan, outside: &Outside) -> Result<Results, Failure> {
    let mut bench = Bench {
        outside,
        plan,
        site: Site::new().map_err(failed)?,
        labs: labs(plan).map_err(failed)?,
        pinned: BTreeSet::new(),
        not_pinned: BTreeSet::new(),
    };
    let machine = machine(&plan.programs());
    if machine.build == "debug" {
        eprintln!("This is a debug build: what it measures of Skink means nothing.");
    }
    let workloads = plan.tasks.iter().map(|task| bench.workload(*task));
    let workloads = workloads.collect::<Result<_, _>>()?;
    let programs = format!(
        "the server, and all processes of Skink with it, to CPU {SERVER_CPU}; the client and the \
         benchmark itself to CPU {CLIENT_CPU}"
    );
    if plan.receive == Receive::Sender {
        let line = "receiving: a veth's sender does the receiver's work, so each side's CPU time holds the \
                    other's receiving";
        bench.not_pinned.insert(line.to_owned());
    }
    let receiving =
        "where large segments pass the cable: the receiving of each side to its CPU, by RPS";
    if plan.receive == Receive::Own {
        bench.pinned.insert(receiving.to_owned());
    }
    Ok(Results {
        machine,
        settings: Settings {
            verb: plan.verb.to_owned(),
            rounds: plan.rounds,
            seconds: plan.seconds,
            warm_up_seconds: WARM_UP,
            connections: plan.connections,
            mtu: MTU,
            server_processor: SERVER_CPU,
            client_processor: CLIENT_CPU,
            disturbance_limit: DISTURBANCE_LIMIT,
        },
        pinned: std::iter::once(programs).chain(bench.pinned).collect(),
        not_pinned: bench.not_pinned.into_iter().collect(),
        comparisons: variant::comparisons(&plan.variants),
        workloads,
    })
}

fn labs(plan: &Plan) -> std::io::Result<Vec<Lab>> {
    // The process id is the same in every run's private namespace; the clock isn't.
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let run = (now.as_micros() >> 8) as u16;
    let labs = plan.variants.iter().enumerate();
    labs.map(|(index, variant)| Lab::new(variant, run, index, plan.receive))
        .collect()
}

impl Bench<'_> {
    fn workload(&mut self, task: Task) -> Result<WorkloadResults, Failure> {
        let mut results = WorkloadResults {
            name: task.to_string(),
            unit: task.unit(),
            rate: task.rate(self.plan),
            ..Default::default()
        };
        let mut chosen: Vec<(usize, Tuning)> = Vec::new();
        let labs = self.labs.iter().enumerate();
        let runs = labs.filter(|(_, lab)| task.runs_on(&lab.variant));
        let runs: Vec<usize> = runs.map(|(index, _)| index).collect();
        for index in runs {
            if let Some(tuning) = self.tuning_of_twin(index, &chosen) {
                chosen.push((index, tuning));
                continue;
            }
            match self.calibrate(index, task) {
                Ok((tuning, calibration)) => {
                    chosen.push((index, tuning));
                    if let Some(calibration) = calibration {
                        let Calibration {
                            variant, chosen, ..
                        } = &calibration;
                        eprintln!("{task}: {variant} with {chosen}");
                        results.calibration.push(calibration);
                    }
                }
                Err(failure) => self.give_up(index, failure, &mut results),
            }
        }
        let mut undisturbed = 0;
        for attempt in 1..=self.plan.rounds.saturating_mul(ATTEMPTS) {
            if undisturbed >= self.plan.rounds || chosen.is_empty() {
                break;
            }
            let round = self.round(task, &mut chosen, &mut results);
            let note = match &round.discarded {
                None => "",
                Some(why) => &format!(", discarded: {why}"),
            };
            eprintln!("{task}: round {attempt}{note}");
            undisturbed += u32::from(round.discarded.is_none());
            results.rounds.push(round);
        }
        for (index, _) in chosen {
            self.give_up_if_never_measured(index, &mut results);
        }
        Ok(results)
    }

    /// A variant that answered nothing in any round has failed, though each was disturbed.
    fn give_up_if_never_measured(&self, index: usize, results: &mut WorkloadResults) {
        let variant = self.name(index);
        let rounds = &results.rounds;
        if rounds.iter().any(|round| round.of(&variant).is_some()) {
            return;
        }
        let mut silent = rounds.iter().flat_map(|round| &round.silent);
        let last = silent.rfind(|one| one.variant == variant);
        let why = last.map_or_else(|| "there was no round".to_owned(), |one| one.why.clone());
        self.give_up(index, Failure::tool(why), results);
    }

    fn name(&self, index: usize) -> String {
        let lab = self.labs.get(index);
        lab.map_or_else(String::new, |lab| lab.variant.to_string())
    }

    fn give_up(&self, index: usize, failure: Failure, results: &mut WorkloadResults) {
        let variant = self.name(index);
        eprintln!("{}: {variant} failed: {}", results.name, failure.message);
        let why = failure.message;
        results.failures.push(VariantFailure { variant, why });
    }

    /// The settings that were chosen for the same stack with another load, if it is among them: what is held against
    /// itself is to differ by that load alone.
    fn tuning_of_twin(&self, index: usize, chosen: &[(usize, Tuning)]) -> Option<Tuning> {
        let own = &self.labs.get(index)?.variant;
        let is_twin = |lab: &Lab| (&lab.variant.stack, lab.variant.gso) == (&own.stack, own.gso);
        let mut chosen = chosen.iter();
        let twin = chosen.find(|(other, _)| self.labs.get(*other).is_some_and(is_twin));
        twin.map(|(_, tuning)| *tuning)
    }

    /// Tries the server's settings and answers the ones with which the work costs least; without a
    /// report if there is nothing to choose from.
    fn calibrate(
        &mut self,
        index: usize,
        task: Task,
    ) -> Result<(Tuning, Option<Calibration>), Failure> {
        if let [only] = task.tunings() {
            return Ok((*only, None));
        }
        let (mut tried, mut disturbed) = (Vec::new(), false);
        for tuning in task.tunings().iter().copied() {
            let mut measured = self.measure(index, task, tuning, 1);
            for _ in 1..CALIBRATION_ATTEMPTS {
                let again = match &measured {
                    Ok(measurement) => measure::disturbed(&measurement.disturbance).is_some(),
                    Err(missed) => matches!(missed, Missed::Disturbed(_)),
                };
                if again {
                    measured = self.measure(index, task, tuning, 1);
                }
            }
            let measurement = measured?;
            disturbed |= measure::disturbed(&measurement.disturbance).is_some();
            tried.push((
                tuning,
                measurement.server_cpu_us_per_unit,
                measurement.variant,
            ));
        }
        let best = tried.iter().min_by(|a, b| a.1.total_cmp(&b.1));
        let (tuning, _, variant) = best.ok_or_else(|| Failure::tool("there are no settings"))?;
        let calibration = Calibration {
            variant: variant.clone(),
            tried: tried
                .iter()
                .map(|(tuning, cost, _)| (tuning.to_string(), *cost))
                .collect(),
            chosen: tuning.to_string(),
            disturbed,
        };
        Ok((*tuning, Some(calibration)))
    }

    /// One measurement of each variant. One that fails isn't tried again, unless others may be the cause.
    fn round(
        &mut self,
        task: Task,
        chosen: &mut Vec<(usize, Tuning)>,
        results: &mut WorkloadResults,
    ) -> Round {
        let mut round = Round::default();
        for (index, tuning) in std::mem::take(chosen) {
            match self.measure(index, task, tuning, self.plan.seconds) {
                Ok(measurement) => {
                    if let Some(why) = measure::disturbed(&measurement.disturbance) {
                        let why = format!("during {}, {why}", measurement.variant);
                        round.discarded.get_or_insert(why);
                    }
                    round.measurements.push(measurement);
                    chosen.push((index, tuning));
                }
                Err(Missed::Disturbed(why)) => {
                    let variant = self.name(index);
                    let why_not = || format!("during {variant}, nothing was answered");
                    round.discarded.get_or_insert_with(why_not);
                    round.silent.push(VariantFailure { variant, why });
                    chosen.push((index, tuning));
                }
                Err(Missed::Failed(failure)) => self.give_up(index, failure, results),
            }
        }
        round
    }

    fn measure(
        &mut self,
        index: usize,
        task: Task,
        tuning: Tuning,
        seconds: u32,
    ) -> Result<Measurement, Missed> {
        let lab = self
            .labs
            .get(index)
            .ok_or_else(|| Failure::tool("there is no such variant"))?;
        let variant = lab.variant.to_string();
        lab.cut_datagrams(matches!(task, Task::Pairs(..)))
            .map_err(failed)?;
        let machine = MachineMemory::look();
        let command = task.server(&self.site, tuning, &lab.variant);
        let started = command.and_then(|command| Server::start(lab, &command));
        let measured = started.map_err(|error| Missed::Failed(failed(error)));
        let measured = measured.and_then(|server| {
            task.wait_and_check(lab, &server)?;
            let threads = match self.plan.receive {
                Receive::Own => Some(lab.pin(self.outside, self.plan.napi_batch)?),
                Receive::Sender => None,
            };
            let client = |seconds| task.client(lab, seconds, self.plan);
            let held = held::hold(lab, task)?;
            let mut warm = 0.0;
            let measured = client(WARM_UP)
                .and_then(|warm_up| measure::run(warm_up, WARM_UP))
                .and_then(|answered| {
                    warm = answered.units;
                    client(seconds)
                })
                .map_err(Missed::from)
                .and_then(|load| {
                    measure::measure(self.outside, lab, load, seconds, &server.roots())
                });
            let measured = measured.map(|measurement| {
                let (idle, roots) = (lab.variant.idle, server.roots());
                let memory = held.as_ref().map(|_| costs::memory(&roots, &machine, idle));
                Measurement {
                    memory,
                    ..measurement
                }
            });
            let log = server.log();
            let ended = server.end(&variant);
            let measurement = measured.map_err(|missed| {
                let end = match &ended {
                    Ok(()) => "the server ended as asked",
                    Err(why) => &why.message,
                };
                missed.say(|why| {
                    format!(
                        "{why} (after {warm} in warming up); {end}; the server had printed: {log}"
                    )
                })
            })?;
            ended?;
            Ok((measurement, threads))
        });
        end_leftovers();
        let (measurement, threads) = measured?;
        if let Some(threads) = threads {
            self.note_pins(&variant, &threads);
        }
        Ok(Measurement {
            variant,
            tuning: tuning.to_string(),
            ..measurement
        })
    }

    fn note_pins(&mut self, variant: &str, threads: &[Vec<String>; 2]) {
        let batch = if self.plan.napi_batch {
            ", by SCHED_BATCH"
        } else {
            ""
        };
        let sides = [("server", SERVER_CPU, batch), ("client", CLIENT_CPU, "")];
        for (threads, (side, cpu, batch)) in threads.iter().zip(sides) {
            if threads.is_empty() {
                let line = format!("{variant}: the {side}'s NAPI has no kernel thread");
                self.not_pinned.insert(line);
            } else {
                let line =
                    format!("{variant}: the {side}'s NAPI kernel thread to CPU {cpu}{batch}");
                self.pinned.insert(line);
            }
        }
    }
}

fn machine(programs: &[&str]) -> Machine {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let processor = read("/proc/cpuinfo");
    let model = processor
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    Machine {
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        processor: model
            .map_or("unknown", |line| line.trim_start_matches([' ', '\t', ':']))
            .to_owned(),
        processors: processor
            .lines()
            .filter(|line| line.starts_with("processor"))
            .count(),
        skink: env!("CARGO_PKG_VERSION").to_owned(),
        build: if cfg!(debug_assertions) {
            "debug"
        } else {
            "release"
        }
        .to_owned(),
        programs: programs.iter().filter_map(|name| version(name)).collect(),
        unix_time: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs()),
    }
}

/// What a program says of itself; `None` if its version is of no interest.
fn version(program: &str) -> Option<String> {
    let option = match program {
        "nginx" | "lighttpd" | "wrk" => "-v",
        "redis-server" | "memcached" => "--version",
        _ => return None,
    };
    let said = Command::new(program).arg(option).output().ok()?;
    let said = [said.stdout, said.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    let words = said.lines().next()?.split_whitespace();
    let words: Vec<&str> = words.take_while(|word| !word.starts_with('[')).collect();
    Some(words.join(" "))
}
