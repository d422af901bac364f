//! Memory between the processes of a stack that is full of nonsense.

use super::{Download, STATEFUL};
use crate::cases::python;
use crate::network::{Network, Plan};
use crate::site::{Nginx, PATIENCE, Site};
use crate::{BackEnd, Case, Failure, Outcome, Topology};
use skink_testbed::Process;

pub fn cases() -> Vec<Case> {
    let plan = Plan {
        rules: Some(STATEFUL),
        ..Plan::plain(Topology::Split, BackEnd::Packet)
    };
    // A network for each: who dies again and again is started again later and later.
    let cases = LANES.map(|(lane, holder)| {
        let name = format!("parts/spoilt-{}", lane.trim_start_matches("skink-"));
        Case::new(plan.prefixed(&name), move || {
            let network = Network::new(plan)?;
            spoilt_lane(&network, lane, holder)?;
            network.stop()
        })
    });
    cases.into()
}

/// Memory between components, and one that holds it.
const LANES: [(&str, &str); 7] = [
    ("skink-link-ip", "link"),
    ("skink-ip-filter", "filter"),
    ("skink-ip-tcp", "tcp"),
    ("skink-ip-udp", "udp"),
    ("skink-tcp-syscall", "tcp"),
    ("skink-udp-syscall", "udp"),
    ("skink-store-syscall", "store"),
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
    let members = network.members()?;
    let all_run = members.iter().all(|it| it.pid.is_some());
    Ok(all_run.then(|| members.iter().map(|it| it.restarts).sum()))
}

/// Spoilt memory between components is noticed, and they are made anew. The connection that there was goes
/// on, nobody hangs, and what comes afterwards is served.
fn spoilt_lane(network: &Network, lane: &str, holder: &str) -> Outcome {
    if !skink_testbed::is_root() {
        return Err(Failure::Skip(
            "another's memory is root's to spoil".to_owned(),
        ));
    }
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    let download = Download::start(network, &site.path("copy"), &site.path("larger"))?;
    let before = restarts(network)?;
    let members = network.members()?;
    let pid = members.iter().find(|it| it.name == holder);
    let pid = pid.and_then(|it| it.pid).unwrap_or(0).to_string();
    let mut spoil = network.skink.command("python3");
    spoil.args(["-c", SPOIL, &pid, lane]);
    Network::finish(spoil, &format!("spoiling {lane}"), PATIENCE)?;
    python::finish_on_kernel(network, "knocking", KNOCK, &[])?;
    let poke = network.skink_run("python3", ["-c", POKE])?;
    let poke = Process::spawn(poke, "a program")?;
    let tool = Network::tool()?.to_string_lossy().into_owned();
    let up = network.up.as_ref().unwrap_or(&nginx.process);
    up.wait_until(&format!("all is made anew after {lane} was spoilt"), || {
        restarts(network).is_ok_and(|now| now.is_some() && now > before)
    })?;
    // It may have found no stack while there was none.
    poke.wait(PATIENCE)?;
    download.finish().map_err(|failure| match failure {
        Failure::Wrong(what) => {
            let stat = network.skink.command(&tool).arg("stat").output();
            let stat = stat.map(|out| String::from_utf8_lossy(&out.stdout).into_owned());
            Failure::Wrong(format!("{what}; skink up printed:\n{}\n{stat:?}", up.log()))
        }
        skip => skip,
    })?;
    Download::start(network, &site.path("copy-2"), &site.path("larger"))?.finish()?;
    nginx.stop()
}
