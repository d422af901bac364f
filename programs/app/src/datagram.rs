//! Data of UDP sockets.
use crate::accept::kernel_has_some;
use crate::buffers::Buffers;
use crate::errno::{Answer, Stop, WOULD_BLOCK, fail};
use crate::fd_table;
use crate::lock::Guard;
use crate::raw;
use crate::sockaddr::{self, Name};
use crate::socket::Role;
use crate::state::State;
use crate::transfer::{Received, Sending, patience};
use crate::wait::{self, Patience};
use core::ffi::c_int;
use core::net::IpAddr;
use skink_memory::{DatagramHeader, DatagramRing, PushError};
use skink_messages::UdpRequest;

/// The largest payload of a datagram to `address`, in bytes.
fn most_bytes(address: IpAddr) -> usize {
    match address {
        IpAddr::V4(_) => 65_507,
        IpAddr::V6(_) => 65_527,
    }
}

/// Takes one datagram. As long as nobody has bound the socket or sent on it, it isn't decided whose it is: the kernel has
/// what has come, and another thread that sends may make it Skink's meanwhile, or leave it to the kernel.
pub fn receive_datagram(
    state: Guard,
    (fd, index): (c_int, u32),
    buffers: Buffers<'_>,
    flags: c_int,
) -> Answer<Received> {
    let undecided = !state.sockets[index].is_decided();
    if !undecided {
        state.count_call();
    }
    let patience = patience(&state, index, flags, false);
    // After `shutdown` who would wait is told that it is over, and who wouldn't only that there is nothing, as in Linux.
    let waits = patience != Patience::None;
    let other = (undecided || state.sockets[index].hears_in_kernel()).then_some(fd);
    let answer = wait::until_either(state, index, other, patience, |state, index, readable| {
        if let Some(error) = state.sockets[index].take_error() {
            return fail(error);
        }
        let halves = match state.sockets[index].role {
            Role::Datagram(halves) => halves,
            Role::Undecided if readable && kernel_has_some(fd) => return Err(Stop::Kernel),
            Role::Undecided if waits && state.sockets[index].shut_read => {
                return Ok(Received {
                    domain: state.sockets[index].domain,
                    ..Received::default()
                });
            }
            Role::Undecided => return Err(WOULD_BLOCK),
            Role::Stream(_) | Role::Dormant | Role::Listener(_) | Role::Lost => {
                return fail(libc::EBADF);
            }
        };
        let socket = &mut state.sockets[index];
        let hears = socket.hears_in_kernel();
        let mut asks = hears && readable;
        if hears && socket.is_kernels_turn() {
            asks = false;
            match state.receive_in_kernel((fd, index), &buffers, flags) {
                Err(WOULD_BLOCK) => {}
                answer => return answer,
            }
        }
        let socket = &state.sockets[index];
        let options = &socket.options;
        let (domain, over) = (socket.domain, waits && socket.shut_read);
        let told = options.told;
        let interface = (told.info_v4 || told.info_v6).then(|| state.own_interface_index());
        let engine = state.engine()?;
        for id in halves.into_iter().flatten() {
            let ring = DatagramRing::new(engine.stack.udp_table().receive_ring(id.slot));
            let Some(datagram) = ring.peek() else {
                continue;
            };
            let mut left = datagram.payload;
            let copied = buffers.fill(0, |_, piece| copy(&mut left, piece));
            let length = datagram.len();
            if flags & libc::MSG_PEEK == 0 {
                ring.pop(&datagram);
            }
            let header = datagram.header;
            state.sockets[index].heard.forget(header.remote);
            return Ok(Received {
                bytes: if flags & libc::MSG_TRUNC != 0 {
                    length
                } else {
                    copied
                },
                from: Some(header.remote),
                to: Some(header.local),
                truncated: copied < length,
                hop_limit: header.hop_limit,
                traffic_class: header.traffic_class,
                interface,
                domain,
                told,
                ..Received::default()
            });
        }
        if asks && !over {
            return state.receive_in_kernel((fd, index), &buffers, flags);
        }
        if over {
            Ok(Received {
                domain,
                ..Received::default()
            })
        } else {
            Err(WOULD_BLOCK)
        }
    });
    match answer {
        Err(Stop::Errno(libc::EBADF)) if undecided && !fd_table::is_ours(fd) => Err(Stop::Kernel),
        answer => answer,
    }
}

/// Moves the front of `from` to the front of `to`.
fn copy(from: &mut [skink_memory::Bytes<'_>; 2], to: &mut [u8]) -> usize {
    let mut done = 0;
    for span in from {
        let (front, rest) = span.split_at(to.len() - done);
        front.copy_to(&mut to[done..]);
        done += front.len();
        *span = rest;
    }
    done
}

/// Whether a datagram of `payload` bytes reaches `to` in one piece, as far as this process knows.
fn reaches_whole(state: &mut State, to: IpAddr, payload: usize) -> bool {
    let headers = 8 + if to.is_ipv4() { 20 } else { 40 };
    let takes = |mtu: u32| headers + payload <= mtu as usize;
    state.is_own_address(to) || state.mtu_towards(to).is_none_or(takes)
}

/// Sends one datagram.
pub fn send_datagram(state: Guard, index: u32, sending: Sending<'_>) -> Answer {
    state.count_call();
    if sending.flags & libc::MSG_MORE != 0 {
        // To send several where one is meant would be worse.
        return fail(libc::EOPNOTSUPP);
    }
    let total = sending.buffers.total();
    let patience = patience(&state, index, sending.flags, true);
    wait::until(state, index, patience, |state, index| {
        state.catch_news();
        let socket = &mut state.sockets[index];
        if let Some(error) = socket.take_error() {
            return fail(error);
        }
        if socket.shut_write {
            return fail(libc::EPIPE);
        }
        let Role::Datagram(halves) = socket.role else {
            return fail(libc::EBADF);
        };
        let to = match sending.to? {
            Some(Name::Inet(to)) => Some(sockaddr::canonical(to)),
            Some(Name::Unspecified) | None => socket.peer,
        };
        let Some(to) = to else {
            return fail(libc::EDESTADDRREQ);
        };
        if to.port == 0 {
            return fail(libc::EINVAL);
        }
        if total > most_bytes(to.addr) {
            return fail(libc::EMSGSIZE);
        }
        if !socket.options.broadcast && state.is_broadcast(to.addr) {
            return fail(libc::EACCES);
        }
        let forbids = state.sockets[index].options.forbids_fragments();
        if forbids && !reaches_whole(state, to.addr, total) {
            return fail(libc::EMSGSIZE);
        }
        let control = sending.control?;
        if let Some(reason) = state.reason_for_half(index, to, &control) {
            return state.leave_to_half(index, reason, to);
        }
        let socket = &state.sockets[index];
        let options = &socket.options;
        let traffic_class = control.traffic_class.unwrap_or(options.traffic_class);
        // For groups there is another option.
        let usual = if to.addr.is_multicast() {
            0
        } else {
            options.hop_limit
        };
        let hop_limit = control.hop_limit.unwrap_or(usual);
        if state.is_own_address(to.addr) {
            state.activate_port(true, to.port)?;
        }
        let Some(id) = halves[usize::from(to.addr.is_ipv6())] else {
            return fail(libc::ENETUNREACH);
        };
        let any = crate::calls::any(
            if to.addr.is_ipv4() {
                libc::AF_INET
            } else {
                libc::AF_INET6
            },
            0,
        );
        let from = control
            .from
            .filter(|from| from.is_ipv4() == to.addr.is_ipv4());
        if from.is_some_and(|from| !state.is_own_address(from)) {
            return fail(libc::ENETUNREACH);
        }
        let from = from.unwrap_or(any.addr);
        let engine = state.engine()?;
        if to.addr.is_loopback() || !engine.stack.has_route(to.addr) {
            return fail(libc::ENETUNREACH);
        }
        let ring = DatagramRing::new(engine.stack.udp_table().send_ring(id.slot));
        let header = DatagramHeader {
            traffic_class,
            hop_limit,
            dont_fragment: forbids,
            ..DatagramHeader::new(to, from)
        };
        let buffers = &sending.buffers;
        let pushed = buffers.with_slices(|slices| ring.push_with(&header, slices));
        match pushed {
            Ok(()) => {}
            Err(PushError::Full) => return Err(WOULD_BLOCK),
            Err(PushError::TooLarge) => return fail(libc::EMSGSIZE),
        }
        engine.stack.udp_request(raw::now(), UdpRequest::Sent(id));
        state.note_work();
        state.flush_soon(raw::now(), total);
        Ok(total)
    })
}
