//! `skink run` and its tools as a user starts them, in a network namespace that ends with the test.
//! Any library will do for preloading here: the programs attach by themselves.
use serde_json::Value;
use skink_control::{Attached, Broker, CONTROL_VARIABLE, RegionKind, TOKEN_VARIABLE};
use skink_memory::{
    Bytes, CaptureDirection, CaptureRing, Fallback, FallbackReason, FallbackTable, Region,
    SocketKind, TableConfig,
};
use skink_messages::{Counter, Counters};
use skink_wire::{Endpoint, FourTuple};
use std::io::{BufRead, BufReader, Read};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::Ordering::Relaxed;

const SKINK: &str = env!("CARGO_BIN_EXE_skink");
const ROLE: &str = "SKINK_TEST_ROLE";

/// A library that is in every process anyway.
fn harmless_library() -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("readable");
    let mut paths = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5));
    paths
        .find(|path| path.contains("libc.so"))
        .expect("libc")
        .to_owned()
}

/// Whether another user can get at the program: not if the work tree is below `/root`, say.
fn others_may_run_it() -> bool {
    let all = Path::new(SKINK).ancestors();
    let may = |path: &Path| {
        path.metadata()
            .is_ok_and(|it| it.permissions().mode() & 1 != 0)
    };
    let reachable = all.into_iter().all(may);
    if !reachable {
        println!("SKIP: another user can't run {SKINK}");
    }
    reachable
}

/// `skink` with `arguments` in a network namespace of its own, if this machine has what it takes.
fn skink(arguments: &[&str]) -> Option<Command> {
    let mut command = Command::new("unshare");
    let root = rustix::process::geteuid().is_root();
    command
        .arg(if root { "-n" } else { "-rn" })
        .arg(SKINK)
        .args(arguments);
    command
        .env("SKINK_LIBRARY", harmless_library())
        .env_remove("SKINK_LOG");
    let tun = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun");
    let unshare = Command::new("unshare")
        .args([if root { "-n" } else { "-rn" }, "true"])
        .output();
    match (tun, unshare) {
        (Ok(_), Ok(output)) if output.status.success() => Some(command),
        (tun, unshare) => {
            eprintln!("SKIP: no TAP or network namespace to be had: {tun:?} {unshare:?}");
            None
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_exit_code_is_the_programs_and_the_network_is_made() {
    let cases = [
        ("exit 7", 7, ""),
        ("kill -TERM $$", 128 + 15, ""),
        ("ip -o -4 address show skink0", 0, "10.77.0.1/24"),
        ("echo $LD_PRELOAD", 0, "libc.so"),
        ("(sleep 0.2; echo later) & echo first", 0, "first\nlater"),
        ("kill -INT $PPID; exec sleep 10", 128 + 2, ""),
    ];
    for (script, code, expected) in cases {
        let Some(mut command) = skink(&["run", "--", "sh", "-c", script]) else {
            return;
        };
        let output = command.output().expect("skink runs");
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{script}: {out} {err}");
        assert!(out.contains(expected), "{script}: {out}");
        assert!(err.contains("sh has 10.77.0.2/24"), "{err}");
    }
}

#[test]
fn what_cannot_run_ends_in_one_sentence_and_the_right_code() {
    let cases: [(&[&str], i32, &str); 8] = [
        (&["run", "--", "no-such-program"], 127, "no-such-program"),
        (&["run", "--", "/etc/passwd"], 126, "executable"),
        (
            &[
                "run",
                "--nic",
                "packet:none0",
                "--addr",
                "10.0.0.2/24",
                "--",
                "true",
            ],
            125,
            "none0",
        ),
        (
            &["run", "--nic", "packet:none0", "--", "true"],
            125,
            "--addr",
        ),
        (
            &["run", "--user", "no-such-user", "--", "true"],
            125,
            "--user",
        ),
        (&["run", "--nic", "nonsense", "--", "true"], 125, "nonsense"),
        (&["stat", "no-such-instance"], 1, "no-such-instance"),
        (
            &["capture", "-i", "no-such-instance", "nonsense"],
            1,
            "nonsense",
        ),
    ];
    for (arguments, code, expected) in cases {
        let Some(mut command) = skink(arguments) else {
            return;
        };
        let output = command.output().expect("skink runs");
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {err}");
        assert!(err.contains(expected), "{arguments:?}: {err}");
    }
}

/// Not a test: what the program does that the next test runs under `skink run`.
#[test]
fn role_of_a_process() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let [name, token] = [CONTROL_VARIABLE, TOKEN_VARIABLE]
        .map(|variable| std::env::var(variable).expect("set for the program"));
    let mut broker = Broker::connect(&name, &token).expect("reachable");
    let Attached::Library(mut attached) = broker.attach().expect("a slot") else {
        panic!("not served");
    };
    let nic = attached.take_nic().expect("a NIC");
    assert_eq!(nic.capabilities.kind, "tap");
    let _ports = attached.take_ports().expect("ports");

    let counters = Counters::create().expect("memory");
    counters.add(Counter::TcpBytesIn, 42);
    counters.add(Counter::IpDropMalformed, 1);
    broker
        .register(&[(RegionKind::Counters, counters.fd())])
        .expect("registered");

    let size = TableConfig {
        sockets: 4,
        send_bytes: 4096,
        receive_bytes: 4096,
    };
    let table = Region::create("test", size).expect("memory");
    let [records, send_rings, _] = table.files();
    table.open_slot(0, SocketKind::Tcp);
    let local = Endpoint::new(attached.addresses[0].addr, 80);
    let remote = Endpoint::new(Ipv4Addr::new(10, 77, 0, 1).into(), 50_000);
    table
        .record(0)
        .set_four_tuple(&FourTuple::new(local, remote));
    table.record(0).state.store(4, Relaxed);
    broker
        .register(&[(RegionKind::TcpTable, records)])
        .expect("registered");
    broker
        .register(&[(RegionKind::TcpSendRings, send_rings)])
        .expect("registered");

    let fallbacks = FallbackTable::create().expect("memory");
    let fallback = Fallback {
        fd: 5,
        reason: FallbackReason::Loopback,
        protocol: 6,
        detail: 0,
        endpoint: Endpoint::new("127.0.0.1".parse().expect("an address"), 53),
    };
    fallbacks.set(&fallback);
    broker
        .register(&[(RegionKind::Fallbacks, fallbacks.fd())])
        .expect("registered");

    let capture = CaptureRing::create(1 << 16).expect("memory");
    broker
        .register(&[(RegionKind::Capture, capture.fd())])
        .expect("registered");
    println!("ready");
    // Ends when its standard input does. Until then it sends a frame whenever somebody wants some.
    let ended = std::thread::spawn(|| std::io::stdin().read_to_end(&mut Vec::new()));
    while !ended.is_finished() {
        if capture.wants() {
            let frame = [0xff; 60];
            let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
            let time = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
            capture.push(
                time,
                CaptureDirection::Outbound,
                &[Bytes::from(&frame[..])],
                60,
            );
        }
        std::thread::park_timeout(std::time::Duration::from_millis(2));
    }
}

fn wait_for_line(child: &mut Child, expected: &str) {
    let output = child.stdout.take().expect("piped");
    let mut lines = BufReader::new(output).lines();
    let found = lines.any(|line| line.is_ok_and(|line| line.ends_with(expected)));
    assert!(found, "the program said nothing like {expected}");
    // Kept open, so that the program may go on writing.
    std::thread::spawn(move || lines.for_each(drop));
}

fn tool(arguments: &[&str]) -> Output {
    let output = Command::new(SKINK)
        .args(arguments)
        .output()
        .expect("skink runs");
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        text(&output.stderr)
    );
    output
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_slice(&tool(arguments).stdout).expect("JSON")
}

#[test]
fn tools_look_into_a_running_program_from_outside_its_namespace() {
    let name = format!("skink-test-{}", std::process::id());
    let name = name.as_str();
    let test = std::env::current_exe().expect("a path");
    let test = test.to_str().expect("a text");
    let role = ["--exact", "role_of_a_process", "--nocapture"];
    let arguments = [
        &["run", "--name", name, "--nic", "tap:skink0", "--", test][..],
        &role,
    ]
    .concat();
    let Some(mut command) = skink(&arguments) else {
        return;
    };
    command
        .env(ROLE, "process")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().expect("skink runs");
    wait_for_line(&mut child, "ready");

    let stat = json(&["stat", "--json", name]);
    let instance = &stat["instances"][0];
    assert_eq!(instance["counters"]["tcp.bytes_in"], 42);
    assert_eq!(instance["nic"], "tap:skink0");
    assert_eq!(instance["processes"][0]["owner"], 0);
    let shown = text(&tool(&["stat", name]).stdout);
    assert!(shown.contains("ip.drop.malformed"), "{shown}");

    let ss = json(&["ss", "--json", name]);
    assert_eq!(ss["sockets"][0]["state"], "ESTABLISHED");
    assert_eq!(ss["sockets"][0]["local"], "10.77.0.2:80");
    assert_eq!(ss["fallbacks"][0]["reason"], "loopback");
    let shown = text(&tool(&["ss", name]).stdout);
    assert!(
        shown.contains("10.77.0.1:50000") && shown.contains("loopback"),
        "{shown}"
    );

    let lines = text(&tool(&["capture", "--json", "-i", name, "-c", "3"]).stdout);
    let frames: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(frames.len(), 3);
    assert_eq!(
        (&frames[0]["ether_type"], &frames[0]["direction"]),
        (&0xffff.into(), &"out".into())
    );
    let file = tool(&["capture", "-w", "-", "-i", name, "-c", "2"]).stdout;
    assert_eq!(file[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
    if rustix::process::geteuid().is_root() && others_may_run_it() {
        let output = Command::new(SKINK)
            .args(["stat", name])
            .uid(65_534)
            .gid(65_534)
            .output();
        let output = output.expect("skink runs");
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains("another user"), "{output:?}");
    }
    let nothing = text(&tool(&["capture", "-i", name, "--duration", "0.2", "tcp"]).stdout);
    assert_eq!(nothing, "");

    drop(child.stdin.take());
    assert!(child.wait().expect("its end").success());
    let gone = Command::new(SKINK)
        .args(["stat", name])
        .output()
        .expect("skink runs");
    assert_eq!(gone.status.code(), Some(1));
}
