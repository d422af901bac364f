//! Entry points that look up names.
use crate::{names, next};
use core::ffi::{c_char, c_int};
use libc::addrinfo;

/// `getaddrinfo`
///
/// # Safety
/// As the function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const addrinfo,
    found: *mut *mut addrinfo,
) -> c_int {
    // SAFETY: the program's own.
    let asked = unsafe { hints.as_ref() };
    let own = crate::is_on().then(|| names::hints(asked)).flatten();
    let hints = own.as_ref().map_or(hints, core::ptr::from_ref);
    // SAFETY: as above; or hints of ours.
    unsafe { next::getaddrinfo(node, service, hints, found) }
}
