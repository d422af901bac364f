//! TCP: RFC 9293 with window scaling and timestamps (RFC 7323), selective acknowledgements
//! (RFC 2018, RFC 6675), retransmission timers (RFC 6298) and CUBIC (RFC 9438).
//!
//! Place on the data path: between `ip` and the sockets of programs. A [`Tcp`] is one instance with
//! its own table of sockets, a region for each program that it serves; it is a sans-IO component ([`skink_messages::Component`]), so it is handed
//! segments, requests and the time, and answers with segments, events and its next deadline.
//!
//! What survives a restart: each socket's [`skink_memory::Record`] and its two byte rings, both in
//! shared memory. The record is brought up to date *before* a segment leaves that shows the change
//! to the peer. Congestion state, round-trip times, out-of-order data and timers are dropped; TCP
//! rebuilds them, when a successor takes the sockets over ([`Tcp::adopt_region`]). TIME-WAITs whose
//! sockets are gone are dropped too: for a minute after, repeated FINs are acknowledged anyway.
//!
//! Left out so far: RACK-TLP, PRR, ECN, SYN cookies, fast open, path MTU probing, urgent data (it is
//! delivered in line), and most of RFC 5961's defences.
//!
//! Where things are: the instance and its queues (`instance`), the arrival of segments (`arrival`,
//! then `receive`) and of ICMP errors (`errors`), what an acknowledgement does (`acknowledge`), loss
//! recovery (`recovery`), what is sent when (`output`), timers (`timers`), opening and closing
//! (`sockets`, `bind`, `listener`, `handshake`, `ending`, `time_wait`), programs that come and go
//! (`regions`), how far away peers are (`distance`), taking over from a predecessor (`adopt`), and [`State`].
#![forbid(unsafe_code)]

mod acknowledge;
mod adopt;
mod arrival;
mod bind;
mod binding;
mod budget;
mod connection;
mod crowding;
mod cubic;
mod demux;
mod distance;
mod ending;
mod errors;
mod filtered;
#[cfg(test)]
mod fuzz_tests;
mod handed_over;
mod handshake;
#[cfg(test)]
mod harness;
mod idle_rings;
mod instance;
mod listener;
mod memory;
mod misled;
mod output;
mod ranges;
mod receive;
mod recovery;
mod regions;
mod rtt;
mod saved;
mod segment;
mod settings;
mod sockets;
mod stalled;
mod state;
mod strays;
mod time_wait;
mod timers;

pub use budget::Budget;
pub use distance::may_send_ahead;
pub use instance::{Tcp, TcpConfig};
pub use receive::unread_limit;
pub use saved::{has_finished, has_peer_finished};
pub use skink_memory::Adopted;
pub use state::State;
