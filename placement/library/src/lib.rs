//! The whole stack in one thread, on one NIC: `link`, `ip`, `filter`, `udp` and `tcp`. Inside the
//! program that it serves this is the `library` topology; hosted in a process of its own
//! (`skink-process`) it serves many programs, and is `single`.
//!
//! **Purpose.** This is where protocols and NICs meet: a message between two components is a call on
//! a small struct that holds the next component down, and every such call is inlined. The caller hands
//! in the time, so the same code runs under the preload library and in the simulator.
//!
//! **Place on the data path.** All of it. [`Stack::poll`] moves a batch of frames up, lets each
//! component do what is due, and rings the NIC's doorbell once.
//!
//! **What survives a restart.** Nothing of its own; the socket tables belong to `tcp` and `udp`.
//!
//! **What it leaves out.** Waiting (the caller sleeps on the NIC's descriptors), locking, and the
//! meaning of socket calls.
#![forbid(unsafe_code)]

mod below;
mod events;
mod farewell;
mod guard;
mod shown;
mod stack;
mod up;

pub use events::EventQueues;
pub use farewell::{Farewell, Left};
pub use shown::filter_shown;
pub use skink_messages::Protocol;
pub use skink_nic::{Doorbell, FlowRings, Room};
pub use skink_tcp::State;
pub use stack::{Stack, StackConfig, flow};
