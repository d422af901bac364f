//! Listening sockets that this process has closed, and others have.
//!
//! In the kernel such a socket goes on to queue connections, whoever closes it first. Here each process has a stack of its own, and one
//! that has the socket, and hasn't used it, has none (Apache's parent, whose only child stops to listen before it ends). So the
//! listener of the process that closed it stays on the stack, in reserve (docs/decisions/0025), until another one listens, or nobody
//! has the socket any more. Of that the kernel knows: its own socket, behind the descriptors, listens too.
use crate::engine::Engine;
use crate::listener_of_kernel::listens;
use crate::log::log;
use crate::provider::Provider;
use crate::raw;
use crate::socket::Role;
use crate::state::State;
use core::ffi::c_int;
use rustix::net::sockopt::socket_cookie;
use skink_memory::SocketId;
use skink_messages::{ConnectionOption, TcpRequest};
use skink_time::Instant;
use skink_wire::Endpoint;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// How often it is looked whether others still have the socket.
const AGAIN: Duration = Duration::from_millis(50);

/// One of them.
struct Listener {
    ids: Vec<SocketId>,
    /// The kernel's socket: where it listens, and its cookie (`SO_COOKIE`).
    kernel: (Endpoint, u64),
}

/// All of them.
#[derive(Default)]
pub struct Kept {
    list: Vec<Listener>,
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
    /// The program closes `fd`, the last descriptor of socket `index`. If that listens on this process's own stack, and other processes may have
    /// it, it stays there.
    pub fn keep_for_others(&mut self, index: u32, fd: c_int) {
        let socket = &self.sockets[index];
        let Role::Listener(halves) = socket.role else {
            return;
        };
        let is_lent = socket.lent || crate::fork::has_lent_unmarked();
        let (Some(bound), true) = (socket.bound, is_lent && self.has_own_stack()) else {
            return;
        };
        // SAFETY: it is open, or was closed behind our back: then another one's cookie is of no use.
        let cookie = socket_cookie(unsafe { BorrowedFd::borrow_raw(fd) });
        let (Some(engine), Ok(cookie)) = (self.engine.as_deref_mut(), cookie) else {
            return;
        };
        let now = raw::now();
        let ids: Vec<SocketId> = halves.into_iter().flatten().collect();
        for id in &ids {
            engine.disown_tcp(*id);
            let reserve = ConnectionOption::Reserve(true);
            engine
                .stack
                .tcp_request(now, TcpRequest::SetOption(*id, reserve));
        }
        let kernel = (bound, cookie);
        engine.kept.list.push(Listener { ids, kernel });
        // Once this descriptor is closed, too.
        engine.kept.look = now;
        self.sockets[index].role = Role::Lost;
        self.note_work();
    }
}

impl Engine {
    /// Closes what nobody else has, or another process listens on.
    pub fn look_after_kept(&mut self, now: Instant) {
        if self.kept.deadline().is_none_or(|look| look > now) {
            return;
        }
        self.kept.look = now + AGAIN;
        let Provider::Library(stack) = &mut self.stack else {
            return;
        };
        self.kept.list.retain(|Listener { ids, kernel }| {
            let (local, cookie) = *kernel;
            let stays = !stack.others_listen(local.port) && listens(local, cookie);
            if !stays {
                log!(Info, "nobody is to be kept waiting on {local} any more");
                for id in ids {
                    stack.tcp_request(now, TcpRequest::Close(*id));
                }
            }
            stays
        });
    }
}
