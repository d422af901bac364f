//! Sockets that are passed over Unix sockets (`SCM_RIGHTS`).
//!
//! What the kernel would pass is the socket that stands behind the descriptor, which isn't connected. In
//! its place goes a *ticket* ([`crate::estate`]): a Unix socket in whose queue lies what the receiver must
//! know, with the kernel's socket and the connection to the broker of a *holder*, a program that holds
//! the socket for as long as the ticket exists. The sender may close its own, or end; and if nobody takes
//! the message, the kernel closes the ticket and with it what it holds. A receiver with the library puts the
//! socket where the ticket was, and relieves the holder.
//!
//! A holder costs the sender about what a process costs that begins: one keeps what is passed in a second by the same Unix socket. A
//! listening socket has one of its own. A socket that is neither bound nor connected is passed as the kernel's. Where each process has a stack of its own, sockets that listen or are
//! bound are passed alone, without a holder: the receiver puts them on its stack.
use crate::descriptor::is_guest;
use crate::errno::{Answer, Stop};
use crate::estate::{self, Tickets};
use crate::fd_table::{self, Entry};
use crate::lock::lock;
use crate::log::log;
use crate::raw;
use core::ffi::{c_int, c_uint};
use libc::{mmsghdr, msghdr};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::os::fd::AsRawFd;

mod control;

pub use control::{descriptor, places, replace};

/// No buffer of control messages is larger (the kernel's limit is lower by default).
const MAXIMUM_CONTROL: usize = 1 << 20;

/// The control messages.
///
/// # Safety
/// `message` must be null or describe its control buffer truly.
unsafe fn control<'a>(message: *const msghdr) -> &'a [u8] {
    // SAFETY: the caller's promise.
    let Some(message) = (unsafe { message.as_ref() }) else {
        return &[];
    };
    let length = message.msg_controllen;
    if message.msg_control.is_null() || length > MAXIMUM_CONTROL {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { core::slice::from_raw_parts(message.msg_control.cast(), length) }
}

/// Whether a message has sockets of Skink's in it.
///
/// # Safety
/// As for `sendmsg`.
pub unsafe fn carries(message: *const msghdr) -> bool {
    // SAFETY: the caller's promise.
    let control = unsafe { control(message) };
    if control.is_empty() {
        return false;
    }
    let is_socket = |place| {
        let fd = descriptor(control, place);
        fd.is_some_and(|fd| matches!(fd_table::get(fd), Entry::Socket(_)))
    };
    crate::is_on() && places(control).into_iter().any(is_socket)
}

/// Whether one of the messages has.
///
/// # Safety
/// As for `sendmmsg`.
pub unsafe fn one_carries(list: *const mmsghdr, count: c_uint) -> bool {
    let count = if list.is_null() { 0 } else { count.min(1024) };
    // SAFETY: the caller's promise.
    (0..count as usize).any(|at| unsafe { carries(&raw const (*list.add(at)).msg_hdr) })
}

/// `sendmsg` of a message, with tickets for the sockets of Skink's in it.
///
/// # Safety
/// As for `sendmsg`.
pub unsafe fn send(fd: c_int, message: *const msghdr, flags: c_int) -> Answer {
    // SAFETY: the caller's promise, here and below.
    let mut copy = unsafe { message.as_ref() }.copied().ok_or(Stop::Kernel)?;
    // SAFETY: as above.
    let mut control = unsafe { control(message) }.to_vec();
    let tickets = if is_guest() {
        Tickets::default()
    } else {
        for place in places(&control) {
            if let Some(fd) = descriptor(&control, place) {
                estate::summon(fd);
            }
        }
        // What was written leaves, and the lock is released, before a call that may take its time.
        lock()?.write_tickets(fd, &mut control)?
    };
    if !tickets.written.is_empty() {
        copy.msg_control = control.as_mut_ptr().cast();
    }
    let arguments = [
        fd as usize,
        &raw const copy as usize,
        flags as usize,
        0,
        0,
        0,
    ];
    // SAFETY: as above; the control messages are ours.
    let sent = unsafe { raw::call(libc::SYS_sendmsg, arguments) };
    if sent.is_err() && !tickets.written.is_empty() {
        lock()?.take_back(&tickets);
    }
    sent
}

/// After `recvmsg`: sockets take the places of their tickets.
///
/// # Safety
/// `message` must be as a successful `recvmsg` with these flags left it.
pub unsafe fn arrived(message: *const msghdr, flags: c_int) {
    if !crate::is_on() {
        return;
    }
    // SAFETY: the caller's promise.
    let control = unsafe { control(message) };
    let places = places(control);
    if places.is_empty() || is_guest() {
        return;
    }
    let fds = places
        .into_iter()
        .filter_map(|place| descriptor(control, place));
    for fd in fds {
        if arrive(fd, flags).is_err() {
            return;
        }
    }
}

/// A descriptor came with a message.
fn arrive(fd: c_int, flags: c_int) -> Answer<()> {
    if fd_table::is_listed(fd) {
        // It was closed behind our back.
        lock()?.forget_descriptor(fd);
    }
    let Some(ticket) = estate::look_at(fd) else {
        return Ok(());
    };
    let taken = ticket.and_then(|ticket| {
        let mut state = lock().map_err(|stop| format!("{stop:?}"))?;
        let close_on_exec = flags & libc::MSG_CMSG_CLOEXEC != 0;
        state.take_ticket(fd, ticket, close_on_exec, flags & libc::MSG_PEEK != 0)
    });
    if let Err(reason) = taken {
        log!(
            Error,
            "descriptor {fd} is a socket of Skink's that was passed here, and can't be used: {reason}"
        );
        put_dead_one(fd, flags);
    }
    Ok(())
}

/// A socket that isn't connected takes the place of a ticket that is of no use: the program would write to that, and read what is in it.
fn put_dead_one(fd: c_int, flags: c_int) {
    let close_on_exec = flags & libc::MSG_CMSG_CLOEXEC != 0;
    let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
    if let Ok(dead) = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None) {
        let flags = if close_on_exec { libc::O_CLOEXEC } else { 0 };
        let from = dead.as_raw_fd() as usize;
        // SAFETY: only numbers; the program hasn't seen `fd` yet.
        let _ = unsafe { raw::call(libc::SYS_dup3, [from, fd as usize, flags as usize, 0, 0, 0]) };
    }
}

/// After `recvmmsg`, which answered `count`.
///
/// # Safety
/// The list must be as a successful `recvmmsg` with these flags left it.
pub unsafe fn many_arrived(list: *const mmsghdr, count: c_int, flags: c_int) {
    for at in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the caller's promise.
        unsafe { arrived(&raw const (*list.add(at)).msg_hdr, flags) };
    }
}
