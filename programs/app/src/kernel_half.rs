//! The half of a UDP socket that is in the kernel.
//!
//! A socket that is bound to every address, or to none, is reached at the kernel's addresses (loopback first of all) as well as at
//! Skink's, and it may send to where either leads: resolvers and forwarders use one socket for both. The kernel's socket behind
//! the descriptor has the same port, and what comes there is received too.
use crate::buffers::Buffers;
use crate::calls::{any, kernel_bind, kernel_name};
use crate::errno::{Answer, Stop, fail};
use crate::log::log;
use crate::raw;
use crate::sockaddr::{self, Name};
use crate::socket::{Halves, Role, Socket};
use crate::state::State;
use crate::transfer::{Control, Received};
use core::ffi::c_int;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use libc::{cmsghdr, msghdr};
use skink_memory::FallbackReason;
use skink_time::Instant;
use skink_wire::Endpoint;
use std::collections::BTreeMap;
use std::time::Duration;

/// Of so many who sent to the kernel's half it is remembered that answers go there,
const REMEMBERED: usize = 4096;
/// for so long: a resolver may take its time.
const FORGOTTEN: Duration = Duration::from_secs(30);

/// As often as this the kernel's half is asked first, or it might never be while there is always something in Skink's.
const KERNEL_TURN: u8 = 32;

/// So many datagrams that came while a socket was connected elsewhere are thrown away when that ends.
const MOST_STALE: usize = 4096;

/// Bytes of control messages that the kernel may have for us.
const CONTROL: usize = 256;

/// What `poll` and `epoll` say of whether there is room, which only Skink's half decides.
const ROOM: u32 = (libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND) as u32;

/// `events` of `poll` or `epoll`, as the kernel is asked about its half of a socket.
pub fn events_for_half(events: u32) -> u32 {
    events & !ROOM
}

/// Who has sent to the kernel's half of a socket lately.
pub struct Heard(BTreeMap<Endpoint, Instant>);

impl Heard {
    /// Nobody.
    pub const fn new() -> Heard {
        Heard(BTreeMap::new())
    }

    fn note(&mut self, now: Instant, from: Endpoint) {
        if self.0.len() >= REMEMBERED {
            self.0.retain(|_, since| now.since(*since) < FORGOTTEN);
        }
        if self.0.len() < REMEMBERED || self.0.contains_key(&from) {
            self.0.insert(from, now);
        }
    }

    fn has(&self, now: Instant, from: Endpoint) -> bool {
        let since = self.0.get(&from);
        since.is_some_and(|since| now.since(*since) < FORGOTTEN)
    }

    /// It has sent to Skink's half since.
    pub fn forget(&mut self, from: Endpoint) {
        if !self.0.is_empty() {
            self.0.remove(&from);
        }
    }
}

impl Socket {
    /// Whether what is sent to the kernel's addresses leaves by the kernel's socket.
    pub fn has_kernel_half(&self) -> bool {
        let everywhere = |bound: Endpoint| sockaddr::canonical(bound).addr.is_unspecified();
        self.datagram && self.own_kernel_socket && self.bound.is_none_or(everywhere)
    }

    /// Whether what comes to the kernel's socket is received.
    pub fn hears_in_kernel(&self) -> bool {
        self.has_kernel_half() && self.peer.is_none()
    }

    /// Whether the kernel's half is asked first this time.
    pub fn is_kernels_turn(&mut self) -> bool {
        self.received = (self.received + 1) % KERNEL_TURN;
        self.received == 0
    }
}

impl State {
    /// Why a datagram of a socket of Skink's leaves by the kernel's half, or `None` if it doesn't. An answer goes the way that
    /// the question came.
    pub fn reason_for_half(
        &mut self,
        index: u32,
        to: Endpoint,
        control: &Control,
    ) -> Option<FallbackReason> {
        let socket = &self.sockets[index];
        if !socket.has_kernel_half() || socket.peer == Some(to) {
            return None;
        }
        if to.addr.is_loopback() || to.addr.is_unspecified() {
            return Some(FallbackReason::Loopback);
        }
        if to.addr.is_multicast() {
            return socket
                .options
                .groups
                .then_some(FallbackReason::UnsupportedType);
        }
        if self.is_own_address(to.addr) {
            return None;
        }
        let is_answer = self.sockets[index].heard.has(raw::now(), to);
        if is_answer
            || control.from.is_some_and(|from| self.interfaces.have(from))
            || self.interfaces.have(to.addr)
        {
            return Some(FallbackReason::KernelAddress);
        }
        let engine = self.engine.as_deref()?;
        (!engine.stack.has_route(to.addr)).then_some(FallbackReason::NoRoute)
    }

    /// Whether the socket needn't be the kernel's for good because this datagram is, for `reason`.
    pub fn is_half_enough(&self, index: u32, reason: FallbackReason) -> bool {
        use FallbackReason::*;
        let where_to = matches!(reason, Loopback | KernelAddress | NoRoute | UnsupportedType);
        where_to && self.sockets[index].has_kernel_half()
    }

    /// The kernel's half sends: it gets the port of Skink's, if it has none and that one is free.
    pub fn leave_to_half<T>(
        &mut self,
        index: u32,
        reason: FallbackReason,
        to: Endpoint,
    ) -> Answer<T> {
        let local = self.datagram_port(index);
        let socket = &mut self.sockets[index];
        let Some(fd) = socket.fds.first() else {
            return fail(libc::EBADF);
        };
        if socket.bound.is_none()
            && let Some(port) = local
        {
            let local = any(socket.domain, port);
            // Else it sends from another one.
            let _ = kernel_bind(*fd, local, socket.domain);
            socket.bound = Some(local);
        }
        if !core::mem::replace(&mut socket.told_half, true) {
            log!(
                Info,
                "descriptor {:?}: datagrams for {to} and the like go by the kernel ({})",
                socket.fds,
                reason.label()
            );
        }
        Err(Stop::Kernel)
    }

    /// The port of a UDP socket on Skink.
    fn datagram_port(&self, index: u32) -> Option<u16> {
        match self.sockets[index].role {
            Role::Datagram(halves) => self.port_of(halves),
            _ => None,
        }
    }

    /// The port of what Skink has of a UDP socket.
    pub fn port_of(&self, halves: Halves) -> Option<u16> {
        let table = self.engine.as_ref()?.stack.udp_table();
        let mut records = halves.into_iter().flatten().filter_map(|id| table.find(id));
        records.next().map(|record| record.four_tuple().local.port)
    }

    /// Opens Skink's half of a socket that nobody has bound: with the port that the kernel has given it, if it has sent there
    /// already and that one is free.
    pub fn open_beside(&mut self, index: u32) -> Answer<Halves> {
        let socket = &mut self.sockets[index];
        let name = socket.fds.first().map(|fd| kernel_name(*fd));
        if let Some(Ok(Endpoint {
            port: port @ 1.., ..
        })) = name
        {
            socket.bound = Some(any(socket.domain, port));
            if let Ok(halves) = self.open_datagram(index) {
                return Ok(halves);
            }
            self.sockets[index].bound = None;
        }
        self.open_datagram(index)
    }

    /// Takes a datagram that has come to the kernel's half.
    pub fn receive_in_kernel(
        &mut self,
        (fd, index): (c_int, u32),
        buffers: &Buffers<'_>,
        flags: c_int,
    ) -> Answer<Received> {
        let mut received = receive(fd, buffers, flags)?;
        while self.has_come_twice(&received) {
            if flags & libc::MSG_PEEK != 0 {
                let _ = receive(fd, buffers, flags & !libc::MSG_PEEK);
            }
            received = receive(fd, buffers, flags)?;
        }
        let socket = &mut self.sockets[index];
        if let Some(from) = received.from {
            socket.heard.note(raw::now(), sockaddr::canonical(from));
        }
        Ok(Received {
            domain: socket.domain,
            told: socket.options.told,
            ..received
        })
    }

    /// A stack that is apart from its programs hears what is for all on its interface, and so does the kernel.
    fn has_come_twice(&mut self, received: &Received) -> bool {
        let (Some(to), Some(interface)) = (received.to, received.interface) else {
            return false;
        };
        self.is_broadcast(to) && self.is_served() && self.own_interface_index() == interface
    }

    /// Has the kernel tell where a datagram to its half was sent; or, when the socket is the kernel's alone, only if the program
    /// has asked for it.
    pub fn ask_where_to(&self, index: u32, asks: bool) {
        let socket = &self.sockets[index];
        let on = c_int::from(asks || socket.options.told.info_v4);
        let Some(fd) = socket.fds.first().filter(|_| socket.datagram) else {
            return;
        };
        let (level, name) = (libc::IPPROTO_IP as usize, libc::IP_PKTINFO as usize);
        let arguments = [*fd as usize, level, name, &raw const on as usize, 4, 0];
        // SAFETY: the value is ours. If it fails, broadcasts come twice.
        let _ = unsafe { raw::syscall(libc::SYS_setsockopt, arguments) };
    }

    /// What came to the kernel's half while the socket was connected wasn't meant for it.
    pub fn empty_half(&self, index: u32) {
        let socket = &self.sockets[index];
        if socket.hears_in_kernel()
            && let Some(fd) = socket.fds.first()
        {
            let arguments = [*fd as usize, 0, 0, libc::MSG_DONTWAIT as usize, 0, 0];
            // More come as fast, perhaps.
            for _ in 0..MOST_STALE {
                // SAFETY: only numbers.
                if unsafe { raw::call(libc::SYS_recvfrom, arguments) }.is_err() {
                    break;
                }
            }
        }
    }
}

/// Receives from the kernel without waiting.
fn receive(fd: c_int, buffers: &Buffers<'_>, flags: c_int) -> Answer<Received> {
    let mut name = [0u64; 4];
    let mut control = [0u64; CONTROL / 8];
    let list = buffers.list();
    // SAFETY: a header of zeros names nothing.
    let mut message: msghdr = unsafe { core::mem::zeroed() };
    message.msg_name = name.as_mut_ptr().cast();
    message.msg_namelen = size_of_val(&name) as u32;
    message.msg_iov = list.as_ptr().cast_mut();
    message.msg_iovlen = list.len() as _;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = CONTROL as _;
    let flags = flags | libc::MSG_DONTWAIT;
    let arguments = [
        fd as usize,
        &raw mut message as usize,
        flags as usize,
        0,
        0,
        0,
    ];
    // SAFETY: the header names our own memory, and the buffers of the call.
    let bytes = unsafe { raw::call(libc::SYS_recvmsg, arguments) }?;
    // SAFETY: the kernel has filled in the name.
    let from = match unsafe { sockaddr::read(name.as_ptr().cast(), message.msg_namelen) } {
        Ok(Name::Inet(from)) => Some(from),
        _ => None,
    };
    let mut received = Received {
        bytes,
        from,
        // `sin6_scope_id`
        scope: (name[3] & 0xffff_ffff) as u32,
        truncated: message.msg_flags & libc::MSG_TRUNC != 0,
        ..Received::default()
    };
    // SAFETY: the macros stay inside the control messages that the kernel has written.
    unsafe {
        let mut next = libc::CMSG_FIRSTHDR(&message);
        while let Some(header) = next.as_ref() {
            let data = libc::CMSG_DATA(next);
            let length = header.cmsg_len - size_of::<cmsghdr>();
            match (header.cmsg_level, header.cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) if length >= 12 => {
                    let octets = data.add(8).cast::<[u8; 4]>().read();
                    received.to = Some(IpAddr::V4(Ipv4Addr::from(octets)));
                    received.interface = Some(data.cast::<u32>().read_unaligned());
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) if length >= 20 => {
                    let octets = data.cast::<[u8; 16]>().read();
                    let to = IpAddr::V6(Ipv6Addr::from(octets));
                    received.to = Some(to.to_canonical());
                    received.interface = Some(data.add(16).cast::<u32>().read_unaligned());
                }
                (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT)
                    if length >= 4 =>
                {
                    received.hop_limit = data.cast::<c_int>().read_unaligned() as u8;
                }
                (libc::IPPROTO_IP, libc::IP_TOS) if length >= 1 => {
                    received.traffic_class = data.read();
                }
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) if length >= 4 => {
                    received.traffic_class = data.cast::<c_int>().read_unaligned() as u8;
                }
                (libc::SOL_SOCKET, kind @ (libc::SO_TIMESTAMP | libc::SO_TIMESTAMPNS))
                    if length >= 16 =>
                {
                    let [seconds, rest] = data.cast::<[i64; 2]>().read_unaligned();
                    let nanos = rest as u32 * if kind == libc::SO_TIMESTAMP { 1000 } else { 1 };
                    received.time = Some(Duration::new(seconds as u64, nanos));
                }
                _ => {}
            }
            next = libc::CMSG_NXTHDR(&message, next);
        }
    }
    Ok(received)
}

/// `sendmsg` of the kernel's socket behind a descriptor.
///
/// # Safety
/// As for `sendmsg`.
pub unsafe fn send(fd: c_int, message: &msghdr, flags: c_int) -> Answer {
    let message = core::ptr::from_ref(message) as usize;
    // SAFETY: the caller's promise.
    unsafe {
        raw::call(
            libc::SYS_sendmsg,
            [fd as usize, message, flags as usize, 0, 0, 0],
        )
    }
}

#[cfg(test)]
mod tests;
