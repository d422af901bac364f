//! Whether threads sleep for a connection to a listening socket, shown to a stack in another process, or to the other stacks on the NIC.
//!
//! Of processes that share a socket, who waits gets the next connection, as with the kernel's one queue (docs/decisions/0025). In a
//! process with a stack of its own a socket in an epoll set has its share nevertheless: who serves many accepts soon, and a flow
//! would go to one by whose queue it doesn't come. What it leaves waiting goes to who waits.
use crate::socket::{Halves, Role};
use crate::state::State;
use skink_messages::{ConnectionOption, Waits};

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
        if !self.listeners.is_empty() {
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
        let waits = self.waits_for(index);
        let Some(engine) = &mut self.engine else {
            return;
        };
        let halves = halves.into_iter().flatten();
        if engine.stack.tcp_show_waiting(halves, waits) {
            self.pass_option(index, ConnectionOption::Reserve(false));
        }
    }

    /// How threads of this process wait until the socket has a connection.
    fn waits_for(&self, index: u32) -> Waits {
        let socket = &self.sockets[index];
        // Who was told of what is there, and won't be again, sleeps until something else comes.
        let on_a_set = socket.watchers.iter().any(|watch| {
            let set = &self.epolls[watch.epoll];
            set.sleepers > 0 && set.tells(watch.item, || self.is_acceptable(index))
        });
        Waits {
            threads: socket.waiters.len() + usize::from(on_a_set),
            only_then: socket.watchers.is_empty(),
        }
    }

    /// The socket listens on the stack from now on.
    pub fn note_listener(&mut self, index: u32) {
        if !self.listeners.contains(&index) {
            self.listeners.push(index);
        }
    }
}
