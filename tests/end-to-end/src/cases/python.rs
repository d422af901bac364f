//! Programs in Python whose text stands in a case.

use crate::Failure;
use crate::network::Network;
use crate::site::PATIENCE;
use skink_testbed::Process;

/// Starts one on Skink, and waits until it has printed `word`.
pub fn start(
    network: &Network,
    name: &str,
    script: &str,
    arguments: &[&str],
    word: &str,
) -> Result<Process, Failure> {
    let arguments = ["-c", script].into_iter().chain(arguments.iter().copied());
    let process = Process::spawn(network.skink_run("python3", arguments)?, name)?;
    let what = format!("it has printed {word:?}");
    process.wait_until(&what, || process.log().contains(word))?;
    Ok(process)
}

/// Starts one on the kernel's host, and waits until it has printed `word`.
pub fn start_on_kernel(
    network: &Network,
    name: &str,
    script: &str,
    arguments: &[&str],
    word: &str,
) -> Result<Process, Failure> {
    let mut command = network.kernel.command("python3");
    command.args(["-c", script]).args(arguments);
    let process = Process::spawn(command, name)?;
    let what = format!("it has printed {word:?}");
    process.wait_until(&what, || process.log().contains(word))?;
    Ok(process)
}

/// Runs one on the kernel's host to its end; answers what it printed.
pub fn finish_on_kernel(
    network: &Network,
    name: &str,
    script: &str,
    arguments: &[&str],
) -> Result<String, Failure> {
    let mut command = network.kernel.command("python3");
    command.args(["-c", script]).args(arguments);
    Network::finish(command, name, PATIENCE)
}
