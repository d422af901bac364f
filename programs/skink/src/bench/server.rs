//! The server of one measurement: a program, and the stack that serves it if that isn't in the program.

use super::lab::{ADDRESS, Lab, SERVER_CPU, on_processor};
use super::measure::failed;
use super::outside::process_ids;
use super::rules;
use super::variant::{BackEnd, Stack};
use crate::failure::Failure;
use skink_testbed::{Process, Scratch};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

/// What `skink up` is called.
const NAME: &str = "bench";

/// What runs on the server's side. It is ended when this value goes.
pub struct Server {
    // In the order in which they are to be ended.
    program: Process,
    up: Option<Process>,
    _rules: Option<Scratch>,
}

impl Server {
    /// Starts the stack and the program, on the server's processor.
    pub fn start(lab: &Lab, program: &[OsString]) -> io::Result<Server> {
        let rules = rules_file(lab)?;
        let (mut up, mut command) = (None, on_processor(&lab.server, SERVER_CPU));
        if let Stack::Raw(nic) = &lab.variant.stack {
            command.args(program);
            command.args([specification(lab, *nic), format!("{ADDRESS}/24")]);
            return Ok(Server {
                program: Process::spawn(command, &format!("the server on {}", lab.variant))?,
                up: None,
                _rules: None,
            });
        }
        if let Stack::Skink(place, nic) = &lab.variant.stack {
            let tool = std::env::current_exe()?;
            command.arg(&tool).arg("run");
            if place.in_program {
                add_network(&mut command, lab, *nic, rules.as_ref());
            } else {
                let mut stack = on_processor(&lab.server, SERVER_CPU);
                stack.arg(&tool);
                stack.args(["up", "--name", NAME, "--topology", &place.word]);
                add_network(&mut stack, lab, *nic, rules.as_ref());
                let process = Process::spawn(stack, &format!("skink up for {}", lab.variant))?;
                process.wait_until("it is ready", || process.log().contains("ready"))?;
                up = Some(process);
                command.args(["--name", NAME]);
            }
            command.arg("--");
        }
        command.args(program);
        Ok(Server {
            program: Process::spawn(command, &format!("the server on {}", lab.variant))?,
            up,
            _rules: rules,
        })
    }

    /// The program's process; `skink run`'s, where that stays.
    pub fn program(&self) -> &Process {
        &self.program
    }

    /// Process ids whose descendants are all there is on the server's side.
    pub fn roots(&self) -> Vec<u32> {
        let up = self.up.iter();
        up.chain([&self.program]).map(Process::id).collect()
    }

    /// What was printed.
    pub fn log(&self) -> String {
        let up = self.up.iter();
        up.chain([&self.program]).map(Process::log).collect()
    }

    /// Ends it; it must have lasted until now without complaint. (What nginx complains of after that
    /// doesn't matter: it kills a worker that takes a second to end.)
    pub fn end(self, variant: &str) -> Result<(), Failure> {
        let before = self.log();
        let complaints = ["[alert]", "[crit]", "[emerg]", "starting it again"];
        let complained = complaints.iter().any(|word| before.contains(word));
        let early = self.program.has_ended();
        let (status, said) = self.program.stop().map_err(failed)?;
        if early || !was_ended(status) || complained || said.contains("panicked") {
            let text =
                format!("the server on {variant} ended with {status}; it printed: {said}{before}");
            return Err(Failure::tool(text));
        }
        let Some(up) = self.up else {
            return Ok(());
        };
        let (status, said) = up.stop().map_err(failed)?;
        match status.success() && !said.contains("panicked") {
            true => Ok(()),
            false => Err(Failure::tool(format!(
                "skink up for {variant} ended with {status}; it printed: {said}"
            ))),
        }
    }
}

/// As asked, with whatever status that a program gives then (lighttpd's depends on what it was doing); or by the
/// signal that asked, as `skink run` passes it on. A program of Rust that panicked gives 101.
fn was_ended(status: ExitStatus) -> bool {
    let code = status.code();
    status.signal() == Some(15) || code.is_some_and(|code| code < 101 || code == 128 + 15)
}

fn rules_file(lab: &Lab) -> io::Result<Option<Scratch>> {
    if lab.variant.rules == 0 {
        return Ok(None);
    }
    let scratch = Scratch::new("bench-rules")?;
    std::fs::write(
        scratch.path().join("rules.conf"),
        rules::text(lab.variant.rules),
    )?;
    Ok(Some(scratch))
}

/// The NIC as a person would write it.
fn specification(lab: &Lab, nic: BackEnd) -> String {
    match nic {
        BackEnd::Packet | BackEnd::Xdp => format!("{nic}:{}", lab.server_end),
        BackEnd::Tap => "tap:skink0".to_owned(),
    }
}

fn add_network(command: &mut Command, lab: &Lab, nic: BackEnd, rules: Option<&Scratch>) {
    let nic = specification(lab, nic);
    command.args(["--nic", &nic, "--addr", &format!("{ADDRESS}/24")]);
    command.arg("--no-probe");
    if let Some(rules) = rules {
        command.arg("--rules").arg(rules.path().join("rules.conf"));
    }
}

/// What processes of servers are called, as far as the kernel keeps names.
const SERVERS: [&str; 6] = [
    "nginx",
    "lighttpd",
    "skink",
    "skink-component",
    "redis-server",
    "memcached",
];

/// Kills what a server that failed may have left behind. All processes in sight are the benchmark's,
/// which has a process namespace of its own.
pub fn end_leftovers() {
    for pid in process_ids() {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let server = SERVERS.contains(&name.trim());
        let pid = (server && pid != std::process::id())
            .then(|| rustix::process::Pid::from_raw(pid as i32));
        if let Some(pid) = pid.flatten() {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}
