//! The sandbox: what confines the process of a component.
//!
//! **Purpose.** A component that was taken over by a hostile packet, or by a hostile program, must not
//! be able to do more than its part in the stack. A process therefore calls [`Sandbox::enter`] before
//! it looks at its first message, and keeps from then on:
//!
//! 1. just the descriptors it was handed, and no environment;
//! 2. no privileges, and no way to gain any by executing a file;
//! 3. no capability, an unprivileged user, no supplementary group;
//! 4. memory that other processes of its user can't read, and no core file;
//! 5. limits: no child, no second thread, a bounded number of descriptors;
//! 6. no file, no TCP port, no signal and no abstract socket of anybody outside (Landlock);
//! 7. the system calls of its event loop and of its component's [tasks](Tasks), and no other (seccomp).
//!
//! Each layer holds on its own; `tests/confinement.rs` attacks them one by one. What a layer needs and the
//! kernel lacks is in the [`Report`], and isn't fatal; seccomp is never left out.
//!
//! **Place on the data path.** None after entering, but for the kernel's check of each system call,
//! which is a bit in a table for calls that are allowed with any arguments (Linux 5.11).
//!
//! **What survives a restart.** Nothing: the successor is executed anew and enters its own sandbox.
//!
//! **What it leaves out.** Memory and processor limits, which belong to the supervisor (control groups);
//! namespaces, which a process without files and sockets gains nothing from; the argument vector, which
//! stays for `ps` to show and holds no secrets.

mod calls;
mod descriptors;
mod environment;
mod error;
mod filter;
mod ids;
mod landlocked;
mod limits;
mod names;
mod refusal;
mod report;
mod sandbox;

pub use calls::{
    Call, Condition, EVENT_LOOP, MEMORY, NIC_PACKET, NIC_TAP, NIC_XDP, PROGRAMS, RECLAIM, Tasks,
    Value, condition,
};
pub use error::SandboxError;
pub use refusal::Refusal;
pub use report::{Report, User};
pub use sandbox::{NOBODY, Sandbox, keep_only};
