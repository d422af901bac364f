//! Two programs of two users that share a stack, one of which means ill: it harms itself alone.

use super::load::wait;
use super::{APART, APART_ONCE, cases_in, memory};
use crate::network::Network;
use crate::site::PATIENCE;
use crate::{Case, Failure, Outcome};
use rustix::process::Signal;
use skink_testbed::{Process, signal};
use std::process::Command;
use std::time::Duration;

/// A program that attacks: what user it is, how, and what is needed for that are its arguments.
const ATTACKS: &str = concat!(
    include_str!("neighbours/weapons.py"),
    include_str!("neighbours/intruder.py")
);

/// User ids that no user of a system has.
const VICTIM: &str = "64001";
const INTRUDER: &str = "64002";

pub fn cases() -> Vec<Case> {
    let mut cases = cases_in(&APART, "neighbours/ports", ports);
    cases.extend(cases_in(
        &APART,
        "neighbours/forged-requests",
        forged_requests,
    ));
    cases.extend(cases_in(&APART, "neighbours/stopped", stopped));
    cases.extend(cases_in(
        &APART,
        "neighbours/silenced-bells",
        silenced_bells,
    ));
    // More than the strangers send, however little memory there is here.
    cases.extend(memory::cases_with(4096, "neighbours/hoard", hoard));
    cases.extend(cases_in(&APART_ONCE, "neighbours/exhaustion", exhaustion));
    cases.extend(cases_in(
        &APART_ONCE,
        "neighbours/spoilt-memory",
        spoilt_memory,
    ));
    cases
}

/// A program whose every byte is checked while another does its worst.
struct Scene<'a> {
    network: &'a Network,
    victim: Process,
    witness: Process,
    /// What served programs before.
    processes: Vec<Served>,
}

/// Name, process id and restarts of a process of the stack.
type Served = (String, u64, u64);

fn python(mut command: Command, script: &str, arguments: &[&str]) -> Command {
    command.args(["-c", script]).args(arguments);
    command
}

impl<'a> Scene<'a> {
    fn new(network: &'a Network) -> Result<Scene<'a>, Failure> {
        if !skink_testbed::is_root() {
            return Err(Failure::Skip("two users need root".to_owned()));
        }
        let arguments = ["-c", include_str!("neighbours/victim.py"), VICTIM];
        let victim = Process::spawn(network.skink_run("python3", arguments)?, "the victim")?;
        victim.wait_until("it is ready", || victim.log().contains("ready"))?;
        let witness = network.kernel.command("python3");
        let witness = python(witness, include_str!("neighbours/witness.py"), &[]);
        let witness = Process::spawn(witness, "the witness")?;
        let scene = Scene {
            network,
            victim,
            witness,
            processes: processes(network)?,
        };
        scene.goes_on(2)?;
        Ok(scene)
    }

    /// The other program, which does `what`.
    fn intruder(&self, what: &str, argument: &str) -> Result<Process, Failure> {
        let arguments = ["-c", ATTACKS, INTRUDER, what, argument];
        let command = self.network.skink_run("python3", arguments)?;
        Ok(Process::spawn(command, &format!("the intruder ({what})"))?)
    }

    /// Strangers on the wire who call the intruder, and send, and go on with that.
    fn crowd(&self) -> Result<Process, Failure> {
        self.strangers("crowd", "9410")
    }

    /// Programs on the wire, which do `what` to the intruder.
    fn strangers(&self, what: &str, argument: &str) -> Result<Process, Failure> {
        let command = self.network.kernel.command("python3");
        let arguments = [INTRUDER, what, argument];
        let name = format!("strangers ({what})");
        Ok(Process::spawn(python(command, ATTACKS, &arguments), &name)?)
    }

    fn marks(&self) -> usize {
        let log = self.witness.log();
        log.lines().filter(|line| line.starts_with("mark")).count()
    }

    /// So many more mebibytes come and go whole, and a connection and a datagram with each.
    fn goes_on(&self, marks: usize) -> Outcome {
        for goal in self.marks() + 1..=self.marks() + marks {
            let what = format!("it has seen {goal} rounds go well");
            let went_on = self.witness.wait_until(&what, || self.marks() >= goal);
            went_on.map_err(|error| {
                let victim = self.victim.log();
                Failure::Wrong(format!("{error}\nthe victim said:\n{victim}"))
            })?;
        }
        Ok(())
    }

    /// All went well to the end, and the same processes serve as before.
    fn end(self) -> Outcome {
        self.goes_on(2)?;
        let now = processes(self.network)?;
        if now != self.processes {
            let (before, said) = (self.processes, self.network.log());
            let text = format!("processes were {before:?}, are {now:?}; skink up printed:\n{said}");
            return Err(Failure::Wrong(text));
        }
        let (status, said) = self.witness.stop()?;
        let complaints = self.victim.log();
        if !status.success() || !said.ends_with("whole\n") || complaints.contains("failed") {
            let text =
                format!("the witness ended with {status}:\n{said}\nthe victim said:\n{complaints}");
            return Err(Failure::Wrong(text));
        }
        Ok(())
    }
}

/// All processes of the stack, but the standby, which is another one whenever something has changed.
fn processes(network: &Network) -> Result<Vec<Served>, Failure> {
    let mut command = network.skink.command(&Network::tool()?.to_string_lossy());
    command.args(["ps", "--json"]);
    let text = Network::finish(command, "skink ps", PATIENCE)?;
    let report: serde_json::Value = serde_json::from_str(&text)?;
    let list = report["instances"][0]["processes"].as_array();
    let process = |it: &serde_json::Value| {
        let name = it["name"].as_str().unwrap_or_default().to_owned();
        Some((name, it["pid"].as_u64()?, it["restarts"].as_u64()?))
    };
    let all = list.into_iter().flatten().filter_map(process);
    Ok(all.filter(|(name, ..)| name != "standby").collect())
}

fn succeeds(process: Process) -> Outcome {
    let (status, said) = process.wait(PATIENCE)?;
    match status.success() && said.ends_with("done\n") {
        true => Ok(()),
        false => Err(Failure::Wrong(format!("it ended with {status}:\n{said}"))),
    }
}

/// Another's port and addresses that aren't Skink's can't be had, whatever options are set.
fn ports(network: &Network) -> Outcome {
    let scene = Scene::new(network)?;
    succeeds(scene.intruder("bind", "")?)?;
    scene.end()
}

/// Another's sockets can't be named, its ports can't be had past the library, its memory can't be asked for.
fn forged_requests(network: &Network) -> Outcome {
    let scene = Scene::new(network)?;
    let before = dropped(network)?;
    succeeds(scene.intruder("forge", "")?)?;
    let dropped = dropped(network)? - before;
    if dropped < 20_000 {
        let text = format!("only {dropped} requests were dropped as somebody else's business");
        return Err(Failure::Wrong(text));
    }
    scene.end()
}

/// How many requests were about a socket that isn't the program's.
fn dropped(network: &Network) -> Result<u64, Failure> {
    let mut command = network.skink.command(&Network::tool()?.to_string_lossy());
    command.args(["stat", "--json"]);
    let text = Network::finish(command, "skink stat", PATIENCE)?;
    let report: serde_json::Value = serde_json::from_str(&text)?;

    Ok(sum(&report, "drop.foreign"))
}

fn sum(value: &serde_json::Value, label: &str) -> u64 {
    match value {
        serde_json::Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| match value.as_u64() {
                Some(count) if name.ends_with(label) => count,
                _ => sum(value, label),
            })
            .sum(),
        serde_json::Value::Array(list) => list.iter().map(|value| sum(value, label)).sum(),
        _ => 0,
    }
}

/// All sockets, all places and all requests that one user can have leave others theirs.
fn exhaustion(network: &Network) -> Outcome {
    let scene = Scene::new(network)?;
    let intruder = scene.intruder("exhaust", "")?;
    // It takes its time, of which each part has a limit.
    for kinds in 1..=2 {
        intruder.wait_until("it has all sockets of a kind", || {
            intruder.log().matches("sockets: ").count() >= kinds
        })?;
    }
    // What listens, and nobody has waited on, is bound anew at each fork.
    for forks in 1..=2 {
        intruder.wait_until("it has forked", || {
            intruder.log().matches("forked").count() >= forks
        })?;
    }
    intruder.wait_until("it holds all", || intruder.log().contains("holding"))?;
    scene.goes_on(5)?;
    // Also who comes only now.
    let late = "
import os, socket, sys
''.encode('idna')
os.setuid(int(sys.argv[1]))
with socket.create_server(('', 9420)), socket.create_connection(('10.9.0.1', 9402), 15) as s:
    s.sendall(b'none of these')
";
    let late = network.skink_run("python3", ["-c", late, VICTIM])?;
    Network::finish(late, "who comes late", PATIENCE)?;
    scene.goes_on(2)?;
    drop(intruder);
    scene.end()
}

/// A stopped program's peers go on sending and calling; that holds up nobody else, and the program finds
/// its sockets in order when it goes on.
fn stopped(network: &Network) -> Outcome {
    let scene = Scene::new(network)?;
    let intruder = scene.intruder("listen", "")?;
    intruder.wait_until("it is ready", || intruder.log().contains("ready"))?;
    let crowd = scene.crowd()?;
    scene.goes_on(2)?;
    signal(intruder.id(), Signal::STOP)?;
    scene.goes_on(10)?;
    drop(crowd);
    signal(intruder.id(), Signal::CONT)?;
    let ask = "
import socket
with socket.create_connection(('10.9.0.2', 9410), 20) as s:
    assert s.recv(1) == b'x'
";
    let ask = python(network.kernel.command("python3"), ask, &[]);
    Network::finish(ask, "who asks the one that goes on", PATIENCE)?;
    scene.end()
}

/// Strangers fill what memory a program has for them, which accepts none of them, and is killed then: neither that it fills up nor
/// that it is given back holds up anybody else.
fn hoard(network: &Network) -> Outcome {
    let scene = Scene::new(network)?;
    let intruder = scene.intruder("hoard", "")?;
    intruder.wait_until("it is ready", || intruder.log().contains("ready"))?;
    let strangers = scene.strangers("fill", "")?;
    strangers.wait_until("it holds a lot", || strangers.log().contains("filled"))?;
    scene.goes_on(1)?;
    signal(intruder.id(), Signal::KILL)?;
    scene.goes_on(3)?;
    drop((intruder, strangers));
    scene.end()
}

/// What a program is rung by and rings by may be full, block, be emptied by it or be closed: whoever else has to do with that
/// never waits.
fn silenced_bells(network: &Network) -> Outcome {
    let scene = Scene::new(network)?;
    let intruder = scene.intruder("silence", "")?;
    intruder.wait_until("its pipe is full", || intruder.log().contains("full"))?;
    let crowd = scene.crowd()?;
    scene.goes_on(3)?;
    intruder.wait_until("it has closed all", || intruder.log().contains("closed"))?;
    scene.goes_on(3)?;
    drop((intruder, crowd));
    scene.end()
}

/// Nonsense in all memory that a program may write harms that program alone.
fn spoilt_memory(network: &Network) -> Outcome {
    let scene = Scene::new(network)?;
    let crowd = scene.crowd()?;
    for seed in 0..6 {
        let intruder = scene.intruder("spoil", &seed.to_string())?;
        intruder.wait_until("it spoils", || intruder.log().contains("spoiling"))?;
        scene.goes_on(4)?;
        // However it ends: killed by what it did, or by the clock.
        let _ = intruder.wait(Duration::from_secs(30))?;
        wait(Duration::from_millis(100));
    }
    drop(crowd);
    scene.end()
}
