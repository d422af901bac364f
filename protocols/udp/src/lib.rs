//! `udp`: datagram sockets (RFC 768).
//!
//! **Purpose.** [`Udp`] finds the socket for each datagram that arrives and puts it into the
//! socket's receive ring; it takes the datagrams that programs put into send rings, and sends them.
//! It knows who is bound and connected to what. It serves several programs, each with a region of
//! the socket table.
//!
//! **Place on the data path.** Between `ip` and the sockets' rings, which the programs share. A
//! datagram is found its socket in constant time: by both ends, by our end, by our port. Payload
//! going out stays in the ring until `link` or the NIC copies it, in whatever process that is. Nothing
//! is allocated for a datagram, but a place among those that are on their way, once.
//!
//! **What survives a restart.** Bound and connected addresses, in the records of the socket table
//! ([`Udp::adopt_region`] reads them), and the datagrams in the rings: those that were on their way are
//! sent once more. What may be lost is an event not yet delivered; a reader looks at its ring after a
//! restart.
//!
//! **What it leaves out.** UDP-Lite, and sockets of IPv6 that also take IPv4 (the socket library
//! opens one of each); to add them, a socket bound to `::` gets a second entry under `0.0.0.0` in
//! the demultiplexer. Broadcast permission (`SO_BROADCAST`) and group membership are checked by the
//! socket library and `ip`.
#![forbid(unsafe_code)]

mod adopt;
mod bind;
mod demux;
mod lent;
mod receive;
mod regions;
mod send;
mod socket;
mod udp;

pub use send::MAXIMUM_PAYLOAD;
pub use skink_memory::Adopted;
pub use udp::Udp;
