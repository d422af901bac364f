//! Private hosts and wires on this machine: what the demonstration, the benchmarks and the
//! end-to-end tests run on.
//!
//! [`enter`] puts the calling program into namespaces of its own (network, processes, mounts, and a
//! user namespace where it isn't root), with a private `/tmp` and `/run`. Whatever it starts or makes
//! there ends with it, also when it is killed. Inside, a [`Host`] is a further network namespace, a
//! veth pair is a cable ([`Host::cable`]), and a [`Wire`] is a bad cable: it loses, repeats,
//! reorders and delays frames. [`Datagrams`] and [`Epoll`] are for load: many datagrams in a call, and many
//! connections in a thread. A [`Seized`] process makes the system calls that a test wants.

mod cpu;
mod datagrams;
mod ended;
mod enter;
mod epoll;
mod fork;
mod host;
mod offload;
mod process;
mod seized;
mod traffic;
mod wire;

pub use cpu::{CpuTime, cpu_seconds};
pub use datagrams::Datagrams;
pub use ended::{end_all_others, signal, wait_until_ended};
pub use enter::{INSIDE, enter, is_root, missing_programs, private_temporary, privately};
pub use epoll::Epoll;
pub use fork::fork_workers;
pub use host::{Cable, Host};
pub use offload::Offload;
pub use process::{Process, Scratch};
pub use seized::{Called, Seized};
pub use traffic::Traffic;
pub use wire::{Impairments, Wire};
