//! Errors at the socket boundary: the one file that knows errno.
use core::ffi::c_int;
use skink_messages::SocketError;

/// Why a call isn't answered by Skink with a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// It fails with this errno.
    Errno(c_int),
    /// The descriptor isn't Skink's (any more): the kernel answers.
    Kernel,
}

/// A call's answer.
pub type Answer<T = usize> = Result<T, Stop>;

/// Fails with `errno`.
pub fn fail<T>(errno: c_int) -> Answer<T> {
    Err(Stop::Errno(errno))
}

/// The call would have to wait.
pub const WOULD_BLOCK: Stop = Stop::Errno(libc::EAGAIN);

/// The errno of a socket's failure, as Linux would give it.
pub fn of(error: SocketError) -> c_int {
    match error {
        SocketError::Refused => libc::ECONNREFUSED,
        SocketError::Reset => libc::ECONNRESET,
        SocketError::TimedOut => libc::ETIMEDOUT,
        SocketError::HostUnreachable => libc::EHOSTUNREACH,
        SocketError::NetworkUnreachable => libc::ENETUNREACH,
        SocketError::AddressNotAvailable => libc::EADDRNOTAVAIL,
        SocketError::AddressInUse => libc::EADDRINUSE,
        SocketError::Invalid => libc::EINVAL,
        SocketError::NoBuffers => libc::ENOBUFS,
        SocketError::IsConnected => libc::EISCONN,
        SocketError::NotConnected => libc::ENOTCONN,
        SocketError::MessageSize => libc::EMSGSIZE,
        SocketError::Prohibited => libc::EACCES,
        SocketError::BrokenPipe => libc::EPIPE,
    }
}

/// The errno of the number in a record, 0 if there is none.
pub fn of_number(number: u32) -> c_int {
    match SocketError::from_number(number) {
        Some(error) => of(error),
        None if number == 0 => 0,
        None => libc::EIO,
    }
}

impl From<SocketError> for Stop {
    fn from(error: SocketError) -> Stop {
        Stop::Errno(of(error))
    }
}

/// What the program would find in `errno` now.
pub fn get() -> c_int {
    // SAFETY: glibc's thread-local errno is always there.
    unsafe { *libc::__errno_location() }
}

/// Stores `errno` where the program looks for it.
pub fn set(errno: c_int) {
    // SAFETY: glibc's thread-local errno is always there.
    unsafe { *libc::__errno_location() = errno };
}

#[cfg(test)]
mod tests;
