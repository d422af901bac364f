//! One measurement: the client's own count, and what the processors did meanwhile.

use super::costs;
use super::lab::{CLIENT_CPU, Lab, SERVER_CPU};
use super::outside::Outside;
use super::results::{Disturbance, Latency, Measurement, Traffic};
use super::silence::Witness;
use crate::failure::Failure;
use serde::{Deserialize, Serialize};
use skink_testbed::{CpuTime, Process};
use std::process::Command;
use std::time::{Duration, Instant};

/// Above this part of a processor's time, what others did makes a round worthless.
pub const DISTURBANCE_LIMIT: f64 = 0.05;
/// How much longer than asked a client may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// A program that makes load, and how what it prints is to be read.
pub struct Client {
    pub name: &'static str,
    pub command: Command,
    pub read: fn(&str) -> Result<Load, String>,
}

/// Why there is no measurement.
pub enum Missed {
    /// Nothing was answered while others used the machine, which says nothing about the server. In words.
    Disturbed(String),
    Failed(Failure),
}

impl From<Failure> for Missed {
    fn from(failure: Failure) -> Missed {
        Missed::Failed(failure)
    }
}

impl From<Missed> for Failure {
    fn from(missed: Missed) -> Failure {
        match missed {
            Missed::Disturbed(why) => Failure::tool(why),
            Missed::Failed(failure) => failure,
        }
    }
}

impl Missed {
    /// The same, with what else there is to say.
    pub fn say(self, more: impl FnOnce(&str) -> String) -> Missed {
        match self {
            Missed::Disturbed(why) => Missed::Disturbed(more(&why)),
            Missed::Failed(failure) => Missed::Failed(Failure {
                message: more(&failure.message),
                ..failure
            }),
        }
    }
}

/// Runs the client for `seconds` and answers what it, the processors' clocks, the cable, and the processes
/// that `server` and its descendants are, say. The fields that name the variant are left empty.
pub fn measure(
    outside: &Outside,
    lab: &Lab,
    client: Client,
    seconds: u32,
    server: &[u32],
) -> Result<Measurement, Missed> {
    outside.watch()?;
    let looked = costs::look(server);
    let start = Instant::now();
    let witness = Witness::new(lab).map_err(failed)?;
    let (carried, before) = (lab.traffic().map_err(failed)?, processors()?);
    let load = run(client, seconds)?;
    let after = processors()?;
    let elapsed = start.elapsed().as_secs_f64();
    let carried = lab.traffic().map_err(failed)?.since(&carried);
    let processes = costs::look(server).since(&looked);
    let others = outside.others()?;
    let (server, client) = (after.0 - before.0, after.1 - before.1);
    let not_idle = (elapsed - server.idle - server.stolen).max(0.0);
    let disturbance = Disturbance {
        other_processes: others,
        stolen_from_server: server.stolen / elapsed,
        stolen_from_client: client.stolen / elapsed,
    };
    if load.units <= 0.0 || load.seconds <= 0.0 {
        let slept: u64 = processes.iter().map(|it| it.voluntary_switches).sum();
        let why = format!(
            "nothing was answered in {elapsed:.1} s, in which the server's processor was busy for {:.0}% of the time and \
             stolen for {:.0}%, the client's for {:.0}% and {:.0}%, other processes used {:.0}% of one, and the server's processes \
             went to sleep {slept} times; {}",
            not_idle / elapsed * 100.0,
            disturbance.stolen_from_server * 100.0,
            (elapsed - client.idle - client.stolen).max(0.0) / elapsed * 100.0,
            disturbance.stolen_from_client * 100.0,
            others * 100.0,
            witness.report(lab, outside),
        );
        return Err(match disturbed(&disturbance) {
            Some(_) => Missed::Disturbed(why),
            None => Missed::Failed(Failure::tool(why)),
        });
    }
    let per_unit = |seconds: f64| seconds * 1e6 / load.units;
    Ok(Measurement {
        variant: String::new(),
        tuning: String::new(),
        units: load.units,
        units_per_second: load.units / load.seconds,
        server_cpu_us_per_unit: per_unit(not_idle),
        server_ticks_us_per_unit: per_unit(server.busy),
        server_busy: not_idle / elapsed,
        client_busy: (elapsed - client.idle - client.stolen).max(0.0) / elapsed,
        latency: load.latency,
        socket_errors: load.socket_errors,
        bad_responses: load.bad_responses,
        processes,
        memory: None,
        traffic: Some(Traffic {
            frames_in: carried.frames_in,
            bytes_in: carried.bytes_in,
            frames_out: carried.frames_out,
            bytes_out: carried.bytes_out,
        }),
        disturbance,
    })
}

/// Runs the client to its end and answers what it counted.
pub fn run(client: Client, seconds: u32) -> Result<Load, Failure> {
    let Client {
        name,
        command,
        read,
    } = client;
    let limit = Duration::from_secs(seconds.into()) + PATIENCE;
    let process = Process::spawn(command, name).map_err(failed)?;
    let (status, said) = process.wait(limit).map_err(failed)?;
    match status.success() {
        true => read(&said).map_err(Failure::tool),
        false => Err(Failure::tool(format!("{name} ended with {status}: {said}"))),
    }
}

fn processors() -> Result<(CpuTime, CpuTime), Failure> {
    let of = |cpu| CpuTime::of_processor(cpu).map_err(failed);
    Ok((of(SERVER_CPU)?, of(CLIENT_CPU)?))
}

pub fn failed(error: std::io::Error) -> Failure {
    Failure::tool(error.to_string())
}

/// Why a measurement doesn't count.
pub fn disturbed(one: &Disturbance) -> Option<String> {
    let causes = [
        ("other processes used a", one.other_processes),
        (
            "the hypervisor took from the server's",
            one.stolen_from_server,
        ),
        (
            "the hypervisor took from the client's",
            one.stolen_from_client,
        ),
    ];
    let worst = causes.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    (worst.1 > DISTURBANCE_LIMIT)
        .then(|| format!("{} processor {:.0}% of the time", worst.0, worst.1 * 100.0))
}

/// What a client counted.
#[derive(Serialize, Deserialize, Debug, PartialEq)]
pub struct Load {
    /// The work, in the workload's unit.
    pub units: f64,
    pub seconds: f64,
    pub latency: Option<Latency>,
    pub socket_errors: u64,
    pub bad_responses: u64,
}

/// Reads what `skink bench peer` printed.
pub fn parse_peer(said: &str) -> Result<Load, String> {
    serde_json::from_str(said)
        .map_err(|_| format!("the peer printed something unexpected:\n{said}"))
}

/// Reads what `wrk --latency` printed.
pub fn parse_wrk(said: &str) -> Result<Load, String> {
    let (mut requests, mut latency) = (None, [None; 4]);
    let (mut socket_errors, mut bad_responses) = (0, 0);
    for line in said.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [count, "requests", "in", time, ..] => {
                let time = time.trim_end_matches(',');
                requests = count.parse::<f64>().ok().zip(microseconds(time));
            }
            [percent, time] if percent.ends_with('%') => {
                let at = ["50%", "75%", "90%", "99%"]
                    .iter()
                    .position(|known| known == percent);
                if let Some(slot) = at.and_then(|at| latency.get_mut(at)) {
                    *slot = microseconds(time);
                }
            }
            ["Socket", "errors:", counts @ ..] => {
                let counts = counts.iter().map(|word| word.trim_end_matches(','));
                socket_errors = counts.filter_map(|word| word.parse::<u64>().ok()).sum();
            }
            ["Non-2xx", "or", "3xx", "responses:", count] => {
                bad_responses = count.parse().unwrap_or(u64::MAX);
            }
            _ => {}
        }
    }
    let ([Some(p50_us), Some(p75_us), Some(p90_us), Some(p99_us)], Some((requests, time))) =
        (latency, requests)
    else {
        return Err(format!("wrk printed something unexpected:\n{said}"));
    };
    Ok(Load {
        units: requests,
        seconds: time / 1e6,
        latency: Some(Latency {
            p50_us,
            p75_us,
            p90_us,
            p99_us,
            p999_us: None,
            p99_moments_us: None,
        }),
        socket_errors,
        bad_responses,
    })
}

/// A time as wrk writes it: `631.00us`, `1.06ms`, `2.00s`, `1.50m`, `1.00h`.
fn microseconds(text: &str) -> Option<f64> {
    let at = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(at);
    let scale = match unit {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        "m" => 60e6,
        "h" => 3600e6,
        _ => return None,
    };
    number.parse::<f64>().ok().map(|number| number * scale)
}

#[cfg(test)]
mod tests;
