//! Calls that aren't about the network, under `skink run`: they do what they do without.

use super::in_each_topology;
use crate::network::Network;
use crate::site::PATIENCE;
use crate::{Case, Failure, Outcome};
use skink_testbed::Scratch;
use std::path::PathBuf;
use std::process::Command;

pub fn cases() -> Vec<Case> {
    in_each_topology("calls", calls)
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
