//! Entry points that give signals handlers.
use crate::{next, signals, trap};
use core::ffi::c_int;

/// `sigaction`
///
/// # Safety
/// As the function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        match crate::is_on() {
            true => signals::set(signal, new, old),
            false => next::sigaction(signal, new, old),
        }
    }
}

/// `__sigaction`, by which some libraries call it.
///
/// # Safety
/// As the function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { sigaction(signal, new, old) }
}

/// `sigset`
///
/// # Safety
/// As the function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sigset(signal: c_int, handler: usize) -> usize {
    // SAFETY: the program's own arguments.
    unsafe {
        match crate::is_on() {
            true => signals::set_or_hold(signal, handler),
            false => next::sigset(signal, handler),
        }
    }
}

/// Declares functions that change the calling thread's mask.
macro_rules! masks {
    ($($name:ident)*) => {$(
        #[doc = concat!("`", stringify!($name), "`")]
        ///
        /// # Safety
        /// As the function's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            how: c_int,
            new: *const libc::sigset_t,
            old: *mut libc::sigset_t,
        ) -> c_int {
            // SAFETY: the program's own arguments.
            unsafe {
                match new.as_ref().copied() {
                    Some(mut set) if trap::is_on() && how != libc::SIG_UNBLOCK => {
                        trap::leave_open(&mut set);
                        next::$name(how, &raw const set, old)
                    }
                    _ => next::$name(how, new, old),
                }
            }
        }
    )*};
}

masks! { pthread_sigmask sigprocmask }

/// `siginterrupt`
///
/// # Safety
/// As the function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn siginterrupt(signal: c_int, interrupts: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    let answer = unsafe { next::siginterrupt(signal, interrupts) };
    if answer == 0 && crate::is_on() {
        signals::interrupt(signal, interrupts != 0);
    }
    answer
}

/// Declares the names of `signal`; `true` for those of System V's, whose handlers run once.
macro_rules! simple {
    ($($name:ident $next:ident $once:literal)*) => {$(
        #[doc = concat!("`", stringify!($name), "`")]
        ///
        /// # Safety
        /// As the function's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(signal: c_int, handler: usize) -> usize {
            // SAFETY: the program's own arguments.
            unsafe {
                match crate::is_on() {
                    true => signals::set_simply(signal, handler, $once),
                    false => next::$next(signal, handler),
                }
            }
        }
    )*};
}

simple! {
    signal signal false
    bsd_signal signal false
    ssignal signal false
    sysv_signal sysv_signal true
    __sysv_signal sysv_signal true
}
