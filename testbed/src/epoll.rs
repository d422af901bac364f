use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Waits for many descriptors, by the C library's calls: so it can be part of a program whose calls are
/// served by a preloaded library.
pub struct Epoll {
    epoll: OwnedFd,
    events: Vec<libc::epoll_event>,
}

impl Epoll {
    /// Tells of up to `events` descriptors at a time.
    pub fn new(events: usize) -> io::Result<Epoll> {
        // SAFETY: a plain system call.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Epoll {
            // SAFETY: the descriptor was just made, and nobody else has it.
            epoll: unsafe { OwnedFd::from_raw_fd(epoll) },
            events: vec![libc::epoll_event { events: 0, u64: 0 }; events.max(1)],
        })
    }

    /// Tells from now on when `descriptor` is readable, by `token`; level-triggered.
    pub fn add(&self, descriptor: &impl AsRawFd, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: token,
        };
        let (epoll, descriptor) = (self.epoll.as_raw_fd(), descriptor.as_raw_fd());
        // SAFETY: `event` lives until the call returns.
        match unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, descriptor, &raw mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Tells of it no more.
    pub fn remove(&self, descriptor: &impl AsRawFd) -> io::Result<()> {
        let (epoll, descriptor) = (self.epoll.as_raw_fd(), descriptor.as_raw_fd());
        let none = std::ptr::null_mut();
        // SAFETY: for removal there is no event to be given.
        match unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_DEL, descriptor, none) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Waits until something is readable, and answers the tokens of what is.
    pub fn wait(&mut self) -> io::Result<impl Iterator<Item = u64>> {
        let (epoll, room) = (self.epoll.as_raw_fd(), self.events.len() as libc::c_int);
        // SAFETY: there is room for so many events.
        let count = unsafe { libc::epoll_wait(epoll, self.events.as_mut_ptr(), room, -1) };
        let count = match usize::try_from(count) {
            Ok(count) => count,
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => 0,
                error => return Err(error),
            },
        };
        Ok(self.events.iter().take(count).map(|event| event.u64))
    }
}
