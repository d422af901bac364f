//! `fork`: the child begins without a stack. Its copy of the parent's is dead memory: the rings of a
//! NIC have one user. Listening sockets rest in the child until it waits on them, and then go on a
//! stack of its own; connections stay with the parent.
use crate::fd_table::{self, Entry};
use crate::lock::{Guard, lock};
use crate::log::log;
use crate::raw;
use crate::socket::Role;
use core::cell::Cell;

thread_local! {
    /// The lock, while this thread forks.
    static FORKING: Cell<Option<Guard>> = const { Cell::new(None) };
}

/// Registers the handlers that run around `fork`.
pub fn start() {
    // SAFETY: the functions are there for as long as the library is.
    unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
}

/// Before `fork`: nobody is in the middle of a change.
pub extern "C" fn prepare() {
    // In a signal handler that interrupted a call of ours the lock is this thread's already.
    FORKING.set(lock().ok());
}

/// After `fork`, in the parent.
pub extern "C" fn parent() {
    drop(FORKING.take());
}

/// After `fork`, in the child.
pub extern "C" fn child() {
    let held = FORKING.take();
    core::mem::forget(held);
    let mut state = Guard::take_over();
    crate::descriptor::start();
    crate::helper::forget();
    state.parking.forget_threads();
    state.epolls_after_fork();
    let Some(engine) = state.engine.take() else {
        return;
    };
    // The parent's NIC must be closed when the parent dies, and the broker must notice.
    for fd in &engine.descriptors {
        fd_table::set(*fd, Entry::Ordinary);
        raw::close(*fd);
    }
    // Never dropped: that would take down what is the parent's.
    core::mem::forget(engine);
    let mut lost = 0;
    for (_, socket) in state.sockets.iter_mut() {
        socket.waiters.clear();
        socket.role = match socket.role {
            Role::Undecided => Role::Undecided,
            Role::Dormant { backlog } => Role::Dormant { backlog },
            Role::Listener(_) => Role::Dormant { backlog: 4096 },
            Role::Datagram(_) if socket.own_kernel_socket && socket.peer.is_none() => {
                Role::Undecided
            }
            Role::Datagram(_) | Role::Stream(_) | Role::Lost => {
                lost += 1;
                socket.connecting = false;
                Role::Lost
            }
        };
    }
    if lost > 0 {
        log!(
            Warn,
            "{lost} connections stay with the parent process: calls on them fail here"
        );
    }
}
