//! `SO_LINGER` with a time.
use crate::errno::{Answer, WOULD_BLOCK};
use crate::fd_table::{self, Entry};
use crate::lock::{Guard, lock};
use crate::raw;
use crate::socket::Role;
use crate::state::State;
use crate::wait::{Patience, until};
use core::ffi::c_int;
use core::sync::atomic::Ordering;
use core::time::Duration;
use skink_messages::{Shutdown, TcpRequest};

/// How long who lingers is without a look at what has become of its connection: `skink up` doesn't wake for what is acknowledged.
const LOOK: Duration = Duration::from_millis(20);

/// What `close` does last with `SO_LINGER`, as on Linux (socket(7)): it waits until the peer has acknowledged all that was written, and
/// the end, though the socket be one that doesn't block. A signal handler ends that too, and what still comes, which is answered
/// by a reset. No descriptor stands for the socket any more; it is closed then.
pub fn wait(mut state: Guard, index: u32, time: Duration) -> Answer<Guard> {
    let cookie = state.sockets[index].cookie;
    let end = raw::now() + time;
    state.end_sending(index);
    loop {
        let next = end.min(raw::now() + LOOK);
        let over = until(state, index, Patience::Until(next), |state, index| {
            let is_over = state.has_delivered(index);
            if is_over { Ok(()) } else { Err(WOULD_BLOCK) }
        });
        state = lock()?;
        if over != Err(WOULD_BLOCK) || next == end {
            if state.sockets[index].cookie == cookie {
                state.destroy(index);
            }
            return Ok(state);
        }
    }
}

impl State {
    /// For how long the end of this socket is to be waited for, if a descriptor of it is closed.
    pub fn lingers(&self, index: u32) -> Option<Duration> {
        let socket = &self.sockets[index];
        let seconds = socket.options.linger.filter(|seconds| *seconds > 0)?;
        let Role::Stream(id) = socket.role else {
            return None;
        };
        let [_, receive] = self.engine.as_deref()?.stack.tcp_table().find_rings(id)?;
        // What is unread is answered by a reset.
        let ends =
            socket.fds.len() == 1 && !socket.lent && !socket.connecting && receive.is_empty();
        ends.then(|| Duration::from_secs(u64::from(seconds)))
    }

    /// The last descriptor of a socket is closed, but the socket isn't yet.
    pub fn leave_socket(&mut self, fd: c_int, index: u32) {
        fd_table::set(fd, Entry::Ordinary);
        self.sockets[index].fds.clear();
        self.unwatch(index);
    }

    /// Nothing more is sent but what was written, and the end.
    fn end_sending(&mut self, index: u32) {
        if let Role::Stream(id) = self.sockets[index].role
            && !self.sockets[index].shut_write
            && let Some(engine) = self.engine.as_deref_mut()
        {
            self.sockets[index].shut_write = true;
            let shutdown = TcpRequest::Shutdown(id, Shutdown::Write);
            engine.stack.tcp_request(raw::now(), shutdown);
            self.note_work();
        }
    }

    /// Whether a connection that sends nothing more has delivered all of that, or has ended, or has more to read.
    fn has_delivered(&self, index: u32) -> bool {
        let (Role::Stream(id), Some(engine)) = (self.sockets[index].role, &self.engine) else {
            return true;
        };
        let table = engine.stack.tcp_table();
        if table
            .find_rings(id)
            .is_none_or(|[_, receive]| !receive.is_empty())
        {
            return true;
        }
        let record = table.find(id);
        let state = record.map(|record| record.state.load(Ordering::Relaxed));
        !state
            .and_then(skink_tcp::State::from_number)
            .is_some_and(skink_tcp::State::is_unacknowledged)
    }
}
