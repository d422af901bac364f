//! The end of the process: whatever was written must still arrive.
use crate::lock::{Guard, lock};
use crate::log::log;
use crate::provider::Provider;
use crate::raw;
use crate::socket::Role;
use crate::state::State;
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering};
use skink_library::{Farewell, Left};
use skink_messages::TcpRequest;
use skink_time::Instant;

static DONE: AtomicBool = AtomicBool::new(false);

/// Registers the handler that runs at `exit`, after all the program's own.
pub fn start() {
    // SAFETY: the function is there for as long as the library is.
    unsafe { libc::atexit(at_exit) };
}

extern "C" fn at_exit() {
    if !crate::descriptor::is_guest() {
        crate::streams::flush();
    }
    drop(linger());
}

/// Closes all sockets and drives the stack, if it is this process's, until peers have acknowledged everything. Other threads that call meanwhile wait, for
/// as long as what this answers is kept.
#[must_use]
fn linger() -> Option<Guard> {
    if crate::descriptor::is_guest() {
        return None;
    }
    let mut state = lock().ok()?;
    if state.engine.is_none() || DONE.swap(true, Ordering::Relaxed) {
        return Some(state);
    }
    if !state.has_own_stack() {
        // A stack in another process sends what is in the rings, whatever becomes of this one.
        state.stop_listening_for_all();
        return Some(state);
    }
    state.leave_listening_to_others();
    if state.leave_behind() {
        // Whoever comes in this process's place for those does the rest, too.
        state.stop_passing();
        state.flush();
        return Some(state);
    }
    if let Some(engine) = state.engine.as_deref_mut() {
        // Who takes in what waits here says so.
        engine.word_until = Instant::FAR_FUTURE;
    }
    let now = raw::now();
    let mut roles = Vec::new();
    for (_, socket) in state.sockets.iter_mut() {
        // What nobody takes is closed.
        socket.passed_on = false;
        roles.push(core::mem::replace(&mut socket.role, Role::Lost));
    }
    let engine = state.engine.as_deref_mut()?;
    for role in roles {
        let halves = match role {
            Role::Stream(id) => [Some(id), None],
            Role::Listener(halves) => halves,
            _ => continue,
        };
        for id in halves.into_iter().flatten() {
            engine.disown_tcp(id);
            engine.stack.tcp_request(now, TcpRequest::Close(id));
        }
    }
    // That may take long.
    state.defer_no_signals();
    drain(&mut state);
    state.stop_passing();
    if let Some(engine) = state.engine.as_deref_mut() {
        // Who takes nothing, or doesn't close, has been waited for.
        engine.stack.reset_unfinished(raw::now());
    }
    Some(state)
}

impl State {
    /// Lets go of all sockets that listen, or are bound for that, and waits until the stack has heard of it: who waits for the end of
    /// this process may be about to listen in its place.
    fn stop_listening_for_all(&mut self) {
        let all = self.sockets.iter();
        let listening = all.filter(|(_, socket)| match socket.role {
            Role::Listener(_) => true,
            Role::Dormant => socket.resting != [None; 2],
            _ => false,
        });
        let listening: Vec<u32> = listening.map(|(index, _)| index).collect();
        for index in &listening {
            self.release(*index);
            self.sockets[*index].role = Role::Lost;
        }
        let engine = self
            .engine
            .as_deref_mut()
            .filter(|engine| !listening.is_empty() && !engine.is_down());
        if let Some(remote) = engine.and_then(|engine| engine.stack.remote()) {
            remote.settle_at_last();
        }
    }
}

impl State {
    /// What listens on the stack of this process, which goes on until peers have everything, and another process may have too: who calls
    /// meanwhile waits, or asks again and finds the one that listens.
    fn leave_listening_to_others(&mut self) {
        let all = self.sockets.iter();
        let lent = all.filter(|(_, socket)| {
            matches!(socket.role, Role::Listener(_))
                && (socket.lent || crate::fork::has_lent_unmarked())
        });
        for index in lent.map(|(index, _)| index).collect::<Vec<u32>>() {
            if self.stays_in_reserve(index) {
                self.sockets[index].role = Role::Lost;
                continue;
            }
            self.release(index);
            self.sockets[index].role = Role::Lost;
            // If that fails, who calls is refused.
            let _ = self.rest(index);
        }
    }
}

/// Keeps signals from the calling thread, or doesn't any more: the mask before.
struct Unkilled(Option<libc::sigset_t>);

impl Unkilled {
    fn block(&mut self, blocks: bool) {
        if blocks == self.0.is_some() {
            return;
        }
        // SAFETY: a signal set is plain numbers, and the sets are ours.
        unsafe {
            let mut all: libc::sigset_t = core::mem::zeroed();
            libc::sigfillset(&mut all);
            if !blocks {
                // Those that came for a process that had ended already, as far as they knew.
                let now: libc::timespec = core::mem::zeroed();
                while libc::sigtimedwait(&all, core::ptr::null_mut(), &now) > 0 {}
            }
            let new = self.0.take().unwrap_or(all);
            let mut before = core::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_SETMASK, &new, &mut before);
            self.0 = blocks.then_some(before);
        }
    }
}

impl Drop for Unkilled {
    fn drop(&mut self) {
        self.block(false);
    }
}

fn drain(state: &mut State) {
    state.stop_flow_rings();
    let mut farewell = Farewell::new(raw::now());
    let mut unkilled = Unkilled(None);
    loop {
        state.pump();
        let now = raw::now();
        let Some(engine) = state.engine.as_deref() else {
            return;
        };
        // On the kernel's stack the process would have ended by now. One that is told to again (gunicorn tells those that are left
        // each time one has ended) would be killed while others take in what waited here.
        unkilled.block(matches!(&engine.stack, Provider::Library(stack) if stack.has_away()));
        let left = engine.stack.tcp_left();
        let Some(longest) = farewell.look(now, left) else {
            if left.connections > 0 {
                let Left {
                    connections, bytes, ..
                } = left;
                log!(
                    Warn,
                    "exit: {connections} connections had {bytes} bytes left"
                );
            }
            return;
        };
        let wait = engine.deadline().map_or(longest, |at| at.since(now));
        let mut list = [raw::to_poll(-1, libc::POLLIN); 7];
        for (entry, fd) in list.iter_mut().zip(&engine.receive_fds) {
            entry.fd = *fd;
        }
        if let Some(last) = list.last_mut() {
            last.fd = engine.notices_fd();
        }
        // If a signal comes: once more.
        let _ = raw::ppoll(&mut list, Some(wait.min(longest)), core::ptr::null());
    }
}

/// `_exit`: lingers, then ends the process.
pub fn leave(status: c_int) -> ! {
    // The others aren't to see that their sockets are gone.
    let _guard = linger();
    loop {
        // SAFETY: ends the process.
        unsafe { raw::syscall(libc::SYS_exit_group, [status as usize, 0, 0, 0, 0, 0]) };
    }
}

/// Before `execve`: what is held leaves. `skink run` ends the connections, unless the NIC has one owner at a time, which the new
/// program may be about to become: then what was written leaves first, as far as peers take it soon. Sockets stay as they
/// are, since the call may fail.
pub fn before_exec(state: &mut State) {
    state.flush();
    if state.engine.as_deref().is_some_and(|engine| engine.is_sole) {
        drain(state);
    }
}
