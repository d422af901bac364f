//! The sandbox of a process that hosts a stack.
use crate::clock;
use crate::host::Host;
use skink_messages::Protocol;
use skink_sandbox::{Refusal, Report, Sandbox, SandboxError, Tasks};

/// Descriptors that the process may have: seventeen for each program at most, some for the NIC.
const DESCRIPTORS: u64 = 65_536;

/// Confines the process for the rest of its life: to be called once it has all that [`Host::new`] needs,
/// with just the descriptors open that it is to keep (see [`skink_sandbox::keep_only`]), and with one
/// thread. It then runs as `user` and group, if it may; `nic` is the NIC's kind as in [`skink_nic::Capabilities::kind`].
///
/// Answers what is in force, and what this kernel couldn't do.
///
/// # Errors
/// As [`Sandbox::enter`]; the process must end.
pub fn confine(
    nic: &str,
    user: Option<(u32, u32)>,
    refusal: Refusal,
) -> Result<Report, SandboxError> {
    let tasks = Tasks {
        memory: true,
        programs: true,
        transports: true,
        nic: Some(nic),
        shares_nic: false,
    };
    enter(&tasks, user, refusal)
}

/// As [`confine`], for a process that ends connections.
pub(crate) fn confine_orphans(nic: &str, refusal: Refusal) -> Result<Report, SandboxError> {
    let tasks = Tasks {
        memory: true,
        programs: false,
        transports: true,
        nic: Some(nic),
        shares_nic: true,
    };
    enter(&tasks, None, refusal)
}

/// As [`confine`], for parts of a stack: with what an event loop needs, and of the rest just what its components do.
///
/// # Errors
/// As [`Sandbox::enter`]; the process must end.
pub fn confine_parts(
    host: &Host,
    user: Option<(u32, u32)>,
    refusal: Refusal,
) -> Result<Report, SandboxError> {
    let life = host.life.as_ref();
    let programs = life.is_some_and(|life| life.writing.is_some());
    let has = |protocol: &Protocol| host.front.stack.has(*protocol);
    let tasks = Tasks {
        memory: programs || host.inner.link.is_some() || host.inner.ip.is_some(),
        programs,
        transports: Protocol::ALL.iter().any(has),
        nic: host.inner.nic,
        shares_nic: false,
    };
    enter(&tasks, user, refusal)
}

fn enter(
    tasks: &Tasks<'_>,
    user: Option<(u32, u32)>,
    refusal: Refusal,
) -> Result<Report, SandboxError> {
    // The first look at the clock finds the kernel's page for it, with calls that no list has.
    clock::now();
    let lists = tasks.lists();
    let sandbox = Sandbox {
        user,
        keep_all_descriptors: true,
        descriptor_limit: DESCRIPTORS,
        refusal,
        ..Sandbox::new(&lists)
    };
    sandbox.enter()
}
