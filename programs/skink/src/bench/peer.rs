//! The benchmark's own servers and clients. The servers use plain sockets: each is a program like any other,
//! which runs on the kernel's stack or under `skink run`. The clients are always on the kernel's.

mod ask;
mod connect;
mod files;
mod hold;
mod load;
mod pairs;
mod server;
mod talk;

pub use files::Operation;
pub use hold::{MOST as MOST_HELD, addresses as held_from, words as held};
pub use server::Service;
pub use talk::Talk;

use super::results::Latency;
use crate::failure::Failure;
use clap::{Args, Subcommand};
use rustix::process::{Resource, getrlimit};
use skink_nic::NicSpec;
use skink_wire::IpCidr;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Where the server listens.
pub const PORT: u16 = 5201;

/// How long a server that looks on does so.
const LOOK: Duration = Duration::from_micros(100);

/// Be the server or the client of a benchmark (for the benchmarks' use)
#[derive(Args, Debug)]
pub struct PeerOptions {
    #[command(subcommand)]
    part: Part,
}

#[derive(Subcommand, Debug)]
enum Part {
    /// Serve so many connections at a time
    Serve { connections: u32 },
    /// Close each connection as soon as it is there
    Close,
    /// Send back what comes, on any number of connections, in so many processes
    Many { processes: u32 },
    /// Send back each datagram
    Datagrams,
    /// Send back each frame of UDP to an address, on a NIC of one's own
    Reflect {
        nic: NicSpec,
        address: IpCidr,
        /// Don't sleep where the next frame comes soon
        #[arg(long)]
        look_on: bool,
    },
    /// Do something for some seconds, and print what was counted
    Ask {
        service: Service,
        server: SocketAddr,
        connections: u32,
        seconds: u32,
    },
    /// Connect again and again for some seconds, and print what was counted
    Connect {
        server: SocketAddr,
        connections: u32,
        seconds: u32,
    },
    /// Make connections, and keep them
    Hold {
        server: SocketAddr,
        connections: u32,
        /// How many others have made before
        first: u32,
    },
    /// Have the server do something else for some seconds, and print how often it did it
    Local {
        operation: Operation,
        server: SocketAddr,
        connections: u32,
        seconds: u32,
    },
    /// Send frames of so many bytes for some seconds, and print what was counted
    Pairs {
        frame_bytes: u16,
        server: SocketAddr,
        connections: u32,
        seconds: u32,
        rate: Option<u32>,
    },
    /// Send a frame of so many bytes when the last one is back, for some seconds, and print what was counted
    Pair {
        frame_bytes: u16,
        server: SocketAddr,
        connections: u32,
        seconds: u32,
    },
    /// Ask on many connections for some seconds, at a rate or as fast as answers come, and print what was counted
    Load {
        talk: Talk,
        server: SocketAddr,
        connections: u32,
        seconds: u32,
        rate: Option<u32>,
    },
}

/// Connections that one process can have: a part of its descriptors.
pub fn per_process() -> u32 {
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    u32::try_from(most / 4 * 3).unwrap_or(u32::MAX).max(1)
}

/// Runs the server until it is ended, or the client.
pub fn peer(options: &PeerOptions) -> Result<(), Failure> {
    let time = |seconds: u32| Duration::from_secs(seconds.into());
    let load = match &options.part {
        Part::Serve { connections } => return server::serve(*connections).map_err(failed),
        Part::Close => return server::accept_and_close().map_err(failed),
        Part::Many { processes } => return server::serve_many(*processes).map_err(failed),
        Part::Datagrams => return pairs::echo().map_err(failed),
        Part::Reflect {
            nic,
            address,
            look_on,
        } => {
            let look = if *look_on { LOOK } else { Duration::ZERO };
            return pairs::reflect(nic, *address, look).map_err(failed);
        }
        Part::Hold {
            server,
            connections,
            first,
        } => return hold::hold(*server, *first..*first + *connections).map_err(failed),
        Part::Local {
            operation,
            server,
            connections: _,
            seconds,
        } => ask::local(*operation, *server, time(*seconds)),
        Part::Pairs {
            frame_bytes,
            server,
            connections: _,
            seconds,
            rate,
        } => pairs::ask(*server, *frame_bytes, time(*seconds), *rate),
        Part::Pair {
            frame_bytes,
            server,
            connections: _,
            seconds,
        } => pairs::ask_in_turn(*server, *frame_bytes, time(*seconds)),
        Part::Ask {
            service,
            server,
            connections,
            seconds,
        } => ask::ask(*service, *server, *connections, time(*seconds)),
        Part::Connect {
            server,
            connections,
            seconds,
        } => connect::connect(*server, *connections, time(*seconds)),
        Part::Load {
            talk,
            server,
            connections,
            seconds,
            rate,
        } => {
            let demand = load::Demand {
                connections: *connections,
                time: time(*seconds),
                rate: *rate,
            };
            load::load(talk, *server, demand)
        }
    };
    let line = serde_json::to_string(&load.map_err(failed)?);
    let line = line.map_err(|error| Failure::tool(error.to_string()))?;
    crate::tools::print(&(line + "\n"))
}

fn failed(error: io::Error) -> Failure {
    Failure::tool(format!("the benchmark's peer: {error}"))
}

/// Of times in nanoseconds, in order: the least, in microseconds, that so many thousandths aren't above. `None` if there are none.
fn percentile(sorted: &[u32], thousandths: usize) -> Option<f64> {
    let rank = (sorted.len() * thousandths).div_ceil(1000).max(1);
    sorted.get(rank - 1).map(|ns| f64::from(*ns) / 1000.0)
}

/// Of times in nanoseconds, in order; `None` if there are none. Every time counts as it is, in no classes.
fn percentiles(sorted: &[u32]) -> Option<Latency> {
    let at = |thousandths| percentile(sorted, thousandths);
    Some(Latency {
        p50_us: at(500)?,
        p75_us: at(750)?,
        p90_us: at(900)?,
        p99_us: at(990)?,
        p999_us: Some(at(999)?),
        p99_moments_us: None,
    })
}

#[cfg(test)]
mod tests;
