//! Starting the process of a component.
use crate::build::Executable;
use crate::component::{ComponentLink, Link, SupervisorLink, link};
use crate::signals::{SignalDescriptor, spawn_with_signals};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal, waitpid,
};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// The descriptor that a component's process is born with: its end of the link.
pub const COMPONENT_LINK: RawFd = 3;

/// What of the supervisor's environment a component is given: how to log, and how to fail.
const ENVIRONMENT: [&str; 2] = ["SKINK_LOG", "RUST_BACKTRACE"];

/// A component's process.
#[derive(Debug, Serialize, Deserialize)]
pub struct ComponentProcess {
    /// The supervisor's end of the link.
    pub link: SupervisorLink,
    /// Polls readable when the process has ended.
    #[serde(with = "skink_inherit::descriptors")]
    pub ended: OwnedFd,
    /// Its id.
    pid: u32,
    /// It was waited for, and its id may be another's.
    #[serde(skip)]
    status: Option<Option<ExitStatus>>,
}

impl ComponentProcess {
    /// Whether it has ended, and how, if that can be known: a supervisor that took over from another one
    /// isn't its parent.
    ///
    /// # Errors
    /// What the system says.
    pub fn try_wait(&mut self) -> io::Result<Option<Option<ExitStatus>>> {
        self.look(Some(&Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        }))
    }

    /// Waits for its end.
    pub fn wait(&mut self) {
        let _ = self.look(None);
    }

    /// Its id.
    pub fn id(&self) -> u32 {
        self.pid
    }

    fn look(&mut self, limit: Option<&Timespec>) -> io::Result<Option<Option<ExitStatus>>> {
        if self.status.is_some() {
            return Ok(self.status);
        }
        let mut ended = [PollFd::new(&self.ended, PollFlags::IN)];
        if retry_on_intr(|| poll(&mut ended, limit))? == 0 {
            return Ok(None);
        }
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        self.status = match retry_on_intr(|| waitpid(pid, WaitOptions::empty())) {
            Ok(waited) => waited.map(|(_, status)| Some(ExitStatus::from_raw(status.as_raw()))),
            Err(Errno::CHILD) => Some(None),
            Err(error) => return Err(error.into()),
        };
        Ok(self.status)
    }

    /// Ends it without asking it.
    pub fn kill(&self) {
        // Not by its number, which another process may have by now.
        let _ = pidfd_send_signal(&self.ended, Signal::KILL);
    }
}

/// Executes a build of this program with `arguments`, as the process of a component: in a process group of
/// its own, so that what a terminal sends reaches the supervisor only; on `cores`, if there are any;
/// with the signal mask as it was before `signals` was made.
///
/// # Errors
/// What the system says.
pub fn spawn_component(
    executable: &Executable,
    arguments: &[&str],
    cores: &[u16],
    signals: &SignalDescriptor,
) -> io::Result<ComponentProcess> {
    let (ours, theirs) = link()?;
    let mut command = Command::new(executable.path());
    command.arg0("skink").args(arguments).env_clear();
    let kept = ENVIRONMENT.iter();
    command.envs(kept.filter_map(|name| Some((name, std::env::var_os(name)?))));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.process_group(0);
    let descriptor = theirs.as_raw_fd();
    let set = core_set(cores);
    let prepare = move || place(descriptor, set.as_ref());
    // SAFETY: `place` only makes system calls that are async-signal-safe, on values of its own.
    unsafe { command.pre_exec(prepare) };
    let mut child = spawn_with_signals(&mut command, signals)?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let ended = pid.ok_or(rustix::io::Errno::SRCH);
    // It can't be another's id: nobody has waited for it.
    match ended.and_then(|pid| pidfd_open(pid, PidfdFlags::empty())) {
        Ok(ended) => Ok(ComponentProcess {
            link: ours,
            ended,
            pid: child.id(),
            status: None,
        }),
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(error.into())
        }
    }
}

/// The link that this process was born with, if [`spawn_component`] made it: its own from now on.
/// Works once.
pub fn take_component_link() -> Option<ComponentLink> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if TAKEN.swap(true, Ordering::Relaxed) {
        return None;
    }
    // SAFETY: changes a flag of a descriptor, if it is open; whose else it might be, see below.
    if unsafe { libc::fcntl(COMPONENT_LINK, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return None;
    }
    // SAFETY: it is open, was so when the process began, by agreement with whoever executed it, and
    // nobody else owns it: this is reached once.
    Some(Link::new(unsafe { OwnedFd::from_raw_fd(COMPONENT_LINK) }))
}

fn core_set(cores: &[u16]) -> Option<libc::cpu_set_t> {
    if cores.is_empty() {
        return None;
    }
    // SAFETY: a set is plain bits, and all zeros is the empty one.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for core in cores {
        if usize::from(*core) < size_of::<libc::cpu_set_t>() * 8 {
            // SAFETY: checked to be inside the set.
            unsafe { libc::CPU_SET(usize::from(*core), &mut set) };
        }
    }
    Some(set)
}

/// In the child, before it executes.
fn place(descriptor: RawFd, set: Option<&libc::cpu_set_t>) -> io::Result<()> {
    let done = |result: libc::c_int| match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    };
    if descriptor == COMPONENT_LINK {
        // SAFETY: changes a flag of a descriptor that is open.
        done(unsafe { libc::fcntl(descriptor, libc::F_SETFD, 0) })?;
    } else {
        // SAFETY: what is at the number is the parent's; this process's copy closes on `exec`
        // anyway.
        done(unsafe { libc::dup2(descriptor, COMPONENT_LINK) })?;
    }
    match set {
        // SAFETY: the set is as long as stated.
        Some(set) => done(unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), set) }),
        None => Ok(()),
    }
}
