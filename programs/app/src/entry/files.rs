//! Entry points of calls on files, which are none of Skink's: they are here to be made as libc makes them for a program of one
//! thread ([`threads`](crate::threads)).
use crate::next;
use core::ffi::{c_char, c_int, c_void};
use libc::{mode_t, off_t, size_t, ssize_t};

macro_rules! passed_on {
    ($($name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {$(
        #[doc = concat!("`", stringify!($name), "`")]
        ///
        /// # Safety
        /// As the function's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $answer {
            // SAFETY: the program's own arguments.
            unsafe { next::$name($($argument),*) }
        }
    )*};
}

// The mode is a variable argument, which is passed as others are. Who makes no file needn't give it, and then it isn't looked at.
passed_on! {
    open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    openat(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    openat64(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    pread(fd: c_int, at: *mut c_void, count: size_t, offset: off_t) -> ssize_t;
    pread64(fd: c_int, at: *mut c_void, count: size_t, offset: off_t) -> ssize_t;
    pwrite(fd: c_int, at: *const c_void, count: size_t, offset: off_t) -> ssize_t;
    pwrite64(fd: c_int, at: *const c_void, count: size_t, offset: off_t) -> ssize_t;
}
