//! Calls that aren't about the network, under `skink run`: they do what they do without; and calls of signal handlers.

use super::{in_each_topology, python};
use crate::network::Network;
use crate::site::PATIENCE;
use crate::{Case, Failure, Outcome};
use skink_testbed::Scratch;
use std::path::PathBuf;
use std::process::Command;

pub fn cases() -> Vec<Case> {
    let mut cases = in_each_topology("calls", calls);
    cases.extend(in_each_topology("signals", signals));
    cases
}

fn compile(scratch: &Scratch, name: &str, source: &str, how: &[&str]) -> Result<PathBuf, Failure> {
    let path = scratch.path().join(name).with_extension("c");
    std::fs::write(&path, source)?;
    let product = scratch.path().join(name);
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-pthread"]).args(how);
    compiler.arg("-o").arg(&product).arg(&path);
    Network::finish(compiler, "cc", PATIENCE)?;
    Ok(product)
}

/// A program of one thread, then of two, of which one is cancelled; and a library that is preloaded beside Skink's sees what
/// the program calls.
fn calls(network: &Network) -> Outcome {
    let scratch = Scratch::new("calls")?;
    let program = compile(&scratch, "calls", include_str!("calls.c"), &[])?;
    let library = ["-shared", "-fPIC"];
    let library = compile(&scratch, "seen", include_str!("calls-seen.c"), &library)?;
    let program = program.display().to_string();
    let plain = network.skink_run(&program, [""; 0])?;
    Network::finish(plain, "calls", PATIENCE)?;
    let mut seen = network.skink_run(&program, ["seen"])?;
    seen.env("LD_PRELOAD", library);
    Network::finish(seen, "calls seen", PATIENCE)?;
    Ok(())
}

/// Says each byte again, each `l` after a while.
const ECHO: &str = "
import socket, threading, time
listener = socket.create_server(('10.9.0.1', 9400))
print('ready', flush=True)
def serve(c):
    while data := c.recv(64):
        for at in range(len(data)):
            if data[at] == ord('l'):
                time.sleep(0.3)
            c.sendall(data[at:at+1])
while True:
    threading.Thread(target=serve, args=listener.accept()[:1], daemon=True).start()
";

/// Handlers that make calls while they interrupt others, or leave those for good.
fn signals(network: &Network) -> Outcome {
    let scratch = Scratch::new("signals")?;
    let program = compile(&scratch, "signals", include_str!("signals.c"), &[])?;
    let program = program.display().to_string();
    let _echo = python::start_on_kernel(network, "echo", ECHO, &[], "ready")?;
    let run = network.skink_run(&program, [Network::KERNEL[0]])?;
    let said = Network::finish(run, "signals", PATIENCE)?;
    match said.contains("all") {
        true => Ok(()),
        false => Err(Failure::Wrong(said)),
    }
}
