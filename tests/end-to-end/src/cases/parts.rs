//! Topology `split`: what the death of one of its processes stops, and what it doesn't.

use super::on;
use crate::network::{Network, Plan};
use crate::site::{Nginx, PATIENCE, Site};
use crate::{BackEnd, Case, Failure, Outcome, Topology};
use rustix::process::Signal;
use skink_testbed::{Process, signal, wait_until_ended};
use std::path::Path;
use std::time::Duration;

pub fn cases() -> Vec<Case> {
    let plan = |rules| Plan {
        topology: Topology::Split,
        back_end: BackEnd::Packet,
        mtu: 1_500,
        impairments: None,
        rules,
    };
    let (filtered, open) = (plan(Some(STATEFUL)), plan(None));
    let mut cases = vec![
        on(
            open,
            &open.prefixed("parts/killed-one-by-one"),
            killed_one_by_one,
        ),
        on(
            filtered,
            &filtered.prefixed("parts/killed-behind-rules"),
            killed_one_by_one,
        ),
        on(
            open,
            &open.prefixed("parts/killed-supervisor"),
            killed_supervisor,
        ),
    ];
    // A network for each: who dies again and again is started again later and later.
    cases.extend(LANES.map(|(lane, holder)| {
        let name = format!("parts/spoilt-{}", lane.trim_start_matches("skink-"));
        Case::new(filtered.prefixed(&name), move || {
            let network = Network::new(filtered)?;
            spoilt_lane(&network, lane, holder)?;
            network.stop()
        })
    }));
    cases
}

/// A filter that forgets a connection resets it.
const STATEFUL: &str = "
set block-policy return
block proto tcp all
pass in proto tcp to port 80 flags S/SA keep state
";

/// The process that hosts this part, and how often it was started again.
fn find(network: &Network, name: &str) -> Result<(Option<u32>, u64), Failure> {
    let mut command = network.skink.command(&Network::tool()?.to_string_lossy());
    command.args(["ps", "--json"]);
    let text = Network::finish(command, "skink ps", PATIENCE)?;
    let missing = || Failure::Wrong(format!("no process {name} in what skink ps says:\n{text}"));
    let report: serde_json::Value = serde_json::from_str(&text)?;
    let processes = report["instances"][0]["processes"].as_array();
    let process = processes
        .into_iter()
        .flatten()
        .find(|it| it["name"] == name);
    let process = process.ok_or_else(missing)?;
    let pid = process["pid"].as_u64().and_then(|pid| pid.try_into().ok());
    let runs = process["state"] == "running";
    Ok((
        pid.filter(|_| runs),
        process["restarts"].as_u64().unwrap_or(0),
    ))
}

fn start_download(network: &Network, copy: &Path, original: &Path) -> Result<Process, Failure> {
    let script = format!(
        "curl -sS --fail --limit-rate 2M -o {copy} http://{address}:80/larger && cmp {copy} {original}",
        address = Network::SKINK[0],
        copy = copy.display(),
        original = original.display()
    );
    let mut shell = network.kernel.command("bash");
    shell.args(["-c", &script]);
    let download = Process::spawn(shell, "a download")?;
    download.wait_until("it has begun", || {
        copy.metadata().is_ok_and(|file| file.len() > 0)
    })?;
    Ok(download)
}

fn finished(download: Process) -> Outcome {
    let (status, said) = download.wait(PATIENCE)?;
    match status.success() {
        true => Ok(()),
        false => Err(Failure::Wrong(format!(
            "the download ended with {status}: {said}"
        ))),
    }
}

/// A download goes on through the death of each of them, and comes out whole.
fn killed_one_by_one(network: &Network) -> Outcome {
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    let download = start_download(network, &site.path("copy"), &site.path("larger"))?;
    for name in ["link", "ip", "filter", "store", "syscall"] {
        let (pid, restarts) = find(network, name)?;
        let pid = pid.ok_or_else(|| Failure::Wrong(format!("{name} doesn't run")))?;
        signal(pid, Signal::KILL)?;
        nginx.process.wait_until("it is started again", || {
            find(network, name).is_ok_and(|(pid, now)| pid.is_some() && now == restarts + 1)
        })?;
    }
    finished(download)?;
    // And new connections find it all in order.
    finished(start_download(
        network,
        &site.path("copy-2"),
        &site.path("larger"),
    )?)?;
    nginx.stop()
}

/// Programs are served on without a supervisor; once they have ended nothing is left.
fn killed_supervisor(network: &Network) -> Outcome {
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    let mut all = Vec::new();
    for name in ["link", "ip", "filter", "udp", "tcp", "syscall", "store"] {
        let (pid, _) = find(network, name)?;
        all.extend(pid);
    }
    if all.len() != 7 {
        return Err(Failure::Wrong(format!("only {all:?} run")));
    }
    let download = start_download(network, &site.path("copy"), &site.path("larger"))?;
    network.up_is_dead.set(true);
    if let Some(up) = &network.up {
        signal(up.id(), Signal::KILL)?;
    }
    finished(download)?;
    nginx.stop()?;
    Ok(wait_until_ended(&all, Duration::from_secs(10))?)
}

/// Memory between components, and one that holds it.
const LANES: [(&str, &str); 7] = [
    ("skink-link-ip", "link"),
    ("skink-ip-filter", "filter"),
    ("skink-ip-tcp", "tcp"),
    ("skink-ip-udp", "udp"),
    ("skink-tcp-syscall", "tcp"),
    ("skink-udp-syscall", "udp"),
    ("skink-store", "store"),
];

/// Writes nonsense to memory of that name, which a process holds.
const SPOIL: &str = "
import mmap, os, random, struct, sys, time
pid, name, draw = sys.argv[1], sys.argv[2], random.Random(1)
maps = []
for fd in os.listdir(f'/proc/{pid}/fd'):
    path = f'/proc/{pid}/fd/{fd}'
    if os.readlink(path).startswith(f'/memfd:{name} '):
        fd = os.open(path, os.O_RDWR)
        maps.append(mmap.mmap(fd, os.fstat(fd).st_size))
assert maps, f'process {pid} has no memory called {name}'
end = time.monotonic() + 0.3
while time.monotonic() < end:
    for memory in maps:
        words = len(memory) // 8
        for at in [16] + [draw.randrange(16, words) for _ in range(50)]:
            struct.pack_into('Q', memory, at * 8, draw.getrandbits(64))
";

/// Uses all of the stack, whatever comes of it.
const POKE: &str = "
import socket
for round in range(20):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        try:
            with socket.socket(socket.AF_INET, kind) as s:
                s.settimeout(0.1)
                s.bind(('10.9.0.2', 0))
                s.connect(('10.9.0.1', 9))
                s.send(b'poke')
                s.recv(1)
        except OSError:
            pass
";

/// From outside.
const KNOCK: &str = "
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    for round in range(20):
        s.sendto(b'knock', ('10.9.0.2', 9))
";

/// How often processes of the stack were started again; `None` while some don't run.
fn restarts(network: &Network) -> Result<Option<u64>, Failure> {
    let mut sum = 0;
    for name in ["link", "ip", "filter", "udp", "tcp", "syscall", "store"] {
        let (pid, restarts) = find(network, name)?;
        sum += restarts;
        if pid.is_none() {
            return Ok(None);
        }
    }
    Ok(Some(sum))
}

/// Spoilt memory between components is noticed, and they are made anew: what was there before ends, without
/// anybody hanging, and what comes afterwards is served.
fn spoilt_lane(network: &Network, lane: &str, holder: &str) -> Outcome {
    if !skink_testbed::is_root() {
        return Err(Failure::Skip(
            "another's memory is root's to spoil".to_owned(),
        ));
    }
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    let download = start_download(network, &site.path("copy"), &site.path("larger"))?;
    let before = restarts(network)?;
    let (pid, _) = find(network, holder)?;
    let pid = pid.unwrap_or(0).to_string();
    let mut spoil = network.skink.command("python3");
    spoil.args(["-c", SPOIL, &pid, lane]);
    Network::finish(spoil, &format!("spoiling {lane}"), PATIENCE)?;
    let mut knock = network.kernel.command("python3");
    knock.args(["-c", KNOCK]);
    Network::finish(knock, "knocking", PATIENCE)?;
    let poke = network.skink_run("python3", ["-c", POKE])?;
    let poke = Process::spawn(poke, "a program")?;
    let up = network.up.as_ref().unwrap_or(&nginx.process);
    up.wait_until(&format!("all is made anew after {lane} was spoilt"), || {
        restarts(network).is_ok_and(|now| now.is_some() && now > before)
    })?;
    // It may have found no stack while there was none.
    poke.wait(PATIENCE)?;
    let (_, said) = nginx.process.stop()?;
    // It is told that its stack is lost, once for each worker and listening socket; not for ever.
    if said.lines().count() > 100 {
        return Err(Failure::Wrong(format!(
            "nginx said {} lines",
            said.lines().count()
        )));
    }
    // Whether it failed is for TCP to say.
    download.wait(PATIENCE)?;
    std::fs::remove_file(site.path("copy"))?;
    let nginx = Nginx::on_skink(network, &site)?;
    let mut shell = network.kernel.command("bash");
    let fetch = site.fetch_and_compare(Network::SKINK[0], Nginx::PORT, "larger");
    shell.args(["-c", &fetch]);
    Network::finish(shell, "a fetch afterwards", PATIENCE)?;
    nginx.stop()
}
