//! Unmodified programs on Skink against unmodified programs on the kernel, over a real wire.
//!
//! One suite for every back end and every topology: a [`Case`] is handed a [`Network`] of two
//! hosts and works with whatever carries the server's frames. `cargo run -p skink-end-to-end --
//! [FILTER…]` runs those whose name holds every filter, two at a time, since most of them wait for
//! most of their time ([`suite`]).

mod back_end;
mod case;
mod cases;
mod member;
mod network;
mod site;
pub mod suite;
mod topology;
mod upgrade;

pub use back_end::BackEnd;
pub use case::{Case, Failure, Outcome};
pub use cases::{Sshd, all};
pub use member::Member;
pub use network::{Network, Plan};
pub use site::{Nginx, Site};
pub use topology::Topology;
pub use upgrade::{Upgrade, copy_of_build};

/// Makes sure that the programs `needed` are there, and brings the calling program into namespaces of
/// its own. Call it first in `main`.
///
/// # Errors
/// What to tell whoever started it.
pub fn prepare(needed: &[&str]) -> Result<(), String> {
    require(needed)?;
    skink_testbed::enter().map_err(|error| format!("can't make private namespaces: {error}"))
}

/// Makes sure that the programs `needed` are there.
///
/// # Errors
/// What to tell whoever wants them.
pub fn require(needed: &[&str]) -> Result<(), String> {
    let missing = skink_testbed::missing_programs(needed).join(", ");
    match missing.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "missing programs: {missing}; `make setup` installs them"
        )),
    }
}
