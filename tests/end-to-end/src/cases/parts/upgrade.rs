//! Another build that takes the place of processes while they work, or can't.

use super::{Download, bound_receive_buffers, names};
use crate::network::Network;
use crate::site::{Nginx, PATIENCE, Site};
use crate::upgrade::{Upgrade, copy_of_build};
use crate::{Failure, Outcome};
use skink_testbed::{Process, Scratch};
use std::path::{Path, PathBuf};
use std::process::Command;

/// As `skink upgrade` calls it.
const SUPERVISOR: &str = "supervisor";
/// Programs in the place of a build.
const BUILDS: &str = include_str!("builds.c");
/// The one of them that ends as a supervisor.
pub const BUILD_THAT_DIES: &str = "DIES_AS_HEIR";

/// Whether all processes of the stack execute this file.
fn all_execute(network: &Network, file: &Path) -> Result<bool, Failure> {
    let members = network.members()?;
    let files = members.iter().map(|it| executed(it.pid.unwrap_or(0)));
    let files: Vec<PathBuf> = files.collect::<Result<_, _>>()?;
    Ok(files.iter().all(|it| it == file))
}

fn executed(pid: u32) -> Result<PathBuf, Failure> {
    Ok(std::fs::read_link(format!("/proc/{pid}/exe"))?)
}

/// The supervisor, which executes this file.
fn supervisor_executes(network: &Network, file: &Path) -> Result<u32, Failure> {
    let pid = network.supervisor()?.unwrap_or(0);
    match executed(pid)? {
        found if found == file => Ok(pid),
        found => Err(Failure::Wrong(format!(
            "the supervisor executes {} instead of {}",
            found.display(),
            file.display()
        ))),
    }
}

/// A download goes on while every process becomes another build, one after the other, and the supervisor last, which
/// stays the same process; also alone, and back. Programs that start meanwhile are served.
pub fn upgraded(network: &Network) -> Outcome {
    let scratch = Scratch::new("build")?;
    let other = copy_of_build(&scratch)?;
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    bound_receive_buffers(network)?;
    let own = std::fs::canonicalize(Network::tool()?)?;
    let supervisor = supervisor_executes(network, &own)?;
    let mut names = names(network)?;
    names.push(SUPERVISOR.to_owned());
    let download = Download::start(network, &site.path("copy"), &site.path("larger"))?;
    let upgrade = network.upgrade(&[], &other)?;
    let processes = upgrade.processes()?;
    let told: Vec<&str> = processes
        .iter()
        .filter_map(|it| it["name"].as_str())
        .collect();
    let all_away = processes.iter().all(|it| it["away_ms"].is_f64());
    if upgrade.code != Some(0) || told != names || !all_away || !all_execute(network, &other)? {
        return Err(upgrade.wrong("not all processes are of the other build"));
    }
    download.goes_on()?;
    download.finish()?;
    if supervisor_executes(network, &other)? != supervisor {
        return Err(upgrade.wrong("the supervisor is another process"));
    }
    let download = Download::start(network, &site.path("copy-3"), &site.path("larger"))?;
    let alone = changed_under_programs(network, &own)?;
    if supervisor_executes(network, &own)? != supervisor {
        return Err(alone.wrong("the supervisor isn't of the first build again"));
    }
    download.goes_on()?;
    // What a component is called is enough to name the process that hosts it.
    let back = network.upgrade(&["tcp"], &Network::tool()?)?;
    if back.code != Some(0) || back.processes()?.len() != 1 || all_execute(network, &other)? {
        return Err(back.wrong("tcp isn't of the first build again"));
    }
    download.goes_on()?;
    let restarts: u64 = network.members()?.iter().map(|it| it.restarts).sum();
    if restarts != 0 {
        return Err(Failure::Wrong(format!(
            "{restarts} processes died meanwhile"
        )));
    }
    download.finish()?;
    Download::start(network, &site.path("copy-2"), &site.path("larger"))?.finish()?;
    nginx.stop()
}

/// The supervisor alone becomes this build while programs attach, each of which finds a server on Skink.
pub fn changed_under_programs(network: &Network, build: &Path) -> Result<Upgrade, Failure> {
    let address = Network::SKINK[0];
    let each = ["-sS", "--fail", "--max-time", "20", "-o", "/dev/null"];
    let page = format!("http://{address}:80/tiny");
    let programs = (0..4).map(|_| {
        let command = network.skink_run("curl", each.iter().copied().chain([page.as_str()]))?;
        Ok(Process::spawn(command, "curl on Skink")?)
    });
    let early: Vec<Process> = programs.collect::<Result<_, Failure>>()?;
    let upgrade = network.upgrade(&[SUPERVISOR], build)?;
    if upgrade.code != Some(0) || upgrade.processes()?.len() != 1 {
        return Err(upgrade.wrong("the supervisor isn't of the other build"));
    }
    for program in early {
        let (status, said) = program.wait(PATIENCE)?;
        if !status.success() {
            return Err(Failure::Wrong(format!(
                "a program ended with {status}:\n{said}"
            )));
        }
    }
    Ok(upgrade)
}

/// A build that can't take over changes nothing; one that dies soon after it has is taken back, everywhere.
pub fn refused(network: &Network) -> Outcome {
    let scratch = Scratch::new("build")?;
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    bound_receive_buffers(network)?;
    let own = std::fs::canonicalize(Network::tool()?)?;
    let download = Download::start(network, &site.path("copy"), &site.path("larger"))?;
    let (before, names) = (network.members()?, names(network)?);
    let is_nothing = |upgrade: &Upgrade, expected: &str| match upgrade.code == Some(1)
        && upgrade.said.contains(expected)
        && network.members()? == before
    {
        true => Ok(()),
        false => Err(upgrade.wrong("something else than nothing was done")),
    };
    let none = network.upgrade(&["nonesuch"], &own)?;
    is_nothing(&none, "nothing called nonesuch runs")?;
    let text = network.upgrade(&[], Path::new("/etc/passwd"))?;
    is_nothing(&text, "isn't an executable file")?;
    let other = network.upgrade(&[], Path::new("/bin/true"))?;
    is_nothing(&other, "isn't a build of skink")?;
    let silent = build(&scratch, "SAYS_NOTHING")?;
    is_nothing(&network.upgrade(&[], &silent)?, "it says nothing for")?;
    let records = build(&scratch, "OTHER_RECORDS")?;
    let records = network.upgrade(&[], &records)?;
    is_nothing(&records, "connection records: version")?;
    download.finish()?;

    let dies = build(&scratch, "DIES_SOON")?;
    let download = Download::start(network, &site.path("copy-2"), &site.path("larger"))?;
    let dying = network.upgrade(&[], &dies)?;
    let (first, rest) = (&names[0], dying.processes()?);
    let taken_back = rest.last().is_some_and(|it| it["name"] == **first);
    if dying.code != Some(1) || !dying.said.contains("signal 14") || !taken_back {
        return Err(dying.wrong("the build wasn't taken back"));
    }
    if !all_execute(network, &own)? {
        return Err(dying.wrong("a process is of a build that is no good"));
    }
    download.finish()?;
    for which in ["NO_HEIR", BUILD_THAT_DIES] {
        not_inherited(network, &build(&scratch, which)?, &own)?;
    }
    let download = Download::start(network, &site.path("copy-3"), &site.path("larger"))?;
    download.finish()?;
    nginx.stop()
}

/// A build that can't be the supervisor is taken back: the standby of the one before goes on.
pub fn not_inherited(network: &Network, build: &Path, own: &Path) -> Outcome {
    let before = (network.members()?, network.supervisor()?);
    network.up_is_dead.set(true);
    let upgrade = network.upgrade(&[SUPERVISOR], build)?;
    let after = (network.members()?, network.supervisor()?);
    let is_kept = upgrade.code != Some(1) || !upgrade.said.contains("it ended soon");
    if is_kept || after.0 != before.0 || after.1 == before.1 {
        return Err(upgrade.wrong("the supervisor before doesn't go on"));
    }
    supervisor_executes(network, own)?;
    // It can be another build's all the same.
    let again = network.upgrade(&[SUPERVISOR], own)?;
    match again.code == Some(0) && network.supervisor()? == after.1 {
        true => Ok(()),
        false => Err(again.wrong("the supervisor that went on isn't another build's")),
    }
}

pub fn build(scratch: &Scratch, which: &str) -> Result<PathBuf, Failure> {
    let source = scratch.path().join("builds.c");
    std::fs::write(&source, BUILDS)?;
    let program = scratch.path().join(which.to_lowercase());
    let skink = copy_of_build(scratch)?;
    let mut compiler = Command::new("cc");
    compiler.arg(format!("-D{which}"));
    compiler.arg(format!("-DSKINK=\"{}\"", skink.display()));
    compiler.arg("-o").arg(&program).arg(&source);
    Network::finish(compiler, "cc", PATIENCE)?;
    Ok(program)
}
