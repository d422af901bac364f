//! Whether threads sleep for a connection to a listening socket, by `accept`, `poll` or `select`, shown to a stack in another process,
//! or to the other stacks on the NIC.
//!
//! Of processes that share a socket, who waits gets the next connection, as with the kernel's one queue (docs/decisions/0025).
//! Processes that wait on epoll sets don't say so: they serve many connections, and wait again soon.
use crate::socket::{Halves, Role};
use crate::state::State;
use skink_messages::ConnectionOption;

impl State {
    /// The waiter `id` is about to sleep until this socket, or another one, has something for it.
    #[inline]
    pub fn begins_to_wait(&mut self, index: u32, id: u32) {
        self.sockets[index].waiters.push(id);
        self.show_waiting(index);
    }

    /// It has slept.
    #[inline]
    pub fn has_waited(&mut self, index: u32, id: u32) {
        self.sockets[index].waiters.retain(|waiter| *waiter != id);
        self.show_waiting(index);
    }

    /// How many threads wait for this socket is shown, if it listens and other processes may have it, too.
    #[inline]
    pub fn show_waiting(&mut self, index: u32) {
        let socket = &self.sockets[index];
        if let Role::Listener(halves) = socket.role
            && (socket.lent || crate::fork::has_lent_unmarked())
        {
            self.show(index, halves);
        }
    }

    #[cold]
    fn show(&mut self, index: u32, halves: Halves) {
        let threads = self.sockets[index].waiters.len();
        let Some(engine) = &mut self.engine else {
            return;
        };
        let mut wanted = false;
        for id in halves.into_iter().flatten() {
            wanted |= engine.stack.tcp_show_waiting(id, threads);
        }
        if wanted {
            self.pass_option(index, ConnectionOption::Reserve(false));
        }
    }
}
