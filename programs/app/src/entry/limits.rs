//! Entry points for limits of resources: that of the address space is kept in another way.
use crate::descriptor::is_guest;
use crate::errno::set;
use crate::state::renew_floor;
use crate::{limits, next, raw};
use core::ffi::{c_int, c_uint};
use libc::{pid_t, rlimit};

/// Whether a call is about this process's address space.
fn is_ours(process: pid_t, resource: c_uint) -> bool {
    let own = process == 0 || u32::try_from(process) == Ok(raw::process_id());
    resource == libc::RLIMIT_AS && own && crate::is_on()
}

/// There may be another limit of descriptors.
fn heed(process: pid_t, resource: c_uint, answer: c_int) -> c_int {
    if answer == 0 && process == 0 && resource == libc::RLIMIT_NOFILE && !is_guest() {
        renew_floor();
    }
    answer
}

/// Answers what the limits were, as the kernel has them or as the program had set them.
///
/// # Safety
/// `old` must be null or writable.
unsafe fn exchange(new: Option<rlimit>, old: *mut rlimit) -> c_int {
    let known = limits::get();
    let done = new.map_or(Ok(()), |new| limits::set(&new));
    if let Err(crate::errno::Stop::Errno(errno)) = done {
        set(errno);
        return -1;
    }
    if let Some(old) = core::ptr::NonNull::new(old) {
        match known {
            // SAFETY: the caller's promise, here and below.
            Some(known) => unsafe { old.write(known) },
            // SAFETY: as above. (The kernel's is left as it was.)
            None => unsafe {
                next::prlimit(0, libc::RLIMIT_AS, core::ptr::null(), old.as_ptr());
            },
        }
    }
    0
}

macro_rules! limit_calls {
    ($($set:ident, $get:ident, $both:ident;)*) => {$(
        #[doc = concat!("`", stringify!($set), "`")]
        ///
        /// # Safety
        /// As the function's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $set(resource: c_uint, new: *const rlimit) -> c_int {
            // SAFETY: the program's own, here and below.
            match unsafe { new.as_ref() }.copied() {
                // SAFETY: as above.
                Some(new) if is_ours(0, resource) => unsafe { exchange(Some(new), core::ptr::null_mut()) },
                // SAFETY: as above.
                _ => heed(0, resource, unsafe { next::prlimit(0, resource, new, core::ptr::null_mut()) }),
            }
        }

        #[doc = concat!("`", stringify!($get), "`")]
        ///
        /// # Safety
        /// As the function's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $get(resource: c_uint, old: *mut rlimit) -> c_int {
            match is_ours(0, resource) && !old.is_null() {
                // SAFETY: the program's own, here and below.
                true => unsafe { exchange(None, old) },
                // SAFETY: as above.
                false => unsafe { next::prlimit(0, resource, core::ptr::null(), old) },
            }
        }

        #[doc = concat!("`", stringify!($both), "`")]
        ///
        /// # Safety
        /// As the function's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $both(
            process: pid_t,
            resource: c_uint,
            new: *const rlimit,
            old: *mut rlimit,
        ) -> c_int {
            match is_ours(process, resource) {
                // SAFETY: the program's own, here and below.
                true => unsafe { exchange(new.as_ref().copied(), old) },
                // SAFETY: as above.
                false => heed(process, resource, unsafe { next::prlimit(process, resource, new, old) }),
            }
        }
    )*};
}

limit_calls! {
    setrlimit, getrlimit, prlimit;
    setrlimit64, getrlimit64, prlimit64;
}
