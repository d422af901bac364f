use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, wait};
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

/// Kills all processes of this one's process namespace but itself, the first, and waits for them: what a test that failed
/// has left must not answer the next one.
///
/// # Errors
/// If this process isn't the first of its namespace, or some don't end within `limit`.
pub fn end_all_others(limit: Duration) -> io::Result<()> {
    let own = std::process::id();
    if own != 1 {
        let what = "only the first process of a process namespace may end all others";
        return Err(io::Error::other(what));
    }
    let end = Instant::now() + limit;
    loop {
        for entry in std::fs::read_dir("/proc")? {
            let number = entry?.file_name();
            let pid = number.to_str().and_then(|number| number.parse().ok());
            if let Some(pid) = pid.filter(|&pid| pid != own) {
                signal(pid, Signal::KILL)?;
            }
        }
        // Whoever loses its parent is ours.
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(Errno::CHILD) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        if Instant::now() > end {
            let what = format!("some processes did not end within {limit:?}");
            return Err(io::Error::other(what));
        }
        std::thread::park_timeout(Duration::from_millis(5));
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
