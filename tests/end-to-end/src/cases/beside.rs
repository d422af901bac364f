//! A program with a stack of its own beside a stack that serves others: on the same interface of the same host, each with
//! addresses of its own.

use super::cases_in;
use super::servers::no_wrk_errors;
use crate::network::Network;
use crate::site::{Nginx, PATIENCE, Site};
use crate::{BackEnd, Case, Failure, Outcome, Topology};
use skink_testbed::Process;

pub fn cases() -> Vec<Case> {
    let places = [
        (Topology::Single, BackEnd::Packet),
        (Topology::Split, BackEnd::Packet),
        (Topology::Single, BackEnd::Xdp),
    ];
    cases_in(&places, "beside/library", library)
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
