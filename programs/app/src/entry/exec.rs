//! Entry points that make a process another program. libc's own go past each other's names, so each has
//! one here, and all end at the three that take an environment.
use crate::exec::{Environment, begin, leave};
use crate::next;
use core::ffi::{c_char, c_int, c_long};

type Strings = *const *const c_char;

unsafe extern "C" {
    /// The environment of the process.
    static mut environ: Environment;
}

/// Runs `call` with the environment that the new program is to have.
///
/// # Safety
/// `environment` must be a list of strings that ends with null.
unsafe fn replace(environment: Environment, call: impl FnOnce(Environment) -> c_int) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { leave(environment) } {
        Some(legacy) => begin(legacy, call),
        None => call(environment),
    }
}

/// `execve`
///
/// # Safety
/// As the function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn execve(
    path: *const c_char,
    arguments: Strings,
    environment: Environment,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { replace(environment, |with| next::execve(path, arguments, with)) }
}

/// `execvpe`
///
/// # Safety
/// As the function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn execvpe(
    file: *const c_char,
    arguments: Strings,
    environment: Environment,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { replace(environment, |with| next::execvpe(file, arguments, with)) }
}

/// `execv`
///
/// # Safety
/// As the function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn execv(path: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: the program's own arguments; `environ` as for libc's function.
    unsafe { execve(path, arguments, environ) }
}

/// `execvp`
///
/// # Safety
/// As the function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn execvp(file: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: the program's own arguments; `environ` as for libc's function.
    unsafe { execvpe(file, arguments, environ) }
}

/// `fexecve`
///
/// # Safety
/// As the function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fexecve(
    fd: c_int,
    arguments: Strings,
    environment: Environment,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { replace(environment, |with| next::fexecve(fd, arguments, with)) }
}

/// `execveat`
///
/// # Safety
/// As the function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn execveat(
    directory: c_int,
    path: *const c_char,
    arguments: Strings,
    environment: Environment,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        replace(environment, |with| {
            next::execveat(directory, path, arguments, with, flags)
        })
    }
}

/// Which of the functions whose arguments are a list in the call itself.
const EXECL: c_long = 0;
const EXECLP: c_long = 1;

/// What a call with a list of arguments comes to. `registers` holds those that were passed in
/// registers, from the second argument of the function on; those on the stack follow at `stack`.
unsafe extern "C-unwind" fn with_list(
    path: *const c_char,
    registers: *const *const c_char,
    stack: *const *const c_char,
    which: c_long,
) -> c_int {
    let mut arguments = Vec::new();
    let mut more = (0..)
        // SAFETY: the list ends with null, and is where the calling convention says.
        .map(|at| unsafe {
            match at {
                at if at < IN_REGISTERS => *registers.add(at),
                at => *stack.add(at - IN_REGISTERS),
            }
        });
    for argument in more.by_ref() {
        arguments.push(argument);
        if argument.is_null() {
            break;
        }
    }
    let list = arguments.as_ptr();
    // SAFETY: the program's own arguments; `environ` as for libc's functions.
    unsafe {
        match which {
            EXECL => execve(path, list, environ),
            EXECLP => execvpe(path, list, environ),
            // The environment comes after the list.
            _ => {
                let environment = more.next().unwrap_or(core::ptr::null());
                execve(path, list, environment.cast())
            }
        }
    }
}

/// Arguments after the first that are passed in registers.
#[cfg(target_arch = "x86_64")]
const IN_REGISTERS: usize = 5;
#[cfg(target_arch = "aarch64")]
const IN_REGISTERS: usize = 7;

/// Declares a function with any number of arguments, which the compiler can't: it puts those in registers
/// beside those on the stack, and calls [`with_list`].
macro_rules! variadic {
    ($($name:ident $which:literal)*) => {$(
        #[doc = concat!("`", stringify!($name), "`")]
        ///
        /// # Safety
        /// As the function's, which takes more arguments.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        #[cfg(target_arch = "x86_64")]
        pub unsafe extern "C-unwind" fn $name(path: *const c_char, first: *const c_char) -> c_int {
            core::arch::naked_asm!(
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                // Five registers and the return address.
                "lea rdx, [rsp + 48]",
                "mov ecx, {which}",
                "call {list}",
                "add rsp, 40",
                "ret",
                which = const $which,
                list = sym with_list,
            )
        }

        #[doc = concat!("`", stringify!($name), "`")]
        ///
        /// # Safety
        /// As the function's, which takes more arguments.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        #[cfg(target_arch = "aarch64")]
        pub unsafe extern "C-unwind" fn $name(path: *const c_char, first: *const c_char) -> c_int {
            core::arch::naked_asm!(
                "stp x29, x30, [sp, #-80]!",
                "mov x29, sp",
                "stp x1, x2, [sp, #16]",
                "stp x3, x4, [sp, #32]",
                "stp x5, x6, [sp, #48]",
                "str x7, [sp, #64]",
                "add x1, sp, #16",
                "add x2, sp, #80",
                "mov x3, #{which}",
                "bl {list}",
                "ldp x29, x30, [sp], #80",
                "ret",
                which = const $which,
                list = sym with_list,
            )
        }
    )*};
}

variadic! {
    execl 0
    execlp 1
    execle 2
}
