//! How sockets begin and end: `socket`, `bind`, `shutdown` and their names.
use crate::descriptor::is_guest;
use crate::errno::{Answer, Stop, fail};
use crate::estate;
use crate::fd_table;
use crate::lock::lock;
use crate::raw;
use crate::sockaddr::{self, Name};
use crate::socket::{Role, Taker};
use crate::state::State;
use core::ffi::c_int;
use core::net::{Ipv4Addr, Ipv6Addr};
use libc::{sockaddr as Address, socklen_t};
use skink_memory::FallbackReason;
use skink_messages::{Shutdown, TcpRequest};
use skink_wire::Endpoint;

/// So often is another port asked for that the kernel doesn't know of, either.
const MOST_CHOICES: usize = 16;

/// The program made kernel socket `fd`: Skink may take its place. Any other type stays the kernel's.
pub fn made(fd: c_int, domain: c_int, kind: c_int, protocol: c_int) {
    let base = kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
    let datagram = match (base, protocol) {
        (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => false,
        (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => true,
        _ => return,
    };
    let Ok(mut state) = lock() else { return };
    // A number that stands for something was closed behind our back, as `fclose` does.
    if fd_table::is_listed(fd) {
        state.forget_descriptor(fd);
    }
    if state.refused {
        return;
    }
    if let Some(index) = state.open(fd, domain, datagram) {
        let socket = &mut state.sockets[index];
        socket.own_kernel_socket = true;
        socket.nonblocking = kind & libc::SOCK_NONBLOCK != 0;
    }
}

/// `bind` of the kernel socket behind a descriptor.
pub fn kernel_bind(fd: c_int, endpoint: Endpoint, domain: c_int) -> Answer {
    let (bytes, length) = sockaddr::encode(endpoint, domain);
    let arguments = [fd as usize, bytes.as_ptr() as usize, length, 0, 0, 0];
    // SAFETY: the address is ours.
    unsafe { raw::call(libc::SYS_bind, arguments) }
}

/// `getsockname` of the kernel socket behind a descriptor.
pub fn kernel_name(fd: c_int) -> Answer<Endpoint> {
    let mut bytes = [0u64; 4];
    let mut length = 28u32;
    let name = bytes.as_mut_ptr();
    let arguments = [
        fd as usize,
        name as usize,
        &raw mut length as usize,
        0,
        0,
        0,
    ];
    // SAFETY: name and length are ours.
    unsafe {
        raw::call(libc::SYS_getsockname, arguments)?;
        match sockaddr::read(name.cast(), length)? {
            Name::Inet(endpoint) => Ok(endpoint),
            Name::Unspecified => fail(libc::EINVAL),
        }
    }
}

/// Lets the kernel socket block again, or not, as the program wants.
pub fn restore_mode(fd: c_int, nonblocking: bool) -> Answer {
    let mode = raw::fcntl(fd, libc::F_GETFL, 0)? & !(libc::O_NONBLOCK as usize);
    let mode = if nonblocking {
        mode | libc::O_NONBLOCK as usize
    } else {
        mode
    };
    raw::fcntl(fd, libc::F_SETFL, mode)
}

/// `listen` of the kernel socket behind a descriptor.
pub fn kernel_listen(fd: c_int, backlog: u32) -> Answer {
    let arguments = [fd as usize, backlog as usize, 0, 0, 0, 0];
    // SAFETY: only numbers.
    unsafe { raw::call(libc::SYS_listen, arguments) }
}

/// Lets the kernel socket hold an address that the kernel doesn't have.
fn allow_foreign_address(fd: c_int, domain: c_int, allowed: bool) {
    let (level, option) = match domain {
        libc::AF_INET6 => (libc::IPPROTO_IPV6, 78), // IPV6_FREEBIND
        _ => (libc::IPPROTO_IP, libc::IP_FREEBIND),
    };
    let on = c_int::from(allowed);
    let value = &raw const on as usize;
    let arguments = [fd as usize, level as usize, option as usize, value, 4, 0];
    // SAFETY: the value is ours. If it fails, so does `bind`.
    let _ = unsafe { raw::syscall(libc::SYS_setsockopt, arguments) };
}

/// # Safety
/// As for `bind`.
pub unsafe fn bind(fd: c_int, address: *const Address, length: socklen_t) -> Answer {
    let mut state = lock()?;
    let index = state.socket_asked(fd)?;
    if state.sockets[index].is_decided() || state.sockets[index].bound.is_some() {
        return fail(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    let Ok(Name::Inet(local)) = (unsafe { sockaddr::read(address, length) }) else {
        return Err(Stop::Kernel);
    };
    let own = sockaddr::canonical(local).addr;
    let domain = state.sockets[index].domain;
    if local.addr.is_ipv6() != (domain == libc::AF_INET6) {
        return Err(Stop::Kernel);
    }
    if !own.is_unspecified() {
        let datagram = state.sockets[index].datagram;
        let is_skinks = state.is_own_address(own) || datagram && state.is_own_broadcast(own);
        if !is_skinks {
            let reason = match own.is_loopback() {
                true => FallbackReason::Loopback,
                false => FallbackReason::KernelAddress,
            };
            let arguments = [fd as usize, address as usize, length as usize, 0, 0, 0];
            // If that fails, the socket may still be bound to something else.
            // SAFETY: the caller's promise.
            let bound = unsafe { raw::call(libc::SYS_bind, arguments) }?;
            return match state.fall_back(index, reason, local) {
                Err(Stop::Kernel) => Ok(bound),
                answer => answer,
            };
        }
        allow_foreign_address(fd, domain, true);
    }
    // The kernel keeps the port for us: against other programs, without privileges, and for as long
    // as any process holds the socket.
    let bound = match local.port {
        0 if state.sockets[index].datagram => state.bind_anywhere((fd, index), local),
        _ => kernel_bind(fd, local, domain),
    };
    if let Err(stop) = bound {
        if !own.is_unspecified() {
            allow_foreign_address(fd, domain, false);
        }
        return Err(stop);
    }
    if !own.is_unspecified() {
        // It is reached at Skink's address alone.
        state.unwatch_kernel_half(index);
    }
    state.sockets[index].bound = Some(kernel_name(fd)?);
    state.sockets[index].any_port = local.port == 0;
    if !state.sockets[index].datagram && !is_guest() && state.is_served() {
        // It may be for a program that is started with it, when it is too late to ask for a stack. If there is none, it is
        // said when the socket is used.
        let _ = state.need_engine();
    }
    let socket = &mut state.sockets[index];
    if socket.datagram {
        socket.taker = Taker::Unknown;
        if socket.watchers.is_empty() && socket.waiters.is_empty() {
            // If that fails, so it will for who receives, and he is told.
            let _ = state.hear(index);
        } else {
            // If that fails, it is the kernel's, or who receives is told.
            let _ = state.make_datagram(index);
        }
    }
    Ok(0)
}

impl State {
    /// Binds the kernel's half of a UDP socket that may have any port, and opens Skink's with the same one, if there is a stack: it
    /// knows which ports sockets there have that nobody has bound, and the kernel doesn't.
    fn bind_anywhere(&mut self, (fd, index): (c_int, u32), local: Endpoint) -> Answer {
        let domain = self.sockets[index].domain;
        for _ in 0..MOST_CHOICES {
            self.sockets[index].bound = Some(local);
            let heard = self.hear(index);
            self.sockets[index].bound = None;
            let port = self.port_of(self.sockets[index].resting);
            let (Ok(()), Some(port)) = (heard, port) else {
                break;
            };
            match kernel_bind(fd, Endpoint::new(local.addr, port), domain) {
                Ok(done) => return Ok(done),
                Err(stop) => {
                    self.release(index);
                    self.sockets[index].tickets = [0; 2];
                    if stop != Stop::Errno(libc::EADDRINUSE) {
                        return Err(stop);
                    }
                }
            }
        }
        kernel_bind(fd, local, domain)
    }
}

/// Every address of the family, with `port`.
pub fn any(domain: c_int, port: u16) -> Endpoint {
    if domain == libc::AF_INET6 {
        Endpoint::new(Ipv6Addr::UNSPECIFIED.into(), port)
    } else {
        Endpoint::new(Ipv4Addr::UNSPECIFIED.into(), port)
    }
}

/// `shutdown`
pub fn shutdown(fd: c_int, how: c_int) -> Answer {
    let mut state = estate::lock_here(fd)?;
    let index = state.socket_asked(fd)?;
    let which = match how {
        libc::SHUT_RD => Shutdown::Read,
        libc::SHUT_WR => Shutdown::Write,
        libc::SHUT_RDWR => Shutdown::Both,
        _ => return fail(libc::EINVAL),
    };
    if state.sockets[index].connecting {
        // What has become of it may not have been heard yet.
        state.pump();
    }
    match state.sockets[index].role {
        Role::Undecided if state.sockets[index].datagram => {
            state.close_directions(index, which);
            return Err(Stop::Kernel);
        }
        Role::Undecided => return Err(Stop::Kernel),
        Role::Lost => return fail(libc::ENOTCONN),
        Role::Dormant if state.sockets[index].is_bound_only() => return fail(libc::ENOTCONN),
        Role::Dormant | Role::Listener(_) => {
            // It stops listening; threads in `accept` find out.
            if which != Shutdown::Write {
                state.stop_listening(fd, index);
            }
            return Ok(0);
        }
        Role::Datagram(_) if state.sockets[index].peer.is_none() => {
            // As Linux, and programs go by it: who waits for datagrams is woken all the same.
            state.close_directions(index, which);
            return fail(libc::ENOTCONN);
        }
        Role::Datagram(_) => {}
        Role::Stream(_) if state.sockets[index].connecting => {
            // The attempt is over, and who waits for it is told.
            state.release(index);
            let socket = &mut state.sockets[index];
            socket.role = Role::Undecided;
            socket.connecting = false;
            socket.error = libc::ECONNRESET;
            state.mark_ready(index);
            state.wake_waiters(index);
            state.pump();
            return Ok(0);
        }
        Role::Stream(id) => {
            if !state.is_connected(index) {
                return fail(libc::ENOTCONN);
            }
            let now = raw::now();
            state
                .engine()?
                .stack
                .tcp_request(now, TcpRequest::Shutdown(id, which));
        }
    }
    state.close_directions(index, which);
    state.note_work();
    state.pump();
    Ok(0)
}

impl State {
    /// Nothing is received, or sent, any more. Who waits for that finds out.
    fn close_directions(&mut self, index: u32, which: Shutdown) {
        let socket = &mut self.sockets[index];
        socket.shut_read |= which != Shutdown::Write;
        socket.shut_write |= which != Shutdown::Read;
        self.mark_ready(index);
        self.wake_waiters(index);
    }
}

/// # Safety
/// As for `getsockname` and `getpeername`.
pub unsafe fn name(
    fd: c_int,
    address: *mut Address,
    length: *mut socklen_t,
    of_peer: bool,
) -> Answer {
    let mut state = estate::lock_here(fd)?;
    let index = state.socket_asked(fd)?;
    if address.is_null() || length.is_null() {
        return fail(libc::EFAULT);
    }
    if !of_peer {
        state.sockets[index].any_port = false;
    }
    let socket = &state.sockets[index];
    let endpoint = match (socket.role, &state.engine) {
        (Role::Stream(id), Some(engine)) => {
            if of_peer && !state.is_connected(index) {
                return fail(libc::ENOTCONN);
            }
            let record = engine
                .stack
                .tcp_table()
                .find(id)
                .ok_or(Stop::Errno(libc::ENOTCONN))?;
            let tuple = record.four_tuple();
            if of_peer { tuple.remote } else { tuple.local }
        }
        (Role::Datagram(_), _) if of_peer => socket.peer.ok_or(Stop::Errno(libc::ENOTCONN))?,
        (Role::Datagram(halves), Some(engine)) => {
            let table = engine.stack.udp_table();
            let is_v6 = socket.peer.is_some_and(|peer| peer.addr.is_ipv6());
            // One that is connected has the end of that half.
            let halves = if is_v6 { [halves[1], None] } else { halves };
            let mut records = halves.into_iter().flatten().filter_map(|id| table.find(id));
            let local = records.next().map(|record| record.four_tuple().local);
            match local {
                Some(local) if local.addr.is_unspecified() => any(socket.domain, local.port),
                Some(local) => local,
                None => any(socket.domain, 0),
            }
        }
        (Role::Lost, _) => return fail(libc::ENOTCONN),
        // The kernel socket is bound as the program asked.
        _ => return Err(Stop::Kernel),
    };
    // SAFETY: the caller's promise.
    unsafe { sockaddr::write(endpoint, socket.domain, address, length) };
    Ok(0)
}
