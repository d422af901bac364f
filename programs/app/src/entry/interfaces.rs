//! Entry points that tell which addresses interfaces have.
use crate::lock::lock;
use crate::{interfaces, next};
use core::ffi::c_int;
use libc::ifaddrs;

/// `getifaddrs`
///
/// # Safety
/// As the function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn getifaddrs(list: *mut *mut ifaddrs) -> c_int {
    // SAFETY: the program's own, here and below.
    let answer = unsafe { next::getifaddrs(list) };
    if answer == 0
        && crate::is_on()
        && let Ok(mut state) = lock()
        && let Some((name, addresses)) = state.own_interface()
    {
        // SAFETY: as above.
        unsafe { interfaces::append(list, &name, &addresses) };
    }
    answer
}

/// `freeifaddrs`
///
/// # Safety
/// As the function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn freeifaddrs(list: *mut ifaddrs) {
    // SAFETY: the program's own.
    unsafe { next::freeifaddrs(interfaces::remove(list)) };
}
