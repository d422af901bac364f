//! The numbers of the system calls that have an entry point here.
use crate::entry::{aio, data, sockets, waiting};
use crate::errno::set;
use core::ffi::{c_int, c_long};

/// Answers system call `number` if it is one of those.
///
/// # Safety
/// As the system call's.
pub unsafe fn dispatch(number: c_long, arguments: [usize; 6]) -> Option<isize> {
    if !crate::is_on() {
        return None;
    }
    let [a, b, c, d, e, f] = arguments;
    let fd = a as c_int;
    // SAFETY: the program's own arguments, in the order of the C functions'.
    let answer = unsafe {
        match number {
            libc::SYS_socket => sockets::socket(fd, b as c_int, c as c_int) as isize,
            libc::SYS_bind => sockets::bind(fd, b as _, c as _) as isize,
            libc::SYS_listen => sockets::listen(fd, b as c_int) as isize,
            libc::SYS_accept => sockets::accept(fd, b as _, c as _) as isize,
            libc::SYS_accept4 => sockets::accept4(fd, b as _, c as _, d as c_int) as isize,
            libc::SYS_connect => sockets::connect(fd, b as _, c as _) as isize,
            libc::SYS_shutdown => sockets::shutdown(fd, b as c_int) as isize,
            libc::SYS_getsockname => sockets::getsockname(fd, b as _, c as _) as isize,
            libc::SYS_getpeername => sockets::getpeername(fd, b as _, c as _) as isize,
            libc::SYS_getsockopt => {
                sockets::getsockopt(fd, b as c_int, c as c_int, d as _, e as _) as isize
            }
            libc::SYS_setsockopt => {
                sockets::setsockopt(fd, b as c_int, c as c_int, d as _, e as _) as isize
            }
            libc::SYS_close => sockets::close(fd) as isize,
            libc::SYS_close_range => sockets::close_range(a as _, b as _, c as c_int) as isize,
            libc::SYS_dup => sockets::dup(fd) as isize,
            libc::SYS_dup3 => sockets::dup3(fd, b as c_int, c as c_int) as isize,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => sockets::dup2(fd, b as c_int) as isize,
            libc::SYS_fcntl => sockets::fcntl(fd, b as c_int, c) as isize,
            libc::SYS_ioctl => sockets::ioctl(fd, b as _, c) as isize,
            libc::SYS_read => data::read(fd, b as _, c),
            libc::SYS_readv => data::readv(fd, b as _, c as c_int),
            libc::SYS_recvfrom => data::recvfrom(fd, b as _, c, d as c_int, e as _, f as _),
            libc::SYS_recvmsg => data::recvmsg(fd, b as _, c as c_int),
            libc::SYS_recvmmsg => data::recvmmsg(fd, b as _, c as _, d as c_int, e as _) as isize,
            libc::SYS_write => data::write(fd, b as _, c),
            libc::SYS_writev => data::writev(fd, b as _, c as c_int),
            libc::SYS_sendto => data::sendto(fd, b as _, c, d as c_int, e as _, f as _),
            libc::SYS_sendmsg => data::sendmsg(fd, b as _, c as c_int),
            libc::SYS_sendmmsg => data::sendmmsg(fd, b as _, c as _, d as c_int) as isize,
            libc::SYS_sendfile => data::sendfile(fd, b as c_int, c as _, d),
            libc::SYS_splice => data::splice(fd, b as _, c as c_int, d as _, e, f as _),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll => waiting::poll(a as _, b as _, c as c_int) as isize,
            libc::SYS_ppoll => waiting::ppoll(a as _, b as _, c as _, d as _) as isize,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_select => waiting::select(fd, b as _, c as _, d as _, e as _) as isize,
            libc::SYS_pselect6 => {
                // The mask, and its size.
                let mask = (f as *const [usize; 2])
                    .as_ref()
                    .map_or(0, |[mask, _]| *mask);
                waiting::pselect(fd, b as _, c as _, d as _, e as _, mask as _) as isize
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_create => waiting::epoll_create(fd) as isize,
            libc::SYS_epoll_create1 => waiting::epoll_create1(fd) as isize,
            libc::SYS_epoll_ctl => waiting::epoll_ctl(fd, b as c_int, c as c_int, d as _) as isize,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait => {
                waiting::epoll_wait(fd, b as _, c as c_int, d as c_int) as isize
            }
            libc::SYS_epoll_pwait => {
                waiting::epoll_pwait(fd, b as _, c as c_int, d as c_int, e as _) as isize
            }
            libc::SYS_epoll_pwait2 => {
                waiting::epoll_pwait2(fd, b as _, c as c_int, d as _, e as _) as isize
            }
            libc::SYS_exit_group => crate::exit::leave(fd),
            // The kernel would work on descriptors behind our back. Programs go on without it, as
            // they do where it is forbidden.
            libc::SYS_io_uring_setup => {
                set(libc::ENOSYS);
                -1
            }
            libc::SYS_io_submit => match aio::io_submit(a, b as _, c as _) {
                error @ ..0 => {
                    set(-error);
                    -1
                }
                taken => taken as isize,
            },
            _ => return None,
        }
    };
    Some(answer)
}
