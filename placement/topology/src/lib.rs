//! Topologies: which component runs in which process, and which process on which cores.
//!
//! **Purpose.** A topology is a TOML file. This crate reads it, checks it, says where a mistake is and how
//! to mend it, and derives which channels the processes need between them. The presets ([`PRESETS`]) are
//! ordinary files, in `topologies/`, and are built in so that they are at hand wherever Skink is.
//!
//! ```toml
//! name = "two"                                # optional: the file's name
//! [[process]]
//! components = ["link", "ip", "filter"]
//! cores = [0]                                 # optional: any of these cores; otherwise any core
//! [[process]]
//! name = "transport"                          # optional: the components' names, joined by "+"
//! components = ["udp", "tcp", "syscall", "store"]
//! ```
//!
//! A process with `program = true` is each program that uses the stack: its components are in there.
//!
//! **Place on the data path.** None: it is read when the stack starts.
//!
//! **What survives a restart.** Nothing; whoever restarts reads the file again.
//!
//! **What it leaves out.** Starting processes and making channels, which is the supervisor's part; replicas
//! and NICs.

mod channels;
mod component;
mod error;
mod read;
mod topology;

pub use channels::{Channel, Kind};
pub use component::Component;
pub use error::{Position, TopologyError, TopologyErrors};
pub use topology::{PRESETS, Process, Topology};
