//! Listening sockets that this process has closed, and others have.
//!
//! In the kernel such a socket goes on to queue connections, whoever closes it first. Here each process has a stack of its own, and one
//! that has the socket, and hasn't used it, has none (Apache's parent, whose only child stops to listen before it ends). So the
//! listener of the process that closed it stays on the stack, in reserve (docs/decisions/0025), until another one listens, or nobody
//! has the socket any more. Of that the kernel knows: its own socket, behind the descriptors, listens too.
use crate::engine::Engine;
use crate::log::log;
use crate::provider::Provider;
use crate::raw;
use crate::socket::Role;
use crate::state::{State, internal};
use core::ffi::c_int;
use rustix::net::sockopt::socket_cookie;
use skink_library::Stack;
use skink_memory::SocketId;
use skink_messages::{ConnectionOption, TcpRequest};
use skink_socket_diag::SocketDiag;
use skink_time::Instant;
use skink_wire::Endpoint;
use std::os::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::time::Duration;

/// How often it is looked whether others still have the socket.
const AGAIN: Duration = Duration::from_millis(50);

/// So many at a time.
const MOST: usize = 64;

/// One of them.
struct Listener {
    ids: Vec<SocketId>,
    /// Where the kernel's socket listens, and its cookie.
    local: Endpoint,
    cookie: u64,
}

/// All of them.
#[derive(Default)]
pub struct Kept {
    list: Vec<Listener>,
    /// Asks the kernel. Once it is made it stays: the helper has a copy of its descriptor.
    diag: Option<SocketDiag>,
    /// When to look next, if there are any.
    look: Instant,
}

impl Kept {
    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// When they are to be looked after.
    pub fn deadline(&self) -> Option<Instant> {
        (!self.list.is_empty()).then_some(self.look)
    }
}

impl State {
    /// `fd`, the last descriptor of socket `index`, is about to be closed. If it listens on this process's own stack, and other processes may
    /// have it, it stays there. Answers whether it does.
    pub fn keep_for_others(&mut self, index: u32, fd: c_int) -> bool {
        let socket = &self.sockets[index];
        let Role::Listener(halves) = socket.role else {
            return false;
        };
        let is_lent = socket.lent || crate::fork::has_lent_unmarked();
        let (Some(local), true) = (socket.bound, is_lent && self.has_own_stack()) else {
            return false;
        };
        // SAFETY: it is open, or was closed behind our back: then the cookie is of no use.
        let cookie = socket_cookie(unsafe { BorrowedFd::borrow_raw(fd) });
        let (Some(engine), Ok(cookie)) = (self.engine.as_deref_mut(), cookie) else {
            return false;
        };
        // (Where nothing steers nobody else can have a stack.)
        if engine.is_sole || engine.kept.list.len() >= MOST || !engine.may_ask_kernel() {
            return false;
        }
        let now = raw::now();
        let ids: Vec<SocketId> = halves.into_iter().flatten().collect();
        for id in &ids {
            engine.disown_tcp(*id);
            let reserve = TcpRequest::SetOption(*id, ConnectionOption::Reserve(true));
            engine.stack.tcp_request(now, reserve);
        }
        engine.kept.list.push(Listener { ids, local, cookie });
        // Once this descriptor is closed, too.
        engine.kept.look = now;
        self.sockets[index].role = Role::Lost;
        self.note_work();
        true
    }

    /// Whether a listening socket of this process, which is about to end, stays on its stack, in reserve: nobody else listens there, and who
    /// takes the process's place goes on if others have the socket.
    pub fn stays_in_reserve(&mut self, index: u32) -> bool {
        let socket = &self.sockets[index];
        let (Role::Listener(halves), Some(local)) = (socket.role, socket.bound) else {
            return false;
        };
        let Some(engine) = self.engine.as_deref_mut().filter(|it| !it.is_sole) else {
            return false;
        };
        let Provider::Library(stack) = &mut engine.stack else {
            return false;
        };
        let now = raw::now();
        for id in halves.into_iter().flatten() {
            let reserve = TcpRequest::SetOption(id, ConnectionOption::Reserve(true));
            stack.tcp_request(now, reserve);
        }
        // Only then: of two that end at the same time neither counts on the other.
        if stack.is_relieved(local.port) {
            return false;
        }
        for id in halves.into_iter().flatten() {
            engine.disown_tcp(id);
        }
        true
    }
}

impl Engine {
    /// Whether the kernel can be asked. A program that confines itself later may not make sockets then.
    fn may_ask_kernel(&mut self) -> bool {
        if self.kept.diag.is_none()
            && let Ok(diag) = SocketDiag::open()
        {
            let fd = internal(OwnedFd::from(diag).into_raw_fd());
            self.descriptors.push(fd);
            // SAFETY: it was just made, and nobody else has it.
            let socket = unsafe { OwnedFd::from_raw_fd(fd) };
            self.kept.diag = Some(SocketDiag::from(socket));
            // The helper has descriptors of its own, and asks, too.
            crate::helper::renew();
        }
        self.kept.diag.is_some()
    }

    /// Closes what nobody else has, or another process listens on.
    pub fn look_after_kept(&mut self, now: Instant) {
        if self.kept.deadline().is_none_or(|look| look > now) {
            return;
        }
        self.kept.look = now + AGAIN;
        let (Provider::Library(stack), Some(diag)) = (&mut self.stack, &mut self.kept.diag) else {
            return;
        };
        self.kept.list.retain(|it| {
            let stays = !stack.is_relieved(it.local.port) && diag.listens(it.local, it.cookie);
            if !stays {
                close(stack, now, it);
            }
            stays
        });
    }

    /// The program is about to bind this port: the kernel has let it, so nobody has the sockets any more that were kept there, or they share
    /// it.
    pub fn give_up_kept(&mut self, port: u16) {
        if self.kept.is_empty() {
            return;
        }
        let Provider::Library(stack) = &mut self.stack else {
            return;
        };
        self.kept.list.retain(|it| {
            let stays = it.local.port != port;
            if !stays {
                close(stack, raw::now(), it);
            }
            stays
        });
    }
}

fn close(stack: &mut Stack, now: Instant, listener: &Listener) {
    let Listener { ids, local, .. } = listener;
    log!(Info, "nobody is to be kept waiting on {local} any more");
    for id in ids {
        stack.tcp_request(now, TcpRequest::Close(*id));
    }
}
