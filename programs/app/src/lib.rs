//! The socket library: an unmodified program's socket calls, on Skink.
//!
//! **Purpose.** `libskink.so` is preloaded into a program. It stands in front of libc's socket
//! functions; what concerns Skink's sockets is done here, on a stack inside the process, and
//! everything else goes on to libc untouched.
//!
//! **Place on the data path.** Between the program and its stack ([`skink_library::Stack`], or one in
//! another process at the end of a [`skink_sockets::Client`]): bytes are copied between the program's
//! buffers and the rings of a socket. A stack in the process is driven by whichever thread waits for a
//! socket; one in another process by itself.
//!
//! **What survives a restart.** Nothing of its own. Sockets' records and rings are in memory that is
//! registered with the broker, or was made by the supervisor. If a stack in another process is lost for good,
//! connections fail with `ECONNRESET` and calls with `ENETDOWN`.
//!
//! **How.** Every socket is a real descriptor (`fd_table` knows which are Skink's): a kernel socket
//! that stays behind it until it is known whether the socket is Skink's or the kernel's
//! (`fallback`), and that holds its port. One lock (`lock`) is around all state, and `signals` has the program's handlers wait until it is let go; `provider` says where
//! the stack is, `wait` who drives it, `helper` drives one in the process when nobody does, `remote` talks
//! to one elsewhere, `streams` puts libc's streams on sockets, and `epoll` joins Skink's sockets with the kernel's.
//!
//! | after | stack in the process | stack in another process |
//! | --- | --- | --- |
//! | `fork` | the child begins anew, listening sockets go with it (`fork`); a connection moves to who uses it (`estate::tethered`) | it attaches before `fork` returns, and shares all sockets |
//! | `exec` | what stays open goes with it, connections as after `fork`; others are closed | the program goes on with what stays open (`exec`, `estate`) |
//! | `posix_spawn`, `vfork` | as for `exec` | what stays open goes with it |
//! | a message over a Unix socket | a ticket is passed (`passing`); a connection moves to the receiver's stack (`estate::passed`) | a ticket is passed |
//! | the end | the process waits until everything has arrived (`exit`), unless others have its connections, too | the stack sends what is left |
//!
//! **What it leaves out.** What is passed over Unix sockets to a receiver without the library (it gets
//! the ticket, or one of the kernel's sockets that isn't connected); sockets inherited by way of `system`, `popen` or `posix_spawn` with
//! `closefrom`, or by a program that isn't linked dynamically; connections of the parent's that `vfork` hands on
//! where the stack is in the process; wide characters in a stream on a socket; what libc does with
//! descriptors of its own or unseen: name look-ups, `aio_read`, `preadv2`; `io_uring` and `io_submit` (refused), urgent
//! data. Two processes that share a
//! connection must not read, or write, at the same moment: a ring has one reader and one writer. A
//! program that passes a bad pointer gets `SIGSEGV` instead of `EFAULT`.

use core::sync::atomic::{AtomicBool, Ordering};

mod accept;
mod attach;
mod buffers;
mod calls;
mod cancel;
mod connect;
mod datagram;
mod descriptor;
mod engine;
pub mod entry;
mod epoll;
mod epoll_alone;
mod epoll_inner;
mod epoll_set;
mod epoll_wait;
mod errno;
mod estate;
mod exec;
mod exit;
mod fallback;
mod fd_table;
mod filter;
mod flow_rings;
mod fork;
mod getsockopt;
mod heap;
mod helper;
mod holdings;
mod interfaces;
mod kept;
mod kernel_half;
mod limits;
mod linger;
mod listen;
mod lock;
mod log;
mod message;
mod names;
mod next;
mod options;
mod pace;
mod parking;
mod passing;
mod poll;
mod provider;
mod raw;
mod readiness;
mod remote;
mod sendfile;
mod signals;
mod slots;
mod sockaddr;
mod socket;
mod sockopt;
mod spawn;
mod spin;
mod state;
mod streams;
mod syscall;
mod threads;
mod transfer;
#[cfg(target_arch = "x86_64")]
mod trap;
#[cfg(not(target_arch = "x86_64"))]
#[path = "trap/nowhere.rs"]
mod trap;
mod wait;
mod waiting;
mod work;

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
    log::start();
    if !attach::note_broker() {
        return;
    }
    std::panic::set_hook(Box::new(|panic| {
        log::write(format_args!("{panic}; this is a bug in Skink"));
        std::process::abort();
    }));
    state::renew_floor();
    threads::start();
    fallback::start();
    descriptor::start();
    if fd_table::start() {
        fork::start();
        exit::start();
        exec::start();
        if let Ok(mut state) = lock::lock() {
            estate::take_over(&mut state);
        }
        for fd in 0..=2 {
            if streams::is_socket(fd) {
                streams::stand_in(fd);
            }
        }
        ON.store(true, Ordering::Relaxed);
        trap::start();
    }
}
