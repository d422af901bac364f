use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::io;
use std::time::{Duration, Instant};

/// Sends a signal to a process that needn't be a child of this one. One that has ended already is all
/// right.
///
/// # Errors
/// If the number can't be a process's, or the process is somebody else's.
pub fn signal(pid: u32, signal: Signal) -> io::Result<()> {
    match kill_process(process(pid)?, signal) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Waits until all of these processes have ended, children of this one or not; kills those that haven't
/// within `limit`.
///
/// # Errors
/// Names those that had to be killed.
pub fn wait_until_ended(pids: &[u32], limit: Duration) -> io::Result<()> {
    let end = Instant::now() + limit;
    let mut left = Vec::new();
    for &pid in pids {
        if !ends(pid, end.saturating_duration_since(Instant::now()))? {
            signal(pid, Signal::KILL)?;
            left.push(pid);
        }
    }
    match left.is_empty() {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "{left:?} did not end within {limit:?}"
        ))),
    }
}

fn ends(pid: u32, limit: Duration) -> io::Result<bool> {
    let descriptor = match pidfd_open(process(pid)?, PidfdFlags::empty()) {
        Ok(descriptor) => descriptor,
        Err(Errno::SRCH) => return Ok(true),
        Err(error) => return Err(error.into()),
    };
    let limit = Timespec::try_from(limit).map_err(io::Error::other)?;
    let mut ended = [PollFd::new(&descriptor, PollFlags::IN)];
    Ok(poll(&mut ended, Some(&limit))? > 0)
}

fn process(pid: u32) -> io::Result<Pid> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| io::Error::other("that number can't be a process's"))
}
