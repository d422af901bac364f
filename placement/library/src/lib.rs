//! The `library` topology: `link`, `ip`, `udp` and `tcp` in one thread, on one NIC.
//!
//! This is where protocols and NICs meet: a message between two components is a call on a small
//! struct that holds the next component down, and the compiler inlines it. The caller hands in the
//! time, so the same code runs under the preload library and in the simulator.
#![forbid(unsafe_code)]

mod stack;

pub use stack::{Protocol, Stack, StackConfig};
