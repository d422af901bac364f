//! `accept`: connections from Skink's queue and, for a listening socket on every address, from the
//! kernel's.
use crate::calls::any;
use crate::errno::{Answer, Stop, WOULD_BLOCK, fail};
use crate::fd_table;
use crate::lock::lock;
use crate::log::log;
use crate::raw;
use crate::sockaddr;
use crate::socket::Role;
use crate::state::State;
use crate::wait::{self, Patience};
use core::ffi::c_int;
use libc::{sockaddr as Address, socklen_t};
use skink_messages::{Counter, Events, TcpRequest};
use skink_wire::Endpoint;
use std::time::Duration;

impl State {
    /// Accepts one connection: its descriptor and the peer.
    fn accept_one(&mut self, index: u32, flags: c_int) -> Answer<(c_int, Endpoint)> {
        let Role::Listener(halves) = self.sockets[index].role else {
            return fail(libc::EINVAL);
        };
        let engine = self.engine()?;
        if engine.is_down() {
            self.sockets[index].told_down = true;
            return fail(libc::ENETDOWN);
        }
        let mut halves = halves.into_iter().flatten();
        let mut waiting = halves.clone();
        if !waiting.any(|id| engine.stack.tcp_acceptable(id) > 0) {
            return Err(WOULD_BLOCK);
        }
        let (domain, options) = (self.sockets[index].domain, self.sockets[index].options);
        let fd = self.make_descriptor(domain, flags & libc::SOCK_CLOEXEC != 0)?;
        let stack = &mut self.engine()?.stack;
        let Some(id) = halves.find_map(|id| stack.tcp_accept(id)) else {
            // The stack has given it to another program.
            raw::close(fd);
            return Err(WOULD_BLOCK);
        };
        if fd_table::is_listed(fd) {
            self.forget_descriptor(fd);
        }
        let Some(new) = self.open(fd, domain, false) else {
            raw::close(fd);
            self.engine()?
                .stack
                .tcp_request(raw::now(), TcpRequest::Close(id));
            return fail(libc::EMFILE);
        };
        let engine = self.engine()?;
        engine.count(Counter::AppSockets);
        let lasting = engine.own_tcp(id, new);
        let peer = engine
            .stack
            .tcp_table()
            .find(id)
            .map(|record| record.four_tuple().remote);
        let socket = &mut self.sockets[new];
        socket.role = Role::Stream(id);
        socket.nonblocking = flags & libc::SOCK_NONBLOCK != 0;
        socket.options = options;
        if lasting.contains(Events::ERROR)
            && let Some(engine) = &self.engine
        {
            socket.error = engine.error_of(socket);
        }
        Ok((fd, peer.unwrap_or(any(domain, 0))))
    }
}

/// Whether there is something to accept, or to receive, in the kernel. To ask costs a tenth of what `accept` takes to find
/// nothing: that makes a socket first, and takes it down again.
pub fn kernel_has_some(fd: c_int) -> bool {
    let mut list = [raw::to_poll(fd, libc::POLLIN)];
    let answer = raw::ppoll(&mut list, Some(Duration::ZERO), core::ptr::null());
    answer != Ok(0)
}

fn kernel_accept(
    fd: c_int,
    address: *mut Address,
    length: *mut socklen_t,
    flags: c_int,
) -> Answer<c_int> {
    let arguments = [
        fd as usize,
        address as usize,
        length as usize,
        flags as usize,
        0,
        0,
    ];
    // SAFETY: the program vouches for the address; the kernel checks it.
    unsafe { raw::call(libc::SYS_accept4, arguments) }.map(|fd| fd as c_int)
}

/// # Safety
/// As for `accept4`.
pub unsafe fn accept(
    fd: c_int,
    address: *mut Address,
    length: *mut socklen_t,
    flags: c_int,
) -> Answer {
    let mut state = lock()?;
    let index = state.socket_asked(fd)?;
    if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
        return fail(libc::EINVAL);
    }
    match state.sockets[index].role {
        Role::Undecided => return Err(Stop::Kernel),
        Role::Dormant if state.sockets[index].is_bound_only() => return fail(libc::EINVAL),
        Role::Dormant | Role::Listener(_) => state.activate(index)?,
        Role::Datagram(_) => return fail(libc::EOPNOTSUPP),
        Role::Stream(_) | Role::Lost => return fail(libc::EINVAL),
    }
    let socket = &state.sockets[index];
    let domain = socket.domain;
    let patience = Patience::of(socket.nonblocking, socket.options.receive_timeout);
    let other = socket.kernel_listens.then_some(fd);
    let attempt =
        |state: &mut State, index, readable: bool| match (state.accept_one(index, flags), other) {
            (Err(WOULD_BLOCK), Some(fd)) if readable && kernel_has_some(fd) => {
                let new = kernel_accept(fd, address, length, flags)?;
                if fd_table::is_listed(new) {
                    state.forget_descriptor(new);
                }
                Ok((new, None))
            }
            (answer, _) => answer.map(|(new, peer)| (new, Some(peer))),
        };
    let (new, peer) = wait::until_either(state, index, other, patience, attempt)?;
    let Some(peer) = peer else {
        return Ok(new as usize);
    };
    // SAFETY: the caller's promise.
    unsafe { sockaddr::write(peer, domain, address, length) };
    log!(Debug, "descriptor {new} is a connection from {peer}");
    Ok(new as usize)
}
