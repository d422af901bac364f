//! What `ioctl` tells of interfaces' IPv4 addresses (netdevice(7)), of which the kernel knows its own. Java looks for interfaces so.
use super::own;
use crate::errno::{Answer, Stop};
use crate::raw;
use core::ffi::c_int;
use libc::{SIOCGIFADDR, SIOCGIFBRDADDR, SIOCGIFCONF, SIOCGIFNETMASK, c_ulong};
use skink_wire::IpCidr;

/// `struct ifreq`: a name, and what it is about.
#[repr(C)]
#[derive(Clone, Copy)]
struct Entry {
    name: [u8; libc::IF_NAMESIZE],
    address: [u8; 16],
    _rest: [u8; 8],
}

/// `struct ifconf`: room for so many bytes of entries.
#[repr(C)]
struct List {
    bytes: c_int,
    at: *mut Entry,
}

/// The MTU of an interface in bytes, as the kernel has it.
pub fn mtu(name: &str) -> Option<u32> {
    // SAFETY: numbers, for which zero is a value.
    let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    let arguments = [libc::AF_INET as usize, kind as usize, 0, 0, 0, 0];
    // SAFETY: no memory is involved.
    let socket = unsafe { raw::call(libc::SYS_socket, arguments) }.ok()?;
    let at = &raw mut request as usize;
    let arguments = [socket, libc::SIOCGIFMTU as usize, at, 0, 0, 0];
    // SAFETY: the kernel writes a number to the request, which is ours.
    let told = unsafe { raw::call(libc::SYS_ioctl, arguments) };
    raw::close(socket as c_int);
    told.ok()?;
    // SAFETY: it is that number now.
    u32::try_from(unsafe { request.ifr_ifru.ifru_mtu }).ok()
}

/// Whether a request asks for addresses of interfaces.
pub fn is_for_addresses(request: c_ulong) -> bool {
    [SIOCGIFCONF, SIOCGIFADDR, SIOCGIFNETMASK, SIOCGIFBRDADDR].contains(&request)
}

/// Answers such a request, with what the kernel says and with `addresses` of the interface `name`. As with the kernel, who names an
/// address asks for that one, and who doesn't for the first.
///
/// # Safety
/// As for `ioctl`.
pub unsafe fn answer(
    fd: c_int,
    request: c_ulong,
    argument: usize,
    name: &str,
    addresses: &[IpCidr],
) -> Answer {
    let kernel = || {
        let arguments = [fd as usize, request as usize, argument, 0, 0, 0];
        // SAFETY: the caller's promise.
        unsafe { raw::call(libc::SYS_ioctl, arguments) }
    };
    let v4 = addresses.iter().filter(|address| address.addr.is_ipv4());
    let all = v4.map(|address| own(name, *address));
    let bytes = |storage: &libc::sockaddr_storage| {
        // SAFETY: it is longer, and has no padding before that.
        unsafe { (&raw const *storage).cast::<[u8; 16]>().read() }
    };
    if request == SIOCGIFCONF {
        let list = argument as *mut List;
        if list.is_null() {
            return Err(Stop::Kernel);
        }
        // SAFETY: the caller's promise, here and below.
        let room = unsafe { (*list).bytes };
        kernel()?;
        for own in all {
            let entry = Entry {
                name: own.name,
                address: bytes(&own.address),
                _rest: [0; 8],
            };
            let size = size_of::<Entry>() as c_int;
            // SAFETY: as above; who asks how much room it takes has none.
            unsafe {
                let used = (*list).bytes;
                if !(*list).at.is_null() {
                    if used > room - size {
                        break;
                    }
                    (*list).at.byte_add(used as usize).write_unaligned(entry);
                }
                (*list).bytes = used + size;
            }
        }
        return Ok(0);
    }
    let entry = argument as *mut Entry;
    if entry.is_null() {
        return Err(Stop::Kernel);
    }
    // SAFETY: as above.
    let asked = unsafe { entry.read_unaligned() };
    let text = |name: [u8; libc::IF_NAMESIZE]| name.into_iter().take_while(|byte| *byte != 0);
    let mut own: Vec<_> = all
        .filter(|own| text(own.name).eq(text(asked.name)))
        .collect();
    let named = |own: &super::Own| bytes(&own.address)[4..8] == asked.address[4..8];
    let is_inet = asked.address[..2] == (libc::AF_INET as u16).to_ne_bytes();
    match own.iter().position(named).filter(|_| is_inet) {
        Some(at) => own.swap(0, at),
        None => match kernel() {
            Err(Stop::Errno(libc::EADDRNOTAVAIL)) if !own.is_empty() => {}
            answer => return answer.map(|_| 0),
        },
    }
    let own = &own[0];
    let address = match request {
        SIOCGIFNETMASK => &own.mask,
        SIOCGIFBRDADDR => &own.broadcast,
        _ => &own.address,
    };
    // SAFETY: as above.
    unsafe { (&raw mut (*entry).address).write_unaligned(bytes(address)) };
    Ok(0)
}
