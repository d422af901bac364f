//! Data: what all the reading and writing calls come down to.
use crate::buffers::Buffers;
use crate::connect::connect_to;
use crate::datagram::{receive_datagram, send_datagram};
use crate::errno::{Answer, Stop, WOULD_BLOCK, fail};
use crate::estate;
use crate::lock::{Guard, lock};
use crate::options::{Told, buffer_limit};
use crate::raw;
use crate::sockaddr::{self, Name};
use crate::socket::Role;
use crate::state::State;
use crate::wait::{self, Patience};
use core::ffi::c_int;
use core::net::IpAddr;
use libc::{iovec, sockaddr as Address, socklen_t};
use skink_memory::{Ring, SocketId};
use skink_messages::{ConnectionOption, Counter, Events};
use skink_wire::Endpoint;
use std::time::Duration;

/// Bytes that wait to be read, from which on the program receives much: several full frames at once.
const MUCH: usize = 16 * 1024;
/// Who wants to see all of more than that sees what there is, in bytes: what isn't taken out must fit into what the peer is
/// offered, however little that is.
pub const MOST_UNREAD: usize = 1024;
/// After these nothing comes any more but what is in the ring.
const NO_MORE: Events = Events::READ_CLOSED
    .union(Events::CLOSED)
    .union(Events::ERROR);

/// What a receiving call got besides the bytes.
#[derive(Clone, Copy, Default)]
pub struct Received {
    /// Bytes in the program's buffers (with `MSG_TRUNC`: of the whole datagram).
    pub bytes: usize,
    /// UDP: who sent it.
    pub from: Option<Endpoint>,
    /// UDP: `sin6_scope_id` of that.
    pub scope: u32,
    /// UDP: which of our addresses it was sent to.
    pub to: Option<IpAddr>,
    /// UDP: the number of the interface by which it came, if the program wants to know.
    pub interface: Option<u32>,
    /// UDP: its end didn't fit and is lost.
    pub truncated: bool,
    /// `AF_INET` or `AF_INET6`.
    pub domain: c_int,
    /// UDP: TTL or hop limit.
    pub hop_limit: u8,
    /// UDP: DSCP and ECN bits.
    pub traffic_class: u8,
    /// UDP: when it came, since 1970, if the kernel's half has it.
    pub time: Option<Duration>,
    /// UDP: what of all that control messages tell.
    pub told: Told,
}

impl Received {
    /// Writes who sent it, as a socket of the domain shows it.
    ///
    /// # Safety
    /// As for [`sockaddr::write`].
    pub unsafe fn write_name(&self, address: *mut Address, length: *mut socklen_t) {
        match self.from {
            // SAFETY: the caller's promise.
            Some(from) => unsafe {
                sockaddr::write_scoped(from, self.scope, self.domain, address, length);
            },
            None if !length.is_null() => {
                // SAFETY: the caller's promise.
                unsafe { length.write(0) };
            }
            None => {}
        }
    }
}

/// How long a call waits.
pub fn patience(state: &State, index: u32, flags: c_int, sends: bool) -> Patience {
    let socket = &state.sockets[index];
    let options = &socket.options;
    let timeout = if sends {
        options.send_timeout
    } else {
        options.receive_timeout
    };
    Patience::of(
        socket.nonblocking || flags & libc::MSG_DONTWAIT != 0,
        timeout,
    )
}

/// Every receiving call.
pub fn receive(fd: c_int, buffers: Buffers<'_>, flags: c_int) -> Answer<Received> {
    estate::here(fd, flags, || receive_here(fd, buffers, flags))
}

fn receive_here(fd: c_int, buffers: Buffers<'_>, flags: c_int) -> Answer<Received> {
    let mut state = lock()?;
    let index = state.socket_of(fd)?;
    if flags & libc::MSG_ERRQUEUE != 0 {
        return Err(WOULD_BLOCK);
    }
    let role = state.sockets[index].role;
    match role {
        Role::Stream(_) => receive_stream(state, index, buffers, flags),
        Role::Datagram(_) => receive_datagram(state, (fd, index), buffers, flags),
        Role::Undecided if state.sockets[index].datagram => {
            if state.sockets[index].bound.is_some() {
                state.make_datagram(index)?;
            }
            receive_datagram(state, (fd, index), buffers, flags)
        }
        Role::Undecided => Err(Stop::Kernel),
        Role::Lost if state.has_come_back(index) => receive_stream(state, index, buffers, flags),
        Role::Lost => state.lost(index),
        Role::Dormant | Role::Listener(_) => fail(libc::ENOTCONN),
    }
}

/// What stopped a call that has received something is for the next one to tell.
pub fn keep_error(fd: c_int, stop: Stop) {
    if let Stop::Errno(number) = stop
        && !matches!(number, libc::EAGAIN | libc::EINTR)
        && let Ok(mut state) = lock()
        && let Ok(index) = state.socket_of(fd)
    {
        state.sockets[index].error = number;
    }
}

fn receive_stream(
    state: Guard,
    index: u32,
    buffers: Buffers<'_>,
    flags: c_int,
) -> Answer<Received> {
    if flags & libc::MSG_OOB != 0 {
        return fail(libc::EINVAL);
    }
    state.count_call();
    let total = buffers.total();
    let low = match flags & libc::MSG_WAITALL {
        // No more than `poll` tells of.
        0 => (state.sockets[index].options.receive_low.max(1) as usize).min(MOST_UNREAD),
        _ => usize::MAX,
    };
    let wanted = match flags & libc::MSG_PEEK {
        0 => total.min(low),
        _ => total.min(low).min(MOST_UNREAD),
    };
    let patience = patience(&state, index, flags, false);
    let mut done = 0;
    let answer = wait::until(state, index, patience, |state, index| {
        loop {
            let before = done;
            if total == 0 && state.has_unread(index) {
                return Ok(());
            }
            let over = state.take_stream(index, buffers, &mut done, flags)?;
            // Who has no room waits for something all the same.
            if done >= wanted && total > 0 || over {
                return Ok(());
            }
            if done == before {
                return Err(WOULD_BLOCK);
            }
            // Who wants more may have been told already that nothing else comes.
        }
    });
    match answer {
        Err(_) if done > 0 => {}
        Err(stop) => return Err(stop),
        Ok(()) => {}
    }
    Ok(Received {
        bytes: done,
        ..Received::default()
    })
}

impl State {
    /// A call sends or receives on a socket of Skink's.
    #[inline]
    pub fn count_call(&self) {
        self.count(Counter::AppCalls);
    }

    /// Whether something has come that the program hasn't taken.
    fn has_unread(&self, index: u32) -> bool {
        let rings = self.stream(index).ok();
        let rings = rings.and_then(|(table, id)| table.find_rings(id));
        rings.is_some_and(|[_, receive]| !receive.is_empty())
    }

    /// Takes what there is; answers whether no more will come.
    fn take_stream(
        &mut self,
        index: u32,
        buffers: Buffers<'_>,
        done: &mut usize,
        flags: c_int,
    ) -> Answer<bool> {
        let (table, id) = self.stream(index)?;
        let ring = table.find_rings(id).map(|[_, receive]| receive);
        let peek = flags & libc::MSG_PEEK != 0;
        let held = ring.map_or(0, |ring| ring.len());
        let count = match ring {
            None => 0,
            Some(_) if held == 0 => 0,
            Some(ring) if peek => {
                *done = 0;
                buffers.fill(0, |offset, piece| ring.peek(offset, piece))
            }
            Some(ring) if flags & libc::MSG_TRUNC != 0 => {
                let count = held.min(buffers.total() - *done);
                ring.advance_head(count);
                count
            }
            Some(ring) => buffers.fill(*done, |_, piece| ring.read(piece)),
        };
        *done += count;
        if count > 0 && peek {
            // No more than this may ever come.
            let lasting = self.engine()?.lasting(id);
            return Ok(self.sockets[index].shut_read || lasting.intersects(NO_MORE));
        }
        if count > 0 {
            self.engine()?.stack.tcp_received(id, held);
            if held >= MUCH {
                // Who receives much, and calls for nothing else, is looked at too.
                self.note_work();
            }
            return Ok(false);
        }
        let has_failed = self.sockets[index].error != 0;
        let engine = self.engine()?;
        let lasting = engine.lasting(id);
        let has_finished = || {
            let record = engine.stack.tcp_table().find(id);
            record.is_some_and(skink_tcp::has_peer_finished)
        };
        // What failed after all had come is for who sends. (That it failed was heard before the ring was looked at; the record alone
        // may say that all has come just after that.)
        if has_failed && has_finished() {
            return Ok(true);
        }
        let socket = &mut self.sockets[index];
        if *done > 0 && has_failed {
            // For the next call, or what has come would be taken for all that there is.
            return Ok(true);
        }
        if let Some(error) = socket.take_error() {
            return fail(error);
        }
        let over = lasting.intersects(NO_MORE);
        Ok(!socket.connecting && (over || socket.shut_read))
    }
}

/// What a sending call wants.
#[derive(Clone, Copy)]
pub struct Sending<'a> {
    /// The bytes.
    pub buffers: Buffers<'a>,
    /// `MSG_…`
    pub flags: c_int,
    /// UDP: where to, if the call says so, or what is wrong with that. TCP doesn't look at it: programs leave there what
    /// a receiving call has not filled in.
    pub to: Answer<Option<Name>>,
    /// UDP: what its control messages say, or what is wrong with them. TCP doesn't look at them either.
    pub control: Answer<Control>,
}

/// What control messages ask for, of one datagram.
#[derive(Clone, Copy, Default)]
pub struct Control {
    /// The address to send from.
    pub from: Option<IpAddr>,
    /// `IP_TOS`, `IPV6_TCLASS`
    pub traffic_class: Option<u8>,
    /// `IP_TTL`, `IPV6_HOPLIMIT`
    pub hop_limit: Option<u8>,
}

/// Every sending call.
pub fn send(fd: c_int, sending: Sending<'_>) -> Answer {
    estate::here(fd, sending.flags, || send_here(fd, sending))
}

fn send_here(fd: c_int, sending: Sending<'_>) -> Answer {
    let mut state = lock()?;
    let index = state.socket_of(fd)?;
    if sending.flags & libc::MSG_FASTOPEN != 0 && !state.sockets[index].datagram {
        return connect_and_send(state, (fd, index), sending);
    }
    let role = state.sockets[index].role;
    let answer = match role {
        // Urgent data goes with the rest, of a stream.
        Role::Stream(_) => send_stream(state, index, sending),
        _ if sending.flags & libc::MSG_OOB != 0 => fail(libc::EOPNOTSUPP),
        Role::Datagram(_) => send_datagram(state, index, sending),
        Role::Undecided if state.sockets[index].datagram => {
            let Some(Name::Inet(to)) = sending.to? else {
                return Err(Stop::Kernel);
            };
            let to = sockaddr::canonical(to);
            match state.reason_against(index, to.addr) {
                // Only these are the kernel's.
                Some(reason) if state.is_half_enough(index, reason) => {
                    return state.leave_to_half(index, reason, to);
                }
                Some(reason) => return state.fall_back(index, reason, to),
                None => {}
            }
            state.make_datagram(index)?;
            send_datagram(state, index, sending)
        }
        Role::Undecided => Err(Stop::Kernel),
        Role::Lost if state.has_come_back(index) => send_stream(state, index, sending),
        Role::Lost => state.lost(index),
        Role::Dormant | Role::Listener(_) => fail(libc::EPIPE),
    };
    if answer == fail(libc::EPIPE) && sending.flags & libc::MSG_NOSIGNAL == 0 {
        break_pipe();
    }
    answer
}

/// What Linux does, too, for a peer that has given no cookie for its *fast open* (RFC 7413) yet; and it never gives one here.
fn connect_and_send(state: Guard, socket: (c_int, u32), sending: Sending<'_>) -> Answer {
    let (_, index) = socket;
    let its = &state.sockets[index];
    let name = match (sending.to?, its.role) {
        (Some(name @ Name::Inet(_)), _) => Ok(name),
        (Some(Name::Unspecified), _) => return fail(libc::EOPNOTSUPP),
        (None, Role::Undecided) => return fail(libc::EINVAL),
        (None, _) if its.connecting => return fail(libc::EALREADY),
        (None, _) => return fail(libc::EISCONN),
    };
    let waits = !its.nonblocking && sending.flags & libc::MSG_DONTWAIT == 0;
    connect_to(state, socket, name, waits)?;
    let flags = sending.flags & !libc::MSG_FASTOPEN;
    send(socket.0, Sending { flags, ..sending })
}

/// Raises `SIGPIPE` in the calling thread.
fn break_pipe() {
    // SAFETY: only numbers.
    unsafe {
        let thread = raw::syscall(libc::SYS_gettid, [0; 6]) as usize;
        let process = raw::process_id() as usize;
        let arguments = [process, thread, libc::SIGPIPE as usize, 0, 0, 0];
        raw::syscall(libc::SYS_tgkill, arguments);
    }
}

fn send_stream(mut state: Guard, index: u32, sending: Sending<'_>) -> Answer {
    state.count_call();
    let total = sending.buffers.total();
    let patience = patience(&state, index, sending.flags, true);
    state.expect_more(index, sending.flags & libc::MSG_MORE != 0);
    let mut done = 0;
    let answer = wait::until(state, index, patience, |state, index| {
        if done > 0 {
            state.catch_news();
            if state.sockets[index].error != 0 {
                // For the next call.
                return Ok(());
            }
        }
        state.put_stream(index, sending.buffers, &mut done)?;
        // A non-blocking call is content with a part.
        if done == total || (done > 0 && patience == Patience::None) {
            Ok(())
        } else {
            Err(WOULD_BLOCK)
        }
    });
    match answer {
        Err(_) if done > 0 => Ok(done),
        Err(stop) => Err(stop),
        Ok(()) => Ok(done),
    }
}

/// Sends up to `count` bytes of the file from `offset` on, which are read into the send ring itself. `None` if the file
/// can't be read without waiting (which must not be done here, where other threads wait too), or `fd` is no stream.
pub fn send_file(fd: c_int, file: c_int, offset: i64, count: usize) -> Answer<Option<usize>> {
    let mut state = lock()?;
    let index = state.socket_of(fd)?;
    if !matches!(state.sockets[index].role, Role::Stream(_)) {
        return Ok(None);
    }
    state.count_call();
    let patience = patience(&state, index, 0, true);
    state.expect_more(index, false);
    let answer = wait::until(state, index, patience, |state, index| {
        state.put_file(index, file, offset, count)
    });
    if answer == fail(libc::EPIPE) {
        break_pipe();
    }
    answer
}

impl State {
    /// `MSG_MORE`, which lasts until the next sending call.
    pub fn expect_more(&mut self, index: u32, more: bool) {
        if more != self.sockets[index].more {
            self.sockets[index].more = more;
            let cork = more || self.sockets[index].options.cork;
            self.pass_option(index, ConnectionOption::Cork(cork));
        }
    }

    /// Puts in what there is room for.
    fn put_stream(&mut self, index: u32, buffers: Buffers<'_>, done: &mut usize) -> Answer<()> {
        let (ring, id, limit) = self.sending_end(index)?;
        let count = buffers.drain(*done, |piece| {
            let room = limit.saturating_sub(ring.len());
            ring.write(&piece[..piece.len().min(room)])
        });
        *done += count;
        self.has_put(id, count)
    }

    /// Puts in what there is room for of a file, or `None` of it.
    fn put_file(
        &mut self,
        index: u32,
        file: c_int,
        offset: i64,
        count: usize,
    ) -> Answer<Option<usize>> {
        let (ring, id, limit) = self.sending_end(index)?;
        let count = count.min(limit.saturating_sub(ring.len()));
        let room = ring.room(count).map(|(at, bytes)| iovec {
            iov_base: at.cast(),
            iov_len: bytes,
        });
        if room[0].iov_len == 0 {
            return Err(WOULD_BLOCK);
        }
        // SAFETY: nobody reads this part of the ring before its tail moves, and who holds the lock alone writes it.
        let Ok(count) = (unsafe { raw::pread_at_hand(file, &room, offset) }) else {
            return Ok(None);
        };
        ring.advance_tail(count);
        self.has_put(id, count)?;
        Ok(Some(count))
    }

    /// The send ring of a connection that can still send, and how many bytes may be in it.
    fn sending_end(&mut self, index: u32) -> Answer<(Ring<'_>, SocketId, usize)> {
        self.catch_news();
        let socket = &mut self.sockets[index];
        if let Some(error) = socket.take_error() {
            return fail(error);
        }
        if socket.shut_write {
            return fail(libc::EPIPE);
        }
        let connecting = socket.connecting;
        let send_buffer = socket.options.send_buffer;
        let engine = self.engine.as_ref();
        let memory_limit = engine.map_or(usize::MAX, |engine| engine.stack.tcp_send_limit());
        let (table, id) = self.stream(index)?;
        if connecting {
            return Err(WOULD_BLOCK);
        }
        let lasting = self
            .engine
            .as_ref()
            .map_or(Events::CLOSED, |engine| engine.lasting(id));
        let record = table.find(id);
        if record.is_some_and(skink_tcp::has_finished) {
            // Another program that has the socket has closed this direction.
            return fail(libc::EPIPE);
        }
        match table.find_rings(id) {
            Some([ring, _]) if !lasting.intersects(Events::CLOSED | Events::ERROR) => {
                ring.restart();
                if buffer_limit(send_buffer, ring.capacity()) > ring.size()
                    && record.is_some_and(|record| skink_tcp::may_send_ahead(record, &ring))
                {
                    ring.grow(0);
                }
                let limit = buffer_limit(send_buffer, ring.size()).min(memory_limit);
                Ok((ring, id, limit))
            }
            _ => fail(libc::EPIPE),
        }
    }

    /// So many bytes are in the send ring now.
    fn has_put(&mut self, id: SocketId, count: usize) -> Answer<()> {
        if count > 0 {
            let now = raw::now();
            self.engine()?.stack.tcp_sent(now, id, count);
            self.note_work();
            self.flush_soon(now, count);
        }
        Ok(())
    }
}

/// Bytes that a stream socket takes at once, after waiting for some room.
pub fn room(fd: c_int, flags: c_int) -> Answer {
    estate::here(fd, flags, || room_here(fd, flags))
}

fn room_here(fd: c_int, flags: c_int) -> Answer {
    let state = lock()?;
    let index = state.socket_of(fd)?;
    let patience = patience(&state, index, flags, true);
    let answer = wait::until(state, index, patience, |state, index| {
        let (ring, _, limit) = state.sending_end(index)?;
        match limit.saturating_sub(ring.len()) {
            0 => Err(WOULD_BLOCK),
            free => Ok(free),
        }
    });
    if answer == fail(libc::EPIPE) {
        break_pipe();
    }
    answer
}
