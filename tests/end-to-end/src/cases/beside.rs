//! A program with a stack of its own beside a stack that serves others: on the same interface of the same host, each with
//! addresses of its own. And programs on the kernel's stack beside one.

use super::servers::no_wrk_errors;
use super::{APART, IN_PROGRAMS, cases_in};
use crate::network::Network;
use crate::site::{Nginx, PATIENCE, Site};
use crate::{BackEnd, Case, Failure, Outcome, Topology};
use skink_testbed::{Host, Process};

pub fn cases() -> Vec<Case> {
    let places = [
        (Topology::Single, BackEnd::Packet),
        (Topology::Split, BackEnd::Packet),
        (Topology::Single, BackEnd::Xdp),
    ];
    let mut cases = cases_in(&places, "beside/library", library);
    let on_interfaces = [&IN_PROGRAMS[..2], &APART].concat();
    cases.extend(cases_in(&on_interfaces, "beside/link-local", link_local));
    cases
}

/// Ends of connections and datagrams between link-local addresses, which are the kernel's on either side.
const LINK_LOCAL: &str = "
import select, socket, sys
index = socket.if_nametoindex('wire')
def own():
    while True:
        for line in open('/proc/net/if_inet6'):
            address, _, _, scope, flags, name = line.split()
            if name == 'wire' and scope == '20' and not int(flags, 16) & 0x40:
                return ':'.join(address[at:at + 4] for at in range(0, 32, 4))
        select.select([], [], [], 0.05)
def serve():
    l = socket.create_server(('::', 7007), family=socket.AF_INET6, dualstack_ipv6=True, backlog=100)
    u = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    u.bind(('::', 7007))
    print('listening at', own(), flush=True)
    while True:
        for s in select.select([l, u], [], [])[0]:
            if s is u:
                s.sendto(*s.recvfrom(10))
            else:
                with s.accept()[0] as c:
                    c.sendall(c.recv(10))
def ask(peer):
    for attempt in range(20):
        for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM:
            with socket.socket(socket.AF_INET6, kind) as s:
                s.settimeout(20)
                if attempt % 2:
                    s.bind((own(), 0, 0, index))
                s.connect((peer, 7007, 0, index))
                s.send(b'?')
                assert s.recv(10) == b'?'
                name = s.getsockname()
                assert socket.inet_pton(socket.AF_INET6, name[0].partition('%')[0]) == socket.inet_pton(socket.AF_INET6, own()) and name[3] == index, name
match sys.argv[1:]:
    case []:
        serve()
    case [peer]:
        own()
        ask(peer)
    case [peer, address]:
        with socket.create_connection((address, 7007), 20) as s:
            s.sendall(b'?')
            assert s.recv(10) == b'?'
        ask(peer)
print('done')
";

/// Skink has a link-local address too, but not that of the kernel's, which goes on to be reached on the interface that they share, by
/// programs that aren't on Skink and by those that are.
fn link_local(network: &Network) -> Outcome {
    let server = |space: &Host, name| -> Result<(Process, String), Failure> {
        let mut command = space.command("python3");
        command.args(["-c", LINK_LOCAL]);
        let server = Process::spawn(command, name)?;
        let address = || {
            let log = server.log();
            let line = log.lines().find(|line| line.starts_with("listening at "));
            line.map(|line| line.trim_start_matches("listening at ").to_owned())
        };
        server.wait_until("it listens", || address().is_some())?;
        let address = address().unwrap_or_default();
        Ok((server, address))
    };
    let (peer, far) = server(&network.kernel, "the peer")?;
    let (beside, near) = server(&network.skink, "who is beside Skink")?;
    for (space, to) in [(&network.kernel, &near), (&network.skink, &far)] {
        let mut client = space.command("python3");
        client.args(["-c", LINK_LOCAL, to]);
        done(&Network::finish(
            client,
            "a client on the kernel's stack",
            PATIENCE,
        )?)?;
    }
    let arguments = ["-c", LINK_LOCAL, &far, Network::KERNEL[0]];
    let client = network.skink_run("python3", arguments)?;
    done(&Network::finish(client, "a client on Skink", PATIENCE)?)?;
    drop((peer, beside));
    Ok(())
}

fn done(said: &str) -> Outcome {
    match said.ends_with("done\n") {
        true => Ok(()),
        false => Err(Failure::Wrong(format!("it said {said}"))),
    }
}

/// The addresses of the program with its own stack.
const OWN: [&str; 2] = ["10.9.0.3", "fd09::3"];

/// Both serve at once; and either goes on when the other one comes or goes.
fn library(network: &Network) -> Outcome {
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    let redis = start_redis(network)?;
    let mut wrk = network.kernel.command("wrk");
    wrk.args(["-t1", "-c32", "-d60s", "--timeout", "10s"]);
    wrk.arg(format!("http://{}:{}/tiny", Network::SKINK[0], Nginx::PORT));
    let load = Process::spawn(wrk, "wrk")?;
    for address in OWN {
        let mut benchmark = network.kernel.command("redis-benchmark");
        benchmark.args(["-h", address, "-n", "5000", "-c", "50", "-q"]);
        benchmark.args(["-t", "set,get,lrange_100"]);
        let said = Network::finish(benchmark, "redis-benchmark", PATIENCE)?;
        if said.contains("rror") || !said.contains("LRANGE") {
            return Err(Failure::Wrong(said));
        }
    }
    for address in Network::SKINK {
        let mut shell = network.kernel.command("bash");
        shell.args([
            "-c",
            &site.fetch_and_compare(address, Nginx::PORT, "larger"),
        ]);
        Network::finish(shell, "fetching from nginx", PATIENCE)?;
    }
    redis.stop()?;
    let redis = start_redis(network)?;
    load.signal(rustix::process::Signal::INT);
    let (_, said) = load.wait(PATIENCE)?;
    no_wrk_errors(&said)?;
    nginx.stop()?;
    network.wait_for(&redis, OWN[0], 6379)?;
    redis.stop()?;
    Ok(())
}

fn start_redis(network: &Network) -> Result<Process, Failure> {
    let mut command = network.skink.command(&Network::tool()?.to_string_lossy());
    command.args(["run", "--nic", "packet:wire"]);
    for (address, bits) in OWN.into_iter().zip([24, 64]) {
        command.args(["--addr", &format!("{address}/{bits}")]);
    }
    command.args(["--", "redis-server", "--save", "", "--protected-mode", "no"]);
    command.args(["--bind", "0.0.0.0", "::"]);
    let redis = Process::spawn(command, "redis with a stack of its own")?;
    for address in OWN {
        network.wait_for(&redis, address, 6379)?;
    }
    Ok(redis)
}
