//! Socket addresses between the program's memory and [`Endpoint`].
use crate::errno::{Answer, fail};
use core::ffi::c_int;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use libc::{sockaddr, sockaddr_in, sockaddr_in6, socklen_t};
use skink_wire::Endpoint;

/// An address that a program passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Name {
    /// `AF_UNSPEC`, which disconnects.
    Unspecified,
    /// An IPv4 or IPv6 address, as it was written (a mapped one stays mapped).
    Inet(Endpoint),
}

/// Reads an address.
///
/// # Safety
/// `length` bytes at `address` must be readable, if it isn't null.
pub unsafe fn read(address: *const sockaddr, length: socklen_t) -> Answer<Name> {
    if address.is_null() {
        return fail(libc::EFAULT);
    }
    if (length as usize) < size_of::<libc::sa_family_t>() {
        return fail(libc::EINVAL);
    }
    // SAFETY: at least the family is there.
    let family = unsafe { address.cast::<libc::sa_family_t>().read_unaligned() };
    match c_int::from(family) {
        libc::AF_UNSPEC => Ok(Name::Unspecified),
        libc::AF_INET if length as usize >= size_of::<sockaddr_in>() => {
            // SAFETY: the length was checked.
            let name = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
            let v4 = Ipv4Addr::from_bits(u32::from_be(name.sin_addr.s_addr));
            Ok(Name::Inet(Endpoint::new(
                v4.into(),
                u16::from_be(name.sin_port),
            )))
        }
        // RFC 2133's structure has no scope.
        libc::AF_INET6 if length as usize >= size_of::<sockaddr_in6>() - 4 => {
            let at = address.cast::<u8>();
            // SAFETY: the length was checked; the port lies at 2, the address at 8.
            let (port, octets) = unsafe {
                (
                    at.add(2).cast::<u16>().read_unaligned(),
                    at.add(8).cast::<[u8; 16]>().read(),
                )
            };
            let v6 = Ipv6Addr::from(octets);
            Ok(Name::Inet(Endpoint::new(v6.into(), u16::from_be(port))))
        }
        libc::AF_INET | libc::AF_INET6 => fail(libc::EINVAL),
        _ => fail(libc::EAFNOSUPPORT),
    }
}

/// As [`read`], for a call that may go without an address.
///
/// # Safety
/// As for [`read`].
pub unsafe fn read_optional(address: *const sockaddr, length: socklen_t) -> Answer<Option<Name>> {
    if address.is_null() || length == 0 {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    unsafe { read(address, length) }.map(Some)
}

/// Writes `endpoint` as a socket of `domain` shows it (IPv4 mapped on an IPv6 socket), cut to the
/// room there is; `length` then says how long it would have been.
///
/// # Safety
/// `length`, if not null, must be writable, and `*length` bytes at `address`.
pub unsafe fn write(
    endpoint: Endpoint,
    domain: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) {
    // SAFETY: the caller's promise.
    unsafe { write_scoped(endpoint, 0, domain, address, length) }
}

/// As [`write`], with a scope (`sin6_scope_id`, RFC 3493 section 3.3).
///
/// # Safety
/// As for [`write`].
pub unsafe fn write_scoped(
    endpoint: Endpoint,
    scope: u32,
    domain: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) {
    if address.is_null() || length.is_null() {
        return;
    }
    // SAFETY: the caller's promise.
    let room = unsafe { length.read() } as usize;
    let (mut bytes, count) = encode(endpoint, domain);
    bytes[24..28].copy_from_slice(&scope.to_ne_bytes());
    // SAFETY: no more than there is room for.
    unsafe {
        core::ptr::copy_nonoverlapping(bytes.as_ptr(), address.cast(), count.min(room));
        length.write(count as socklen_t);
    }
}

/// `endpoint` as the bytes of a `sockaddr`, and how many of them count.
pub fn encode(endpoint: Endpoint, domain: c_int) -> ([u8; 28], usize) {
    let mut bytes = [0; 28];
    bytes[0..2].copy_from_slice(&(domain as u16).to_ne_bytes());
    bytes[2..4].copy_from_slice(&endpoint.port.to_be_bytes());
    if domain == libc::AF_INET {
        if let IpAddr::V4(v4) = endpoint.addr.to_canonical() {
            bytes[4..8].copy_from_slice(&v4.octets());
        }
        return (bytes, size_of::<sockaddr_in>());
    }
    let v6 = match endpoint.addr {
        IpAddr::V4(v4) if v4.is_unspecified() => Ipv6Addr::UNSPECIFIED,
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    bytes[8..24].copy_from_slice(&v6.octets());
    (bytes, size_of::<sockaddr_in6>())
}

/// The endpoint with a mapped address taken for the IPv4 address that it is.
pub fn canonical(endpoint: Endpoint) -> Endpoint {
    Endpoint::new(endpoint.addr.to_canonical(), endpoint.port)
}

#[cfg(test)]
mod tests;
