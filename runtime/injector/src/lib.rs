#![forbid(unsafe_code)]
//! Fault injection: what shows how well a stack recovers from what nobody thought of.
//!
//! **Purpose.** Puts faults into a running process, one at a time and where it comes by: instructions with a
//! flipped bit, without an initialisation, with an inverted condition, as the injector did that was used
//! for Rio, Nooks and MINIX 3, and on whose runs the tables of NewtOS and NEaT rest; words of its memory
//! overwritten; no memory to be had; an end, or a stop. [`Class`] has them all. [`inject`] does it, by
//! ptrace(2), and says what it did and how the process ended. [`mutate()`] is what decides what becomes of an
//! instruction: a pure function of a function's bytes and a seed.
//!
//! Most code isn't executed under a given load, so most faults at random places would never be met. So the
//! process is watched first: one-shot breakpoints at a sample of its instructions tell which are executed. A
//! fault is put in as a breakpoint at one of those, and counts as *activated* when the process
//! comes there: only then is the instruction changed. The process is stopped for as short as that takes.
//!
//! **Place on the data path.** None.
//!
//! **What survives a restart.** Nothing. The process that is injected into dies with the injector, so that no
//! faulty one is left behind unseen; one that was let go keeps the faults that were activated in it.
//!
//! **What it leaves out.** Processors other than x86-64; processes with several threads; faults in the
//! kernel, and in memory that is shared with other processes, other than by way of a faulty instruction.
mod breakpoints;
mod class;
mod code;
mod edits;
mod error;
mod image;
mod inject;
mod maps;
mod memory;
mod mutate;
mod operands;
mod random;
mod survey;
mod trace;
mod whole;

pub use class::{Class, Means};
pub use code::{Code, Landmarks};
pub use edits::Counter;
pub use error::InjectError;
pub use image::{Function, Image, is_of_crates};
pub use inject::{End, Injection, Outcome, Plan, inject};
pub use mutate::{Change, Mutation, boundaries, candidates, mutate};
pub use random::Random;
pub use trace::Ending;
