//! Servers on Skink, clients on the kernel.

use super::{everywhere, on_each_back_end, python};
use crate::network::Network;
use crate::site::{Nginx, PATIENCE, Site};
use crate::{Case, Failure, Outcome};
use skink_testbed::Process;

pub fn cases() -> Vec<Case> {
    let mut cases = everywhere("nginx/files", nginx_files);
    cases.extend(on_each_back_end(
        "nginx/both-workers-serve",
        nginx_both_workers,
    ));
    cases.extend(on_each_back_end("redis/benchmark", redis_benchmark));
    cases.extend(everywhere("redis/values", redis_values));
    cases.extend(on_each_back_end("python/http-server", python_http_server));
    cases.extend(everywhere("memcached/values", memcached));
    cases.extend(on_each_back_end("iperf3/both-ways", iperf3));
    cases
}

fn nginx_files(network: &Network) -> Outcome {
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    for address in Network::SKINK {
        for (name, _) in Site::FILES {
            fetch(network, &site, address, Nginx::PORT, name)?;
        }
        many_at_once(network, &site, address)?;
    }
    nginx.stop()
}

fn fetch(network: &Network, site: &Site, address: &str, port: u16, name: &str) -> Outcome {
    let mut shell = network.kernel.command("bash");
    shell.args(["-c", &site.fetch_and_compare(address, port, name)]);
    Network::finish(shell, &format!("fetching {name} from {address}"), PATIENCE)?;
    Ok(())
}

fn many_at_once(network: &Network, site: &Site, address: &str) -> Outcome {
    let one = site.fetch_and_compare(address, Nginx::PORT, "large");
    let mut shell = network.kernel.command("bash");
    let script = format!(
        "for i in $(seq 20); do ({one}) & p=\"$p $!\"; done; for i in $p; do wait $i || exit 1; done"
    );
    shell.args(["-c", &script]);
    Network::finish(
        shell,
        &format!("20 fetches at once from {address}"),
        PATIENCE,
    )?;
    Ok(())
}

/// Connections are shared among the workers, and none is lost when there are many.
fn nginx_both_workers(network: &Network) -> Outcome {
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    let mut wrk = network.kernel.command("wrk");
    wrk.args(["-t2", "-c64", "-d3s", "-H", "Connection: close"]);
    wrk.arg(format!("http://{}:80/tiny", Network::SKINK[0]));
    let said = Network::finish(wrk, "wrk", PATIENCE)?;
    no_wrk_errors(&said)?;
    let (_, workers) = nginx.workers()?;
    let times = workers.into_iter().map(skink_testbed::cpu_seconds);
    let children = times.collect::<Result<Vec<f64>, _>>()?;
    if children.len() != 2 || children.iter().any(|seconds| *seconds < 0.05) {
        let text = format!("processor time of the workers in seconds: {children:?}");
        return Err(Failure::Wrong(text));
    }
    nginx.stop()
}

/// Processes whose parent is `pid`.
pub fn children(pid: u32) -> Result<Vec<u32>, Failure> {
    let mut all = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = std::fs::read_to_string(task?.path().join("children")).unwrap_or_default();
        all.extend(
            text.split_whitespace()
                .filter_map(|pid| pid.parse::<u32>().ok()),
        );
    }
    Ok(all)
}

/// What `wrk` prints only if something went wrong.
pub fn no_wrk_errors(said: &str) -> Outcome {
    if said.contains("Socket errors") || said.contains("Non-2xx") || !said.contains("Requests/sec")
    {
        return Err(Failure::Wrong(format!("wrk found errors:\n{said}")));
    }
    Ok(())
}

pub fn start_redis(network: &Network) -> Result<Process, Failure> {
    let arguments = [
        "--save",
        "",
        "--protected-mode",
        "no",
        "--bind",
        "0.0.0.0",
        "::",
    ];
    let command = network.skink_run("redis-server", arguments)?;
    let redis = Process::spawn(command, "redis on Skink")?;
    for address in Network::SKINK {
        network.wait_for(&redis, address, 6379)?;
    }
    Ok(redis)
}

fn redis_benchmark(network: &Network) -> Outcome {
    let redis = start_redis(network)?;
    for address in Network::SKINK {
        for pipeline in ["1", "16"] {
            let mut benchmark = network.kernel.command("redis-benchmark");
            benchmark.args([
                "-h", address, "-n", "20000", "-c", "50", "-P", pipeline, "-q",
            ]);
            benchmark.args(["-t", "ping,set,get,incr,lpush,lrange_100,mset"]);
            let said = Network::finish(benchmark, "redis-benchmark", PATIENCE)?;
            if said.contains("rror") || !said.contains("LRANGE") {
                return Err(Failure::Wrong(said));
            }
        }
    }
    redis.stop()?;
    Ok(())
}

/// Values of all sizes go in and come back as they were.
fn redis_values(network: &Network) -> Outcome {
    let redis = start_redis(network)?;
    let site = Site::new()?;
    for address in Network::SKINK {
        for (name, bytes) in Site::FILES {
            let path = site.path(name);
            let script = format!(
                "redis-cli -h {address} -x SET {name} <{path} >/dev/null && \
                 redis-cli -h {address} GET {name} | head -c {bytes} | cmp - {path}",
                path = path.display()
            );
            let mut shell = network.kernel.command("bash");
            shell.args(["-c", &script]);
            Network::finish(shell, &format!("redis-cli with {name}"), PATIENCE)?;
        }
    }
    redis.stop()?;
    Ok(())
}

/// Values of many sizes come back as they were stored, on one connection after the other for so many seconds.
pub const MEMCACHED_CLIENT: &str = "
import random, socket, sys, time
end = time.monotonic() + float(sys.argv[2])
values = {f'key{size}': random.Random(size).randbytes(size) for size in [0, 1, 100, 1400, 20000, 1000000]}
def store_and_read():
    with socket.create_connection((sys.argv[1], 11211), 20) as s:
        f = s.makefile('rwb')
        for key, value in values.items():
            f.write(f'set {key} 0 0 {len(value)}\\r\\n'.encode() + value + b'\\r\\n')
            f.flush()
            assert f.readline() == b'STORED\\r\\n'
        for key, value in values.items():
            f.write(f'get {key}\\r\\n'.encode())
            f.flush()
            assert f.readline().split()[-1] == str(len(value)).encode()
            assert f.read(len(value)) == value, 'memcached answered another value'
            assert f.readline() == b'\\r\\n' and f.readline() == b'END\\r\\n'
store_and_read()
while time.monotonic() < end:
    store_and_read()
";

pub fn start_memcached(network: &Network) -> Result<Process, Failure> {
    let user = if skink_testbed::is_root() {
        "nobody"
    } else {
        "root"
    };
    let arguments = ["-u", user, "-l", "0.0.0.0", "-U", "0", "-t", "2"];
    let command = network.skink_run("memcached", arguments)?;
    let server = Process::spawn(command, "memcached on Skink")?;
    network.wait_for(&server, Network::SKINK[0], 11211)?;
    Ok(server)
}

fn memcached(network: &Network) -> Outcome {
    let server = start_memcached(network)?;
    for _ in 0..3 {
        let (name, arguments) = ("a client of memcached", [Network::SKINK[0], "0"]);
        python::finish_on_kernel(network, name, MEMCACHED_CLIENT, &arguments)?;
    }
    drop(server);
    Ok(())
}

/// A bulk flow in each direction, over several connections.
fn iperf3(network: &Network) -> Outcome {
    let command = network.skink_run("iperf3", ["-s", "--forceflush"])?;
    let server = Process::spawn(command, "iperf3 on Skink")?;
    let mut tests = 0;
    for address in Network::SKINK {
        for extra in [&[][..], &["-R"], &["-P", "4", "--bidir"]] {
            // It listens anew for each test.
            tests += 1;
            server.wait_until("it listens", || {
                server.log().matches("Server listening").count() == tests
            })?;
            let mut client = network.kernel.command("iperf3");
            client.args(["-c", address, "-t", "2"]).args(extra);
            let said = Network::finish(client, &format!("iperf3 {extra:?}"), PATIENCE)?;
            if !said.contains("iperf Done") {
                return Err(Failure::Wrong(format!("iperf3 {extra:?} printed:\n{said}")));
            }
        }
    }
    Ok(())
}

fn python_http_server(network: &Network) -> Outcome {
    let site = Site::new()?;
    let directory = site.path("");
    let directory = directory.to_string_lossy();
    for (bind, address) in [("0.0.0.0", Network::SKINK[0]), ("::", Network::SKINK[1])] {
        let arguments = [
            "-m",
            "http.server",
            "8000",
            "--bind",
            bind,
            "--directory",
            &directory,
        ];
        let command = network.skink_run("python3", arguments)?;
        let server = Process::spawn(command, "python's http.server on Skink")?;
        network.wait_for(&server, address, 8000)?;
        for (name, _) in Site::FILES {
            fetch(network, &site, address, 8000, name)?;
        }
    }
    Ok(())
}
