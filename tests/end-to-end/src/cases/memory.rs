//! What peers send to a program that reads nothing takes no more of the machine's memory than it may.

use super::APART_ONCE;
use crate::network::{Network, Plan};
use crate::site::PATIENCE;
use crate::{Case, Failure, Outcome, Topology};
use rustix::process::Signal;
use skink_testbed::{Process, Scratch};

/// Reads nothing of its connections until it is told, and then all.
const SERVER: &str = include_str!("memory/server.py");
const CLIENT: &str = include_str!("memory/client.py");

/// What it may take, or half as much again in pages that connections have each. The client would send a hundred.
const MEBIBYTES: i64 = 8;
/// What is used meanwhile of other memory that is shared, for frames and messages, in mebibytes.
const BESIDES: i64 = 4;

pub fn cases() -> Vec<Case> {
    cases_with(MEBIBYTES, "memory/unread", unread)
}

/// As [`super::cases_in`] those places where the stack is apart, with so much memory for what programs haven't read.
pub(super) fn cases_with(mebibytes: i64, name: &str, run: fn(&Network) -> Outcome) -> Vec<Case> {
    let case = |plan: Plan| {
        Case::new(plan.prefixed(name), move || {
            let scratch = Scratch::new("memory")?;
            let file = scratch.path().join("skink.toml");
            std::fs::write(&file, format!("memory-mib = {mebibytes}\n"))?;
            let network = Network::with(plan, &["-c", &file.to_string_lossy()])?;
            run(&network)?;
            network.stop()
        })
    };
    let plans = APART_ONCE.map(|(topology, back_end)| Plan::plain(topology, back_end));
    plans.map(case).into()
}

fn unread(network: &Network) -> Outcome {
    let server = network.skink_run("python3", ["-c", SERVER, Network::SKINK[0]])?;
    let server = Process::spawn(server, "the server")?;
    server.wait_until("it listens", || server.log().contains("listens"))?;
    let before = shared_memory(network)?;
    let mut client = network.kernel.command("python3");
    client.args(["-c", CLIENT, Network::SKINK[0]]);
    let client = Process::spawn(client, "the client")?;
    client.wait_until("it can't send more", || client.log().contains("stuck"))?;
    let taken = shared_memory(network)? - before;
    let most = MEBIBYTES * 3 / 2 + BESIDES;
    if taken > most {
        let text = format!("{taken} MiB are taken, {most} may be");
        return Err(Failure::Wrong(text));
    }
    server.signal(Signal::USR1);
    let (status, said) = client.wait(PATIENCE)?;
    if !status.success() || !said.ends_with("whole\n") {
        let text = format!("the client ended with {status}:\n{said}");
        return Err(Failure::Wrong(text));
    }
    Ok(())
}

/// That of the process that `tcp` is in, in mebibytes.
fn shared_memory(network: &Network) -> Result<i64, Failure> {
    let name = match network.plan.topology {
        Topology::Split => "tcp",
        _ => "stack",
    };
    let process = network.report("processes", |it| it["name"] == name)?;
    let pid = process
        .and_then(|it| it["pid"].as_u64())
        .unwrap_or_default();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|it| it.strip_prefix("RssShmem:"));
    let kibibytes = line.and_then(|it| it.strip_suffix("kB")?.trim().parse::<i64>().ok());
    let kibibytes = kibibytes.ok_or_else(|| Failure::Wrong(format!("not told: {status}")))?;
    Ok(kibibytes / 1024)
}
