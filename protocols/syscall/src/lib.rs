//! `syscall`: makes, names, shares and ends the sockets of programs (NewtOS, section 2.5.3).
//!
//! **Purpose.** Programs ask with [`SocketCall`](skink_messages::SocketCall)s. [`Syscall`] checks what each
//! may name and which ports it may bind to, asks `tcp` or `udp` to do it, and hands the outcome back as the
//! answer. It knows who holds which socket, so that one is closed when the last of its holders lets
//! go of it or dies.
//!
//! **Place on the data path.** Beside it: data never comes here. Programs tell `tcp` and `udp` directly
//! what they have sent and received.
//!
//! **One call at a time.** The last unfinished call of each program is remembered, and the program's next
//! request isn't taken before it is answered. Calls that take a port are carried out one after the
//! other for each transport, in the order in which they came: between the check of a port's sharers and the
//! outcome of the `bind`, a second check would not know of the first.
//!
//! **What survives a restart.** Bound ports with their tickets, shares, and the secrets of programs: each
//! change is written to `store` at once, and [`Syscall::restore`] takes it all back. A call that takes a
//! port is there too while it is under way, or a successor could promise the same port to another user.
//! Other unfinished calls needn't be: a program's request stays in its queue until it is answered, and a
//! transport carries one out once, however often it is asked. A request that isn't answered (closing,
//! resting) leaves that queue when it is on its way to the transport, in a lane that outlives both.
//!
//! **What it leaves out.** Queues, and what is kept while they are full (the host's); accepted
//! connections (`tcp`'s); whether an end is free, and what a socket's state allows (the transports').
#![forbid(unsafe_code)]

mod ends;
mod ports;
mod requests;
mod restarts;
mod shares;
mod stored;
mod syscall;
mod turns;

pub use stored::is_of_socket;
pub use syscall::{Syscall, SyscallConfig, SyscallOutput};

#[cfg(test)]
mod test_support;
