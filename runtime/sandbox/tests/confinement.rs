//! Processes that enter the sandbox and then try to get out of it, or to do their work in it.
//!
//! The test executes itself anew for each of them, both as root and as an unprivileged user. An attack is
//! made twice: once as it is, which seccomp must end, and once with the calls that it needs allowed, so that
//! the layers below seccomp must refuse it. Printed and counted in the way of the usual harness.

mod confinement {
    pub mod attacks;
    pub mod child;
    pub mod needs;
    pub mod parent;
    pub mod raw;
}

use confinement::{child, parent};

fn main() {
    match child::Order::from_environment() {
        Some(order) => child::obey(&order),
        None => parent::run_all(),
    }
}
