//! `listen`: which sockets wait for connections, and from when on.
//!
//! Connections are queued from `listen` on, as in the kernel, for a program that tells its port to a peer and waits for
//! something else first. Only where each process has a stack of its own, one that listens just for its children needs none: there a
//! listening socket is *dormant* until this process waits for a connection, or has a stack for something else.
//!
//! When another process gets a listening socket, by `fork` or otherwise, each of them that has a stack listens *in reserve* until it waits
//! for a connection: connections are queued there if nobody else listens, and go to whoever waits first (docs/decisions/0025). A
//! stack in another process answers a ticket for a listening socket, with which children show that it is theirs too.
//!
//! A UDP socket that is bound isn't decided before its first use (it may send to the kernel's addresses), but it is bound on the
//! stack too, if there is one, and what comes waits there. When another process gets it, it isn't any more, unless something has
//! come that both can take.
use crate::calls::{any, kernel_bind, kernel_listen, kernel_name, restore_mode};
use crate::engine::Engine;
use crate::errno::{Answer, fail};
use crate::lock::lock;
use crate::log::log;
use crate::raw;
use crate::remote::Remote;
use crate::sockaddr;
use crate::socket::{Halves, Role, Socket, Taker};
use crate::state::State;
use core::ffi::c_int;
use core::net::IpAddr;
use skink_memory::{DatagramRing, FallbackReason, SocketId};
use skink_messages::{ConnectionOption, Counter, Protocol, TcpRequest};
use skink_wire::Endpoint;

/// The largest backlog.
const MOST_WAITING: u32 = 4096;

/// `listen`
pub fn listen(fd: c_int, backlog: c_int) -> Answer {
    let mut state = lock()?;
    let index = state.socket_asked(fd)?;
    // The kernel takes a negative backlog for the largest.
    let backlog = match u32::try_from(backlog) {
        Ok(backlog) => backlog.clamp(1, MOST_WAITING),
        Err(_) => MOST_WAITING,
    };
    let socket = &state.sockets[index];
    if socket.datagram {
        return fail(libc::EOPNOTSUPP);
    }
    match socket.role {
        Role::Undecided => {}
        Role::Dormant if socket.is_bound_only() => {}
        Role::Dormant => {
            state.sockets[index].backlog = backlog;
            return Ok(0);
        }
        Role::Listener(halves) => {
            state.sockets[index].backlog = backlog;
            let now = raw::now();
            for id in halves.into_iter().flatten() {
                let _ = state.engine()?.stack.tcp_listen(now, id, backlog);
            }
            return Ok(0);
        }
        Role::Stream(_) | Role::Datagram(_) | Role::Lost => return fail(libc::EINVAL),
    }
    let (domain, unsupported) = (socket.domain, socket.unsupported.is_some());
    let local = match socket.bound {
        Some(local) => local,
        None => {
            kernel_bind(fd, any(domain, 0), domain)?;
            kernel_name(fd)?
        }
    };
    state.sockets[index].bound = Some(local);
    if unsupported && local.addr.is_unspecified() {
        return state.fall_back(index, FallbackReason::UnsupportedOption, local);
    }
    if !state.has_prospects() {
        return state.fall_back(index, FallbackReason::NotAttached, local);
    }
    let served = state.is_served() && state.need_engine();
    let shared = state.sockets[index].is_bound_only();
    if served && state.sockets[index].resting == [None; 2] {
        state.rest(index)?;
    }
    if let Err(stop) = state.listen_on_kernel(fd, index, backlog) {
        state.sockets[index].role = Role::Dormant;
        state.release(index);
        state.sockets[index].role = Role::Undecided;
        return Err(stop);
    }
    state.sockets[index].role = Role::Dormant;
    state.sockets[index].backlog = backlog;
    state.sockets[index].taker = Taker::Unknown;
    if !state.sockets[index].watchers.is_empty() {
        if state.sockets[index].kernel_listens {
            state.watch_kernel_half(index);
        }
        state.activate(index)?;
    }
    if served
        && state.sockets[index].role == Role::Dormant
        && let Err(stop) = state.put_on_stack(index)
    {
        state.release(index);
        state.sockets[index].role = Role::Undecided;
        state.unlisten_on_kernel(fd, index);
        if shared {
            state.rest_for_receiver(index);
        }
        return Err(stop);
    }
    state.listen_beside();
    // If there is no room for it now, there may be when a connection comes.
    let _ = state.template(domain);
    log!(Info, "descriptor {fd} will listen on {local}");
    Ok(0)
}

fn is_listening(socket: &Socket) -> bool {
    matches!(socket.role, Role::Dormant | Role::Listener(_))
}

impl State {
    /// The addresses that the halves of a bound socket are to be bound to.
    pub fn half_addresses(&self, index: u32) -> [Option<Endpoint>; 2] {
        let socket = &self.sockets[index];
        let local = socket.bound.unwrap_or(any(socket.domain, 0));
        match (local.addr, sockaddr::canonical(local).addr) {
            (_, IpAddr::V4(v4)) => [Some(Endpoint::new(v4.into(), local.port)), None],
            (IpAddr::V6(v6), _) if v6.is_unspecified() && !socket.options.only_v6 => {
                [Some(any(libc::AF_INET, local.port)), Some(local)]
            }
            _ => [None, Some(local)],
        }
    }

    /// Somebody waits for connections: a listening socket that rests is put on the stack.
    pub fn activate(&mut self, index: u32) -> Answer<()> {
        if self.sockets[index].is_bound_only() {
            return Ok(());
        }
        let before = core::mem::replace(&mut self.sockets[index].taker, Taker::Own);
        if self.sockets[index].role != Role::Dormant {
            if before == Taker::Others && is_listening(&self.sockets[index]) {
                self.pass_option(index, ConnectionOption::Reserve(false));
            }
            return Ok(());
        }
        let local = self.sockets[index].bound.unwrap_or(any(libc::AF_INET, 0));
        if !self.need_engine() {
            let fd = self.sockets[index].fds.first().copied().unwrap_or(-1);
            kernel_listen(fd, self.sockets[index].backlog)?;
            return self.fall_back(index, FallbackReason::NotAttached, local);
        }
        self.put_on_stack(index)?;
        self.pump();
        Ok(())
    }

    /// Puts a listening socket that rests on the stack, which there is; in reserve, if others have it, too.
    fn put_on_stack(&mut self, index: u32) -> Answer<()> {
        let backlog = self.sockets[index].backlog;
        let resting = core::mem::take(&mut self.sockets[index].resting);
        let halves = self.each_half(index, |state, half, address| {
            state.listen_on_stack(index, (half, address), resting[half], backlog)
        })?;
        let socket = &mut self.sockets[index];
        socket.role = Role::Listener(halves);
        self.note_listener(index);
        if self.has_own_stack() {
            self.show_waiting(index);
        }
        let socket = &self.sockets[index];
        let local = socket.bound.unwrap_or(any(socket.domain, 0));
        log!(Info, "descriptor {:?} listens on {local}", socket.fds);
        Ok(())
    }

    /// Whether the process has a stack of its own.
    pub fn has_own_stack(&self) -> bool {
        let engine = self.engine.as_deref();
        engine.is_some_and(|engine| !engine.stack.is_served())
    }

    /// If there is a stack, nothing rests on which the process has listened. If it is the process's own, that includes what others are
    /// about to listen on, in reserve, and it hears what comes for UDP sockets that were bound before (others hear it from `bind` on).
    pub fn listen_beside(&mut self) {
        if self.engine.is_none() {
            return;
        }
        self.put_all_on_stack();
        if self.is_served() {
            return;
        }
        let bound = self.sockets.iter().filter_map(|(index, socket)| {
            let hears = socket.datagram && socket.bound.is_some() && socket.taker == Taker::Unknown;
            hears.then_some(index)
        });
        for index in bound.collect::<Vec<u32>>() {
            let _ = self.hear(index);
        }
    }

    /// A UDP socket has been bound. If there is a stack, what comes for it from now on waits there, though it may be the kernel's
    /// in the end.
    pub fn hear(&mut self, index: u32) -> Answer<()> {
        let socket = &self.sockets[index];
        let is_due = !socket.is_decided() && socket.resting == [None; 2];
        if is_due && (self.has_own_stack() || self.is_served() && self.need_engine()) {
            self.sockets[index].resting = self.open_datagram(index)?;
        }
        Ok(())
    }

    fn put_all_on_stack(&mut self) {
        let own = self.has_own_stack();
        let rest = self.sockets.iter().filter_map(|(index, socket)| {
            // Who waits for a connection puts the socket there by itself.
            let rests = socket.taker == Taker::Unknown || own && socket.taker == Taker::Others;
            (socket.role == Role::Dormant && rests).then_some(index)
        });
        for index in rest.collect::<Vec<u32>>() {
            // If that fails, who waits for a connection is told.
            if self.put_on_stack(index).is_err() && self.is_served() {
                let _ = self.rest(index);
            }
        }
    }

    /// Another program is about to get these sockets. Where the stack is in this process, it goes on to listen: most programs
    /// that inherit a listening socket don't mean to.
    pub fn leave_to_program(&mut self, sockets: impl Iterator<Item = u32>) {
        if !self.has_own_stack() {
            self.leave_to_others(sockets.collect());
        }
    }

    /// Another process is about to get all sockets ([`State::leave_to_others`]).
    pub fn leave_all(&mut self) {
        let all: Vec<u32> = self.sockets.iter().map(|(index, _)| index).collect();
        for index in &all {
            self.rest_for_receiver(*index);
        }
        self.leave_to_others(all);
    }

    /// Another process is about to get these sockets, too: connections that nobody has waited for here are perhaps for that one, and
    /// so are datagrams.
    pub fn leave_to_others(&mut self, mut sockets: Vec<u32>) {
        for index in &sockets {
            self.sockets[*index].lent = true;
            // Another thread may have waited for it all the time.
            self.show_waiting(*index);
        }
        sockets.retain(|index| {
            let socket = &self.sockets[*index];
            let hears = !socket.is_decided() && socket.resting != [None; 2];
            (is_listening(socket) || hears) && socket.taker == Taker::Unknown
        });
        if sockets.is_empty() || !self.engine.as_deref().is_none_or(Engine::is_reachable) {
            return;
        }
        // What has come already stays in this process, if that has the stack.
        let own = self.has_own_stack();
        if own {
            self.pump();
        }
        for index in sockets {
            self.sockets[index].taker = Taker::Others;
            match self.sockets[index].datagram {
                true => self.stop_hearing(index),
                false => self.pass_option(index, ConnectionOption::Reserve(true)),
            }
        }
    }

    /// What comes for a UDP socket that isn't decided doesn't wait any more. If something has come, and the stack is in another
    /// process, whoever has the socket can take that: then it is Skink's.
    fn stop_hearing(&mut self, index: u32) {
        let mut halves = self.sockets[index].resting.into_iter().flatten();
        let served = self.engine.as_deref();
        let served = served.filter(|engine| engine.stack.is_served());
        let has_some = served.is_some_and(|engine| {
            let ring = |id: SocketId| engine.stack.udp_table().receive_ring(id.slot);
            halves.any(|id| DatagramRing::new(ring(id)).peek().is_some())
        });
        if !has_some || self.make_datagram(index).is_err() {
            self.release(index);
        }
    }

    /// Binds sockets that the process has got from another one: those on which that one listens, it listens on in reserve.
    pub fn listen_in_reserve(&mut self) {
        let is_new = |socket: &Socket| {
            socket.role == Role::Dormant && socket.tickets != [0; 2] && socket.resting == [None; 2]
        };
        let sockets = self.sockets.iter();
        let new = sockets.filter_map(|(index, socket)| is_new(socket).then_some(index));
        for index in new.collect::<Vec<u32>>() {
            let result = match self.sockets[index].is_bound_only() {
                true => self.rest(index),
                false => self.put_on_stack(index),
            };
            if let Err(stop) = result {
                log!(Warn, "an inherited socket couldn't be bound: {stop:?}");
            }
        }
    }

    /// Whether a connection waits to be accepted.
    pub fn is_acceptable(&self, index: u32) -> bool {
        let (Role::Listener(halves), Some(engine)) = (self.sockets[index].role, &self.engine)
        else {
            return false;
        };
        let mut halves = halves.into_iter().flatten();
        halves.any(|id| engine.stack.tcp_acceptable(id) > 0)
    }

    /// The process is about to send to itself: sockets bound to `port` may not rest.
    pub fn activate_port(&mut self, datagram: bool, port: u16) -> Answer<()> {
        let resting = self.sockets.iter_mut().find_map(|(index, socket)| {
            let rests = match socket.role {
                Role::Dormant => true,
                Role::Undecided => datagram,
                _ => false,
            };
            let bound = socket.bound.is_some_and(|bound| bound.port == port);
            (rests && bound && socket.datagram == datagram).then_some(index)
        });
        match resting {
            Some(index) if datagram => self.make_datagram(index),
            Some(index) => self.activate(index),
            None => Ok(()),
        }
    }

    /// Does the same with each half of a socket; fails if it fails with all.
    fn each_half(
        &mut self,
        index: u32,
        mut each: impl FnMut(&mut State, usize, Endpoint) -> Answer<SocketId>,
    ) -> Answer<Halves> {
        let mut halves: Halves = [None, None];
        let mut failure = None;
        for (half, address) in self.half_addresses(index).into_iter().enumerate() {
            let Some(address) = address else { continue };
            match each(self, half, address) {
                Ok(id) => halves[half] = Some(id),
                Err(stop) => failure = Some((address, stop)),
            }
        }
        match (failure, halves) {
            (Some((address, stop)), [None, None]) => {
                log!(Error, "listening on {address} failed: {stop:?}");
                Err(stop)
            }
            _ => Ok(halves),
        }
    }

    /// The kernel's socket behind a descriptor listens too: for one that listens on all addresses, to what comes on loopback. No
    /// connection ever comes to an address of Skink's there, but nobody else can bind it now, whatever both have said of
    /// `SO_REUSEADDR`, and who looks for listening sockets finds it.
    fn listen_on_kernel(&mut self, fd: c_int, index: u32, backlog: u32) -> Answer<()> {
        kernel_listen(fd, backlog)?;
        let bound = self.sockets[index].bound;
        if bound.is_some_and(|local| !local.addr.is_unspecified()) {
            return Ok(());
        }
        let blocking = raw::fcntl(fd, libc::F_GETFL, 0)?;
        raw::fcntl(fd, libc::F_SETFL, blocking | libc::O_NONBLOCK as usize)?;
        self.sockets[index].kernel_listens = true;
        Ok(())
    }

    /// A listening socket is one that is bound. Threads in `accept` find out.
    pub fn stop_listening(&mut self, fd: c_int, index: u32) {
        self.release(index);
        self.sockets[index].role = Role::Undecided;
        self.unlisten_on_kernel(fd, index);
        self.mark_ready(index);
        self.wake_waiters(index);
    }

    /// The kernel's socket doesn't listen any more, if it did; it stays bound.
    pub fn unlisten_on_kernel(&mut self, fd: c_int, index: u32) {
        let socket = &mut self.sockets[index];
        if core::mem::take(&mut socket.kernel_listens) {
            let _ = restore_mode(fd, socket.nonblocking);
        }
        let arguments = [fd as usize, libc::SHUT_RD as usize, 0, 0, 0, 0];
        // SAFETY: only numbers.
        let _ = unsafe { raw::syscall(libc::SYS_shutdown, arguments) };
    }

    /// Another process is about to get a TCP socket that is bound: it may listen there, here, or in both. So it is bound on
    /// the stack, with a ticket by which all of them are the same ([`Socket::is_bound_only`]). If that fails, it stays the
    /// kernel's.
    pub fn rest_for_receiver(&mut self, index: u32) {
        if !self.sockets[index].may_listen() {
            return;
        }
        let engine = self.engine.as_deref();
        let served = engine.is_some_and(|engine| engine.stack.is_served() && engine.is_reachable());
        if served && self.rest(index).is_ok() {
            self.sockets[index].share_unheard();
        }
    }

    /// As [`State::rest_for_receiver`], for a program that is started, in whose name the socket is bound: who starts it may be
    /// in another's memory, without what leads to the stack. So are those that listen: who starts it may close them before it
    /// begins.
    pub fn bind_for_heir(&mut self, index: u32, heir: &mut Remote) {
        let socket = &self.sockets[index];
        let may_listen = socket.may_listen();
        let listens = is_listening(socket) && socket.tickets != [0; 2];
        if !(may_listen || listens) {
            return;
        }
        let (_, tickets) = self.bind_in_name_of(heir, index);
        if may_listen && tickets != [0; 2] {
            self.sockets[index].tickets = tickets;
            self.sockets[index].share_unheard();
        }
    }

    /// Binds what a socket is bound to in the name of another program, and lets it rest there, or listen in reserve. Answers
    /// that program's sockets, and the tickets of the halves.
    pub fn bind_in_name_of(&self, program: &mut Remote, index: u32) -> (Vec<SocketId>, [u64; 2]) {
        let socket = &self.sockets[index];
        let mut tickets = socket.tickets;
        // A half without one couldn't be bound, unless neither was tried.
        let is_first = tickets == [0; 2];
        let mut opened = Vec::new();
        for (address, ticket) in self.half_addresses(index).into_iter().zip(&mut tickets) {
            let Some(address) = address.filter(|_| is_first || *ticket != 0) else {
                continue;
            };
            let options = socket.options.for_bind(*ticket);
            let bound = program.open(Protocol::Tcp).and_then(|id| {
                opened.push(id);
                let (_, ticket) = program.bind(Protocol::Tcp, id, address, options)?;
                match socket.is_bound_only() || socket.may_listen() {
                    true => program.rest(id)?,
                    false => {
                        let reserve = ConnectionOption::Reserve(true);
                        for option in socket.options.for_connection().chain([reserve]) {
                            program.tcp_request(TcpRequest::SetOption(id, option));
                        }
                        program.listen(id, socket.backlog)?;
                    }
                }
                Ok(ticket)
            });
            match bound {
                Ok(bound) => *ticket = bound,
                Err(stop) => log!(Warn, "{address} can't be held for a program: {stop:?}"),
            }
        }
        (opened, tickets)
    }

    /// A socket that is bound only is to be connected.
    pub fn forget_receiver(&mut self, index: u32) {
        if self.sockets[index].is_bound_only() {
            self.release(index);
            self.sockets[index].role = Role::Undecided;
        }
    }

    /// Binds a socket that is going to listen, here or in another process, and lets it rest.
    pub fn rest(&mut self, index: u32) -> Answer<()> {
        let resting = self.each_half(index, |state, half, address| {
            let id = state.bind_on_stack(index, (half, address))?;
            state.engine()?.stack.tcp_rest(id)?;
            Ok(id)
        })?;
        self.sockets[index].resting = resting;
        Ok(())
    }

    /// Opens and binds half a socket.
    fn bind_on_stack(
        &mut self,
        index: u32,
        (half, address): (usize, Endpoint),
    ) -> Answer<SocketId> {
        let socket = &self.sockets[index];
        let options = socket.options.for_bind(socket.tickets[half]);
        let engine = self.engine()?;
        engine.count(Counter::AppSockets);
        engine.give_up_kept(address.port);
        let id = engine.stack.tcp_open()?;
        match engine.stack.tcp_bind(id, address, options) {
            Ok((_, ticket)) => {
                self.sockets[index].tickets[half] = ticket;
                Ok(id)
            }
            Err(stop) => {
                engine.stack.tcp_request(raw::now(), TcpRequest::Close(id));
                Err(stop)
            }
        }
    }

    fn listen_on_stack(
        &mut self,
        index: u32,
        place: (usize, Endpoint),
        resting: Option<SocketId>,
        backlog: u32,
    ) -> Answer<SocketId> {
        let id = match resting {
            Some(id) => id,
            None => self.bind_on_stack(index, place)?,
        };
        let now = raw::now();
        let options = self.sockets[index].options;
        let reserve = ConnectionOption::Reserve(self.sockets[index].taker == Taker::Others);
        let engine = self.engine()?;
        for option in options.for_connection().chain([reserve]) {
            engine
                .stack
                .tcp_request(now, TcpRequest::SetOption(id, option));
        }
        // Before it listens: the first connection may be offered at once.
        engine.own_tcp(id, index);
        if let Err(stop) = engine.stack.tcp_listen(now, id, backlog) {
            engine.disown_tcp(id);
            engine.stack.tcp_request(now, TcpRequest::Close(id));
            return Err(stop);
        }
        Ok(id)
    }
}
