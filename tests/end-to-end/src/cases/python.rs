//! Programs in Python whose text stands in a case.

use crate::network::Network;
use crate::site::PATIENCE;
use crate::{Failure, Outcome};
use skink_testbed::Process;
use std::process::Command;

/// Starts one on Skink, and waits until it has printed `word`.
pub fn start(
    network: &Network,
    name: &str,
    script: &str,
    arguments: &[&str],
    word: &str,
) -> Result<Process, Failure> {
    let arguments = ["-c", script].into_iter().chain(arguments.iter().copied());
    spawn(network.skink_run("python3", arguments)?, name, word)
}

fn spawn(command: Command, name: &str, word: &str) -> Result<Process, Failure> {
    let process = Process::spawn(command, name)?;
    let what = format!("it has printed {word:?}");
    process.wait_until(&what, || process.log().contains(word))?;
    Ok(process)
}

fn on_kernel(network: &Network, script: &str, arguments: &[&str]) -> Command {
    let mut command = network.kernel.command("python3");
    command.args(["-c", script]).args(arguments);
    command
}

/// Starts one on the kernel's host, and waits until it has printed `word`.
pub fn start_on_kernel(
    network: &Network,
    name: &str,
    script: &str,
    arguments: &[&str],
    word: &str,
) -> Result<Process, Failure> {
    spawn(on_kernel(network, script, arguments), name, word)
}

/// Runs one on the kernel's host to its end; answers what it printed.
pub fn finish_on_kernel(
    network: &Network,
    name: &str,
    script: &str,
    arguments: &[&str],
) -> Result<String, Failure> {
    Network::finish(on_kernel(network, script, arguments), name, PATIENCE)
}

/// A client on the kernel's host runs to its end, then the server that it asked does, of which the library had nothing to say. Of
/// what failed the server's words are told, too.
pub fn asked(network: &Network, server: Process, client: &str, arguments: &[&str]) -> Outcome {
    let asked = finish_on_kernel(network, "client", client, arguments);
    asked.map_err(|failure| Failure::Wrong(format!("{failure:?}\n{}", server.log())))?;
    let (status, said) = server.wait(PATIENCE)?;
    match status.success() && !said.contains("skink[") {
        true => Ok(()),
        false => Err(Failure::Wrong(format!("it ended with {status}:\n{said}"))),
    }
}
