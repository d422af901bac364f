//! What a service tells its manager: that it is ready, that it lives, how it is (sd_notify(3)).
//!
//! The protocol is a datagram of `NAME=value` lines, sent to the socket that `NOTIFY_SOCKET` names.

use rustix::fd::OwnedFd;
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sendto, socket_with,
};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::time::Duration;

/// The way to the service manager. Not to be handed on: the children of a service get an environment
/// without `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID`.
#[derive(Debug)]
pub struct Notifier {
    socket: OwnedFd,
    address: SocketAddrUnix,
}

/// Why the service manager can't be told.
#[derive(Debug)]
pub enum NotifyError {
    /// `NOTIFY_SOCKET` is none of the two kinds of names that there are.
    BadAddress(OsString),
    /// The kernel makes no socket.
    Socket(io::Error),
    /// Nobody takes the message.
    Send(io::Error),
}

impl fmt::Display for NotifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotifyError::BadAddress(address) => write!(
                f,
                "NOTIFY_SOCKET is {}, which is neither a path from the root nor an abstract name \
                 with an @ in front: unset it, or start this as a service",
                address.display()
            ),
            NotifyError::Socket(error) => write!(
                f,
                "no socket can be made for the service manager: {error}; raise the limit of open \
                 files, or unset NOTIFY_SOCKET"
            ),
            NotifyError::Send(error) => write!(
                f,
                "the service manager can't be told ({error}): has the unit Type=notify and \
                 NotifyAccess=all?"
            ),
        }
    }
}

impl std::error::Error for NotifyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            NotifyError::BadAddress(_) => None,
            NotifyError::Socket(error) | NotifyError::Send(error) => Some(error),
        }
    }
}

impl Notifier {
    /// The manager that started this process. None: nobody wants to be told.
    pub fn from_environment() -> Result<Option<Notifier>, NotifyError> {
        match std::env::var_os("NOTIFY_SOCKET") {
            Some(address) if !address.is_empty() => Notifier::to(&address).map(Some),
            Some(_) | None => Ok(None),
        }
    }

    /// The manager at an address: a path, or an abstract name with an `@` in front.
    pub fn to(address: &OsStr) -> Result<Notifier, NotifyError> {
        let bad = |_| NotifyError::BadAddress(address.to_owned());
        let parsed = match address.as_bytes() {
            [b'@', name @ ..] if !name.is_empty() => SocketAddrUnix::new_abstract_name(name),
            path @ [b'/', ..] => SocketAddrUnix::new(path),
            _ => Err(rustix::io::Errno::INVAL),
        };
        let address = parsed.map_err(bad)?;
        let kind = SocketType::DGRAM;
        let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)
            .map_err(|error| NotifyError::Socket(error.into()))?;
        Ok(Notifier { socket, address })
    }

    /// The service does its work from now on. Waits until the manager has room for the message.
    pub fn ready(&self) -> Result<(), NotifyError> {
        self.send("READY=1", SendFlags::empty())
    }

    /// The service is about to end, as it was meant to. Never waits: it ends, whether anybody reads that or not.
    pub fn stopping(&self) -> Result<(), NotifyError> {
        self.send("STOPPING=1", SendFlags::DONTWAIT)
    }

    /// Another process is the service from now on. Never waits: one that isn't taken is to be said again.
    pub fn main_process(&self, process: u32) -> Result<(), NotifyError> {
        self.send(&format!("MAINPID={process}"), SendFlags::DONTWAIT)
    }

    /// How the service is, in a line for a person. Never waits: an event loop may call it.
    pub fn status(&self, line: &str) -> Result<(), NotifyError> {
        // A line end would begin another variable.
        let line = line.replace(|c: char| c.is_control(), " ");
        self.send(&format!("STATUS={line}"), SendFlags::DONTWAIT)
    }

    /// The service lives. To be called every [`watchdog_interval`](Notifier::watchdog_interval). Never
    /// waits; one that isn't taken is made good by the next.
    pub fn watchdog(&self) -> Result<(), NotifyError> {
        self.send("WATCHDOG=1", SendFlags::DONTWAIT)
    }

    /// How often the manager must hear that the service lives: half of the time after which it ends it
    /// (sd_watchdog_enabled(3)). None: it doesn't watch this process.
    pub fn watchdog_interval() -> Option<Duration> {
        let limit = std::env::var_os("WATCHDOG_USEC")?;
        let process = std::env::var_os("WATCHDOG_PID");
        half_of_watchdog(&limit, process.as_deref(), std::process::id())
    }

    /// For a program that this process becomes (`exec(2)`): it is the one that the manager watches, although its
    /// environment names another process, if that was this one's predecessor.
    pub fn watch(command: &mut Command) {
        command.env("WATCHDOG_PID", std::process::id().to_string());
    }

    fn send(&self, message: &str, how: SendFlags) -> Result<(), NotifyError> {
        let flags = how | SendFlags::NOSIGNAL;
        rustix::io::retry_on_intr(|| sendto(&self.socket, message.as_bytes(), flags, &self.address))
            .map(drop)
            .map_err(|error| NotifyError::Send(error.into()))
    }
}

fn half_of_watchdog(limit: &OsStr, process: Option<&OsStr>, own: u32) -> Option<Duration> {
    let number = |text: &OsStr| text.to_str()?.parse::<u64>().ok();
    if process.is_some_and(|process| number(process) != Some(own.into())) {
        return None;
    }
    let half = number(limit)? / 2;
    (half > 0).then(|| Duration::from_micros(half))
}

#[cfg(test)]
mod tests;
