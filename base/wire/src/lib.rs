//! Packet formats: what the bytes on the wire mean, and how to write them.
//!
//! **Purpose.** Pure functions between bytes and plain `Copy` structs for Ethernet, ARP, IPv4, IPv6,
//! ICMP, NDP, UDP and TCP, with the address types, sequence-number arithmetic and Internet checksum
//! that they share.
//!
//! **Place on the data path.** Every frame passes through here once on its way in (`parse`) and once
//! on its way out (`emit`). Nothing allocates, and no input can make a parser panic: what is wrong
//! with a packet comes back as a [`Malformed`] reason, to be counted by the caller.
//!
//! **What survives a restart.** Nothing; there is no state.
//!
//! **What it leaves out.** Policy: whether an address is ours, an option is welcome or a zero UDP
//! checksum acceptable is the protocol crates' business. IPv4 options are skipped, IPv6 jumbograms,
//! AH, ESP and every type of routing header are not understood, and link layers other than untagged
//! Ethernet are not known.
//!
//! **Conventions.** `parse` takes a slice that starts at the header and returns the header and the
//! payload, a sub-slice of its input without any padding that followed it. `emit` writes to the front
//! of a slice and returns the number of bytes written, or leaves the slice as it is and returns 0
//! where it is too short. Lengths and offsets are in bytes, integers in host byte order.

#![forbid(unsafe_code)]

mod address;
mod bytes;
mod cidr;
mod malformed;

pub mod arp;
pub mod checksum;
pub mod ethernet;
pub mod icmpv4;
pub mod icmpv6;
pub mod ipv4;
pub mod ipv6;
pub mod protocol;
pub mod seq;
pub mod tcp;
pub mod udp;

pub use address::{Endpoint, FourTuple, MacAddr};
pub use checksum::{ChecksumPolicy, Sum};
pub use cidr::{CidrError, IpCidr};
pub use malformed::Malformed;
pub use seq::SeqNum;

#[cfg(test)]
mod fuzz_tests;
