//! What can be done with any descriptor: `close`, `dup`, `fcntl`, `ioctl`.
use crate::errno::{Answer, Stop, fail};
use crate::estate;
use crate::fd_table::{self, Entry};
use crate::interfaces::requests;
use crate::linger;
use crate::lock::{Guard, is_held_here, lock, this_thread};
use crate::raw;
use crate::socket::Role;
use crate::state::State;
use crate::streams;
use core::ffi::{c_int, c_uint};
use core::sync::atomic::{AtomicU32, Ordering};
use skink_time::Instant;

/// How many bytes of a TCP socket haven't been sent yet (linux/sockios.h).
const SIOCOUTQNSD: libc::c_ulong = 0x894b;

/// The process whose memory this is. A child after `vfork` runs in its parent's memory, and may
/// close descriptors that its parent goes on using.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Notes that this process is the one whose memory this is.
pub fn start() {
    PROCESS.store(raw::process_id(), Ordering::Relaxed);
}

/// Whether the caller is a guest in another process's memory.
pub fn is_guest() -> bool {
    raw::process_id() != PROCESS.load(Ordering::Relaxed)
}

/// To the program the library's own descriptors aren't there. (Nor to a guest, which leaves sockets to its new program by them; they
/// are closed when that begins.)
fn refuse_internal<T>() -> Answer<T> {
    if is_held_here() {
        Err(Stop::Kernel)
    } else {
        fail(libc::EBADF)
    }
}

/// Takes the lock for a call on `fd`. In a signal handler that interrupted a call of the library's it can't be had; an epoll
/// set without sockets of Skink's is the kernel's business then.
fn lock_for(fd: c_int) -> Answer<Guard> {
    lock().map_err(|stop| match fd_table::get(fd) {
        Entry::Plain(_) => Stop::Kernel,
        _ => stop,
    })
}

/// `close`
pub fn close(fd: c_int) -> Answer {
    if fd_table::get(fd) == Entry::Internal {
        return refuse_internal();
    }
    if is_guest() {
        if let Ok(mut state) = lock() {
            state.guest.note(fd, None);
        }
        return Err(Stop::Kernel);
    }
    let mut state = lock_for(fd)?;
    let index = state.socket_asked(fd).ok();
    let lingering = index.and_then(|index| Some((index, state.lingers(index)?)));
    // Before the kernel gives the number to somebody else.
    state.leave_set(fd);
    match lingering {
        Some((index, _)) => state.leave_socket(fd, index),
        None => state.forget_descriptor(fd),
    }
    // SAFETY: only a number.
    let answer = unsafe { raw::call(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) };
    if let Some((index, time)) = lingering {
        state = linger::wait(state, index, time)?;
    }
    state.flush_soon(raw::now(), 0);
    answer
}

impl State {
    /// Sends what calls have left to send, `bytes` of it by the last one: now, or with what follows.
    pub fn flush_soon(&mut self, now: Instant, bytes: usize) {
        let library = matches!(&self.engine, Some(engine) if !engine.stack.is_served());
        // Threads that each wait for a connection have one thing to do at a time, however many of them are at it.
        let thread = match self.parking.flow_rings.are_used() {
            true => this_thread(),
            false => 0,
        };
        if !library || !self.pace.holds(now, bytes, thread) {
            self.flush();
        }
    }

    /// Sends what calls have left to send.
    pub fn flush(&mut self) {
        let Some(engine) = self.engine.as_deref_mut() else {
            return;
        };
        engine.stack.flush();
        self.pace.left();
        self.deliver();
    }

    /// The socket that the calling guest's `fd` stands for.
    fn guest_socket(&self, fd: c_int) -> Option<u32> {
        match (self.guest.changed(fd), fd_table::get(fd)) {
            (Some(socket), _) => socket,
            (None, Entry::Socket(index)) => Some(index),
            (None, _) => None,
        }
    }

    /// Makes `new` another descriptor of what `old` stands for.
    fn share(&mut self, old: c_int, new: c_int) {
        match fd_table::get(old) {
            Entry::Socket(index) => {
                if fd_table::set(new, Entry::Socket(index)) {
                    self.sockets[index].fds.push(new);
                }
            }
            entry @ (Entry::Epoll(index) | Entry::Plain(index)) => {
                if fd_table::set(new, entry) {
                    self.epoll_descriptor_added(index, new);
                }
            }
            Entry::Ordinary | Entry::Internal => {}
        }
    }
}

/// `dup` and `fcntl(F_DUPFD…)`
pub fn duplicate(old: c_int, command: c_int, lowest: usize) -> Answer {
    let mut state = lock_for(old)?;
    let new = raw::fcntl(old, command, lowest)?;
    if is_guest() {
        let socket = state.guest_socket(old);
        state.guest.note(new as c_int, socket);
        return Ok(new);
    }
    if fd_table::is_listed(new as c_int) {
        state.forget_descriptor(new as c_int);
    }
    state.share(old, new as c_int);
    drop(state);
    if streams::is_socket(new as c_int) {
        streams::stand_in(new as c_int);
    }
    Ok(new)
}

/// `dup2` and `dup3`, where either descriptor is Skink's, or an epoll set.
pub fn replace(old: c_int, new: c_int, flags: c_int) -> Answer {
    // (A guest has a table of its own: if it wants that number, it has it.)
    if fd_table::get(new) == Entry::Internal && !is_guest() {
        return refuse_internal();
    }
    if old == new {
        return Err(Stop::Kernel);
    }
    if streams::is_socket(old) && !is_guest() {
        streams::stand_in(new);
    }
    let mut state = lock_for(old)?;
    if !is_guest() {
        state.leave_set(new);
    }
    let arguments = [old as usize, new as usize, flags as usize, 0, 0, 0];
    // SAFETY: only numbers.
    let answer = unsafe { raw::call(libc::SYS_dup3, arguments) }?;
    if is_guest() {
        let socket = state.guest_socket(old);
        state.guest.note(new, socket);
        return Ok(answer);
    }
    state.forget_descriptor(new);
    state.share(old, new);
    state.flush();
    Ok(answer)
}

/// `close_range`: the library's own descriptors stay open.
pub fn close_range(first: c_uint, last: c_uint, flags: c_int) -> Answer {
    const CLOSE_ON_EXEC: c_int = 4;
    if first > last || flags & !(CLOSE_ON_EXEC | 2) != 0 {
        return Err(Stop::Kernel);
    }
    let guest = is_guest();
    let mut state = lock()?;
    let ours: Vec<(c_int, Entry)> = fd_table::in_range(first, last).collect();
    let closes = !guest && flags & CLOSE_ON_EXEC == 0;
    if closes {
        ours.iter().for_each(|(fd, _)| state.leave_set(*fd));
    }
    let mut from = first;
    let mut range = |to: c_uint| -> Answer<()> {
        if from < to {
            let arguments = [from as usize, to as usize - 1, flags as usize, 0, 0, 0];
            // SAFETY: only numbers.
            unsafe { raw::call(libc::SYS_close_range, arguments) }?;
        }
        from = to + 1;
        Ok(())
    };
    for (fd, _) in ours.iter().filter(|(_, entry)| *entry == Entry::Internal) {
        range(*fd as c_uint)?;
    }
    if last == c_uint::MAX {
        let arguments = [from as usize, last as usize, flags as usize, 0, 0, 0];
        // SAFETY: only numbers.
        unsafe { raw::call(libc::SYS_close_range, arguments) }?;
    } else {
        range(last + 1)?;
    }
    if closes {
        for (fd, entry) in ours {
            if entry != Entry::Internal {
                state.forget_descriptor(fd);
            }
        }
        state.flush();
    }
    Ok(0)
}

/// `fcntl` for one of Skink's descriptors, or an epoll set.
pub fn control(fd: c_int, command: c_int, argument: usize) -> Answer {
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => return duplicate(fd, command, argument),
        libc::F_GETFL | libc::F_SETFL => {}
        _ => return Err(Stop::Kernel),
    }
    let mut state = lock_for(fd)?;
    let index = state.socket_asked(fd)?;
    let socket = &mut state.sockets[index];
    if command == libc::F_GETFL {
        let mode = if socket.nonblocking {
            libc::O_NONBLOCK
        } else {
            0
        };
        return Ok((libc::O_RDWR | mode) as usize);
    }
    if argument as c_int & libc::O_ASYNC != 0 && socket.is_decided() {
        return fail(libc::EINVAL);
    }
    socket.nonblocking = argument as c_int & libc::O_NONBLOCK != 0;
    // The kernel socket may have to take over.
    if socket.own_kernel_socket && !socket.kernel_listens {
        raw::fcntl(fd, command, argument)
    } else {
        Ok(0)
    }
}

/// `ioctl` for one of Skink's sockets.
///
/// # Safety
/// As for `ioctl`.
pub unsafe fn device_control(fd: c_int, request: libc::c_ulong, argument: usize) -> Answer {
    // Wherever its connection is, the mode is of this process's.
    let mut state = match request {
        libc::FIONBIO => lock()?,
        _ => estate::lock_here(fd)?,
    };
    let index = state.socket_asked(fd)?;
    let at = argument as *mut c_int;
    if request == libc::FIONBIO {
        if at.is_null() {
            return fail(libc::EFAULT);
        }
        // SAFETY: the caller's promise.
        state.sockets[index].nonblocking = unsafe { at.read() } != 0;
        if state.sockets[index].own_kernel_socket && !state.sockets[index].kernel_listens {
            return Err(Stop::Kernel);
        }
        return Ok(0);
    }
    if requests::is_for_addresses(request)
        && let Some((name, addresses)) = state.own_interface()
    {
        // SAFETY: the caller's promise.
        return unsafe { requests::answer(fd, request, argument, &name, &addresses) };
    }
    let amount = match (request, state.sockets[index].role) {
        (_, Role::Undecided) => return Err(Stop::Kernel),
        (libc::FIONREAD, Role::Stream(id)) => {
            state.pump();
            state
                .engine()?
                .stack
                .tcp_table()
                .receive_ring(id.slot)
                .len()
        }
        (libc::FIONREAD, Role::Datagram(halves)) => {
            state.pump();
            let engine = state.engine()?;
            let table = engine.stack.udp_table();
            let mut lengths = halves.into_iter().flatten().filter_map(|id| {
                let ring = skink_memory::DatagramRing::new(table.receive_ring(id.slot));
                ring.peek().map(|datagram| datagram.len())
            });
            match lengths.next() {
                Some(length) => length,
                None if state.sockets[index].hears_in_kernel() => return Err(Stop::Kernel),
                None => 0,
            }
        }
        (libc::TIOCOUTQ, Role::Stream(id)) => {
            state.engine()?.stack.tcp_table().send_ring(id.slot).len()
        }
        (SIOCOUTQNSD, Role::Stream(id)) => {
            let table = state.engine()?.stack.tcp_table();
            let ring = table.send_ring(id.slot);
            let unsent = table.find(id).map(|record| {
                let begin = record.iss.load(Ordering::Relaxed).wrapping_add(1);
                let sent = record.snd_max.load(Ordering::Relaxed).wrapping_sub(begin);
                // A FIN that was sent is one too many.
                (ring.tail() as u32).wrapping_sub(sent) as usize
            });
            unsent.filter(|unsent| *unsent <= ring.len()).unwrap_or(0)
        }
        (libc::TIOCOUTQ, Role::Datagram(halves)) => {
            state.pump();
            let table = state.engine()?.stack.udp_table();
            let halves = halves.into_iter().flatten();
            halves.map(|id| table.send_ring(id.slot).len()).sum()
        }
        (libc::FIONREAD | libc::TIOCOUTQ | SIOCOUTQNSD, _) => return fail(libc::EINVAL),
        // Interfaces and the like: any kernel socket will do.
        _ => return Err(Stop::Kernel),
    };
    if at.is_null() {
        return fail(libc::EFAULT);
    }
    // SAFETY: the caller's promise.
    unsafe { at.write(amount.min(c_int::MAX as usize) as c_int) };
    Ok(0)
}

#[cfg(test)]
mod tests;
