//! libc's streams on Skink's sockets. libc reads, writes and closes what is behind a stream by functions
//! of its own, which don't come by the library. So a stream on a socket gets functions of ours
//! (`fopencookie`), and is told its descriptor's number, by which `fileno` and the program know it.
//!
//! The same goes for `stdin`, `stdout` and `stderr`, once their descriptor becomes a socket: another
//! stream stands in for libc's, for good, since ours serves any descriptor.
//!
//! **What it leaves out.** Wide characters (glibc has none in a stream of `fopencookie`), and what took hold of libc's
//! own stream before another stood in for it, as C++'s `cout` does.
use crate::entry::{data, sockets};
use crate::errno::{Answer, fail, set};
use crate::fd_table::{self, Entry};
use crate::lock::lock;
use core::ffi::{CStr, c_char, c_int, c_void};
use libc::{FILE, size_t, ssize_t};

/// What glibc has for the data of wide characters in such a stream.
const NO_WIDE_DATA: usize = usize::MAX;

/// What `fopencookie` calls (`cookie_io_functions_t` in glibc's `<stdio.h>`).
#[repr(C)]
#[derive(Clone, Copy)]
struct Functions {
    read: unsafe extern "C-unwind" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: unsafe extern "C-unwind" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    seek: unsafe extern "C-unwind" fn(*mut c_void, *mut i64, c_int) -> c_int,
    close: unsafe extern "C-unwind" fn(*mut c_void) -> c_int,
}

/// The public part of glibc's `struct _IO_FILE` (`<bits/types/struct_FILE.h>`, part of its ABI).
#[repr(C)]
struct Layout {
    flags: c_int,
    pointers: [*mut c_void; 13],
    fileno: c_int,
    others: [u64; 5],
    wide: *mut c_void,
}

/// What glibc has for a descriptor in a stream of `fopencookie`.
const NO_DESCRIPTOR: c_int = -2;

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
    fn ftrylockfile(file: *mut FILE) -> c_int;
    fn funlockfile(file: *mut FILE);
    fn fflush_unlocked(file: *mut FILE) -> c_int;
    fn __flbf(file: *mut FILE) -> c_int;
    static mut stdin: *mut FILE;
    static mut stdout: *mut FILE;
    static mut stderr: *mut FILE;
}

const FUNCTIONS: Functions = Functions {
    read,
    write,
    seek,
    close,
};

/// A stream's cookie is its descriptor.
fn descriptor(cookie: *mut c_void) -> c_int {
    cookie as usize as c_int
}

unsafe extern "C-unwind" fn read(cookie: *mut c_void, at: *mut c_char, count: size_t) -> ssize_t {
    // SAFETY: libc's own buffer.
    unsafe { data::read(descriptor(cookie), at.cast(), count) }
}

/// Answers how much was written; libc takes anything short of `count` for an error.
unsafe extern "C-unwind" fn write(
    cookie: *mut c_void,
    at: *const c_char,
    count: size_t,
) -> ssize_t {
    // SAFETY: libc's own buffer.
    unsafe { write_all(descriptor(cookie), at, count) as ssize_t }
}

/// A socket has no position. libc goes on where it hears just that.
unsafe extern "C-unwind" fn seek(_: *mut c_void, _: *mut i64, _: c_int) -> c_int {
    set(libc::ESPIPE);
    -1
}

unsafe extern "C-unwind" fn close(cookie: *mut c_void) -> c_int {
    // SAFETY: the stream's own descriptor.
    unsafe { sockets::close(descriptor(cookie)) }
}

/// Writes until everything is written or a call fails; answers how many bytes were.
///
/// # Safety
/// `count` bytes at `at` must be readable.
pub unsafe fn write_all(fd: c_int, at: *const c_char, count: usize) -> usize {
    let mut done = 0;
    while done < count {
        // SAFETY: the caller's promise.
        match unsafe { data::write(fd, at.add(done).cast(), count - done) } {
            more if more > 0 => done += more as usize,
            _ => break,
        }
    }
    done
}

/// Whether libc's functions must not write to or read from the descriptor itself.
pub fn is_socket(fd: c_int) -> bool {
    matches!(fd_table::get(fd), Entry::Socket(_))
}

/// What `fdopen`'s mode comes to, as `fopencookie` reads it.
fn plain_mode(mode: &CStr) -> Answer<&'static CStr> {
    let mut letters = mode.to_bytes().iter().take_while(|letter| **letter != b',');
    let first = letters.next();
    let both = letters.any(|letter| *letter == b'+');
    match (first, both) {
        (Some(b'r'), false) => Ok(c"r"),
        (Some(b'w'), false) => Ok(c"w"),
        (Some(b'a'), false) => Ok(c"a"),
        (Some(b'r'), true) => Ok(c"r+"),
        (Some(b'w'), true) => Ok(c"w+"),
        (Some(b'a'), true) => Ok(c"a+"),
        _ => fail(libc::EINVAL),
    }
}

/// `fdopen` of a socket: the stream's address.
///
/// # Safety
/// `mode` must be a C string.
pub unsafe fn open(fd: c_int, mode: *const c_char) -> Answer {
    // SAFETY: the caller's promise.
    let mode = plain_mode(unsafe { CStr::from_ptr(mode) })?;
    let mut state = lock()?;
    // SAFETY: a C string, and functions that are there for as long as the library is.
    let file = unsafe { fopencookie(fd as usize as *mut c_void, mode.as_ptr(), FUNCTIONS) };
    if file.is_null() {
        return fail(libc::ENOMEM);
    }
    let layout: *mut Layout = file.cast();
    // SAFETY: glibc made a stream that begins so, and nobody else knows it yet.
    unsafe {
        if (*layout).fileno == NO_DESCRIPTOR {
            (*layout).fileno = fd;
        }
    }
    state.streams.push(file as usize);
    Ok(file as usize)
}

/// The program closes the stream, or makes it another file's: whether it was one of ours. It isn't any
/// more.
pub fn forget(file: *mut FILE) -> Answer<bool> {
    let streams = &mut lock()?.streams;
    let before = streams.len();
    streams.retain(|other| *other != file as usize);
    Ok(streams.len() < before)
}

/// Prepares one of our streams for `freopen`, which would follow what is no pointer.
///
/// # Safety
/// It must be a stream of ours, and open.
pub unsafe fn prepare_to_reopen(file: *mut FILE) {
    let layout: *mut Layout = file.cast();
    // SAFETY: glibc's streams begin so; where there is no data for wide characters nobody uses it.
    unsafe {
        if (*layout).wide as usize == NO_WIDE_DATA {
            (*layout).wide = core::ptr::null_mut();
        }
    }
}

/// Writes what is left in streams. libc does so too late at the end of the process, when the sockets are
/// closed. A stream that another thread uses is left alone.
pub fn flush() {
    let Ok(streams) = lock().map(|state| state.streams.clone()) else {
        return;
    };
    for file in streams {
        let file = file as *mut FILE;
        // SAFETY: a stream stays in the list for as long as it is open.
        unsafe {
            if ftrylockfile(file) == 0 {
                fflush_unlocked(file);
                funlockfile(file);
            }
        }
    }
}

/// A socket comes to be where a standard stream's descriptor is: lets another stream stand in for libc's.
pub fn stand_in(fd: c_int) {
    let (variable, mode) = match fd {
        0 => (&raw mut stdin, c"r"),
        1 => (&raw mut stdout, c"w"),
        2 => (&raw mut stderr, c"w"),
        _ => return,
    };
    // SAFETY: libc's variable; its stream is open, or null if the program made it so.
    unsafe {
        let old = *variable;
        if old.is_null() || libc::fileno(old) != fd {
            return;
        }
        let known = lock().map(|state| state.streams.contains(&(old as usize)));
        if known != Ok(false) {
            return;
        }
        let by_line = __flbf(old) != 0;
        if fd != 0 {
            libc::fflush(old);
        }
        let Ok(new) = open(fd, mode.as_ptr()) else {
            return;
        };
        let new = new as *mut FILE;
        let buffering = match fd {
            2 => Some(libc::_IONBF),
            _ => by_line.then_some(libc::_IOLBF),
        };
        if let Some(buffering) = buffering {
            libc::setvbuf(new, core::ptr::null_mut(), buffering, 0);
        }
        *variable = new;
    }
}

#[cfg(test)]
mod tests;
