//! Standard error of a process that must go on whatever becomes of it.
//!
//! A terminal is stopped, a pipe's reader is gone or doesn't read, a disk is full: then a line is lost, and nothing else.
//! `eprintln!` waits, or panics.
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fmt::Arguments;
use std::io::{self, Write};

/// Says something to whoever started this process, if that can be done at once.
pub fn say(line: Arguments<'_>) {
    let _ = AtOnce.write_all(format!("skink: {line}\n").as_bytes());
}

/// Says something to whoever waits for this process, which has nothing else to do: waits for room. An error is nothing.
pub fn tell(line: Arguments<'_>) {
    let _ = writeln!(io::stderr(), "skink: {line}");
}

/// What writes to standard error what can be written at once, and drops the rest. (A pipe has room for `PIPE_BUF` bytes if it
/// has any, which is more than a line.)
pub struct AtOnce;

impl Write for AtOnce {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let zero = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let stderr = io::stderr();
        let mut list = [PollFd::new(&stderr, PollFlags::OUT)];
        let has_room = poll(&mut list, Some(&zero)) == Ok(1)
            && list.iter().all(|it| it.revents() == PollFlags::OUT);
        if has_room {
            let line = bytes.get(..libc::PIPE_BUF).unwrap_or(bytes);
            let _ = stderr.lock().write(line);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
