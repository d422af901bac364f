//! `skink run`'s words when something isn't right, and the tools to look inside.

use super::on_each_back_end;
use crate::network::{Network, Plan};
use crate::site::{Nginx, PATIENCE, Site};
use crate::{BackEnd, Case, Failure, Outcome};
use skink_testbed::Process;
use std::process::Command;

pub fn cases() -> Vec<Case> {
    let mut cases = vec![Case::new("run/words-for-what-is-wrong", refusals)];
    cases.extend(on_each_back_end("tools/stat-ss-capture", tools));
    cases
}

/// Arguments of `skink run`, and what its last words must hold.
const REFUSALS: [(&[&str], &[&str]); 7] = [
    (
        &[
            "--nic",
            "packet:nowhere",
            "--addr",
            "10.9.0.2/24",
            "--",
            "true",
        ],
        &["nowhere", "wire"],
    ),
    (&["--nic", "packet:wire", "--", "true"], &["--addr"]),
    (&["--nic", "token:ring", "--", "true"], &["packet:"]),
    (
        &[
            "--nic",
            "packet:wire",
            "--addr",
            "10.9.0.1/24",
            "--",
            "true",
        ],
        &["10.9.0.1", "in use"],
    ),
    (
        &[
            "--nic",
            "packet:wire",
            "--addr",
            "10.9.0.300/24",
            "--",
            "true",
        ],
        &["10.9.0.300"],
    ),
    (
        &[
            "--nic",
            "packet:wire",
            "--addr",
            "10.9.0.2/24",
            "--",
            "no-such-program",
        ],
        &["no-such-program"],
    ),
    (
        &[
            "--nic",
            "packet:wire",
            "--addr",
            "10.9.0.2/24",
            "--",
            "STATIC",
        ],
        &["static"],
    ),
];

fn refusals() -> Outcome {
    let network = Network::new(Plan {
        back_end: BackEnd::Packet,
        mtu: 1_500,
        impairments: None,
    })?;
    let scratch = skink_testbed::Scratch::new("static")?;
    let program = scratch.path().join("static");
    std::fs::write(&program, static_program())?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode)?;
    let tool = Network::tool()?;
    for (arguments, words) in REFUSALS {
        let mut command = network.skink.command(&tool.to_string_lossy());
        command.arg("run");
        for argument in arguments {
            if *argument == "STATIC" {
                command.arg(&program);
            } else {
                command.arg(argument);
            }
        }
        let process = Process::spawn(command, "skink run")?;
        let (status, said) = process.wait(PATIENCE)?;
        let complete = words.iter().all(|word| said.contains(word));
        if status.success() || !complete || said.contains("panicked") {
            let text =
                format!("{arguments:?} ended with {status}, expected {words:?}; it said:\n{said}");
            return Err(Failure::Wrong(text));
        }
    }
    Ok(())
}

/// The smallest ELF program for x86-64 that needs no interpreter: it exits with 0.
fn static_program() -> Vec<u8> {
    let mut elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    elf.extend([2, 0, 62, 0, 1, 0, 0, 0]);
    for word in [0x40_0078u64, 64, 0] {
        elf.extend(word.to_le_bytes());
    }
    elf.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    elf.extend([1, 0, 0, 0, 5, 0, 0, 0]);
    for word in [0u64, 0x40_0000, 0x40_0000, 0x81, 0x81, 0x1000] {
        elf.extend(word.to_le_bytes());
    }
    // mov eax, 60; xor edi, edi; syscall
    elf.extend([0xb8, 60, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05]);
    elf
}

fn tools(network: &Network) -> Outcome {
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    let file = site.path("capture.pcapng");
    let tool = Network::tool()?;
    let mut capture = network.skink.command(&tool.to_string_lossy());
    capture.args([
        "capture",
        "-w",
        &file.to_string_lossy(),
        "tcp",
        "and",
        "port",
        "80",
    ]);
    let capture = Process::spawn(capture, "skink capture")?;
    capture.wait_until("the capture runs", || {
        file.metadata().is_ok_and(|file| file.len() > 0)
    })?;
    let mut shell = network.kernel.command("bash");
    let fetch = site.fetch_and_compare(Network::SKINK[0], Nginx::PORT, "large");
    shell.args(["-c", &fetch]);
    Network::finish(shell, "fetching during a capture", PATIENCE)?;
    capture.wait_until("frames are written", || {
        file.metadata().is_ok_and(|file| file.len() > 100_000)
    })?;
    capture.stop()?;
    let bytes = std::fs::read(&file)?;
    if bytes.get(..4) != Some(&[0x0a, 0x0d, 0x0d, 0x0a]) {
        return Err(Failure::Wrong("the capture isn't a pcapng file".to_owned()));
    }
    let stat = json(&tool, &["stat"])?;
    if !stat.to_string().contains("tcp.segments_in") {
        return Err(Failure::Wrong(format!(
            "stat lacks tcp.segments_in: {stat}"
        )));
    }
    let sockets = json(&tool, &["ss", "--all"])?;
    if !sockets.to_string().contains("LISTEN") {
        return Err(Failure::Wrong(format!("ss shows no listener: {sockets}")));
    }
    nginx.stop()
}

fn json(tool: &std::path::Path, arguments: &[&str]) -> Result<serde_json::Value, Failure> {
    let mut command = Command::new(tool);
    command.args(arguments).arg("--json");
    let said = Network::finish(command, "skink", PATIENCE)?;
    serde_json::from_str(&said)
        .map_err(|error| Failure::Wrong(format!("skink {arguments:?} --json: {error}: {said}")))
}
