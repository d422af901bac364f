//! Entry points that make and cancel threads.
use crate::{cancel, next, threads};
use core::ffi::{c_int, c_void};
use libc::{pthread_attr_t, pthread_t};

/// `pthread_create`
///
/// # Safety
/// As the function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    run: *mut c_void,
    argument: *mut c_void,
) -> c_int {
    threads::make(run, argument, |run, argument| {
        // SAFETY: the program's own arguments, or a function that calls the program's.
        unsafe { next::pthread_create(thread, attributes, run, argument) }
    })
}

/// `thrd_create`
///
/// # Safety
/// As the function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn thrd_create(
    thread: *mut pthread_t,
    run: *mut c_void,
    argument: *mut c_void,
) -> c_int {
    threads::make(run, argument, |run, argument| {
        // SAFETY: as above.
        unsafe { next::thrd_create(thread, run, argument) }
    })
}

/// `pthread_cancel`
///
/// # Safety
/// As the function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_cancel(thread: pthread_t) -> c_int {
    threads::note();
    // SAFETY: the program's own argument.
    unsafe {
        match crate::is_on() {
            true => cancel::cancel(thread),
            false => next::pthread_cancel(thread),
        }
    }
}
