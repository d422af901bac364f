//! Linux's asynchronous I/O, by way of libaio, whose function makes the system call itself, or of `syscall`. The kernel would work
//! on descriptors behind our back, where sockets of Skink's aren't connected: what names one is refused, and polls are in any case,
//! as by kernels before Linux 4.18. Who polls so tries it first with something else (Seastar with an eventfd), and goes on with
//! epoll.
use crate::fd_table;
use crate::raw;
use core::ffi::{c_int, c_long};
use core::mem::offset_of;

/// The `struct iocb` of `linux/aio_abi.h`, as far as it says what is to be done.
#[repr(C)]
pub struct Request {
    _data: u64,
    _key_and_flags: [u32; 2],
    operation: u16,
    _priority: i16,
    fd: c_int,
}

const _: () = assert!(offset_of!(Request, operation) == 16 && offset_of!(Request, fd) == 20);

/// `IOCB_CMD_POLL`
const POLL: u16 = 5;

impl Request {
    fn is_refused(&self) -> bool {
        self.operation == POLL || fd_table::is_ours(self.fd)
    }
}

/// `io_submit`: how many were taken, or a negative errno.
///
/// # Safety
/// As the system call's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn io_submit(
    context: usize,
    count: c_long,
    list: *const *const Request,
) -> c_int {
    let is_refused = |at: usize| {
        // SAFETY: the program's own list, and what it points to.
        let request = unsafe { (*list.add(at)).as_ref() };
        request.is_some_and(Request::is_refused)
    };
    let asked = usize::try_from(count).unwrap_or(0);
    let refused = (0..asked).find(|at| crate::is_on() && is_refused(*at));
    if refused == Some(0) {
        return -libc::EINVAL;
    }
    let count = refused.unwrap_or(count as usize);
    let arguments = [context, count, list as usize, 0, 0, 0];
    // SAFETY: as the caller says.
    unsafe { raw::syscall(libc::SYS_io_submit, arguments) as c_int }
}
