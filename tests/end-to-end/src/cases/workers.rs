//! Several processes of a program on the queues of one NIC: each flow comes by a queue of the process that serves it.

use super::servers::{children, no_wrk_errors};
use super::{on, python};
use crate::network::{Network, Plan};
use crate::site::{Nginx, PATIENCE, Site};
use crate::{BackEnd, Case, Failure, Outcome, Topology};
use rustix::process::Signal;
use serde_json::Value;
use skink_testbed::signal;
use std::time::Instant;

/// How nginx's workers come by their listening sockets.
const INHERITED: &str = "";
const OWN: &str = "reuseport";

pub fn cases() -> Vec<Case> {
    let plan = |queues| Plan {
        queues,
        ..Plan::plain(Topology::Library, BackEnd::Xdp)
    };
    let apart = Plan {
        topology: Topology::Single,
        ..plan(4)
    };
    let case = |plan: Plan, workers, options: &'static str| {
        let words = format!("workers/{workers}-on-{}-queues/{options}", plan.queues);
        let name = plan.prefixed(words.trim_end_matches('/'));
        Case::new(name, move || {
            let network = Network::new(plan)?;
            serve(&network, workers, options)?;
            network.stop()
        })
    };
    let forgotten = |back_end| {
        let plan = Plan {
            back_end,
            ..plan(1)
        };
        on(plan, &plan.prefixed("workers/forgotten-flow"), forgotten)
    };
    vec![
        forgotten(BackEnd::Packet),
        forgotten(BackEnd::Xdp),
        case(plan(2), 2, INHERITED),
        case(plan(2), 2, OWN),
        case(plan(4), 4, INHERITED),
        case(plan(4), 1, INHERITED),
        case(plan(4), 2, INHERITED),
        case(plan(4), 3, OWN),
        // One process has all queues.
        case(apart, 2, INHERITED),
        on(plan(2), &plan(2).prefixed("workers/reload"), reload),
        on(plan(2), &plan(2).prefixed("workers/killed"), killed),
        on(plan(1), &plan(1).prefixed("workers/more-than-queues"), more),
    ]
}

/// With as many queues as workers, or more, no flow takes the slow way.
fn serve(network: &Network, workers: usize, options: &str) -> Outcome {
    let site = Site::new()?;
    let nginx = Nginx::with_workers(network, &site, workers, options)?;
    until_on_queues(network)?;
    nginx.stop()
}

/// Who comes while all queues are taken has one when others have gone.
fn reload(network: &Network) -> Outcome {
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    until_on_queues(network)?;
    let (master, before) = nginx.workers()?;
    signal(master, Signal::HUP)?;
    nginx.process.wait_until("its workers are others", || {
        let now = children(master).unwrap_or_default();
        now.len() == 2 && !now.iter().any(|worker| before.contains(worker))
    })?;
    until_on_queues(network)?;
    nginx.stop()
}

/// What a worker had that was killed is its successor's.
fn killed(network: &Network) -> Outcome {
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    until_on_queues(network)?;
    let (master, before) = nginx.workers()?;
    signal(before[0], Signal::KILL)?;
    nginx.process.wait_until("there is another worker", || {
        let now = children(master).unwrap_or_default();
        now.len() == 2 && !now.contains(&before[0])
    })?;
    until_on_queues(network)?;
    // nginx complains of the end of its worker.
    nginx.process.stop()?;
    Ok(())
}

/// Workers for which there is no queue serve, too.
fn more(network: &Network) -> Outcome {
    let site = Site::new()?;
    let nginx = Nginx::with_workers(network, &site, 3, INHERITED)?;
    let (frames, beside) = ask(network)?;
    if beside < frames / 4 {
        let text = format!("{beside} of {frames} frames took the slow way: where is the third?");
        return Err(Failure::Wrong(text));
    }
    nginx.stop()
}

/// Has new connections made until nearly all frames come by queues: those whose queue was passed on after they
/// began don't.
pub fn until_on_queues(network: &Network) -> Outcome {
    let begun = Instant::now();
    loop {
        let (frames, beside) = ask(network)?;
        if frames > 2_000 && beside * 100 < frames {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE / 6 {
            let log = network.log();
            let text = format!("{beside} of {frames} frames took the slow way to the end\n{log}");
            return Err(Failure::Wrong(text));
        }
    }
}

/// Makes requests on 64 new connections; answers how many frames came, and how many of them beside the queues. (Both
/// are counted a second late: the client takes two.)
fn ask(network: &Network) -> Result<(u64, u64), Failure> {
    let before = counted(network)?;
    let mut wrk = network.kernel.command("wrk");
    wrk.args(["-t1", "-c64", "-d2s"]);
    wrk.arg(format!("http://{}:80/tiny", Network::SKINK[0]));
    no_wrk_errors(&Network::finish(wrk, "wrk", PATIENCE)?)?;
    let after = counted(network)?;
    Ok((after.0 - before.0, after.1 - before.1))
}

/// Frames received, and those that came beside the queues.
fn counted(network: &Network) -> Result<(u64, u64), Failure> {
    let [received, beside] = counters(network, ["link.frames_in", "link.frames_beside"])?;
    Ok((received, beside))
}

/// What these count.
pub fn counters<const N: usize>(network: &Network, labels: [&str; N]) -> Result<[u64; N], Failure> {
    let mut command = network.skink.command(&Network::tool()?.to_string_lossy());
    command.args(["stat", "--all", "--json"]);
    let text = Network::finish(command, "skink stat", PATIENCE)?;
    let report: Value = serde_json::from_str(&text)?;
    let counters = &report["instances"][0]["counters"];
    let counts = labels.map(|label| counters[label].as_u64());
    if counts.contains(&None) {
        return Err(Failure::Wrong(text));
    }
    Ok(counts.map(Option::unwrap_or_default))
}

/// One worker has a connection and doesn't listen any more, as after a reload; another one does.
const WORKERS: &str = "
import os, socket
def listener():
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    s.bind(('10.9.0.2', 7300))
    s.listen()
    return s
begun, begin = os.pipe()
if os.fork() == 0:
    first = listener()
    print('listens', flush=True)
    connection, _ = first.accept()
    first.close()
    os.write(begin, b'x')
    while data := connection.recv(64):
        connection.sendall(data)
    os._exit(0)
os.read(begun, 1)
second = listener()
while True:
    second.accept()[0].sendall(b'second')
";

/// Has that connection, and goes on with it at each signal.
const CLIENT: &str = "
import signal, socket
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
first = socket.create_connection(('10.9.0.2', 7300), 10)
first.settimeout(60)
def ask():
    first.sendall(b'?')
    assert first.recv(64) == b'?'
ask()
while True:
    try:
        with socket.create_connection(('10.9.0.2', 7300), 10) as other:
            assert other.recv(64) == b'second'
            break
    except ConnectionRefusedError:
        pass # Nobody listens just now.
rounds = 0
while True:
    print('round', rounds, flush=True)
    signal.sigwait([signal.SIGUSR1])
    ask()
    rounds += 1
";

/// Lets as many flows begin as it is told, more than the steering program has room for, each twice: its table forgets flows of which it has
/// heard once, and a connection of which it has heard oftener only when most others have been, too. (Their checksums are wrong, so that nobody answers.)
const FLOOD: &str = "
import socket, struct, sys
mac = next(line.split()[3] for line in open('/proc/net/arp') if line.startswith('10.9.0.2 '))
name = next(name for _, name in socket.if_nameindex() if name != 'lo')
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
wire.bind((name, 0))
ethernet = bytes.fromhex(mac.replace(':', '')) + wire.getsockname()[4] + b'\\x08\\x00'
for flow in range(int(sys.argv[1])):
    port, host = flow % 50000 + 1024, 100 + flow // 50000
    ip = struct.pack('!BBHHHBBH4s4s', 0x45, 0, 40, 0, 0, 64, 6, 0, bytes([10, 9, 0, host]), bytes([10, 9, 0, 2]))
    total = sum(struct.unpack('!10H', ip))
    total = (total & 0xffff) + (total >> 16)
    ip = ip[:10] + struct.pack('!H', ~(total + (total >> 16)) & 0xffff) + ip[12:]
    frame = ethernet + ip + struct.pack('!HHIIBBHHH', port, 7300, 1, 0, 0x50, 2, 1000, 0, 0)
    wire.send(frame)
    wire.send(frame)
";

/// What the steering program has forgotten goes to who has it.
fn forgotten(network: &Network) -> Outcome {
    let _server = python::start(network, "the workers", WORKERS, &[], "listens")?;
    let client = python::start_on_kernel(network, "the client", CLIENT, &[], "round 0")?;
    // A busy machine drops so many of a flood's frames that what is left may not be enough.
    for round in 1..=3 {
        let flows = (160_000 * round).to_string();
        python::finish_on_kernel(network, "the flood", FLOOD, &[&flows])?;
        signal(client.id(), Signal::USR1)?;
        client.wait_until("the connection has gone on", || {
            client.log().contains(&format!("round {round}"))
        })?;
        let [misled] = counters(network, ["tcp.drop.misled"])?;
        if misled > 0 {
            let text = format!("{misled} segments went astray in round {round}");
            return Err(Failure::Wrong(text));
        }
    }
    Ok(())
}
