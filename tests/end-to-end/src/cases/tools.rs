//! `skink run`'s words when something isn't right, and the tools to look inside.

use super::{everywhere, in_each_topology};
use crate::network::{Network, Plan};
use crate::site::{Nginx, PATIENCE, Site};
use crate::{BackEnd, Case, Failure, Outcome, Topology};
use rustix::process::Signal;
use serde_json::Value;
use skink_testbed::Process;
use std::path::Path;
use std::process::Command;

pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case::new("run/words-for-what-is-wrong", refusals),
        Case::new("run/unprivileged-with-defaults", unprivileged),
    ];
    cases.extend(everywhere("tools/stat-ss-capture", tools));
    cases.extend(in_each_topology("tools/ps", processes));
    let calls = in_each_topology("tools/calls-resolved", calls_resolved);
    // In `library` there is nobody else to resolve them.
    cases.extend(
        calls
            .into_iter()
            .filter(|it| !it.name.starts_with("library")),
    );
    cases
}

/// Arguments of `skink run`, and what its last words must hold.
const REFUSALS: [(&[&str], &[&str]); 9] = [
    (
        &[
            "--nic",
            "packet:nowhere",
            "--addr",
            "10.9.0.2/24",
            "--",
            "true",
        ],
        &["nowhere", "wire"],
    ),
    (
        &["--nic", "nowhere", "--addr", "10.9.0.2/24", "--", "true"],
        &["no interface nowhere", "wire"],
    ),
    (&["--nic", "packet:wire", "--", "true"], &["--addr"]),
    (&["--nic", "wire", "--", "true"], &["--nic wire", "--addr"]),
    (&["--nic", "token:ring", "--", "true"], &["packet:"]),
    (
        &[
            "--nic",
            "packet:wire",
            "--addr",
            "10.9.0.1/24",
            "--",
            "true",
        ],
        &["10.9.0.1", "in use"],
    ),
    (
        &[
            "--nic",
            "packet:wire",
            "--addr",
            "10.9.0.300/24",
            "--",
            "true",
        ],
        &["10.9.0.300"],
    ),
    (
        &[
            "--nic",
            "packet:wire",
            "--addr",
            "10.9.0.2/24",
            "--",
            "no-such-program",
        ],
        &["no-such-program"],
    ),
    (
        &[
            "--nic",
            "packet:wire",
            "--addr",
            "10.9.0.2/24",
            "--",
            "STATIC",
        ],
        &["static"],
    ),
];

fn refusals() -> Outcome {
    let network = Network::new(Plan::plain(Topology::Library, BackEnd::Packet))?;
    let scratch = skink_testbed::Scratch::new("static")?;
    let program = scratch.path().join("static");
    std::fs::write(&program, static_program())?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode)?;
    let tool = Network::tool()?;
    for (arguments, words) in REFUSALS {
        let mut command = network.skink.command(&tool.to_string_lossy());
        command.arg("run");
        for argument in arguments {
            if *argument == "STATIC" {
                command.arg(&program);
            } else {
                command.arg(argument);
            }
        }
        let process = Process::spawn(command, "skink run")?;
        let (status, said) = process.wait(PATIENCE)?;
        let complete = words.iter().all(|word| said.contains(word));
        if status.success() || !complete || said.contains("panicked") {
            let text =
                format!("{arguments:?} ended with {status}, expected {words:?}; it said:\n{said}");
            return Err(Failure::Wrong(text));
        }
    }
    Ok(())
}

/// `skink run` without options, by a user without rights, in a namespace of the user's own: it makes a
/// TAP, and the namespace's kernel reaches the program through it.
const UNPRIVILEGED: &str = r#"
set -e
ip link set lo up
"$1" run -- redis-server --save "" --protected-mode no --bind 0.0.0.0 &
run=$!
for attempt in $(seq 100); do
    answer=$(redis-cli -h 10.77.0.2 ping 2>/dev/null) && break
    read -rt 0.1 <> <(:) || true
done
test "$answer" = PONG
redis-cli -h 10.77.0.2 -x SET value <"$1" >/dev/null
redis-cli -h 10.77.0.2 GET value | head -c "$(stat -c %s "$1")" | cmp - "$1"
"$1" ss --all | grep -q LISTEN
kill $run
wait $run || true
ip link show skink0 >/dev/null 2>&1 && { echo "skink0 is still there"; exit 1; }
exit 0
"#;

fn unprivileged() -> Outcome {
    if !skink_testbed::is_root() {
        // The whole suite runs as that user then.
        return Err(Failure::Skip(
            "only root can become another user".to_owned(),
        ));
    }
    let scratch = skink_testbed::Scratch::new("unprivileged")?;
    let tool = Network::tool()?;
    // The build may lie where others can't look; and the device may be root's alone.
    for file in ["skink", "libskink.so"] {
        std::fs::copy(tool.with_file_name(file), scratch.path().join(file))?;
    }
    let device = scratch.path().join("tun");
    let prepare = format!(
        "chmod 755 {directory} {directory}/*; install -d -o 65534 -g 65534 -m 700 {directory}/runtime; \
         mknod -m 666 {device} c 10 200 && mkdir -p /dev/net && touch /dev/net/tun && mount --bind {device} /dev/net/tun",
        directory = scratch.path().display(),
        device = device.display()
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &prepare]);
    if let Err(Failure::Wrong(why)) = Network::finish(shell, "preparing /dev/net/tun", PATIENCE) {
        return Err(Failure::Skip(why));
    }
    let as_user = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
        command.args(["unshare", "--user", "--map-root-user", "--net"]);
        command.args(arguments).current_dir("/");
        command.env("XDG_RUNTIME_DIR", scratch.path().join("runtime"));
        command
    };
    let outcome = match Network::finish(as_user(&["true"]), "a user's namespaces", PATIENCE) {
        Err(Failure::Wrong(why)) => Err(Failure::Skip(why)),
        Err(skip) => Err(skip),
        Ok(_) => {
            let tool = scratch.path().join("skink");
            let command = as_user(&["bash", "-c", UNPRIVILEGED, "-", &tool.to_string_lossy()]);
            Network::finish(command, "an unprivileged user", PATIENCE)
        }
    };
    let mut shell = Command::new("umount");
    shell.arg("/dev/net/tun");
    Network::finish(shell, "umount", PATIENCE)?;
    outcome.map(drop)
}

/// The smallest ELF program for x86-64 that needs no interpreter: it exits with 0.
fn static_program() -> Vec<u8> {
    let mut elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    elf.extend([2, 0, 62, 0, 1, 0, 0, 0]);
    for word in [0x40_0078u64, 64, 0] {
        elf.extend(word.to_le_bytes());
    }
    elf.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    elf.extend([1, 0, 0, 0, 5, 0, 0, 0]);
    for word in [0u64, 0x40_0000, 0x40_0000, 0x81, 0x81, 0x1000] {
        elf.extend(word.to_le_bytes());
    }
    // mov eax, 60; xor edi, edi; syscall
    elf.extend([0xb8, 60, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05]);
    elf
}

fn tools(network: &Network) -> Outcome {
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    let file = site.path("capture.pcapng");
    let tool = Network::tool()?;
    let mut capture = network.skink.command(&tool.to_string_lossy());
    capture.args([
        "capture",
        "-w",
        &file.to_string_lossy(),
        "tcp",
        "and",
        "port",
        "80",
    ]);
    let capture = Process::spawn(capture, "skink capture")?;
    capture.wait_until("the capture runs", || {
        file.metadata().is_ok_and(|file| file.len() > 0)
    })?;
    let mut shell = network.kernel.command("bash");
    let fetch = site.fetch_and_compare(Network::SKINK[0], Nginx::PORT, "large");
    shell.args(["-c", &fetch]);
    Network::finish(shell, "fetching during a capture", PATIENCE)?;
    capture.wait_until("frames are written", || {
        file.metadata().is_ok_and(|file| file.len() > 100_000)
    })?;
    capture.stop()?;
    let bytes = std::fs::read(&file)?;
    if bytes.get(..4) != Some(&[0x0a, 0x0d, 0x0d, 0x0a]) {
        return Err(Failure::Wrong("the capture isn't a pcapng file".to_owned()));
    }
    unread_capture(network, &site, &tool)?;
    let stat = json(&tool, &["stat"])?;
    if !stat.to_string().contains("tcp.segments_in") {
        return Err(Failure::Wrong(format!(
            "stat lacks tcp.segments_in: {stat}"
        )));
    }
    let sockets = json(&tool, &["ss", "--all"])?;
    if !sockets.to_string().contains("LISTEN") {
        return Err(Failure::Wrong(format!("ss shows no listener: {sockets}")));
    }
    nginx.stop()
}

/// A capture ends when it is told to, though it waits for who reads it and doesn't, as a pager.
fn unread_capture(network: &Network, site: &Site, tool: &Path) -> Outcome {
    let (pipe, tool) = (site.path("pipe"), tool.to_string_lossy());
    let script = format!(
        "mkfifo {0}; exec 9<>{0}; exec {tool} capture --json >&9",
        pipe.display()
    );
    let mut capture = network.skink.command("bash");
    capture.args(["-c", &script]);
    let capture = Process::spawn(capture, "a capture that nobody reads")?;
    let fetch = site.fetch_and_compare(Network::SKINK[0], Nginx::PORT, "large");
    let waiting = format!("/proc/{}/wchan", capture.id());
    capture.wait_until("the pipe is full", || {
        let mut shell = network.kernel.command("bash");
        shell.args(["-c", &fetch]);
        let _ = Network::finish(shell, "fetching beside a full pipe", PATIENCE);
        std::fs::read_to_string(&waiting).is_ok_and(|place| place.contains("pipe_write"))
    })?;
    capture.signal(Signal::TERM);
    capture.wait(PATIENCE)?;
    Ok(())
}

/// Each process is there, with what it uses, and each queue to a program.
fn processes(network: &Network) -> Outcome {
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    let mut missing = None;
    // The standby is another one whenever something has changed.
    let all_there = || {
        missing =
            missing_in_ps(network.plan.topology).unwrap_or_else(|why| Some(format!("{why:?}")));
        missing.is_none()
    };
    let waited = nginx.process.wait_until("ps shows everything", all_there);
    waited.map_err(|error| Failure::Wrong(format!("{error}: {}", missing.unwrap_or_default())))?;
    nginx.stop()
}

/// What `skink ps` leaves out.
fn missing_in_ps(topology: Topology) -> Result<Option<String>, Failure> {
    let report = json(&Network::tool()?, &["ps"])?;
    let instance = &report["instances"][0];
    let all = |kind: &str| instance[kind].as_array().cloned().unwrap_or_default();
    let (processes, programs) = (all("processes"), all("programs"));
    let numbers = ["cpu_percent", "cpu_life_percent", "rss_bytes", "uptime_s"];
    let is_told = |it: &Value| numbers.iter().all(|number| it[number].is_number());
    let standby = processes.iter().find(|it| it["name"] == "standby");
    let standby = standby.map_or(&Value::Null, |it| &it["pid"]);
    let name = std::fs::read_to_string(format!("/proc/{standby}/comm")).unwrap_or_default();
    let (name_expected, queues_expected) = match topology {
        Topology::Library => ("", vec![]),
        Topology::Single => ("skink-standby\n", vec!["udp+tcp+syscall"]),
        Topology::Split => ("skink-standby\n", vec!["syscall", "tcp", "udp"]),
    };
    let queues_of = |it: &Value| {
        let queues = it["queues"].as_array().into_iter().flatten();
        let to_it = queues.filter(|queue| queue["to"] == "program" && queue["waiting"].is_number());
        let from: Vec<String> = to_it
            .filter_map(|queue| Some(queue["from"].as_str()?.to_owned()))
            .collect();
        from == queues_expected
    };
    let complete = processes.iter().chain(&programs).all(is_told)
        && programs.len() >= 2
        && programs.iter().all(queues_of)
        && name == name_expected;
    Ok((!complete).then(|| format!("standby {name:?}, {report}")))
}

/// Requests that each part of [`calls_resolved`] makes.
const REQUESTS: u64 = 200;

/// The vast majority of calls is resolved in the program (NEaT, section 3.2), as far as connections last.
fn calls_resolved(network: &Network) -> Outcome {
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    let place = network.plan.topology;
    // Workers may still be starting, and the last connection may still be ending.
    let settled = || -> Result<[u64; 3], Failure> {
        let mut last = calls()?;
        nginx.process.wait_until("all calls are counted", || {
            let earlier = last;
            calls().is_ok_and(|now| {
                last = now;
                now == earlier
            })
        })?;
        Ok(last)
    };
    let mut before = settled()?;
    for (what, header, most) in [
        ("kept-alive", "", REQUESTS / 10),
        ("one-request", "close", 2 * REQUESTS),
    ] {
        let url = format!("http://{}:80/tiny?[1-{REQUESTS}]", Network::SKINK[0]);
        let mut curl = network.kernel.command("curl");
        let header = format!("Connection: {header}");
        curl.args(["-sS", "--fail", "-o", "/dev/null", "-H", &header, &url]);
        Network::finish(curl, "requests", PATIENCE)?;
        let after = settled()?;
        let [made, asked, heard] = [0, 1, 2].map(|at| after[at] - before[at]);
        let share = 100.0 * (1.0 - asked as f64 / made as f64);
        println!(
            "        {place}: {what}: of {made} calls {share:.1}% were resolved in nginx, with {asked} messages to syscall"
        );
        if made < 4 * REQUESTS || asked > most || asked != heard {
            return Err(Failure::Wrong(format!(
                "of {made} calls for {REQUESTS} requests on {what} connections {asked} went to syscall, which heard {heard}"
            )));
        }
        before = after;
    }
    nginx.stop()
}

/// The programs' calls, their messages to `syscall`, and those that came there.
fn calls() -> Result<[u64; 3], Failure> {
    let report = json(&Network::tool()?, &["stat", "--all", &Network::name()])?;
    let instance = &report["instances"][0];
    let (calls, counters) = (&instance["calls"], &instance["counters"]);
    let numbers = [
        &calls["made"],
        &calls["to_syscall"],
        &counters["sockets.calls"],
    ];
    match numbers.map(Value::as_u64) {
        [Some(made), Some(asked), Some(heard)] => Ok([made, asked, heard]),
        _ => Err(Failure::Wrong(format!(
            "stat doesn't tell of calls: {report}"
        ))),
    }
}

fn json(tool: &std::path::Path, arguments: &[&str]) -> Result<Value, Failure> {
    let mut command = Command::new(tool);
    command.args(arguments).arg("--json");
    let said = Network::finish(command, "skink", PATIENCE)?;
    serde_json::from_str(&said)
        .map_err(|error| Failure::Wrong(format!("skink {arguments:?} --json: {error}: {said}")))
}
