//! Idle connections, and the descriptors that they need.

use super::lab::{CLIENT_CPU, Lab, on_processor};
use super::measure::failed;
use super::peer;
use super::task::{Task, peer_line};
use crate::failure::Failure;
use skink_testbed::Process;
use std::time::{Duration, Instant};

/// How long it may take to make them, besides a millisecond for each.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often to look whether they are made.
const INTERVAL: Duration = Duration::from_millis(20);

/// Allows this program, and whatever it starts, as many descriptors as can be. If that is few, several
/// processes share the connections.
pub fn allow_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let most = std::fs::read_to_string("/proc/sys/fs/nr_open");
    let most = most.ok().and_then(|text| text.trim().parse().ok());
    // Not every root may have more than it was given.
    for most in [most, getrlimit(Resource::Nofile).maximum] {
        let limit = Rlimit {
            current: most,
            maximum: most,
        };
        if setrlimit(Resource::Nofile, limit).is_ok() {
            return;
        }
    }
}

/// Has the client's host make the variant's idle connections, in as many processes as their descriptors need;
/// `None` if the workload has none. They last as long as what is answered.
pub fn hold(lab: &Lab, task: Task) -> Result<Option<Vec<Process>>, Failure> {
    if task != Task::Blocks {
        return Ok(None);
    }
    let (idle, most) = (lab.variant.idle, peer::per_process());
    let parts = (0..idle).step_by(most as usize);
    let parts = parts.map(|first| part(lab, task, first, most.min(idle - first)));
    parts.collect::<Result<_, _>>().map(Some)
}

fn part(lab: &Lab, task: Task, first: u32, count: u32) -> Result<Process, Failure> {
    let mut command = on_processor(&lab.client, CLIENT_CPU);
    let numbers = [count, first].map(|number| number.to_string());
    let words = ["hold".to_owned(), task.target()]
        .into_iter()
        .chain(numbers);
    command.args(peer_line(&words.collect::<Vec<_>>()).map_err(failed)?);
    let process = Process::spawn(command, "the client with idle connections").map_err(failed)?;
    let (held, start) = (peer::held(count), Instant::now());
    while !process.log().contains(&held) {
        if process.has_ended() || start.elapsed() > PATIENCE + Duration::from_millis(count.into()) {
            let said = process.log();
            return Err(Failure::tool(format!(
                "{count} idle connections weren't made: {said}"
            )));
        }
        std::thread::sleep(INTERVAL);
    }
    Ok(process)
}
