//! Each component on its own: hosts of single components that talk over channels (topology `split`;
//! NewtOS, section 2.5 and figure 2.3).
//!
//! **Purpose.** [`LinkHost`], [`IpHost`], [`FilterHost`], [`TcpHost`], [`UdpHost`] and [`StoreHost`] each join one
//! component to its ends of `skink-lanes`. [`Front`] joins what of `syscall`, `tcp` and `udp` is in one process, or a
//! whole stack, to each other and to the channels of programs (`skink-sockets`). A host is all that a process
//! needs besides its descriptors: it is polled, it says when it must be polled again, and what to sleep on ([`Host`]).
//!
//! **Place on the data path.** All of it, in pieces. docs/decisions/0007 counts the copies on each path.
//!
//! **Trust.** Neighbours are trusted to do their work, and with nothing else: what they say is checked by
//! the ends. A host goes on when any neighbour is dead, hangs or writes nonsense; [`Host::broken`] tells of
//! one that must be restarted. Programs are trusted with nothing: [`Front`] lets them name their own sockets
//! and those that they share, bounds what it does for one before the next has its turn, and tells who spoilt a channel.
//!
//! **What survives a restart.** As much as of the components themselves. `link`, `ip`, `filter` and `store` can be
//! replaced at any time: connections go on, packets that were on their way may be lost. A successor of `tcp` or
//! `udp` adopts the sockets of the programs that it is told of ([`Front::attach`]), one of `syscall` asks for what was
//! stored. Each host has methods to be told that a neighbour was replaced.
//!
//! **What it leaves out.** Processes, descriptors, bells and sleep; who tells whom of whom; and asking `tcp`
//! for flows when the filter is rebuilt ([`FilterHost::rebuild`] is told them).
#![forbid(unsafe_code)]

mod apart;
mod filter_host;
mod front;
mod host;
mod ip_host;
mod link_host;
mod questions;
mod serving;
mod store_host;
mod syscall_host;
mod tcp_host;
mod transport_below;
mod transport_host;
mod udp_host;

pub use apart::Apart;
pub use filter_host::FilterHost;
pub use front::{Arrival, CallEnd, Front, Program, Programs, Turn};
pub use host::{Host, Neighbour};
pub use ip_host::{IpHost, IpHostParts, Judge};
pub use link_host::{LinkHost, LinkHostParts, receive_geometry};
pub use serving::Serving;
pub use store_host::StoreHost;
pub use syscall_host::{Random, StoreWay, SyscallHost, TransportWay};
pub use tcp_host::TcpHost;
pub use transport_below::{TransportBelow, TransportParts};
pub use transport_host::TransportHost;
pub use udp_host::UdpHost;

use skink_channel::PoolGeometry;

/// Messages that a host takes from each neighbour in one poll, so that all have their turn.
const BUDGET: usize = 64;
/// Largest frame in bytes.
const FRAME_BYTES: usize = 66_560;

/// Sizes of the pool that `ip` makes: `chunks` chunks that hold any packet. Pages are taken as
/// they are touched.
pub fn packet_geometry(chunks: u32) -> Option<PoolGeometry> {
    PoolGeometry::new(65_536, chunks)
}
