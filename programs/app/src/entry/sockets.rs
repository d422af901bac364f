//! Entry points that make, name and set sockets and descriptors.
use super::{entry, finish};
use crate::exec::is_guest_with_sockets;
use crate::fd_table::{is_known, is_listed, is_ours};
use crate::{accept, calls, connect, descriptor, getsockopt, listen as listening, next, sockopt};
use core::ffi::{c_int, c_uint, c_void};
use libc::{sockaddr, socklen_t};

/// `socket`
///
/// # Safety
/// As the function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    let fd = unsafe { next::socket(domain, kind, protocol) };
    if fd >= 0 && crate::is_on() && matches!(domain, libc::AF_INET | libc::AF_INET6) {
        calls::made(fd, domain, kind, protocol);
    }
    fd
}

entry! {
    if is_ours(fd) => bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
        // SAFETY: the program's own arguments, here and below.
        unsafe { calls::bind(fd, address, length) }
    }
    if is_ours(fd) => listen(fd: c_int, backlog: c_int) -> c_int {
        listening::listen(fd, backlog)
    }
    if is_ours(fd) => accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
        // SAFETY: as above.
        unsafe { accept::accept(fd, address, length, 0) }
    }
    if is_ours(fd) => accept4(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int {
        // SAFETY: as above.
        unsafe { accept::accept(fd, address, length, flags) }
    }
    if is_ours(fd) => connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
        // SAFETY: as above.
        unsafe { connect::connect(fd, address, length) }
    }
    if is_ours(fd) => shutdown(fd: c_int, how: c_int) -> c_int {
        calls::shutdown(fd, how)
    }
    if is_ours(fd) => getsockname(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
        // SAFETY: as above.
        unsafe { calls::name(fd, address, length, false) }
    }
    if is_ours(fd) => getpeername(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
        // SAFETY: as above.
        unsafe { calls::name(fd, address, length, true) }
    }
    if is_ours(fd) => getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut socklen_t) -> c_int {
        // SAFETY: as above.
        unsafe { getsockopt::get(fd, level, name, value, length) }
    }
    if is_ours(fd) => setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, length: socklen_t) -> c_int {
        // SAFETY: as above.
        unsafe { sockopt::set(fd, level, name, value, length) }
    }
    if is_listed(fd) || is_guest_with_sockets() => close(fd: c_int) -> c_int {
        descriptor::close(fd)
    }
    if is_known(fd) || is_guest_with_sockets() => dup(fd: c_int) -> c_int {
        descriptor::duplicate(fd, libc::F_DUPFD, 0)
    }
    if is_known(old) || is_listed(new) || is_guest_with_sockets() => dup2(old: c_int, new: c_int) -> c_int {
        descriptor::replace(old, new, 0)
    }
    if is_known(old) || is_listed(new) || is_guest_with_sockets() => dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
        descriptor::replace(old, new, flags)
    }
    // The argument is variadic in C; all that there are fit a register.
    if is_known(fd) || is_guest_with_sockets() => fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
        descriptor::control(fd, command, argument)
    }
    if is_known(fd) || is_guest_with_sockets() => fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
        descriptor::control(fd, command, argument)
    }
    if is_ours(fd) => ioctl(fd: c_int, request: libc::c_ulong, argument: usize) -> c_int {
        // SAFETY: as above.
        unsafe { descriptor::device_control(fd, request, argument) }
    }
    if crate::is_on() => close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        descriptor::close_range(first, last, flags)
    }
}

/// `closefrom`
///
/// # Safety
/// As the function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn closefrom(first: c_int) {
    let first = first.max(0) as c_uint;
    if crate::is_on() && finish(descriptor::close_range(first, c_uint::MAX, 0)).is_some() {
        return;
    }
    // SAFETY: the program's own arguments.
    unsafe { next::closefrom(first as c_int) }
}
