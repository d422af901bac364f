//! The end of the process: whatever was written must still arrive.
use crate::engine::Engine;
use crate::errno::Stop;
use crate::lock::{Guard, lock};
use crate::log::log;
use crate::raw;
use crate::socket::Role;
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering};
use skink_memory::SocketId;
use skink_messages::TcpRequest;
use skink_tcp::State as TcpState;
use std::time::Duration;

/// How long a peer may be silent.
const SILENCE: Duration = Duration::from_secs(5);
/// How long it may take in all.
const IN_ALL: Duration = Duration::from_secs(60);

static DONE: AtomicBool = AtomicBool::new(false);

/// Registers the handler that runs at `exit`, after all the program's own.
pub fn start() {
    // SAFETY: the function is there for as long as the library is.
    unsafe { libc::atexit(at_exit) };
}

extern "C" fn at_exit() {
    let _ = std::panic::catch_unwind(|| {
        if !crate::descriptor::is_guest() {
            crate::streams::flush();
        }
        linger();
    });
}

/// Closes all sockets and drives the stack until peers have acknowledged everything.
pub fn linger() {
    if crate::descriptor::is_guest() || DONE.load(Ordering::Relaxed) {
        return;
    }
    let Ok(mut state) = lock() else { return };
    // A stack in another process sends what is in the rings, whatever becomes of this one.
    let lingers = |engine: &Engine| !engine.stack.is_served();
    if !state.engine.as_deref().is_some_and(lingers) {
        return;
    }
    DONE.store(true, Ordering::Relaxed);
    let mut open: Vec<SocketId> = Vec::new();
    let now = raw::now();
    let mut roles = Vec::new();
    for (_, socket) in state.sockets.iter_mut() {
        roles.push(core::mem::replace(&mut socket.role, Role::Lost));
    }
    let Some(engine) = state.engine.as_deref_mut() else {
        return;
    };
    for role in roles {
        let halves = match role {
            Role::Stream(id) => [Some(id), None],
            Role::Listener(halves) => halves,
            _ => continue,
        };
        for id in halves.into_iter().flatten() {
            engine.disown_tcp(id);
            engine.stack.tcp_request(now, TcpRequest::Close(id));
            open.push(id);
        }
    }
    drop(open);
    drain(state);
}

/// How much peers still have to acknowledge: connections, and bytes.
fn left(state: &Guard) -> (usize, usize) {
    let Some(engine) = state.engine.as_deref() else {
        return (0, 0);
    };
    let table = engine.stack.tcp_table();
    let (mut connections, mut bytes) = (0, 0);
    for slot in 0..table.used() {
        let record = table.record(slot);
        if record.kind() != skink_memory::SocketKind::Tcp {
            continue;
        }
        let unsent = table.send_ring(slot).len();
        let number = record.state.load(Ordering::Relaxed);
        let closing = match TcpState::from_number(number) {
            Some(TcpState::FinWait1 | TcpState::Closing | TcpState::LastAck) => true,
            Some(TcpState::Established | TcpState::CloseWait) => unsent > 0,
            _ => false,
        };
        if closing {
            connections += 1;
            bytes += unsent;
        }
    }
    (connections, bytes)
}

fn drain(mut state: Guard) {
    state.stop_flow_rings();
    let begin = raw::now();
    let mut progress = begin;
    let mut before = (usize::MAX, usize::MAX);
    loop {
        state.pump();
        let now = raw::now();
        let rest = left(&state);
        if rest.0 == 0 {
            return;
        }
        if rest != before {
            (before, progress) = (rest, now);
        }
        if now.since(progress) > SILENCE || now.since(begin) > IN_ALL {
            log!(
                Warn,
                "exit: {} connections had {} bytes left",
                rest.0,
                rest.1
            );
            return;
        }
        let deadline = state.engine.as_ref().and_then(|engine| engine.deadline());
        let wait = deadline.map_or(SILENCE, |at| at.since(now)).min(SILENCE);
        let mut list = [raw::to_poll(-1, libc::POLLIN); 7];
        if let Some(engine) = &state.engine {
            for (entry, fd) in list.iter_mut().zip(&engine.receive_fds) {
                entry.fd = *fd;
            }
        }
        if let Err(Stop::Errno(libc::EINTR)) = raw::ppoll(&mut list, Some(wait), core::ptr::null())
        {
            continue;
        }
    }
}

/// `_exit`: lingers, then ends the process.
pub fn leave(status: c_int) -> ! {
    let _ = std::panic::catch_unwind(linger);
    loop {
        // SAFETY: ends the process.
        unsafe { raw::syscall(libc::SYS_exit_group, [status as usize, 0, 0, 0, 0, 0]) };
    }
}

/// Before `execve`: what was written leaves first, as far as peers take it soon. Sockets stay as they
/// are, since the call may fail.
pub fn settle() {
    if crate::descriptor::is_guest() {
        return;
    }
    let Ok(state) = lock() else { return };
    if state
        .engine
        .as_deref()
        .is_some_and(|engine| !engine.stack.is_served())
    {
        drain(state);
    }
}
