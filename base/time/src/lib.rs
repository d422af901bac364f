//! Time as a value.
//!
//! Protocol code never reads a clock: every call that needs the time is handed an [`Instant`].
//! Real processes take it from `CLOCK_MONOTONIC`, the simulator from its virtual clock.
//! [`TimerWheel`] keeps one deadline for each of many connections in constant time.
//!
//! Nothing here survives a restart: deadlines are rebuilt by whoever adopts a connection.
#![forbid(unsafe_code)]

mod instant;
mod wheel;

pub use core::time::Duration;
pub use instant::Instant;
pub use wheel::TimerWheel;
