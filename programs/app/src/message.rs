//! `sendmsg` and `recvmsg`: headers and control messages.
use crate::buffers::Buffers;
use crate::errno::{Answer, fail};
use crate::options::TimeUnit;
use crate::sockaddr;
use crate::transfer::{self, Control, Received, Sending};
use core::ffi::c_int;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use libc::{cmsghdr, msghdr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// # Safety
/// As for `recvmsg`.
pub unsafe fn receive(fd: c_int, message: *mut msghdr, flags: c_int) -> Answer {
    // SAFETY: the caller's promise, here and below.
    let Some(message) = (unsafe { message.as_mut() }) else {
        return fail(libc::EFAULT);
    };
    // SAFETY: as above.
    let buffers = unsafe { Buffers::from_raw(message.msg_iov, message.msg_iovlen) }?;
    let received = transfer::receive(fd, buffers, flags)?;
    message.msg_flags = if received.truncated {
        libc::MSG_TRUNC
    } else {
        0
    };
    let length = &raw mut message.msg_namelen;
    // SAFETY: as above.
    unsafe { received.write_name(message.msg_name.cast(), length) };
    // SAFETY: as above.
    unsafe { write_control(message, &received) };
    Ok(received.bytes)
}

/// # Safety
/// `message` must describe its control buffer truly.
unsafe fn write_control(message: &mut msghdr, received: &Received) {
    let room = message.msg_controllen;
    message.msg_controllen = 0;
    let (Some(from), told) = (received.from, received.told) else {
        return;
    };
    let mut put = |level: c_int, kind: c_int, data: &[u8]| {
        // SAFETY: the caller's promise.
        unsafe { append(message, room, (level, kind), data) }
    };
    if let Some(unit) = told.time {
        let time = received.time.unwrap_or_else(time_of_day);
        let (kind, rest) = match unit {
            TimeUnit::Micros => (libc::SO_TIMESTAMP, time.subsec_micros()),
            TimeUnit::Nanos => (libc::SO_TIMESTAMPNS, time.subsec_nanos()),
        };
        let mut data = [0; 16];
        data[..8].copy_from_slice(&time.as_secs().to_ne_bytes());
        data[8..].copy_from_slice(&u64::from(rest).to_ne_bytes());
        put(libc::SOL_SOCKET, kind, &data);
    }
    let interface = received.interface.unwrap_or(0).to_ne_bytes();
    let to = received.to.map(|to| to.to_canonical());
    if let (true, Some(to)) = (told.info_v6, to) {
        let as_v6 = match to {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        let mut data = [0; 20];
        data[..16].copy_from_slice(&as_v6.octets());
        data[16..].copy_from_slice(&interface);
        put(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &data);
    }
    let hop_limit = c_int::from(received.hop_limit).to_ne_bytes();
    match from.addr.to_canonical() {
        IpAddr::V4(_) => {
            if let (true, Some(IpAddr::V4(v4))) = (told.info_v4, to) {
                let mut data = [0; 12];
                data[..4].copy_from_slice(&interface);
                data[4..8].copy_from_slice(&v4.octets());
                data[8..].copy_from_slice(&v4.octets());
                put(libc::IPPROTO_IP, libc::IP_PKTINFO, &data);
            }
            if told.ttl {
                put(libc::IPPROTO_IP, libc::IP_TTL, &hop_limit);
            }
            if told.tos {
                put(libc::IPPROTO_IP, libc::IP_TOS, &[received.traffic_class]);
            }
        }
        IpAddr::V6(_) => {
            if told.hop_limit {
                put(libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, &hop_limit);
            }
            if told.traffic_class {
                let class = c_int::from(received.traffic_class).to_ne_bytes();
                put(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &class);
            }
        }
    }
}

/// The time since 1970.
fn time_of_day() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// Appends a control message to those that there are, or says that there is no room (of `room` bytes in all).
///
/// # Safety
/// `message` must describe its control buffer truly, which has `room` bytes.
unsafe fn append(message: &mut msghdr, room: usize, (level, kind): (c_int, c_int), data: &[u8]) {
    let length = data.len() as u32;
    // SAFETY: `CMSG_SPACE` and `CMSG_LEN` only compute.
    let (space, exact) = unsafe { (libc::CMSG_SPACE(length) as usize, libc::CMSG_LEN(length)) };
    let begin = message.msg_controllen;
    if message.msg_control.is_null() || room.saturating_sub(begin) < exact as usize {
        message.msg_flags |= libc::MSG_CTRUNC;
        return;
    }
    let header = cmsghdr {
        cmsg_len: exact as _,
        cmsg_level: level,
        cmsg_type: kind,
    };
    // SAFETY: `exact` bytes fit into the program's buffer, after what is there.
    unsafe {
        let at = message.msg_control.cast::<u8>().add(begin);
        at.cast::<cmsghdr>().write_unaligned(header);
        let to = at.add(size_of::<cmsghdr>());
        core::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len());
    }
    message.msg_controllen = (begin + space).min(room);
}

/// # Safety
/// As for `sendmsg`.
pub unsafe fn send(fd: c_int, message: *const msghdr, flags: c_int) -> Answer {
    // SAFETY: the caller's promise, here and below.
    let Some(message) = (unsafe { message.as_ref() }) else {
        return fail(libc::EFAULT);
    };
    // SAFETY: as above.
    let buffers = unsafe { Buffers::from_raw(message.msg_iov, message.msg_iovlen) }?;
    // SAFETY: as above.
    let to = unsafe { sockaddr::read_optional(message.msg_name.cast(), message.msg_namelen) };
    // SAFETY: as above.
    let control = unsafe { read_control(message) };
    transfer::send(
        fd,
        Sending {
            buffers,
            flags,
            to,
            control,
        },
    )
}

/// The number of up to four bytes in a control message: a byte, or an `int`.
///
/// # Safety
/// So many bytes must be readable.
unsafe fn small_number(data: *const u8, length: usize) -> u8 {
    match length {
        // SAFETY: the caller's promise.
        4.. => unsafe { data.cast::<c_int>().read_unaligned() as u8 },
        // SAFETY: as above.
        _ => unsafe { data.read() },
    }
}

/// What control messages ask for.
///
/// # Safety
/// `message` must describe its control buffer truly.
unsafe fn read_control(message: &msghdr) -> Answer<Control> {
    let mut control = Control::default();
    if message.msg_control.is_null() || message.msg_controllen == 0 {
        return Ok(control);
    }
    // SAFETY: the macros stay inside the control buffer.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: as above.
    while let Some(header) = unsafe { next.as_ref() } {
        // SAFETY: as above.
        let data = unsafe { libc::CMSG_DATA(next) };
        let length = header.cmsg_len.saturating_sub(size_of::<cmsghdr>());
        match (header.cmsg_level, header.cmsg_type) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) if length >= 12 => {
                // SAFETY: `ipi_spec_dst` lies at 4, inside the message.
                let octets = unsafe { data.add(4).cast::<[u8; 4]>().read() };
                control.from = Some(IpAddr::V4(Ipv4Addr::from(octets)));
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) if length >= 20 => {
                // SAFETY: as above.
                let octets = unsafe { data.cast::<[u8; 16]>().read() };
                control.from = Some(IpAddr::V6(Ipv6Addr::from(octets)).to_canonical());
            }
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS)
                if length >= 1 =>
            {
                // SAFETY: a byte, or a number that begins with it or ends: as long as is said.
                control.traffic_class = Some(unsafe { small_number(data, length) });
            }
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT)
                if length >= 4 =>
            {
                // SAFETY: the number is as long as that.
                let number = unsafe { data.cast::<c_int>().read_unaligned() };
                control.hop_limit = match (header.cmsg_level, number) {
                    (libc::IPPROTO_IPV6, -1) => None,
                    (_, 1..=255) => Some(number as u8),
                    _ => return fail(libc::EINVAL),
                };
            }
            // These are of no use here, and the kernel takes them.
            (
                libc::SOL_SOCKET,
                libc::SCM_RIGHTS
                | libc::SCM_CREDENTIALS
                | libc::SO_TIMESTAMPING
                | libc::SO_PRIORITY,
            ) => {}
            (libc::SOL_SOCKET | libc::IPPROTO_IP | libc::IPPROTO_IPV6 | libc::IPPROTO_UDP, _) => {
                return fail(libc::EINVAL);
            }
            // What isn't for the layers below is none of their business.
            _ => {}
        }
        // SAFETY: as above.
        next = unsafe { libc::CMSG_NXTHDR(message, next) };
    }
    control.from = control.from.filter(|from| !from.is_unspecified());
    Ok(control)
}

#[cfg(test)]
mod tests;
