//! Steering: which owner gets an inbound packet, decided in the kernel.
//!
//! An *owner* is a process with its own instance of the stack. Up to 64 owners share one NIC and have
//! the same IP addresses, which the kernel itself doesn't have. A program in the kernel
//! (`bpf/steer.bpf.c`) takes the place of the NIC logic that
//! NEaT asks for: a packet goes to the only owner that uses its port, or to the owner its flow is
//! bound to, or, for a new flow, to one of the owners that listen. It runs in front of AF_XDP
//! sockets, and in the fan-out group of the packet sockets that get whatever an AF_XDP socket can't. Another
//! (`bpf/ingress.bpf.c`, [`Ingress`]) drops what packet sockets had, before the kernel's own stack sees it. Nothing else of Skink
//! runs in the kernel.
//!
//! Parts with different privileges:
//!
//! - [`Steering`] is the broker's: it loads the programs and changes their maps.
//! - [`PortTable`] is an owner's: ports in use, in a map that owners change by atomic operations on
//!   shared memory (LibrettOS's portmap), without privileges and without system calls; and
//!   [`QueueOwners`], by which owners pass AF_XDP queues on to one another; and [`FlowRings`], by which an owner with many
//!   threads has each woken by its own frames.
//! - The maps themselves live as long as anybody holds a descriptor of them: an owner's death leaves
//!   them as they are until the broker calls [`Steering::remove_owner`]. The XDP program goes with the
//!   broker and all who have its descriptors too (a copy of its process, or another program that it becomes); the
//!   fan-out program stays with the sockets.
//!
//! Owners of one NIC trust each other with the port table: one that writes nonsense to it can draw
//! packets to itself or send others' astray, but can't crash anybody.
//!
//! Left out: taking over single ports of an address that the kernel goes on using (shared addressing),
//! VLANs (a tag that tells a priority only counts as none), and multicast other than neighbour discovery and MLD's queries.

mod addresses;
mod error;
mod flow_rings;
mod flows;
mod ingress;
mod kernel;
mod link;
mod owner;
mod owners;
mod ports;
mod program;
mod shared;

pub use error::SteeringError;
pub use flow_rings::{BUCKETS, FlowRings, RINGS};
pub use ingress::Ingress;
pub use kernel::AttachMode;
pub use owner::Owner;
pub use owners::QueueOwners;
pub use ports::{PortMaps, PortTable};
pub use program::Steering;
