use std::io;

/// Makes so many copies of the calling process, which must have one thread only. Returns in all of them; copies
/// end with the process that made them.
pub fn fork_workers(copies: u32) -> io::Result<()> {
    for _ in 0..copies {
        // SAFETY: with one thread, nothing is left half done in the copy.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: a plain system call.
                unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) };
                return Ok(());
            }
            -1 => return Err(io::Error::last_os_error()),
            _ => {}
        }
    }
    Ok(())
}
