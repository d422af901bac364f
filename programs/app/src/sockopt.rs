//! `setsockopt` and `getsockopt`. An option that Skink can't honour is refused; set before it is
//! known whose the socket is, it makes the socket the kernel's.
use crate::errno::{Answer, Stop, fail};
use crate::estate;
use crate::options::TimeUnit;
use crate::raw;
use crate::socket::{Role, Socket};
use crate::state::State;
use core::ffi::{c_int, c_void};
use libc::socklen_t;
use skink_messages::ConnectionOption;
use std::time::Duration;

/// The one algorithm of congestion control that there is (`TCP_CONGESTION`).
pub const CONGESTION: &[u8] = b"cubic";

/// The value of an option, as far as it is a number.
struct Value {
    number: Option<c_int>,
    bytes: [u8; 16],
    length: usize,
}

impl Value {
    /// # Safety
    /// `length` bytes at `at` must be readable, or `at` null.
    unsafe fn read(at: *const c_void, length: socklen_t) -> Answer<Value> {
        let mut bytes = [0; 16];
        let count = (length as usize).min(bytes.len());
        if count > 0 {
            if at.is_null() {
                return fail(libc::EFAULT);
            }
            // SAFETY: the caller's promise.
            unsafe { core::ptr::copy_nonoverlapping(at.cast(), bytes.as_mut_ptr(), count) };
        }
        let number =
            (count >= 4).then(|| c_int::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
        // IP options may be single bytes.
        let number = if count == 0 {
            None
        } else {
            number.or(Some(c_int::from(bytes[0])))
        };
        Ok(Value {
            number,
            bytes,
            length: count,
        })
    }

    fn number(&self) -> Answer<c_int> {
        self.number.ok_or(Stop::Errno(libc::EINVAL))
    }

    /// Whether it is this text, with or without a null byte at its end.
    fn is_text(&self, text: &[u8]) -> bool {
        let mut words = self.bytes[..self.length].split(|byte| *byte == 0);
        words.next() == Some(text)
    }

    fn flag(&self) -> Answer<bool> {
        self.number().map(|number| number != 0)
    }

    fn within(&self, least: c_int, most: c_int) -> Answer<u32> {
        match self.number()? {
            number if (least..=most).contains(&number) => Ok(number as u32),
            _ => fail(libc::EINVAL),
        }
    }

    fn word(&self, index: usize) -> i64 {
        let mut word = [0; 8];
        word.copy_from_slice(&self.bytes[index * 8..index * 8 + 8]);
        i64::from_ne_bytes(word)
    }

    /// A `timeval`; zero stands for no limit.
    fn time(&self) -> Answer<Option<Duration>> {
        let (seconds, micros) = (self.word(0), self.word(1));
        if self.length < 16 {
            return fail(libc::EINVAL);
        }
        if !(0..1_000_000).contains(&micros) {
            return fail(libc::EDOM);
        }
        let Ok(seconds) = u64::try_from(seconds) else {
            // As Linux: it doesn't wait at all.
            return Ok(Some(Duration::ZERO));
        };
        let time = Duration::from_micros(micros as u64) + Duration::from_secs(seconds);
        Ok((!time.is_zero()).then_some(time))
    }
}

/// Options that make things faster, or time more exact, where there are: programs go on without them. Were they set, the socket
/// would have to be the kernel's.
const OPTIONAL: [(c_int, c_int); 7] = [
    (libc::SOL_SOCKET, libc::SO_ZEROCOPY),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMPING),
    (libc::SOL_SOCKET, SO_TIMESTAMPING_NEW),
    (libc::IPPROTO_TCP, libc::TCP_FASTOPEN),
    (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT),
    (libc::IPPROTO_UDP, libc::UDP_SEGMENT),
    (libc::IPPROTO_UDP, libc::UDP_GRO),
];

const SO_TIMESTAMPING_NEW: c_int = 65;

/// How datagrams are sent to groups.
const GROUP_SENDING: [(c_int, c_int); 8] = [
    (libc::IPPROTO_IP, libc::IP_MULTICAST_IF),
    (libc::IPPROTO_IP, libc::IP_MULTICAST_TTL),
    (libc::IPPROTO_IP, libc::IP_MULTICAST_LOOP),
    (libc::IPPROTO_IP, libc::IP_MULTICAST_ALL),
    (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_IF),
    (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS),
    (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_LOOP),
    (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_ALL),
];

/// To which groups a socket belongs (RFC 3493 section 5.2, RFC 3678).
const GROUP_MEMBERSHIP: [(c_int, c_int); 10] = [
    (libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP),
    (libc::IPPROTO_IP, libc::IP_DROP_MEMBERSHIP),
    (libc::IPPROTO_IP, libc::IP_ADD_SOURCE_MEMBERSHIP),
    (libc::IPPROTO_IP, libc::IP_DROP_SOURCE_MEMBERSHIP),
    (libc::IPPROTO_IP, MCAST_JOIN_GROUP),
    (libc::IPPROTO_IP, MCAST_LEAVE_GROUP),
    (libc::IPPROTO_IPV6, libc::IPV6_ADD_MEMBERSHIP),
    (libc::IPPROTO_IPV6, libc::IPV6_DROP_MEMBERSHIP),
    (libc::IPPROTO_IPV6, MCAST_JOIN_GROUP),
    (libc::IPPROTO_IPV6, MCAST_LEAVE_GROUP),
];
const MCAST_JOIN_GROUP: c_int = 42;
const MCAST_LEAVE_GROUP: c_int = 45;

/// # Safety
/// As for `setsockopt`.
pub unsafe fn set(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: socklen_t,
) -> Answer {
    let mut state = estate::lock_here(fd)?;
    let index = state.socket_asked(fd)?;
    let socket = &state.sockets[index];
    let decided = socket.is_decided() && !socket.is_bound_only();
    let (has_half, own_kernel_socket) = (socket.has_kernel_half(), socket.own_kernel_socket);
    if (!decided || has_half) && OPTIONAL.contains(&(level, name)) {
        return fail(libc::ENOPROTOOPT);
    }
    // The kernel can't have a socket that is bound to an address of Skink's.
    let is_skinks = decided || socket.datagram && socket.bound.is_some() && !has_half;
    let arguments = [
        fd as usize,
        level as usize,
        name as usize,
        value as usize,
        length as usize,
        0,
    ];
    // SAFETY: the caller's promise.
    let tell_kernel = || unsafe { raw::call(libc::SYS_setsockopt, arguments) };
    if !decided {
        // The kernel checks the value, and has it if it must take over.
        tell_kernel()?;
    }
    // SAFETY: the caller's promise.
    let value = unsafe { Value::read(value, length) }?;
    let answer = state.set_option(index, level, name, &value);
    let is_of_groups = own_kernel_socket && GROUP_SENDING.contains(&(level, name));
    if decided && (has_half || is_of_groups) && answer.is_ok() {
        // What is refused isn't in force on a half either. And the kernel's socket is asked for what concerns groups alone.
        tell_kernel()?;
    }
    match answer {
        Err(Stop::Errno(libc::ENOPROTOOPT)) if !is_skinks => {
            state.sockets[index].unsupported.get_or_insert(name);
            Ok(0)
        }
        Err(stop) => Err(stop),
        Ok(None) => Ok(0),
        Ok(Some(option)) => {
            state.pass_option(index, option);
            if let ConnectionOption::NoDelay(true) = option {
                // What `MSG_MORE` holds back leaves, as on Linux.
                state.expect_more(index, false);
            }
            Ok(0)
        }
    }
}

impl State {
    /// Remembers an option; answers what the stack must be told.
    fn set_option(
        &mut self,
        index: u32,
        level: c_int,
        name: c_int,
        value: &Value,
    ) -> Answer<Option<ConnectionOption>> {
        if (level, name) == (libc::SOL_SOCKET, libc::SO_BINDTODEVICE) {
            let own = self.own_interface().map(|(name, _)| name);
            let is_own = own.is_some_and(|own| value.is_text(own.as_bytes())) || value.is_text(b"");
            return if is_own {
                Ok(None)
            } else {
                fail(libc::ENOPROTOOPT)
            };
        }
        let socket = &mut self.sockets[index];
        match level {
            libc::SOL_SOCKET => set_socket_option(socket, name, value),
            libc::IPPROTO_TCP if !socket.datagram => set_tcp_option(socket, name, value),
            libc::IPPROTO_IP | libc::IPPROTO_IPV6 => set_ip_option(socket, level, name, value),
            _ => fail(libc::ENOPROTOOPT),
        }
    }
}

fn set_socket_option(
    socket: &mut Socket,
    name: c_int,
    value: &Value,
) -> Answer<Option<ConnectionOption>> {
    use ConnectionOption::*;
    let options = &mut socket.options;
    match name {
        libc::SO_REUSEADDR => options.reuse_address = value.flag()?,
        libc::SO_REUSEPORT => options.reuse_port = value.flag()?,
        libc::SO_KEEPALIVE => {
            options.keep_alive = value.flag()?;
            return Ok(Some(KeepAlive(options.keep_alive)));
        }
        libc::SO_BROADCAST => options.broadcast = value.flag()?,
        libc::SO_SNDBUF | libc::SO_SNDBUFFORCE => {
            options.send_buffer = value.number()?.max(0) as u32;
            return Ok(Some(SendBuffer(options.send_buffer)));
        }
        libc::SO_RCVBUF | libc::SO_RCVBUFFORCE => {
            options.receive_buffer = value.number()?.max(0) as u32;
            return Ok(Some(ReceiveBuffer(options.receive_buffer)));
        }
        libc::SO_RCVTIMEO => options.receive_timeout = value.time()?,
        libc::SO_SNDTIMEO => options.send_timeout = value.time()?,
        libc::SO_LINGER => {
            let seconds = [
                value.bytes[4],
                value.bytes[5],
                value.bytes[6],
                value.bytes[7],
            ];
            if value.length < 8 {
                return fail(libc::EINVAL);
            }
            let seconds = c_int::from_ne_bytes(seconds).max(0) as u32;
            options.linger = value.flag()?.then_some(seconds);
            return Ok(Some(ResetOnClose(options.linger == Some(0))));
        }
        libc::SO_OOBINLINE => options.urgent_inline = value.flag()?,
        libc::SO_PRIORITY => options.priority = value.number()?.cast_unsigned(),
        // What Skink does anyway, or what changes nothing that a program could see.
        libc::SO_DONTROUTE if !value.flag()? => {}
        libc::SO_BUSY_POLL | libc::SO_PREFER_BUSY_POLL | libc::SO_BUSY_POLL_BUDGET => {}
        libc::SO_INCOMING_CPU | libc::SO_MAX_PACING_RATE => {}
        libc::SO_RCVLOWAT => {
            options.receive_low = u32::try_from(value.number()?).unwrap_or(i32::MAX.unsigned_abs());
        }
        libc::SO_NO_CHECK if value.number()? == 0 => {}
        libc::SO_TIMESTAMP | libc::SO_TIMESTAMPNS if socket.datagram => {
            let unit = match name {
                libc::SO_TIMESTAMP => TimeUnit::Micros,
                _ => TimeUnit::Nanos,
            };
            options.told.time = value.flag()?.then_some(unit);
        }
        libc::SO_TIMESTAMP | libc::SO_TIMESTAMPNS if !value.flag()? => {}
        _ => return fail(libc::ENOPROTOOPT),
    }
    Ok(None)
}

fn set_tcp_option(
    socket: &mut Socket,
    name: c_int,
    value: &Value,
) -> Answer<Option<ConnectionOption>> {
    use ConnectionOption::*;
    let options = &mut socket.options;
    Ok(Some(match name {
        libc::TCP_NODELAY => {
            options.no_delay = value.flag()?;
            NoDelay(options.no_delay)
        }
        libc::TCP_CORK => {
            options.cork = value.flag()?;
            socket.more = false;
            Cork(socket.options.cork)
        }
        libc::TCP_QUICKACK => {
            options.quick_ack = value.flag()?;
            QuickAck(options.quick_ack)
        }
        libc::TCP_KEEPIDLE => {
            options.keep_idle = value.within(1, 32767)?;
            KeepAliveIdle(options.keep_idle)
        }
        libc::TCP_KEEPINTVL => {
            options.keep_interval = value.within(1, 32767)?;
            KeepAliveInterval(options.keep_interval)
        }
        libc::TCP_KEEPCNT => {
            options.keep_probes = value.within(1, 127)?;
            KeepAliveProbes(options.keep_probes)
        }
        libc::TCP_USER_TIMEOUT => {
            options.user_timeout = value.within(0, c_int::MAX)?;
            UserTimeout(options.user_timeout)
        }
        libc::TCP_MAXSEG => {
            options.maximum_segment = value.within(88, 32767)? as u16;
            MaximumSegment(options.maximum_segment)
        }
        // Connections are handed over when they are established, which is allowed: the kernel too
        // does so when the time is over.
        libc::TCP_DEFER_ACCEPT => {
            options.defer_accept = value.number()?.max(0) as u32;
            return Ok(None);
        }
        // How long to try and to wait, and how much to hold back: Skink does as it does by default.
        libc::TCP_SYNCNT
        | libc::TCP_LINGER2
        | libc::TCP_NOTSENT_LOWAT
        | libc::TCP_WINDOW_CLAMP
        | libc::TCP_THIN_LINEAR_TIMEOUTS
        | libc::TCP_THIN_DUPACK => return Ok(None),
        libc::TCP_CONGESTION if value.is_text(CONGESTION) => return Ok(None),
        _ => return fail(libc::ENOPROTOOPT),
    }))
}

fn set_ip_option(
    socket: &mut Socket,
    level: c_int,
    name: c_int,
    value: &Value,
) -> Answer<Option<ConnectionOption>> {
    use ConnectionOption::*;
    let options = &mut socket.options;
    match (level, name) {
        (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
            options.traffic_class = value.within(-1, 255)?.min(255) as u8;
            return Ok(Some(TrafficClass(options.traffic_class)));
        }
        (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS) => {
            options.hop_limit = match value.number()? {
                -1 => 0,
                number @ 1..=255 => number as u8,
                _ => return fail(libc::EINVAL),
            };
            let hops = if options.hop_limit == 0 {
                64
            } else {
                options.hop_limit
            };
            return Ok(Some(HopLimit(hops)));
        }
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => {
            let decided = socket.role != Role::Undecided || socket.bound.is_some();
            if decided {
                return fail(libc::EINVAL);
            }
            socket.options.only_v6 = value.flag()?;
        }
        // Of a datagram; a stream has none of that.
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => options.told.info_v4 = value.flag()?,
        (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO) => options.told.info_v6 = value.flag()?,
        (libc::IPPROTO_IP, libc::IP_RECVTTL) => options.told.ttl = value.flag()?,
        (libc::IPPROTO_IP, libc::IP_RECVTOS) => options.told.tos = value.flag()?,
        (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT) => options.told.hop_limit = value.flag()?,
        (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS) => options.told.traffic_class = value.flag()?,
        // Errors arrive on connected sockets; there is no queue of them.
        (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
            if !value.flag()? => {}
        (libc::IPPROTO_IP, libc::IP_FREEBIND | libc::IP_BIND_ADDRESS_NO_PORT) => {}
        // The kernel's half has them: what isn't sent to groups is as before. (The JDK sets the hops of each socket.)
        _ if GROUP_SENDING.contains(&(level, name)) && socket.datagram => {
            socket.options.groups |=
                matches!(name, libc::IP_MULTICAST_IF | libc::IPV6_MULTICAST_IF);
        }
        _ if GROUP_MEMBERSHIP.contains(&(level, name)) && socket.has_kernel_half() => {
            socket.options.groups = true;
        }
        (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER)
        | (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER) => {
            let how = value.within(libc::IP_PMTUDISC_DONT, libc::IP_PMTUDISC_OMIT)?;
            socket.options.mtu_discover = Some(how as u8);
        }
        _ => return fail(libc::ENOPROTOOPT),
    }
    Ok(None)
}
