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
use crate::state::State;
use skink_memory::SocketId;
use skink_messages::{ConnectionOption, TcpRequest};
use skink_socket_diag::SocketDiag;
use skink_time::Instant;
use skink_wire::Endpoint;
use std::time::Duration;

/// How often it is looked whether others still have the socket.
const AGAIN: Duration = Duration::from_millis(50);

/// One of them.
struct Listener {
    ids: Vec<SocketId>,
    /// Where the kernel's socket listens.
    local: Endpoint,
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
    /// The last descriptor of socket `index` is about to be closed. If it listens on this process's own stack, and other processes may
    /// have it, it stays there.
    pub fn keep_for_others(&mut self, index: u32) {
        let socket = &self.sockets[index];
        let Role::Listener(halves) = socket.role else {
            return;
        };
        let is_lent = socket.lent || crate::fork::has_lent_unmarked();
        let (Some(local), true) = (socket.bound, is_lent && self.has_own_stack()) else {
            return;
        };
        let Some(engine) = self.engine.as_deref_mut() else {
            return;
        };
        let now = raw::now();
        let ids: Vec<SocketId> = halves.into_iter().flatten().collect();
        for id in &ids {
            engine.disown_tcp(*id);
            let reserve = TcpRequest::SetOption(*id, ConnectionOption::Reserve(true));
            engine.stack.tcp_request(now, reserve);
        }
        engine.kept.list.push(Listener { ids, local });
        // Once this descriptor is closed, too.
        engine.kept.look = now;
        self.sockets[index].role = Role::Lost;
        self.note_work();
    }

    /// Whether another process's stack listens where the socket does.
    pub fn do_others_listen(&mut self, index: u32) -> bool {
        let port = self.sockets[index].bound.map_or(0, |local| local.port);
        match self.engine.as_deref_mut().map(|engine| &mut engine.stack) {
            Some(Provider::Library(stack)) => stack.others_listen(port),
            _ => false,
        }
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
        // A program that has confined itself may have none.
        let mut diag = SocketDiag::open().ok();
        self.kept.list.retain(|Listener { ids, local }| {
            let listens = |diag: &mut SocketDiag| diag.listens(*local);
            let stays = !stack.is_relieved(local.port) && diag.as_mut().is_some_and(listens);
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
