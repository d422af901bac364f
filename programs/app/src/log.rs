//! What Skink says on the program's standard error: nothing, unless `SKINK_LOG` asks for it or the
//! set-up fails.
use crate::raw;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU8, Ordering};

/// How important a line is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Level {
    /// A call failed that should not have.
    Error = 1,
    /// A limit was met.
    Warn = 2,
    /// What goes where.
    Info = 3,
    /// Every step.
    Debug = 4,
}

static LEVEL: AtomicU8 = AtomicU8::new(0);

/// Takes the level from `SKINK_LOG`.
pub fn start() {
    let level = match std::env::var("SKINK_LOG").as_deref() {
        Ok("error") => 1,
        Ok("warn") => 2,
        Ok("info") => 3,
        Ok("debug" | "trace") => 4,
        _ => 0,
    };
    LEVEL.store(level, Ordering::Relaxed);
}

/// Whether lines of `level` are written.
#[inline]
pub fn enabled(level: Level) -> bool {
    level as u8 <= LEVEL.load(Ordering::Relaxed)
}

/// A line of bounded length, built without the heap.
struct Line {
    bytes: [u8; 512],
    used: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.len() - 1 - self.used;
        let count = text.len().min(room);
        self.bytes[self.used..self.used + count].copy_from_slice(&text.as_bytes()[..count]);
        self.used += count;
        Ok(())
    }
}

/// Writes one line to standard error with one system call.
pub fn write(text: fmt::Arguments<'_>) {
    let mut line = Line {
        bytes: [0; 512],
        used: 0,
    };
    let _ = write!(line, "skink[{}]: {text}", raw::process_id());
    line.bytes[line.used] = b'\n';
    let put = |fd: usize| {
        let arguments = [fd, line.bytes.as_ptr() as usize, line.used + 1, 0, 0, 0];
        // SAFETY: the bytes are ours.
        unsafe { raw::syscall(libc::SYS_write, arguments) }
    };
    if put(2) != -(libc::EBADF as isize) {
        return;
    }
    // The helper has other descriptors than the program.
    let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CLOEXEC | libc::O_NOCTTY;
    let path = c"/proc/self/fd/2".as_ptr() as usize;
    let arguments = [libc::AT_FDCWD as usize, path, flags as usize, 0, 0, 0];
    // SAFETY: the path is a C string.
    let opened = unsafe { raw::syscall(libc::SYS_openat, arguments) };
    if opened >= 0 {
        put(opened as usize);
        raw::close(opened as i32);
    }
}

/// `log!(Info, "…", …)`
macro_rules! log {
    ($level:ident, $($text:tt)*) => {
        if $crate::log::enabled($crate::log::Level::$level) {
            $crate::log::write(format_args!($($text)*));
        }
    };
}
pub(crate) use log;
