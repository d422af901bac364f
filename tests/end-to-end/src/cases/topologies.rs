//! A stack as files say: in processes and on processors of one's own choice, for users of one's own choice.

use super::users::Build;
use crate::network::{Network, Plan};
use crate::site::{Nginx, PATIENCE, Site};
use crate::{BackEnd, Case, Failure, Outcome, Topology};
use rustix::process::Signal;
use skink_testbed::{Process, Scratch};
use std::fs::read_to_string;

pub fn cases() -> Vec<Case> {
    vec![Case::new("files/own-topology", own_topology)]
}

/// Who may use it, and who may not.
const ALLOWED: u32 = 64001;
const STRANGER: u32 = 64002;

/// Three processes: two on a processor each, one on any. They do what the presets' do, and so do their successors, on the
/// same processors.
fn own_topology() -> Outcome {
    let mut network = Network::new(Plan::plain(Topology::Library, BackEnd::Packet))?;
    let any = allowed("self")?;
    let ends = any.split(['-', ',']).map(str::parse::<usize>);
    let ends = ends.collect::<Result<Vec<_>, _>>()?;
    let [first, .., last] = ends[..] else {
        return Err(Failure::Skip("one processor alone is no choice".to_owned()));
    };
    let build = Build::new()?;
    let files = Scratch::new("files")?;
    let topology = format!(
        "[[process]]
         name = \"wire\"
         components = [\"link\", \"ip\"]
         cores = [{first}]

         [[process]]
         name = \"sockets\"
         components = [\"tcp\", \"udp\", \"filter\"]
         cores = [{last}]

         [[process]]
         name = \"names\"
         components = [\"syscall\", \"store\"]\n"
    );
    let name = Network::name();
    let up = format!(
        "name = \"{name}\"
         topology = \"three.toml\"
         nic = \"packet:wire\"
         addresses = [\"10.9.0.2/24\", \"fd09::2/64\"]
         allow = [\"{ALLOWED}\"]\n"
    );
    std::fs::write(files.path().join("three.toml"), topology)?;
    std::fs::write(files.path().join("up.toml"), up)?;
    let mut command = network.skink.command(&Network::tool()?.to_string_lossy());
    command.args(["up", "-c"]).arg(files.path().join("up.toml"));
    let up = Process::spawn(command, "skink up -c")?;
    up.wait_until("it is ready", || up.log().contains("ready"))?;
    // Programs are started on it as on any stack that is apart from them.
    (network.plan.topology, network.up) = (Topology::Split, Some(up));

    let expected = [
        ("wire", first.to_string()),
        ("sockets", last.to_string()),
        ("names", any),
    ];
    let site = Site::new()?;
    let nginx = Nginx::on_skink(&network, &site)?;
    serves(&network, &site)?;
    pinned(&network, &expected)?;
    for (name, _) in &expected {
        network.replace(name, Signal::KILL)?;
    }
    serves(&network, &site)?;
    pinned(&network, &expected)?;

    let port = format!("http://{}:{}/tiny", Network::KERNEL[0], Nginx::PORT);
    let other = Nginx::on_kernel(&network, &site)?;
    let curl = |user| build.run(&network, user, &["curl", "-sS", "--fail", &port]);
    Network::finish(curl(ALLOWED), "the curl of who is named", PATIENCE)?;
    let stranger = Process::spawn(curl(STRANGER), "a stranger's curl")?;
    let (status, said) = stranger.wait(PATIENCE)?;
    if status.success() || !said.contains("allow") {
        let text = format!("a stranger's curl ended with {status}:\n{said}");
        return Err(Failure::Wrong(text));
    }
    other.stop()?;
    nginx.stop()?;
    network.stop()
}

fn serves(network: &Network, site: &Site) -> Outcome {
    for address in Network::SKINK {
        let mut shell = network.kernel.command("bash");
        shell.args([
            "-c",
            &site.fetch_and_compare(address, Nginx::PORT, "larger"),
        ]);
        Network::finish(shell, &format!("fetching from {address}"), PATIENCE)?;
    }
    Ok(())
}

/// Every thread of each process may use the processors that it should, and `skink ps` says which.
fn pinned(network: &Network, expected: &[(&str, String)]) -> Outcome {
    for (name, cores) in expected {
        let process = network.report("processes", |it| it["name"] == *name)?;
        let process = process.ok_or_else(|| Failure::Wrong(format!("there is no {name}")))?;
        let pid = process["pid"].to_string();
        for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
            let task = task?.file_name();
            let found = allowed(&format!("{pid}/task/{}", task.to_string_lossy()))?;
            if found != *cores {
                let text = format!("{name} may run on {found}, should on {cores}: {process}");
                return Err(Failure::Wrong(text));
            }
        }
    }
    Ok(())
}

/// The processors that a process or thread may run on, as the kernel writes them.
fn allowed(task: &str) -> Result<String, Failure> {
    let status = read_to_string(format!("/proc/{task}/status"))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let list = line.map(|list| list.trim().to_owned());
    list.ok_or(Failure::Wrong(status))
}
