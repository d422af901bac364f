//! Control: how the processes of a program come by a NIC, and how tools find them.
//!
//! **Purpose.** `skink run` holds the privileges and stays as the parent of the program. It is the
//! *broker* ([`Server`]): each process of the program connects to it ([`Broker`]), attaches, and is
//! handed an owner slot with everything that its own instance of the stack needs: descriptors of a
//! NIC queue and of the port table, addresses, gateways, a seed. In return it registers the memory
//! that tools read: socket tables, counters, the table of fallbacks and the capture ring. Tools
//! ([`Tool`]) ask the broker for that memory.
//!
//! **Place on the data path.** None: after a process has attached, no frame depends on the broker.
//! Its death stops nothing but new processes.
//!
//! **What survives a restart.** Nothing. A process's connection stays open for as long as the process
//! lives; its closing gives the owner slot back.
//!
//! **What it leaves out.** How a NIC is opened and packets are steered: see [`Owners`].
//!
//! Messages are JSON in one `SOCK_SEQPACKET` packet each, descriptors travel beside them
//! (`SCM_RIGHTS`). Processes use an abstract socket name, which works after `chroot`, `setuid` and
//! `fork`, and prove themselves with a token from the environment. Tools use a socket in the file
//! system, which works across network namespaces, and are admitted by their user id.

mod build;
mod client;
mod closer;
mod component;
mod error;
mod instance;
mod message;
mod notify;
mod part;
mod peer;
mod server;
mod signals;
mod spawn;
mod standby;
pub mod tether;
mod tool;
mod transport;

pub use build::{Build, Executable};
pub use client::{Attached, Broker, ForeignRegions, LibraryGrant, Notice, ServedGrant};
pub use component::{
    ComponentLink, Link, LinkError, Order, Report, StackStart, SupervisorLink, link,
};
pub use error::ControlError;
pub use instance::{Instance, check_name, instances, named, names};
pub use message::{
    ComponentInfo, InstanceInfo, NetworkInfo, ProcessInfo, QueueInfo, RegionKind, TableSize,
};
pub use notify::{Notifier, NotifyError};
pub use part::{FlowPhase, FlowSummary, LinkSizes, Part, PartStart, PoolSizes};
pub use server::{
    Access, Answered, Grant, KnownConnection, NicGrant, Owners, Peer, Question, ServedParts,
    Server, ServerConfig, TetherParts,
};
pub use signals::{Received, SignalDescriptor, spawn_with_signals};
pub use skink_steering::PortMaps;
pub use spawn::{COMPONENT_LINK, ComponentProcess, spawn_component, take_component_link};
pub use standby::{Standby, Standing};
pub use tool::Tool;

/// Version of the messages on control sockets and on components' links.
pub const CONTROL_VERSION: u32 = message::PROTOCOL;

/// Where a process finds the broker: the abstract socket's name, with a leading `@`.
pub const CONTROL_VARIABLE: &str = "SKINK_CONTROL";
/// What proves to the broker that a process belongs to the program: 128 bits in hexadecimal.
pub const TOKEN_VARIABLE: &str = "SKINK_TOKEN";
/// How many bytes of memory what a program under `skink up` sends may take: by `skink run`, for each of the program's processes.
pub const MEMORY_VARIABLE: &str = "SKINK_MEMORY";
/// How many processes can have an instance of the stack at the same time.
pub const MAXIMUM_OWNERS: usize = 64;

/// Longest text of the packet filter's rules in bytes: it travels in messages, whose packets have a limit. (There it is text of JSON, which
/// may be longer.)
pub const MAXIMUM_RULES: usize = 180 * 1024;
/// Slots from this one on are those of a `skink up`'s own processes.
pub const FIRST_COMPONENT: u16 = 0xff00;

/// A number that nobody can guess.
///
/// # Errors
/// What the system says.
pub fn unguessable() -> std::io::Result<u64> {
    server::random().map(|bits| bits as u64)
}

#[cfg(test)]
mod tests;
