//! Entry points of libc's streams, and of printing to a descriptor.
use crate::errno::{Stop, set};
use crate::fd_table::is_ours;
use crate::streams::{self, is_socket};
use crate::{descriptor, next};
use core::ffi::{c_char, c_int, c_void};
use libc::FILE;

/// A list of variable arguments, as it is passed: by its address, on both architectures.
type List = *mut c_void;

unsafe extern "C" {
    fn vasprintf(text: *mut *mut c_char, format: *const c_char, list: List) -> c_int;
    fn __vasprintf_chk(
        text: *mut *mut c_char,
        flag: c_int,
        format: *const c_char,
        list: List,
    ) -> c_int;
}

/// `fdopen`
///
/// # Safety
/// As the function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    if is_socket(fd) {
        // SAFETY: the program's own arguments.
        match unsafe { streams::open(fd, mode) } {
            Ok(file) => return file as *mut FILE,
            Err(Stop::Errno(errno)) => {
                set(errno);
                return core::ptr::null_mut();
            }
            Err(Stop::Kernel) => {}
        }
    }
    // SAFETY: the program's own arguments.
    unsafe { next::fdopen(fd, mode) }
}

/// The descriptor of a stream that libc is about to take from it without calling `close`.
fn forget_descriptor(fd: c_int) {
    if let Ok(mut state) = crate::lock::lock() {
        state.forget_descriptor(fd);
    }
}

/// `fclose`, which closes a descriptor without calling `close`. A stream of ours does call it, after
/// writing what is left.
///
/// # Safety
/// As the function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fclose(file: *mut FILE) -> c_int {
    if crate::is_on() && !file.is_null() && streams::forget(file) != Ok(true) {
        // SAFETY: the program's own argument.
        let fd = unsafe { libc::fileno(file) };
        if fd >= 0 && is_ours(fd) && !descriptor::is_guest() {
            forget_descriptor(fd);
        } else {
            set(0);
        }
    }
    // SAFETY: the program's own argument.
    unsafe { next::fclose(file) }
}

/// What `freopen` does first, by functions that come by here: libc makes the stream an ordinary one, and
/// puts another file in its descriptor's place.
///
/// # Safety
/// As for `freopen`.
unsafe fn leave_stream(file: *mut FILE) {
    if !crate::is_on() || file.is_null() {
        return;
    }
    // SAFETY: the caller's promise.
    let fd = unsafe { libc::fileno(file) };
    let is_ours = fd >= 0 && is_ours(fd) && !descriptor::is_guest();
    if is_ours {
        // SAFETY: the caller's promise.
        unsafe { libc::fflush(file) };
    }
    if streams::forget(file) == Ok(true) {
        // SAFETY: it was one of ours, and is open.
        unsafe { streams::prepare_to_reopen(file) };
    }
    if is_ours {
        forget_descriptor(fd);
    }
}

/// `freopen`
///
/// # Safety
/// As the function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn freopen(
    path: *const c_char,
    mode: *const c_char,
    file: *mut FILE,
) -> *mut FILE {
    // SAFETY: the program's own arguments.
    unsafe {
        leave_stream(file);
        next::freopen(path, mode, file)
    }
}

/// `freopen64`
///
/// # Safety
/// As the function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn freopen64(
    path: *const c_char,
    mode: *const c_char,
    file: *mut FILE,
) -> *mut FILE {
    // SAFETY: the program's own arguments.
    unsafe {
        leave_stream(file);
        next::freopen64(path, mode, file)
    }
}

/// Writes to a socket what `format` makes.
fn print(fd: c_int, format: impl FnOnce(*mut *mut c_char) -> c_int) -> c_int {
    let mut text = core::ptr::null_mut();
    let length = format(&mut text);
    let Ok(bytes) = usize::try_from(length) else {
        return -1;
    };
    // SAFETY: libc made that many bytes, for its caller to free.
    unsafe {
        let done = streams::write_all(fd, text, bytes);
        libc::free(text.cast());
        if done == bytes { length } else { -1 }
    }
}

/// `vdprintf`
///
/// # Safety
/// As the function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn vdprintf(fd: c_int, format: *const c_char, list: List) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        if is_socket(fd) {
            return print(fd, |text| vasprintf(text, format, list));
        }
        next::vdprintf(fd, format, list)
    }
}

/// `__vdprintf_chk`
///
/// # Safety
/// As the function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __vdprintf_chk(
    fd: c_int,
    flag: c_int,
    format: *const c_char,
    list: List,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        if is_socket(fd) {
            return print(fd, |text| __vasprintf_chk(text, flag, format, list));
        }
        next::vdprintf_chk(fd, flag, format, list)
    }
}

/// Declares a function with any number of arguments after those named, which the compiler can't: it makes
/// a `va_list` of them as the calling convention says (System V ABI for x86-64, 3.5.7; Procedure Call
/// Standard for AArch64, appendix B), and calls the function that takes one.
macro_rules! variadic {
    ($($name:ident($($argument:ident: $type:ty),*) by $with_list:ident, $intel:literal, $arm:literal, $used:literal)*) => {$(
        #[doc = concat!("`", stringify!($name), "`")]
        ///
        /// # Safety
        /// As the function's, which takes more arguments.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        #[cfg(target_arch = "x86_64")]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> c_int {
            core::arch::naked_asm!(
                // The list at the stack's top, then the registers.
                "sub rsp, 216",
                "mov [rsp + 32], rdi",
                "mov [rsp + 40], rsi",
                "mov [rsp + 48], rdx",
                "mov [rsp + 56], rcx",
                "mov [rsp + 64], r8",
                "mov [rsp + 72], r9",
                "test al, al",
                "je 2f",
                "movaps [rsp + 80], xmm0",
                "movaps [rsp + 96], xmm1",
                "movaps [rsp + 112], xmm2",
                "movaps [rsp + 128], xmm3",
                "movaps [rsp + 144], xmm4",
                "movaps [rsp + 160], xmm5",
                "movaps [rsp + 176], xmm6",
                "movaps [rsp + 192], xmm7",
                "2:",
                "mov dword ptr [rsp], 8 * {used}",
                "mov dword ptr [rsp + 4], 48",
                // Behind the return address.
                "lea rax, [rsp + 224]",
                "mov [rsp + 8], rax",
                "lea rax, [rsp + 32]",
                "mov [rsp + 16], rax",
                concat!("mov ", $intel, ", rsp"),
                "call {list}",
                "add rsp, 216",
                "ret",
                used = const $used,
                list = sym $with_list,
            )
        }

        #[doc = concat!("`", stringify!($name), "`")]
        ///
        /// # Safety
        /// As the function's, which takes more arguments.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        #[cfg(target_arch = "aarch64")]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> c_int {
            core::arch::naked_asm!(
                // The frame, the list at 16, x0 to x7 at 48, q0 to q7 at 112.
                "stp x29, x30, [sp, #-240]!",
                "mov x29, sp",
                "stp x0, x1, [sp, #48]",
                "stp x2, x3, [sp, #64]",
                "stp x4, x5, [sp, #80]",
                "stp x6, x7, [sp, #96]",
                "stp q0, q1, [sp, #112]",
                "stp q2, q3, [sp, #144]",
                "stp q4, q5, [sp, #176]",
                "stp q6, q7, [sp, #208]",
                "add x9, sp, #240",
                "str x9, [sp, #16]",
                "add x10, sp, #112",
                "str x10, [sp, #24]",
                "str x9, [sp, #32]",
                "mov w9, #-8 * (8 - {used})",
                "mov w10, #-128",
                "stp w9, w10, [sp, #40]",
                concat!("add ", $arm, ", sp, #16"),
                "bl {list}",
                "ldp x29, x30, [sp], #240",
                "ret",
                used = const $used,
                list = sym $with_list,
            )
        }
    )*};
}

variadic! {
    dprintf(fd: c_int, format: *const c_char) by vdprintf, "rdx", "x2", 2
    __dprintf_chk(fd: c_int, flag: c_int, format: *const c_char) by __vdprintf_chk, "rcx", "x3", 3
}
