//! The processes that serve programs: the whole stack in one (topology `single`), or the transports in one
//! and `link`, `ip` and `filter` in one each (topology `split`).
//!
//! **Purpose.** A [`Host`] joins a `skink_library::Stack`, or the transports of `skink_split`, to the socket
//! channels of programs (`skink_sockets`) and to the supervisor (`skink_control::ComponentLink`). [`serve`] is
//! its event loop. [`Inner`] joins one of the other hosts of `skink_split` to the supervisor, and [`serve_part`]
//! is the loop of that.
//!
//! **Place on the data path.** All of the stack is here, or a part. Between it and a program lie shared memory (the
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
//! `link`, `ip` and `filter` keep nothing that connections need: a successor of one is held until its
//! neighbours know of it, and the filter's until it was told which connections there are.
//!
//! **What it leaves out.** Adopting a predecessor's regions; `tcp` and `udp` in different processes.
//!
//! The steps of a process, each of which can fail on its own: [`Parts::new`] (of the first order),
//! [`Host::new`], [`confine`], [`serve`]; for a part [`PartProcess::new`], [`confine_part`],
//! [`PartProcess::introduction`], and [`serve`] or [`serve_part`].
#![forbid(unsafe_code)]

mod clock;
mod confine;
mod filter;
mod host;
mod neighbours;
mod notices;
mod offers;
mod orders;
mod part;
mod part_start;
mod ports;
mod program;
mod requests;
mod serve;
mod serve_part;
mod serving;
mod shares;
mod start;
mod transports;

pub use confine::{confine, confine_part};
pub use host::Host;
pub use part::{Inner, PartProcess};
pub use serve::{Ended, serve};
pub use serve_part::serve_part;
pub use start::{First, Parts, StartError, receive_start};
