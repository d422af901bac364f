//! What the death of a supervisor stops, and what it doesn't.
use super::{Download, names};
use crate::cases::{children, python};
use crate::member::Member;
use crate::network::Network;
use crate::site::{Nginx, PATIENCE, Site};
use crate::{Failure, Outcome};
use rustix::process::Signal;
use skink_testbed::{signal, wait_until_ended};
use std::time::Duration;

fn supervisor(network: &Network) -> Result<u32, Failure> {
    let supervisor = network.supervisor()?;
    supervisor.ok_or_else(|| Failure::Wrong("there is no supervisor".to_owned()))
}

/// Waits until another process is the supervisor, and the one before is gone.
fn succeeded(network: &Network, nginx: &Nginx, before: u32) -> Outcome {
    nginx.process.wait_until("another one is there", || {
        let now = network.supervisor();
        now.is_ok_and(|now| now.is_some_and(|now| now != before))
    })?;
    Ok(wait_until_ended(&[before], PATIENCE)?)
}

/// The processes of the stack, if none of them is missing.
fn all_run(network: &Network) -> Option<Vec<Member>> {
    let members = network.members().ok()?;
    members.iter().all(|it| it.pid.is_some()).then_some(members)
}

fn pid_of(members: &[Member], name: &str) -> u32 {
    let member = members.iter().find(|it| it.name == name);
    member.and_then(|it| it.pid).unwrap_or(0)
}

/// The supervisor's standby goes on in its place, and starts what dies.
pub fn killed(network: &Network) -> Outcome {
    replaced(network, Signal::KILL)
}

/// One that doesn't go on is replaced as one that has ended.
pub fn stopped(network: &Network) -> Outcome {
    replaced(network, Signal::STOP)
}

fn replaced(network: &Network, by: Signal) -> Outcome {
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    let original = site.path("larger");
    network.up_is_dead.set(true);
    for round in 0..2 {
        let copy = site.path(&format!("copy-{round}"));
        let download = Download::start(network, &copy, &original)?;
        let supervisor = supervisor(network)?;
        signal(supervisor, by)?;
        succeeded(network, &nginx, supervisor)?;
        let before = network.members()?;
        let tcp = before.iter().find(|it| it.name == "tcp");
        signal(tcp.and_then(|it| it.pid).unwrap_or(0), Signal::KILL)?;
        nginx.process.wait_until("tcp is started again", || {
            all_run(network).is_some_and(|now| now != before)
        })?;
        download.goes_on()?;
        download.finish()?;
    }
    // A program that comes now is served, and its end is noticed.
    Download::start(network, &site.path("copy-2"), &original)?.finish()?;
    nginx.stop()
}

/// An nginx on a stack of which all processes run, and these.
fn served(network: &Network) -> Result<(Site, Nginx, Vec<u32>), Failure> {
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    names(network)?;
    let members = network.members()?;
    let all = members.into_iter().filter_map(|it| it.pid).collect();
    Ok((site, nginx, all))
}

/// Programs are served on without anybody who supervises; once they have ended nothing is left.
pub fn killed_with_standby(network: &Network) -> Outcome {
    let (site, nginx, all) = served(network)?;
    let download = Download::start(network, &site.path("copy"), &site.path("larger"))?;
    network.up_is_dead.set(true);
    let supervisor = network.supervisor()?.unwrap_or(0);
    let standby = standby_of(supervisor, &all)?;
    // The standby first: else it would go on.
    signal(standby, Signal::STOP)?;
    signal(supervisor, Signal::KILL)?;
    signal(standby, Signal::KILL)?;
    download.finish()?;
    nginx.stop()?;
    Ok(wait_until_ended(&all, Duration::from_secs(10))?)
}

/// The child of a supervisor that is none of the stack's processes.
fn standby_of(supervisor: u32, members: &[u32]) -> Result<u32, Failure> {
    let mut others = children(supervisor)?.into_iter();
    let standby = others.find(|pid| !members.contains(pid));
    standby.ok_or_else(|| Failure::Wrong("there is no standby".to_owned()))
}

/// A standby that is stopped would take nothing over: there is another one soon, and that does.
pub fn stopped_standby(network: &Network) -> Outcome {
    let (site, nginx, all) = served(network)?;
    let before = supervisor(network)?;
    let stopped = standby_of(before, &all)?;
    signal(stopped, Signal::STOP)?;
    nginx.process.wait_until("there is another standby", || {
        standby_of(before, &all).is_ok_and(|now| now != stopped)
    })?;
    let download = Download::start(network, &site.path("copy"), &site.path("larger"))?;
    network.up_is_dead.set(true);
    signal(before, Signal::KILL)?;
    succeeded(network, &nginx, before)?;
    download.finish()?;
    nginx.stop()
}

/// A program that is served as soon as it says so.
const SERVER: &str = "
import socket, sys
s = socket.socket()
s.bind(('10.9.0.2', int(sys.argv[1])))
s.listen()
print('listens', flush=True)
s.accept()
";

/// Its children end one after the other, each with its number given to the next, but for the last, which serves.
const FORKING: &str = "
import os, socket, sys
s = socket.socket()
s.bind(('10.9.0.2', int(sys.argv[1])))
s.listen()
for child in range(5):
    pid = os.fork()
    if pid == 0:
        if child == 4:
            s.accept()
        os._exit(0)
    if child < 4:
        os.waitpid(pid, 0)
print('listens', flush=True)
os.waitpid(pid, 0)
";

/// It is killed in the moment in which it has started a successor of `tcp`, or in which a program was
/// granted a stack: its standby knows of both. One `tcp` goes on, and the program's end is heard.
pub fn killed_at_work(network: &Network) -> Outcome {
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    network.up_is_dead.set(true);
    for round in 0..3 {
        let copy = site.path(&format!("copy-{round}"));
        let download = Download::start(network, &copy, &site.path("larger"))?;
        let old = supervisor(network)?;
        let tcp = pid_of(&network.members()?, "tcp");
        let known = children(old)?;
        signal(tcp, Signal::KILL)?;
        let mut begun = None;
        nginx.process.wait_until("tcp is started", || {
            begun = successor_of_tcp(old, &known);
            begun.is_some()
        })?;
        signal(old, Signal::KILL)?;
        succeeded(network, &nginx, old)?;
        nginx
            .process
            .wait_until("all run", || all_run(network).is_some())?;
        let now = pid_of(&network.members()?, "tcp");
        if let Some(begun) = begun.filter(|begun| *begun != now) {
            wait_until_ended(&[begun], PATIENCE)?;
        }
        download.goes_on()?;
        attached_just_before(network, &nginx, SERVER, 7_000 + round)?;
        attached_just_before(network, &nginx, FORKING, 7_100 + round)?;
        download.finish()?;
    }
    nginx.stop()
}

fn successor_of_tcp(supervisor: u32, known: &[u32]) -> Option<u32> {
    let mut new = children(supervisor).ok()?.into_iter();
    new.find(|pid| {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        !known.contains(pid) && command.ends_with(b"component\0tcp\0")
    })
}

fn attached_just_before(network: &Network, nginx: &Nginx, script: &str, port: u16) -> Outcome {
    let old = supervisor(network)?;
    let arguments = [&*port.to_string()];
    let program = python::start(network, "a program", script, &arguments, "listens")?;
    signal(old, Signal::KILL)?;
    let mut processes = children(program.id())?;
    processes.push(program.id());
    succeeded(network, nginx, old)?;
    let are_known = |known: bool| {
        let all = network.programs();
        all.is_ok_and(|all| processes.iter().all(|id| all.contains(id) == known))
    };
    program.wait_until("its supervisor knows it", || are_known(true))?;
    network.wait_for(&program, Network::SKINK[0], port)?;
    program.wait(PATIENCE)?;
    let text = "its end is heard";
    nginx.process.wait_until(text, || are_known(false))?;
    Ok(())
}
