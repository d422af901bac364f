//! A process of its own for components that serve programs: so far the whole stack in one process
//! (topology `single`), for any number of programs.
//!
//! **Purpose.** A [`Host`] joins a `skink_library::Stack` to the socket channels of programs
//! (`skink_sockets`) and to the supervisor (`skink_control::ComponentLink`). [`serve`] is its event loop.
//!
//! **Place on the data path.** All of the stack is here. Between it and a program lie shared memory (the
//! rings of the program's sockets) and two queues of notes about it; the loop takes requests, moves frames,
//! and tells what happened, in batches, and sleeps when there is nothing of either.
//!
//! **Trust.** Programs are of different users and trusted with nothing. A request can name only sockets
//! in the program's own region, or ones whose region's secret it knows; everything else is answered with
//! an error or counted. Work for one program is bounded before the next has its turn. A program that
//! spoils its queues is treated as one that died. The supervisor is trusted: it made the process.
//!
//! **What survives a restart.** The programs' regions and channels do, whose descriptors the supervisor
//! keeps; what is only here (listeners' offers, tickets of ports, who shares what) doesn't yet.
//!
//! **What it leaves out.** Adopting a predecessor's regions, and components in different processes.
//!
//! The steps of a process, each of which can fail on its own: [`Parts::new`] (of the first order),
//! [`Host::new`], [`confine`], [`serve`].
#![forbid(unsafe_code)]

mod clock;
mod confine;
mod filter;
mod host;
mod notices;
mod offers;
mod orders;
mod ports;
mod program;
mod requests;
mod serve;
mod shares;
mod start;

pub use confine::confine;
pub use host::Host;
pub use serve::{Ended, serve};
pub use start::{Parts, StartError, receive_start};
