//! Whole stacks on virtual time: the first place where a protocol bug is hunted.
//!
//! **Purpose.** [`simulate`] draws a [`Scenario`] from a seed: hosts (each a whole
//! [`skink_library::Stack`] on a simulated NIC), wires that lose, delay, reorder, double and damage
//! frames, and programs that connect, write, read, pause, half-close and abort. Every byte of every
//! connection follows from its position, so a reader notices the first one that is lost, doubled or
//! changed; a program acts on events only, so one that isn't sent shows as a run that hangs.
//!
//! **Place on the data path.** None; it drives the code that is.
//!
//! **What survives a restart.** The seed: the same one gives the same run, frame for frame.
//!
//! A stack may be killed and replaced by one that adopts its programs' sockets ([`CrashPlan`]): between
//! any two steps of the run, or in the midst of its work, after any frame that left or any use of a
//! port; so may its successor.
//!
//! **What it leaves out.** Components in processes of their own, and what becomes of the calls of
//! programs while none answers; routes of more than one hop (but for a place where the path gets
//! narrow).
#![forbid(unsafe_code)]

mod apart;
mod connection;
mod context;
mod datagram;
mod describe;
mod doom;
mod frame;
mod listener;
pub mod machine;
mod narrows;
mod nic;
mod noise;
mod pattern;
mod pinger;
mod place;
mod random;
mod report;
mod scenario;
mod wire;
mod world;

pub use report::Report;
pub use scenario::{ApartPlan, CrashPlan, Manner, NAMED, PartDeath, SHORT, Scenario};

/// Runs the scenario of `seed`.
pub fn simulate(seed: u64) -> Report {
    run(Scenario::from_seed(seed), false)
}

/// Runs `scenario`; prints every frame if `verbose`.
pub fn run(scenario: Scenario, verbose: bool) -> Report {
    world::World::new(scenario, verbose).run()
}
