//! The socket channel: between a program and the stack that serves it, where they are in processes of
//! their own.
//!
//! **Purpose.** Each program that attaches to a stack gets two regions of sockets (`skink_memory`), one for
//! TCP and one for UDP, and a channel to each process that hosts `syscall`, `tcp` or `udp`: a queue of
//! [`Request`]s, and a queue of [`Notice`]s back. [`Routes`] say which channel leads to which part; where
//! the parts share a process there is one. Data stays in the regions' byte rings, and most calls end
//! there: `read`, `write`, `accept` and waiting need no answer from the stack (NEaT, section 3.2). Only
//! what makes, names or shares a socket does ([`SocketCall`]).
//!
//! **Place on the data path.** Beside it: a request says that a ring was filled or emptied, a notice
//! that something happened to a socket, and both can be merged. [`Client`] is the program's half of all
//! its channels, [`Server`] a process's half of one.
//!
//! **Order.** What a program tells `tcp` or `udp` is published before the calls that it makes
//! afterwards, and the other way round for calls that make a socket the program's: those are
//! waited for.
//!
//! **Trust.** The stack believes nothing that a program says: what doesn't decode is counted and
//! dropped, and which sockets a program may name is for the stack to check. A program that spoils its
//! queue loses its channel.
//!
//! **What survives a restart.** The queues and regions do, as long as somebody holds their descriptors. A
//! request that isn't released is seen again by whoever attaches next.
//!
//! **Capacity.** [`REQUESTS`] and [`NOTICES`]. A program that finds its queue of requests full waits for
//! the stack, which never waits for a program: a notice that doesn't fit is told later, merged with what
//! happened since.
#![forbid(unsafe_code)]

/// Version of the messages. Raise it with every change of their form or meaning: the other end may be of
/// another build.
// Layout digest: 90046650b22e2d67
pub const MESSAGES_VERSION: u32 = 3;

mod client;
mod message;
mod parts;
mod routes;
mod server;

pub use client::{Client, ClientError};
pub use message::{Notice, NoticeMessage, Request, RequestBody, RequestMessage, ServedBy};
pub use parts::{Attachment, ChannelParts, NOTICES, REQUESTS, for_calls, program_descriptors};
pub use routes::{MOST_CHANNELS, Routes};
pub use server::{Server, ServerError};
pub use skink_channel::{Berth, SIDE_BELLS};
pub use skink_messages::{Answer, PortOptions, Protocol, SocketCall};
