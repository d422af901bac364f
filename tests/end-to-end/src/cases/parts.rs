//! What the death of one of a stack's processes stops, and what it doesn't.

mod confined;
mod failing;
mod farewell;
mod faults;
mod flows;
mod load;
mod reach;
mod spoilt;
mod stateless;
mod steered;
mod supervisor;
mod taken_over;
mod unheard;
mod upgrade;

use super::on;
use crate::network::{Network, Plan};
use crate::site::{Nginx, PATIENCE, Site};
use crate::{BackEnd, Case, Failure, Outcome, Topology};
use rustix::process::Signal;
use skink_testbed::Process;
use std::path::{Path, PathBuf};

pub fn cases() -> Vec<Case> {
    let plan = |topology, rules| Plan {
        rules,
        ..Plan::plain(topology, BackEnd::Packet)
    };
    let mut cases = Vec::new();
    let mut add = |plan: Plan, name: &str, run: fn(&Network) -> Outcome| {
        cases.push(on(plan, &plan.prefixed(&format!("parts/{name}")), run));
    };
    for topology in [Topology::Split, Topology::Single] {
        let (open, filtered) = (plan(topology, None), plan(topology, Some(STATEFUL)));
        add(filtered, "killed-one-by-one", killed_one_by_one);
        add(open, "stopped", stopped);
        add(open, "told-of-the-end", farewell::told);
        add(open, "confined", confined::confined);
        add(open, "taken-over", taken_over::taken_over);
        let xdp = Plan {
            back_end: BackEnd::Xdp,
            ..open
        };
        add(xdp, "confined", confined::confined);
        add(xdp, "taken-over", taken_over::taken_over);
        add(open, "killed-under-load", load::killed);
        add(open, "upgraded", upgrade::upgraded);
        add(open, "upgraded-under-load", load::upgraded);
        add(steered::plan(topology), "upgraded", steered::handed_on);
        add(steered::plan(topology), "killed-under-load", load::killed);
    }
    let open = plan(Topology::Split, None);
    add(open, "refused-builds", upgrade::refused);
    add(open, "faults-injected", faults::injected);
    add(open, "killed-supervisor", supervisor::killed);
    add(open, "stopped-supervisor", supervisor::stopped);
    add(
        open,
        "killed-supervisor-at-work",
        supervisor::killed_at_work,
    );
    add(open, "killed-with-standby", supervisor::killed_with_standby);
    add(open, "stopped-standby", supervisor::stopped_standby);
    add(open, "failing", failing::failing);
    let filtered = plan(Topology::Split, Some(flows::RULES));
    add(filtered, "datagrams-under-way", flows::datagrams);
    let topologies = [Topology::Split, Topology::Single];
    cases.extend(topologies.map(|topology| stateless::case(plan(topology, None))));
    cases.extend(spoilt::cases());
    cases.extend(unheard::cases(open));
    cases
}

/// A filter that forgets a connection resets it.
const STATEFUL: &str = "
set block-policy return
block proto tcp all
pass in proto tcp to port 80 flags S/SA keep state
";

/// The names of the stack's processes, all of which run.
fn names(network: &Network) -> Result<Vec<String>, Failure> {
    let members = network.members()?;
    let expected = match network.plan.topology {
        Topology::Split => 7,
        Topology::Library | Topology::Single => 1,
    };
    if members.len() != expected || members.iter().any(|it| it.pid.is_none()) {
        return Err(Failure::Wrong(format!("what runs is {members:?}")));
    }
    Ok(members.into_iter().map(|it| it.name).collect())
}

/// A curl that takes three mebibytes a second of a file, and then compares.
struct Download {
    process: Process,
    copy: PathBuf,
}

impl Download {
    fn start(network: &Network, copy: &Path, original: &Path) -> Result<Download, Failure> {
        let script = format!(
            "curl -sS --fail --limit-rate 3M -o {copy} http://{address}:80/larger && cmp {copy} {original}",
            address = Network::SKINK[0],
            copy = copy.display(),
            original = original.display()
        );
        let mut shell = network.kernel.command("bash");
        shell.args(["-c", &script]);
        let download = Download {
            process: Process::spawn(shell, "a download")?,
            copy: copy.to_owned(),
        };
        download.goes_on()?;
        Ok(download)
    }

    fn received(&self) -> u64 {
        self.copy.metadata().map_or(0, |file| file.len())
    }

    /// Waits until more has come than can have been on its way when this was called.
    fn goes_on(&self) -> Outcome {
        let before = self.received();
        let more = || self.received() > before + 2 * RECEIVE_BUFFER;
        Ok(self.process.wait_until("more has come", more)?)
    }

    fn finish(self) -> Outcome {
        let (status, said) = self.process.wait(PATIENCE)?;
        match status.success() {
            true => Ok(()),
            false => Err(Failure::Wrong(format!(
                "the download ended with {status}: {said}"
            ))),
        }
    }
}

/// What the kernel takes in for a program that doesn't read, in bytes.
const RECEIVE_BUFFER: u64 = 128 * 1024;

/// Keeps the kernel from taking in megabytes ahead of a program that reads slowly: those would be
/// received also if the connection were lost.
fn bound_receive_buffers(network: &Network) -> Outcome {
    let mut shell = network.kernel.command("sh");
    let script = format!("echo 4096 65536 {RECEIVE_BUFFER} >/proc/sys/net/ipv4/tcp_rmem");
    shell.args(["-c", &script]);
    Network::finish(shell, "setting tcp_rmem", PATIENCE).map(drop)
}

/// A download goes on through what happens to each process in turn, and comes out whole.
fn one_by_one(network: &Network, by: Signal) -> Outcome {
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    bound_receive_buffers(network)?;
    let names = names(network)?;
    let original = site.path("larger");
    let download = Download::start(network, &site.path("copy"), &original)?;
    for name in names {
        network.replace(&name, by)?;
        let after = |failure| match failure {
            Failure::Wrong(what) => Failure::Wrong(format!("after {by:?} to {name}: {what}")),
            skip => skip,
        };
        download.goes_on().map_err(after)?;
    }
    download.finish()?;
    // And new connections find it all in order.
    Download::start(network, &site.path("copy-2"), &original)?.finish()?;
    nginx.stop()
}

fn killed_one_by_one(network: &Network) -> Outcome {
    one_by_one(network, Signal::KILL)
}

/// One that doesn't go on is replaced as one that has ended.
fn stopped(network: &Network) -> Outcome {
    one_by_one(network, Signal::STOP)
}
