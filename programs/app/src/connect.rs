//! `connect`, where most sockets learn whose they are.
use crate::errno::{Answer, Stop, WOULD_BLOCK, fail};
use crate::lock::{Guard, lock};
use crate::log::log;
use crate::raw;
use crate::sockaddr::{self, Name};
use crate::socket::{Halves, Role};
use crate::state::State;
use crate::transfer::Control;
use crate::wait::{self, Patience};
use core::ffi::c_int;
use libc::{sockaddr as Address, socklen_t};
use skink_memory::FallbackReason;
use skink_messages::{ConnectionOption, Counter, Events, TcpRequest, UdpRequest};
use skink_wire::Endpoint;

/// # Safety
/// As for `connect`.
pub unsafe fn connect(fd: c_int, address: *const Address, length: socklen_t) -> Answer {
    let state = lock()?;
    let index = state.socket_asked(fd)?;
    // SAFETY: the caller's promise.
    let name = unsafe { sockaddr::read(address, length) };
    let waits = !state.sockets[index].nonblocking;
    connect_to(state, (fd, index), name, waits)
}

/// The same to an address that was read, by a call that `waits`, or doesn't.
pub fn connect_to(
    mut state: Guard,
    (fd, index): (c_int, u32),
    name: Answer<Name>,
    waits: bool,
) -> Answer {
    let socket = &state.sockets[index];
    let remote = match (name, socket.role) {
        (Ok(Name::Inet(remote)), _) => remote,
        (Ok(Name::Unspecified), Role::Datagram(_)) => return state.disconnect_datagram(index),
        (_, Role::Undecided) => return Err(Stop::Kernel),
        (Ok(Name::Unspecified), _) => return state.disconnect_stream(fd, index),
        (Err(stop), _) => return Err(stop),
    };
    let remote = sockaddr::canonical(remote);
    let plain_v6 = remote.addr.is_ipv6();
    let fits = match socket.domain {
        libc::AF_INET6 => plain_v6 || !socket.options.only_v6,
        _ => !plain_v6,
    };
    if !fits {
        return if socket.is_decided() {
            fail(libc::EAFNOSUPPORT)
        } else {
            Err(Stop::Kernel)
        };
    }
    if socket.datagram {
        return state.connect_datagram(index, remote);
    }
    state.forget_receiver(index);
    if state.sockets[index].connecting {
        state.pump();
    }
    let again = state.sockets[index].connecting;
    match state.sockets[index].role {
        Role::Dormant | Role::Listener(_) | Role::Datagram(_) | Role::Lost => {
            return fail(libc::EISCONN);
        }
        Role::Undecided => state.begin(index, remote)?,
        Role::Stream(id) => {
            let lasting = state.engine()?.lasting(id);
            let socket = &mut state.sockets[index];
            if socket.connecting {
                if !waits {
                    return fail(libc::EALREADY);
                }
            } else if let Some(error) = socket.take_error() {
                if socket.unanswered {
                    state.forget_attempt(index);
                }
                return fail(error);
            } else if core::mem::take(&mut socket.unanswered) && !lasting.contains(Events::CLOSED) {
                return Ok(0);
            } else if lasting.intersects(Events::CLOSED | Events::ERROR) {
                // The attempt failed, and the program knows: it may try again.
                state.release(index);
                state.sockets[index].role = Role::Undecided;
                state.begin(index, remote)?;
            } else {
                return fail(libc::EISCONN);
            }
        }
    }
    finish(state, index, again, waits)
}

/// Waits for the handshake's end, if the call `waits`; `again` if an earlier call has begun it.
fn finish(mut state: Guard, index: u32, again: bool, waits: bool) -> Answer {
    let socket = &mut state.sockets[index];
    socket.unanswered = true;
    let patience = Patience::of(!waits, socket.options.send_timeout);
    let answer = wait::until(state, index, patience, |state, index| {
        if patience == Patience::None {
            // Linux never says at once what has become of it, which may be known (it may lead to this very stack).
            return Err(WOULD_BLOCK);
        }
        let socket = &mut state.sockets[index];
        match socket.take_error() {
            Some(error) => {
                state.forget_attempt(index);
                fail(error)
            }
            // Another thread has heard of it.
            None if !matches!(socket.role, Role::Stream(_)) => fail(libc::ECONNABORTED),
            None if socket.connecting => Err(WOULD_BLOCK),
            None => {
                socket.unanswered = false;
                Ok(0)
            }
        }
    });
    match answer {
        Err(WOULD_BLOCK) if again => fail(libc::EALREADY),
        Err(WOULD_BLOCK) => fail(libc::EINPROGRESS),
        other => other,
    }
}

impl State {
    /// A handshake has failed, and the program knows: it is as if nobody had tried, as on Linux. (But others that have the socket
    /// don't know yet.)
    fn forget_attempt(&mut self, index: u32) {
        if !self.sockets[index].lent {
            self.release(index);
            self.sockets[index].role = Role::Undecided;
        }
    }

    /// Begins a handshake, or leaves the socket to the kernel.
    fn begin(&mut self, index: u32, remote: Endpoint) -> Answer<()> {
        if let Some(reason) = self.reason_against(index, remote.addr) {
            return self.leave_unless_unreachable(index, reason, remote);
        }
        if self.is_own_address(remote.addr) {
            self.activate_port(false, remote.port)?;
        }
        let now = raw::now();
        let bound = match self.sockets[index].bound {
            Some(local) if self.sockets[index].any_port => self.end_with_any_port(local),
            bound => bound,
        };
        let socket = &self.sockets[index];
        // Others may have what it is bound to, if it was left to them.
        let (options, tickets) = (socket.options, socket.tickets);
        let engine = self.engine()?;
        engine.count(Counter::AppSockets);
        let id = match engine.stack.tcp_open() {
            Ok(id) => id,
            Err(Stop::Errno(libc::ENETDOWN)) => return fail(libc::ENETDOWN),
            Err(_) => return self.fall_back(index, FallbackReason::TableFull, remote),
        };
        for option in options.for_connection() {
            engine
                .stack
                .tcp_request(now, TcpRequest::SetOption(id, option));
        }
        engine.own_tcp(id, index);
        let bound = match bound {
            Some(local) => {
                let local = local_for(local, remote);
                let ticket = tickets[usize::from(local.addr.is_ipv6())];
                engine
                    .stack
                    .tcp_bind(id, local, options.for_bind(ticket))
                    .map(drop)
            }
            None => Ok(()),
        };
        if let Err(error) = bound.and_then(|()| engine.stack.tcp_connect(now, id, remote)) {
            engine.disown_tcp(id);
            engine.stack.tcp_request(now, TcpRequest::Close(id));
            return Err(error);
        }
        let socket = &mut self.sockets[index];
        socket.role = Role::Stream(id);
        socket.connecting = true;
        // Of an attempt that was given up.
        socket.error = 0;
        log!(Info, "descriptor {:?} connects to {remote}", socket.fds);
        self.note_work();
        self.pump();
        Ok(())
    }

    /// What a socket is to be bound to, if to anything, whose port the connection chooses, as it does for one that isn't bound at all: it knows
    /// which are in use towards its peer.
    fn end_with_any_port(&mut self, local: Endpoint) -> Option<Endpoint> {
        let own = sockaddr::canonical(local).addr;
        let is_any = own.is_unspecified() || self.is_only_address(own);
        (!is_any).then(|| Endpoint::new(local.addr, 0))
    }

    /// Makes a UDP socket one of Skink's, bound as it was or to a free port.
    pub fn make_datagram(&mut self, index: u32) -> Answer<()> {
        if self.sockets[index].role != Role::Undecided {
            return Ok(());
        }
        if !self.need_engine() {
            let local = crate::calls::any(self.sockets[index].domain, 0);
            return self.fall_back(index, FallbackReason::NotAttached, local);
        }
        let resting = core::mem::take(&mut self.sockets[index].resting);
        let halves = match resting {
            [None, None] if self.sockets[index].bound.is_none() => self.open_beside(index),
            [None, None] => self.open_datagram(index),
            resting => Ok(resting),
        };
        let socket = &self.sockets[index];
        let others = socket.told_half || socket.lent;
        if halves == fail(libc::EADDRINUSE) && others && socket.has_kernel_half() {
            // Another process has Skink's half, as after a `fork` or `exec` where each has a stack of its own.
            let local = crate::calls::any(socket.domain, 0);
            return self.fall_back(index, FallbackReason::KernelAddress, local);
        }
        let halves = halves?;
        let engine = self.engine()?;
        if engine.is_down() {
            // What was bound before is of no use.
            return fail(libc::ENETDOWN);
        }
        for id in halves.into_iter().flatten() {
            engine.own_udp(id, index);
        }
        engine.count(Counter::AppSockets);
        self.sockets[index].role = Role::Datagram(halves);
        if self.sockets[index].has_kernel_half() && self.is_served() {
            self.ask_where_to(index, true);
        }
        // Something may have come that nobody was told of.
        self.mark_ready(index);
        self.wake_waiters(index);
        log!(
            Info,
            "descriptor {:?} is a UDP socket of Skink's",
            self.sockets[index].fds
        );
        Ok(())
    }

    /// Opens the halves of a UDP socket, and binds them as it was bound, or to a free port.
    pub fn open_datagram(&mut self, index: u32) -> Answer<Halves> {
        let options = self.sockets[index].options;
        let mut tickets = self.sockets[index].tickets;
        let addresses = self.half_addresses(index);
        let engine = self.engine()?;
        let mut halves: Halves = [None, None];
        let mut failure = None;
        let mut port = None;
        for ((half, ticket), address) in halves.iter_mut().zip(&mut tickets).zip(addresses) {
            let Some(mut address) = address else { continue };
            address.port = port.unwrap_or(address.port);
            // (A child's may be bound before the parent's is closed.)
            let sharing = options.for_bind(*ticket);
            let opened = engine.stack.udp_open().and_then(|id| {
                let bound = engine.stack.udp_bind(id, address, sharing);
                bound.map(|bound| (id, bound)).inspect_err(|_| {
                    engine.stack.udp_request(raw::now(), UdpRequest::Close(id));
                })
            });
            match opened {
                Ok((id, (local, shown))) => {
                    port = Some(local.port);
                    *half = Some(id);
                    *ticket = shown;
                }
                Err(error) => failure = Some(error),
            }
        }
        self.sockets[index].tickets = tickets;
        match (failure, halves) {
            (Some(error), [None, None]) => Err(error),
            _ => Ok(halves),
        }
    }

    fn connect_datagram(&mut self, index: u32, remote: Endpoint) -> Answer {
        if !self.sockets[index].is_decided() {
            if let Some(reason) = self.reason_against(index, remote.addr) {
                return self.leave_unless_unreachable(index, reason, remote);
            }
            self.make_datagram(index)?;
        } else if let Some(reason) = self.reason_for_half(index, remote, &Control::default()) {
            // It is connected to one of the kernel's alone.
            let _ = self.leave_to_half::<()>(index, reason, remote);
            return self.leave_unless_unreachable(index, reason, remote);
        }
        let Role::Datagram(halves) = self.sockets[index].role else {
            return fail(libc::EINVAL);
        };
        let which = usize::from(remote.addr.is_ipv6());
        let Some(id) = halves[which] else {
            return fail(libc::ENETUNREACH);
        };
        if !self.sockets[index].options.broadcast && self.is_broadcast(remote.addr) {
            return fail(libc::EACCES);
        }
        self.engine()?.stack.udp_connect(id, Some(remote))?;
        self.unwatch_kernel_half(index);
        self.sockets[index].peer = Some(remote);
        Ok(0)
    }

    /// `connect` to nobody: the connection is reset, and the socket can connect or listen again, where it was bound. One that listens
    /// stops that.
    fn disconnect_stream(&mut self, fd: c_int, index: u32) -> Answer {
        let socket = &self.sockets[index];
        match socket.role {
            Role::Dormant if socket.is_bound_only() => {}
            Role::Dormant | Role::Listener(_) => self.stop_listening(fd, index),
            // What is to be another socket here would be one in other processes too, and one that was accepted has no
            // socket of the kernel's that could be another one.
            Role::Stream(_) if socket.own_kernel_socket && !socket.lent => self.reset(index),
            _ => return fail(libc::EOPNOTSUPP),
        }
        Ok(0)
    }

    /// Ends the connection of a socket by a reset; the socket goes on as one that has none.
    fn reset(&mut self, index: u32) {
        let was_alive = self.sockets[index].connecting || self.is_connected(index);
        let linger = self.sockets[index].options.linger.replace(0);
        self.pass_option(index, ConnectionOption::ResetOnClose(true));
        self.release(index);
        let socket = &mut self.sockets[index];
        socket.options.linger = linger;
        socket.role = Role::Undecided;
        (socket.connecting, socket.unanswered) = (false, false);
        (socket.shut_read, socket.shut_write, socket.more) = (false, false, false);
        socket.error = if was_alive { libc::ECONNRESET } else { 0 };
        self.mark_ready(index);
        self.wake_waiters(index);
        self.pump();
    }

    fn disconnect_datagram(&mut self, index: u32) -> Answer {
        let Role::Datagram(halves) = self.sockets[index].role else {
            return fail(libc::EINVAL);
        };
        for id in halves.into_iter().flatten() {
            match self.engine()?.stack.udp_connect(id, None) {
                Ok(()) | Err(Stop::Errno(libc::ENOTCONN)) => {}
                Err(error) => return Err(error),
            }
        }
        if self.sockets[index].peer.take().is_some() {
            self.empty_half(index);
            self.watch_kernel_half(index);
        }
        Ok(0)
    }
}

/// The bound address in the family of `remote`.
fn local_for(local: Endpoint, remote: Endpoint) -> Endpoint {
    let local = sockaddr::canonical(local);
    if local.addr.is_unspecified() {
        let domain: c_int = if remote.addr.is_ipv4() {
            libc::AF_INET
        } else {
            libc::AF_INET6
        };
        return crate::calls::any(domain, local.port);
    }
    local
}
