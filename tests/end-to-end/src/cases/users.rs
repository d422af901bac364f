//! Programs of users without any rights, who start them by themselves on a stack that root runs.

use super::cases_in;
use crate::network::Network;
use crate::site::{Nginx, PATIENCE, Site};
use crate::{BackEnd, Case, Failure, Outcome, Topology};
use skink_testbed::{Process, Scratch};
use std::process::Command;

/// User ids that no user of a system has.
const SERVER: u32 = 64001;
const CLIENT: u32 = 64002;

pub fn cases() -> Vec<Case> {
    let places = [Topology::Single, Topology::Split].map(|it| (it, BackEnd::Packet));
    cases_in(&places, "users/server-and-client", server_and_client)
}

/// A copy of this build that everybody may execute, wherever it was built.
pub struct Build(Scratch);

impl Build {
    /// Copies it.
    pub fn new() -> Result<Build, Failure> {
        if !skink_testbed::is_root() {
            return Err(Failure::Skip("to be other users needs root".to_owned()));
        }
        let build = Build(Scratch::new("build")?);
        let tool = Network::tool()?;
        for name in ["skink", "libskink.so"] {
            std::fs::copy(tool.with_file_name(name), build.0.path().join(name))?;
        }
        Ok(build)
    }

    /// `skink run` on the Skink host, which this user starts.
    pub fn run(&self, network: &Network, user: u32, words: &[&str]) -> Command {
        let mut command = network.skink.command("setpriv");
        command.args([format!("--reuid={user}"), format!("--regid={user}")]);
        command.args(["--clear-groups", "--no-new-privs", "--inh-caps=-all"]);
        command.arg(self.0.path().join("skink"));
        command
            .args(["run", "--name", &Network::name(), "--"])
            .args(words);
        command
    }
}

/// One user's server and another's client do as root's would.
fn server_and_client(network: &Network) -> Outcome {
    let build = Build::new()?;
    let site = Site::new()?;
    let words = [
        "redis-server",
        "--save",
        "",
        "--protected-mode",
        "no",
        "--bind",
        "0.0.0.0",
        "::",
    ];
    let server = Process::spawn(build.run(network, SERVER, &words), "a user's redis")?;
    for address in Network::SKINK {
        network.wait_for(&server, address, 6379)?;
        let path = site.path("larger");
        let script = format!(
            "redis-cli -h {address} -x SET larger <{path} >/dev/null && \
             redis-cli -h {address} GET larger | head -c {bytes} | cmp - {path}",
            bytes = path.metadata()?.len(),
            path = path.display()
        );
        let mut shell = network.kernel.command("bash");
        shell.args(["-c", &script]);
        Network::finish(shell, "redis-cli", PATIENCE)?;
    }
    let served = network.report("programs", |it| it["uid"] == SERVER)?;
    if served.is_none_or(|it| it["pid"] != server.id()) {
        return Err(Failure::Wrong(format!(
            "redis isn't that user's: {}",
            server.log()
        )));
    }
    let nginx = Nginx::on_kernel(network, &site)?;
    for address in Network::KERNEL {
        let script = site.fetch_and_compare(address, Nginx::PORT, "larger");
        let client = build.run(network, CLIENT, &["bash", "-c", &script]);
        Network::finish(client, "a user's curl", PATIENCE)?;
    }
    nginx.stop()?;
    server.stop()?;
    Ok(())
}
