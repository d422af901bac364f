//! `mlockall`.
use crate::next;
use core::ffi::c_int;

/// `mlockall`: locks pages when they are touched (`MCL_ONFAULT`). Skink's shared memory has gigabytes of addresses, of which few pages are
/// ever there; all of them would be.
///
/// # Safety
/// As the function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn mlockall(flags: c_int) -> c_int {
    let flags = match crate::is_on() && flags != 0 {
        true => flags | libc::MCL_ONFAULT,
        false => flags,
    };
    // SAFETY: the program's own call.
    unsafe { next::mlockall(flags) }
}
