//! `getsockopt`, `TCP_INFO` among it.
use crate::errno::{Answer, Stop, fail};
use crate::estate;
use crate::options::{TimeUnit, buffer_limit};
use crate::socket::{Role, Socket};
use crate::sockopt::CONGESTION;
use crate::state::State;
use core::ffi::{c_int, c_void};
use core::net::IpAddr;
use core::sync::atomic::Ordering;
use libc::socklen_t;
use skink_memory::{Record, first_part};
use skink_tcp::State as TcpState;

/// # Safety
/// As for `getsockopt`.
pub unsafe fn get(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> Answer {
    let mut state = estate::lock_here(fd)?;
    let index = state.socket_asked(fd)?;
    let socket = &state.sockets[index];
    // A connection attempt that was shut down has left its error.
    let has_error = (level, name) == (libc::SOL_SOCKET, libc::SO_ERROR) && socket.error != 0;
    if (!socket.is_decided() || socket.is_bound_only()) && !has_error {
        return Err(Stop::Kernel);
    }
    if value.is_null() || length.is_null() {
        return fail(libc::EFAULT);
    }
    if (level, name) == (libc::SOL_SOCKET, libc::SO_ERROR) {
        state.pump();
    }
    let mut bytes = [0u8; size_of::<libc::tcp_info>()];
    let count = match (level, name) {
        (libc::IPPROTO_TCP, libc::TCP_INFO) => state.connection_info(index, &mut bytes)?,
        (libc::SOL_SOCKET, libc::SO_LINGER) => {
            let linger = state.sockets[index].options.linger;
            bytes[..4].copy_from_slice(&c_int::from(linger.is_some()).to_ne_bytes());
            bytes[4..8].copy_from_slice(&linger.unwrap_or(0).to_ne_bytes());
            8
        }
        (libc::IPPROTO_TCP, libc::TCP_CONGESTION) if !state.sockets[index].datagram => {
            bytes[..CONGESTION.len()].copy_from_slice(CONGESTION);
            16
        }
        // Bound to none, and without any.
        (libc::SOL_SOCKET, libc::SO_BINDTODEVICE) => 0,
        (libc::IPPROTO_IP, libc::IP_OPTIONS) if !state.sockets[index].own_kernel_socket => 0,
        (libc::SOL_SOCKET, libc::SO_COOKIE) if !state.sockets[index].own_kernel_socket => {
            bytes[..8].copy_from_slice(&state.cookie(index)?.to_ne_bytes());
            8
        }
        (libc::IPPROTO_IP, libc::IP_MTU) | (libc::IPPROTO_IPV6, libc::IPV6_MTU)
            if level == libc::IPPROTO_IP || state.sockets[index].domain == libc::AF_INET6 =>
        {
            bytes[..4].copy_from_slice(&state.path_mtu(index)?.to_ne_bytes());
            4
        }
        (libc::SOL_SOCKET, libc::SO_RCVTIMEO | libc::SO_SNDTIMEO) => {
            let options = &state.sockets[index].options;
            let receives = name == libc::SO_RCVTIMEO;
            let time = if receives {
                options.receive_timeout
            } else {
                options.send_timeout
            };
            let time = time.unwrap_or_default();
            bytes[..8].copy_from_slice(&time.as_secs().to_ne_bytes());
            bytes[8..16].copy_from_slice(&u64::from(time.subsec_micros()).to_ne_bytes());
            16
        }
        _ => {
            let number = match state.number_option(index, level, name) {
                // What Skink has nothing to do with the kernel's socket behind it has as it was set, or as sockets begin with.
                Err(Stop::Errno(libc::ENOPROTOOPT))
                    if is_like_the_kernels(&state.sockets[index], level, name) =>
                {
                    return Err(Stop::Kernel);
                }
                number => number?,
            };
            bytes[..4].copy_from_slice(&number.to_ne_bytes());
            4
        }
    };
    // SAFETY: the caller's promise; no more than there is room for.
    unsafe {
        let room = length.read() as usize;
        let count = count.min(room);
        core::ptr::copy_nonoverlapping(bytes.as_ptr(), value.cast(), count);
        length.write(count as socklen_t);
    }
    Ok(0)
}

/// Whether the kernel's socket behind this one, which others may have too, has the same value of an option that Skink doesn't have.
fn is_like_the_kernels(socket: &Socket, level: c_int, name: c_int) -> bool {
    match level {
        libc::SOL_SOCKET => socket.own_kernel_socket || name != libc::SO_COOKIE,
        libc::IPPROTO_TCP => false,
        _ => socket.own_kernel_socket,
    }
}

impl State {
    fn number_option(&mut self, index: u32, level: c_int, name: c_int) -> Answer<c_int> {
        let sizes = self.buffer_sizes(index);
        let socket = &mut self.sockets[index];
        let options = &socket.options;
        let listens = matches!(socket.role, Role::Dormant | Role::Listener(_));
        let listens = listens && !socket.is_bound_only();
        Ok(match (level, name) {
            (libc::SOL_SOCKET, libc::SO_ERROR) => socket.take_error().unwrap_or(0),
            (libc::SOL_SOCKET, libc::SO_TYPE) if socket.datagram => libc::SOCK_DGRAM,
            (libc::SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_STREAM,
            (libc::SOL_SOCKET, libc::SO_DOMAIN) => socket.domain,
            (libc::SOL_SOCKET, libc::SO_PROTOCOL) => c_int::from(socket.protocol()),
            (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => c_int::from(listens),
            (libc::SOL_SOCKET, libc::SO_REUSEADDR) => c_int::from(options.reuse_address),
            (libc::SOL_SOCKET, libc::SO_REUSEPORT) => c_int::from(options.reuse_port),
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => c_int::from(options.keep_alive),
            (libc::SOL_SOCKET, libc::SO_OOBINLINE) => c_int::from(options.urgent_inline),
            (libc::SOL_SOCKET, libc::SO_PRIORITY) => options.priority.cast_signed(),
            (libc::SOL_SOCKET, libc::SO_BROADCAST) => c_int::from(options.broadcast),
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => sizes.0,
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => sizes.1,
            (libc::SOL_SOCKET, libc::SO_RCVLOWAT) => options.receive_low.max(1) as c_int,
            (libc::SOL_SOCKET, libc::SO_SNDLOWAT) => 1,
            (libc::SOL_SOCKET, libc::SO_DONTROUTE | libc::SO_BUSY_POLL) => 0,
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => c_int::from(options.no_delay),
            (libc::IPPROTO_TCP, libc::TCP_CORK) => c_int::from(options.cork),
            (libc::IPPROTO_TCP, libc::TCP_QUICKACK) => c_int::from(options.quick_ack),
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => options.keep_idle as c_int,
            (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL) => options.keep_interval as c_int,
            (libc::IPPROTO_TCP, libc::TCP_KEEPCNT) => options.keep_probes as c_int,
            (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => options.user_timeout as c_int,
            (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT) => options.defer_accept as c_int,
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => self.segment_size(index),
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                c_int::from(options.traffic_class)
            }
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS) => {
                if options.hop_limit == 0 {
                    64
                } else {
                    c_int::from(options.hop_limit)
                }
            }
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => c_int::from(options.only_v6),
            (libc::SOL_SOCKET, libc::SO_TIMESTAMP) => {
                c_int::from(options.told.time == Some(TimeUnit::Micros))
            }
            (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS) => {
                c_int::from(options.told.time == Some(TimeUnit::Nanos))
            }
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => c_int::from(options.told.info_v4),
            (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO) => c_int::from(options.told.info_v6),
            (libc::IPPROTO_IP, libc::IP_RECVTTL) => c_int::from(options.told.ttl),
            (libc::IPPROTO_IP, libc::IP_RECVTOS) => c_int::from(options.told.tos),
            (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT) => c_int::from(options.told.hop_limit),
            (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS) => c_int::from(options.told.traffic_class),
            (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER)
            | (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER) => options
                .mtu_discover
                .map_or(libc::IP_PMTUDISC_WANT, c_int::from),
            // As connections that are accepted begin with; others have it from the kernel.
            (libc::IPPROTO_IP, libc::IP_RECVERR | libc::IP_FREEBIND | libc::IP_MINTTL)
            | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
                if !socket.own_kernel_socket =>
            {
                0
            }
            _ => return fail(libc::ENOPROTOOPT),
        })
    }

    /// A number that no other connection has. Of the kernel's, which count from 1, none is so large.
    fn cookie(&self, index: u32) -> Answer<u64> {
        let (_, id) = self.stream(index)?;
        Ok(1 << 63 | u64::from(id.generation) << 32 | u64::from(id.slot))
    }

    /// The largest packet in bytes that reaches the peer, as far as that is known.
    fn path_mtu(&mut self, index: u32) -> Answer<c_int> {
        let socket = &self.sockets[index];
        let record = match self.stream(index) {
            Ok((table, id)) if self.is_connected(index) => table.find(id),
            _ => None,
        };
        let peer = match record {
            Some(record) => Some(record.four_tuple().remote),
            None => socket.peer.filter(|_| socket.datagram),
        };
        let peer = peer.ok_or(Stop::Errno(libc::ENOTCONN))?;
        let mtu = self.mtu_towards(peer.addr).map(u32::cast_signed);
        mtu.ok_or(Stop::Errno(libc::ENOTCONN))
    }

    /// The largest packet in bytes that reaches `destination`, as far as this process knows. A stack in another one tells nothing
    /// of paths: then it is what the interface took when the process came by the stack.
    pub fn mtu_towards(&self, destination: IpAddr) -> Option<u32> {
        let engine = self.engine.as_deref()?;
        match engine.stack.is_served() {
            true => self.interface_mtu,
            false => engine.stack.path_mtu(destination),
        }
    }

    /// Connections that wait in a listening socket's queue.
    fn acceptable(&self, index: u32) -> u32 {
        let (Role::Listener(halves), Some(engine)) = (self.sockets[index].role, &self.engine)
        else {
            return 0;
        };
        let halves = halves.into_iter().flatten();
        halves
            .map(|id| engine.stack.tcp_acceptable(id) as u32)
            .sum()
    }

    /// What `SO_SNDBUF` and `SO_RCVBUF` are: as large as the rings in the beginning, or as the program has set them.
    fn buffer_sizes(&self, index: u32) -> (c_int, c_int) {
        let Some(engine) = &self.engine else {
            return (0, 0);
        };
        let datagram = self.sockets[index].datagram;
        let table = if datagram {
            engine.stack.udp_table()
        } else {
            engine.stack.tcp_table()
        };
        // All regions of one stack's table are alike.
        let config = table.regions().next().map(|(_, region)| region.config());
        let options = &self.sockets[index].options;
        config.map_or((0, 0), |config| {
            let size = |set, ring: u32| match set {
                0 if !datagram => first_part(ring as usize) as c_int,
                // Programs ask whether they were given what they wanted.
                set => buffer_limit(set, ring as usize) as c_int,
            };
            let send = size(options.send_buffer, config.send_bytes);
            (send, size(options.receive_buffer, config.receive_bytes))
        })
    }

    fn segment_size(&self, index: u32) -> c_int {
        let set = c_int::from(self.sockets[index].options.maximum_segment);
        let stream = self.stream(index).ok();
        let record = stream.and_then(|(table, id)| table.find(id));
        match record.map(|record| payload_of(record).cast_signed()) {
            Some(known @ 1..) => known,
            _ if set > 0 => set,
            _ => 536,
        }
    }

    /// `TCP_INFO`, as far as the record tells.
    fn connection_info(&self, index: u32, bytes: &mut [u8]) -> Answer {
        // SAFETY: plain numbers, for which zero is a value.
        let mut info: libc::tcp_info = unsafe { core::mem::zeroed() };
        let listens = matches!(self.sockets[index].role, Role::Dormant | Role::Listener(_));
        info.tcpi_state = if listens { 10 } else { 7 };
        if listens {
            // How many connections wait, and how many may.
            info.tcpi_unacked = self.acceptable(index);
            info.tcpi_sacked = self.sockets[index].backlog;
        }
        if let Ok((table, id)) = self.stream(index)
            && let Some(record) = table.find(id)
        {
            let state = TcpState::from_number(record.state.load(Ordering::Relaxed));
            info.tcpi_state = state.map_or(7, linux_state);
            info.tcpi_options = record.options.load(Ordering::Relaxed) & 3;
            let windows_scaled = record.options.load(Ordering::Relaxed) & 4 != 0;
            // TCPI_OPT_TIMESTAMPS 1, TCPI_OPT_SACK 2, TCPI_OPT_WSCALE 4.
            info.tcpi_options = info.tcpi_options >> 1 | (info.tcpi_options & 1) << 1;
            info.tcpi_options |= u8::from(windows_scaled) << 2;
            let (mss, cwnd) = (payload_of(record), record.cwnd.load(Ordering::Relaxed));
            info.tcpi_snd_mss = mss;
            info.tcpi_rcv_mss = mss;
            info.tcpi_advmss = mss;
            info.tcpi_snd_cwnd = cwnd.checked_div(mss).unwrap_or(0);
            info.tcpi_rtt = record.rtt_us.load(Ordering::Relaxed);
            info.tcpi_total_retrans = record.retransmits.load(Ordering::Relaxed);
            info.tcpi_rcv_space = table.receive_ring(id.slot).size() as u32;
            info.tcpi_pmtu = u32::from(record.mss.load(Ordering::Relaxed)) + 40;
            // Between two segments that leave the ring's head is ahead of the record's `snd_una`.
            let ring = table.send_ring(id.slot);
            let sent = record.snd_max.load(Ordering::Relaxed);
            let begin = record.iss.load(Ordering::Relaxed).wrapping_add(1);
            let flight = sent.wrapping_sub(begin.wrapping_add(ring.head() as u32));
            let segments = (flight.min(ring.len() as u32)).div_ceil(mss.max(1));
            // What the stack hasn't come to send yet is under way for the program, as with the kernel.
            info.tcpi_unacked = segments.max(u32::from(!ring.is_empty()));
        }
        let size = size_of::<libc::tcp_info>().min(bytes.len());
        // SAFETY: the structure is at least that long.
        let source = unsafe { core::slice::from_raw_parts((&raw const info).cast::<u8>(), size) };
        bytes[..size].copy_from_slice(source);
        Ok(size)
    }
}

/// The largest payload of a segment in bytes, or 0 if that isn't known yet: what the peer takes, less the options that
/// each segment has.
fn payload_of(record: &Record) -> u32 {
    let timestamps = record.options.load(Ordering::Relaxed) & 2 != 0;
    let mss = u32::from(record.mss.load(Ordering::Relaxed));
    mss.saturating_sub(if timestamps { 12 } else { 0 })
}

/// Linux's number for a state (`include/net/tcp_states.h`).
fn linux_state(state: TcpState) -> u8 {
    match state {
        TcpState::Established => 1,
        TcpState::SynSent => 2,
        TcpState::SynReceived => 3,
        TcpState::FinWait1 => 4,
        TcpState::FinWait2 => 5,
        TcpState::TimeWait => 6,
        TcpState::Closed => 7,
        TcpState::CloseWait => 8,
        TcpState::LastAck => 9,
        TcpState::Listen => 10,
        TcpState::Closing => 11,
    }
}
