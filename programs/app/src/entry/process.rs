//! Entry points that fork and end processes, and `syscall`. `exec` has its own.
use crate::{exit, fork, next, syscall as numbers};
use core::ffi::{c_int, c_long};

/// `_Fork`, which runs none of the handlers that `fork` runs.
///
/// # Safety
/// As the function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn _Fork() -> c_int {
    if !crate::is_on() {
        // SAFETY: the program's own call.
        return unsafe { next::fork_without_handlers() };
    }
    fork::prepare();
    // SAFETY: the program's own call.
    let child = unsafe { next::fork_without_handlers() };
    if child == 0 {
        fork::child()
    } else {
        fork::parent()
    }
    child
}

/// `_exit`
///
/// # Safety
/// As the function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn _exit(status: c_int) -> ! {
    exit::leave(status)
}

/// `_Exit`
///
/// # Safety
/// As the function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn _Exit(status: c_int) -> ! {
    exit::leave(status)
}

/// `syscall`: programs that go around libc's functions come by here. It is variadic in C; the
/// arguments lie where six of a plain function would.
///
/// # Safety
/// As the system call's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    // SAFETY: the program's own arguments, here and below.
    match unsafe { numbers::dispatch(number, [a, b, c, d, e, f]) } {
        Some(answer) => answer as c_long,
        // SAFETY: as above.
        None => unsafe { next::syscall(number, a, b, c, d, e, f) },
    }
}
