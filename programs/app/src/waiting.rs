//! Whether threads sleep for a connection to a listening socket, shown to a stack in another process, or to the other stacks on the NIC.
//!
//! Of processes that share a socket, who waits gets the next connection, as with the kernel's one queue (docs/decisions/0025). A
//! process with a stack of its own doesn't say so of epoll sets: flows would go to one by whose queue they don't come.
use crate::socket::{Halves, Role};
use crate::state::State;
use skink_messages::ConnectionOption;

/// Of more listening sockets it isn't looked which ones a set has.
const FEW: usize = 16;

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

    /// A thread begins to sleep on an epoll set, or has slept there: that is shown of the listening sockets in it.
    #[inline]
    pub fn show_waiting_on(&mut self, set: u32) {
        if !self.listeners.is_empty() && self.is_served() {
            self.show_of_set(set);
        }
    }

    #[cold]
    fn show_of_set(&mut self, set: u32) {
        let sockets = &self.sockets;
        self.listeners
            .retain(|index| matches!(sockets[*index].role, Role::Listener(_)));
        if self.listeners.len() > FEW {
            return;
        }
        for at in 0..self.listeners.len() {
            let index = self.listeners[at];
            let watchers = &self.sockets[index].watchers;
            if watchers.iter().any(|watch| watch.epoll == set) {
                self.show_waiting(index);
            }
        }
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
        let served = self.is_served();
        let socket = &self.sockets[index];
        let mut sets = socket
            .watchers
            .iter()
            .map(|watch| &self.epolls[watch.epoll]);
        let on_a_set = served && sets.any(|set| set.sleepers > 0);
        let threads = socket.waiters.len() + usize::from(on_a_set);
        let Some(engine) = &mut self.engine else {
            return;
        };
        let halves = halves.into_iter().flatten();
        if engine.stack.tcp_show_waiting(halves, threads) {
            self.pass_option(index, ConnectionOption::Reserve(false));
        }
    }

    /// The socket listens on the stack from now on.
    pub fn note_listener(&mut self, index: u32) {
        if !self.listeners.contains(&index) {
            self.listeners.push(index);
        }
    }
}
