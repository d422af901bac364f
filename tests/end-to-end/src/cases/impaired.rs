//! The same over a bad wire: 1% loss, reordering, duplication and 50 ms of delay.

use super::servers::no_wrk_errors;
use super::{on, once_in_each_topology};
use crate::network::{Network, Plan, bracketed};
use crate::site::{Nginx, PATIENCE, Site};
use crate::{Case, Outcome};
use skink_testbed::{Impairments, Process};
use std::time::Duration;

const KINDS: [(&str, Impairments); 2] = [
    (
        "loss-reordering-duplication",
        Impairments {
            loss: 100,
            duplicate: 100,
            reorder: 200,
            delay: Duration::from_micros(200),
        },
    ),
    (
        "loss-reordering-duplication-50ms",
        Impairments {
            loss: 100,
            duplicate: 100,
            reorder: 200,
            delay: Duration::from_millis(25),
        },
    ),
];

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (topology, back_end) in once_in_each_topology() {
        for (name, impairments) in KINDS {
            let plan = Plan::impaired(topology, back_end, impairments);
            let case = |what: &str, run: fn(&Network) -> Outcome| {
                on(plan, &plan.prefixed(&format!("{name}/{what}")), run)
            };
            cases.push(case("download", download));
            cases.push(case("upload", upload));
            cases.push(case("python", python));
            cases.push(case("curl", curl));
            cases.push(case("wrk", wrk));
        }
    }
    cases
}

fn download(network: &Network) -> Outcome {
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    for address in Network::SKINK {
        let page = site.fetch_and_compare(address, Nginx::PORT, "page");
        let large = site.fetch_and_compare(address, Nginx::PORT, "large");
        let mut shell = network.kernel.command("bash");
        let script = format!(
            "for i in 1 2 3 4 5 6; do ({page}) & p=\"$p $!\"; ({large}) & p=\"$p $!\"; done; \
             for i in $p; do wait $i || exit 1; done"
        );
        shell.args(["-c", &script]);
        Network::finish(shell, &format!("fetching from {address}"), PATIENCE)?;
    }
    nginx.stop()
}

fn upload(network: &Network) -> Outcome {
    let site = Site::new()?;
    let arguments = [
        "--save",
        "",
        "--protected-mode",
        "no",
        "--bind",
        "0.0.0.0",
        "::",
    ];
    let redis = Process::spawn(
        network.skink_run("redis-server", arguments)?,
        "redis on Skink",
    )?;
    for address in Network::SKINK {
        network.wait_for(&redis, address, 6379)?;
        let path = site.path("large");
        let script = format!(
            "redis-cli -h {address} -x SET k <{path} >/dev/null && \
             redis-cli -h {address} GET k | head -c 1048576 | cmp - {path}",
            path = path.display()
        );
        let mut shell = network.kernel.command("bash");
        shell.args(["-c", &script]);
        Network::finish(shell, &format!("redis-cli with {address}"), PATIENCE)?;
    }
    redis.stop()?;
    Ok(())
}

fn python(network: &Network) -> Outcome {
    let site = Site::new()?;
    let directory = site.path("");
    let directory = directory.to_string_lossy();
    for (bind, address) in ["0.0.0.0", "::"].into_iter().zip(Network::SKINK) {
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
        let mut shell = network.kernel.command("bash");
        shell.args(["-c", &site.fetch_and_compare(address, 8000, "large")]);
        Network::finish(shell, &format!("fetching from {address}"), PATIENCE)?;
    }
    Ok(())
}

fn wrk(network: &Network) -> Outcome {
    let site = Site::new()?;
    let _nginx = Nginx::on_kernel(network, &site)?;
    for address in Network::KERNEL {
        let url = format!("http://{}:80/page", bracketed(address));
        let arguments = ["-t2", "-c16", "-d2s", "--timeout", "30s", &url];
        let command = network.skink_run("wrk", arguments)?;
        no_wrk_errors(&Network::finish(command, "wrk on Skink", PATIENCE)?)?;
    }
    Ok(())
}

fn curl(network: &Network) -> Outcome {
    let site = Site::new()?;
    let _nginx = Nginx::on_kernel(network, &site)?;
    for address in Network::KERNEL {
        let script = site.fetch_and_compare(address, Nginx::PORT, "large");
        let command = network.skink_run("bash", ["-c", &script])?;
        Network::finish(command, &format!("curl from {address} on Skink"), PATIENCE)?;
    }
    Ok(())
}
