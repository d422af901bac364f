#![allow(unsafe_code, reason = "a process that shares this one's descriptors")]
//! Closes descriptors that strangers have sent, in processes of its own.
//!
//! To close one may take as long as whoever made it likes: a connection with `SO_LINGER`, a file of a file system that a
//! process of his serves (FUSE), a socket in whose queue there are such. Who does it sleeps meanwhile, the last of these
//! ways not even a signal ends. A thread would do, but a process with several can have no [`Standby`](crate::Standby), and one
//! that sleeps so keeps its process from ending.
use rustix::io::ioctl_fionread;
use rustix::pipe::{PipeFlags, pipe_with};
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// For so long nothing may have been closed, before there is one process more.
const STUCK: Duration = Duration::from_millis(20);
/// A process that has slept for longer than this ends: by then there is another one.
const SLOW: Duration = Duration::from_secs(1);
/// More are never there at a time. What is to be closed stays open then.
const MOST: usize = 64;

/// See the module.
#[derive(Default)]
pub(crate) struct Closer {
    /// Which descriptors are to be closed: their numbers. The processes read it, whoever is free.
    queue: Option<[OwnedFd; 2]>,
    processes: Vec<libc::pid_t>,
    /// How many bytes were in the queue, and since when.
    waits: Option<(u64, Instant)>,
}

impl Closer {
    /// Closes them, and doesn't wait for that.
    pub fn close(&mut self, descriptors: impl IntoIterator<Item = OwnedFd>) {
        for descriptor in descriptors {
            if let Err(error) = self.begin() {
                tracing::warn!(%error, "a descriptor that was sent is closed here, which may take long");
                continue;
            }
            let number = descriptor.as_raw_fd().to_ne_bytes();
            let sent = self
                .queue
                .as_ref()
                .map(|[_, end]| rustix::io::write(end, &number));
            // If there is no room it stays open: this process may not wait.
            let _ = descriptor.into_raw_fd();
            if sent != Some(Ok(number.len())) {
                tracing::warn!(
                    "a descriptor that was sent can't be closed: too many are waited for"
                );
            }
        }
    }

    /// To be called at times while there is something to close. Answers when.
    pub fn look(&mut self, now: Instant) -> Option<Duration> {
        let [end, _] = self.queue.as_ref()?;
        let waiting = ioctl_fionread(end).unwrap_or(0);
        self.reap();
        if waiting == 0 {
            self.waits = None;
            return None;
        }
        let since = match self.waits {
            Some((before, since)) if before == waiting => since,
            _ => now,
        };
        self.waits = Some((waiting, since));
        if now.saturating_duration_since(since) >= STUCK {
            self.waits = Some((waiting, now));
            if self.processes.len() < MOST
                && let Err(error) = self.start()
            {
                tracing::warn!(%error, "what was sent can't be closed");
            }
        }
        Some(STUCK)
    }

    /// Ends the processes, which have all descriptors of this one: it is about to become another program.
    pub fn end(&mut self) {
        self.queue = None;
        for pid in &self.processes {
            // SAFETY: only numbers; nobody has waited for it, so it is no other process's.
            unsafe { libc::kill(*pid, libc::SIGKILL) };
        }
        self.reap();
    }

    fn begin(&mut self) -> io::Result<()> {
        if self.queue.is_none() {
            let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
            rustix::io::ioctl_fionbio(&write, true)?;
            self.queue = Some([read, write]);
        }
        self.reap();
        match self.processes.is_empty() {
            true => self.start(),
            false => Ok(()),
        }
    }

    fn reap(&mut self) {
        // SAFETY: only numbers. They tell nobody of their end, so only who asks for such hears of it.
        let goes_on = |pid: libc::pid_t| unsafe {
            libc::waitpid(pid, core::ptr::null_mut(), libc::WNOHANG | libc::__WALL) == 0
        };
        self.processes.retain(|pid| goes_on(*pid));
    }

    fn start(&mut self) -> io::Result<()> {
        let Some([end, _]) = &self.queue else {
            return Ok(());
        };
        let (end, parent) = (end.as_raw_fd(), std::process::id());
        // SAFETY: without CLONE_VM and a stack that is a `fork(2)`, but the descriptors are the same. No signal tells of its end.
        match unsafe { libc::syscall(libc::SYS_clone, libc::CLONE_FILES, 0, 0, 0, 0) } {
            -1 => Err(io::Error::last_os_error()),
            // SAFETY: it is that process.
            0 => unsafe { serve(end, parent) },
            pid => {
                self.processes.push(pid as libc::pid_t);
                Ok(())
            }
        }
    }
}

/// What such a process does: nothing but system calls, since others may have had locks when it was made.
///
/// # Safety
/// It must be a process of its own.
unsafe fn serve(queue: RawFd, parent: u32) -> ! {
    // SAFETY: numbers, names that last, and memory of this function's.
    unsafe {
        // Otherwise it would keep the parent's descriptors open.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::prctl(libc::PR_SET_NAME, c"skink-closer".as_ptr());
        while libc::getppid() as u32 == parent {
            let mut number = [0u8; 4];
            match libc::read(queue, number.as_mut_ptr().cast(), number.len()) {
                4 => {}
                -1 if *libc::__errno_location() == libc::EINTR => continue,
                _ => break,
            }
            let begun = Instant::now();
            libc::close(RawFd::from_ne_bytes(number));
            if begun.elapsed() > SLOW {
                break;
            }
        }
        libc::_exit(0)
    }
}
