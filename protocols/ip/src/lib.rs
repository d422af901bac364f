//! `ip`: Ethernet, ARP, neighbour discovery, IPv4, IPv6, ICMP, routes, fragments and path MTUs.
//!
//! **Purpose.** [`Ip`] finds the next hop and the link-layer address for what `tcp` and `udp` send,
//! and hands them what arrives for an address of ours, whole. It answers ARP, neighbour
//! solicitations and pings by itself.
//!
//! **Place on the data path.** Between `link` and the transports. In the common case (a whole TCP or
//! UDP packet, a resolved neighbour) nothing is copied or allocated: [`Ip::receive`] answers a slice
//! of the frame, [`Ip::send`] writes two headers. Packets that wait for a neighbour, loop back to us
//! or come in fragments are copied, within fixed bounds.
//!
//! **What survives a restart.** Addresses and gateways, which are its configuration. Neighbours,
//! path MTUs and routers learned from their advertisements are found again; packets that wait and
//! unfinished reassemblies are lost, as on any wire.
//!
//! **What it leaves out.** Forwarding, redirects, VLANs, addresses from DHCP or from router
//! advertisements (what those say of routers and of the link is learned), multicast groups beyond those that every host
//! is in (of which it tells routers and switches by MLDv2), IPv4 options and source routes, flow labels.
#![forbid(unsafe_code)]

mod addresses;
mod announcements;
mod arp;
mod claims;
mod config;
mod conflicts;
mod errors;
mod fragment;
mod held;
mod icmp;
mod identification;
mod ip;
mod loopback;
mod mld;
mod ndp;
mod neighbours;
mod next_hop;
mod path;
mod path_mtu;
mod quoted;
mod reassembly;
mod receive;
mod resolution;
mod routers;
mod routes;
mod send;
mod whole;

pub use config::IpConfig;
pub use ip::{Ip, IpInput, Transports};
pub use path::Replica;
pub use whole::OwnedPacket;

#[cfg(test)]
mod tests;
