//! Whole stacks, or their components on their own, on virtual time: the first place where a protocol bug is hunted.
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
//! In one seed of six, and with `--short NAME --split`, the components of each host are on their own
//! ([`machine::Machine`]): the hosts of `skink-split` over real lanes, boards, pools and channels of programs, which
//! make their calls through `syscall` and wait for answers. Each has a turn when its bell was rung, a frame has come or
//! a timer is due, and sleeps otherwise. Each may die ([`PartDeath`]): in any turn, after which neighbours
//! see all, some or nothing of it, or after any frame sent or port used in it; by hanging; by an upgrade that is taken
//! back; so may successors while they adopt. Bells may get lost. In the end no chunk of a pool may be missing, and nothing
//! be stored of sockets.
//!
//! **What it leaves out.** Sockets that programs share; the orders by which a supervisor tells processes of each
//! other; routes of more than one hop (but for a place where the path gets narrow).
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
