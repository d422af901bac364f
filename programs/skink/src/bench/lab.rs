//! The machines: for each variant a server and a client on one cable, each side on a processor of its
//! own, with kernel threads for what the cable brings.

use super::outside::{NAPI, Outside};
use super::peer::held_from;
use super::variant::{BackEnd, Stack, Variant};
use crate::failure::Failure;
use skink_testbed::{Cable, Host, Offload, Traffic};
use std::io;
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

/// Which processor receives what passes the cable.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Receive {
    /// That of the side that it is for, as behind a NIC
    Own,
    /// That of the side that sent it: a veth as it comes, without threads for NAPI
    Sender,
}

/// A server's and a client's machine.
pub struct Lab {
    pub variant: Variant,
    pub client: Host,
    pub server: Host,
    /// Names of the cable's ends, which no other running benchmark has.
    pub server_end: String,
    client_end: String,
}

impl Lab {
    /// Makes the machines. `run` is told apart from other runs by its names.
    pub fn new(variant: &Variant, run: u16, index: usize, receive: Receive) -> io::Result<Lab> {
        let lab = Lab {
            variant: variant.clone(),
            client: Host::new()?,
            server: Host::new()?,
            server_end: format!("sk{run:04x}s{index}"),
            client_end: format!("sk{run:04x}c{index}"),
        };
        let cable = Cable {
            mtu: MTU,
            queues: variant.workers,
        };
        lab.server
            .cable(&lab.server_end, &lab.client, &lab.client_end, cable)?;
        for (host, end) in lab.ends() {
            if !variant.gso {
                for offload in [
                    Offload::TcpSegmentation,
                    Offload::Segmentation,
                    Offload::TransmitChecksum,
                ] {
                    host.offload(end, offload, false)?;
                }
            }
        }
        if receive == Receive::Own {
            lab.steer()?;
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
        match &variant.stack {
            Stack::Kernel => {
                lab.server
                    .address(&lab.server_end, &format!("{ADDRESS}/24"))?;
            }
            Stack::Skink(_, BackEnd::Tap) => lab.bridge_tap()?,
            Stack::Skink(_, BackEnd::Packet | BackEnd::Xdp) => {}
            Stack::Raw(nic) => lab.without_stack(*nic)?,
        }
        if let Ok(server) = ADDRESS.parse() {
            for address in held_from(server, variant.idle) {
                lab.client
                    .address(&lab.client_end, &format!("{address}/24"))?;
            }
        }
        Ok(lab)
    }

    /// The server's host and its end of the cable, and the client's.
    pub fn ends(&self) -> [(&Host, &str); 2] {
        [
            (&self.server, &self.server_end),
            (&self.client, &self.client_end),
        ]
    }

    /// Has the processor of the side that it is for receive what passes the cable. Without joining a veth has no NAPI; and where
    /// an end has segmentation offload, what it sends is received without NAPI anyway: the sender's processor would do the
    /// receiver's work.
    fn steer(&self) -> io::Result<()> {
        for (host, end) in self.ends() {
            host.offload(end, Offload::Joining, true)?;
            host.threaded_napi(end)?;
        }
        if self.variant.stack.without_segmentation() {
            // Then the client has NAPI, which joins segments again, as a card's driver would.
            self.server
                .offload(&self.server_end, Offload::TcpSegmentation, false)?;
        }
        if self.variant.gso && !self.variant.sends_frames_only() {
            self.server.receive_on(&self.server_end, SERVER_CPU)?;
            self.client.receive_on(&self.client_end, CLIENT_CPU)?;
        }
        Ok(())
    }

    /// Nobody there answers ARP: tells the client where the server is.
    fn without_stack(&self, nic: BackEnd) -> io::Result<()> {
        let mac = match nic {
            // The TAP's own would be taken for the bridge's.
            BackEnd::Tap => {
                self.bridge_tap()?;
                "02:00:00:00:09:02".to_owned()
            }
            BackEnd::Packet | BackEnd::Xdp => {
                let shown = self
                    .server
                    .ip(&format!("link show dev {}", self.server_end))?;
                let mut words = shown.split_whitespace();
                let mac = words.find(|word| *word == "link/ether").and(words.next());
                mac.unwrap_or_default().to_owned()
            }
        };
        self.client.ip(&format!(
            "neigh replace {ADDRESS} lladdr {mac} dev {} nud permanent",
            self.client_end
        ))?;
        Ok(())
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

    /// Has the client's end carry datagrams that were handed to it in one piece as frames, or leave them whole where the
    /// cable can.
    pub fn cut_datagrams(&self, cut: bool) -> io::Result<()> {
        let segments = if cut { 1 } else { 65_535 };
        let end = &self.client_end;
        self.client
            .ip(&format!("link set dev {end} gso_max_segs {segments}"))?;
        Ok(())
    }

    /// What the server's end of the cable has carried until now, whatever takes it from there.
    pub fn traffic(&self) -> io::Result<Traffic> {
        self.server.traffic(&self.server_end)
    }

    /// Pins the kernel threads of both ends of the cable, which a server that loads an XDP program may
    /// have made anew, and schedules the server's by `SCHED_BATCH` if so wanted; answers the server's and the client's.
    pub fn pin(&self, outside: &Outside, batch: bool) -> Result<[Vec<String>; 2], Failure> {
        let threads = |end: &str, cpu, batch| outside.pin(&format!("{NAPI}{end}-"), cpu, batch);
        Ok([
            threads(&self.server_end, SERVER_CPU, batch)?,
            // A client that waits for the next moment to ask doesn't sleep.
            threads(&self.client_end, CLIENT_CPU, false)?,
        ])
    }
}

/// A command that will stay on one processor.
pub fn on_processor(host: &Host, cpu: usize) -> Command {
    let mut command = host.command("taskset");
    command.args(["--cpu-list", &cpu.to_string()]);
    command
}
