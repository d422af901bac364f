//! What goes wrong in operation, and what strangers send on purpose.

use super::load::{idle_share, wait};
use super::servers::no_wrk_errors;
use super::{APART_ONCE, cases_in, on_each_back_end, widely};
use crate::network::Network;
use crate::site::{Nginx, PATIENCE, Site};
use crate::{BackEnd, Case, Failure, Outcome, Topology};
use rustix::process::Signal;
use skink_testbed::{Process, signal, wait_until_ended};
use std::path::Path;
use std::time::Duration;

pub fn cases() -> Vec<Case> {
    let mut cases = widely("hostile/killed-workers", killed_workers);
    cases.extend(widely("hostile/reloads", reloads));
    cases.extend(cases_in(
        &APART_ONCE,
        "hostile/reloads-while-killed",
        reloads_while_killed,
    ));
    cases.extend(on_each_back_end("hostile/link-flap", link_flap));
    cases.extend(widely("hostile/noise", noise));
    cases.extend(widely("hostile/flood-of-requests", flood));
    cases.extend(widely("hostile/killed-run", killed_run));
    cases
}

fn start_wrk(network: &Network, seconds: u32, extra: &[&str]) -> Result<Process, Failure> {
    let mut wrk = network.kernel.command("wrk");
    wrk.args(["-t1", "-c32", &format!("-d{seconds}s"), "--timeout", "10s"]);
    wrk.args(extra);
    wrk.arg(format!("http://{}:80/tiny", Network::SKINK[0]));
    Ok(Process::spawn(wrk, "wrk")?)
}

/// A load without any error.
fn all_is_well(network: &Network) -> Outcome {
    let (_, said) = start_wrk(network, 1, &["-H", "Connection: close"])?.wait(PATIENCE)?;
    no_wrk_errors(&said)
}

fn open_descriptors(pid: u32) -> Result<usize, Failure> {
    Ok(std::fs::read_dir(format!("/proc/{pid}/fd"))?.count())
}

/// Waits until nginx has two workers, none of them among `old`.
fn replaced(nginx: &Nginx, old: &[u32]) -> Outcome {
    nginx.process.wait_until("the workers are new ones", || {
        nginx
            .workers()
            .is_ok_and(|(_, now)| now.len() == 2 && !now.iter().any(|w| old.contains(w)))
    })?;
    Ok(())
}

/// Only a killed worker's connections fail; its successor serves, and nothing is left of it.
fn killed_workers(network: &Network) -> Outcome {
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    let open = || -> Result<usize, Failure> {
        let all = network.processes(&nginx.process).into_iter();
        all.map(open_descriptors).sum()
    };
    // Both workers have a stack by now.
    all_is_well(network)?;
    // Sockets are made ahead for more.
    let mut before = open()?;
    nginx.process.wait_until("all are open", || {
        wait(Duration::from_millis(50));
        open().is_ok_and(|now| std::mem::replace(&mut before, now) == now)
    })?;
    let load = start_wrk(network, 5, &[])?;
    for _ in 0..10 {
        let (_, list) = nginx.workers()?;
        if let Some(victim) = list.first() {
            signal(*victim, Signal::KILL)?;
            nginx.process.wait_until("the worker is replaced", || {
                nginx
                    .workers()
                    .is_ok_and(|(_, now)| now.len() == 2 && !now.contains(victim))
            })?;
        }
        wait(Duration::from_millis(200));
    }
    let (_, said) = load.wait(PATIENCE)?;
    // Each of 32 connections can fail once for each worker killed; about half of them do.
    let failed = wrk_errors(&said);
    if failed > 10 * 32 {
        return Err(Failure::Wrong(format!("{failed} failures:\n{said}")));
    }
    all_is_well(network)?;
    let after = open()?;
    // nginx says that workers were killed, so that its own stop can't be held to silence.
    let (status, said) = nginx.process.stop()?;
    if after > before + 2 || said.contains("panicked") || !status.success() {
        let text = format!("{before} descriptors, then {after}; {status}; it printed:\n{said}");
        return Err(Failure::Wrong(text));
    }
    Ok(())
}

/// The sum of wrk's *Socket errors*.
fn wrk_errors(said: &str) -> u32 {
    let line = said.lines().find(|line| line.contains("Socket errors"));
    let words = line.unwrap_or_default().split([' ', ',']);
    words.filter_map(|word| word.parse::<u32>().ok()).sum()
}

/// New connections find a worker while nginx is told to reload, and the old workers end.
fn reloads(network: &Network) -> Outcome {
    const RELOADS: usize = 10;
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    let end = site.path("end");
    let load = [(); 2].map(|()| start_fetches(network, &end));
    for _ in 0..RELOADS {
        let (master, old) = nginx.workers()?;
        signal(master, Signal::HUP)?;
        replaced(&nginx, &old)?;
    }
    std::fs::write(end, "")?;
    let mut reset = 0;
    for process in load {
        reset += count_resets(process?)?;
    }
    // Where each worker has a stack of its own, at most one for each that stopped, where there are two clients: most find an empty
    // queue.
    let most = match network.plan.topology {
        Topology::Library => 2 * RELOADS,
        Topology::Single | Topology::Split => 0,
    };
    if reset > most {
        let text = format!("{reset} connections were reset during {RELOADS} reloads");
        return Err(Failure::Wrong(text));
    }
    all_is_well(network)?;
    nginx.stop()
}

/// The same while the stack's processes are killed: each is, once, while old workers end and new ones begin. No connection is reset,
/// and none refused.
fn reloads_while_killed(network: &Network) -> Outcome {
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    let end = site.path("end");
    let load = [(); 2].map(|()| start_fetches(network, &end));
    for member in network.members()? {
        let (master, old) = nginx.workers()?;
        signal(master, Signal::HUP)?;
        network.replace(&member.name, Signal::KILL)?;
        replaced(&nginx, &old)?;
    }
    std::fs::write(end, "")?;
    for process in load {
        let reset = count_resets(process?)?;
        if reset > 0 {
            return Err(Failure::Wrong(format!("{reset} connections were reset")));
        }
    }
    all_is_well(network)?;
    nginx.stop()
}

/// Fetches a file again and again, on a connection for each, until another file is there. A connection that is reset, or ends
/// before the answer, is told of; whoever is refused, or waits for too long, ends in failure.
const FETCHES: &str = "
import os, socket, sys
while not os.path.exists(sys.argv[2]):
    answer = b''
    try:
        with socket.create_connection((sys.argv[1], 80), 10) as s:
            s.sendall(b'GET /tiny HTTP/1.0\\r\\n\\r\\n')
            while more := s.recv(65536):
                answer += more
    except (ConnectionResetError, BrokenPipeError):
        pass
    if not answer:
        print('reset')
    else:
        assert answer.startswith(b'HTTP/1.1 200'), answer
";

/// Starts such fetches, until there is a file `end`.
pub fn start_fetches(network: &Network, end: &Path) -> Result<Process, Failure> {
    let mut python = network.kernel.command("python3");
    python.args(["-c", FETCHES, Network::SKINK[0]]).arg(end);
    Ok(Process::spawn(python, "fetches")?)
}

/// How many of them were reset. Each process has a queue of its own of what waits to be accepted, and what is in it is lost when it
/// stops to listen.
pub fn count_resets(fetches: Process) -> Result<usize, Failure> {
    let (status, said) = fetches.wait(PATIENCE)?;
    match status.success() {
        true => Ok(said.lines().count()),
        false => Err(Failure::Wrong(format!(
            "fetches ended with {status}:\n{said}"
        ))),
    }
}

/// An interface goes down and comes up: connections go on, whatever workers came and went before,
/// and nobody burns processor time because of it.
fn link_flap(network: &Network) -> Outcome {
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    let interface = match network.plan.back_end {
        BackEnd::Packet | BackEnd::Xdp | BackEnd::Chosen => "wire",
        BackEnd::Tap => "skink0",
    };
    for _ in 0..2 {
        let (master, old) = nginx.workers()?;
        signal(master, Signal::HUP)?;
        replaced(&nginx, &old)?;
        let load = start_wrk(network, 3, &[])?;
        wait(Duration::from_millis(500));
        network.skink.ip(&format!("link set {interface} down"))?;
        wait(Duration::from_millis(100));
        network.skink.ip(&format!("link set {interface} up"))?;
        let (_, said) = load.wait(PATIENCE)?;
        no_wrk_errors(&said)?;
        all_is_well(network)?;
    }
    let share = idle_share(&network.processes(&nginx.process), Duration::from_secs(3))?;
    if share >= 0.05 {
        let text = format!("idle, it takes {:.1}% of a processor", share * 100.0);
        return Err(Failure::Wrong(text));
    }
    nginx.stop()
}

/// Starts the frames of noise.py on the other side of the wire.
fn start_noise(network: &Network, kinds: &str, seconds: u32) -> Result<Process, Failure> {
    let mut python = network.kernel.command("python3");
    python.args(["-c", include_str!("noise.py"), kinds, &seconds.to_string()]);
    Ok(Process::spawn(python, "noise.py")?)
}

fn ended_well(process: Process) -> Outcome {
    let (status, said) = process.wait(PATIENCE)?;
    if !status.success() {
        return Err(Failure::Wrong(format!("it ended with {status}:\n{said}")));
    }
    Ok(())
}

/// Broken and forged frames of all kinds disturb no connection.
fn noise(network: &Network) -> Outcome {
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    let kinds = "garbage,fragments,icmp,resets,datagrams";
    let noise = start_noise(network, kinds, 4)?;
    let (_, said) = start_wrk(network, 4, &[])?.wait(PATIENCE)?;
    no_wrk_errors(&said)?;
    ended_well(noise)?;
    for address in Network::SKINK {
        let mut shell = network.kernel.command("bash");
        shell.args(["-c", &site.fetch_and_compare(address, Nginx::PORT, "large")]);
        Network::finish(shell, &format!("fetching from {address}"), PATIENCE)?;
    }
    nginx.stop()
}

/// Connection requests from forged addresses, more than may wait, keep nobody out.
fn flood(network: &Network) -> Outcome {
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    let noise = start_noise(network, "requests", 3)?;
    wait(Duration::from_millis(1_500));
    let during = fetches(network, 20)?;
    ended_well(noise)?;
    let after = fetches(network, 20)?;
    // While the wire is full a request can be lost; it comes again after a second.
    if during < 10 || after < 20 {
        let text = format!("of 20 fetches {during} succeeded during the flood, {after} after it");
        return Err(Failure::Wrong(text));
    }
    nginx.stop()
}

/// How many of `count` fetches succeed within 2 s each.
fn fetches(network: &Network, count: u32) -> Result<u32, Failure> {
    let address = Network::SKINK[0];
    let script = format!(
        "for i in $(seq {count}); do curl -s --max-time 2 -o /dev/null http://{address}/tiny && echo fetched; done; true"
    );
    let mut shell = network.kernel.command("bash");
    shell.args(["-c", &script]);
    let said = Network::finish(shell, "curl", PATIENCE)?;
    Ok(said.lines().count() as u32)
}

/// The program outlives `skink run` or `skink up` that is killed: it goes on with the stack that it has.
fn killed_run(network: &Network) -> Outcome {
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    let (master, list) = nginx.workers()?;
    let load = start_wrk(network, 3, &[])?;
    wait(Duration::from_secs(1));
    let holder = network.up.as_ref().unwrap_or(&nginx.process);
    network.up_is_dead.set(true);
    signal(holder.id(), Signal::KILL)?;
    let (_, said) = load.wait(PATIENCE)?;
    let outcome = no_wrk_errors(&said).and_then(|()| all_is_well(network));
    // Nobody else is left to end it.
    signal(master, Signal::TERM)?;
    let mut all = list;
    all.push(master);
    wait_until_ended(&all, Duration::from_secs(10))?;
    outcome
}
