//! `io_uring` by way of liburing, which makes the system call itself. The kernel would work on descriptors behind our back, where
//! sockets of Skink's aren't connected; programs go on without it, as they do where it is forbidden. (What makes the system call by
//! `syscall` is told the same there.)
use crate::next;
use core::ffi::{c_int, c_uint, c_void};

macro_rules! refused {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        #[doc = concat!("`", stringify!($name), "`")]
        ///
        /// # Safety
        /// As the function's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> c_int {
            if crate::is_on() {
                return -libc::ENOSYS;
            }
            // SAFETY: the program's own call.
            unsafe { next::$name($($argument),*) }
        }
    )*};
}

refused! {
    io_uring_setup(entries: c_uint, parameters: *mut c_void);
    io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint);
    io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, parameters: *mut c_void);
    io_uring_queue_init_mem(entries: c_uint, ring: *mut c_void, parameters: *mut c_void, memory: *mut c_void, bytes: usize);
}
