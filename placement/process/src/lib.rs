//! The processes of a stack: all of it in one (topology `single`), or its components in several (topology
//! `split`, and whatever a topology file says).
//!
//! **Purpose.** A [`Host`] has the components of one process: a `skink_split::Front` with a whole
//! `skink_library::Stack`, `syscall` and `store`, or any of the hosts of `skink_split`, joined to the rest by lanes
//! (`skink_lanes`). It joins them to the supervisor (`skink_control::ComponentLink`), watches descriptors, and sleeps.
//! [`serve`] is its event loop.
//!
//! **Place on the data path.** All of the stack is here, or a part. Between `tcp` or `udp` and a program lie
//! shared memory (the rings of the program's sockets) and two queues of notes about it; the loop takes
//! requests, moves frames, and tells what happened, in batches, and sleeps when there is nothing of either.
//!
//! A program has a channel to each process that has `syscall`, `tcp` or `udp`. What makes, names, shares or ends
//! a socket goes to `syscall`, which asks the transport for it; data, and what is told of it, passes `syscall` by.
//!
//! **Trust.** Programs are of different users and trusted with nothing. A request can name only sockets
//! in the program's own region, or ones whose region's secret it knows; everything else is answered with
//! an error or counted. Work for one program is bounded before the next has its turn. A program that
//! spoils its queues is treated as one that died. The supervisor is trusted: it made the process.
//!
//! **What survives a restart.** The programs' regions and channels do, whose descriptors the supervisor
//! keeps; of `syscall` what it has put into `store`, and calls that aren't answered yet, which are still in the
//! programs' queues. A successor of `tcp`, `udp` or a whole stack adopts its predecessor's sockets from the
//! regions (docs/decisions/0008); who shares them `syscall` says again. The filter's flows of datagrams are in
//! memory of their own. `link`, `ip` and `store` keep nothing that connections need. A successor is held until its
//! neighbours know of it, and the filter's until it was told which connections there are.
//!
//! **What it leaves out.** Components that share a process with some, but not all others, talk over lanes all the
//! same: only a whole stack is joined by calls.
//!
//! The steps of a process, each of which can fail on its own: [`Host::new`] of [`Parts`], or [`Host::of_parts`];
//! [`confine`] or [`confine_parts`]; [`Host::introduction`]; [`serve`].
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate self as skink_process;

mod clock;
mod confine;
mod filter;
mod host;
mod inner;
mod lasting;
mod neighbours;
mod nic_use;
mod orders;
mod orphans;
mod part;
mod random;
mod serve;
mod start;

#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod common;

pub use confine::{confine, confine_parts};
pub use host::Host;
pub use orphans::Orphans;
pub use serve::{Ended, serve};
pub use start::{First, Parts, StartError, receive_start};
