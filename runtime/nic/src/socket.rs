//! System calls that rustix doesn't wrap: packet sockets, their options and interface ioctls.

use std::ffi::c_int;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// So many sockets are closed at the same time at most.
const TOGETHER: usize = 64;

/// Closes sockets that nobody else has. The kernel waits for all processors to have noticed, 10 to 25 ms for each: they wait
/// together.
pub(crate) fn close_together(mut sockets: Vec<OwnedFd>) {
    let each = sockets.len().div_ceil(TOGETHER);
    std::thread::scope(|scope| {
        while !sockets.is_empty() {
            let some = sockets.split_off(sockets.len().saturating_sub(each));
            // Where no thread can be had, they are closed here.
            let _ = std::thread::Builder::new().spawn_scoped(scope, move || drop(some));
        }
    });
}

/// The answer of a call that returns -1 and sets errno on failure.
pub(crate) fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Sets a socket option whose value is the plain data `value`.
pub(crate) fn set_option<T: Copy>(
    socket: impl AsFd,
    level: c_int,
    name: c_int,
    value: T,
) -> io::Result<()> {
    // SAFETY: `value` lives across the call and its size is given; the kernel only reads it.
    check(unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    })
    .map(drop)
}

/// Two 32-bit integers (or one, where the option has one) of a socket option's value.
pub(crate) fn get_option(socket: impl AsFd, level: c_int, name: c_int) -> io::Result<[u32; 2]> {
    let mut value = [0u32; 2];
    let mut bytes = size_of::<[u32; 2]>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes to `value`; any bits make valid integers.
    check(unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            value.as_mut_ptr().cast(),
            &raw mut bytes,
        )
    })?;
    Ok(value)
}

/// A packet socket that receives nothing until it is bound.
pub(crate) fn packet_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no memory is involved.
    let fd = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
    // SAFETY: the kernel just made this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Takes a message out of a socket's queue without waiting. Answers its length, of which the buffer gets what
/// it has room for.
pub(crate) fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    use rustix::net::{RecvFlags, recv};
    let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
    let (_, bytes) = recv(socket, buffer, flags)?;
    Ok(bytes)
}

/// Starts to receive every protocol from the interface.
pub(crate) fn bind_to_interface(socket: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    // SAFETY: all zeros is a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as i32;
    // SAFETY: the address lives across the call and its size is given.
    check(unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    })
    .map(drop)
}

/// Lets all multicast frames through the interface's filter while the socket is open: IPv6's
/// neighbour discovery needs groups that the kernel hasn't joined for us.
pub(crate) fn join_all_multicast(socket: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    // SAFETY: all zeros is a valid packet_mreq.
    let mut request: libc::packet_mreq = unsafe { std::mem::zeroed() };
    request.mr_ifindex = index as i32;
    request.mr_type = libc::PACKET_MR_ALLMULTI as u16;
    set_option(
        socket,
        libc::SOL_PACKET,
        libc::PACKET_ADD_MEMBERSHIP,
        request,
    )
}

/// Puts a classic BPF program in front of the socket, in place of one that was there.
pub(crate) fn attach_filter(
    socket: BorrowedFd<'_>,
    program: &[libc::sock_filter],
) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: program.len() as u16,
        // The kernel only reads the program, though the struct can't say so.
        filter: program.as_ptr().cast_mut(),
    };
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, program)
}

/// Puts an eBPF socket filter in front of the socket, in place of one that was there.
pub(crate) fn attach_program(socket: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let program = program.as_raw_fd();
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_BPF, program)
}

/// An `ifreq` that names the interface, everything else zero.
pub(crate) fn interface_request(name: &str) -> libc::ifreq {
    // SAFETY: all zeros is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays 0; the caller has checked that the name fits.
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

/// An ioctl that reads or writes an `ifreq`.
pub(crate) fn interface_ioctl(
    fd: BorrowedFd<'_>,
    operation: libc::Ioctl,
    request: &mut libc::ifreq,
) -> io::Result<()> {
    // SAFETY: the callers' operations all take a pointer to an ifreq, which lives across the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), operation, std::ptr::from_mut(request)) }).map(drop)
}

/// An ioctl whose argument is an integer passed by value.
pub(crate) fn value_ioctl(
    fd: BorrowedFd<'_>,
    operation: libc::Ioctl,
    value: libc::c_ulong,
) -> io::Result<()> {
    // SAFETY: the callers' operations take a number, so no memory is involved.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), operation, value) }).map(drop)
}

/// An ioctl whose argument is a pointer to an integer.
pub(crate) fn integer_ioctl(
    fd: BorrowedFd<'_>,
    operation: libc::Ioctl,
    mut value: c_int,
) -> io::Result<()> {
    // SAFETY: the callers' operations take a pointer to an int, which lives across the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), operation, &raw mut value) }).map(drop)
}

/// Says, once, that what the kernel answered means that the NIC's interface is gone for good.
#[cold]
pub(crate) fn say_gone(said: &mut bool) {
    if !std::mem::replace(said, true) {
        tracing::warn!(
            "the NIC's interface was deleted: nothing comes or leaves by it any more; when it is there again (a TAP is \
             made by `skink`), start `skink` and what uses it anew"
        );
    }
}

/// Whether `fd` can be written to right now.
pub(crate) fn is_writable(fd: BorrowedFd<'_>) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // An error counts as writable: then writing tells what it is.
    !matches!(poll(&mut fds, Some(&now)), Ok(0))
}
