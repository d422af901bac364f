//! What stays open: standard error, and what was handed over.

use rustix::fd::{AsRawFd, BorrowedFd, IntoRawFd, RawFd};
use rustix::fs::{Mode, OFlags};
use std::io;

const STANDARD_ERROR: RawFd = 2;

/// Closes all descriptors but standard error and `keep`. Standard input and output that aren't kept
/// become `/dev/null`, and so does standard error if it is closed: the next descriptor that the process
/// gets must not be one that a message is printed to.
pub(crate) fn close_all_but(keep: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut kept: Vec<RawFd> = keep.iter().map(AsRawFd::as_raw_fd).collect();
    // SAFETY: asks about a number; one that isn't open is an answer, too.
    if unsafe { libc::fcntl(STANDARD_ERROR, libc::F_GETFD) } >= 0 {
        kept.push(STANDARD_ERROR);
    }
    kept.sort_unstable();
    kept.dedup();
    fill_standard(&kept)?;
    let mut first = STANDARD_ERROR + 1;
    for number in kept {
        if number < first {
            continue;
        }
        if number > first {
            close_range(first, number - 1)?;
        }
        first = number + 1;
    }
    close_range(first, RawFd::MAX)
}

fn fill_standard(kept: &[RawFd]) -> io::Result<()> {
    let empty: Vec<RawFd> = (0..=STANDARD_ERROR)
        .filter(|number| !kept.contains(number))
        .collect();
    if empty.is_empty() {
        return Ok(());
    }
    let null = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty())?.into_raw_fd();
    for number in empty {
        // SAFETY: replaces a descriptor that wasn't handed over, as the caller was told.
        if number != null && unsafe { libc::dup2(null, number) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // One above standard error isn't kept, and goes with the others.
    Ok(())
}

fn close_range(first: RawFd, last: RawFd) -> io::Result<()> {
    // SAFETY: closes numbers that weren't handed over, as the caller was told. The system call by
    // number, since the wrapper is younger than the oldest supported library.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
