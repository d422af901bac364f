//! The socket library: an unmodified program's socket calls, on Skink.
//!
//! **Purpose.** `libskink.so` is preloaded into a program. It stands in front of libc's socket
//! functions; what concerns Skink's sockets is done here, on a stack inside the process, and
//! everything else goes on to libc untouched.
//!
//! **Place on the data path.** Between the program and [`skink_library::Stack`]: bytes are copied
//! between the program's buffers and the rings of a socket, and whichever thread waits for a socket
//! drives the stack.
//!
//! **What survives a restart.** Nothing of its own. Sockets' records and rings are in the memory that
//! is registered with the broker.
//!
//! **How.** Every socket is a real descriptor (`fd_table` knows which are Skink's): a kernel socket
//! that stays behind it until it is known whether the socket is Skink's or the kernel's
//! (`fallback`), and that holds its port. One lock (`lock`) is around all state; `wait` says
//! who drives the stack, `helper` drives it when nobody does, `epoll` joins Skink's sockets with
//! the kernel's. After `fork` a child begins anew (`fork`), and at its end a process waits until
//! everything has arrived (`exit`).
//!
//! **What it leaves out.** Connections of the parent in a forked child, sockets inherited over `exec`
//! or passed over Unix sockets, `fdopen` of a socket (libc's streams don't come by here), `io_uring`
//! (refused), urgent data, and cancellation of a thread that waits for one of Skink's sockets. A
//! program that passes a bad pointer gets `SIGSEGV` instead of `EFAULT`. A signal handler that makes
//! a call on a socket while it interrupts another such call in the same thread gets `EAGAIN`.

use core::sync::atomic::{AtomicBool, Ordering};

mod accept;
mod attach;
mod buffers;
mod calls;
mod connect;
mod descriptor;
mod engine;
pub mod entry;
mod epoll;
mod epoll_set;
mod epoll_wait;
mod errno;
mod estate;
mod exec;
mod exit;
mod fallback;
mod fd_table;
mod fork;
mod getsockopt;
mod helper;
mod listen;
mod lock;
mod log;
mod message;
mod next;
mod options;
mod poll;
mod provider;
mod raw;
mod readiness;
mod remote;
mod sendfile;
mod slots;
mod sockaddr;
mod socket;
mod sockopt;
mod spawn;
mod state;
mod syscall;
mod transfer;
mod wait;

static ON: AtomicBool = AtomicBool::new(false);

/// Whether Skink serves this process at all.
#[inline]
fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

/// Runs when the library is loaded, before the program.
extern "C" fn start() {
    let _ = std::panic::catch_unwind(|| {
        log::start();
        if !attach::note_broker() {
            return;
        }
        fallback::start();
        descriptor::start();
        if fd_table::start() {
            fork::start();
            exit::start();
            exec::start();
            if let Ok(mut state) = lock::lock() {
                estate::take_over(&mut state);
            }
            ON.store(true, Ordering::Relaxed);
        }
    });
}
