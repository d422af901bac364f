//! The socket channel: between a program and the stack that serves it, where they are in processes of
//! their own.
//!
//! **Purpose.** Each program that attaches to a stack gets one channel: a queue of [`Request`]s, a queue
//! of [`Notice`]s back, and two regions of sockets (`skink_memory`), one for TCP and one for UDP. Data
//! stays in the regions' byte rings, and most calls end there: `read`, `write`, `accept` and waiting
//! need no answer from the stack (NEaT, section 3.2). Only what makes or names a socket does: `socket`,
//! `bind`, `listen`, `connect`.
//!
//! **Place on the data path.** Beside it: a request says that a ring was filled or emptied, a notice
//! that something happened to a socket, and both can be merged. [`Client`] is the program's half,
//! [`Server`] the stack's half for one program.
//!
//! **Trust.** The stack believes nothing that a program says: what doesn't decode is counted and
//! dropped, and which sockets a program may name is for the stack to check. A program that spoils its
//! queue loses its channel.
//!
//! **What survives a restart.** The queues and regions do, as long as somebody holds their descriptors.
//!
//! **Capacity.** [`REQUESTS`] and [`NOTICES`]. A program that finds its queue of requests full waits for
//! the stack, which never waits for a program: a notice that doesn't fit is told later, merged with what
//! happened since.
#![forbid(unsafe_code)]

mod client;
mod message;
mod parts;
mod server;

pub use client::{Client, ClientError};
pub use message::{
    Answer, BindOptions, Notice, NoticeMessage, Protocol, Request, RequestBody, RequestMessage,
};
pub use parts::{Attachment, ChannelParts, NOTICES, REQUESTS};
pub use server::{Server, ServerError};
