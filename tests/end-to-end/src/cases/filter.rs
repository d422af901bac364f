//! The packet filter, in front of an unmodified server.

use super::{APART, on};
use crate::network::{Network, Plan, bracketed};
use crate::site::{Nginx, PATIENCE, Site};
use crate::{BackEnd, Case, Failure, Outcome, Topology};
use rustix::process::Signal;
use serde_json::Value;
use skink_testbed::{Process, signal};

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let in_programs = (Topology::Library, BackEnd::Packet);
    for (topology, back_end) in APART.into_iter().chain([in_programs]) {
        let plan = |rules| Plan {
            rules: Some(rules),
            ..Plan::plain(topology, back_end)
        };
        let closed = plan(CLOSED);
        let name = closed.prefixed("filter/closed-but-for-a-port");
        cases.push(on(closed, &name, closed_but_for_a_port));
        let families = plan(FAMILIES);
        let name = families.prefixed("filter/families-and-counters");
        cases.push(on(families, &name, families_and_counters));
        let open = plan("pass all\n");
        let name = open.prefixed("filter/loaded-under-load");
        cases.push(on(open, &name, loaded_under_load));
        let name = open.prefixed("filter/shown");
        cases.push(on(open, &name, shown));
        if topology == Topology::Split {
            let bare = Plan {
                rules: None,
                ..open
            };
            let name = bare.prefixed("filter/loaded-while-it-is-stopped");
            cases.push(on(bare, &name, loaded_while_it_is_stopped));
        }
        if topology == Topology::Library {
            let name = open.prefixed("filter/loaded-into-each-process");
            cases.push(on(open, &name, loaded_into_each_process));
        }
    }
    cases
}

/// Nothing but the web server, over IPv4; others are told so.
const CLOSED: &str = "
set block-policy return
block all
pass in inet proto tcp to port 80 flags S/SA keep state
";

/// Who is let through is served; who isn't hears so, and no server does.
fn closed_but_for_a_port(network: &Network) -> Outcome {
    let site = Site::new()?;
    let command = network.skink_run("bash", ["-c", &two_servers(&site)])?;
    let servers = Process::spawn(command, "two web servers on Skink")?;
    let [v4, v6] = Network::SKINK;
    network.wait_for(&servers, v4, Nginx::PORT)?;
    let mut shell = network.kernel.command("bash");
    shell.args(["-c", &site.fetch_and_compare(v4, Nginx::PORT, "larger")]);
    Network::finish(shell, "fetching through the filter", PATIENCE)?;
    // Over IPv4 the answer is a reset; over IPv6 not even neighbour discovery is let through.
    for (address, port, codes) in [(v4, 8080, &[7][..]), (v6, Nginx::PORT, &[7, 28])] {
        let url = format!("http://{}:{port}/tiny", bracketed(address));
        let code = fetch(network, &url)?;
        if !codes.contains(&code) {
            return Err(Failure::Wrong(format!("curl of {url} ended with {code}")));
        }
    }
    Ok(())
}

/// curl's exit code: 7 for a refused connection, 28 for no answer in time.
fn fetch(network: &Network, url: &str) -> Result<i32, Failure> {
    let mut curl = network.kernel.command("curl");
    curl.args(["-s", "-o", "/dev/null", "--max-time", "2", url]);
    let (status, _) = Process::spawn(curl, "curl")?.wait(PATIENCE)?;
    Ok(status.code().unwrap_or(-1))
}

/// A shell script: the site on ports 80 and 8080.
fn two_servers(site: &Site) -> String {
    let root = site.path("").display().to_string();
    let serve =
        |port: u16| format!("python3 -m http.server {port} --bind 0.0.0.0 --directory {root}");
    let (first, second) = (serve(8080), serve(Nginx::PORT));
    format!("trap 'kill $(jobs -p)' EXIT; {first} & {second} & wait")
}

/// New rules leave a connection alone that the old ones let pass, and hold for the next.
fn loaded_under_load(network: &Network) -> Outcome {
    let site = Site::new()?;
    let address = Network::SKINK[0];
    let nginx = Nginx::on_skink(network, &site)?;
    let (original, copy) = (site.path("larger"), site.path("copy"));
    let mut shell = network.kernel.command("bash");
    let script = format!(
        "curl -sS --fail --limit-rate 4M -o {copy} http://{address}:80/larger && cmp {copy} {original}",
        copy = copy.display(),
        original = original.display()
    );
    shell.args(["-c", &script]);
    let download = Process::spawn(shell, "a download")?;
    download.wait_until("it has begun", || {
        copy.metadata().is_ok_and(|file| file.len() > 0)
    })?;
    load(network, &site, "block in proto tcp to port 80\n")?;
    if load(network, &site, "pass in in\n").is_ok() {
        return Err(Failure::Wrong(
            "rules with a mistake were loaded".to_owned(),
        ));
    }
    let code = fetch(network, &format!("http://{address}:80/tiny"))?;
    if code != 28 {
        return Err(Failure::Wrong(format!(
            "curl of a blocked port ended with {code}"
        )));
    }
    let (status, said) = download.wait(PATIENCE)?;
    if !status.success() {
        return Err(Failure::Wrong(format!(
            "the download ended with {status}: {said}"
        )));
    }
    load(network, &site, "pass all\n")?;
    network.wait_for(&nginx.process, address, Nginx::PORT)?;
    nginx.stop()
}

/// A filter without rules isn't asked, and one that is stopped hears of none: new ones hold all the same, at once.
fn loaded_while_it_is_stopped(network: &Network) -> Outcome {
    let site = Site::new()?;
    let address = Network::SKINK[0];
    let nginx = Nginx::on_skink(network, &site)?;
    network.wait_for(&nginx.process, address, Nginx::PORT)?;
    let filter = || -> Result<Option<u32>, Failure> {
        let mut members = network.members()?.into_iter();
        Ok(members.find(|it| it.name == "filter").and_then(|it| it.pid))
    };
    let stopped = filter()?;
    let pid = stopped.ok_or_else(|| Failure::Wrong("no filter runs".to_owned()))?;
    signal(pid, Signal::STOP)?;
    load(network, &site, "block in proto tcp to port 80\n")?;
    let url = format!("http://{address}:80/tiny");
    let first = fetch(network, &url)?;
    network.wait_until("the filter is replaced", || {
        filter().is_ok_and(|now| now.is_some() && now != stopped)
    })?;
    let codes = [first, fetch(network, &url)?];
    if codes != [28; 2] {
        return Err(Failure::Wrong(format!(
            "curl of a blocked port ended with {codes:?}"
        )));
    }
    load(network, &site, "pass all\n")?;
    network.wait_for(&nginx.process, address, Nginx::PORT)?;
    nginx.stop()
}

/// `skink filter load`
fn load(network: &Network, site: &Site, rules: &str) -> Outcome {
    let file = site.path("rules.conf");
    std::fs::write(&file, rules)?;
    let mut command = network.skink.command(&Network::tool()?.to_string_lossy());
    command.args(["filter", "load"]).arg(&file);
    Network::finish(command, "skink filter load", PATIENCE).map(drop)
}

/// `skink filter show`
fn show(network: &Network) -> Result<Value, Failure> {
    let mut command = network.skink.command(&Network::tool()?.to_string_lossy());
    command.args(["filter", "show", "--json"]);
    let said = Network::finish(command, "skink filter show", PATIENCE)?;
    Ok(serde_json::from_str(&said)?)
}

/// The rules that are shown, each with what it has counted of packets.
fn counted(shown: &Value) -> Vec<(&str, u64)> {
    let rules = shown["rules"].as_array().into_iter().flatten();
    let counted =
        rules.filter_map(|rule| Some((rule["rule"].as_str()?, rule["packets"].as_u64()?)));
    counted.collect()
}

/// What rules have counted is told, of those that were loaded last.
fn shown(network: &Network) -> Outcome {
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    let url = format!("http://{}:80/tiny", Network::SKINK[0]);
    let one = &["pass all flags any"][..];
    for rules in [one, &["block drop in proto udp all", "pass all flags any"]] {
        load(network, &site, &rules.join("\n"))?;
        let code = fetch(network, &url)?;
        let shown = show(network)?;
        let counted = counted(&shown);
        let last = counted.last().map_or(0, |(_, packets)| *packets);
        // The handshake, the request, the answer, and the end.
        if code != 0 || counted.len() != rules.len() || last < 6 {
            return Err(Failure::Wrong(format!(
                "by {rules:?} curl ended with {code}, and this is shown: {shown}"
            )));
        }
    }
    nginx.stop()
}

/// A process that is stopped while rules are loaded has them when it goes on, and one that starts later from the beginning.
fn loaded_into_each_process(network: &Network) -> Outcome {
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    let (_, workers) = nginx.workers()?;
    let [stopped, other] = workers[..] else {
        return Err(Failure::Wrong(format!("workers of nginx: {workers:?}")));
    };
    signal(stopped, Signal::STOP)?;
    let blocked = "block in proto tcp to port 80\n";
    match load(network, &site, blocked) {
        Err(Failure::Wrong(why)) if why.contains(&format!("nginx {stopped}: ")) => {}
        outcome => {
            return Err(Failure::Wrong(format!(
                "loading with worker {stopped} stopped: {outcome:?}"
            )));
        }
    }
    signal(stopped, Signal::CONT)?;
    signal(other, Signal::KILL)?;
    nginx.process.wait_until("another worker has a stack", || {
        network.programs().is_ok_and(|all| {
            let workers = nginx
                .workers()
                .map_or_else(|_| Vec::new(), |(_, workers)| workers);
            !workers.contains(&other) && workers.iter().all(|pid| all.contains(pid))
        })
    })?;
    let shown = show(network)?;
    let sums = shown["processes"].as_array().into_iter().flatten();
    let left_out = sums.filter(|it| !it["left_out"].is_null()).count();
    if counted(&shown).len() != 1 || left_out != 0 {
        return Err(Failure::Wrong(format!("after that this is shown: {shown}")));
    }
    let code = fetch(network, &format!("http://{}:80/tiny", Network::SKINK[0]))?;
    if code != 28 {
        let text = format!("curl of a port that all block ended with {code}: {shown}");
        return Err(Failure::Wrong(text));
    }
    // It has something to say of the worker that was killed.
    let (status, said) = nginx.process.stop()?;
    match status.success() && !said.contains("panicked") {
        true => Ok(()),
        false => Err(Failure::Wrong(format!("nginx ended with {status}: {said}"))),
    }
}

/// One port for each family: 80 over IPv6, 8080 over IPv4.
const FAMILIES: &str = "
set block-policy return
block all
pass inet6 proto icmp6 icmp6-type { neighbrsol, neighbradv } no state
pass in proto tcp to port { 80, 8080 } flags S/SA keep state
block in inet proto tcp to port 80
block in quick inet6 proto tcp from fd09::/64 to port 8080
";

/// Rules of one family leave the other one alone, and each counts what it has decided.
fn families_and_counters(network: &Network) -> Outcome {
    let site = Site::new()?;
    let script = two_servers(&site).replace("0.0.0.0", "::");
    let command = network.skink_run("bash", ["-c", &script])?;
    let servers = Process::spawn(command, "two web servers on Skink")?;
    let [v4, v6] = Network::SKINK;
    network.wait_for(&servers, v6, Nginx::PORT)?;
    network.wait_for(&servers, v4, 8080)?;
    for (address, port) in [(v6, Nginx::PORT), (v4, 8080)] {
        let mut shell = network.kernel.command("bash");
        shell.args(["-c", &site.fetch_and_compare(address, port, "larger")]);
        Network::finish(shell, "fetching through the filter", PATIENCE)?;
    }
    for (address, port) in [(v4, Nginx::PORT), (v6, 8080)] {
        let url = format!("http://{}:{port}/tiny", bracketed(address));
        for _ in 0..3 {
            let code = fetch(network, &url)?;
            if code != 7 {
                return Err(Failure::Wrong(format!("curl of {url} ended with {code}")));
            }
        }
    }
    let shown = show(network)?;
    let count = |rule: &str, counter: &str| {
        let mut rules = shown["rules"].as_array().into_iter().flatten();
        let found = rules.find(|it| it["rule"] == rule);
        found.and_then(|it| it[counter].as_u64()).unwrap_or(0)
    };
    let larger = Site::FILES[4].1;
    let web = "pass in proto tcp from any to any port = 80 flags S/SA keep state";
    let other = "pass in proto tcp from any to any port = 8080 flags S/SA keep state";
    let blocked = [
        "block return in inet proto tcp from any to any port = 80",
        "block return in quick inet6 proto tcp from fd09::/64 to any port = 8080",
    ];
    // Each of them passed the file, and turned down three.
    let passed = [web, other].map(|rule| count(rule, "bytes") > larger);
    let turned_down = blocked.map(|rule| count(rule, "packets") == 3);
    match passed == [true; 2] && turned_down == [true; 2] && count(web, "states_made") > 0 {
        true => Ok(()),
        false => Err(Failure::Wrong(format!(
            "skink filter show printed:\n{shown}"
        ))),
    }
}
