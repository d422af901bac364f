//! Entry points that move data.
use super::{entry, finish};
use crate::buffers::Buffers;
use crate::errno::{Answer, Stop, fail};
use crate::fd_table::is_ours;
use crate::transfer::{self, Control, Sending};
use crate::{kernel_half, message, next, passing, raw, sendfile, sockaddr};
use core::ffi::{c_int, c_uint, c_void};
use libc::{
    iovec, loff_t, mmsghdr, msghdr, off_t, size_t, sockaddr as Address, socklen_t, ssize_t,
    timespec,
};

/// # Safety
/// `count` bytes at `at` must be writable; the address as for `recvfrom`.
unsafe fn receive(
    fd: c_int,
    at: *mut c_void,
    count: size_t,
    flags: c_int,
    address: *mut Address,
    length: *mut socklen_t,
) -> Answer {
    let list = [iovec {
        iov_base: at,
        iov_len: count,
    }];
    // SAFETY: the caller's promise.
    let buffers = unsafe { Buffers::new(&list) }?;
    let received = transfer::receive(fd, buffers, flags)?;
    // SAFETY: the caller's promise.
    unsafe { received.write_name(address, length) };
    Ok(received.bytes)
}

/// # Safety
/// `count` bytes at `at` must be readable; the address as for `sendto`.
unsafe fn send_bytes(
    fd: c_int,
    at: *const c_void,
    count: size_t,
    flags: c_int,
    address: *const Address,
    length: socklen_t,
) -> Answer {
    let list = [iovec {
        iov_base: at.cast_mut(),
        iov_len: count,
    }];
    // SAFETY: the caller's promise.
    let buffers = unsafe { Buffers::new(&list) }?;
    // SAFETY: the caller's promise.
    let to = unsafe { sockaddr::read_optional(address, length) };
    transfer::send(
        fd,
        Sending {
            buffers,
            flags,
            to,
            control: Ok(Control::default()),
        },
    )
}

const NOWHERE: *mut Address = core::ptr::null_mut();
const NO_LENGTH: *mut socklen_t = core::ptr::null_mut();

entry! {
    if is_ours(fd) => read(fd: c_int, at: *mut c_void, count: size_t) -> ssize_t {
        match count {
            // As Linux, not even a datagram is taken; but `recv` takes one.
            0 => Ok(0),
            // SAFETY: the program's own arguments, here and below.
            _ => unsafe { receive(fd, at, count, 0, NOWHERE, NO_LENGTH) },
        }
    }
    if is_ours(fd) => recv(fd: c_int, at: *mut c_void, count: size_t, flags: c_int) -> ssize_t {
        // SAFETY: as above.
        unsafe { receive(fd, at, count, flags, NOWHERE, NO_LENGTH) }
    }
    if is_ours(fd) => recvfrom(fd: c_int, at: *mut c_void, count: size_t, flags: c_int, address: *mut Address, length: *mut socklen_t) -> ssize_t {
        // SAFETY: as above.
        unsafe { receive(fd, at, count, flags, address, length) }
    }
    if is_ours(fd) => readv(fd: c_int, list: *const iovec, count: c_int) -> ssize_t {
        // SAFETY: as above.
        unsafe { Buffers::from_raw(list, count as usize) }
            .and_then(|buffers| match buffers.total() {
                0 => Ok(0),
                _ => transfer::receive(fd, buffers, 0).map(|received| received.bytes),
            })
    }
    if is_ours(fd) => write(fd: c_int, at: *const c_void, count: size_t) -> ssize_t {
        // SAFETY: as above.
        unsafe { send_bytes(fd, at, count, 0, NOWHERE, 0) }
    }
    if is_ours(fd) => send(fd: c_int, at: *const c_void, count: size_t, flags: c_int) -> ssize_t {
        // SAFETY: as above.
        unsafe { send_bytes(fd, at, count, flags, NOWHERE, 0) }
    }
    if is_ours(fd) => sendto(fd: c_int, at: *const c_void, count: size_t, flags: c_int, address: *const Address, length: socklen_t) -> ssize_t {
        // SAFETY: as above.
        unsafe { send_bytes(fd, at, count, flags, address, length) }
    }
    if is_ours(fd) => writev(fd: c_int, list: *const iovec, count: c_int) -> ssize_t {
        // SAFETY: as above.
        unsafe { Buffers::from_raw(list, count as usize) }.and_then(|buffers| match buffers.total() {
            // As Linux, no empty datagram; but `write` sends one.
            0 => Ok(0),
            _ => transfer::send(fd, Sending { buffers, flags: 0, to: Ok(None), control: Ok(Control::default()) }),
        })
    }
    // SAFETY: as above.
    if is_ours(fd) || unsafe { passing::carries(message) } => sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
        // SAFETY: as above.
        unsafe { send_one(fd, message, flags) }
    }
    // SAFETY: as above.
    if is_ours(fd) || unsafe { passing::one_carries(list, count) } => sendmmsg(fd: c_int, list: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
        // SAFETY: as above.
        unsafe { send_many(fd, list, count, flags) }
    }
    if is_ours(to) => sendfile(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t {
        // SAFETY: as above.
        unsafe { sendfile::send_file(to, from, offset, count) }
    }
    if is_ours(to) => sendfile64(to: c_int, from: c_int, offset: *mut i64, count: size_t) -> ssize_t {
        // SAFETY: as above.
        unsafe { sendfile::send_file(to, from, offset, count) }
    }
    if is_ours(from) || is_ours(to) => splice(from: c_int, from_offset: *mut loff_t, to: c_int, to_offset: *mut loff_t, count: size_t, flags: c_uint) -> ssize_t {
        // SAFETY: as above.
        unsafe { sendfile::splice(from, from_offset, to, to_offset, count, flags) }
    }
}

/// `recvmsg`
///
/// # Safety
/// As the function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the program's own arguments, here and below.
    let call = || unsafe { message::receive(fd, message, flags) };
    if is_ours(fd)
        && let Some(answer) = finish(call())
    {
        return answer;
    }
    // SAFETY: as above.
    let answer = unsafe { next::recvmsg(fd, message, flags) };
    if answer >= 0 {
        // SAFETY: as above.
        unsafe { passing::arrived(message, flags) };
    }
    answer
}

/// `recvmmsg`
///
/// # Safety
/// As the function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recvmmsg(
    fd: c_int,
    list: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    // SAFETY: the program's own arguments, here and below.
    let call = || unsafe { receive_many(fd, list, count, flags, timeout) };
    if is_ours(fd)
        && let Some(answer) = finish(call())
    {
        return answer as c_int;
    }
    // SAFETY: as above.
    let answer = unsafe { next::recvmmsg(fd, list, count, flags, timeout) };
    // SAFETY: as above.
    unsafe { passing::many_arrived(list, answer, flags) };
    answer
}

/// # Safety
/// As for `recvmmsg`.
unsafe fn receive_many(
    fd: c_int,
    list: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> Answer {
    // SAFETY: the caller's promise.
    let timeout = unsafe { super::waiting::from_timespec(timeout) }?;
    let deadline = timeout.map(|timeout| raw::now() + timeout);
    let mut done = 0;
    let mut flags = flags;
    while done < count as usize {
        // SAFETY: the caller's promise.
        let entry = unsafe { &mut *list.add(done) };
        // SAFETY: the caller's promise.
        match unsafe { message::receive(fd, &mut entry.msg_hdr, flags & !libc::MSG_WAITFORONE) } {
            Ok(bytes) => entry.msg_len = bytes as c_uint,
            Err(Stop::Kernel) => return Err(Stop::Kernel),
            Err(stop) if done == 0 => return Err(stop),
            Err(stop) => {
                transfer::keep_error(fd, stop);
                break;
            }
        }
        done += 1;
        if flags & libc::MSG_WAITFORONE != 0 {
            flags |= libc::MSG_DONTWAIT;
        }
        if deadline.is_some_and(|deadline| deadline <= raw::now()) {
            break;
        }
    }
    Ok(done)
}

/// # Safety
/// As for `sendmsg`.
unsafe fn send_one(fd: c_int, message: *const msghdr, flags: c_int) -> Answer {
    if is_ours(fd) {
        // SAFETY: the caller's promise.
        unsafe { message::send(fd, message, flags) }
    } else {
        // SAFETY: the caller's promise.
        unsafe { passing::send(fd, message, flags) }
    }
}

/// # Safety
/// As for `sendmmsg`.
unsafe fn send_many(fd: c_int, list: *mut mmsghdr, count: c_uint, flags: c_int) -> Answer {
    if list.is_null() {
        return fail(libc::EFAULT);
    }
    for done in 0..count.min(1024) as usize {
        // SAFETY: the caller's promise.
        let entry = unsafe { &mut *list.add(done) };
        // SAFETY: the caller's promise.
        match unsafe { send_one(fd, &entry.msg_hdr, flags) } {
            Ok(bytes) => entry.msg_len = bytes as c_uint,
            Err(Stop::Kernel) if is_ours(fd) => {
                // SAFETY: the caller's promise.
                match unsafe { kernel_half::send(fd, &entry.msg_hdr, flags) } {
                    Ok(bytes) => entry.msg_len = bytes as c_uint,
                    Err(stop) if done == 0 => return Err(stop),
                    Err(_) => return Ok(done),
                }
            }
            Err(stop) if done == 0 => return Err(stop),
            Err(_) => return Ok(done),
        }
    }
    Ok(count.min(1024) as usize)
}

/// The fortified calls, which check the buffer's size first. What they check against is for libc to
/// complain about.
macro_rules! checked {
    ($($symbol:ident $name:ident($fd:ident: c_int, $at:ident: *mut c_void, $count:ident: size_t, room: size_t $(, $argument:ident: $type:ty)*) { $flags:expr, $address:expr, $length:expr })*) => {$(
        #[doc = concat!("`", stringify!($symbol), "`")]
        ///
        /// # Safety
        /// As the function's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $symbol($fd: c_int, $at: *mut c_void, $count: size_t, room: size_t $(, $argument: $type)*) -> ssize_t {
            if is_ours($fd) && $count <= room {
                // SAFETY: the program's own arguments.
                let call = || unsafe { receive($fd, $at, $count, $flags, $address, $length) };
                if let Some(answer) = finish(call()) {
                    return answer;
                }
            }
            // SAFETY: the program's own arguments.
            unsafe { next::$name($fd, $at, $count, room $(, $argument)*) }
        }
    )*};
}

checked! {
    __read_chk read_chk(fd: c_int, at: *mut c_void, count: size_t, room: size_t) { 0, NOWHERE, NO_LENGTH }
    __recv_chk recv_chk(fd: c_int, at: *mut c_void, count: size_t, room: size_t, flags: c_int) { flags, NOWHERE, NO_LENGTH }
    __recvfrom_chk recvfrom_chk(fd: c_int, at: *mut c_void, count: size_t, room: size_t, flags: c_int, address: *mut Address, length: *mut socklen_t) { flags, address, length }
}
