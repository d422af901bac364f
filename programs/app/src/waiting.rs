//! Whether threads sleep for a connection to a listening socket, shown to a stack in another process, or to the other stacks on the NIC.
//!
//! Of processes that share a socket, who waits gets the next connection, as with the kernel's one queue (docs/decisions/0025). A
//! process with a stack of its own says nothing of sockets in epoll sets: who serves many accepts soon, and a flow would go to one by whose
//! queue it doesn't come.
use crate::socket::{Halves, Role};
use crate::state::State;
use skink_messages::ConnectionOption;

/// Of so many listening sockets it is looked whether a set has them, the oldest first: what is said of one must be said each time.
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
        // Where the process has a stack of its own, nothing changes by that.
        if !self.listeners.is_empty() && !self.has_own_stack() {
            self.show_of_set(set);
        }
    }

    #[cold]
    fn show_of_set(&mut self, set: u32) {
        let sockets = &self.sockets;
        self.listeners
            .retain(|index| matches!(sockets[*index].role, Role::Listener(_)));
        for at in 0..self.listeners.len().min(FEW) {
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
        let threads = self.threads_for(index);
        let Some(engine) = &mut self.engine else {
            return;
        };
        let before = core::mem::replace(&mut self.sockets[index].said, threads.is_some());
        if threads.is_none() && !before {
            return;
        }
        let halves = halves.into_iter().flatten();
        if engine.stack.tcp_show_waiting(halves, threads) {
            self.pass_option(index, ConnectionOption::Reserve(false));
        }
    }

    /// How many threads sleep until the socket has a connection; `None` if its process, which has a stack of its own, may accept one
    /// soon though none does.
    fn threads_for(&mut self, index: u32) -> Option<usize> {
        let served = self.is_served();
        let socket = &self.sockets[index];
        let mut sets = socket
            .watchers
            .iter()
            .map(|watch| &self.epolls[watch.epoll]);
        let on_a_set = served && sets.any(|set| set.sleepers > 0);
        match socket.waiters.len() + usize::from(on_a_set) {
            0 if !served && !socket.watchers.is_empty() => None,
            threads => Some(threads),
        }
    }

    /// The socket listens on the stack from now on.
    pub fn note_listener(&mut self, index: u32) {
        if !self.listeners.contains(&index) {
            self.listeners.push(index);
        }
    }
}
