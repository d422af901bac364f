use crate::site::PATIENCE;
use crate::{BackEnd, Failure, Outcome, Topology};
use rustix::process::Signal;
use serde_json::Value;
use skink_testbed::{
    Cable, Host, Impairments, Offload, Process, Scratch, Wire, signal, wait_until_ended,
};
use std::cell::Cell;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// What a [`Network`] should be like.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Where Skink's components run.
    pub topology: Topology,
    /// What carries Skink's frames.
    pub back_end: BackEnd,
    /// Largest IP packet in bytes.
    pub mtu: u32,
    /// What the cable does to frames; `None` for a plain veth pair.
    pub impairments: Option<Impairments>,
    /// Rules of the packet filter.
    pub rules: Option<&'static str>,
    /// Queues of each end of the wire.
    pub queues: u32,
}

impl Plan {
    /// A plain veth pair with a queue and an ordinary MTU, without rules.
    pub fn plain(topology: Topology, back_end: BackEnd) -> Plan {
        Plan {
            topology,
            back_end,
            mtu: 1_500,
            impairments: None,
            rules: None,
            queues: 1,
        }
    }

    /// A cable that does this to frames of up to 1500 bytes.
    pub fn impaired(topology: Topology, back_end: BackEnd, impairments: Impairments) -> Plan {
        Plan {
            impairments: Some(impairments),
            ..Plan::plain(topology, back_end)
        }
    }

    /// The name of a case on such a network.
    pub fn prefixed(&self, name: &str) -> String {
        format!("{}/{}/{name}", self.topology, self.back_end)
    }
}

/// Two hosts on one wire: `skink`, whose address belongs to programs on Skink, and `kernel`.
pub struct Network {
    /// Where programs run under `skink run`.
    pub skink: Host,
    /// Where programs use the kernel's stack.
    pub kernel: Host,
    /// How it was made.
    pub plan: Plan,
    /// `skink up`, unless the stack is in the programs.
    pub up: Option<Process>,
    /// The case has killed it.
    pub up_is_dead: Cell<bool>,
    rules: Option<Scratch>,
    _middle: Option<(Wire, Host)>,
}

impl Network {
    /// Addresses of programs on Skink.
    pub const SKINK: [&str; 2] = ["10.9.0.2", "fd09::2"];
    /// Addresses of the kernel's host.
    pub const KERNEL: [&str; 2] = ["10.9.0.1", "fd09::1"];

    /// Makes the hosts and the wire.
    pub fn new(plan: Plan) -> Result<Network, Failure> {
        Network::with(plan, &[])
    }

    /// The same, with more arguments for `skink up`.
    ///
    /// # Errors
    /// As [`Network::new`].
    pub fn with(plan: Plan, arguments: &[&str]) -> Result<Network, Failure> {
        Network::behind(&[], plan, arguments)
    }

    /// The same, with `skink up` executed by this command, which becomes it.
    ///
    /// # Errors
    /// As [`Network::new`].
    pub fn behind(command: &[&str], plan: Plan, arguments: &[&str]) -> Result<Network, Failure> {
        if plan.back_end == BackEnd::Xdp && !skink_testbed::is_root() {
            return Err(Failure::Skip(
                "loading an XDP program needs root".to_owned(),
            ));
        }
        if plan.back_end == BackEnd::Tap && std::fs::File::open("/dev/net/tun").is_err() {
            return Err(Failure::Skip("/dev/net/tun can't be opened".to_owned()));
        }
        let (skink, kernel) = (Host::new()?, Host::new()?);
        let cable = Cable {
            mtu: plan.mtu,
            queues: plan.queues,
        };
        let middle = match plan.impairments {
            None => {
                skink.cable("wire", &kernel, "wire", cable)?;
                None
            }
            Some(impairments) => {
                let middle = Host::new()?;
                middle.cable("left", &skink, "wire", cable)?;
                middle.cable("right", &kernel, "wire", cable)?;
                for offload in Offload::ALL {
                    middle.offload("left", offload, false)?;
                    middle.offload("right", offload, false)?;
                    skink.offload("wire", offload, false)?;
                    kernel.offload("wire", offload, false)?;
                }
                Some((
                    Wire::start(&middle, "left", "right", impairments, 1)?,
                    middle,
                ))
            }
        };
        for address in Self::KERNEL {
            let prefix = if address.contains(':') { 64 } else { 24 };
            kernel.address("wire", &format!("{address}/{prefix}"))?;
        }
        if plan.back_end == BackEnd::Tap {
            skink.ip("tuntap add dev skink0 mode tap multi_queue vnet_hdr")?;
            skink.ip(&format!("link set skink0 mtu {}", plan.mtu))?;
            skink.ip("link add bridge type bridge forward_delay 0 mcast_snooping 0")?;
            for port in ["wire", "skink0"] {
                skink.ip(&format!("link set {port} master bridge"))?;
                skink.ip(&format!("link set {port} up"))?;
            }
            skink.ip(&format!("link set bridge mtu {} up", plan.mtu))?;
        }
        let mut network = Network {
            skink,
            kernel,
            plan,
            up: None,
            up_is_dead: Cell::new(false),
            rules: None,
            _middle: middle,
        };
        if let Some(rules) = plan.rules {
            let scratch = Scratch::new("rules")?;
            std::fs::write(scratch.path().join("rules.conf"), rules)?;
            network.rules = Some(scratch);
        }
        if plan.topology != Topology::Library {
            network.up = Some(network.start_stack(command, arguments)?);
        }
        Ok(network)
    }

    /// What the `skink up` of this program's networks is called.
    pub fn name() -> String {
        format!("end-to-end-{}", std::process::id())
    }

    fn start_stack(&self, before: &[&str], arguments: &[&str]) -> Result<Process, Failure> {
        let tool = Self::tool()?;
        let tool = tool.to_string_lossy();
        let mut words = before.iter().copied().chain([&*tool]);
        let mut command = self.skink.command(words.next().unwrap_or_default());
        command.args(words);
        let topology = self.plan.topology.to_string();
        command.args(["up", "--name", &Self::name(), "--topology", &topology]);
        command.args(self.network_arguments()).args(arguments);
        let up = Process::spawn(command, "skink up")?;
        up.wait_until("it is ready", || up.log().contains("ready"))?;
        Ok(up)
    }

    fn network_arguments(&self) -> Vec<String> {
        let nic = self.plan.back_end.nic();
        let addresses = ["--addr", "10.9.0.2/24", "--addr", "fd09::2/64"];
        let arguments = ["--nic", nic].into_iter().chain(addresses);
        let mut arguments: Vec<String> = arguments.map(str::to_owned).collect();
        if let Some(rules) = &self.rules {
            let file = rules.path().join("rules.conf").display().to_string();
            arguments.extend(["--rules".to_owned(), file]);
        }
        arguments
    }

    /// What `skink up` has printed.
    pub fn log(&self) -> String {
        self.up.as_ref().map_or_else(String::new, Process::log)
    }

    /// The process id of the stack's supervisor, whichever it is by now; `None` if there is none.
    ///
    /// # Errors
    /// If `skink ps` doesn't say.
    pub fn supervisor(&self) -> Result<Option<u32>, Failure> {
        let supervisor = self.report("processes", |it| it["name"] == "supervisor")?;
        Ok(supervisor.and_then(|it| u32::try_from(it["pid"].as_u64()?).ok()))
    }

    /// The process ids of the programs that the supervisor knows.
    ///
    /// # Errors
    /// If `skink ps` doesn't say.
    pub fn programs(&self) -> Result<Vec<u32>, Failure> {
        let mut programs = Vec::new();
        self.report("programs", |it| {
            programs.extend(it["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()));
            false
        })?;
        Ok(programs)
    }

    /// The first of the things that `skink ps` lists as `kind` that `is_wanted`.
    ///
    /// # Errors
    /// If `skink ps` doesn't say.
    pub fn report(
        &self,
        kind: &str,
        mut is_wanted: impl FnMut(&Value) -> bool,
    ) -> Result<Option<Value>, Failure> {
        let mut command = self.skink.command(&Network::tool()?.to_string_lossy());
        command.args(["ps", "--json", "--sample", "0"]);
        let text = Network::finish(command, "skink ps", PATIENCE)?;
        let report: Value = serde_json::from_str(&text)?;
        let all = report["instances"][0][kind].as_array();
        Ok(all.into_iter().flatten().find(|it| is_wanted(it)).cloned())
    }

    /// The number of the XDP program in front of Skink's end of the wire, if there is one.
    ///
    /// # Errors
    /// If `ip` doesn't say.
    pub fn xdp_program(&self) -> Result<Option<u64>, Failure> {
        let report: Value = serde_json::from_str(&self.skink.ip("-json link show wire")?)?;
        Ok(report[0]["xdp"]["prog"]["id"].as_u64())
    }

    /// Ends the stack that serves programs, and holds that it had nothing to complain about, and left no XDP program.
    pub fn stop(mut self) -> Outcome {
        let Some(up) = self.up.take() else {
            return Ok(());
        };
        self.end(up)?;
        // Whoever had it may still be ending.
        let begun = Instant::now();
        while let Some(program) = self.xdp_program()? {
            if begun.elapsed() > PATIENCE / 6 {
                let text = format!("XDP program {program} is left in front of the NIC");
                return Err(Failure::Wrong(text));
            }
            std::thread::park_timeout(Duration::from_millis(5));
        }
        Ok(())
    }

    fn end(&self, up: Process) -> Outcome {
        if self.up_is_dead.get() {
            let Some(standby) = self.supervisor()? else {
                return Ok(());
            };
            signal(standby, Signal::TERM)?;
            return Ok(wait_until_ended(&[standby], PATIENCE)?);
        }
        let (status, said) = up.stop()?;
        if !status.success() || said.contains("panicked") {
            let text = format!("skink up ended with {status}; it printed:\n{said}");
            return Err(Failure::Wrong(text));
        }
        Ok(())
    }

    /// Processes whose costs are Skink's or its program's: `run`, and `skink up` if there is one.
    pub fn processes(&self, run: &Process) -> Vec<u32> {
        let up = self.up.as_ref().map(Process::id);
        up.into_iter().chain([run.id()]).collect()
    }

    /// The command line tool of this build.
    pub fn tool() -> Result<PathBuf, Failure> {
        let own = std::env::current_exe()?;
        let tool = own.with_file_name("skink");
        if tool.is_file() {
            Ok(tool)
        } else {
            let text = format!("{} isn't built: run `make build`", tool.display());
            Err(Failure::Wrong(text))
        }
    }

    /// `skink run … -- PROGRAM ARGUMENTS` on the Skink host.
    pub fn skink_run<S: AsRef<OsStr>>(
        &self,
        program: &str,
        arguments: impl IntoIterator<Item = S>,
    ) -> Result<Command, Failure> {
        let tool = Self::tool()?;
        let mut command = self.skink.command(&tool.to_string_lossy());
        command.arg("run");
        match self.plan.topology {
            Topology::Library => command.args(self.network_arguments()),
            Topology::Single | Topology::Split => command.args(["--name", &Self::name()]),
        };
        command.arg("--").arg(program).args(arguments);
        Ok(command)
    }

    /// Runs a command to its end within `limit`, on success; answers what it printed.
    pub fn finish(command: Command, name: &str, limit: Duration) -> Result<String, Failure> {
        let process = Process::spawn(command, name)?;
        let (status, said) = process.wait(limit)?;
        if status.success() {
            Ok(said)
        } else {
            let text = format!("{name} ended with {status}; it printed:\n{said}");
            Err(Failure::Wrong(text))
        }
    }

    /// Waits until `server` answers a TCP connection from the kernel's host to `address` and `port`.
    pub fn wait_for(&self, server: &Process, address: &str, port: u16) -> Result<(), Failure> {
        self.wait_from(&self.kernel, server, address, port)
    }

    /// The same, asked from `host`.
    pub fn wait_from(
        &self,
        host: &Host,
        server: &Process,
        address: &str,
        port: u16,
    ) -> Result<(), Failure> {
        let target: std::net::SocketAddr = format!("{}:{port}", bracketed(address))
            .parse()
            .map_err(|_| Failure::Wrong(format!("{address} is no address")))?;
        server.wait_until(&format!("{target} answers"), || {
            let connect = move || {
                std::net::TcpStream::connect_timeout(&target, Duration::from_millis(500)).is_ok()
            };
            host.thread(connect)
                .is_ok_and(|thread| matches!(thread.join(), Ok(Ok(true))))
        })?;
        Ok(())
    }
}

/// An address as it stands in a URL.
pub fn bracketed(address: &str) -> String {
    if address.contains(':') {
        format!("[{address}]")
    } else {
        address.to_owned()
    }
}
