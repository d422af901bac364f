//! `dlopen`. What is loaded with `RTLD_DEEPBIND`, as PHP loads its extensions, looks for functions in its own dependencies first, and so
//! finds libc's instead of the library's. Here that flag has no effect.
use crate::next;
use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

/// libc's `dlopen`; null until it is called for the first time.
static NEXT: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

extern "C" fn find() -> *mut () {
    let found = next::find(c"dlopen");
    NEXT.store(found, Ordering::Relaxed);
    found
}

/// `dlopen`: goes on in libc's, which looks at the return address for whose `RUNPATH` and `$ORIGIN` count. So it isn't called from here.
///
/// # Safety
/// As the function's.
#[unsafe(no_mangle)]
#[unsafe(naked)]
#[cfg(target_arch = "x86_64")]
pub unsafe extern "C-unwind" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    core::arch::naked_asm!(
        "mov rax, [rip + {next}]",
        "test rax, rax",
        "jne 2f",
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {find}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "2:",
        "and esi, {kept}",
        "jmp rax",
        next = sym NEXT,
        find = sym find,
        kept = const !libc::RTLD_DEEPBIND,
    )
}

/// `dlopen`: as above.
///
/// # Safety
/// As the function's.
#[unsafe(no_mangle)]
#[unsafe(naked)]
#[cfg(target_arch = "aarch64")]
pub unsafe extern "C-unwind" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    core::arch::naked_asm!(
        "adrp x16, {next}",
        "ldr x16, [x16, :lo12:{next}]",
        "cbnz x16, 2f",
        "stp x29, x30, [sp, #-32]!",
        "stp x0, x1, [sp, #16]",
        "bl {find}",
        "mov x16, x0",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "2:",
        "and w1, w1, {kept}",
        "br x16",
        next = sym NEXT,
        find = sym find,
        kept = const !libc::RTLD_DEEPBIND,
    )
}
