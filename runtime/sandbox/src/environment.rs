//! The environment holds tokens and paths that a confined process has no use for.

use std::io;

/// Empties the environment, and wipes the memory in which the process was handed it.
///
/// A variable that the process set itself is forgotten, but stays in the heap.
pub(crate) fn clear() -> io::Result<()> {
    let block = initial_block()?;
    // SAFETY: the process has one thread, as was checked, so nobody reads the environment meanwhile.
    if unsafe { libc::clearenv() } != 0 {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    if let Some((start, bytes)) = block {
        // SAFETY: the kernel says that the strings are there, on the initial stack, which is writable.
        // Nothing refers to them any more but a C library that kept a `getenv`; it reads "".
        unsafe {
            std::ptr::write_bytes(std::ptr::with_exposed_provenance_mut::<u8>(start), 0, bytes)
        };
    }
    Ok(())
}

/// Where the kernel put the environment's strings (proc_pid_stat(5): `env_start`, `env_end`).
fn initial_block() -> io::Result<Option<(usize, usize)>> {
    let line = std::fs::read_to_string("/proc/self/stat")?;
    Ok(parse(&line))
}

/// The range in a line of `/proc/PID/stat`, as start and length in bytes.
fn parse(line: &str) -> Option<(usize, usize)> {
    // The name, in parentheses, may hold spaces and parentheses. The field behind it is the third.
    let (_, fields) = line.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(50 - 3);
    let start: usize = fields.next()?.parse().ok()?;
    let end: usize = fields.next()?.parse().ok()?;
    // The kernel says 0 to those who may not know.
    (start != 0 && start < end).then(|| (start, end - start))
}

#[cfg(test)]
mod tests;
