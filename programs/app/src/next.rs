//! The functions that the library's stand in front of: libc's, or another preloaded library's.
//!
//! Those that programs call most often on files and pipes are system calls and nothing else; while the program has one thread
//! they are made here ([`threads`](crate::threads)).
use crate::lock::Stretch;
use crate::{errno, raw, threads};
use core::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};
use libc::{
    addrinfo, epoll_event, fd_set, ifaddrs, iovec, loff_t, mmsghdr, mode_t, msghdr, nfds_t, off_t,
    pid_t, pollfd, rlimit, sigset_t, size_t, sockaddr, socklen_t, ssize_t, timespec, timeval,
};

/// Finds the next function called `name`.
#[cold]
pub fn find(name: &CStr) -> *mut () {
    let _whole = Stretch::begin();
    // SAFETY: the name is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if found.is_null() {
        crate::log::write(format_args!("the C library has no function {name:?}"));
        std::process::abort();
    }
    found.cast()
}

macro_rules! next {
    ($($symbol:literal $name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {$(
        #[doc = concat!("The next `", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As the function's.
        #[inline]
        pub unsafe fn $name($($argument: $type),*) -> $answer {
            // Until it is found, what finds it stands in its place: no call has to ask.
            static KNOWN: AtomicPtr<()> = AtomicPtr::new(resolve as *mut ());
            #[cold]
            unsafe extern "C-unwind" fn resolve($($argument: $type),*) -> $answer {
                KNOWN.store(find($symbol), Ordering::Relaxed);
                // SAFETY: as the caller's.
                unsafe { $name($($argument),*) }
            }
            let at = KNOWN.load(Ordering::Relaxed);
            // SAFETY: the function of that name has this type; the caller vouches for the rest.
            unsafe {
                let function: unsafe extern "C-unwind" fn($($type),*) -> $answer =
                    core::mem::transmute(at);
                function($($argument),*)
            }
        }
    )*};
}

next! {
    c"socket" socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    c"bind" bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
    c"listen" listen(fd: c_int, backlog: c_int) -> c_int;
    c"accept" accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    c"accept4" accept4(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int;
    c"connect" connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
    c"shutdown" shutdown(fd: c_int, how: c_int) -> c_int;
    c"getsockname" getsockname(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    c"getpeername" getpeername(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    c"getsockopt" getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut socklen_t) -> c_int;
    c"setsockopt" setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, length: socklen_t) -> c_int;
    c"getaddrinfo" getaddrinfo(node: *const c_char, service: *const c_char, hints: *const addrinfo, found: *mut *mut addrinfo) -> c_int;
    c"getifaddrs" getifaddrs(list: *mut *mut ifaddrs) -> c_int;
    c"freeifaddrs" freeifaddrs(list: *mut ifaddrs) -> ();
    c"prlimit64" prlimit(process: pid_t, resource: c_uint, new: *const rlimit, old: *mut rlimit) -> c_int;
    c"fclose" fclose(file: *mut libc::FILE) -> c_int;
    c"fdopen" fdopen(fd: c_int, mode: *const c_char) -> *mut libc::FILE;
    c"freopen" freopen(path: *const c_char, mode: *const c_char, file: *mut libc::FILE) -> *mut libc::FILE;
    c"freopen64" freopen64(path: *const c_char, mode: *const c_char, file: *mut libc::FILE) -> *mut libc::FILE;
    c"vdprintf" vdprintf(fd: c_int, format: *const c_char, list: *mut c_void) -> c_int;
    c"__vdprintf_chk" vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char, list: *mut c_void) -> c_int;
    c"close_range" close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    c"closefrom" closefrom(first: c_int) -> ();
    c"dup" dup(fd: c_int) -> c_int;
    c"dup2" dup2(old: c_int, new: c_int) -> c_int;
    c"dup3" dup3(old: c_int, new: c_int, flags: c_int) -> c_int;
    c"fcntl" fcntl(fd: c_int, command: c_int, argument: usize) -> c_int;
    c"fcntl64" fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int;
    c"ioctl" ioctl(fd: c_int, request: libc::c_ulong, argument: usize) -> c_int;
    c"recv" recv(fd: c_int, at: *mut c_void, count: size_t, flags: c_int) -> ssize_t;
    c"recvfrom" recvfrom(fd: c_int, at: *mut c_void, count: size_t, flags: c_int, address: *mut sockaddr, length: *mut socklen_t) -> ssize_t;
    c"recvmsg" recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    c"recvmmsg" recvmmsg(fd: c_int, list: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int;
    c"send" send(fd: c_int, at: *const c_void, count: size_t, flags: c_int) -> ssize_t;
    c"sendto" sendto(fd: c_int, at: *const c_void, count: size_t, flags: c_int, address: *const sockaddr, length: socklen_t) -> ssize_t;
    c"sendmsg" sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    c"sendmmsg" sendmmsg(fd: c_int, list: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
    c"sendfile" sendfile(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t;
    c"sendfile64" sendfile64(to: c_int, from: c_int, offset: *mut i64, count: size_t) -> ssize_t;
    c"splice" splice(from: c_int, from_offset: *mut loff_t, to: c_int, to_offset: *mut loff_t, count: size_t, flags: c_uint) -> ssize_t;
    c"poll" poll(list: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    c"ppoll" ppoll(list: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    c"select" select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int;
    c"pselect" pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    c"epoll_create" epoll_create(size: c_int) -> c_int;
    c"epoll_create1" epoll_create1(flags: c_int) -> c_int;
    c"epoll_ctl" epoll_ctl(epfd: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    c"epoll_pwait" epoll_pwait(epfd: c_int, events: *mut epoll_event, room: c_int, timeout: c_int, mask: *const sigset_t) -> c_int;
    c"epoll_pwait2" epoll_pwait2(epfd: c_int, events: *mut epoll_event, room: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    c"pthread_create" pthread_create(thread: *mut libc::pthread_t, attributes: *const libc::pthread_attr_t, run: *mut c_void, argument: *mut c_void) -> c_int;
    c"thrd_create" thrd_create(thread: *mut libc::pthread_t, run: *mut c_void, argument: *mut c_void) -> c_int;
    c"pthread_cancel" pthread_cancel(thread: libc::pthread_t) -> c_int;
    c"sigaction" sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int;
    c"pthread_sigmask" pthread_sigmask(how: c_int, new: *const sigset_t, old: *mut sigset_t) -> c_int;
    c"sigprocmask" sigprocmask(how: c_int, new: *const sigset_t, old: *mut sigset_t) -> c_int;
    c"siginterrupt" siginterrupt(signal: c_int, interrupts: c_int) -> c_int;
    c"signal" signal(number: c_int, handler: usize) -> usize;
    c"sigset" sigset(signal: c_int, handler: usize) -> usize;
    c"__sysv_signal" sysv_signal(signal: c_int, handler: usize) -> usize;
    c"_Fork" fork_without_handlers() -> c_int;
    c"execve" execve(path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    c"execvpe" execvpe(file: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    c"fexecve" fexecve(fd: c_int, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    c"execveat" execveat(directory: c_int, path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char, flags: c_int) -> c_int;
    c"system" system(command: *const c_char) -> c_int;
    c"posix_spawn" posix_spawn(process: *mut libc::pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    c"posix_spawnp" posix_spawnp(process: *mut libc::pid_t, file: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    c"posix_spawn_file_actions_init" actions_init(actions: *mut c_void) -> c_int;
    c"posix_spawn_file_actions_destroy" actions_destroy(actions: *mut c_void) -> c_int;
    c"posix_spawn_file_actions_adddup2" actions_dup2(actions: *mut c_void, old: c_int, new: c_int) -> c_int;
    c"posix_spawn_file_actions_addclose" actions_close(actions: *mut c_void, fd: c_int) -> c_int;
    c"posix_spawn_file_actions_addopen" actions_open(actions: *mut c_void, fd: c_int, path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int;
    c"posix_spawn_file_actions_addclosefrom_np" actions_close_from(actions: *mut c_void, first: c_int) -> c_int;
    c"mlockall" mlockall(flags: c_int) -> c_int;
    c"io_uring_setup" io_uring_setup(entries: c_uint, parameters: *mut c_void) -> c_int;
    c"io_uring_queue_init" io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint) -> c_int;
    c"io_uring_queue_init_params" io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, parameters: *mut c_void) -> c_int;
    c"io_uring_queue_init_mem" io_uring_queue_init_mem(entries: c_uint, ring: *mut c_void, parameters: *mut c_void, memory: *mut c_void, bytes: size_t) -> c_int;
    c"syscall" syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long;
    c"__read_chk" read_chk(fd: c_int, at: *mut c_void, count: size_t, room: size_t) -> ssize_t;
    c"__recv_chk" recv_chk(fd: c_int, at: *mut c_void, count: size_t, room: size_t, flags: c_int) -> ssize_t;
    c"__recvfrom_chk" recvfrom_chk(fd: c_int, at: *mut c_void, count: size_t, room: size_t, flags: c_int, address: *mut sockaddr, length: *mut socklen_t) -> ssize_t;
    c"__poll_chk" poll_chk(list: *mut pollfd, count: nfds_t, timeout: c_int, room: size_t) -> c_int;
    c"__ppoll_chk" ppoll_chk(list: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, room: size_t) -> c_int;
}

/// The system call that libc's `epoll_wait` makes.
#[cfg(target_arch = "x86_64")]
const EPOLL_WAIT: c_long = libc::SYS_epoll_wait;
#[cfg(not(target_arch = "x86_64"))]
const EPOLL_WAIT: c_long = libc::SYS_epoll_pwait;

/// Functions that are a system call of the same arguments, and perhaps one before them, or more behind that are 0.
macro_rules! system_calls {
    ($($symbol:literal $name:ident($($argument:ident: $type:ty),*) -> $answer:ty = $number:expr $(, $first:expr)?;)*) => {
        mod found {
            use super::*;
            next! { $($symbol $name($($argument: $type),*) -> $answer;)* }
        }

        /// Whether they are libc's, and not another preloaded library's.
        pub fn are_libcs() -> bool {
            [$(find($symbol)),*].into_iter().all(is_libcs)
        }

        $(
            #[doc = concat!("The next `", stringify!($name), "`.")]
            ///
            /// # Safety
            /// As the function's.
            #[inline]
            pub unsafe fn $name($($argument: $type),*) -> $answer {
                if threads::is_one() {
                    // SAFETY: the caller vouches for the arguments, here and below.
                    return unsafe { system_call($number, [$($first as usize,)? $($argument as usize),*]) as $answer };
                }
                // SAFETY: as above.
                unsafe { found::$name($($argument),*) }
            }
        )*
    };
}

system_calls! {
    c"close" close(fd: c_int) -> c_int = libc::SYS_close;
    c"open" open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int = libc::SYS_openat, libc::AT_FDCWD;
    c"open64" open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int = libc::SYS_openat, libc::AT_FDCWD;
    c"openat" openat(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int = libc::SYS_openat;
    c"openat64" openat64(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int = libc::SYS_openat;
    c"pread" pread(fd: c_int, at: *mut c_void, count: size_t, offset: off_t) -> ssize_t = libc::SYS_pread64;
    c"pread64" pread64(fd: c_int, at: *mut c_void, count: size_t, offset: off_t) -> ssize_t = libc::SYS_pread64;
    c"pwrite" pwrite(fd: c_int, at: *const c_void, count: size_t, offset: off_t) -> ssize_t = libc::SYS_pwrite64;
    c"pwrite64" pwrite64(fd: c_int, at: *const c_void, count: size_t, offset: off_t) -> ssize_t = libc::SYS_pwrite64;
    c"read" read(fd: c_int, at: *mut c_void, count: size_t) -> ssize_t = libc::SYS_read;
    c"readv" readv(fd: c_int, list: *const iovec, count: c_int) -> ssize_t = libc::SYS_readv;
    c"write" write(fd: c_int, at: *const c_void, count: size_t) -> ssize_t = libc::SYS_write;
    c"writev" writev(fd: c_int, list: *const iovec, count: c_int) -> ssize_t = libc::SYS_writev;
    c"epoll_wait" epoll_wait(epfd: c_int, events: *mut epoll_event, room: c_int, timeout: c_int) -> c_int = EPOLL_WAIT;
}

/// What libc's function for the call would answer.
///
/// # Safety
/// As the call's.
#[inline]
unsafe fn system_call<const N: usize>(number: c_long, arguments: [usize; N]) -> isize {
    let mut all = [0; 6];
    for (place, argument) in all.iter_mut().zip(arguments) {
        *place = argument;
    }
    // SAFETY: the caller's promise.
    let answer = unsafe { raw::syscall(number, all) };
    if answer < 0 {
        errno::set(-answer as c_int);
        return -1;
    }
    answer
}

/// Where the object that has the function begins in memory.
fn object_of(function: *const ()) -> *mut c_void {
    let mut info = core::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the place to write to is ours, and zeros are a value of it.
    unsafe {
        libc::dladdr(function.cast(), info.as_mut_ptr());
        info.assume_init().dli_fbase
    }
}

fn is_libcs(function: *mut ()) -> bool {
    object_of(function) == object_of(libc::gnu_get_libc_version as *const ())
}
