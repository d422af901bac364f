//! Whether threads sleep for a connection to a listening socket, shown to the stack in shared memory.
//!
//! Of processes that share a socket, who waits gets the next connection, as with the kernel's one queue (docs/decisions/0025).
use crate::socket::Role;
use crate::state::State;
use core::sync::atomic::Ordering;
use skink_messages::ConnectionOption;

/// A process that waits at more sockets doesn't say so: looking through them at each sleep would cost more than it is worth.
const MOST: usize = 16;

impl State {
    /// Somebody asks for connections to this socket.
    pub fn note_listening(&mut self, index: u32) {
        let sockets = &self.sockets;
        let is_listening = |index: &u32| matches!(sockets[*index].role, Role::Listener(_));
        if !self.listening.contains(&index) {
            self.listening.retain(is_listening);
            self.listening.push(index);
        }
    }

    /// Threads have begun or ceased to wait at the members of a set.
    pub fn show_set_waits(&mut self, set: u32) {
        if self.listening.len() > MOST {
            return;
        }
        for at in 0..self.listening.len() {
            let index = self.listening[at];
            let watchers = &self.sockets[index].watchers;
            if watchers.iter().any(|watch| watch.epoll == set) {
                self.show_waits(index);
            }
        }
    }

    /// Threads have begun or ceased to wait for this socket.
    #[inline]
    pub fn show_waits(&mut self, index: u32) {
        if let Role::Listener(halves) = self.sockets[index].role {
            self.show_waits_at(index, halves);
        }
    }

    #[inline(never)]
    fn show_waits_at(&mut self, index: u32, halves: crate::socket::Halves) {
        let socket = &self.sockets[index];
        let is_shared =
            socket.lent || socket.options.reuse_port || crate::fork::has_lent_unmarked();
        let Some(engine) = self.engine.as_deref().filter(|_| is_shared) else {
            return;
        };
        let waits = !socket.waiters.is_empty()
            || socket.watchers.iter().any(|watch| {
                let set = &self.epolls[watch.epoll];
                let events = set.items[watch.item as usize].events;
                set.sleepers > 0 && events & libc::EPOLLIN as u32 != 0
            });
        let table = engine.stack.tcp_table();
        let mut wanted = false;
        for id in halves.into_iter().flatten() {
            table.set_waiting(id, waits);
            let record = table.find(id).filter(|_| waits);
            wanted |= record.is_some_and(|record| record.is_wanted.load(Ordering::Relaxed) != 0);
        }
        if wanted {
            self.pass_option(index, ConnectionOption::Reserve(false));
            self.note_work();
        }
    }
}
