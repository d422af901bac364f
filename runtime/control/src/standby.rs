//! A supervisor's standby: a copy of its process that sleeps until it dies, and goes on in its place.
//!
//! The copy (`fork(2)`) has the same memory and descriptors as the supervisor had when it was made. A
//! supervisor that makes a new one whenever something has changed can be killed at any time. What is little beside all that
//! it has can be *told* to the copy instead, descriptors and all: it lies in a socket, and the copy reads it when it wakes. The copy also
//! looks at times whether the supervisor still goes on, and ends one that hangs.
use crate::peer::is_stopped;
use crate::transport::{self, MAXIMUM_REPLY, ReceiveError};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, read, retry_on_intr};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process, pidfd_open, pidfd_send_signal,
    waitpid,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// What the copy is called in `/proc/PID/comm`.
const SLEEPS: &std::ffi::CStr = c"skink-standby";
const AWAKE: &std::ffi::CStr = c"skink";

/// How long a copy that was killed is waited for.
const END: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// Who goes on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Standing {
    /// The process that made the copy.
    Original,
    /// The copy: the original is dead.
    Successor {
        /// Why the copy killed it, if it did.
        verdict: Option<String>,
    },
}

/// The copy that sleeps.
#[derive(Serialize, Deserialize)]
struct Copy {
    pid: i32,
    #[serde(with = "skink_inherit::descriptors")]
    ended: OwnedFd,
    /// To tell it what has happened since it was made.
    #[serde(with = "skink_inherit::descriptors")]
    news: OwnedFd,
}

/// What a copy is told.
#[derive(Serialize, Deserialize)]
struct News {
    value: String,
    /// The numbers of the descriptors beside it in the original, in their order.
    numbers: Vec<RawFd>,
}

/// A process with a standby.
#[derive(Default, Serialize, Deserialize)]
pub struct Standby {
    copy: Option<Copy>,
    /// An eventfd of this process and all copies of it. Who takes its one token goes on.
    #[serde(with = "skink_inherit::descriptors")]
    token: Option<OwnedFd>,
    /// Copies that were ended, and whose end nobody has seen yet.
    #[serde(default)]
    dead: Vec<i32>,
    /// Of a copy that goes on: what it was told.
    #[serde(skip)]
    told: Option<OwnedFd>,
}

impl Standby {
    /// How often a copy looks at the original.
    pub const INTERVAL: Duration = Duration::from_millis(500);

    /// None yet.
    pub fn new() -> Standby {
        Standby::default()
    }

    /// Polls readable when the copy has died. Make a new one then.
    pub fn ended(&self) -> Option<BorrowedFd<'_>> {
        self.copy.as_ref().map(|copy| copy.ended.as_fd())
    }

    /// The copy's process id.
    pub fn pid(&self) -> Option<u32> {
        let pid = self.copy.as_ref()?.pid;
        u32::try_from(pid).ok()
    }

    /// Whether there is a copy, and it has died.
    pub fn has_ended(&self) -> bool {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let ended = self
            .ended()
            .map(|ended| PollFd::from_borrowed_fd(ended, PollFlags::IN));
        ended.is_some_and(|ended| poll(&mut [ended], Some(&now)) == Ok(1))
    }

    /// Whether the copy is stopped, by a signal or a debugger, and wouldn't go on. Make a new one then.
    pub fn is_stopped(&self) -> bool {
        self.pid().is_some_and(is_stopped)
    }

    /// Makes a copy of this process as it is now, in place of the one before. Returns at once to the
    /// caller. In the copy it returns too, once the caller's process is dead, however that came.
    ///
    /// Until then the copy calls `look` every [`Standby::INTERVAL`]: if it answers what is wrong with the
    /// original, that is killed.
    ///
    /// A terminal's signals reach both; block them, as [`crate::SignalDescriptor`] does.
    ///
    /// # Errors
    /// If there is more than one thread (the copy would have just one), or what the system says. The copy
    /// before is still there then.
    pub fn renew(&mut self, look: impl FnMut(Instant) -> Option<String>) -> io::Result<Standing> {
        if std::fs::read_dir("/proc/self/task")?.count() != 1 {
            return Err(io::Error::other(
                "a process with threads can't have a standby",
            ));
        }
        let original = pidfd_open(getpid(), PidfdFlags::empty())?;
        if self.token.is_none() {
            self.token = Some(eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        }
        let (told, news) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        // SAFETY: there is one thread, as was just made sure, so the copy's memory is as consistent as
        // this process's own, its locks and its heap included.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                drop(news);
                let verdict = sleep(&original, look);
                self.take_over();
                self.told = Some(told);
                Ok(Standing::Successor { verdict })
            }
            child => {
                let pid = Pid::from_raw(child).ok_or(Errno::SRCH)?;
                // It can't be another's id: nobody has waited for it.
                let ended = pidfd_open(pid, PidfdFlags::empty()).inspect_err(|_| {
                    let _ = kill_process(pid, Signal::KILL);
                    let _ = retry_on_intr(|| waitpid(Some(pid), WaitOptions::empty()));
                })?;
                self.dismiss();
                self.copy = Some(Copy {
                    pid: child,
                    ended,
                    news,
                });
                Ok(Standing::Original)
            }
        }
    }

    /// Tells the copy what has happened since it was made. A new copy knows that by itself.
    ///
    /// # Errors
    /// What the system says, if there is no copy, no room, or too much at once: make a new copy then.
    pub fn tell<T: Serialize>(&self, value: &T) -> io::Result<()> {
        let copy = self.copy.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        skink_inherit::lend_to(value, |value, numbers, descriptors| {
            let news = News {
                value: value.to_owned(),
                numbers: numbers.to_owned(),
            };
            transport::send(copy.news.as_fd(), &news, descriptors, SendFlags::DONTWAIT)
        })
    }

    /// In a copy that goes on: what it was told next, while it slept.
    ///
    /// # Errors
    /// If that isn't a `T`.
    pub fn next_told<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let Some(told) = &self.told else {
            return Ok(None);
        };
        let (flags, mut beside) = (RecvFlags::DONTWAIT, Vec::new());
        let received = transport::receive_beside(told.as_fd(), MAXIMUM_REPLY, flags, &mut beside);
        let news: News = match received {
            Ok(news) => news,
            Err(ReceiveError::Nothing | ReceiveError::Closed) => {
                self.told = None;
                return Ok(None);
            }
            Err(ReceiveError::Failed(error)) => return Err(error),
            Err(ReceiveError::Malformed(what)) => return Err(io::Error::other(what)),
        };
        let descriptors = news.numbers.into_iter().zip(beside).collect();
        skink_inherit::received(&news.value, descriptors).map(Some)
    }

    /// For a moment there are two copies: the original may have died before it could end the older. Then
    /// both are awake, and one ends itself: either knows enough.
    fn take_over(&mut self) {
        let mut count = [0; 8];
        let token = self.token.take();
        let taken = token.is_some_and(|token| read(&token, &mut count) == Ok(count.len()));
        if !taken {
            // Nothing of it must be left behind, as what is dropped or flushed would be.
            loop {
                let _ = kill_process(getpid(), Signal::KILL);
            }
        }
        let _ = rustix::thread::set_name(AWAKE);
        // What sleeps, or slept, is the original's.
        self.copy = None;
        self.dead.clear();
    }

    /// Ends the copy. If it takes long to end, nobody waits for that: it has to close what strangers have sent.
    pub fn dismiss(&mut self) {
        if let Some(copy) = self.copy.take() {
            let _ = pidfd_send_signal(&copy.ended, Signal::KILL);
            let mut ended = [PollFd::new(&copy.ended, PollFlags::IN)];
            let _ = retry_on_intr(|| poll(&mut ended, Some(&END)));
            self.dead.push(copy.pid);
        }
        let has_ended = |pid: i32| {
            let waited = retry_on_intr(|| waitpid(Pid::from_raw(pid), WaitOptions::NOHANG));
            !matches!(waited, Ok(None))
        };
        self.dead.retain(|pid| !has_ended(*pid));
    }
}

impl Drop for Standby {
    /// Who ends in good order has no successor.
    fn drop(&mut self) {
        self.dismiss();
    }
}

/// Until the original is dead. Answers why it was killed, if it was killed here.
fn sleep(original: &OwnedFd, mut look: impl FnMut(Instant) -> Option<String>) -> Option<String> {
    let _ = rustix::thread::set_name(SLEEPS);
    let interval = Timespec {
        tv_sec: 0,
        tv_nsec: Standby::INTERVAL.subsec_nanos().into(),
    };
    let mut ended = [PollFd::new(original, PollFlags::IN)];
    while retry_on_intr(|| poll(&mut ended, Some(&interval))) != Ok(1) {
        let Some(why) = look(Instant::now()) else {
            continue;
        };
        // A process that waits for a disk dies later. There is never a second supervisor beside it.
        let _ = pidfd_send_signal(original, Signal::KILL);
        while retry_on_intr(|| poll(&mut ended, None)) != Ok(1) {}
        return Some(why);
    }
    None
}

#[cfg(test)]
mod tests;
