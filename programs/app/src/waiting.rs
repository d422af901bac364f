//! Whether threads sleep for a connection to a listening socket, by `accept`, `poll` or `select`, shown to the stack.
//!
//! Of processes that share a socket, who waits gets the next connection, as with the kernel's one queue (docs/decisions/0025). A stack
//! in another process sees it in shared memory; stacks of the processes' own leave new flows to each other by the NIC's steering.
//!
//! Processes that wait on epoll sets don't say so. They serve many connections, and wait again soon.
use crate::socket::{Halves, Role};
use crate::state::State;
use core::sync::atomic::Ordering;
use skink_messages::ConnectionOption;

/// A process that listens on more sockets leaves no flows to others: it would look through them at each sleep.
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

    /// The calling thread is about to sleep until this socket, or another one, has something for it.
    #[inline]
    pub fn begins_to_wait(&mut self, index: u32) {
        if let Some(halves) = self.shared_listener(index) {
            self.show_waiting(index, halves);
        }
    }

    /// A thread has slept for this socket. A stack in this process hasn't looked yet at what woke it.
    #[inline]
    pub fn has_waited(&mut self, index: u32) {
        if let Some(halves) = self.shared_listener(index)
            && self.sockets[index].waiters.is_empty()
            && !self.has_own_stack()
        {
            self.show_busy(halves);
        }
    }

    /// The calling thread is about to sleep: connections for which nobody here waits are for other processes. (Not before that: who is
    /// at work may have done soon, and a flow that is on its way here then has to be asked for again.)
    #[inline]
    pub fn leave_flows(&mut self) {
        if (1..=MOST).contains(&self.listening.len()) && self.has_own_stack() {
            for at in 0..self.listening.len() {
                self.leave_flows_of(self.listening[at]);
            }
        }
    }

    /// The connections of a listening socket that others may have, too.
    #[inline]
    fn shared_listener(&self, index: u32) -> Option<Halves> {
        let socket = &self.sockets[index];
        match socket.role {
            Role::Listener(halves) if socket.lent || crate::fork::has_lent_unmarked() => {
                Some(halves)
            }
            _ => None,
        }
    }

    #[cold]
    fn show_waiting(&mut self, index: u32, halves: Halves) {
        let port = self.local_port(index);
        let Some(engine) = self.engine.as_deref_mut() else {
            return;
        };
        engine.stack.note_waits(port, true);
        self.sockets[index].waited = true;
        let mut wanted = false;
        let table = engine.stack.tcp_table();
        for id in halves.into_iter().flatten() {
            table.set_waiting(id, true);
            let record = table.find(id);
            wanted |= record.is_some_and(|record| record.is_wanted.load(Ordering::Relaxed) != 0);
        }
        if wanted {
            self.pass_option(index, ConnectionOption::Reserve(false));
            self.note_work();
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

    fn leave_flows_of(&mut self, index: u32) {
        let Some(halves) = self.shared_listener(index) else {
            return;
        };
        if !self.sockets[index].waited || !self.sockets[index].waiters.is_empty() {
            return;
        }
        self.show_busy(halves);
        let port = self.local_port(index);
        let mut all = self.listening.iter();
        // On another address.
        let waits = |other: u32| !self.sockets[other].waiters.is_empty();
        let port_waits = all.any(|other| self.local_port(*other) == port && waits(*other));
        if let Some(engine) = self.engine.as_deref_mut()
            && !port_waits
        {
            engine.stack.note_waits(port, false);
        }
    }

    fn local_port(&self, index: u32) -> u16 {
        self.sockets[index].bound.map_or(0, |local| local.port)
    }
}
