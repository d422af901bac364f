use crate::calls::Call;
use crate::error::SandboxError;
use crate::refusal::Refusal;
use crate::report::Report;
use crate::{descriptors, environment, filter, ids, landlocked, limits, refusal};
use rustix::fd::BorrowedFd;
use std::io;

/// The user and group that own nothing.
pub const NOBODY: u32 = 65534;

/// What a process is left with. Made as a struct: `Sandbox { user: ..., ..Sandbox::new(&lists) }`.
#[derive(Clone, Debug)]
pub struct Sandbox<'a> {
    /// Lists of system calls, such as [`EVENT_LOOP`](crate::EVENT_LOOP). A call in several of them is
    /// allowed by the rules of each.
    pub system_calls: &'a [&'a [Call]],
    /// User and group to become when started as root. `None`: [`NOBODY`], as far as this user namespace
    /// has it; with `Some`, entering fails if it can't be had. A supervisor does well to give each
    /// component its own.
    pub user: Option<(u32, u32)>,
    /// What stays open, besides standard error.
    pub descriptors_to_keep: Vec<BorrowedFd<'a>>,
    /// Nothing is closed: the process has opened what it needs, after [`keep_only`](crate::keep_only) at
    /// its very beginning.
    pub keep_all_descriptors: bool,
    /// How many descriptors the process can have at a time, counting those. Lowered to the limit that is
    /// in force.
    pub descriptor_limit: u64,
    /// What happens at a system call that isn't in the lists.
    pub refusal: Refusal,
}

impl<'a> Sandbox<'a> {
    /// Nothing is kept, and what isn't expected kills.
    pub fn new(system_calls: &'a [&'a [Call]]) -> Sandbox<'a> {
        Sandbox {
            system_calls,
            user: None,
            descriptors_to_keep: Vec::new(),
            keep_all_descriptors: false,
            descriptor_limit: 1024,
            refusal: Refusal::Kill,
        }
    }

    /// Confines this process for the rest of its life.
    ///
    /// To be called first thing, while there is one thread and before anything is opened that isn't kept:
    /// every other descriptor is closed, also those that some value of this process owns. After an
    /// error the process is confined by half; it must end.
    pub fn enter(self) -> Result<Report, SandboxError> {
        one_thread()?;
        // Compiled first: a list that makes no filter is told of while nothing has changed.
        let program = filter::compile(self.system_calls, self.refusal)?;
        environment::clear().map_err(SandboxError::step(
            "clearing the environment",
            "/proc must be mounted",
        ))?;
        if !self.keep_all_descriptors {
            keep_only(&self.descriptors_to_keep)?;
        }
        let mut missing = Vec::new();
        let user = ids::drop_all(self.user, &mut missing)?;
        limits::set(self.descriptor_limit).map_err(SandboxError::step(
            "setting limits",
            "this isn't expected; tell its makers",
        ))?;
        let landlock = landlocked::restrict(&mut missing).map_err(|error| SandboxError::Step {
            doing: "applying Landlock",
            source: io::Error::other(error),
            advice: "a container may forbid it by a filter: permit landlock_create_ruleset and \
                     landlock_restrict_self",
        })?;
        if self.refusal == Refusal::Tell {
            refusal::install_handler().map_err(SandboxError::step(
                "installing the handler of SIGSYS",
                "unset SKINK_LOG",
            ))?;
        }
        // Asked before the filter, which doesn't let through what only a report needs.
        let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
        program.apply()?;
        Ok(Report {
            uid: uid.as_raw(),
            gid: gid.as_raw(),
            user,
            landlock,
            system_calls: program.system_calls(),
            missing,
        })
    }
}

/// Closes every descriptor but standard error and these, also those that some value of this process owns.
/// For a process that must open more before it can enter its sandbox: to be called first thing.
///
/// # Errors
/// [`SandboxError::Step`].
pub fn keep_only(descriptors: &[BorrowedFd<'_>]) -> Result<(), SandboxError> {
    descriptors::close_all_but(descriptors).map_err(SandboxError::step(
        "closing the descriptors that weren't handed over",
        "this needs Linux 5.10 or newer, and /dev/null",
    ))
}

/// Capabilities, user, Landlock and seccomp belong to a thread: another one would stay outside.
fn one_thread() -> Result<(), SandboxError> {
    let tasks = std::fs::read_dir("/proc/self/task").map_err(SandboxError::step(
        "counting threads",
        "/proc must be mounted",
    ))?;
    match tasks.count() {
        1 => Ok(()),
        threads => Err(SandboxError::Threads(threads)),
    }
}
