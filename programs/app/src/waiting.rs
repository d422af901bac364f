//! Whether threads sleep for a connection to a listening socket, by `accept`, `poll` or `select`, shown to a stack in another process.
//!
//! Of processes that share a socket, who waits gets the next connection, as with the kernel's one queue (docs/decisions/0025).
//! Processes that wait on epoll sets don't say so: they serve many connections, and wait again soon.
use crate::socket::{Halves, Role};
use crate::state::State;
use core::sync::atomic::Ordering;
use skink_messages::ConnectionOption;

impl State {
    /// The waiter `id` is about to sleep until this socket, or another one, has something for it.
    #[inline]
    pub fn begins_to_wait(&mut self, index: u32, id: u32) {
        self.sockets[index].waiters.push(id);
        if let Some(halves) = self.shared_listener(index) {
            self.show_waiting(index, halves);
        }
    }

    /// It has slept.
    #[inline]
    pub fn has_waited(&mut self, index: u32, id: u32) {
        self.sockets[index].waiters.retain(|waiter| *waiter != id);
        self.show_whether_busy(index);
    }

    /// If nobody waits for this socket, that is shown.
    pub fn show_whether_busy(&mut self, index: u32) {
        if let Some(halves) = self.shared_listener(index)
            && self.sockets[index].waiters.is_empty()
        {
            self.show_busy(halves);
        }
    }

    /// The halves of a listening socket that other processes may have, too.
    #[inline]
    fn shared_listener(&self, index: u32) -> Option<Halves> {
        let socket = &self.sockets[index];
        match socket.role {
            Role::Listener(halves)
                if (socket.lent || crate::fork::has_lent_unmarked()) && !self.has_own_stack() =>
            {
                Some(halves)
            }
            _ => None,
        }
    }

    #[cold]
    fn show_waiting(&mut self, index: u32, halves: Halves) {
        let Some(engine) = &self.engine else {
            return;
        };
        let mut wanted = false;
        let table = engine.stack.tcp_table();
        for id in halves.into_iter().flatten() {
            table.set_waiting(id, true);
            let record = table.find(id);
            wanted |= record.is_some_and(|record| record.is_wanted.load(Ordering::Relaxed) != 0);
        }
        if wanted {
            self.pass_option(index, ConnectionOption::Reserve(false));
        }
    }

    #[cold]
    fn show_busy(&self, halves: Halves) {
        if let Some(engine) = &self.engine {
            for id in halves.into_iter().flatten() {
                engine.stack.tcp_table().set_waiting(id, false);
            }
        }
    }
}
