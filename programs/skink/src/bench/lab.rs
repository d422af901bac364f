//! The machines: for each variant a server and a client on one cable, each side on a processor of its
//! own, with kernel threads for what the cable brings.

use super::outside::Outside;
use crate::failure::Failure;
use skink_testbed::{Cable, Host, Offload, Process};
use std::fmt;
use std::io;
use std::path::Path;
use std::process::Command;

/// Where the server, and all work on its side, runs.
pub const SERVER_CPU: usize = 1;
/// Where the client, and all work on its side, runs.
pub const CLIENT_CPU: usize = 0;
/// Largest IP packet in bytes.
pub const MTU: u32 = 1_500;
/// The server's address.
pub const ADDRESS: &str = "10.9.0.2";
/// The client's. (Not the network's first one: `skink run` gives that to the kernel's side of a TAP.)
const CLIENT_ADDRESS: &str = "10.9.0.9";

/// What carries Skink's frames.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum BackEnd {
    Packet,
    Xdp,
    Tap,
}

impl BackEnd {
    pub const ALL: [BackEnd; 3] = [BackEnd::Packet, BackEnd::Xdp, BackEnd::Tap];
}

/// What serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Variant {
    /// The kernel's stack with segmentation and joining offloads.
    Kernel,
    /// The kernel's stack without segmentation and checksum offloads.
    KernelFrames,
    /// Skink.
    Skink(BackEnd),
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Variant::Kernel => "kernel-gso-on",
            Variant::KernelFrames => "kernel-gso-off",
            Variant::Skink(BackEnd::Packet) => "skink-packet",
            Variant::Skink(BackEnd::Xdp) => "skink-xdp",
            Variant::Skink(BackEnd::Tap) => "skink-tap",
        })
    }
}

/// A server's and a client's machine.
pub struct Lab {
    pub variant: Variant,
    pub client: Host,
    server: Host,
    /// Names of the cable's ends, which no other running benchmark has.
    server_end: String,
    client_end: String,
}

impl Lab {
    /// Makes the machines. `run` is told apart from other runs by its names.
    pub fn new(variant: Variant, run: u16, index: usize) -> io::Result<Lab> {
        let lab = Lab {
            variant,
            client: Host::new()?,
            server: Host::new()?,
            server_end: format!("sk{run:04x}s{index}"),
            client_end: format!("sk{run:04x}c{index}"),
        };
        let cable = Cable {
            mtu: MTU,
            ..Cable::default()
        };
        lab.server
            .cable(&lab.server_end, &lab.client, &lab.client_end, cable)?;
        for (host, end) in lab.ends() {
            if variant == Variant::KernelFrames {
                for offload in [
                    Offload::TcpSegmentation,
                    Offload::Segmentation,
                    Offload::TransmitChecksum,
                ] {
                    host.offload(end, offload, false)?;
                }
            }
            // Without it a veth has no NAPI: the sender's processor would do the receiver's work.
            host.offload(end, Offload::Joining, true)?;
            host.threaded_napi(end)?;
        }
        lab.client
            .address(&lab.client_end, &format!("{CLIENT_ADDRESS}/24"))?;
        // A connection for every request uses up ports.
        let mut ports = lab.client.command("sh");
        ports.args([
            "-c",
            "echo 1024 65535 >/proc/sys/net/ipv4/ip_local_port_range",
        ]);
        ports.output()?;
        match variant {
            Variant::Kernel | Variant::KernelFrames => {
                lab.server
                    .address(&lab.server_end, &format!("{ADDRESS}/24"))?;
            }
            Variant::Skink(BackEnd::Tap) => lab.bridge_tap()?,
            Variant::Skink(BackEnd::Packet | BackEnd::Xdp) => {}
        }
        Ok(lab)
    }

    fn ends(&self) -> [(&Host, &str); 2] {
        [
            (&self.server, &self.server_end),
            (&self.client, &self.client_end),
        ]
    }

    fn bridge_tap(&self) -> io::Result<()> {
        let server = &self.server;
        server.ip("tuntap add dev skink0 mode tap multi_queue vnet_hdr")?;
        server.ip(&format!("link set skink0 mtu {MTU}"))?;
        server.ip("link add bridge type bridge forward_delay 0 mcast_snooping 0")?;
        for port in [self.server_end.as_str(), "skink0"] {
            server.ip(&format!("link set {port} master bridge"))?;
            server.ip(&format!("link set {port} up"))?;
        }
        server.ip(&format!("link set bridge mtu {MTU} up"))?;
        Ok(())
    }

    /// Starts nginx, on Skink or not, on the server's processor.
    pub fn start(&self, configuration: &Path) -> io::Result<Process> {
        let mut command = on_processor(&self.server, SERVER_CPU);
        if let Variant::Skink(back_end) = self.variant {
            command.arg(std::env::current_exe()?);
            let nic = match back_end {
                BackEnd::Packet => format!("packet:{}", self.server_end),
                BackEnd::Xdp => format!("xdp:{}", self.server_end),
                BackEnd::Tap => "tap:skink0".to_owned(),
            };
            command.args(["run", "--nic", &nic, "--addr", &format!("{ADDRESS}/24")]);
            command.args(["--no-probe", "--"]);
        }
        command.arg("nginx").arg("-c").arg(configuration);
        Process::spawn(command, &format!("nginx on {}", self.variant))
    }

    /// wrk on the client's processor.
    pub fn wrk(&self, file: &str, close: bool, seconds: u32, connections: u32) -> Command {
        let mut command = on_processor(&self.client, CLIENT_CPU);
        command.args([
            "wrk",
            "-t1",
            &format!("-c{connections}"),
            &format!("-d{seconds}s"),
        ]);
        command.args(["--latency", "--timeout", "5s"]);
        if close {
            command.args(["-H", "Connection: close"]);
        }
        command.arg(format!("http://{ADDRESS}:80/{file}"));
        command
    }

    /// Pins the kernel threads of both ends of the cable, which a server that loads an XDP program may
    /// have made anew; answers the server's and the client's.
    pub fn pin(&self, outside: &Outside) -> Result<[Vec<String>; 2], Failure> {
        let threads = |end: &str, cpu| outside.pin(&format!("napi/{end}-"), cpu);
        Ok([
            threads(&self.server_end, SERVER_CPU)?,
            threads(&self.client_end, CLIENT_CPU)?,
        ])
    }
}

fn on_processor(host: &Host, cpu: usize) -> Command {
    let mut command = host.command("taskset");
    command.args(["--cpu-list", &cpu.to_string()]);
    command
}
