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
    // SAFETY: the program's own call.
    forking(|| unsafe { next::fork_without_handlers() }.into()) as c_int
}

/// Makes a child by `call`, which answers 0 in there.
fn forking(call: impl FnOnce() -> c_long) -> c_long {
    fork::prepare();
    let child = call();
    if child == 0 {
        fork::child();
    } else {
        fork::parent();
    }
    child
}

/// Whether a system call is another way to fork: the child has memory and descriptors of its own, and goes on where its
/// parent does.
///
/// # Safety
/// As the system call's.
unsafe fn forks(number: c_long, arguments: [usize; 6]) -> bool {
    let shared = (libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_THREAD) as u64;
    let (flags, stack) = match number {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_fork => (0, 0),
        libc::SYS_clone => (arguments[0] as u64, arguments[1] as u64),
        libc::SYS_clone3 if arguments[1] >= size_of::<[u64; 8]>() => {
            // SAFETY: the program's own `clone_args`, in its first version at least.
            let wanted = unsafe { (arguments[0] as *const [u64; 8]).read_unaligned() };
            (wanted[0], wanted[5])
        }
        _ => return false,
    };
    flags & shared == 0 && stack == 0
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
    let arguments = [a, b, c, d, e, f];
    // SAFETY: the program's own arguments, here and below.
    let call = || unsafe { next::syscall(number, a, b, c, d, e, f) };
    // SAFETY: as above.
    match unsafe { numbers::dispatch(number, arguments) } {
        Some(answer) => answer as c_long,
        // SAFETY: as above.
        None if crate::is_on() && unsafe { forks(number, arguments) } => forking(call),
        None => call(),
    }
}
